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
from typing import TypeAlias, cast

from surepipe.queues.ibc.canonical import top_of_bytes
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
    NonExistenceProof,
    ProofError,
    ProofLimits,
    ProofSpec,
    hash_op,
    inner_op,
    leaf_op,
)
from surepipe.queues.ibc.steps import highest_of, judge_step, leaf_digest
from surepipe.queues.ibc.wire import decode_proof

STORE_SPECS = (IAVL_SPEC, TENDERMINT_SPEC)
"""Of a key in a party's store: its space is an IAVL tree, and the root over the spaces a simple one."""
Proof: TypeAlias = CommitmentProof | bytes
_SHA256 = int(HashOp.SHA256)
_BYTES = (bytes, bytearray, memoryview)
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
        above = _top_at_once(spec, proof, key, shown) if limits is PROOF_LIMITS else None
        try:
            shown = above or _read(spec, proof, limits).top(key, shown)
        except ProofError:
            return False
        if shown is None:
            return False
    return shown == root


def _top_at_once(spec: ProofSpec, proof: Proof, key: bytes, value: bytes | None) -> bytes | None:
    """The root above an existence proof that is written as stores write it; None: look closer."""
    if type(proof) is bytes and type(key) is bytes and type(value) is bytes and spec.is_sound:
        return top_of_bytes(spec, proof, key, value)
    return None


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
    if len(items) == 1:
        key, value = items[0]
        return [verify_chained(specs, root, proofs, (*outer, key), value, limits=limits)]
    try:
        read = [_read(spec, proof, limits) for spec, proof in zip(specs, proofs, strict=True)]
    except ProofError:
        return none
    tops = [read[0].top(key, value) for key, value in items]
    distinct = dict.fromkeys(top for top in tops if top is not None)
    reaches = {top: _reaches(root, top, read[1:], outer) for top in distinct}
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
    if isinstance(proof, _BYTES):
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
            digest = leaf_digest(spec, proof.leaf, key, value, len(proof.path))
            size, behind, alone = inner.child_size, spec.seen.with_suffix, spec.seen.without_suffix
            for layer, op in enumerate(proof.path, 1):
                prefix, suffix = op.prefix, op.suffix
                # What highest_of does: a call for each step would take a tenth more.
                if suffix:
                    highest = behind.get(prefix, 0) if len(suffix) == size else 0
                else:
                    highest = alone.get(prefix[:-size], 0)
                if highest < layer or op.hash != _SHA256:
                    judge_step(spec, op, layer)
                digest = sha256(prefix + digest + suffix).digest()
        except ProofError:
            return None
        return digest


class _Reading:
    """Absence and batches: entries over one table of steps. What entries share is hashed and judged once."""

    def __init__(self, spec: ProofSpec, proof: CommitmentProof, limits: ProofLimits) -> None:
        self._spec = spec
        self._entries, self._steps = _as_table(proof, limits)
        self._existing: dict[bytes, CompressedExistence] = {}
        for entry in self._entries:
            if isinstance(entry, CompressedExistence):
                self._existing.setdefault(entry.key, entry)
        self._known: dict[bytes, bytes] = {}
        self._allowed: set[tuple[int, int]] = set()
        self._joins: dict[tuple[int, bytes], tuple[int, tuple[int, ...], bytes]] = {}
        """Of a step above a digest: the layer and the path by which it was climbed, and where that led."""

    def top(self, key: bytes, value: bytes | None) -> bytes | None:
        """The root that the entry for the key leads to; None when it shows nothing of the key."""
        try:
            if value is None:
                return self._top_without(key)
            entry = (
                self._existing.get(bytes(key)) if isinstance(cast("object", key), _BYTES) else None
            )
            if entry is not None and entry.value == value:
                return self._climb(entry)
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
        digest = leaf_digest(self._spec, entry.leaf, entry.key, entry.value, len(entry.path))
        path, steps, allowed, joins = entry.path, self._steps, self._allowed, self._joins
        climbed: list[tuple[int, tuple[int, bytes]]] = []
        for layer, place in enumerate(path, 1):
            at = place, digest
            join = joins.get(at)
            if join is not None and join[0] == layer and join[1][layer:] == path[layer:]:
                digest = join[2]  # neighbours meet soon, and climb together from there
                break
            if (place, layer) not in allowed:
                op = steps[place]
                if highest_of(self._spec, op) < layer:
                    judge_step(self._spec, op, layer)
                allowed.add((place, layer))
            digest = self._hash(steps[place], digest)
            climbed.append((layer, at))
        for layer, at in climbed:
            joins[at] = layer, path, digest
        return digest

    def _hash(self, op: InnerOp, child: bytes) -> bytes:
        """The digest of a step. From both children of a node it is the same bytes that are hashed."""
        whole = op.prefix + child + op.suffix
        known = self._known.get(whole)
        if known is None:
            known = self._known[whole] = hash_op(op.hash, whole)
        return known


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
            path = side.path
            if path and not 0 <= min(path) <= max(path) < len(sizes):
                raise ProofError("a step is not in the table")
            total += len(side.key) + len(side.value) + sum([sizes[place] for place in path])
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
    if isinstance(proof, _BYTES):
        proof = decode_proof(bytes(proof), limits)
    entries, steps = _as_table(proof, limits)
    sides = _sides(entries[0])
    if not sides or sides[0].leaf is None:
        raise ProofError("a proof has neither side, or no leaf")
    digest = leaf_op(sides[0].leaf, sides[0].key, sides[0].value)
    for place in sides[0].path:
        digest = inner_op(steps[place], digest)
    return digest
