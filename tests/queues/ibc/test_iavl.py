"""The tree: known roots, a plain dict as its model, balance, savepoints, and proofs of every key and gap."""

from __future__ import annotations

import math
from hashlib import sha256
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surepipe.errors import MisuseError
from surepipe.queues.ibc.iavl import EMPTY_ROOT, Child, IavlTree, Inner, Leaf, Node, Ref, ref_to
from surepipe.queues.ibc.ics23 import verify_membership, verify_non_membership
from surepipe.queues.ibc.proof import IAVL_SPEC, TENDERMINT_SPEC
from surepipe.queues.ibc.simple_tree import prove_in_map, simple_map_root, simple_root
from tests.kit.proofs import random_key, random_tree

A = "94ee7455e38ba1286d6f8e8317485dd90e8d9ced4795e233270868ce3f74814e"
B = "49340ae52bf4b0bf14a9d4142853ba53edb3778d1284db5151f3567a5478a2db"
C = "d363e645a93aaefdd92856da6fbe92ba3d4401a680efe748a9cfc44012aefec2"
D = "cbc08551f8b7561d23351e1f73bfd442275edb1aef116d753e0a17db8c5a2633"
E = "c37faeab36a82be1b63e3416e9f7d68193c6f2618e3f2d8e50002a270eb3b2f8"


def tree_of(*operations: str) -> IavlTree:
    """After operations such as ``a=1``, ``-a`` and ``commit``."""
    tree = IavlTree()
    for operation in operations:
        key, _, value = operation.partition("=")
        if operation == "commit":
            tree.commit()
        elif value:
            tree.set(key.encode(), value.encode())
        else:
            tree.delete(key.removeprefix("-").encode())
    return tree


@pytest.mark.parametrize(
    ("operations", "root"),
    [
        ("a=1 b=2 c=3 commit", A),
        ("a=1 b=2 c=3 commit -a commit", B),
        ("a=1 b=2 c=3 commit -a commit commit", B),
        ("c=3 b=2 a=1 commit", C),
        ("a=1 b=2 commit c=3 commit", D),
        ("a=1 commit -a commit", sha256(b"").hexdigest()),
    ],
)
def test_known_histories_have_known_roots(operations: str, root: str) -> None:
    """IT-33: the root depends on the order of operations and on where versions end."""
    assert tree_of(*operations.split()).root_hash.hex() == root


def test_the_root_over_the_spaces_is_known() -> None:
    """IT-33: of a space with three keys and an empty one."""
    assert simple_map_root({b"ibc": bytes.fromhex(A), b"bank": EMPTY_ROOT}).hex() == E


KEYS = st.integers(0, 40).map(lambda number: b"%02d" % number)
Operations = st.lists(
    st.one_of(
        st.tuples(st.just("set"), KEYS, st.binary(min_size=1, max_size=3)),
        st.tuples(st.just("delete"), KEYS, st.just(b"")),
        st.tuples(st.sampled_from(("commit", "keep", "undo")), st.just(b""), st.just(b"")),
    ),
    min_size=60,
    max_size=200,
)


@given(Operations)
def test_a_tree_holds_what_a_dict_holds(operations: list[tuple[str, bytes, bytes]]) -> None:
    """IB-123: after any operations, with savepoints that are gone back to, and in each older version."""
    tree, model = IavlTree(), dict[bytes, bytes]()
    kept: tuple[Child | None, dict[bytes, bytes]] = (None, {})
    versions: list[tuple[IavlTree, dict[bytes, bytes]]] = []
    for name, key, value in operations:
        match name:
            case "set":
                tree.set(key, value)
                model[key] = value
            case "delete":
                assert tree.delete(key) == (model.pop(key, None) is not None)
            case "keep":
                kept = tree.root, dict(model)
            case "undo":
                tree.root, model = kept[0], dict(kept[1])
            case _:
                tree.commit()
                versions.append((tree.copy(), dict(model)))
                kept = tree.root, dict(model)
        assert tree.get(key or b"none") == model.get(key or b"none")
    tree.commit()
    for old, content in [*versions, (tree.copy(), model)]:
        assert dict(old.scan()) == content
        assert list(old.scan()) == sorted(content.items())
        check_shape(old.root)


def check_shape(root: Child | None) -> None:
    """Sizes, heights, routing keys and the balance of every node; numbers of one version stand in pre-order."""
    numbers: list[tuple[int, int]] = []

    def walk(node: Child) -> tuple[bytes, bytes]:
        assert isinstance(node, Leaf | Inner)
        numbers.append((node.version, node.number))
        if isinstance(node, Leaf):
            return node.key, node.key
        left, right = walk(node.left), walk(node.right)
        assert left[1] < node.key == right[0]
        assert abs(node.left.height - node.right.height) <= 1
        assert node.height == max(node.left.height, node.right.height) + 1
        assert node.size == node.left.size + node.right.size
        return left[0], right[1]

    if root is not None:
        walk(root)
        newest = [number for version, number in numbers if version == max(numbers)[0]]
        assert newest == sorted(set(newest))
        assert root.height <= 1.44 * math.log2(root.size + 2)


def random_keys(random: Random) -> list[bytes]:
    """Some that are there, and some that aren't."""
    return [random_key(random) for _ in range(12)]


