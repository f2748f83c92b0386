"""Every schedule of a small book: two workers that die or stand still between any two writes, and a person.

The ledgers, workers and operations by hand are those of production; the log is a list. A state is what the log
came to, what was staged and stored, and where each worker stands. States that were seen are not gone on from.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Literal, cast

import pytest

from surepipe.errors import Fenced
from surepipe.queues.book import BookConfig, Cost, Done, Later, Rejected, TooHeavy, check_invariants
from surepipe.queues.book.addresses import Addresses
from surepipe.queues.book.answers import DONE, AnyOutcome, Raised
from surepipe.queues.book.by_hand import ByHand
from surepipe.queues.book.changes import Change, Enqueue, Entry, Gone, Items
from surepipe.queues.book.ledger import Ledger
from surepipe.queues.book.page import packed
from surepipe.queues.book.service import (
    Append,
    DeadMessage,
    Effect,
    Handled,
    LoadPages,
    Ran,
    Request,
    RunMessages,
    Session,
    Worker,
)

MESSAGES = (("A", b"a-1"), ("A", b"a-2"), ("B", b"b-1"))
OUTCOMES: dict[str, AnyOutcome] = {
    "done": DONE,
    "child": DONE,
    "reject": Rejected("CORRUPT"),
    "later": Later(),
    "raise": Raised("ValueError", "no"),
    "heavy": TooHeavy(Cost(units=1_000)),
}
WORKERS = ("one", "two")
BY_HAND = ("execute", "discard", "requeue")


def config_of(policy: Literal["drr", "rotate"]) -> BookConfig:
    """Pages of two messages, and two messages to a commit."""
    return BookConfig(
        *(16, 0, policy),
        quantum=1,
        commit_messages=2,
        retries=2,
        retry_min_s=0,
        retry_max_s=0,
        suspend_pages=None,
        resume_pages=None,
        refuse_pages=None,
        idle_ttl_s=0,
    )


@dataclass
class Process:
    """One process: its ledger, as far as it has read, and the call that it is in."""

    name: str
    session: Session
    life: int = 0
    is_dead: bool = False
    worker: Worker | None = None
    call: Generator[Request, object, object] | None = None
    standing: RunMessages | None = None
    """It stands still in the handler of these."""

    @property
    def ledger(self) -> Ledger:
        return self.session.ledger


class NoChance:
    """A generator of nothing but the middle."""

    def random(self) -> float:
        return 0.5


def session_of(name: str, ledger: Ledger) -> Session:
    """What the workers of one process share."""
    return Session(
        name, ledger, ledger.config, Cost(), Addresses("b", 1), cast("Random", NoChance())
    )


@dataclass
class Small:
    """All of it."""

    config: BookConfig
    log: list[tuple[str, Entry]] = field(default_factory=list[tuple[str, Entry]])
    out: list[bytes] = field(default_factory=list[bytes])
    letters: list[bytes] = field(default_factory=list[bytes])
    sent: list[bytes] = field(default_factory=list[bytes])
    due: list[bytes] = field(default_factory=list[bytes])
    """What handlers have staged for a queue, of those whose message is done."""
    lives: dict[str, int] = field(default_factory=dict[str, int])
    processes: dict[str, Process] = field(default_factory=dict[str, Process])

    def __post_init__(self) -> None:
        self.lives = dict.fromkeys((*WORKERS, "person"), 0)
        for name in (*WORKERS, "person"):
            self.begin(name)

    def begin(self, name: str) -> None:
        """A process begins: it reads the log."""
        process = Process(name, session_of(name, Ledger(self.config)), self.lives[name])
        self.processes[name] = process
        self.follow(process)

    def follow(self, process: Process) -> None:
        """Read what others have written."""
        ledger = process.ledger
        for index in range(ledger.index, len(self.log)):
            ledger.apply(self.log[index][0], index + 1, self.log[index][1])

    def write(self, process: Process, entry: Entry, effects: tuple[Effect, ...] = ()) -> object:
        """One write of the store: the entry and what goes with it, or nothing."""
        if process.life != self.lives[process.name]:
            raise Fenced(process.name)
        self.follow(process)
        self.log.append((process.name, entry))
        for effect in effects:
            if isinstance(effect, Append):
                (self.out if effect.stream == "out" else self.due).append(effect.payload)
            elif isinstance(effect, DeadMessage):
                self.letters.append(effect.payload)
        return process.ledger.apply(process.name, len(self.log), entry)

    def declare_dead(self, name: str) -> None:
        """Nothing of its life so far is stored any more, and its claims are over; it may still stand somewhere."""
        self.lives[name] += 1
        person = self.processes["person"]
        self.write(person, Gone(0, name, self.lives[name]))

    # Calls.

    def ran(self, process: Process, request: RunMessages, how: str) -> Ran:
        """What the handler does of these."""
        del process
        handled: list[Done | Handled] = []
        for payload in request.payloads:
            if not isinstance(OUTCOMES[how], Done):
                handled.append(Handled(OUTCOMES[how]))
                break
            child = how == "child" and not payload.startswith(b"c")
            name = b"c" + payload[:1] + payload[2:]
            staged = (Items("B", 1, packed([name])),) if child else ()
            effects = (Append("out", payload), *(Append("due", name) for _ in staged))
            handled.append(Handled(DONE, staged, effects))
        return Ran(handled, 0)

    def go_on(
        self, process: Process, how: str, writes: int | None, *, stands: bool = False
    ) -> None:
        """Do what the call asks for: to its end, for so many writes (then it is dead), or into a handler."""
        answer: object = None
        call = process.call
        assert call is not None
        if process.standing is not None:
            answer, process.standing = self.ran(process, process.standing, how), None
        try:
            while True:
                request = call.send(answer)
                if isinstance(request, RunMessages):
                    if stands:
                        process.standing = request
                        return
                    answer = self.ran(process, request, how)
                    continue
                assert not isinstance(request, LoadPages), "all of it is in memory"
                answer = self.write(process, request.entry, request.effects)
                if writes is not None:
                    writes -= 1
                    if not writes:
                        process.is_dead = True
                        break
        except StopIteration:
            pass
        except Fenced:
            process.is_dead = True
        if process.worker is not None:
            process.worker.abandon()
        process.call = process.worker = None

    def serve(
        self, name: str, how: str, writes: int | None = None, *, stands: bool = False
    ) -> None:
        """A worker makes a call."""
        process = self.processes[name]
        self.follow(process)
        process.session.wall = 10 * len(self.log) + 10  # what was put off is due
        process.worker = Worker(process.session)
        process.call = process.worker.service()
        self.go_on(process, how, writes, stands=stands)

    def by_hand(self, verb: str) -> None:
        """A person deals with the first message that waits for one."""
        process = self.processes["person"]
        self.follow(process)
        token = self.parked()
        if token is None:
            return
        hand = ByHand(process.session)
        steps: dict[str, Generator[Request, object, object]] = {
            "execute": hand.execute(token),
            "discard": hand.discard(token, "no"),
            "requeue": hand.requeue(token, "B"),
        }
        process.call = steps[verb]
        self.go_on(process, "done", None)
        hand.close()

    def parked(self) -> str | None:
        """Where the first one is."""
        process = self.processes["person"]
        for book, number, slot, _ in process.ledger.parked():
            found = book.pages[number].read(slot)
            assert found is not None
            return process.session.addresses.of(book.generation, number, slot, found.payload)
        return None

    # What may happen next.

    def steps(self) -> Iterator[tuple[str, ...]]:
        """All that may happen in this state."""
        if len(self.sent) < len(MESSAGES):
            yield ("enqueue",)
        yield from (("pause",), ("unpause",), ("sweep",), ("force",))
        yield from (("by hand", verb) for verb in BY_HAND)
        for name in WORKERS:
            process = self.processes[name]
            if process.life != self.lives[name] and process.standing is None:
                continue
            if process.standing is not None:
                yield from (("go on", name, how) for how in OUTCOMES)
                if process.life == self.lives[name]:
                    yield "declare dead", name
            elif process.is_dead:
                yield "begin anew", name
            else:
                yield from (("serve", name, how) for how in OUTCOMES)
                yield "stand", name
                for writes in (1, 2, 3):
                    yield from (("die", name, how, str(writes)) for how in ("child", "raise"))

    def take(self, step: tuple[str, ...]) -> None:
        """Let it happen."""
        person = self.processes["person"]
        match step:
            case ("enqueue",):
                origin, payload = MESSAGES[len(self.sent)]
                self.sent.append(payload)
                self.write(person, Enqueue(0, (Items(origin, 1, packed([payload])),)))
            case ("pause" | "unpause" | "sweep" as verb,):
                self.write(person, Change(0, verb, "A"))
            case ("force",):
                self.write(person, Change(0, "force", "B"))
            case ("by hand", verb):
                self.by_hand(verb)
            case ("serve", name, how):
                self.serve(name, how)
            case ("stand", name):
                self.serve(name, "done", stands=True)
            case ("die", name, how, writes):
                self.serve(name, how, int(writes))
            case ("go on", name, how):
                self.go_on(self.processes[name], how, None)
            case ("declare dead", name):
                self.declare_dead(name)
            case _:
                self.declare_dead(step[1])
                self.begin(step[1])
        for name in WORKERS:  # one that was replaced and has found out is started again
            process = self.processes[name]
            if process.is_dead and process.life != self.lives[name]:
                self.begin(name)

    @property
    def is_between(self) -> bool:
        """Whether no call is under way, so that all of it can be written down."""
        return all(process.call is None for process in self.processes.values())

    def state(self) -> object:
        """Two states that are equal here go on alike."""
        ledger = self.whole()
        books = [
            (
                *(
                    book.origin,
                    book.begin,
                    book.end,
                    book.weight,
                    book.paused,
                    book.deficit,
                    book.turn_open,
                ),
                *(
                    book.attempts,
                    book.careful,
                    book.blocked is not None,
                    book.sweeping,
                    book.generation,
                ),
                book.lease
                and (book.lease.worker, book.lease.upto, book.lease.counted, book.lease.spent),
                [
                    (
                        number,
                        page.first_index,
                        sorted(page.parked),
                        sorted(page.done),
                        bytes(page.heap),
                    )
                    for number, page in book.pages.items()
                ],
            )
            for book in ledger.books.values()
        ]
        workers = [
            (
                process.is_dead,
                process.life == self.lives[process.name],
                process.standing and (process.standing.origin, process.standing.payloads),
                sorted(process.session.heavy.items()),
                process.call and process.ledger.index == len(self.log),
            )
            for process in self.processes.values()
        ]
        taken = sorted(ledger.taken.items())
        return repr(
            (
                books,
                ledger.ring.order(),
                taken,
                sorted(self.out),
                sorted(self.letters),
                self.sent,
                workers,
            )
        )

    # What must hold.

    def whole(self) -> Ledger:
        """The book as the log says."""
        person = self.processes["person"]
        self.follow(person)
        return person.ledger

    def check(self) -> None:
        """All invariants, and effects at most once."""
        ledger = self.whole()
        check_invariants(ledger)
        once = Counter(self.out)
        assert max(once.values(), default=0) <= 1, f"an effect is there twice: {self.out}"

    def drain(self) -> None:
        """From here on all goes well: every message comes to its end, once."""
        for name in WORKERS:
            self.declare_dead(name)
            self.begin(name)
        person = self.processes["person"]
        self.write(person, Change(0, "unpause", "A"))
        for _ in range(20):
            if self.whole().ring.head is None and self.parked() is None:
                break
            self.serve("one", "done")
            self.by_hand("execute")
        self.check()
        ended = Counter([*self.out, *self.letters])
        due = (*self.sent, *self.due)
        assert all(ended[payload] == 1 for payload in due), (due, self.out, self.letters)
        assert self.whole().totals["queued"] == 0


def explore(config: BookConfig, given: int, depth: int) -> tuple[int, int]:
    """Every state within so many steps behind so many messages: how many, and how many steps were tried."""
    small = Small(config)
    for _ in range(given):
        small.take(("enqueue",))
    seen = {small.state()}
    layer: list[tuple[bytes, tuple[tuple[str, ...], ...]]] = [(pickle.dumps(small), ())]
    tried = 0
    for _ in range(depth):
        following: list[tuple[bytes, tuple[tuple[str, ...], ...]]] = []
        for blob, since in layer:
            for step in list(again(blob, since).steps()):
                tried += 1
                small = again(blob, since)
                try:
                    small.take(step)
                    small.check()
                    state = small.state()
                    if state in seen:
                        continue
                    seen.add(state)
                    found = (
                        (pickle.dumps(small), ()) if small.is_between else (blob, (*since, step))
                    )
                    following.append(found)
                    small.drain()
                except AssertionError as error:
                    raise AssertionError(f"after {(*since, step)}: {error}") from error
        layer = following
    return len(seen), tried


def again(blob: bytes, since: tuple[tuple[str, ...], ...]) -> Small:
    """A state, made anew: calls that are under way can't be written down."""
    small: Small = pickle.loads(blob)
    for step in since:
        small.take(step)
    return small


@pytest.mark.parametrize(
    ("policy", "given", "depth", "states", "steps"),
    [("drr", 0, 3, 159, 630), ("drr", 3, 3, 2297, 6904), ("rotate", 3, 2, 289, 594)],
)
def test_nothing_is_lost_or_done_twice_in_any_schedule(
    policy: Literal["drr", "rotate"], given: int, depth: int, states: int, steps: int
) -> None:
    """BQ-44: invariants hold in each state, no effect is there twice, and from each of them all of it can be
    brought to its end."""
    assert explore(config_of(policy), given, depth) == (states, steps)
