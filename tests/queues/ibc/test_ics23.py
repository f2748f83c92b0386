"""The verifier: what it accepts, each thing that it refuses, and that nothing makes it raise."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surepipe.queues.ibc import ics23
from surepipe.queues.ibc.commitments import (
    PacketPayload,
    acknowledgement_v2,
    packet_v1,
    packet_v2,
)
from surepipe.queues.ibc.iavl import EMPTY_ROOT, IavlTree
from surepipe.queues.ibc.ics23 import (
    STORE_SPECS,
    calculate_root,
    compress,
    decompress,
    verify_chained,
    verify_items,
    verify_membership,
    verify_non_membership,
)
from surepipe.queues.ibc.proof import (
    IAVL_SPEC,
    SMT_SPEC,
    TENDERMINT_SPEC,
    BatchProof,
    CompressedBatchProof,
    CompressedExistence,
    ExistenceProof,
    HashOp,
    InnerOp,
    InnerSpec,
    LeafOp,
    LengthOp,
    NonExistenceProof,
    ProofError,
    ProofSpec,
    hash_op,
    leaf_op,
)
from surepipe.queues.ibc.simple_tree import prove_in_map, simple_map_root
from surepipe.queues.ibc.wire import decode_proof, encode_proof
from tests.kit.proofs import (
    Case,
    SparseTree,
    changed_step,
    damaged,
    honest_cases,
    random_tree,
    root_of,
)


def is_shown(case: Case) -> bool:
    """The verdict."""
    if case.value is None:
        return verify_non_membership(case.spec, case.root, case.proof, case.key)
    return verify_membership(case.spec, case.root, case.proof, case.key, case.value)


def tree_of(*keys: bytes) -> IavlTree:
    """One version, in which each key has itself twice as its value."""
    tree = IavlTree()
    for key in keys:
        tree.set(key, key * 2)
    tree.commit()
    return tree


def proof_of(tree: IavlTree, key: bytes) -> ExistenceProof:
    """That the key is there."""
    found = tree.prove(key)
    assert found is not None
    return found


def absence_of(tree: IavlTree, key: bytes) -> NonExistenceProof:
    """That the key isn't there."""
    found = tree.prove_absence(key)
    assert found is not None
    return found


# What is true is accepted, what is damaged is not.


@given(st.integers(0, 2**32))
def test_honest_proofs_are_accepted(seed: int) -> None:
    """IB-22, IT-40: of all kinds of trees, alone, in batches and in compressed ones."""
    for case in honest_cases(Random(seed), 30):
        assert is_shown(case)


@given(st.integers(0, 2**32))
def test_a_damaged_proof_shows_nothing_false(seed: int) -> None:
    """IB-22, IT-41: a verdict each time, and accepted is only what is so."""
    random = Random(seed)
    for honest in random.sample(cases := list(honest_cases(random, 8)), min(4, len(cases))):
        for _ in range(10):
            forged = damaged(random, honest)
            assert forged.is_true or not is_shown(forged)


@given(st.binary(max_size=300))
def test_any_bytes_get_a_verdict(data: bytes) -> None:
    """IB-22, IT-41: random bytes prove nothing, and nothing raises but the decoder its own error."""
    for spec in (IAVL_SPEC, TENDERMINT_SPEC, SMT_SPEC):
        assert not verify_membership(spec, EMPTY_ROOT, data, b"k", b"v")
        assert not verify_non_membership(spec, EMPTY_ROOT, data, b"k")
    with suppress(ProofError):
        calculate_root(data)


# IAVL, step by step.


def forged_steps(tree: IavlTree, key: bytes, layer: int, prefix: bytes) -> Case:
    """A proof with another prefix at one step, under the root that it leads to: its hashes are right."""
    proof = changed_step(proof_of(tree, key), layer, lambda op: replace(op, prefix=prefix))
    return Case(IAVL_SPEC, root_of(proof), encode_proof(proof), key, proof.value, {}, b"")


NO_STEPS = {
    "empty": "",
    "one number": "02",
    "a negative height": "03040220",
    "two bytes behind": "0204022020",
    "33 bytes behind": "020402" + "20" + "11" * 32,
    "nothing behind": "02840202",
    "a height below its layer": "00040220",
    "the mark of leaves": "00020220",
    "a number that does not end": "ffffffff",
    "too long": "020402" + "20" * 50,
}


