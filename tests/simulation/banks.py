"""Two banks in processes of a world, with relays that lose, repeat and reorder, and one that forges.

Parties, relays and forgers are nodes of one kind. Each may end, stand still or be replaced between any two writes;
the banks' invariants are looked at for every height afterwards, and the ledgers are judged by what they show.

    python -m tests.simulation.banks [--seeds 2000] [--first 0] [--jobs 1]

runs so many seeds, ordered and unordered by turns, an eighth with a party that signs two histories and an eighth
with one that closes its end, and says which refusals occurred. It ends with 1 when something is found.
"""

from __future__ import annotations

import argparse
import runpy
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path

from surepipe.actors.parties import ServedParty, StoreEnd
from surepipe.audit.findings import Violation
from surepipe.core.store_requests import Level
from surepipe.errors import StoreUnavailable
from surepipe.queues.ibc import (
    Header,
    IbcRefused,
    Ledger,
    Relay,
    RelayEnd,
    RelayOptions,
    Signer,
    Submission,
    SubmissionOutcome,
    Transaction,
    TrustRoot,
    sign,
)
from surepipe.queues.ibc.auditing import judge_connection, judge_ledger
from surepipe.queues.ibc.party import TRUSTING_PERIOD_S
from surepipe.simulation.actors.lives import Life
from surepipe.simulation.actors.runtime import SimulatedRuntime
from surepipe.simulation.actors.stores import LifeStore, SharedStore
from surepipe.simulation.chance.seeded import SeededChooser
from surepipe.simulation.options import MS, Options
from surepipe.simulation.promises import Promise
from surepipe.simulation.world import Deployment, World, play, result_of
from surepipe.testing.parties import UnfairEnd
from tests.simulation.kit import supervised

BANK = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "ibc_bank.py"))
Bank, add, amount_at = BANK["Bank"], BANK["add"], BANK["amount_at"]
LOOK_US = 100 * MS
START_MS = 1_700_000_000_000
PERIOD_MS = round(TRUSTING_PERIOD_S * 1000)
NAMES = ("east", "west")
RELAYERS = ("one", "two", "forger")
SEEDS = {"east": bytes([1]) * 32, "west": bytes([2]) * 32}


class CountingParty(ServedParty):
    """Counts what it answers to those who bring something."""

    answers: Counter[str] | None = None

    def submit(self, submission: Submission | bytes) -> SubmissionOutcome:
        try:
            found = super().submit(submission)
        except IbcRefused as refusal:
            self._count(refusal.code)
            raise
        for each in (*found.headers, *found.items):
            self._count(each.code or each.kind)
        return found

    def _count(self, answer: str) -> None:
        if self.answers is not None:
            self.answers[answer] += 1


