"""What a proof of a Merkle store is made of, as ICS-23 has it, and how it hashes.

A proof of existence is a leaf and the steps from it to the root; each step says what stands before and behind the
digest of the child. A proof of absence is the existence of the two neighbours. A specification says which of all
possible leaves and steps a certain kind of tree makes, so that nobody can pass off a step as a leaf.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import TypeAlias

from surepipe.errors import SurepipeError


class ProofError(SurepipeError):
    """These bytes, or this proof, can't be read or computed with. It proves nothing; no state was touched."""

    code = "malformed-proof"


class HashOp(IntEnum):
    """How bytes are hashed. Keccak and BLAKE3 are not in ``hashlib``, and proofs that need them are refused."""

    NO_HASH = 0
    SHA256 = 1
    SHA512 = 2
    KECCAK256 = 3
    RIPEMD160 = 4
    BITCOIN = 5
    SHA512_256 = 6
    BLAKE2B_512 = 7
    BLAKE2S_256 = 8
    BLAKE3 = 9


class LengthOp(IntEnum):
    """How the length of a key or a value stands before it."""

    NO_PREFIX = 0
    VAR_PROTO = 1
    VAR_RLP = 2
    FIXED32_BIG = 3
    FIXED32_LITTLE = 4
    FIXED64_BIG = 5
    FIXED64_LITTLE = 6
    REQUIRE_32_BYTES = 7
    REQUIRE_64_BYTES = 8


@dataclass(frozen=True, slots=True)
class LeafOp:
    """How key and value become the digest of a leaf. Numbers are as they came; unknown ones are refused later."""

    hash: int = HashOp.NO_HASH
    prehash_key: int = HashOp.NO_HASH
    prehash_value: int = HashOp.NO_HASH
    length: int = LengthOp.NO_PREFIX
    prefix: bytes = b""


@dataclass(frozen=True, slots=True)
class InnerOp:
    """One step towards the root: the hash of prefix, digest of the child, and suffix."""

    hash: int = HashOp.NO_HASH
    prefix: bytes = b""
    suffix: bytes = b""


@dataclass(frozen=True, slots=True)
class ExistenceProof:
    """This key has this value. The path goes from the leaf to the root."""

    key: bytes
    value: bytes
    leaf: LeafOp | None
    path: tuple[InnerOp, ...] = ()


@dataclass(frozen=True, slots=True)
class NonExistenceProof:
    """No key stands between these two neighbours; one of them is missing at an end of the tree."""

    key: bytes
    left: ExistenceProof | None
    right: ExistenceProof | None


@dataclass(frozen=True, slots=True)
class BatchProof:
    """Several proofs under one root."""

    entries: tuple[ExistenceProof | NonExistenceProof, ...]


@dataclass(frozen=True, slots=True)
class CompressedExistence:
    """An existence proof whose steps are places in a table."""

    key: bytes
    value: bytes
    leaf: LeafOp | None
    path: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CompressedAbsence:
    """An absence proof whose steps are places in a table."""

    key: bytes
    left: CompressedExistence | None
    right: CompressedExistence | None


@dataclass(frozen=True, slots=True)
class CompressedBatchProof:
    """Several proofs under one root; each step that they share is stored once."""

    entries: tuple[CompressedExistence | CompressedAbsence, ...]
    lookup: tuple[InnerOp, ...]


CommitmentProof: TypeAlias = ExistenceProof | NonExistenceProof | BatchProof | CompressedBatchProof
MerkleProof: TypeAlias = tuple[CommitmentProof, ...]
"""A chain: of a key in its tree first, then of that tree's root in the next one."""


@dataclass(frozen=True, slots=True)
class InnerSpec:
    """Which steps a kind of tree makes."""

    child_size: int
    min_prefix: int
    max_prefix: int
    child_order: tuple[int, ...] = (0, 1)
    empty_child: bytes = b""
    hash: int = HashOp.SHA256


