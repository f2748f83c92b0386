"""Stores, routes and traces as one process of a world has them: each use is a point at which it may end."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn, Self, cast

from surepipe.actors.routes import HELD_MAX, Landing
from surepipe.actors.runtime import Runtime
from surepipe.actors.tracing import Columns
from surepipe.audit.trace import Row
from surepipe.core.store_requests import (
    AllDone,
    AppendRun,
    CommitPosition,
    Committed,
    JoinedOutcome,
    JoinedRequest,
    Level,
    Store,
    Stored,
    StoreOutcome,
    StoreRequest,
    Together,
    TogetherOutcome,
    Transaction,
    Unavailable,
    WaitForMark,
    WaitForMore,
    lent_for_block,
    taken_back,
)
from surepipe.errors import MisuseError
from surepipe.guarantees import hops
from surepipe.simulation.actors.lives import Life, Waiter
from surepipe.simulation.events import Event, FrameFlight, Happening
from surepipe.simulation.network import Link
from surepipe.simulation.stores.calls import PLAIN, StoreFates, is_write, name_of
from surepipe.simulation.stores.store import SimulatedStore
from surepipe.simulation.timeline import as_detail, digests_of
from surepipe.storage.memory import MemoryTransaction
from surepipe.storage.sqlite.transaction import SqliteTransaction
from surepipe.storage.together import was_done_before


class StoreBell:
    """Wakes whoever waits for a store to have more."""

    def __init__(self) -> None:
        self._waiters: list[Waiter] = []

    def add(self, waiter: Waiter) -> None:
        """Call this one at the next write."""
        self._waiters.append(waiter)

    def remove(self, waiter: Waiter) -> None:
        """Not any more."""
        if waiter in self._waiters:
            self._waiters.remove(waiter)

    def ring(self) -> None:
        """Something was written."""
        for waiter in self._waiters:
            waiter.life.call(waiter)


class _NoSql(sqlite3.Connection):
    """May be handed on, to a function that has a double, say. Every use of it is refused, with its line."""

    def __init__(self) -> None:
        """Nothing is open. One that never was crashes the interpreter in C code that goes past the methods here,
        such as ``sqlite3.Cursor(connection)``."""
        super().__init__(":memory:")
        super().close()

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__"):
            return object.__getattribute__(self, name)
        return _no_sql()

    def __setattr__(self, name: str, value: object) -> None:
        _no_sql()

    def __enter__(self) -> Self:
        return _no_sql()

    def __call__(self, *_: object) -> NoReturn:
        _no_sql()


def _no_sql() -> NoReturn:
    sys.audit("surepipe.connection")
    raise MisuseError("a simulated store has no SQL")


_NO_SQL = _NoSql()  # made here: a run refuses whoever connects to a database


class SqliteInSimulation(SqliteTransaction):
    """Has what a transaction of SQLite has; of that SQL is refused, as there is no file."""

    def __init__(self, changes: list[Callable[[], None]]) -> None:
        Transaction.__init__(self, changes)

    @property
    def connection(self) -> sqlite3.Connection:
        """One that refuses whatever it is asked."""
        return _NO_SQL

    @property
    def is_over(self) -> bool:
        """No statement of SQL can end it, as there are none."""
        return False

    @property
    def is_full(self) -> bool:
        """It takes any number of parts, and nobody else waits to write."""
        return False

    @contextmanager
    def part(self) -> Generator[None]:
        with taken_back(self):
            yield

    @contextmanager
    def reaches(self, thread: int | None) -> Generator[None]:
        """A simulation has one thread."""
        del thread
        yield

    def undo(self) -> None:
        """Nothing was done yet."""

    def finish(self, now_us: int) -> None:
        """The simulated store does that."""
        del now_us
        raise MisuseError(
            "a stage can't end its transaction: it ends when all behind the stage is done"
        )


def transaction_of(kind: str, changes: list[Callable[[], None]]) -> Transaction:
    """One with the face that transactions of such a store have, so that a stage is refused in a simulation what a
    real store refuses. ``changes`` are called when it is done; a command for a Redis server does nothing."""
    if kind == "sqlite":
        return SqliteInSimulation(changes)
    if kind == "redis":
        from surepipe.storage.redis.transaction import (  # noqa: PLC0415 - takes 0.1 s
            RedisTransaction,
        )

        return RedisTransaction(changes)
    return MemoryTransaction(changes)


class SharedStore:
    """A store of the world, and who waits for it."""

    def __init__(self, store: SimulatedStore) -> None:
        self.store = store
        self.bell = StoreBell()
        self.interrupts = 0
        self.asked: dict[str, int] = {}
        store.on_write = self.bell.ring

    def named(self, call: str) -> str:
        """A call by a name that comes up once."""
        number = self.asked[call] = self.asked.get(call, 0) + 1
        return call if number == 1 else f"{call} #{number}"


class LifeStore(Store):
    """A store in the hands of one process."""

    def __init__(self, shared: SharedStore, life: Life) -> None:
        self._shared = shared
        self._store = shared.store
        self._life = life
        self._fates: StoreFates = life.world.chooser
        self.name = shared.store.name
        self.kind = shared.store.kind
        self._interrupts = 0

    @property
    def level(self) -> Level:
        """The durability that it declares."""
        return self._store.level

    def ask(self, request: StoreRequest) -> StoreOutcome:
        life = self._life
        if isinstance(request, WaitForMore | WaitForMark):
            return self._wait(request)
        name = name_of(request)
        trouble = life.trouble_at(f"{self.name} {name}")
        if trouble is not None and trouble.is_end and trouble.point < 0:
            life.meet(trouble)
        outcome = self._asked(request, name)
        if trouble is not None:
            life.meet(trouble)
        return outcome

    def _asked(self, request: StoreRequest, name: str) -> StoreOutcome:
        fate = self._fates.store(self.name, self._shared.named(name), is_write=is_write(request))
        if fate.delay_us:
            self._life.sleep(fate.delay_us)
        is_heard = fate.verb != "unknown"
        outcome = self._store.call(request, fate if is_heard else PLAIN)
        if isinstance(request, Together) and isinstance(outcome, AllDone):
            self._tell_all(request, outcome)
        elif outcome is not None:
            self._tell(request, outcome)
        return outcome if outcome and is_heard else Unavailable("no answer, on purpose")

    def _wait(self, request: WaitForMore | WaitForMark) -> StoreOutcome:
        self._life.check()
        seen = self._interrupts
        self._life.wait(
            lambda: self._store.has_more(request) or seen != self._interrupts,
            request.timeout_us,
            self._shared.bell,
        )
        outcome = self._store.call(request)
        return Unavailable("no answer, on purpose") if outcome is None else outcome

    def stop_waiting(self) -> None:
        """Every wait of this process is over."""
        self._interrupts += 1
        self._shared.bell.ring()

    @contextmanager
    def transaction(self) -> Generator[Transaction]:
        """Everything that is added is done at once at the end, or nothing of it."""
        life = self._life
        life.check()
        changes: list[Callable[[], None]] = []
        transaction = transaction_of(self.kind, changes)
        with lent_for_block(transaction):
            yield transaction
        request = transaction.joined()
        name = name_of(request)
        trouble = life.trouble_at(f"{self.name} {name}")
        if trouble is not None and trouble.is_end and trouble.point < 0:
            life.meet(trouble)
        fate = self._fates.store(self.name, self._shared.named(name), is_write=True)
        if fate.delay_us:
            life.sleep(fate.delay_us)
        is_heard = fate.verb != "unknown"
        done = self._store.call(request, fate if is_heard else PLAIN)
        if isinstance(done, AllDone):
            # What the transaction settles is settled by its commit: told the other way round, a position would be
            # committed beyond messages that nobody has settled yet.
            for change in () if was_done_before(request, done) else changes:
                change()
            self._tell_all(request, done)
        is_answered = done is not None and is_heard
        unheard = Unavailable("no answer, on purpose")
        transaction.settle(cast("TogetherOutcome", done) if is_answered else unheard)
        if not transaction.done:
            life.world.note(self.name, 1, "refused")
        if trouble is not None:
            life.meet(trouble)

    def _tell_all(self, request: Together, done: AllDone) -> None:
        for one, outcome in zip(request.requests, done.outcomes, strict=True):
            self._tell(one, outcome, is_all=True)

    def _tell(
        self,
        request: StoreRequest | JoinedRequest,
        outcome: StoreOutcome | JoinedOutcome,
        *,
        is_all: bool = False,
    ) -> None:
        """A row of what a pipe's stream has now.

        ``is_all``: nobody else tells of it. What the transaction of one pipe puts into the next one's stream has
        no sender that would say that it was accepted, or confirmed.
        """
        world = self._life.world
        if getattr(request, "stream", "") not in world.streams:
            return
        if isinstance(request, AppendRun) and isinstance(outcome, Stored) and outcome.new:
            start = len(request.payloads) - outcome.new
            facts: Mapping[str, object] = {"index": outcome.first_index, "stream": request.stream}
            for kind in ("accepted", "appended", "confirmed") if is_all else ("appended",):
                world.note(
                    self.name,
                    1,
                    kind,
                    detail=as_detail(facts) if kind == "appended" else "",
                    pipe=f"{request.stream}@{request.producer}",
                    epoch=request.epoch,
                    seq=request.first + start,
                    count=outcome.new,
                    digests=digests_of(request.payloads[start:]),
                )
        elif isinstance(request, CommitPosition) and isinstance(outcome, Committed):
            facts = {
                "next": request.next,
                "stream": request.stream,
                "reader": request.reader,
            }
            world.note(self.name, 1, "committed", detail=as_detail(facts), pipe=request.stream)


class LifeTrace:
    """The rows that the ends of a process write, as rows of the world."""

    with_digests = True
    with_reasons = True

    def __init__(self, life: Life) -> None:
        self._life = life

    def write(self, columns: Columns) -> None:
        """One row. What a process says after its end was never said."""
        life = self._life
        kind, node = str(columns["kind"]), str(columns["node"])
        if not life.is_alive or kind in ("run", "end"):
            return
        world = life.world
        detail = str(columns.get("detail", ""))
        if kind == "start":
            number = world.incarnations.get(node, 0) + 1
            world.incarnations[node] = life.incarnations[node] = number
            detail = '{"confirms":"stored"}' if '"confirms"' in detail else ""
        if kind == "dead" and self._is_repeated(columns):
            return
        world.rows.append(
            Row(
                world.run_name,
                node,
                life.incarnations.get(node, 1),
                len(world.rows),
                "",
                world.now,
                kind,
                str(columns.get("pipe", "")),
                _number(columns, "epoch"),
                _number(columns, "seq"),
                _number(columns, "count"),
                attempt=_number(columns, "attempt"),
                digests=str(columns.get("digests", "")),
                detail=detail,
            )
        )

    def _is_repeated(self, columns: Columns) -> bool:
        """A letter that its stream had already: it is appended by identity, so it is there once."""
        letter = (str(columns.get("pipe", "")), _number(columns, "epoch"), _number(columns, "seq"))
        known = self._life.world.letters
        if letter in known:
            return True
        known[letter] = None
        return False


def _number(columns: Columns, name: str) -> int:
    found = columns.get(name, 0)
    return found if isinstance(found, int) else 0


# Routes.


class ActorPort:
    """One end of a pipe as the network knows it: who listens there now."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.heard: Link | None = None
        self.landings: dict[Life, Landing] = {}
        self.held: list[FrameFlight] = []
        """Frames for a process that has not begun yet: a link holds them until it has a connection."""
        self.was_open = False

    def take(self, event: Event) -> None:
        """A frame arrives: whoever listens hears it, also one that was replaced and does not know."""
        assert isinstance(event, FrameFlight)
        assert self.heard is not None
        if not self.was_open:
            if len(self.held) < HELD_MAX:
                self.held.append(event)
            else:
                self.heard.lost(event, reason="nobody is connected, and a link holds no more")
            return
        alive = [life for life in self.landings if life.is_alive]
        if not alive:
            self.heard.lost(event, reason="node down")
        for number, life in enumerate(alive):
            flight = (
                event if not number else self.heard.copied(event, event.copy + 100 * number, "F28")
            )
            self._arrive(life, flight)

    def let_in(self) -> None:
        """Somebody listens now: what was held arrives, in its order."""
        self.was_open = True
        held, self.held = self.held, []
        for flight in held:
            self.take(flight)

    def _arrive(self, life: Life, flight: FrameFlight) -> None:
        incarnation = life.incarnations.get(self.name, life.number)
        facts = {"frame": flight.kind}
        life.world.tell_frame(self.name, incarnation, "arrived", flight, facts)
        self.landings[life].put(flight.frame)