@pytest.mark.parametrize("prefix", NO_STEPS.values(), ids=NO_STEPS)
def test_a_step_must_begin_as_one_of_its_tree(prefix: str) -> None:
    """IT-38: though its hashes lead to the root, which a forger may choose."""
    tree = tree_of(b"a", b"b", b"c")
    assert not is_shown(forged_steps(tree, b"a", 1, bytes.fromhex(prefix)))


def test_a_step_may_stand_as_high_as_its_height_and_no_higher() -> None:
    """IT-38: what was judged at one layer says nothing of another; a wrong one is refused the second time, too."""
    tree = tree_of(*(bytes((n,)) for n in range(1, 40)))
    proof = proof_of(tree, b"\x05")
    low = proof.path[0]
    assert verify_membership(IAVL_SPEC, tree.root_hash, proof, b"\x05", b"\x05\x05")
    for _ in range(2):
        for layer in range(2, len(proof.path) + 1):
            moved = changed_step(proof, layer, lambda op: replace(op, prefix=low.prefix))
            assert not verify_membership(IAVL_SPEC, root_of(moved), moved, b"\x05", b"\x05\x05")


@pytest.mark.parametrize("prefix", ["0002", "00020220", "0004 02", "02 02 02", "0002 03", "00"])
def test_a_leaf_must_begin_as_one_of_its_tree(prefix: str) -> None:
    """IT-38: height 0, size 1, a version, and nothing behind."""
    tree = tree_of(b"a")
    proof = proof_of(tree, b"a")
    assert proof.leaf is not None
    forged = replace(proof, leaf=replace(proof.leaf, prefix=bytes.fromhex(prefix)))
    assert not verify_membership(IAVL_SPEC, root_of(forged), forged, b"a", b"aa")


def test_a_step_cannot_pass_for_a_leaf() -> None:
    """IB-22: the hash of an inner node, read as one of a leaf, would show a key that was never written."""
    tree = tree_of(b"a", b"b")
    op = proof_of(tree, b"a").path[0]
    leaf = LeafOp(HashOp.SHA256, HashOp.NO_HASH, HashOp.NO_HASH, LengthOp.NO_PREFIX, op.prefix)
    digest = hash_op(HashOp.SHA256, b"")
    forged = ExistenceProof(digest, op.suffix, leaf)
    root = leaf_op(leaf, digest, op.suffix)
    assert not verify_membership(IAVL_SPEC, root, forged, digest, op.suffix)
    assert calculate_root(forged) == root


@pytest.mark.parametrize(
    ("prefix", "has_suffix", "is_step"),
    [
        ("01", True, True),
        ("01" + "22" * 32, False, True),
        ("00", True, False),
        ("", True, False),
        ("0201", True, False),
        ("0102", True, False),
        ("02" + "22" * 32, False, False),
    ],
)
def test_a_step_of_the_simple_tree_has_its_mark(
    prefix: str, has_suffix: bool, is_step: bool
) -> None:
    """IT-38: exactly the mark when a sibling stands behind."""
    leaf = LeafOp(HashOp.SHA256, HashOp.NO_HASH, HashOp.SHA256, LengthOp.VAR_PROTO, b"\0")
    op = InnerOp(HashOp.SHA256, bytes.fromhex(prefix), bytes(32) if has_suffix else b"")
    proof = ExistenceProof(b"k", b"v", leaf, (op,))
    for _ in range(2):
        assert verify_membership(TENDERMINT_SPEC, root_of(proof), proof, b"k", b"v") == is_step


def test_steps_of_any_kind_of_tree_are_told_from_leaves() -> None:
    """IB-22: where no further rules hold, the mark of leaves alone does it."""
    leaf = SparseTree({b"k": b"v"}).prove(b"k")
    for prefix, holds in ((b"\1", True), (b"\0", False)):
        proof = replace(leaf, path=(InnerOp(HashOp.SHA256, prefix, bytes(32)),))
        assert verify_membership(SMT_SPEC, calculate_root(proof), proof, b"k", b"v") == holds


