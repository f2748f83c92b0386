"""The verifier of ICS-23 proofs: does this proof show that the root has the key, or lacks it?

Any bytes get a verdict, and none raises. What a proof may cost is bounded before the first hash. The rules are
those of the public implementations, with three more that keep forgers out: a step of an IAVL tree has to begin
with three numbers that make sense at its place, a step of a simple tree with its own mark, and where keys are
hashed their hashes are compared (ibc IB-22, IB-24).

Absence is sound in a sorted tree only, so it is worth as much as whoever built the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import TypeAlias

from surepipe.queues.ibc.proof import (
    IAVL_SPEC,
    PROOF_LIMITS,
    TENDERMINT_SPEC,
    BatchProof,
    CommitmentProof,
    CompressedAbsence,
    CompressedBatchProof,
    CompressedExistence,
    ExistenceProof,
    HashOp,
    InnerOp,
    InnerSpec,
    LeafOp,
    NonExistenceProof,
    ProofError,
    ProofLimits,
    ProofSpec,
    Rules,
    hash_op,
    inner_op,
    leaf_op,
    read_uvarint,
    uvarint,
)
from surepipe.queues.ibc.wire import decode_proof

STORE_SPECS = (IAVL_SPEC, TENDERMINT_SPEC)
"""Of a key in a party's store: its space is an IAVL tree, and the root over the spaces a simple one."""
SEEN_MAX = 65_536
DEPTH_BOUND = 1 << 30
DEPTH_MAX = 128
"""Of a specification that says no depth of its own."""
Proof: TypeAlias = CommitmentProof | bytes
Entry: TypeAlias = CompressedExistence | CompressedAbsence


# The verdicts.


def verify_membership(
    spec: ProofSpec,
    root: bytes,
    proof: Proof,
    key: bytes,
    value: bytes,
    *,
    limits: ProofLimits = PROOF_LIMITS,
) -> bool:
    """Whether the proof shows that the key has the value under the root."""
    return verify_chained((spec,), root, (proof,), (key,), value, limits=limits)


def verify_non_membership(
    spec: ProofSpec, root: bytes, proof: Proof, key: bytes, *, limits: ProofLimits = PROOF_LIMITS
) -> bool:
    """Whether the proof shows that the key isn't there under the root."""
    return verify_chained((spec,), root, (proof,), (key,), None, limits=limits)


def verify_chained(
    specs: Sequence[ProofSpec],
    root: bytes,
    proofs: Sequence[Proof],
    path: Sequence[bytes],
    value: bytes | None,
    *,
    limits: ProofLimits = PROOF_LIMITS,
) -> bool:
    """Whether a chain of proofs, the innermost first, shows the value (None: its absence) at the path, whose
    outermost part comes first."""
    if not path or not len(specs) == len(proofs) == len(path) or b"" in path[:-1]:
        return False
    shown = value
    for spec, proof, key in zip(specs, proofs, reversed(path), strict=True):
        try:
            shown = _read(spec, proof, limits).top(key, shown)
        except ProofError:
            return False
        if shown is None:
            return False
    return shown == root


def verify_items(
    specs: Sequence[ProofSpec],
    root: bytes,
    proofs: Sequence[Proof],
    outer: Sequence[bytes],
    items: Sequence[tuple[bytes, bytes | None]],
    *,
    limits: ProofLimits = PROOF_LIMITS,
) -> list[bool]:
    """For each key whether its value (None: its absence) is shown, by one batch of the innermost tree and the
    proofs of the trees around it, which are verified once. A step that several keys share is hashed once."""
    none = [False] * len(items)
    if not items or not len(specs) == len(proofs) == len(outer) + 1 or not all(outer):
        return none
    try:
        read = [_read(spec, proof, limits) for spec, proof in zip(specs, proofs, strict=True)]
    except ProofError:
        return none
    tops = [read[0].top(key, value) for key, value in items]
    reaches = {top: _reaches(root, top, read[1:], outer) for top in tops if top is not None}
    return [top is not None and reaches[top] for top in tops]


def _reaches(
    root: bytes, top: bytes, around: Sequence[_Reading | _One], outer: Sequence[bytes]
) -> bool:
    """Whether a tree with this root is in the trees around it, up to the outermost."""
    for reading, name in zip(around, reversed(outer), strict=True):
        above = reading.top(name, top)
        if above is None:
            return False
        top = above
    return top == root


