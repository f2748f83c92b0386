"""What trees and proofs of IBC queues cost, beside what their hashes alone cost.

In memory the processor's time is taken, over a file that of the clock on the wall.

python -m benchmarks.ibc                  half a minute
python -m benchmarks.ibc --long           also a tree of a million keys (a gigabyte of memory, two minutes)
python -m benchmarks.ibc --grow           trees of a thousand to a million keys instead, and their memory
python -m benchmarks.ibc --keys 1000000 --redis URL   what a tree of so many keys takes in an empty Redis, instead
python -m benchmarks.ibc --packets 5000 --redis URL   so many messages from one party to another and back instead
python -m benchmarks.ibc --fuzz 1000000   damaged proofs instead: none may raise, none may show what isn't so
python -m benchmarks.ibc --fuzz-headers 1000000   and damaged headers: none may be believed
"""

from __future__ import annotations

import argparse
import gc
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any, cast

from redis import Redis

from surepipe.actors.parties import ServedParty, ServedRelay, StoreEnd
from surepipe.actors.threads import THREADS
from surepipe.core.store_requests import Level, Store, TableRows
from surepipe.queues.ibc import Party, Relay, RelayOptions, Sending, Transaction
from surepipe.queues.ibc.headers import Client, TrustRoot, update_to
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
from surepipe.queues.ibc.queue import ProvableQueue
from surepipe.queues.ibc.simple_tree import prove_in_map, simple_map_root
from surepipe.queues.ibc.wire import decode_proof, encode_proof
from surepipe.storage import MemoryStore, RedisStore, SqliteStore
from tests.kit.headers import Chain, damaged_header, honest
from tests.kit.proofs import Case, damaged, honest_cases

VALUE = b"v" * 120
GROWN_BLOCK = 1_000
ROUNDS = 5


def key_of(index: int) -> bytes:
    """As an entry of a send queue has it."""
    return b"ibc:west:send\x01" + index.to_bytes(8, "big")


def tree_of(keys: int) -> IavlTree:
    """A committed tree of so many entries, each with a value of its own."""
    tree, value = IavlTree(), bytearray(VALUE)
    for index in range(keys):
        tree.set(key_of(index), bytes(value))
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