class BankDeployment(Deployment):
    """Two parties, two relays and a forger, over a store for each party. ``closes``: the west closes its end when
    it has sent half of what it would."""

    def __init__(self, order: str, *, equivocates: bool = False, closes: bool = False) -> None:
        self._order, self._equivocates, self._closes = order, equivocates, closes
        self._wanted = 0
        self._done: set[str] = set()
        self.signers = {name: Signer([seed]) for name, seed in SEEDS.items()}
        self.supply: dict[str, int] = {}
        self.answers: Counter[str] = Counter()

    def begin(self, world: World) -> None:
        """Send, and go on until all of it has ended."""
        self._world = world
        self._wanted = world.options.messages
        self._shared = {name: SharedStore(world.add_store(name, Level.POWER)) for name in NAMES}
        programs: dict[str, Callable[[Life], None]] = dict.fromkeys(NAMES, self._serve)
        programs |= {"one": self._relay, "two": self._relay, "forger": self._relay}
        for name, program in programs.items():
            world.add_node(
                name,
                lambda life, program=program: supervised(life, program),  # type: ignore[misc]
                sends=name in NAMES,
                receives=name not in NAMES,
            )

    def _store(self, name: str, life: Life) -> LifeStore:
        return LifeStore(self._shared[name], life)

    def _clock(self) -> int:
        return START_MS + self._world.now // 1000

    def _serve(self, life: Life) -> None:
        name = life.node.name
        other = NAMES[1 - NAMES.index(name)]
        party = CountingParty(
            name,
            store=self._store(name, life),
            keys=self.signers[name],
            relayers=RELAYERS,
            runtime=SimulatedRuntime(life),
            clock=self._clock,
        )
        party.answers = self.answers
        Bank(party)
        self._set_up(party, other, life)
        party.serve()
        while len(self._done) < 2:
            if party.failure is not None:
                raise party.failure
            try:
                if not self._send_next(party, other) and self._is_settled(party, other):
                    self._done.add(name)
            except StoreUnavailable:
                pass
            except IbcRefused as refusal:
                self.answers[refusal.code] += 1
                if refusal.code not in ("client-frozen", "connection-closed"):
                    raise
                self._done.add("east" if self._equivocates else name)
            life.sleep(LOOK_US)
        party.close()

    def _set_up(self, party: ServedParty, other: str, life: Life) -> None:
        """The operator's part: accounts, and the connection with a header that somebody compared."""
        if other not in party.connections:
            if party.get("bank", b"account/ann") is None:

                def accounts(tx: Transaction) -> None:
                    for account in ("ann", "bob", f"of-{party.name}"):
                        tx.set(f"account/{account}".encode(), b"1000")

                party.module("bank").execute(accounts)
            theirs = Ledger(self._store(other, life))
            while not theirs.refresh():
                life.sleep(LOOK_US)
            trust = TrustRoot(theirs.header(theirs.height), PERIOD_MS)
            party.register(other, trust, order=self._order)
        self.supply[party.name] = 3000

    def _send_next(self, party: ServedParty, other: str) -> bool:
        """The next transfer, once: which one it is stands beside the money. False when all were sent."""
        sent = int(party.get("bank", b"sent") or b"0")
        if sent >= self._wanted:
            return False
        if self._closes and party.name == "west" and sent >= self._wanted // 2:
            party.close_connection(other)
            return False
        kind = "home" if sent % 3 == 2 else "out"
        account = ("ann", f"of-{party.name}", "bob")[sent % 3 if kind == "out" else 0]

        def work(tx: Transaction) -> None:
            if amount_at(tx, "sent") != sent:
                return
            tx.set(b"sent", b"%d" % (sent + 1))
            own = "account" if kind == "out" else f"voucher/{other}"
            held = amount_at(tx, f"{own}/{account}")
            amount = min(7 + sent, held)
            if not amount:
                return
            add(tx, f"{own}/{account}", -amount)
            add(tx, f"in_flight/{kind}/{other}", amount)
            limit = self._clock() + (0, 150, 600, 3_000)[sent % 4] if sent % 4 else 0
            data = f"{account} {amount}".encode()
            tx.send(other, f"bank/{kind}", data, timeout_ms=limit)

        party.module("bank").execute(work)
        return True

    def _is_settled(self, party: ServedParty, other: str) -> bool:
        party.view.refresh()
        found = party.view.counters(other, "send", party.view.height)
        client = party.client(other)
        assert client is not None
        if self._equivocates:  # who is lied to has to find out; who lies is not believed then
            return "east" in self._done or client.misbehaviour is not None
        return found.head == found.tail

    def _relay(self, life: Life) -> None:
        runtime, name = SimulatedRuntime(life), life.node.name
        ends = [StoreEnd(self._store(each, life), name, runtime) for each in NAMES]
        carried: Sequence[RelayEnd] = ends
        if name == "forger":
            pairs = zip(ends, ends[::-1], strict=True)
            unfair = [UnfairEnd(end, other.ledger, runtime.rng(None)) for end, other in pairs]
            carried = unfair
        options = RelayOptions(
            batch_items_max=4, resubmit_after_s=0.5, resubmit_max_s=2.0, relayer=name.encode()
        )
        relay = Relay([(carried[0], carried[1])], options=options, clock=self._clock)
        lies_at = 0
        while len(self._done) < 2:
            try:
                relay.run_once()
                # As any submission, a lie may be lost on its way: it is told again until somebody heard it.
                is_due = lies_at <= self._clock()
                if self._equivocates and name == "forger" and is_due and self._lie(ends):
                    lies_at = self._clock() + 1_000
            except (StoreUnavailable, IbcRefused):
                pass
            life.sleep(LOOK_US)
        for end in ends:
            end.close()

    def _lie(self, ends: Sequence[StoreEnd]) -> bool:
        """West's own validators sign a height a second time, for who believes it."""
        east, west = ends
        if (
            east.ledger.height < 4
            or west.ledger.height < 6
            or "west" not in east.ledger.connections
        ):
            return False
        client = east.ledger.client("west")
        if client is None or client.misbehaviour or client.newest.header.height < 3:
            return False
        own = client.newest.header
        forged = Header("west", own.height, own.time_ms, bytes(32), own.validators, own.validators)
        validators = self.signers["west"].validators
        east.submit(Submission("west", (sign(forged, [SEEDS["west"]], validators, validators),)))
        return True

    # The end.

    def end(self, world: World) -> Sequence[Violation]:
        """Ledgers fit together, each height has all the money, and nothing is under way."""
        last = len(world.rows) - 1
        if world.limit:
            return [Violation("ibc", "rest", last, f"it never came to rest: {world.limit}")]
        for shared in self._shared.values():
            shared.store.is_down = False
        return [Violation("ibc", name, last, text) for name, text in self._found()]

    def _found(self) -> Iterator[tuple[str, str]]:
        ledgers = [Ledger(self._shared[name].store) for name in NAMES]
        east, west = ledgers
        for ledger in ledgers:
            ledger.refresh()
            ledger.merkle.open_to_read()
            for text in judge_ledger(ledger):
                yield "ledger", f"{ledger.party}: {text}"
            yield from self._supply(ledger)
        names = ("west", "east")
        for text in judge_connection(east, west, names):
            yield "connection", text
        if self._equivocates:
            client = east.client("west")
            if client is None or client.misbehaviour is None:
                yield "evidence", "east never saw that west signs two histories"
            return
        for one, other in (ledgers, ledgers[::-1]):
            sent = one.counters(other.party, "send", one.height)
            taken = other.counters(one.party, "receipt", other.height)
            if taken.head > sent.head or taken.tail > sent.tail:
                yield "queues", f"{other.party} is ahead of what {one.party} sent: {taken}, {sent}"
            rows = _rows(other)
            backing = _sum(_rows(one), f"backing/{other.party}")
            if _sum(rows, f"voucher/{one.party}/", f"in_flight/home/{one.party}") != backing:
                yield "supply", f"vouchers of {one.party} at {other.party} aren't what backs them"
            if _sum(_rows(one), "in_flight/"):
                yield "supply", f"{one.party} has money in flight for ever"

    def _supply(self, ledger: Ledger) -> Iterator[tuple[str, str]]:
        for height in range(1, ledger.merkle.latest.height + 1):
            rows = _rows(ledger, height)
            found = _sum(rows, "account/", "in_flight/out/", "backing/")
            if rows and found != self.supply[ledger.party]:
                yield "supply", f"{ledger.party} has {found} tokens at height {height}"
                return