class SimulatedSide:
    """One side of a route, in one process."""

    def __init__(self, life: Life, port: ActorPort, out: Link | None) -> None:
        self.has_reverse = True
        self._life = life
        self._port = port
        self._out = out

    @property
    def room(self) -> int:
        """Nobody knows how much the other end takes."""
        return 1 << 30

    def open(self, landing: Landing, runtime: Runtime) -> None:
        """Listen."""
        del runtime
        port = self._port
        port.landings[self._life] = landing
        world = self._life.world
        if port.held:
            # One event for all: several at one moment would come in any order, which no connection does.
            what = Happening(f"{port.name} hears what was held", port.let_in)
            world.at(world.now, world.network, what)
        else:
            port.was_open = True

    def send(self, frame: object) -> None:
        """Put a frame on the link: a point at which the process may end."""
        life = self._life
        if not life.is_alive or self._out is None:
            return
        out = self._out
        incarnation = life.incarnations.get(self._port.name, 1)
        life.at(f"send {self._port.name}", _bind(out, frame, incarnation))

    def taken(self) -> None:
        """Nobody waits for room here."""

    def close(self) -> None:
        """Listen no more."""
        self._port.landings.pop(self._life, None)


def _bind(out: Link, frame: object, incarnation: int) -> Callable[[], None]:
    return lambda: out.transmit(frame, incarnation, "")


class SimulatedRoute:
    """Both sides, in the hands of one process."""

    def __init__(
        self, declared: hops.DeclaredRoute, sender: SimulatedSide, receiver: SimulatedSide
    ) -> None:
        self.declared = declared
        self.sender = sender
        self.receiver = receiver
