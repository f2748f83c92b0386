"""What trees and proofs of IBC queues cost, beside what their hashes alone cost.

In memory the processor's time is taken, over a file that of the clock on the wall.

python -m benchmarks.ibc                  half a minute
python -m benchmarks.ibc --long           also a tree of a million keys (a gigabyte of memory, two minutes)
python -m benchmarks.ibc --fuzz 1000000   damaged proofs instead: none may raise, none may show what isn't so
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from random import Random

from surepipe.core.store_requests import Level, Store
from surepipe.queues.ibc.headers import (
    Client,
    Header,
    SignedHeader,
    TrustRoot,
    ValidatorSet,
    public_key,
    sign,
)
from surepipe.queues.ibc.iavl import EMPTY_ROOT, IavlTree
from surepipe.queues.ibc.ics23 import (
    STORE_SPECS,
    compress,
    verify_chained,
    verify_items,
    verify_membership,
    verify_non_membership,
)
from surepipe.queues.ibc.merkle_store import MerkleStore
from surepipe.queues.ibc.proof import BatchProof, ExistenceProof, ProofError, uvarint
from surepipe.queues.ibc.simple_tree import prove_in_map, simple_map_root
from surepipe.queues.ibc.wire import decode_proof, encode_proof
from surepipe.storage import MemoryStore, RedisStore, SqliteStore
from tests.kit.proofs import Case, damaged, honest_cases

VALUE = b"v" * 120
ROUNDS = 5


def key_of(index: int) -> bytes:
    """As an entry of a send queue has it."""
    return b"ibc:west:send\x01" + index.to_bytes(8, "big")


def tree_of(keys: int) -> IavlTree:
    """A committed tree of so many entries."""
    tree = IavlTree()
    for index in range(keys):
        tree.set(key_of(index), VALUE)
    tree.commit()
    return tree


def microseconds(
    work: Callable[[], object], times: int, clock: Callable[[], float] = time.process_time
) -> float:
    """Of one of so many, in this round; the processor's, where nothing is waited for."""
    begin = clock()
    work()
    return (clock() - begin) / times * 1e6


def row(what: str, values: Sequence[float], unit: str = "us") -> float:
    """Print the best and the median round; the best is returned."""
    best, median = min(values), statistics.median(values)
    print(f"| {what} | {best:,.1f} {unit} | {median:,.1f} {unit} |", flush=True)
    return best


def measure_writes(tree: IavlTree, random: Random) -> float:
    """A new root after each write."""
    keys = tree.root.size if tree.root else 0

    def write() -> None:
        for _ in range(500):
            tree.set(key_of(random.randrange(keys)), VALUE)
            tree.commit()

    return row(
        f"new root after each write, {keys:,} keys",
        [microseconds(write, 500) for _ in range(ROUNDS)],
    )


def hashes_alone(proofs: Sequence[ExistenceProof]) -> bytes:
    """What a chain hashes, without a look at anything."""
    digest = b""
    for proof in proofs:
        assert proof.leaf is not None
        head = proof.leaf.prefix + uvarint(len(proof.key)) + proof.key
        digest = sha256(head + b"\x20" + sha256(proof.value).digest()).digest()
        for op in proof.path:
            digest = sha256(op.prefix + digest + op.suffix).digest()
    return digest


