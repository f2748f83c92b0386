"""Watches a running pipeline: what to ask for its counters, and what it is, become a ``Status`` on demand.

Counters alone say how much there was since the start. What people look for is what happens now, and what happened
while they did not look: ``keep_looking`` takes a sample each second, for rates and for the last minutes.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol, Self, TypeAlias

from surepipe.actors.notices import PipeNotice
from surepipe.actors.tracing import Columns, TraceSink
from surepipe.core.store_requests import InfoOutcome, Unavailable
from surepipe.errors import ConfigurationError, StoreUnavailable
from surepipe.guarantees.derivation import Derived
from surepipe.observe.latency import Histogram, Latencies
from surepipe.observe.status import (
    GAUGES,
    BookSeen,
    CounterRates,
    Counts,
    Faced,
    LetterSeen,
    Moment,
    Part,
    PathSeen,
    PipeFlow,
    Progress,
    State,
    Status,
    StoreSeen,
    ToldNotice,
    Took,
    observed_as,
    seconds,
    sync_of,
)

NOTICES_MAX = 20
SAMPLE_S = 1.0
HISTORY_MAX = 300
"""Samples that are kept: five minutes."""
RECENT_S = 60.0
"""Times are those of the last minute: an hour ago is another story."""


def _told(derived: Derived) -> str:
    """As a pipeline's page says it: with lanes the order is that within each key."""
    per_key = " per key" if derived.hop.lanes else ""
    return f"{derived.headline.delivery}, {derived.of_one_key.headline.order}{per_key}"


Measured: TypeAlias = tuple[Mapping[str, Histogram], Mapping[str, Histogram]]
"""To settled and to confirmed, by pipe."""


class Guaranteed(Protocol):
    """A pipe, or an end of one."""

    name: str

    @property
    def guarantee(self) -> Derived: ...

    def counters(self) -> dict[str, int]:
        """What it has counted, and what stands in it now."""
        ...


def counts_of(pipes: Iterable[Guaranteed | Faced[Guaranteed]]) -> PipeCounts:
    """What to ask for the counters of these pipes, or async faces of them: under the names that ``pipes_of`` gives
    them. Ends of one name are counted together. A ``Watch`` that gets this as it is also learns which of their
    stores are silent."""
    return PipeCounts(tuple(map(sync_of, pipes)))


class PipeCounts:
    """The counters of these pipes when it is called, and what they know of their stores."""

    def __init__(self, pipes: Sequence[Guaranteed]) -> None:
        self._pipes = pipes

    def __call__(self) -> Counts:
        """What each has counted, by name."""
        total: dict[str, dict[str, int]] = {}
        for pipe in self._pipes:
            found = total.setdefault(observed_as(pipe), {})
            for name, count in pipe.counters().items():
                found[name] = found.get(name, 0) + count
        return total

    def stores(self) -> tuple[StoreSeen, ...]:
        """The stores of these pipes, and for how long each has given them no answer. Asks none of them."""
        return tuple(
            StoreSeen(name=name, silent_s=round(seconds, 1) or None)
            for name, seconds in silent_s(self._pipes).items()
        )


def silent_s(pipes: Sequence[object]) -> dict[str, float]:
    """Each store that these pipes need, by name, and for how long it has given them no answer: 0 while it answers.
    From any thread; asks none of them."""
    silent = silent_us(pipes)
    names = sorted({name for pipe in pipes for name in stores_of(pipe)} | silent.keys())
    return {name: silent.get(name, 0) / 1_000_000 for name in names}


def silent_us(pipes: Iterable[object]) -> dict[str, int]:
    """The stores that have given these pipes no answer, and for how long. From any thread; asks none of them."""
    longest: dict[str, int] = {}
    for end in (end for pipe in pipes for end in _ends_of(pipe)):
        for name, us in end.silences.silent_us().items():
            longest[name] = max(us, longest.get(name, 0))
    return longest


def _ends_of(pipe: object) -> Iterator[Any]:
    """Whoever asks stores for it: its ends, or its book."""
    for end in (pipe, *(getattr(pipe, name, None) for name in ("book", "sender", "receiver"))):
        if hasattr(end, "silences"):
            yield end


def stores_of(pipe: object) -> frozenset[str]:
    """The names of the stores that a pipe or an end needs, as far as it says so."""
    known = (pipe, *_ends_of(pipe))
    return frozenset(name for end in known for name in getattr(end, "store_names", ()))