def resident() -> int:
    """Bytes of memory that this process has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def measure_growth(sizes: Sequence[int], random: Random) -> None:
    """What trees of these sizes cost: to make, to write, to prove, to keep."""
    print(
        "| keys | a key of a new tree | new root after a write | a proof made | its steps, bytes | memory |"
    )
    print("| ---: | ---: | ---: | ---: | ---: | ---: |")
    for size in sizes:
        gc.collect()
        before = resident()
        begin = time.process_time()
        tree = tree_of(size)
        made = (time.process_time() - begin) / size * 1e6
        taken = resident() - before
        chosen = [random.randrange(size) for _ in range(500)]
        written = min(microseconds(partial(_write, tree, chosen), 500) for _ in range(ROUNDS))
        proven = min(microseconds(partial(_prove, tree, chosen), 500) for _ in range(ROUNDS))
        proof = tree.prove(key_of(chosen[0]))
        assert proof is not None
        print(
            f"| {size:,} | {made:.1f} us | {written:.1f} us | {proven:.1f} us | {len(proof.path)}, "
            f"{len(encode_proof(proof))} B | {taken / size:,.0f} B a key, {taken / 1e6:,.0f} MB |",
            flush=True,
        )
        del tree, proof


def _write(tree: IavlTree, indexes: Sequence[int]) -> None:
    for index in indexes:
        tree.set(key_of(index), VALUE)
        tree.commit()


def _prove(tree: IavlTree, indexes: Sequence[int]) -> None:
    for index in indexes:
        tree.prove(key_of(index))


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
    for name, took in zip(("decoded proofs", "proofs from bytes"), best[1:], strict=True):
        print(
            f"| rate of verifying {name}, of hashing alone | {best[0] / took:.2f} | wanted: 0.5 |"
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
    """Blocks of a hundred messages that go into a queue, and a hundred that leave it: tree, log and stream in one
    write."""
    merkle = MerkleStore(store)
    merkle.open()
    sent = 0

    def blocks() -> None:
        nonlocal sent
        for _ in range(20):
            block = merkle.begin()
            queue = ProvableQueue(block, "west", "send")
            if not sent:
                queue.init()
            for _ in range(100):
                queue.push(VALUE)
                if sent >= 1000:
                    queue.pop()
                sent += 1
            block.append("ibc/west/send", sent - 100, [VALUE] * 100)
            merkle.commit(block, sent)

    clock = time.process_time if isinstance(store, MemoryStore) else time.perf_counter
    values = [microseconds(blocks, 2000, clock) for _ in range(ROUNDS)]
    best = row(f"a message in and out, in blocks of 100, {name}", values)
    print(f"| messages a second, {name} | {1e6 / best:,.0f} | |")


def measure_packets(count: int) -> None:
    """Messages that are sent, relayed, executed, answered, and settled by their receipt, in this process."""
    with Party("east") as east, Party("west") as west:
        done = _introduced(east, west)
        took, processor = time.perf_counter(), time.process_time()
        with Relay([(east, west)]) as relay:
            _send(east, count)
            relay.settle(600)
        assert len(done) == count
        _tell_packets("memory", count, time.perf_counter() - took, time.process_time() - processor)


def measure_served(count: int, url: str, folder: Path) -> None:
    """The same between two parties that serve, each over a database of Redis, with a relay that has connections of
    its own."""
    with ExitStack() as stack:

        def opened(number: int) -> RedisStore:
            store = RedisStore.from_url(f"{url.rsplit('/', 1)[0]}/{number}", pipeline="packets")
            return stack.enter_context(store)

        east, west = (
            stack.enter_context(ServedParty(name, store=opened(number), keys=folder / name))
            for number, name in enumerate(("east", "west"), 1)
        )
        signal = THREADS.signal()
        done = _introduced(east, west, signal.notify)
        for party in (east, west):
            party.serve()
        ends = StoreEnd(opened(1), "relay"), StoreEnd(opened(2), "relay")
        for end in ends:
            stack.callback(end.close)
        served = ServedRelay(Relay([ends], options=RelayOptions(poll_s=0.005)))
        stack.callback(served.close)
        took, processor = time.perf_counter(), time.process_time()
        _send(east, count)
        assert signal.wait(lambda: len(done) >= count, 600)
        _tell_packets("Redis", count, time.perf_counter() - took, time.process_time() - processor)


def measure_in_redis(keys: int, url: str) -> None:
    """What a tree of so many keys takes in the server, and what a block of a hundred messages asks of it there.

    Nothing of the tree is in memory by then.
    """
    with RedisStore.from_url(url, pipeline="ibc-grown") as store:
        before = _info(url, "memory")["used_memory"]
        merkle = MerkleStore(store, keep_heights=2, keep_ms=0)
        merkle.open()
        took = time.perf_counter()
        for first in range(0, keys, GROWN_BLOCK):
            block = merkle.begin()
            for index in range(first, min(first + GROWN_BLOCK, keys)):
                block.set("ibc", key_of(index), VALUE)
            merkle.commit(block, first + 1)
            store.trim(merkle.log, first // GROWN_BLOCK)
        took = time.perf_counter() - took
        held = _info(url, "memory")["used_memory"] - before
        print(
            f"| {keys:,} keys in blocks of {GROWN_BLOCK:,} | {took / keys * 1e6:,.0f} us each by the clock | "
            f"{held / 1e6:,.0f} MB, {held / keys:,.0f} B a key |"
        )
        merkle = MerkleStore(store, keep_heights=2, keep_ms=0)
        merkle.open()
        calls = _info(url, "commandstats")
        block = merkle.begin()
        for index in range(100):
            block.set("ibc", key_of(keys + index), VALUE)
        merkle.commit(block, keys + 1)
        for name, stat in _info(url, "commandstats").items():
            usec, count = _of_calls(calls.get(name))
            now_usec, now_count = _of_calls(stat)
            if name.startswith("cmdstat_eval") and now_count > count:
                print(
                    f"| a block of 100 new keys, {name[8:]} | {now_count - count} calls | {now_usec - usec} us |"
                )


def _of_calls(stat: Any) -> tuple[int, int]:
    return (stat["usec"], stat["calls"]) if stat else (0, 0)


def _info(url: str, section: str) -> Mapping[str, Any]:
    with Redis.from_url(url) as client:  # pyright: ignore[reportUnknownMemberType]
        return cast("Mapping[str, Any]", client.info(section))  # pyright: ignore[reportUnknownMemberType]


def _introduced(east: Party, west: Party, told: Callable[[], None] = lambda: None) -> list[bytes]:
    done: list[bytes] = []

    def commit(tx: Transaction, data: bytes, result: bytes) -> None:
        del tx, result
        done.append(data)
        told()

    east.module("app").handle("note", on_commit=commit)
    west.module("app").handle("note", on_receive=lambda _, data: data[:1])
    east.register("west", west.identity())
    west.register("east", east.identity())
    return done


def _send(east: Party, count: int) -> None:
    for _ in range(count // 100):
        east.module("app").send_many("west", [Sending("note", VALUE)] * 100)


def _tell_packets(name: str, count: int, took: float, processor: float) -> None:
    print(
        f"| sent, relayed, answered and settled, blocks of 100, {name} | {count / took:,.0f} a second | "
        f"{processor / count * 1e6:,.0f} us of the processor each: {count / processor:,.0f} a second |"
    )


def bytes_of(store: Store, name: str) -> int:
    """Of all rows of a table."""
    total, after = 0, cast("bytes | None", b"")
    while after is not None:
        found = store.load_table(f"ibc/{name}", after)
        assert isinstance(found, TableRows)
        total += sum(len(key) + len(value) for key, value in found.pairs)
        after = found.after
    return total


def measure_heights(messages: int) -> None:
    """What a height takes in the store that keeps it, beside one that keeps two."""
    sizes = [0, 0]
    for place, keep in enumerate((2, 102)):
        store = MemoryStore()
        merkle = MerkleStore(store, keep_heights=keep, keep_ms=0)
        merkle.open()
        for height in range(300):
            block = merkle.begin()
            for number in range(messages if height else 10_000):
                block.set("ibc", key_of(messages * height + number + 10_000 * (height > 0)), VALUE)
            if height:
                for number in range(messages):
                    block.delete("ibc", key_of(messages * (height - 1) + number))
            merkle.commit(block, height)
        tables = [bytes_of(store, name) for name in ("nodes", "orphans", "versions")]
        sizes[place] = sum(tables)
    each = (sizes[1] - sizes[0]) / 100
    print(f"| a height kept, {messages} messages in and out, 10,000 keys | {each:,.0f} B | |")


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
    random, begin, believed, unread = Random(seed), time.monotonic(), 0, 0
    chains = [Chain(size, step) for size, step in ((1, 0), (4, 0), (4, 2), (7, 3))]
    clients = [Client(TrustRoot(honest(chain, 1), 1 << 40)) for chain in chains]
    for chain, client in zip(chains, clients, strict=True):
        update_to(client, 20, lambda height, chain=chain: honest(chain, height), 1 << 30)  # type: ignore[misc]
    for number in range(count):
        which, height = random.randrange(len(chains)), random.randrange(2, 60)
        chain, client = chains[which], clients[which]
        signed = damaged_header(random, chain, height)
        if signed is None:
            unread += 1
            continue
        outcome = client.check(signed, 1 << 30)
        is_evidence = (
            number % 8 == 0
            and client.copy().submit_evidence(signed, honest(chain, height), 1 << 30).kind
            == "frozen"
        )
        is_so = signed.header == honest(chain, height).header
        if outcome.kind == "trusted" and is_so:
            believed += 1  # only signatures or sets that were not needed are damaged
        elif outcome.kind in ("trusted", "frozen") or is_evidence:
            print(f"a forged header was believed (seed {seed}, number {number}): {signed}")
            return 1
    took = time.monotonic() - begin
    print(
        f"{count:,} damaged headers (seed {seed}) in {took:.0f} s: none raised, none is believed, or freezes by "
        f"itself or as evidence, but {believed:,} whose header is unchanged; {unread:,} can't be read"
    )
    return 0


def main(arguments: Sequence[str]) -> int:
    """Print a table, or fuzz."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--fuzz", type=int, default=0)
    parser.add_argument("--grow", action="store_true")
    parser.add_argument("--fuzz-headers", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--redis", metavar="URL")
    parser.add_argument("--packets", type=int, default=0)
    parser.add_argument("--keys", type=int, default=0)
    options = parser.parse_args(arguments)
    if options.fuzz or options.fuzz_headers:
        found = fuzz(options.fuzz, options.seed) if options.fuzz else 0
        return found or fuzz_headers(options.fuzz_headers, options.seed)
    if options.keys:
        measure_in_redis(options.keys, options.redis)
        return 0
    if options.packets:
        measure_packets(options.packets)
        if options.redis:
            with tempfile.TemporaryDirectory() as folder:
                measure_served(options.packets, options.redis, Path(folder))
        return 0
    random = Random(options.seed)
    if options.grow:
        measure_growth((1_000, 10_000, 100_000, 1_000_000), random)
        return 0
    print(f"| what | best of {ROUNDS} | median |\n| --- | ---: | ---: |")
    tree = tree_of(100_000)
    small = measure_writes(tree, random)
    measure_proofs(tree, random)
    measure_heights(1)
    measure_heights(100)
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
