"""A proof that a key is there, judged straight from the bytes that every store writes.

Decoding such a proof takes three times what its hashes take, and nearly all of what is decoded has been seen
before: of a step only the digest beside it is new. So the bytes in front of that digest are looked up as a whole.
What was never seen is judged once, by the rules that hold for decoded steps. What looks in any way different is
left to the decoder and its verdict, so nothing is accepted here that it wouldn't accept (ibc IB-124, IB-125).
"""

from __future__ import annotations

from hashlib import sha256

from surepipe.queues.ibc.proof import (
    PROOF_LIMITS,
    HashOp,
    InnerOp,
    LeafOp,
    LengthOp,
    ProofError,
    ProofSpec,
    Rules,
)
from surepipe.queues.ibc.steps import DEPTH_MAX, SEEN_MAX, judge_leaf, judge_step

_SHORT = [bytes((number,)) for number in range(0x80)]
"""Lengths that take one byte."""
_LEAF_BEGIN = b"\x08\x01\x18\x01\x20\x01\x2a"
"""SHA-256 of the whole and of the value, the key as it is, lengths as varints; then the prefix."""
_STEP_BEGIN = b"\x08\x01\x12"
"""SHA-256; then the prefix."""


def top_of_bytes(spec: ProofSpec, data: bytes, key: bytes, value: bytes) -> bytes | None:
    """The root that an existence proof leads to. None: it isn't written as stores write it, or shows nothing of
    this key and value; only the decoder can say which."""
    if spec.rules is Rules.NONE or not 0 < len(key) < 0x80 or not value or spec.inner is None:
        return None
    try:
        at = _behind_the_claim(data, key, value)
        if not at:
            return None
        # CommitmentProof.exist is open, and the leaf is next.
        stop = at + 2 + data[at + 1]
        prefix = spec.seen.written_leaves.get(data[at:stop]) or _leaf(spec, data[at:stop])
        if prefix is None:
            return None
        digest = sha256(prefix + _SHORT[len(key)] + key + b"\x20" + sha256(value).digest()).digest()
        size, end, known = spec.inner.child_size, len(data), spec.seen.written_steps
        for layer in range(1, min(spec.max_depth or DEPTH_MAX, PROOF_LIMITS.depth_max) + 2):
            at = stop
            if at == end:
                return digest if layer > spec.min_depth else None
            stop = at + 2 + data[at + 1]
            beside = stop - size
            step = known.get(data[at:beside]) or _step(spec, data[at:stop], layer)
            if step is None or step[0] < layer:
                return None
            # The digest beside ours is the suffix if ours is the left child, else it ends the prefix.
            if step[1]:
                digest = sha256(step[1] + digest + data[beside:stop]).digest()
            else:
                digest = sha256(data[at + 6 : stop] + digest).digest()
    except IndexError:  # the bytes end within a field
        pass
    return None


def _behind_the_claim(data: bytes, key: bytes, value: bytes) -> int:
    """Where the leaf begins, if the proof is of this key and this value; else 0."""
    size, at = data[1], 2
    if size >= 0x80:
        if not 0 < data[2] < 0x80:
            return 0
        size, at = size & 0x7F | data[2] << 7, 3
    if data[0] != 0x0A or at + size != len(data):
        return 0
    told = _written(len(value))
    claim = b"\x0a" + _SHORT[len(key)] + key + b"\x12" + told + value
    return at + len(claim) if data.startswith(claim, at) else 0


def _written(length: int) -> bytes:
    if length < 0x80:
        return _SHORT[length]
    found = bytearray()
    while length >= 0x80:
        found.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes((*found, length))


def _leaf(spec: ProofSpec, data: bytes) -> bytes | None:
    """The prefix of a leaf that is seen for the first time, if its kind of tree makes such a one."""
    size = len(data) - 10
    if not 0 < size < 0x80 or data[:10] != b"\x1a" + _SHORT[size + 8] + _LEAF_BEGIN + _SHORT[size]:
        return None
    prefix, known = data[10:], spec.seen.written_leaves
    op = LeafOp(HashOp.SHA256, HashOp.NO_HASH, HashOp.SHA256, LengthOp.VAR_PROTO, prefix)
    try:
        judge_leaf(spec, op)
    except ProofError:
        return None
    if len(known) >= SEEN_MAX:
        known.clear()
    known[data] = prefix
    return prefix


def _step(spec: ProofSpec, data: bytes, layer: int) -> tuple[int, bytes] | None:
    """Up to which layer a step that is seen for the first time may stand, and its prefix if our child is the left
    one."""
    assert spec.inner is not None
    assert spec.leaf is not None
    size, known = spec.inner.child_size, spec.seen.written_steps
    length = data[5]
    if data[:5] != b"\x22" + _SHORT[data[1] & 0x7F] + _STEP_BEGIN or data[1] != len(data) - 2:
        return None
    if len(data) == 6 + length and length >= size + max(1, len(spec.leaf.prefix)):
        left, op = b"", InnerOp(HashOp.SHA256, data[6:])
    elif len(data) == 8 + length + size and data[6 + length : 8 + length] == bytes((0x1A, size)):
        left = data[6 : 6 + length]
        op = InnerOp(HashOp.SHA256, left, data[8 + length :])
    else:
        return None
    try:
        highest = judge_step(spec, op, layer)
    except ProofError:
        return None
    if len(known) >= SEEN_MAX:
        known.clear()
    found = known[data[:-size]] = highest, left
    return found