def test_what_was_allowed_says_nothing_of_a_step_that_begins_otherwise() -> None:
    """IB-124: short steps without a sibling behind differ in what the memory of steps leaves out."""
    leaf = prove_in_map({b"k": b"v"}, b"k")
    for prefix, holds in (
        (b"\1" + bytes(19), True),
        (b"\2" + bytes(19), False),
        (b"\0" + bytes(19), False),
    ):
        proof = replace(leaf, path=(InnerOp(HashOp.SHA256, prefix),))
        assert verify_membership(TENDERMINT_SPEC, root_of(proof), proof, b"k", b"v") == holds


@pytest.mark.parametrize("hash", [HashOp.SHA256, HashOp.SHA512_256])
def test_what_was_allowed_says_nothing_of_another_hash(hash: HashOp) -> None:
    """IB-124: a step that looks like a known one and is hashed otherwise is of no such tree, nor in a batch."""
    assert TENDERMINT_SPEC.leaf is not None
    spec = ProofSpec(TENDERMINT_SPEC.leaf, InnerSpec(32, 1, 1, hash=hash))
    leaf = prove_in_map({b"k": b"v"}, b"k")
    for used in (hash, HashOp.SHA256, HashOp.SHA512_256):
        proof = replace(leaf, path=(InnerOp(used, b"\1", bytes(32)),))
        for form in (proof, BatchProof((proof,)), encode_proof(proof)):
            assert verify_membership(spec, calculate_root(form), form, b"k", b"v") == (used == hash)


def test_among_three_children_the_outer_two_are_no_neighbours() -> None:
    """IB-22: of a specification of somebody else's."""
    wide = ProofSpec(TENDERMINT_SPEC.leaf, InnerSpec(32, 1, 1, (0, 1, 2)))
    leaves = [prove_in_map({key: b"v"}, key) for key in (b"a", b"c", b"e")]
    a, c, e = (root_of(leaf) for leaf in leaves)
    ops = [(b"\1", c + e), (b"\1" + a, e), (b"\1" + a + c, b"")]
    first, middle, last = (
        replace(leaf, path=(InnerOp(HashOp.SHA256, prefix, suffix),))
        for leaf, (prefix, suffix) in zip(leaves, ops, strict=True)
    )
    root = root_of(first)
    for left, right, key, holds in (
        (first, middle, b"b", True),
        (middle, last, b"d", True),
        (first, last, b"b", False),
        (None, first, b"A", True),
        (None, middle, b"A", False),
        (last, None, b"f", True),
        (middle, None, b"f", False),
    ):
        assert verify_non_membership(wide, root, NonExistenceProof(key, left, right), key) == holds


@pytest.mark.parametrize("suffix", [b"\x20", bytes(32), bytes(34), bytes(66)])
def test_a_suffix_holds_whole_children(suffix: bytes) -> None:
    """IT-39: no other number of bytes."""
    tree = tree_of(b"a", b"b")
    proof = changed_step(proof_of(tree, b"a"), 1, lambda op: replace(op, suffix=suffix))
    verdict = verify_membership(IAVL_SPEC, root_of(proof), proof, b"a", b"aa")
    assert verdict == (
        len(suffix) == 66
    )  # two children behind: existence holds, and it fits nowhere for absence


# Absence.


def absent(tree: IavlTree, proof: NonExistenceProof, key: bytes) -> bool:
    """The verdict on it, once as it is and once as bytes."""
    verdicts = {
        verify_non_membership(IAVL_SPEC, tree.root_hash, each, key)
        for each in (proof, encode_proof(proof))
    }
    assert len(verdicts) == 1
    return verdicts.pop()


def test_absence_needs_the_two_neighbours() -> None:
    """IT-39: sides swapped, one side twice, two that are no neighbours, a key that is there, no side at all."""
    tree = tree_of(b"b", b"d", b"f", b"h", b"j")
    good = absence_of(tree, b"e")
    assert absent(tree, good, b"e")
    assert absent(tree, good, b"dd")  # it covers its whole gap, and its own key is not read
    b, d, f, h = (proof_of(tree, key) for key in (b"b", b"d", b"f", b"h"))
    for left, right in ((f, d), (d, d), (f, f), (b, f), (d, h), (None, None), (d, None), (None, f)):
        assert not absent(tree, NonExistenceProof(b"e", left, right), b"e")
    for key in (b"d", b"f", b"c", b"g"):
        assert not absent(tree, good, key)


