"""Judges the leaves and steps of one kind of tree, and remembers those that were judged.

A proof says of itself how it is hashed. Somebody who may choose that freely could pass off a step as a leaf, so
each part is held against the specification (ibc IB-22).
"""

from __future__ import annotations

from hashlib import sha256

from surepipe.queues.ibc.proof import (
    InnerOp,
    LeafOp,
    ProofError,
    ProofSpec,
    Rules,
    leaf_op,
    read_uvarint,
    uvarint,
)

SEEN_MAX = 65_536
DEPTH_BOUND = 1 << 30
DEPTH_MAX = 128
"""Of a specification that says no depth of its own."""


def leaf_digest(spec: ProofSpec, op: LeafOp | None, key: bytes, value: bytes, depth: int) -> bytes:
    """The digest of a leaf that the specification allows, so deep. Raises ProofError."""
    if op is None:
        raise ProofError("an existence proof has no leaf")
    if depth > (spec.max_depth or DEPTH_MAX) or depth < spec.min_depth:
        raise ProofError(f"a path of {depth} steps is not of this kind of tree")
    judge_leaf(spec, op)
    if spec.rules is Rules.NONE:
        return leaf_op(op, key, value)
    if not key or not value:
        raise ProofError("a leaf has no key, or no value")
    # What leaf_op does for this kind of leaf, in a third of the time.
    data = op.prefix + uvarint(len(key)) + key + b"\x20" + sha256(value).digest()
    return sha256(data).digest()


def judge_leaf(spec: ProofSpec, op: LeafOp) -> None:
    """Raises ProofError for a leaf that this kind of tree doesn't make."""
    leaf = spec.leaf
    assert leaf is not None
    if (
        op.hash != leaf.hash
        or op.prehash_key != leaf.prehash_key
        or op.prehash_value != leaf.prehash_value
        or op.length != leaf.length
        or not op.prefix.startswith(leaf.prefix)
    ):
        raise ProofError("the leaf is not of this kind of tree")
    if spec.rules is Rules.IAVL and op.prefix not in spec.seen.leaves:
        if _iavl_height(op.prefix, 0) != 0:
            raise ProofError("the leaf does not begin as an IAVL leaf does")
        if len(spec.seen.leaves) >= SEEN_MAX:
            spec.seen.leaves.clear()
        spec.seen.leaves.add(op.prefix)


def judge_step(spec: ProofSpec, op: InnerOp, layer: int) -> int:
    """Up to which layer such a step may stand. Raises ProofError for one that may not stand at this one."""
    inner, leaf = spec.inner, spec.leaf
    assert inner is not None
    assert leaf is not None
    length, size = len(op.prefix), inner.child_size
    allowed = (
        op.hash == inner.hash
        and not (leaf.prefix and op.prefix.startswith(leaf.prefix))
        and inner.min_prefix <= length <= inner.max_prefix + (len(inner.child_order) - 1) * size
        and len(op.suffix) % size == 0
    )
    highest = DEPTH_BOUND
    if allowed and spec.rules is Rules.IAVL:
        highest = _iavl_height(op.prefix, 1)
    elif allowed and spec.rules is Rules.TENDERMINT:
        allowed = op.prefix[:1] == b"\1" and (not op.suffix or length == 1)
    if not allowed or highest < layer:
        raise ProofError(f"step {layer} is not of this kind of tree")
    if len(op.suffix) == size:
        _remember(spec.seen.with_suffix, op.prefix, highest)
    elif not op.suffix and length >= size + max(1, len(leaf.prefix)):
        # Up to its last child it says enough: the prefix of leaves stands before that, and the three numbers of an
        # IAVL step do, as such a step has 34 bytes behind them.
        _remember(spec.seen.without_suffix, op.prefix[:-size], highest)
    return highest


def highest_of(spec: ProofSpec, op: InnerOp) -> int:
    """Up to which layer such a step may stand, if one like it was judged before; else 0."""
    assert spec.inner is not None
    size = spec.inner.child_size
    if op.hash != spec.inner.hash:
        return 0
    if op.suffix:
        return spec.seen.with_suffix.get(op.prefix, 0) if len(op.suffix) == size else 0
    return spec.seen.without_suffix.get(op.prefix[:-size], 0)


def _remember(seen: dict[bytes, int], prefix: bytes, highest: int) -> None:
    if len(seen) >= SEEN_MAX:
        seen.clear()
    seen[prefix] = highest


def _iavl_height(prefix: bytes, least: int) -> int:
    """The height that the prefix of an IAVL node begins with, before size and version; -1 if it is none of a leaf
    (``least`` 0) or of an inner node (1). Signed numbers, doubled: an odd one is negative."""
    at, numbers = 0, list[int]()
    try:
        for _ in range(3):
            number, at = read_uvarint(prefix, at)
            numbers.append(number)
    except ProofError:
        return -1
    if any(number & 1 for number in numbers):
        return -1
    behind = len(prefix) - at
    is_node = behind in (1, 34) if least else numbers[:2] == [0, 2] and behind == 0
    return numbers[0] >> 1 if is_node else -1
