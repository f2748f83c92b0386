"""The IAVL tree: a balanced search tree whose root commits to each key, its value, and when it was written.

Nodes are never changed, so a savepoint is the root itself and an older tree stays readable. Each node that is made
while version ``v`` is open carries ``v``; nodes that are kept keep theirs. So the root depends on the order of the
operations and on where versions end, and two trees with equal contents may have different roots.

A tree need not be in memory: a ``Ref`` stands for a node that ``load`` finds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import TypeAlias

from surepipe.errors import MisuseError
from surepipe.queues.ibc.proof import (
    ExistenceProof,
    HashOp,
    InnerOp,
    LeafOp,
    LengthOp,
    NonExistenceProof,
    ProofError,
    read_uvarint,
    uvarint,
)

EMPTY_ROOT = sha256(b"").digest()
BOUND = 1 << 34
"""Sizes and versions are below it: larger ones would not fit into the prefix of a step."""


@dataclass(slots=True)
class Ref:
    """A stored node by its version and number in it, with what its parent has to know of it."""

    version: int
    number: int
    height: int
    size: int
    hash: bytes


class Leaf:
    """A key and its value. The hash and the number come with the commit."""

    __slots__ = ("hash", "key", "number", "value", "version")
    height = 0
    size = 1

    def __init__(self, key: bytes, value: bytes, version: int) -> None:
        self.key, self.value, self.version = key, value, version
        self.hash, self.number = b"", 0


class Inner:
    """Two subtrees; ``key`` is the smallest of the right one. The hash and the number come with the commit."""

    __slots__ = ("hash", "height", "key", "left", "number", "right", "size", "version")

    def __init__(self, key: bytes, left: Child, right: Child, version: int) -> None:
        self.key, self.left, self.right, self.version = key, left, right, version
        self.size: int = left.size + right.size
        self.height: int = (left.height if left.height > right.height else right.height) + 1
        self.hash, self.number = b"", 0


Node: TypeAlias = Leaf | Inner
Child: TypeAlias = Leaf | Inner | Ref
Load: TypeAlias = Callable[[Ref], Node]


def ref_to(node: Child) -> Ref:
    """A reference to a committed node."""
    if isinstance(node, Ref):
        return node
    return Ref(node.version, node.number, node.height, node.size, node.hash)


def _nothing_is_stored(ref: Ref) -> Node:
    raise AssertionError(f"node {ref.number} of version {ref.version} is not in memory")


def zigzag(number: int) -> bytes:
    """A number from 0 on as IAVL writes it: signed, so doubled."""
    return uvarint(number << 1)


_ZIGZAG = tuple(zigzag(number) for number in range(64))
"""Of the heights that a tree can have."""


def _head(height: int, size: int, version: int) -> bytes:
    return _ZIGZAG[height] + uvarint(size << 1) + uvarint(version << 1)


class IavlTree:
    """A tree that is worked on: ``set`` and ``delete`` change the open version, ``commit`` closes it.

    ``root`` may be kept and set back to, as a savepoint. ``copy`` gives a tree that goes on from here by itself.
    """

    def __init__(
        self, root: Child | None = None, version: int = 0, load: Load = _nothing_is_stored
    ) -> None:
        self.root = root
        self.committed = root
        """The root of the last version; proofs are made of it."""
        self.version = version
        self._load = load

    def copy(self) -> IavlTree:
        """The last version, to be worked on or to be kept."""
        return IavlTree(self.committed, self.version, self._load)

    def _node(self, child: Child) -> Node:
        return self._load(child) if type(child) is Ref else child  # type: ignore[return-value]  # pyright: ignore[reportReturnType]

    # Reading.

    def get(self, key: bytes) -> bytes | None:
        """The value in the open version, or None."""
        leaf = self._leaf(key)
        return leaf.value if leaf is not None and leaf.key == key else None

    def _leaf(self, key: bytes) -> Leaf | None:
        """The leaf that has the key if any has."""
        child, load = self.root, self._load
        while child is not None:
            node = load(child) if type(child) is Ref else child
            if type(node) is Leaf:
                return node
            assert type(node) is Inner
            child = node.left if key < node.key else node.right
        return None

    def scan(self, start: bytes = b"", stop: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Keys from ``start`` on and below ``stop`` with their values, in the order of the keys."""
        waiting = [] if self.root is None else [self.root]
        while waiting:
            node = self._node(waiting.pop())
            if isinstance(node, Inner):
                if stop is None or node.key < stop:
                    waiting.append(node.right)
                if start < node.key:
                    waiting.append(node.left)
            elif start <= node.key and (stop is None or node.key < stop):
                yield node.key, node.value

    # Changing.

    def set(self, key: bytes, value: bytes) -> None:
        """Let the key have this value. A new leaf is made even for the value that it had."""
        if not key or not value:
            raise MisuseError("a tree takes neither an empty key nor an empty value")
        version = self.version + 1
        if version >= BOUND:
            raise MisuseError(f"version {version} of a tree does not fit into a proof")
        leaf = Leaf(key, value, version)
        self.root = leaf if self.root is None else self._set(self.root, leaf, version)

    def _set(self, child: Child, leaf: Leaf, version: int) -> Node:
        node = self._load(child) if type(child) is Ref else child
        if type(node) is Leaf:
            if leaf.key == node.key:
                return leaf
            if leaf.key < node.key:
                return Inner(node.key, leaf, child, version)
            return Inner(leaf.key, child, leaf, version)
        assert isinstance(node, Inner)
        if leaf.key < node.key:
            return self._balanced(node.key, self._set(node.left, leaf, version), node.right)
        return self._balanced(node.key, node.left, self._set(node.right, leaf, version))

    def delete(self, key: bytes) -> bool:
        """Remove the key. Whether it was there; if not, nothing changes."""
        if self.root is None or self.get(key) is None:
            return False
        self.root, _ = self._delete(self.root, key)
        return True

    def _delete(self, child: Child, key: bytes) -> tuple[Child | None, bytes | None]:
        """The subtree without the key, and its smallest key if that has changed."""
        node = self._node(child)
        if isinstance(node, Leaf):
            return None, None
        if key < node.key:
            left, smallest = self._delete(node.left, key)
            if left is None:
                return node.right, node.key
            return self._balanced(node.key, left, node.right), smallest
        right, smallest = self._delete(node.right, key)
        if right is None:
            return node.left, None
        return self._balanced(smallest or node.key, node.left, right), None

    def _balanced(self, key: bytes, left: Child, right: Child) -> Inner:
        """An inner node of the open version above both, rotated when one of them is higher by two."""
        version, lean = self.version + 1, left.height - right.height
        if -2 < lean < 2:
            return Inner(key, left, right, version)
        if lean > 0:
            high = self._inner(left)
            if high.left.height >= high.right.height:
                return Inner(high.key, high.left, Inner(key, high.right, right, version), version)
            middle = self._inner(high.right)
            return Inner(
                middle.key,
                Inner(high.key, high.left, middle.left, version),
                Inner(key, middle.right, right, version),
                version,
            )
        high = self._inner(right)
        if high.right.height >= high.left.height:
            return Inner(high.key, Inner(key, left, high.left, version), high.right, version)
        middle = self._inner(high.left)
        return Inner(
            middle.key,
            Inner(key, left, middle.left, version),
            Inner(high.key, middle.right, high.right, version),
            version,
        )

    def _inner(self, child: Child) -> Inner:
        node = self._node(child)
        assert isinstance(node, Inner)
        return node

    # Committing.

    def commit(self) -> list[Node]:
        """Close the version: hash and number what is new, parents before their children, left before right."""
        self.version += 1
        made: list[Node] = []
        root = self.root
        if root is not None and not root.number:
            if root.size >= BOUND:
                raise MisuseError("a tree of so many keys has no proofs")
            assert not isinstance(root, Ref)
            _seal(root, made, uvarint(self.version << 1))
        self.committed = root
        return made

    @property
    def root_hash(self) -> bytes:
        """The root of the last version."""
        return EMPTY_ROOT if self.committed is None else self.committed.hash

    # Proving.

    def prove(self, key: bytes) -> ExistenceProof | None:
        """The proof that the last version has the key, or None."""
        if self.committed is None:
            return None
        path: list[InnerOp] = []
        node = self._node(self.committed)
        while isinstance(node, Inner):
            goes_left = key < node.key
            path.append(step(node, goes_left))
            node = self._node(node.left if goes_left else node.right)
        return _existence(node, path) if node.key == key else None

    def prove_absence(self, key: bytes) -> NonExistenceProof | None:
        """The proof that the last version lacks the key: its neighbours. None when it has it, or has nothing."""
        if self.committed is None:
            return None
        rank, node = 0, self._node(self.committed)
        while isinstance(node, Inner):
            if key < node.key:
                node = self._node(node.left)
            else:
                rank += node.left.size
                node = self._node(node.right)
        if node.key == key:
            return None
        rank += node.key < key
        return NonExistenceProof(
            key,
            self._at(rank - 1) if rank else None,
            self._at(rank) if rank < self.committed.size else None,
        )

    def _at(self, rank: int) -> ExistenceProof:
        """The proof of the leaf before which so many others stand."""
        assert self.committed is not None
        path: list[InnerOp] = []
        node = self._node(self.committed)
        while isinstance(node, Inner):
            goes_left = rank < node.left.size
            path.append(step(node, goes_left))
            if not goes_left:
                rank -= node.left.size
            node = self._node(node.left if goes_left else node.right)
        return _existence(node, path)