def test_absence_beyond_the_ends_needs_the_outermost_key() -> None:
    """IT-39: and no other one."""
    tree = tree_of(b"b", b"d", b"f", b"h", b"j")
    assert absent(tree, absence_of(tree, b"a"), b"a")
    assert absent(tree, absence_of(tree, b"z"), b"z")
    for key in (b"d", b"f", b"h", b"j"):
        assert not absent(tree, NonExistenceProof(b"a", None, proof_of(tree, key)), b"a")
    for key in (b"b", b"d", b"f", b"h"):
        assert not absent(tree, NonExistenceProof(b"z", proof_of(tree, key), None), b"z")


@given(st.integers(0, 2**32))
def test_a_sparse_tree_compares_hashed_keys(seed: int) -> None:
    """IB-22: neighbours of hashes, with empty subtrees between a path and the edge."""
    random = Random(seed)
    sparse = SparseTree({random.randbytes(3): b"v%d" % n for n in range(random.randint(1, 12))})
    for key in (random.randbytes(2) for _ in range(5)):
        proof = sparse.prove_absence(key)
        assert verify_non_membership(SMT_SPEC, sparse.root, proof, key)
        for there in sparse.values:
            assert not verify_non_membership(SMT_SPEC, sparse.root, proof, there)


def test_empty_children_count_only_where_a_tree_has_them() -> None:
    """IT-39: a sibling of 32 other bytes is no empty one, and in an IAVL tree there is none."""
    key = next(k for n in range(99) if sha256(k := b"%d" % n).digest()[0] < 0x40)
    other = next(k for n in range(99) if sha256(k := b"%d" % n).digest()[0] > 0xC0)
    sparse = SparseTree({key: b"v"})
    leaf = sparse.prove(key)
    for sibling, holds in ((bytes(32), True), (b"\x01" * 32, False)):
        step = InnerOp(HashOp.SHA256, b"\1", sibling)
        proof = replace(leaf, path=(step,))
        absence = NonExistenceProof(other, proof, None)
        root = calculate_root(proof)
        assert verify_non_membership(SMT_SPEC, root, absence, other) == holds


# Batches and chains.


@given(st.integers(0, 2**32))
def test_compressing_twice_gives_the_same_bytes(seed: int) -> None:
    """IT-40: and decompressing gives the batch."""
    random = Random(seed)
    tree, model = random_tree(random, 40)
    if not model:
        return
    batch = BatchProof(tuple(proof_of(tree, key) for key in sorted(model)))
    small = compress(batch)
    assert decompress(small) == batch
    assert encode_proof(compress(decompress(small))) == encode_proof(small)
    assert decode_proof(encode_proof(small)) == small


def test_many_keys_are_verified_at_once() -> None:
    """IB-124: each gets its own verdict; a forged one spoils no other, wherever it stands."""
    tree = tree_of(*(b"%03d" % n for n in range(0, 200, 2)))
    values = {b"ibc": tree.root_hash, b"bank": EMPTY_ROOT}
    root, outer = simple_map_root(values), prove_in_map(values, b"ibc")
    forged = replace(proof_of(tree, b"000"), value=b"forged")
    entries: list[ExistenceProof | NonExistenceProof] = [
        forged,
        *(proof_of(tree, b"%03d" % n) for n in range(10, 30, 2)),
        absence_of(tree, b"015"),
    ]
    items: list[tuple[bytes, bytes | None]] = [
        (b"000", b"forged"),
        (b"000", b"000000"),
        (b"015", None),
    ]
    items += [(b"%03d" % n, b"%03d" % n * 2) for n in range(10, 30, 2)] + [
        (b"016", None),
        (b"100", b"x"),
    ]
    expected = [False, False, True, *[True] * 10, False, False]
    batch = BatchProof(tuple(entries))
    for proof in (batch, compress(batch), encode_proof(compress(batch))):
        assert verify_items(STORE_SPECS, root, (proof, outer), (b"ibc",), items) == expected
    assert verify_items(STORE_SPECS, root, (batch, outer), (b"bank",), items) == [False] * len(
        items
    )
    assert verify_items(STORE_SPECS, root, (batch,), (b"ibc",), items) == [False] * len(items)


