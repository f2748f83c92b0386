"""Trees, proofs of them, and ways to damage a proof: for property tests, fuzzing and the independent verifier."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from random import Random

from surepipe.audit.proofs import StoredProof
from surepipe.queues.ibc.iavl import IavlTree
from surepipe.queues.ibc.ics23 import compress
from surepipe.queues.ibc.keys import QueueKey, SendValue
from surepipe.queues.ibc.merkle_store import MerkleStore
from surepipe.queues.ibc.proof import (
    IAVL_SPEC,
    SMT_SPEC,
    TENDERMINT_SPEC,
    BatchProof,
    CommitmentProof,
    ExistenceProof,
    HashOp,
    InnerOp,
    LeafOp,
    LengthOp,
    NonExistenceProof,
    ProofSpec,
)
from surepipe.queues.ibc.queue import ProvableQueue
from surepipe.queues.ibc.simple_tree import prove_in_map, simple_map_root
from surepipe.queues.ibc.wire import encode_chain, encode_proof
from surepipe.storage.memory import MemoryStore


@dataclass(frozen=True)
class Case:
    """What a proof is said to show: that the key has the value under the root, or (None) that it is not there."""

    spec: ProofSpec
    root: bytes
    proof: bytes
    key: bytes
    value: bytes | None
    truth: Mapping[bytes, bytes] = field(repr=False, compare=False)
    """What is under the root that the honest proof was made for."""
    honest_root: bytes = field(repr=False, compare=False)

    @property
    def is_true(self) -> bool:
        """Whether what it claims is so."""
        return self.root == self.honest_root and self.truth.get(self.key) == self.value


def random_tree(
    random: Random, keys: int, versions: int = 3
) -> tuple[IavlTree, dict[bytes, bytes]]:
    """A tree of about so many keys after random operations in several versions, and what must be in it."""
    tree, model = IavlTree(), dict[bytes, bytes]()
    for _ in range(versions):
        for _ in range(keys // versions + 1):
            key, value = random_key(random), random.randbytes(random.randint(1, 40))
            tree.set(key, value)
            model[key] = value
        for key in random.sample(sorted(model), len(model) // 5):
            tree.delete(key)
            del model[key]
        tree.commit()
    return tree, model


def random_key(random: Random) -> bytes:
    """Short keys, many of which stand side by side, and long ones."""
    return random.randbytes(random.choice((1, 1, 2, 2, 3, 8, 40)))


def honest_cases(random: Random, keys: int = 60) -> Iterator[Case]:
    """Proofs that random trees of each kind make, alone and in batches, of keys that are there and that aren't."""
    tree, model = random_tree(random, keys)
    yield from _iavl_cases(random, tree, model)
    values = {random_key(random): random.randbytes(20) for _ in range(random.randint(1, 30))}
    root = simple_map_root(values)
    for key in random.sample(sorted(values), min(5, len(values))):
        yield Case(
            TENDERMINT_SPEC,
            root,
            encode_proof(prove_in_map(values, key)),
            key,
            values[key],
            values,
            root,
        )
    sparse = SparseTree(
        {random_key(random): random.randbytes(9) for _ in range(random.randint(1, 20))}
    )
    for key in random.sample(sorted(sparse.values), min(5, len(sparse.values))):
        proof = encode_proof(sparse.prove(key))
        yield Case(
            SMT_SPEC, sparse.root, proof, key, sparse.values[key], sparse.values, sparse.root
        )


def _iavl_cases(random: Random, tree: IavlTree, model: dict[bytes, bytes]) -> Iterator[Case]:
    if not model:
        return
    root, entries = tree.root_hash, list[ExistenceProof | NonExistenceProof]()
    claims: list[tuple[bytes, bytes | None]] = []
    for key in random.sample(sorted(model), min(6, len(model))):
        found = tree.prove(key)
        assert found is not None
        entries.append(found)
        claims.append((key, model[key]))
    for _ in range(6):
        key = random_key(random)
        absent = tree.prove_absence(key)
        if absent is not None:
            entries.append(absent)
            claims.append((key, None))
    for entry, (key, value) in zip(entries, claims, strict=True):
        yield Case(IAVL_SPEC, root, encode_proof(entry), key, value, model, root)
    batch = BatchProof(tuple(entries))
    for proof in (encode_proof(batch), encode_proof(compress(batch))):
        for key, value in random.sample(claims, min(3, len(claims))):
            yield Case(IAVL_SPEC, root, proof, key, value, model, root)


