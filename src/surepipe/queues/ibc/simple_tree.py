"""The simple Merkle tree: one root over the roots of several spaces, and the proof of each of them.

It is the tree of RFC 6962 over a list, split at the largest power of two below its length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256

from surepipe.queues.ibc.proof import ExistenceProof, HashOp, InnerOp, LeafOp, LengthOp, uvarint

_LEAF = LeafOp(HashOp.SHA256, HashOp.NO_HASH, HashOp.SHA256, LengthOp.VAR_PROTO, b"\0")


def simple_root(leaves: Sequence[bytes]) -> bytes:
    """The root over a list of raw leaf data."""
    if not leaves:
        return sha256(b"").digest()
    if len(leaves) == 1:
        return sha256(b"\0" + leaves[0]).digest()
    middle = _split(len(leaves))
    return sha256(b"\1" + simple_root(leaves[:middle]) + simple_root(leaves[middle:])).digest()


def simple_map_root(values: Mapping[bytes, bytes]) -> bytes:
    """The root over a mapping, in the order of its keys. Keys and values are not empty."""
    return simple_root([_leaf(key, values[key]) for key in sorted(values)])


def prove_in_map(values: Mapping[bytes, bytes], key: bytes) -> ExistenceProof:
    """The proof that the mapping has the key."""
    keys = sorted(values)
    path = _path([_leaf(each, values[each]) for each in keys], keys.index(key))
    return ExistenceProof(key, values[key], _LEAF, tuple(path))


def _leaf(key: bytes, value: bytes) -> bytes:
    return uvarint(len(key)) + key + b"\x20" + sha256(value).digest()


def _split(count: int) -> int:
    return 1 << (count - 1).bit_length() - 1


def _path(leaves: Sequence[bytes], place: int) -> list[InnerOp]:
    """The steps from the leaf at this place to the root."""
    if len(leaves) == 1:
        return []
    middle = _split(len(leaves))
    if place < middle:
        right = simple_root(leaves[middle:])
        return [*_path(leaves[:middle], place), InnerOp(HashOp.SHA256, b"\1", right)]
    left = simple_root(leaves[:middle])
    return [*_path(leaves[middle:], place - middle), InnerOp(HashOp.SHA256, b"\1" + left)]