def _seal(node: Node, made: list[Node], version: bytes) -> bytes:
    """Number and hash a new node and those below it. Most of a write's time passes here, so it is written out."""
    made.append(node)
    node.number = len(made)
    if type(node) is Inner:
        left, right = node.left, node.right
        left_hash = left.hash if left.number else _seal(left, made, version)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        right_hash = right.hash if right.number else _seal(right, made, version)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        head = _ZIGZAG[node.height] + uvarint(node.size << 1) + version
        data = head + b"\x20" + left_hash + b"\x20" + right_hash
    else:
        data = _hashed(node, version)
    node.hash = sha256(data).digest()
    return node.hash


def _hashed(node: Node, version: bytes) -> bytes:
    """What is hashed of a node. Routing keys are not."""
    if type(node) is Leaf:
        key = node.key
        return b"\0\x02" + version + uvarint(len(key)) + key + b"\x20" + sha256(node.value).digest()
    assert isinstance(node, Inner)
    head = _ZIGZAG[node.height] + uvarint(node.size << 1) + version
    return head + b"\x20" + node.left.hash + b"\x20" + node.right.hash


def step(node: Inner, goes_left: bool) -> InnerOp:
    """The step of a proof from one of the children to this node."""
    head = _head(node.height, node.size, node.version) + b" "
    if goes_left:
        return InnerOp(HashOp.SHA256, head, b" " + node.right.hash)
    return InnerOp(HashOp.SHA256, head + node.left.hash + b" ")