def stored_cases(random: Random, messages: int) -> Iterator[Case]:
    """What a Merkle store proves of its queues at all of its heights: each key in its space, and the space in the
    root."""
    merkle, truths = MerkleStore(MemoryStore()), list[dict[bytes, bytes]]()
    merkle.open()
    for height in range(1, 5):
        block = merkle.begin()
        queue = ProvableQueue(block, "west", "send")
        if height == 1:
            queue.init()
            block.set("bank", b"total", b"1")
        for _ in range(random.randint(0, messages)):
            queue.push(SendValue("greet", random.randbytes(random.randint(0, 60))).encode())
        for _ in range(random.randint(0, messages // 2)):
            queue.pop()
        merkle.commit(block, height)
        truths.append(dict(merkle.scan("ibc", b"", None)))
    for height, truth in enumerate(truths, 1):
        version = merkle.version(height)
        root, roots = version.roots["ibc"], version.roots
        gone = [QueueKey("west", "send", "entry", index).encode() for index in range(messages * 5)]
        keys = random.sample(sorted({*truth, *gone}), min(6, len(truth)))
        for some in (keys, keys[:1]):
            inner, outer = map(encode_proof, merkle.prove("ibc", some, height))
            for key in some:
                yield Case(IAVL_SPEC, root, inner, key, truth.get(key), truth, root)
            spaces = {space.encode(): each for space, each in roots.items()}
            yield Case(TENDERMINT_SPEC, version.root, outer, b"ibc", root, spaces, version.root)


def stored_rows(random: Random, count: int) -> tuple[list[StoredProof], int]:
    """Rows of stored proofs, alone and in batches, of which some show something else than they say; and of how
    many keys."""
    merkle = MerkleStore(MemoryStore())
    merkle.open()
    block = merkle.begin()
    for number in range(200):
        block.set("ibc", b"%03d" % (2 * number), b"value %d" % number)
    version = merkle.commit(block, 1)
    rows, wrong = list[StoredProof](), 0
    for _ in range(count):
        numbers = random.sample(range(400), random.choice((1, 1, 1, 5)))
        keys = tuple(b"%03d" % number for number in numbers)
        values = tuple(merkle.get("ibc", key) for key in keys)
        proof, root = encode_chain(merkle.prove("ibc", keys)), version.root
        match random.randrange(20):
            case 0:
                values, wrong = (b"other", *values[1:]), wrong + 1
            case 1:
                root, wrong = bytes(32), wrong + len(keys)
            case 2:
                proof, wrong = random.randbytes(40), wrong + len(keys)
            case _:
                pass
        rows.append(StoredProof(root, proof, b"ibc", keys, values))
    return rows, wrong


def damaged(random: Random, case: Case) -> Case:  # noqa: PLR0911 - one line for each damage
    """The case with one thing changed: a byte of the proof, its length, the key, the value, or the root."""
    match random.randrange(10):
        case 0:
            return replace(case, root=_flipped(random, case.root))
        case 1 if case.value:
            return replace(case, value=_flipped(random, case.value))
        case 2:
            return replace(case, key=_flipped(random, case.key))
        case 3:
            at = random.randrange(len(case.proof))
            return replace(case, proof=case.proof[:at])
        case 4:
            at = random.randrange(len(case.proof) + 1)
            return replace(case, proof=case.proof[:at] + random.randbytes(1) + case.proof[at:])
        case 5:
            at = random.randrange(len(case.proof))
            return replace(case, proof=case.proof[:at] + case.proof[at + 1 :])
        case 6:
            first, second = sorted(random.randrange(len(case.proof)) for _ in range(2))
            part = case.proof[first:second]
            at = random.randrange(len(case.proof))
            return replace(case, proof=case.proof[:at] + part + case.proof[at + len(part) :])
        case 7:
            return replace(case, value=None if case.value else b"forged")
        case _:
            return replace(case, proof=_flipped(random, case.proof))


def _flipped(random: Random, data: bytes) -> bytes:
    at = random.randrange(len(data))
    return data[:at] + bytes((data[at] ^ 1 << random.randrange(8),)) + data[at + 1 :]


class SparseTree:
    """A sparse tree as SMT_SPEC has it, of few keys: for tests of the verifier, as no store here makes one.

    A leaf stands where the path of its hashed key is no longer shared; an empty subtree is 32 zero bytes.
    """

    LEAF = LeafOp(HashOp.SHA256, HashOp.SHA256, HashOp.SHA256, LengthOp.NO_PREFIX, b"\0")

    def __init__(self, values: dict[bytes, bytes]) -> None:
        self.values = values
        self._places = sorted((sha256(key).digest(), key) for key in values)
        self.root = self._hash(self._places, 0)

    def _hash(self, places: Sequence[tuple[bytes, bytes]], depth: int) -> bytes:
        if not places:
            return bytes(32)
        if len(places) == 1:
            place, key = places[0]
            return sha256(b"\0" + place + sha256(self.values[key]).digest()).digest()
        left, right = self._halves(places, depth)
        return sha256(b"\1" + self._hash(left, depth + 1) + self._hash(right, depth + 1)).digest()

    @staticmethod
    def _halves(
        places: Sequence[tuple[bytes, bytes]], depth: int
    ) -> tuple[list[tuple[bytes, bytes]], list[tuple[bytes, bytes]]]:
        def goes_right(place: bytes) -> bool:
            return bool(place[depth // 8] >> (7 - depth % 8) & 1)

        return [p for p in places if not goes_right(p[0])], [p for p in places if goes_right(p[0])]

    def prove(self, key: bytes) -> ExistenceProof:
        """That the key is there."""
        path: list[InnerOp] = []
        places, depth, place = list(self._places), 0, sha256(key).digest()
        while len(places) > 1:
            left, right = self._halves(places, depth)
            if any(each[0] == place for each in left):
                path.append(InnerOp(HashOp.SHA256, b"\1", self._hash(right, depth + 1)))
                places = left
            else:
                path.append(InnerOp(HashOp.SHA256, b"\1" + self._hash(left, depth + 1)))
                places = right
            depth += 1
        return ExistenceProof(key, self.values[key], self.LEAF, tuple(reversed(path)))

    def prove_absence(self, key: bytes) -> NonExistenceProof:
        """That the key isn't there: the leaves whose hashed keys stand next to its own."""
        place = sha256(key).digest()
        before = [each for each in self._places if each[0] < place]
        after = [each for each in self._places if each[0] > place]
        return NonExistenceProof(
            key,
            self.prove(before[-1][1]) if before else None,
            self.prove(after[0][1]) if after else None,
        )


def changed_step(
    proof: ExistenceProof, layer: int, change: Callable[[InnerOp], InnerOp]
) -> ExistenceProof:
    """The proof with one of its steps (the first is 1) made another."""
    path = list(proof.path)
    path[layer - 1] = change(path[layer - 1])
    return replace(proof, path=tuple(path))


def root_of(proof: CommitmentProof) -> bytes:
    """What a single existence proof leads to, computed by the book: leaf and steps."""
    assert isinstance(proof, ExistenceProof)
    assert proof.leaf is not None
    key = len(proof.key).to_bytes(1, "big") + proof.key
    digest = sha256(proof.leaf.prefix + key + b"\x20" + sha256(proof.value).digest()).digest()
    for op in proof.path:
        digest = sha256(op.prefix + digest + op.suffix).digest()
    return digest