def _read(spec: ProofSpec, proof: Proof, limits: ProofLimits) -> _Reading | _One:
    """A proof that is decoded and within its bounds, under a specification that is sound. Raises ProofError."""
    if spec.inner is None or not spec.is_sound:
        raise ProofError("under the specification one proof could mean two things")
    if isinstance(proof, bytes | bytearray | memoryview):
        proof = decode_proof(bytes(proof), limits)
    if type(proof) is not ExistenceProof or spec.inner.hash != HashOp.SHA256:
        return _Reading(spec, proof, limits)
    if len(proof.path) > limits.depth_max:
        raise ProofError("a path is too long")
    return _One(spec, proof)


class _One:
    """A single existence proof whose steps are hashed with SHA-256."""

    def __init__(self, spec: ProofSpec, proof: ExistenceProof) -> None:
        self._spec, self._proof = spec, proof

    def top(self, key: bytes, value: bytes | None) -> bytes | None:
        """The root that the proof leads to; None when it shows nothing of the key."""
        proof = self._proof
        if value is None or proof.key != key or proof.value != value:
            return None
        spec, inner = self._spec, self._spec.inner
        assert inner is not None
        try:
            digest = _leaf_digest(spec, proof.leaf, key, value, len(proof.path))
            size, is_sha256 = inner.child_size, int(HashOp.SHA256)
            behind, alone = spec.seen.with_suffix.get, spec.seen.without_suffix.get
            for layer, op in enumerate(proof.path, 1):
                prefix, suffix = op.prefix, op.suffix
                if suffix:  # noqa: SIM108 - two lookups, one under the other
                    highest = behind(prefix, 0) if len(suffix) == size else 0
                else:
                    highest = alone(prefix[:-size], 0)
                if highest < layer or op.hash != is_sha256:
                    _judge(spec, op, layer)
                digest = sha256(prefix + digest + suffix).digest()
        except ProofError:
            return None
        return digest


class _Reading:
    """Absence and batches: entries over one table of steps. What entries share is hashed and judged once."""

    def __init__(self, spec: ProofSpec, proof: CommitmentProof, limits: ProofLimits) -> None:
        self._spec = spec
        self._entries, self._steps = _as_table(proof, limits)
        self._hashed: dict[tuple[int, bytes], bytes] = {}
        self._known: dict[bytes, bytes] = {}
        self._allowed: set[tuple[int, int]] = set()

    def top(self, key: bytes, value: bytes | None) -> bytes | None:
        """The root that the entry for the key leads to; None when it shows nothing of the key."""
        try:
            if value is None:
                return self._top_without(key)
            for entry in self._entries:
                if isinstance(entry, CompressedExistence) and entry.key == key:
                    return self._climb(entry) if entry.value == value else None
        except ProofError:
            pass
        return None

    def _top_without(self, key: bytes) -> bytes | None:
        for entry in self._entries:
            if isinstance(entry, CompressedAbsence) and self._encloses(entry, key):
                break
        else:
            return None
        tops = [self._climb(side) for side in (entry.left, entry.right) if side is not None]
        left, right = (
            [self._steps[place] for place in side.path] if side else None
            for side in (entry.left, entry.right)
        )
        inner = self._spec.inner
        assert inner is not None
        return tops[0] if tops[0] == tops[-1] and _are_neighbours(inner, left, right) else None

    def _encloses(self, entry: CompressedAbsence, key: bytes) -> bool:
        if entry.left is None and entry.right is None:
            return False
        at = self._ordered(key)
        return (entry.left is None or self._ordered(entry.left.key) < at) and (
            entry.right is None or at < self._ordered(entry.right.key)
        )

    def _ordered(self, key: bytes) -> bytes:
        leaf = self._spec.leaf
        return hash_op(leaf.prehash_key, key) if leaf and self._spec.are_keys_hashed else key

    def _climb(self, entry: CompressedExistence) -> bytes:
        """The root above an entry whose every part the specification allows. Raises ProofError."""
        digest = _leaf_digest(self._spec, entry.leaf, entry.key, entry.value, len(entry.path))
        steps, hashed, allowed = self._steps, self._hashed, self._allowed
        for layer, place in enumerate(entry.path, 1):
            if (place, layer) not in allowed:
                _judge(self._spec, steps[place], layer)
                allowed.add((place, layer))
            known = hashed.get((place, digest))
            if known is None:
                known = hashed[place, digest] = self._hash(steps[place], digest)
            digest = known
        return digest

    def _hash(self, op: InnerOp, child: bytes) -> bytes:
        """The digest of a step. From both children of a node it is the same bytes that are hashed."""
        whole = op.prefix + child + op.suffix
        known = self._known.get(whole)
        if known is None:
            known = self._known[whole] = hash_op(op.hash, whole)
        return known