def test_what_a_batch_shares_is_hashed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """IB-124: a hundred neighbours at ten thousand keys take fewer than 400 hashes, not two thousand."""
    tree = IavlTree()
    for number in range(10_000):
        tree.set(number.to_bytes(8, "big"), b"v" * 120)
    tree.commit()
    keys = [number.to_bytes(8, "big") for number in range(5_000, 5_100)]
    proof = compress(BatchProof(tuple(proof_of(tree, key) for key in keys)))
    made: list[int] = []

    def counted(op: int, data: bytes) -> bytes:
        made.append(op)
        return hash_op(op, data)

    monkeypatch.setattr(ics23, "hash_op", counted)
    verdicts = verify_items(
        (IAVL_SPEC,), tree.root_hash, (proof,), (), [(k, b"v" * 120) for k in keys]
    )
    assert all(verdicts)
    assert len(made) >= 100
    assert len(made) + 2 * len(keys) < 400  # two for each leaf


def test_a_chain_needs_each_of_its_parts() -> None:
    """IB-22: counts that differ, empty parts, proofs in another order, another space, absence of a space."""
    tree = tree_of(b"a", b"c")
    values = {b"ibc": tree.root_hash, b"bank": EMPTY_ROOT}
    root, inner, outer = simple_map_root(values), proof_of(tree, b"a"), prove_in_map(values, b"ibc")
    assert verify_chained(STORE_SPECS, root, (inner, outer), (b"ibc", b"a"), b"aa")
    assert verify_chained(STORE_SPECS, root, (absence_of(tree, b"b"), outer), (b"ibc", b"b"), None)
    for specs, proofs, path, value in (
        (STORE_SPECS, (outer, inner), (b"ibc", b"a"), b"aa"),
        (STORE_SPECS, (inner,), (b"ibc", b"a"), b"aa"),
        (STORE_SPECS, (inner, outer), (b"a",), b"aa"),
        (STORE_SPECS[:1], (inner, outer), (b"ibc", b"a"), b"aa"),
        (STORE_SPECS, (inner, outer), (b"bank", b"a"), b"aa"),
        (STORE_SPECS, (inner, outer), (b"", b"a"), b"aa"),
        (STORE_SPECS, (inner, outer), (b"ibc", b""), b"aa"),
        (STORE_SPECS, (inner, outer), (b"ibc", b"a"), b""),
        (STORE_SPECS, (inner, outer), (b"ibc", b"a"), None),
        ((), (), (), b"aa"),
    ):
        assert not verify_chained(specs, root, proofs, path, value)


# Public chains.


def test_commitments_are_those_of_public_chains() -> None:
    """IB-27: the vectors that their implementations publish; and proven in a store as one of theirs would be."""
    value = b'{"denom":"uatom","amount":"1000000","sender":"sender","receiver":"receiver","memo":"memo"}'
    payload = PacketPayload("transfer", "transfer", "ics20-1", "application/json", value)
    packet = packet_v2("07-tendermint-1", 100, [payload])
    assert packet.hex() == "a096722aa6534040a0efbdae05765132a7b223ad306d6512f3734821bd046505"
    answer = acknowledgement_v2([b"some bytes"])
    assert answer.hex() == "f03b4667413e56aaf086663267913e525c442b56fa1af4fa3f3dab9f37044c5b"
    numbers = b"".join(number.to_bytes(8, "big") for number in (5, 1, 9))
    assert packet_v1(value, 1, 9, 5) == sha256(numbers + sha256(value).digest()).digest()
    key, tree = b"07-tendermint-0\1" + (1).to_bytes(8, "big"), IavlTree()
    tree.set(key, packet)
    tree.commit()
    values = {b"ibc": tree.root_hash, b"bank": EMPTY_ROOT}
    proofs = proof_of(tree, key), prove_in_map(values, b"ibc")
    root = simple_map_root(values)
    assert verify_chained(STORE_SPECS, root, proofs, (b"ibc", key), packet)
    other = packet_v2("07-tendermint-1", 101, [payload])
    assert not verify_chained(STORE_SPECS, root, proofs, (b"ibc", key), other)
    assert packet_v2("07-tendermint-1", 100, [payload, payload]) not in (packet, other)