def _existence(leaf: Leaf, path: list[InnerOp]) -> ExistenceProof:
    op = LeafOp(
        HashOp.SHA256, HashOp.NO_HASH, HashOp.SHA256, LengthOp.VAR_PROTO, _head(0, 1, leaf.version)
    )
    return ExistenceProof(leaf.key, leaf.value, op, tuple(reversed(path)))


# Trees that are stored: what became unused, and nodes as bytes.


def unused_since(old: Child | None, root: Child | None, made: list[Node], load: Load) -> list[Ref]:
    """Nodes of an old tree that the new one no longer uses; ``made`` is what the commit of the new one gave."""
    kept = {(root.version, root.number)} if root is not None else set[tuple[int, int]]()
    for node in made:
        if isinstance(node, Inner):
            kept.add((node.left.version, node.left.number))
            kept.add((node.right.version, node.right.number))
    found: list[Ref] = []
    waiting = [] if old is None else [old]
    while waiting:
        child = waiting.pop()
        if (child.version, child.number) in kept:
            continue
        found.append(ref_to(child))
        node = load(child) if isinstance(child, Ref) else child
        if isinstance(node, Inner):
            waiting += [node.right, node.left]
    return found


def thin(node: Node) -> Node:
    """Let a committed node hold its children by reference, so that it doesn't keep a whole tree in memory."""
    if isinstance(node, Inner):
        node.left, node.right = ref_to(node.left), ref_to(node.right)
    return node


def encode_ref(ref: Child) -> bytes:
    """A reference as bytes."""
    where = uvarint(ref.version) + uvarint(ref.number)
    return where + uvarint(ref.height) + uvarint(ref.size) + ref.hash


def decode_ref(data: bytes, at: int) -> tuple[Ref, int]:
    """A reference, and where it ends. Raises ProofError."""
    version, at = read_uvarint(data, at)
    number, at = read_uvarint(data, at)
    height, at = read_uvarint(data, at)
    size, at = read_uvarint(data, at)
    return Ref(version, number, height, size, data[at : at + 32]), at + 32


def encode_node(node: Node) -> bytes:
    """A committed node as bytes; its version and number are the key under which it is stored."""
    key = uvarint(node.height) + uvarint(len(node.key)) + node.key
    if isinstance(node, Leaf):
        return key + node.value
    return key + encode_ref(node.left) + encode_ref(node.right)


def decode_node(data: bytes, ref: Ref) -> Node:
    """The node that the reference means. Raises ProofError when the bytes have another hash."""
    height, at = read_uvarint(data, 0)
    length, at = read_uvarint(data, at)
    key, at = data[at : at + length], at + length
    node: Node
    if height == 0:
        node = Leaf(key, data[at:], ref.version)
    else:
        left, at = decode_ref(data, at)
        right, at = decode_ref(data, at)
        node = Inner(key, left, right, ref.version)
    node.number = ref.number
    node.hash = sha256(_hashed(node, uvarint(ref.version << 1))).digest()
    if node.hash != ref.hash:
        raise ProofError(f"node {ref.number} of version {ref.version} is not what was stored")
    return node