def measure_proofs(tree: IavlTree, random: Random) -> None:
    """Making and verifying, single and in a batch of neighbours."""
    keys = tree.root.size if tree.root else 0
    roots = {b"ibc": tree.root_hash, b"bank": EMPTY_ROOT}
    root, outer = simple_map_root(roots), prove_in_map(roots, b"ibc")
    chosen = [key_of(random.randrange(keys)) for _ in range(500)]

    def make() -> list[ExistenceProof]:
        return [found for key in chosen if (found := tree.prove(key))]

    row("making a proof", [microseconds(make, len(chosen)) for _ in range(ROUNDS)])
    proofs = make()
    encoded, outer_bytes = [encode_proof(proof) for proof in proofs], encode_proof(outer)
    chains = list(zip(chosen, proofs, encoded, strict=True))

    def alone() -> None:
        for _, proof, _ in chains:
            assert hashes_alone((proof, outer)) != b""

    def decoded() -> None:
        for key, proof, _ in chains:
            assert verify_chained(STORE_SPECS, root, (proof, outer), (b"ibc", key), VALUE)

    def from_bytes() -> None:
        for key, _, data in chains:
            assert verify_chained(STORE_SPECS, root, (data, outer_bytes), (b"ibc", key), VALUE)

    times: dict[str, list[float]] = {
        "its hashes alone": [],
        "verifying it, decoded": [],
        "verifying it, from bytes": [],
    }
    for _ in range(3 * ROUNDS):
        for name, work in zip(times, (alone, decoded, from_bytes), strict=True):
            times[name].append(microseconds(work, len(chains)))
    best = [row(name, found) for name, found in times.items()]
    print(
        f"| rate of verifying decoded proofs, of hashing alone | {best[0] / best[1]:.2f} | wanted: 0.5 |"
    )

    neighbours = [key_of(keys // 2 + n) for n in range(100)]
    singles = [tree.prove(key) for key in neighbours]
    batch = BatchProof(tuple(proof for proof in singles if proof))
    small = compress(batch)
    data = encode_proof(small)
    bytes_alone = sum(len(encode_proof(proof)) for proof in singles if proof)
    items: list[tuple[bytes, bytes | None]] = [(key, VALUE) for key in neighbours]
    print(
        f"| one proof; 100 neighbours alone; as a batch | {bytes_alone // 100} B "
        f"| {bytes_alone:,} B; {len(data):,} B |"
    )
    print(f"| the batch, of its proofs alone | {len(data) / bytes_alone:.2f} | wanted: 0.33 |")

    def verify(proof: object) -> Callable[[], object]:
        return lambda: verify_items(STORE_SPECS, root, (proof, outer), (b"ibc",), items)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    assert all(verify_items(STORE_SPECS, root, (data, outer), (b"ibc",), items))
    row(
        "verifying the batch, decoded, each key",
        [microseconds(verify(small), 100) for _ in range(ROUNDS)],
    )
    row(
        "verifying the batch, from bytes, each key",
        [microseconds(verify(data), 100) for _ in range(ROUNDS)],
    )


def measure_store(name: str, store: Store) -> None:
    """Blocks of a hundred messages: tree, log and stream in one write."""
    merkle = MerkleStore(store)
    merkle.open()
    sent = 0

    def blocks() -> None:
        nonlocal sent
        for _ in range(20):
            block = merkle.begin()
            for _ in range(100):
                block.set("ibc", key_of(sent), VALUE)
                sent += 1
            block.append("ibc/west/send", sent - 100, [VALUE] * 100)
            merkle.commit(block, sent)

    clock = time.process_time if isinstance(store, MemoryStore) else time.perf_counter
    values = [microseconds(blocks, 2000, clock) for _ in range(ROUNDS)]
    best = row(f"a message in blocks of 100, {name}", values)
    print(f"| messages a second, {name} | {1e6 / best:,.0f} | |")


def fuzz(count: int, seed: int) -> int:
    """Damage proofs; the exit code is 1 when one shows what isn't so. What raises ends the program."""
    random, begin = Random(seed), time.monotonic()
    accepted = malformed = 0
    cases: list[Case] = []
    for number in range(count):
        if number % 500 == 0:
            cases = list(honest_cases(random, random.choice((1, 4, 16, 64))))
        case = damaged(random, random.choice(cases))
        if random.random() < 0.3:
            case = damaged(random, case) if case.proof and case.key and case.value != b"" else case
        if case.value is None:
            shown = verify_non_membership(case.spec, case.root, case.proof, case.key)
        else:
            shown = verify_membership(case.spec, case.root, case.proof, case.key, case.value)
        accepted += shown
        if shown and not case.is_true:
            print(f"a forgery was accepted (seed {seed}, number {number}): {case}")
            return 1
        if not shown and number % 10 == 0:
            try:
                decode_proof(case.proof)
            except ProofError:
                malformed += 1
    took = time.monotonic() - begin
    print(
        f"{count:,} damaged proofs (seed {seed}) in {took:.0f} s, {took / count * 1e6:.0f} us each: none raised, "
        f"none shows what isn't so; {accepted:,} still show what is so; about {malformed * 10:,} can't be decoded"
    )
    return 0


def fuzz_headers(count: int, seed: int) -> int:
    """Damage signed headers; the exit code is 1 when a client believes one, or freezes because of it."""
    random, begin, believed = Random(seed), time.monotonic(), 0
    seeds = [bytes((n,)) * 32 for n in range(1, 5)]
    members = ValidatorSet.of({public_key(each): 1 for each in seeds})

    def header_of(height: int) -> SignedHeader:
        root = height.to_bytes(32, "big")
        header = Header("east", height, 1000 * height, root, members.hash, members.hash)
        return sign(header, seeds, members, members)

    honest = [header_of(height) for height in range(1, 60)]
    encoded = [signed.encode() for signed in honest]
    client = Client(TrustRoot(honest[0], 1 << 40))
    for number in range(count):
        at = random.randrange(1, len(honest))
        data = encoded[at]
        for _ in range(random.choice((1, 1, 2, 5))):
            place = random.randrange(len(data))
            rest = data[place + random.randrange(2) :]
            data = data[:place] + random.randbytes(random.randrange(3)) + rest
        try:
            signed = SignedHeader.decode(data)
        except ProofError:
            continue
        outcome = client.check(signed, 1 << 30)
        if outcome.kind == "trusted" and signed.header == honest[at].header:
            believed += 1  # only signatures or sets that were not needed are damaged
        elif outcome.kind in ("trusted", "frozen"):
            print(f"a forged header was believed (seed {seed}, number {number}): {signed}")
            return 1
    took = time.monotonic() - begin
    print(
        f"{count:,} damaged headers (seed {seed}) in {took:.0f} s: none raised, none is believed or freezes but "
        f"{believed:,} whose header is unchanged"
    )
    return 0


def main(arguments: Sequence[str]) -> int:
    """Print a table, or fuzz."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--fuzz", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--redis", metavar="URL")
    options = parser.parse_args(arguments)
    if options.fuzz:
        return fuzz(options.fuzz, options.seed) or fuzz_headers(options.fuzz, options.seed)
    random = Random(options.seed)
    print(f"| what | best of {ROUNDS} | median |\n| --- | ---: | ---: |")
    tree = tree_of(100_000)
    small = measure_writes(tree, random)
    measure_proofs(tree, random)
    measure_store("memory", MemoryStore())
    if options.redis:
        with RedisStore.from_url(options.redis, pipeline="ibc-bench") as redis:
            measure_store("Redis", redis)
    with tempfile.TemporaryDirectory() as folder:
        with SqliteStore(Path(folder) / "power.db", level=Level.POWER) as store:
            measure_store("SQLite, each block synced", store)
        with SqliteStore(Path(folder) / "process.db", level=Level.PROCESS) as store:
            measure_store("SQLite, level process", store)
    if options.long:
        large = measure_writes(tree_of(1_000_000), random)
        print(
            f"| a write at a million keys, of one at a hundred thousand | {large / small:.2f} | wanted: 1.35 |"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