# Specifications.


@pytest.mark.parametrize(
    "spec",
    [
        replace(IAVL_SPEC, leaf=None),
        replace(IAVL_SPEC, inner=None),
        replace(IAVL_SPEC, inner=InnerSpec(0, 0, 0)),
        replace(IAVL_SPEC, inner=InnerSpec(33, 4, 37)),
        replace(IAVL_SPEC, inner=InnerSpec(33, 4, 12, (0, 0))),
        replace(IAVL_SPEC, inner=InnerSpec(33, 4, 12, (0,))),
        replace(IAVL_SPEC, inner=InnerSpec(33, 4, 12, hash=HashOp.SHA512)),
    ],
)
def test_under_an_unsound_specification_nothing_is_shown(spec: ProofSpec) -> None:
    """IT-39: not even what is true."""
    tree = tree_of(b"a", b"b")
    assert not verify_membership(spec, tree.root_hash, proof_of(tree, b"a"), b"a", b"aa")
    assert not verify_non_membership(spec, tree.root_hash, absence_of(tree, b"c"), b"c")


def test_a_path_has_the_depth_of_its_kind() -> None:
    """IB-22: no deeper and no less deep; a specification that says nothing allows 128 steps."""
    tree = tree_of(b"a", b"b")
    proof = proof_of(tree, b"a")
    for spec, holds in (
        (replace(IAVL_SPEC, min_depth=2), False),
        (replace(IAVL_SPEC, min_depth=1, max_depth=1), True),
    ):
        assert verify_membership(spec, tree.root_hash, proof, b"a", b"aa") == holds
    high = InnerOp(HashOp.SHA256, b"\1", bytes(32))
    leaf = prove_in_map({b"k": b"v"}, b"k")
    for depth, holds in ((128, True), (129, False)):
        deep = replace(leaf, path=(high,) * depth)
        assert verify_membership(TENDERMINT_SPEC, root_of(deep), deep, b"k", b"v") == holds


# Caps.


def test_a_small_proof_that_stands_for_a_large_one_is_refused_before_it_is_hashed() -> None:
    """IB-24: a hundred entries of 250 steps of a kilobyte each."""
    lookup = (InnerOp(HashOp.SHA256, b"\x02" * 1024),)
    entry = CompressedExistence(b"k", b"v", LeafOp(), (0,) * 250)
    bomb = CompressedBatchProof((entry,) * 100, lookup)
    data = encode_proof(bomb)
    assert len(data) < 1 << 15
    for proof in (bomb, data):
        assert not verify_membership(IAVL_SPEC, EMPTY_ROOT, proof, b"k", b"v")
        with pytest.raises(ProofError, match="too many bytes"):
            calculate_root(proof)


def test_a_step_outside_the_table_spoils_the_whole_batch() -> None:
    """IB-24, IB-126: for the good entry as well, before the broken one or behind it; without that one it holds."""
    tree = tree_of(b"a", b"b", b"c")
    good = compress(BatchProof((proof_of(tree, b"a"),)))
    entry = good.entries[0]
    assert isinstance(entry, CompressedExistence)
    for place in (len(good.lookup), -1):
        broken = replace(entry, key=b"b", path=(place,))
        for entries in ((entry, broken), (broken, entry)):
            proof = replace(good, entries=entries)
            assert not verify_membership(IAVL_SPEC, tree.root_hash, proof, b"a", b"aa")
    assert verify_membership(IAVL_SPEC, tree.root_hash, good, b"a", b"aa")


def one_entry(place: int) -> CompressedBatchProof:
    """A batch with a table of one step, and an entry of one step."""
    return CompressedBatchProof(
        (CompressedExistence(b"k", b"v", LeafOp(), (place,)),), (InnerOp(),)
    )