def _rows(ledger: Ledger, height: int | None = None) -> list[tuple[bytes, bytes]]:
    return ledger.merkle.scan("bank", b"", None, height)


def _sum(rows: Sequence[tuple[bytes, bytes]], *places: str) -> int:
    return sum(int(value) for key, value in rows if key.decode().startswith(places))


class BankSubject:
    """What is simulated."""

    name = "ibc"
    promise = Promise(confirms=False, stores=frozenset({"stream"}))

    def __init__(self, order: str, *, equivocates: bool = False, closes: bool = False) -> None:
        self._order, self._equivocates, self._closes = order, equivocates, closes

    def facts(self) -> dict[str, object]:
        """Nothing beyond what is told of every run."""
        return {}

    def deployment(self) -> BankDeployment:
        """One run."""
        return BankDeployment(self._order, equivocates=self._equivocates, closes=self._closes)


CALM = Options(messages=12, chaos_us=3_000 * MS, store_us=MS, events_max=12_000)
TROUBLED = replace(
    CALM,
    sender_crashes=4,
    receiver_crashes=4,
    sender_zombies=1,
    receiver_zombies=1,
    restart_us=500 * MS,
    crash_within=60,
    store_unknown_ppm=20_000,
    store_lost_ppm=20_000,
)


@dataclass(frozen=True, slots=True)
class Played:
    """One run: its digest, what was found, and what parties answered."""

    digest: str
    found: Sequence[Violation]
    answers: Counter[str]


def run(
    seed: int,
    options: Options,
    order: str = "ordered",
    *,
    equivocates: bool = False,
    closes: bool = False,
) -> Played:
    """Play one world."""
    chosen = replace(options, seed=seed)
    subject = BankSubject(order, equivocates=equivocates, closes=closes)
    world = play(subject, chosen, SeededChooser(chosen))
    deployment = world.deployment
    assert isinstance(deployment, BankDeployment)
    return Played(result_of(world, None).digest, list(world.found), deployment.answers)


# Many seeds.


def run_chosen(seed: int) -> tuple[int, Played]:
    """The run of a seed, which also says what kind of run it is."""
    order = ("ordered", "unordered")[seed % 2]
    kind = seed // 2 % 8
    return seed, run(seed, TROUBLED, order, equivocates=kind == 0, closes=kind == 1)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main(arguments: Sequence[str]) -> int:
    """Run seeds; 1 when something is found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args(arguments)
    begin, answers, bad = time.monotonic(), Counter[str](), 0
    seeds = range(options.first, options.first + options.seeds)
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        for number, (seed, played) in enumerate(pool.map(run_chosen, seeds), 1):
            answers += played.answers
            for each in played.found:
                bad += 1
                _say(f"seed {seed}: {each.name}: {each.sentence}")
            if number % 100 == 0:
                _say(f"{number} seeds, {bad} findings, {time.monotonic() - begin:.0f} s")
    _say(f"{options.seeds:,} seeds from {options.first}: {bad} findings; answers:")
    _say(", ".join(f"{code} {count:,}" for code, count in sorted(answers.items())))
    return min(bad, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