# Which steps and leaves a kind of tree makes.


def _leaf_digest(spec: ProofSpec, op: LeafOp | None, key: bytes, value: bytes, depth: int) -> bytes:
    """The digest of a leaf that the specification allows, so deep. Raises ProofError."""
    leaf = spec.leaf
    assert leaf is not None
    if op is None:
        raise ProofError("an existence proof has no leaf")
    if depth > (spec.max_depth or DEPTH_MAX) or depth < spec.min_depth:
        raise ProofError(f"a path of {depth} steps is not of this kind of tree")
    if (
        op.hash != leaf.hash
        or op.prehash_key != leaf.prehash_key
        or op.prehash_value != leaf.prehash_value
        or op.length != leaf.length
        or not op.prefix.startswith(leaf.prefix)
    ):
        raise ProofError("the leaf is not of this kind of tree")
    if spec.rules is Rules.NONE:
        return leaf_op(op, key, value)
    if spec.rules is Rules.IAVL and op.prefix not in spec.seen.leaves:
        if _iavl_height(op.prefix, 0) != 0:
            raise ProofError("the leaf does not begin as an IAVL leaf does")
        if len(spec.seen.leaves) >= SEEN_MAX:
            spec.seen.leaves.clear()
        spec.seen.leaves.add(op.prefix)
    if not key or not value:
        raise ProofError("a leaf has no key, or no value")
    # What leaf_op does for this kind of leaf, in a third of the time.
    data = op.prefix + uvarint(len(key)) + key + b"\x20" + sha256(value).digest()
    return sha256(data).digest()


def _judge(spec: ProofSpec, op: InnerOp, layer: int) -> None:
    """Raises ProofError for a step that may not stand so many above a leaf."""
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


# Which leaves stand side by side.


def _are_neighbours(
    spec: InnerSpec, left: Sequence[InnerOp] | None, right: Sequence[InnerOp] | None
) -> bool:
    """Whether nothing can stand between two paths, or beyond the only one."""
    last = len(spec.child_order) - 1
    if left is None or right is None:
        return (
            _is_at_the_edge(spec, right or [], 0)
            if left is None
            else _is_at_the_edge(spec, left, last)
        )
    lefts, rights = list(left), list(right)
    while lefts and rights and _looks(lefts[-1]) == _looks(rights[-1]):
        lefts.pop()
        rights.pop()
    if not lefts or not rights:
        return False
    at, after = _place(spec, lefts.pop()), _place(spec, rights.pop())
    return (
        at is not None
        and after == at + 1
        and _is_at_the_edge(spec, lefts, last)
        and _is_at_the_edge(spec, rights, 0)
    )


def _looks(op: InnerOp) -> tuple[bytes, bytes]:
    return op.prefix, op.suffix


def _is_at_the_edge(spec: InnerSpec, path: Sequence[InnerOp], edge: int) -> bool:
    return all(_fits(spec, op, edge) or _is_alone(spec, op, edge) for op in path)


def _fits(spec: InnerSpec, op: InnerOp, branch: int) -> bool:
    before = spec.child_order.index(branch)
    behind = len(spec.child_order) - 1 - before
    before_bytes = before * spec.child_size
    return (
        before_bytes + spec.min_prefix <= len(op.prefix) <= before_bytes + spec.max_prefix
        and len(op.suffix) == behind * spec.child_size
    )


def _place(spec: InnerSpec, op: InnerOp) -> int | None:
    return next((p for p in range(len(spec.child_order)) if _fits(spec, op, p)), None)


def _is_alone(spec: InnerSpec, op: InnerOp, edge: int) -> bool:
    """Whether all children between this one and the edge are the empty child, of trees that have one."""
    at = _place(spec, op)
    if at is None or at == edge or not spec.empty_child:
        return False
    beyond = range(at) if edge == 0 else range(at + 1, len(spec.child_order))
    size, place = spec.child_size, spec.child_order.index
    start = len(op.prefix) - place(at) * size
    for branch in beyond:
        if place(branch) < place(at):
            from_, data = start + place(branch) * size, op.prefix
        else:
            from_, data = (place(branch) - place(at) - 1) * size, op.suffix
        if from_ < 0 or data[from_ : from_ + size] != spec.empty_child:
            return False
    return True