@dataclass(frozen=True, slots=True)
class SeenSteps:
    """Remembers a verifier's findings on steps and leaves that look alike. It only saves time.

    A step with one digest behind it is known by its prefix, one with nothing behind it by its prefix without the
    last child. The numbers say how many layers above a leaf such a step may stand. ``written_steps`` and
    ``written_leaves`` are the same by the bytes of a proof: those of a step in front of the digest beside it, with
    its prefix if that digest is the suffix, and those of a whole leaf, with its prefix.
    """

    with_suffix: dict[bytes, int] = field(default_factory=dict[bytes, int])
    without_suffix: dict[bytes, int] = field(default_factory=dict[bytes, int])
    leaves: set[bytes] = field(default_factory=set[bytes])
    written_steps: dict[bytes, tuple[int, bytes]] = field(
        default_factory=dict[bytes, tuple[int, bytes]]
    )
    written_leaves: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes])


class Rules(Enum):
    """Rules for steps beyond those that a specification can state."""

    NONE = 0
    IAVL = 1
    TENDERMINT = 2


@dataclass(frozen=True, slots=True)
class ProofSpec:
    """Which proofs a kind of tree makes. A depth of 0 is no bound of its own."""

    leaf: LeafOp | None
    inner: InnerSpec | None
    min_depth: int = 0
    max_depth: int = 0
    are_keys_hashed: bool = False
    """Whether the order of leaves is that of their hashed keys."""
    seen: SeenSteps = field(init=False, repr=False, compare=False)
    is_sound: bool = field(init=False, repr=False, compare=False)
    """Whether a proof can mean one thing only."""
    rules: Rules = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "seen", SeenSteps())
        object.__setattr__(self, "is_sound", _is_sound(self))
        object.__setattr__(self, "rules", _rules_of(self))


_DIGEST_BYTES: dict[int, int] = {
    HashOp.SHA256: 32, HashOp.SHA512: 64, HashOp.RIPEMD160: 20, HashOp.BITCOIN: 20,
    HashOp.SHA512_256: 32, HashOp.BLAKE2B_512: 64, HashOp.BLAKE2S_256: 32,
}  # fmt: skip


def _is_sound(spec: ProofSpec) -> bool:
    inner = spec.inner
    if spec.leaf is None or inner is None:
        return False
    places = len(inner.child_order)
    return (
        inner.child_size >= 1
        and inner.min_prefix >= 0
        and inner.max_prefix < inner.min_prefix + inner.child_size
        and places >= 2
        and sorted(inner.child_order) == list(range(places))
        and not 32 <= inner.child_size < _DIGEST_BYTES.get(inner.hash, 64)
    )


def _rules_of(spec: ProofSpec) -> Rules:
    """Those of the kind of tree from which the specification differs in depth or in the prefix of leaves only."""
    leaf, inner = spec.leaf, spec.inner
    if leaf is None or inner is None or inner.hash != HashOp.SHA256 or len(inner.child_order) != 2:
        return Rules.NONE
    if (leaf.hash, leaf.prehash_key, leaf.prehash_value, leaf.length) != (
        HashOp.SHA256, HashOp.NO_HASH, HashOp.SHA256, LengthOp.VAR_PROTO
    ):  # fmt: skip
        return Rules.NONE
    shapes = {(33, 4, 12): Rules.IAVL, (32, 1, 1): Rules.TENDERMINT}
    return shapes.get((inner.child_size, inner.min_prefix, inner.max_prefix), Rules.NONE)


_LEAF = LeafOp(HashOp.SHA256, HashOp.NO_HASH, HashOp.SHA256, LengthOp.VAR_PROTO, b"\0")
IAVL_SPEC = ProofSpec(_LEAF, InnerSpec(child_size=33, min_prefix=4, max_prefix=12))
TENDERMINT_SPEC = ProofSpec(_LEAF, InnerSpec(child_size=32, min_prefix=1, max_prefix=1))
SMT_SPEC = ProofSpec(
    LeafOp(HashOp.SHA256, HashOp.SHA256, HashOp.SHA256, LengthOp.NO_PREFIX, b"\0"),
    InnerSpec(child_size=32, min_prefix=1, max_prefix=1, empty_child=bytes(32)),
    max_depth=256,
    are_keys_hashed=True,
)