@given(st.integers(0, 2**32))
def test_every_key_and_every_gap_is_proven(seed: int) -> None:
    """I-11, IT-34: under its own root, and under no other."""
    tree, model = random_tree(Random(seed), 25)
    other = tree_of("x=1", "commit").root_hash
    for key in [*random_keys(Random(seed)), *sorted(model)[:8]]:
        found, absent = tree.prove(key), tree.prove_absence(key)
        if key in model:
            assert absent is None
            assert found is not None
            assert verify_membership(IAVL_SPEC, tree.root_hash, found, key, model[key])
            assert not verify_membership(IAVL_SPEC, other, found, key, model[key])
        elif model:
            assert found is None
            assert absent is not None
            assert verify_non_membership(IAVL_SPEC, tree.root_hash, absent, key)
            assert not verify_non_membership(IAVL_SPEC, other, absent, key)


def test_a_value_that_is_set_again_makes_a_new_root() -> None:
    """IB-7: a new leaf is made even for an equal value; a key that is not there is deleted without a trace."""
    tree = tree_of("a=1", "commit")
    root = tree.root_hash
    tree.delete(b"b")
    assert tree.commit() == []
    assert tree.root_hash == root
    tree.set(b"a", b"1")
    tree.commit()
    assert tree.root_hash != root


def test_a_savepoint_leaves_no_trace() -> None:
    """IB-5: what was undone is in neither shape nor root."""
    tree, plain = tree_of("a=1", "b=2", "commit"), tree_of("a=1", "b=2", "commit")
    kept = tree.root
    tree.set(b"c", b"3")
    tree.delete(b"a")
    tree.root = kept
    for each in (tree, plain):
        each.set(b"d", b"4")
        each.commit()
    assert tree.root_hash == plain.root_hash


def test_a_tree_works_on_nodes_that_are_loaded_when_they_are_needed() -> None:
    """IB-105: with nothing but references in memory it comes to the same roots."""
    stored: dict[tuple[int, int], Node] = {}

    def put_away(tree: IavlTree) -> None:
        for node in tree.commit():
            if isinstance(node, Inner):
                node.left, node.right = ref_to(node.left), ref_to(node.right)
            stored[node.version, node.number] = node
        tree.root = tree.committed = None if tree.root is None else ref_to(tree.root)

    def load(ref: Ref) -> Node:
        return stored[ref.version, ref.number]

    random, whole, thin = Random(5), IavlTree(), IavlTree(load=load)
    for _ in range(30):
        for _ in range(20):
            key = random.randbytes(1)
            for tree in (whole, thin):
                if key < b"\x60":
                    tree.delete(bytes((key[0] * 2,)))
                else:
                    tree.set(key, b"v")
        whole.commit()
        put_away(thin)
        assert thin.root_hash == whole.root_hash
    assert list(thin.scan(b"\x70", b"\x90")) == list(whole.scan(b"\x70", b"\x90"))
    assert thin.prove(b"\xff") == whole.prove(b"\xff")


def shape(node: Child | None) -> str:
    """The keys of a tree, with a pair of parentheses for each inner node."""
    if isinstance(node, Inner):
        return f"({shape(node.left)}{shape(node.right)})"
    assert isinstance(node, Leaf)
    return node.key.decode()


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ("b=1 d=1 f=1 h=1 a=1 c=1 -h -f", "((ab)(cd))"),
        ("a=1 b=1 c=1 d=1 e=1 f=1", "((ab)((cd)(ef)))"),
        ("a=1 b=1 c=1 d=1 e=1 f=1 -a", "((b(cd))(ef))"),
        ("f=1 e=1 d=1 c=1 b=1 a=1", "(((ab)(cd))(ef))"),
        ("f=1 e=1 d=1 c=1 b=1 a=1 -f", "((ab)((cd)e))"),
        ("a=1 d=1 e=1 b=1 c=1", "((a(bc))(de))"),
        ("a=1 d=1 e=1 b=1 c=1 -e", "((ab)(cd))"),
    ],
)
def test_a_tree_turns_once_where_both_ways_would_do(operations: str, expected: str) -> None:
    """IB-7: whichever way, it is balanced; but only one gives the root that everybody else has."""
    assert shape(tree_of(*operations.split()).root) == expected


@pytest.mark.parametrize(("key", "value"), [(b"", b"v"), (b"k", b"")])
def test_neither_key_nor_value_may_be_empty(key: bytes, value: bytes) -> None:
    """IB-10: no proof could show them; nothing is changed."""
    tree = IavlTree()
    with pytest.raises(MisuseError, match="neither an empty key nor an empty value"):
        tree.set(key, value)
    assert tree.root is None


@pytest.mark.parametrize("count", [*range(10), 16, 17, 31, 100])
def test_the_simple_tree_is_that_of_rfc_6962(count: int) -> None:
    """IT-37: against the definition of the RFC, written from its back end: pairs are joined until one is left."""
    leaves = [b"leaf %d" % number for number in range(count)]
    level = [sha256(b"\0" + leaf).digest() for leaf in leaves]
    while len(level) > 1:
        odd = [level.pop()] if len(level) % 2 else []
        pairs = zip(level[::2], level[1::2], strict=True)
        level = [sha256(b"\1" + left + right).digest() for left, right in pairs] + odd
    assert simple_root(leaves) == (level[0] if level else sha256(b"").digest())


def test_a_space_is_proven_in_the_root_over_all() -> None:
    """Whatever the number of spaces."""
    for count in range(1, 12):
        values = {b"space %d" % n: sha256(b"%d" % n).digest() for n in range(count)}
        for key, value in values.items():
            proof = prove_in_map(values, key)
            assert proof.value == value
            assert verify_membership(TENDERMINT_SPEC, simple_map_root(values), proof, key, value)