# Proofs as entries with a table of steps, and back.


def _as_table(
    proof: CommitmentProof, limits: ProofLimits
) -> tuple[tuple[Entry, ...], Sequence[InnerOp]]:
    """The entries over one table of steps. Raises ProofError for what is beyond the limits."""
    steps: Sequence[InnerOp]
    if isinstance(proof, CompressedBatchProof):
        entries, steps = proof.entries, proof.lookup
        _check_expanded(proof, limits)
    else:
        table: list[InnerOp] = []
        plain = proof.entries if isinstance(proof, BatchProof) else (proof,)
        entries = tuple([_appended(entry, table) for entry in plain])
        steps = table
    if not entries or len(entries) > limits.entries_max:
        raise ProofError(f"a proof of {len(entries)} entries is not judged")
    if any(len(side.path) > limits.depth_max for entry in entries for side in _sides(entry)):
        raise ProofError("a path is too long")
    return entries, steps


def _sides(entry: Entry) -> list[CompressedExistence]:
    if isinstance(entry, CompressedExistence):
        return [entry]
    return [side for side in (entry.left, entry.right) if side is not None]


def _check_expanded(proof: CompressedBatchProof, limits: ProofLimits) -> None:
    sizes = [len(op.prefix) + len(op.suffix) for op in proof.lookup]
    total = 0
    for entry in proof.entries:
        for side in _sides(entry):
            total += len(side.key) + len(side.value)
            for place in side.path:
                if not 0 <= place < len(sizes):
                    raise ProofError(f"step {place} is not in the table")
                total += sizes[place]
            if total > limits.expanded_bytes_max:
                raise ProofError("a compressed proof stands for too many bytes")


def _appended(entry: ExistenceProof | NonExistenceProof, table: list[InnerOp]) -> Entry:
    """The entry with its steps behind those in the table."""

    def places(path: Sequence[InnerOp]) -> tuple[int, ...]:
        table.extend(path)
        return tuple(range(len(table) - len(path), len(table)))

    return _numbered(entry, places)


def _numbered(
    entry: ExistenceProof | NonExistenceProof,
    places: Callable[[Sequence[InnerOp]], tuple[int, ...]],
) -> Entry:
    if isinstance(entry, ExistenceProof):
        return CompressedExistence(entry.key, entry.value, entry.leaf, places(entry.path))
    left, right = (
        None
        if side is None
        else CompressedExistence(side.key, side.value, side.leaf, places(side.path))
        for side in (entry.left, entry.right)
    )
    return CompressedAbsence(entry.key, left, right)


def compress(proof: BatchProof) -> CompressedBatchProof:
    """The same with each step stored once, in the order in which they are first used."""
    table: dict[InnerOp, int] = {}

    def places(path: Sequence[InnerOp]) -> tuple[int, ...]:
        return tuple([table.setdefault(op, len(table)) for op in path])

    entries = tuple([_numbered(entry, places) for entry in proof.entries])
    return CompressedBatchProof(entries, tuple(table))


def decompress(proof: CompressedBatchProof, limits: ProofLimits = PROOF_LIMITS) -> BatchProof:
    """The same with steps written out. Raises ProofError: a step that isn't there, or too many bytes."""
    _as_table(proof, limits)

    def side(entry: CompressedExistence | None) -> ExistenceProof | None:
        if entry is None:
            return None
        path = tuple(proof.lookup[place] for place in entry.path)
        return ExistenceProof(entry.key, entry.value, entry.leaf, path)

    found: list[ExistenceProof | NonExistenceProof] = []
    for entry in proof.entries:
        if isinstance(entry, CompressedAbsence):
            found.append(NonExistenceProof(entry.key, side(entry.left), side(entry.right)))
        elif (existence := side(entry)) is not None:
            found.append(existence)
    return BatchProof(tuple(found))


def calculate_root(proof: Proof, limits: ProofLimits = PROOF_LIMITS) -> bytes:
    """The root that the first entry of a proof leads to, whatever kind of tree it is of. Raises ProofError."""
    if isinstance(proof, bytes | bytearray | memoryview):
        proof = decode_proof(bytes(proof), limits)
    entries, steps = _as_table(proof, limits)
    sides = _sides(entries[0])
    if not sides or sides[0].leaf is None:
        raise ProofError("a proof has neither side, or no leaf")
    digest = leaf_op(sides[0].leaf, sides[0].key, sides[0].value)
    for place in sides[0].path:
        digest = inner_op(steps[place], digest)
    return digest