@dataclass(frozen=True, slots=True)
class ProofLimits:
    """What a proof may cost before anything is hashed. A small compressed proof can mean a very large one."""

    bytes_max: int = 1 << 20
    fields_max: int = 100_000
    entries_max: int = 1024
    depth_max: int = 256
    expanded_bytes_max: int = 8 << 20


PROOF_LIMITS = ProofLimits()


def uvarint(number: int) -> bytes:
    """A number from 0 on as LEB128: seven bits in a byte, the lowest first."""
    if number < 0x80:
        return bytes((number,))
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def read_uvarint(data: bytes, at: int) -> tuple[int, int]:
    """A LEB128 number of at most 64 bits, and where it ends. Raises ProofError."""
    number = shift = 0
    while True:
        if at >= len(data):
            raise ProofError("a number is cut off at the end of the bytes")
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise ProofError("a number has more than ten bytes")
    if number >> 64:
        raise ProofError("a number has more than 64 bits")
    return number, at


_Digest: TypeAlias = Callable[[bytes], bytes]


def _named(name: str) -> _Digest | None:
    """A hash that not every build of OpenSSL brings."""
    try:
        hashlib.new(name)
    except ValueError:
        return None
    return lambda data: hashlib.new(name, data).digest()


_HASHES: dict[int, _Digest | None] = {
    HashOp.SHA256: lambda data: hashlib.sha256(data).digest(),
    HashOp.SHA512: lambda data: hashlib.sha512(data).digest(),
    HashOp.RIPEMD160: _named("ripemd160"),
    HashOp.SHA512_256: _named("sha512_256"),
    HashOp.BLAKE2B_512: lambda data: hashlib.blake2b(data).digest(),
    HashOp.BLAKE2S_256: lambda data: hashlib.blake2s(data).digest(),
}


def hash_op(op: int, data: bytes) -> bytes:
    """The digest; of ``NO_HASH`` the data. Raises ProofError for a hash that is unknown or that Python lacks."""
    if op == HashOp.NO_HASH:
        return data
    if op == HashOp.BITCOIN:
        return hash_op(HashOp.RIPEMD160, hash_op(HashOp.SHA256, data))
    digest = _HASHES.get(op)
    if digest is None:
        raise ProofError(f"hash {op} is not computed here")
    return digest(data)


def _with_length(op: int, data: bytes) -> bytes:
    match op:
        case LengthOp.NO_PREFIX:
            return data
        case LengthOp.VAR_PROTO:
            return uvarint(len(data)) + data
        case LengthOp.FIXED32_BIG | LengthOp.FIXED64_BIG:
            return len(data).to_bytes(4 if op == LengthOp.FIXED32_BIG else 8, "big") + data
        case LengthOp.FIXED32_LITTLE | LengthOp.FIXED64_LITTLE:
            return len(data).to_bytes(4 if op == LengthOp.FIXED32_LITTLE else 8, "little") + data
        case LengthOp.REQUIRE_32_BYTES | LengthOp.REQUIRE_64_BYTES:
            wanted = 32 if op == LengthOp.REQUIRE_32_BYTES else 64
            if len(data) != wanted:
                raise ProofError(f"{len(data)} bytes stand where {wanted} must")
            return data
        case _:
            raise ProofError(f"length {op} is not known here")


def leaf_op(op: LeafOp, key: bytes, value: bytes) -> bytes:
    """The digest of a leaf. Raises ProofError for an empty key or value, too."""
    if not key or not value:
        raise ProofError("a leaf has no key, or no value")
    return hash_op(
        op.hash,
        op.prefix
        + _with_length(op.length, hash_op(op.prehash_key, key))
        + _with_length(op.length, hash_op(op.prehash_value, value)),
    )


def inner_op(op: InnerOp, child: bytes) -> bytes:
    """The digest of a step above this child. Raises ProofError for an empty child, too."""
    if not child:
        raise ProofError("a step stands above nothing")
    return hash_op(op.hash, op.prefix + child + op.suffix)