@pytest.mark.parametrize(
    ("proof", "why"),
    [
        (BatchProof(()), "0 entries"),
        (BatchProof((ExistenceProof(b"k", b"v", LeafOp()),) * 1025), "1025 entries"),
        (ExistenceProof(b"k", b"v", LeafOp(), (InnerOp(1, b"\2"),) * 257), "too long"),
        (
            CompressedBatchProof((CompressedExistence(b"k", b"v", LeafOp(), (1,)),), (InnerOp(),)),
            "not in the table",
        ),
        (
            CompressedBatchProof((CompressedExistence(b"k", b"v", LeafOp(), (-1,)),), (InnerOp(),)),
            "not in the table",
        ),
        (ExistenceProof(b"k", b"v", None), "no leaf"),
        (ExistenceProof(b"", b"v", LeafOp()), "no key"),
        (NonExistenceProof(b"k", None, None), "neither side"),
    ],
)
def test_what_cannot_be_computed_is_malformed(proof: ics23.Proof, why: str) -> None:
    """IB-24: too many entries, too deep, steps that are not in the table, parts that are missing."""
    assert not verify_membership(IAVL_SPEC, EMPTY_ROOT, proof, b"k", b"v")
    assert not verify_non_membership(IAVL_SPEC, EMPTY_ROOT, proof, b"k")
    with pytest.raises(ProofError, match=why):
        calculate_root(proof)


def test_a_proof_above_the_bound_is_never_decoded() -> None:
    """IB-24: a hundred megabytes cost nothing but their length."""
    with pytest.raises(ProofError, match="more than the 1048576"):
        calculate_root(bytes(100 << 20))
    assert not verify_membership(IAVL_SPEC, EMPTY_ROOT, bytes(100 << 20), b"k", b"v")


@pytest.mark.parametrize(
    ("op", "digest"),
    [
        (HashOp.NO_HASH, b"food"),
        (
            HashOp.SHA512_256,
            bytes.fromhex("5b3a452a6acbf1fc1e553a40c501585d5bd3cca176d562e0a0e19a3c43804e88"),
        ),
        (HashOp.BITCOIN, bytes.fromhex("0bcb587dfb4fc10b36d57f2bba1878f139b75d24")),
        (HashOp.RIPEMD160, bytes.fromhex("b1ab9988c7c7c5ec4b2b291adfeeee10e77cdd46")),
    ],
)
def test_hashes_are_those_of_the_standard(op: HashOp, digest: bytes) -> None:
    """IB-22: the public vectors of ICS-23, of the word food; what this Python lacks is refused."""
    try:
        assert hash_op(op, b"food") == digest
    except ProofError:
        assert op in (HashOp.RIPEMD160, HashOp.BITCOIN, HashOp.SHA512_256)


@pytest.mark.parametrize("op", [HashOp.KECCAK256, HashOp.BLAKE3, 10, -1])
def test_an_unknown_hash_is_refused(op: int) -> None:
    """IB-22: never passed over."""
    with pytest.raises(ProofError, match="not computed here"):
        hash_op(op, b"food")


@pytest.mark.parametrize(
    ("op", "data", "expected"),
    [
        (LengthOp.NO_PREFIX, "61" * 3, "616161"),
        (LengthOp.VAR_PROTO, "61" * 200, "c801" + "61" * 200),
        (LengthOp.FIXED32_BIG, "61", "0000000161"),
        (LengthOp.FIXED32_LITTLE, "61", "0100000061"),
        (LengthOp.FIXED64_BIG, "61", "000000000000000161"),
        (LengthOp.FIXED64_LITTLE, "61", "010000000000000061"),
        (LengthOp.REQUIRE_32_BYTES, "61" * 32, "61" * 32),
        (LengthOp.REQUIRE_32_BYTES, "61" * 31, None),
        (LengthOp.REQUIRE_64_BYTES, "61" * 64, "61" * 64),
        (LengthOp.VAR_RLP, "61", None),
        (99, "61", None),
    ],
)
def test_lengths_stand_before_the_data(op: int, data: str, expected: str | None) -> None:
    """IB-22: of the key and of the value alike."""
    leaf, key = LeafOp(HashOp.SHA256, length=op), bytes.fromhex(data)
    if expected is None:
        with pytest.raises(ProofError):
            leaf_op(leaf, key, key)
    else:
        assert leaf_op(leaf, key, key) == sha256(bytes.fromhex(expected) * 2).digest()