def pipes_of(pipes: Iterable[Guaranteed | Faced[Guaranteed]]) -> tuple[Part, ...]:
    """The parts of a program that has pipes (or async faces) and no plan: one for each name. A reader of a stream
    that has a name of its own is called ``posts/mail``."""
    first_of_name: dict[str, Guaranteed] = {}
    stores: dict[str, frozenset[str]] = {}
    for pipe in map(sync_of, pipes):
        name = observed_as(pipe)
        first_of_name.setdefault(name, pipe)
        stores[name] = stores.get(name, frozenset()) | stores_of(pipe)
    return tuple(
        Part(
            name=name,
            role="pipe",
            guarantee=_told(pipe.guarantee),
            tolerates=tuple(sorted(pipe.guarantee.headline.tolerates)),
            stores=tuple(sorted(stores[name])),
            flow=PipeFlow(),
        )
        for name, pipe in first_of_name.items()
    )


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What a run knows beside its counters; each is asked once for each status.

    ``progress``: done, all, and in how many rows so far, by source. ``letters``: the last dead ones, the newest
    first.
    """

    stores: Callable[[], tuple[StoreSeen, ...]] = tuple
    letters: Callable[[], tuple[LetterSeen, ...]] = tuple
    progress: Callable[[], Mapping[str, tuple[int, int, int]]] = dict
    books: Callable[[], Mapping[str, BookSeen]] = dict
    paths: Callable[[], Mapping[str, PathSeen]] = dict


@dataclass(frozen=True, slots=True)
class _Sample:
    at: float
    in_per_s: float | None
    out_per_s: float | None
    waiting: int | None


@dataclass(frozen=True, slots=True)
class _Now:
    """What one look found; ``silent`` are the stores that do not answer."""

    counts: Counts
    per_s: Mapping[str, Mapping[str, float]]
    measured: Measured
    silent: frozenset[str]
    progress: Mapping[str, tuple[int, int, int]]
    books: Mapping[str, BookSeen]
    paths: Mapping[str, PathSeen]


class Watch:
    """Nothing happens between two calls of ``status``; one call asks each pipe once.

    ``parts``: what the pipeline consists of, pipes with an empty ``Flow``. ``counters`` gives what was counted, by
    name of the part (``counts_of`` does); a pipe that it leaves out is not of this process. ``traced_as``: what a
    part is called in traces. Set ``state`` and ``beside`` as the run goes on. Raises ConfigurationError for
    counters of no part.
    """

    def __init__(
        self,
        name: str,
        parts: Sequence[Part],
        counters: Callable[[], Counts],
        latencies: Latencies | None = None,
        *,
        node: str = "",
        traced_as: Callable[[str], str] = str,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.name = name
        self.parts = tuple(parts)
        self.state: State = "running"
        self.beside = (
            RunFacts(stores=counters.stores) if isinstance(counters, PipeCounts) else RunFacts()
        )
        self._node = node
        self._traced_as = traced_as
        self._counters = counters
        self._latencies = latencies
        self._clock, self._wall = clock, wall
        self._begun = clock()
        counts = counters()
        self._require_parts(counts)
        self._rates = CounterRates(clock, counts)
        self._told: deque[ToldNotice] = deque(maxlen=NOTICES_MAX)
        self._lock = threading.Lock()
        self._history: deque[_Sample] = deque(maxlen=HISTORY_MAX)
        self._measured: deque[tuple[float, Measured]] = deque()

    def _require_parts(self, counts: Counts) -> None:
        """What is counted under another name would never be seen, and its pipe would look as if elsewhere."""
        names = [part.name for part in self.parts]
        if others := [repr(name) for name in counts if name not in names]:
            raise ConfigurationError(
                f"Watch {self.name}: counters are given of {', '.join(others)}, and its parts are "
                f"{', '.join(map(repr, names))}: give counts_of(pipes), or their counters under these names"
            )

    def keep_looking(self) -> Callable[[], None]:
        """Take a sample each second, on a thread of its own. Gives what ends that."""
        over = threading.Event()

        def look() -> None:
            while not over.wait(SAMPLE_S):
                self.sample()

        thread = threading.Thread(target=look, name="surepipe-watch", daemon=True)
        thread.start()

        def end() -> None:
            over.set()
            thread.join()

        return end

    def sample(self) -> None:
        """Keep what is true now among the last minutes."""
        status = self.status()
        moment = _Sample(self._clock(), status.in_per_s, status.out_per_s, status.waiting)
        with self._lock:
            self._history.append(moment)

    def tell(self, about: str, text: str) -> None:
        """Keep a word about a part that is no pipe, such as a store. From any thread."""
        self._told.append(
            ToldNotice(time=self._time(), pipe=about, end="", kind="store", text=f"{about} {text}")
        )

    def notice(self, notice: PipeNotice) -> None:
        """Keep a notice for those who look; the last ones stay. From any thread."""
        self._told.append(
            ToldNotice(
                time=self._time(),
                pipe=notice.pipe,
                end=notice.end,
                kind=str(notice.kind),
                text=str(notice),
            )
        )

    def status(self) -> Status:
        """What is true now. From any thread."""
        stores = self.beside.stores()
        letters = self.beside.letters()
        progress = self.beside.progress()
        books, paths = self.beside.books(), self.beside.paths()
        with self._lock:
            counts = self._counters()
            over_s, per_s = self._rates.look(counts)
            silent = frozenset(store.name for store in stores if store.silent_s is not None)
            known = _Now(counts, per_s, self._last_minute(), silent, progress, books, paths)
            parts = tuple(self._filled(part, known) for part in self.parts)
            now = self._clock()
            return Status(
                name=self.name,
                node=self._node,
                state=self.state,
                time=self._time(),
                uptime_s=round(now - self._begun, 1),
                rates_over_s=round(over_s, 1),
                in_per_s=_total(map(_taken_per_s, _first(parts))),
                out_per_s=_total(map(_given_per_s, _last(parts))),
                parts=parts,
                stores=stores,
                letters=letters,
                history=tuple(
                    Moment(
                        ago_s=round(now - one.at, 1),
                        in_per_s=one.in_per_s,
                        out_per_s=one.out_per_s,
                        waiting=one.waiting,
                    )
                    for one in self._history
                ),
                notices=tuple(self._told.copy()),
            )

    def _last_minute(self) -> Measured:
        """How long messages took that came to their end in the last minute."""
        if self._latencies is None:
            return {}, {}
        now, found = self._clock(), (self._latencies.settled, self._latencies.confirmed)
        if not self._measured or now - self._measured[-1][0] >= SAMPLE_S / 2:
            self._measured.append((now, found))
        while len(self._measured) > 1 and self._measured[1][0] <= now - RECENT_S:
            self._measured.popleft()
        began, before = self._measured[0]
        nothing: Measured = ({}, {})
        settled, confirmed = before if began <= now - RECENT_S else nothing
        return _newer(found[0], settled), _newer(found[1], confirmed)

    def _filled(self, part: Part, now: _Now) -> Part:
        found = now.counts.get(part.name)
        if found is None:
            is_here = part.flow is None and part.node == self._node
            return part.model_copy(update={"here": is_here})
        per_s = now.per_s.get(part.name, {})
        rising = {name: rate for name, rate in per_s.items() if name not in GAUGES}
        changes: dict[str, object] = {"counts": dict(found), "per_s": rising}
        if part.name in now.progress:
            changes["progress"] = _progress(*now.progress[part.name], rising.get("taken", 0.0))
        if part.name in now.books:
            changes["book"] = now.books[part.name]
        if part.name in now.paths:
            changes["between"] = now.paths[part.name]
        if part.flow is not None:
            name = self._traced_as(part.name)
            settled, confirmed = now.measured
            took = (_took(settled.get(name)), _took(confirmed.get(name)))
            is_blind = not now.silent.isdisjoint(part.stores)
            flow = _flow(found, rising, *took, is_blind=is_blind)
            path = now.paths.get(part.name)
            changes["flow"] = _with_path(flow, path) if part.to_party else flow
        return part.model_copy(update=changes)

    def _time(self) -> str:
        return datetime.fromtimestamp(self._wall(), UTC).isoformat(timespec="milliseconds")


def _flow(
    found: Mapping[str, int],
    per_s: Mapping[str, float],
    settling: Took | None,
    confirming: Took | None,
    *,
    is_blind: bool,
) -> PipeFlow:
    """``accepted`` is counted where the sender is, ``settled`` where the receiver is.

    ``is_blind``: its store does not answer. What was read of the stream last is no word about now.
    """
    sends, receives = "in_flight" in found, "in_work" in found and "held" in found
    oldest_us = found.get("oldest_unconfirmed_us") or None
    found = {**found, **_lag(found)}
    of_sender = {name: found.get(name) for name in ("accepted", "confirmed", "backlog", "given_up")}
    of_receiver = {name: found.get(name) for name in ("settled", "lag", "in_work", "held")}
    return PipeFlow.model_validate(
        {
            "restarts": found.get("restarts"),
            "settling": settling,
            "confirming": confirming,
            **(of_sender if sends else {}),
            **(of_receiver if receives else {}),
            **({"lag": None} if is_blind else {}),
            "waiting": None if is_blind else _waiting(found),
            "lanes": found.get("lanes"),
            "lanes_busy": found.get("lanes_busy"),
            "accepted_per_s": per_s.get("accepted") if sends else None,
            "settled_per_s": per_s.get("settled") if receives else None,
            "unconfirmed": found["in_flight"] + found.get("backlog", 0) if sends else None,
            "oldest_unconfirmed_s": None if oldest_us is None else oldest_us / 1_000_000,
            "retransmitted": found.get("retransmitted") if sends else None,
            "duplicates": found.get("duplicate") if receives else None,
            "dead_letters": found.get("dead_lettered") if receives else None,
        }
    )


def _with_path(flow: PipeFlow, path: PathSeen | None) -> PipeFlow:
    """What waits on the way to another party, too; not known where no relay runs here, or has not looked yet."""
    waiting = None
    if path is not None and flow.waiting is not None:
        waiting = flow.waiting + sum(path.pending.values())
    return flow.model_copy(update={"waiting": waiting})


def _lag(found: Mapping[str, int]) -> dict[str, int]:
    """What a stream still has. A receiver that has its hands full reads nothing, so the end that it saw last is
    old; what this process put into the stream, and nobody here is through with, is there in any case."""
    if not {"lag", "confirmed", "settled", "in_work"} <= found.keys() or not found["in_work"]:
        return {}
    gone = found["settled"] + found.get("duplicate", 0)
    return {"lag": max(found["lag"], found["confirmed"] - gone)}


def _waiting(found: Mapping[str, int]) -> int | None:
    known = [found[name] for name in ("in_flight", "backlog", "lag") if name in found]
    return sum(known) if known else None


def _first(parts: Sequence[Part]) -> list[Part]:
    here = {part.name for part in parts if part.here}
    return [part for part in parts if part.here and here.isdisjoint(part.feeders)]


def _last(parts: Sequence[Part]) -> list[Part]:
    fed_by = {feeder for part in parts if part.here for feeder in part.feeders}
    return [part for part in parts if part.here and part.name not in fed_by]


def _taken_per_s(part: Part) -> float | None:
    if part.flow is None:
        return part.per_s.get("taken", part.per_s.get("passed"))
    return part.flow.accepted_per_s if part.flow.accepted_per_s is not None else _settled(part)


def _given_per_s(part: Part) -> float | None:
    if part.flow is None:
        return part.per_s.get("taken", part.per_s.get("passed"))
    settled = _settled(part)
    return settled if settled is not None else part.per_s.get("confirmed")


def _settled(part: Part) -> float | None:
    return part.flow.settled_per_s if part.flow is not None else None


def _total(rates: Iterable[float | None]) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return round(sum(known), 1) if known else None


def _progress(done: int, of: int, rows: int, rows_per_s: float) -> Progress:
    """What is left, in rows as long as those before, at the rate of the last seconds."""
    left = (of - done) / (done / rows) / rows_per_s if done and rows and rows_per_s else None
    return Progress(done=done, of=of, left_s=None if left is None else round(left, 1))


def _newer(found: Mapping[str, Histogram], before: Mapping[str, Histogram]) -> dict[str, Histogram]:
    return {
        name: histogram.since(before[name]) if name in before else histogram
        for name, histogram in found.items()
    }


def _took(histogram: Histogram | None) -> Took | None:
    if histogram is None or not histogram.count:
        return None
    p50, p99 = histogram.quantile_us(0.5), histogram.quantile_us(0.99)
    return Took(count=histogram.count, p50_ms=p50 / 1000, p99_ms=p99 / 1000)


# Several takers of one trace.


class Tee:
    """Passes each row to all of these, in order: ``Pipe(..., trace=Tee(recorder, latencies))``."""

    def __init__(self, *sinks: TraceSink) -> None:
        self._sinks = sinks

    @property
    def with_digests(self) -> bool:
        """True when one of them wants digests."""
        return any(sink.with_digests for sink in self._sinks)

    def write(self, columns: Columns) -> None:
        """Pass a row to each. What one raises keeps it from no other; then the first of it is raised."""
        errors: list[Exception] = []
        for sink in self._sinks:
            try:
                sink.write(columns)
            except Exception as error:  # noqa: BLE001 - raised below, when the others have the row
                errors.append(error)
        if errors:
            raise errors[0]


# Whether the stores of a run answer: each is asked a small question every second, on a thread of its own.
#
# What a pipe knows of its store may be minutes old when the store hangs, and looks like nothing to do. So those
# who look at a run are told how long a store has been silent, and when it answers again.


logger = logging.getLogger("surepipe")
EVERY_S = 1.0
SILENT_S = 2.0
"""A store that has not answered for so long is called silent; until then it is only slow."""
_QUESTION = "surepipe-health"
"""No stream has this name: a store that says so has answered."""


class HealthQuestion(Protocol):
    """What is asked of a store."""

    def info(self, stream: str) -> InfoOutcome: ...


class StoreHealth:
    """What is known of one store. ``ask`` may block for as long as the store does; ``seen`` never does.

    ``tell`` is called once when the store has fallen silent, and once when it answers again. ``waits_s``: for how
    long it has given a pipe no answer. A store may answer a question while it takes nothing, such as a file that
    another process writes to, so it is silent until it answers both.
    """

    def __init__(
        self,
        name: str,
        store: HealthQuestion,
        tell: Callable[[str, str], object],
        clock: Callable[[], float] = time.monotonic,
        waits_s: Callable[[], float] = float,
    ) -> None:
        self.name = name
        self._store = store
        self._tell = tell
        self._clock = clock
        self._waits_s = waits_s
        self._lock = threading.Lock()
        self._answered = clock()
        self._says = ""
        self._is_silent = False

    def ask(self) -> None:
        """Ask now, and keep what became of it."""
        try:
            outcome = self._store.info(_QUESTION)
            says = outcome.detail if isinstance(outcome, Unavailable) else ""
        except StoreUnavailable as error:
            says = str(error)
        with self._lock:
            self._says = says
            was_silent = self._is_silent and not says
            silent_s = self._clock() - self._answered
            if not says:
                self._answered, self._is_silent = self._clock(), False
        if was_silent:
            self._tell(self.name, f"answers again, after {seconds(silent_s)}")

    def look(self) -> None:
        """Notice that an answer is overdue, though nobody has said so: who asked still waits."""
        with self._lock:
            has_fallen_silent = not self._is_silent and self._silence() >= SILENT_S
            self._is_silent |= has_fallen_silent
            because = f": {self._says}" if self._says else ""
        if has_fallen_silent:
            self._tell(self.name, f"does not answer{because}")

    def seen(self) -> StoreSeen:
        """What is known now. From any thread."""
        waits_s = self._waits_s()
        with self._lock:
            silence = max(self._silence(), waits_s)
            silent_s = round(silence, 1) if silence >= SILENT_S else None
            return StoreSeen(name=self.name, silent_s=silent_s, says=self._says)

    def _silence(self) -> float:
        return self._clock() - self._answered


class StoreWatch:
    """Asks these stores while it is open. A store that hangs holds up its own thread only.

    ``silent_s`` tells which stores give pipes no answer, and for how long.
    """

    def __init__(
        self,
        stores: Mapping[str, HealthQuestion],
        tell: Callable[[str, str], object],
        silent_s: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        def waits_s(name: str) -> float:
            return silent_s().get(name, 0.0)

        self._health = [
            StoreHealth(name, store, tell, waits_s=partial(waits_s, name))
            for name, store in stores.items()
        ]
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._keep_asking, args=(each,), name=name, daemon=True)
            for each in self._health
            for name in [f"surepipe-health-{each.name}"]
        ]
        self._threads.append(
            threading.Thread(target=self._keep_looking, name="surepipe-health", daemon=True)
        )
        for thread in self._threads:
            thread.start()

    def seen(self) -> tuple[StoreSeen, ...]:
        """What is known of each. From any thread."""
        return tuple(each.seen() for each in self._health)

    def close(self) -> None:
        """Ask no more. A thread that a store holds up ends when the store lets it go."""
        self._over.set()
        self._threads[-1].join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _keep_asking(self, health: StoreHealth) -> None:
        while not self._over.wait(EVERY_S):
            health.ask()

    def _keep_looking(self) -> None:
        while not self._over.wait(EVERY_S):
            for health in self._health:
                health.look()
