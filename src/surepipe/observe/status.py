"""What a running pipeline does just now, as one JSON value that may be kept, sent and read back.

    watch = Watch("orders", pipes_of([pipe]), counts_of([pipe]), latencies)
    print(watch.status().model_dump_json(by_alias=True))

Later versions may add keys; none is renamed, and ``Status`` reads past those that it does not know. A number that
this process can't know, such as what an end in another process counts, is null.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

State: TypeAlias = Literal["starting", "running", "stopping", "ended"]
STATUS_FORMAT = 1
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


class Took(_Value):
    """How long messages took, from accepted: half of them and 99 of 100 at most so long."""

    count: int
    p50_ms: float
    p99_ms: float


class PipeFlow(_Value):
    """What goes through one pipe. Totals are of this process; the rest is what stands now.

    ``settling`` and ``confirming`` are over the last minute.
    """

    accepted: int | None = None
    settled: int | None = None
    confirmed: int | None = None
    accepted_per_s: float | None = None
    settled_per_s: float | None = None
    backlog: int | None = None
    """Accepted, and not transmitted yet."""
    unconfirmed: int | None = None
    """Accepted, and not confirmed yet; the backlog included."""
    waiting: int | None = None
    """Not through yet: unconfirmed, or in the stream and not read. Null while the store can't be asked."""
    oldest_unconfirmed_s: float | None = None
    lag: int | None = None
    """In the stream, and not read yet."""
    in_work: int | None = None
    """Handed to whoever handles them, and not settled."""
    held: int | None = None
    """Waiting at the receiver for those before them."""
    retransmitted: int | None = None
    duplicates: int | None = None
    """Arrived again, and not delivered again."""
    dead_letters: int | None = None
    given_up: int | None = None
    restarts: int | None = None
    lanes: int | None = None
    lanes_busy: int | None = None
    settling: Took | None = None
    confirming: Took | None = None


class Progress(_Value):
    """How far a source that has an end is read: ``done`` of ``of``, in bytes or rows.

    ``left_s``: how long the rest takes at the rate of the last seconds; null where nothing moves.
    """

    done: int
    of: int
    left_s: float | None = None


class StoreSeen(_Value):
    """Whether a store answers. ``silent_s``: for how long it has not, or null. ``says``: its last error."""

    name: str
    silent_s: float | None = None
    says: str = ""


class LetterSeen(_Value):
    """A message that was given up: the part that gave it up, and where ``surepipe dlq`` finds it."""

    stream: str
    pipe: str
    epoch: int
    seq: int
    error: str
    text: str
    producer: str = ""
    """Who numbered it, where number and pipe alone say nothing."""

    @property
    def message(self) -> str:
        """Which one it was."""
        return f"{self.seq} of producer {self.producer!r}" if self.producer else f"{self.seq}"


class Moment(_Value):
    """What went on ``ago_s`` seconds before this status: messages a second in and out, and how many waited."""

    ago_s: float
    in_per_s: float | None = None
    out_per_s: float | None = None
    waiting: int | None = None


class QueueSeen(_Value):
    """One queue of a book."""

    key: str
    waiting: int = 0
    parked: int = 0
    paused: bool = False
    blocked: bool = False
    weight: int = 1


class BookSeen(_Value):
    """A book as it stands. ``ready``: queues with messages to be served; ``queues`` are the first of them, the
    head of the ring first, and then some where all is parked.

    ``spent`` and ``budget``: of this period, by dimension. ``full``: the key whose queue holds up what feeds it.
    """

    ready: int
    parked: int = 0
    queues: tuple[QueueSeen, ...] = ()
    spent: dict[str, float] = Field(default_factory=dict)
    budget: dict[str, float] = Field(default_factory=dict)
    period_s: float = 1.0
    full: str | None = None


class PathSeen(_Value):
    """What a relay carries between two parties. ``pending``: messages by what they wait for (deliver, settle,
    expire); ``oldest_s``: for how long the oldest of them waits.

    ``why``: of a stalled path, which store doesn't answer. ``held``: what the relay's options hold back.
    """

    path: str
    state: str
    why: str = ""
    pending: dict[str, int] = Field(default_factory=dict)
    oldest_s: float | None = None
    trust_left_s: float = 0.0
    parked: int = 0
    held: str = ""


def said_of_path(seen: PathSeen) -> str:
    """A path in one line."""
    waits = [f"{count} to {stage}" for stage, count in seen.pending.items() if count]
    if seen.oldest_s is not None:
        waits.append(f"the oldest for {seen.oldest_s:.1f} s")
    found = [f"{seen.path} is {seen.state}"]
    found += [seen.why] if seen.why else waits or ["nothing waits"]
    if seen.parked:
        found.append(f"{seen.parked} put aside")
    if seen.held:
        found.append(f"held back: {seen.held}")
    if seen.state == "live":
        found.append(f"trust for {seen.trust_left_s / 3600:.1f} h")
    return ", ".join(found)


def said_of_book(seen: BookSeen) -> str:
    """A book in one line."""
    found = [f"{seen.ready} ready {'queue' if seen.ready == 1 else 'queues'}"]
    if seen.queues and seen.ready:
        found.append(f"{printable(seen.queues[0].key)} is next")
    for name, most in seen.budget.items():
        found.append(
            f"{seen.spent.get(name, 0.0):g} of {most:g} {name} spent in {seen.period_s:g} s"
        )
    if seen.parked:
        found.append(f"{seen.parked} parked: see surepipe book list")
    if seen.full is not None:
        found.append(f"the queue of {printable(seen.full)} is full, and what feeds the pipe waits")
    return ", ".join(found)


def said_of_queue(one: QueueSeen) -> str:
    """What a queue holds, and how it stands."""
    found = [f"{one.waiting} waiting"] + ([f"{one.parked} parked"] if one.parked else [])
    found += [word for word, is_so in (("paused", one.paused), ("blocked", one.blocked)) if is_so]
    return ", ".join(found + ([f"weight {one.weight}"] if one.weight != 1 else []))


def printable(text: str) -> str:
    """A text without what a terminal obeys."""
    return text if text.isprintable() else repr(text)[1:-1]


class Part(_Value):
    """One part of a pipeline. ``flow`` is there for pipes; ``counts`` has everything that was counted, by name."""

    name: str
    role: str
    feeders: tuple[str, ...] = Field(
        default=(), validation_alias=AliasChoices("from", "feeders"), serialization_alias="from"
    )
    node: str = ""
    here: bool = True
    """False for what another process runs."""
    stores: tuple[str, ...] = ()
    """The stores that it can't do without."""
    progress: Progress | None = None
    guarantee: str = ""
    tolerates: tuple[str, ...] = ()
    flow: PipeFlow | None = None
    book: BookSeen | None = None
    """Of a pipe through a book that this process has open."""
    to_party: bool = False
    """Leads from one party to another, who tells what became of messages."""
    between: PathSeen | None = None
    """Of a pipe between parties whose relay runs here."""
    counts: dict[str, int] = Field(default_factory=dict)
    per_s: dict[str, float] = Field(default_factory=dict)


class ToldNotice(_Value):
    """A notice, and when it came."""

    time: str
    pipe: str
    end: str
    kind: str
    text: str


class Status(_Value):
    """The whole. ``rates_over_s``: how long the stretch is that the rates are an average of; 0: none is known.

    ``in_per_s``: what the parts take that nothing here feeds; ``out_per_s``: what those do that feed nothing here.
    """

    format: int = STATUS_FORMAT
    name: str
    node: str = ""
    state: State = "running"
    time: str
    uptime_s: float
    rates_over_s: float
    in_per_s: float | None = None
    out_per_s: float | None = None
    parts: tuple[Part, ...] = ()
    stores: tuple[StoreSeen, ...] = ()
    letters: tuple[LetterSeen, ...] = ()
    history: tuple[Moment, ...] = ()
    """The last minutes, the oldest first."""
    notices: tuple[ToldNotice, ...] = ()

    @property
    def pipes(self) -> tuple[Part, ...]:
        return tuple(part for part in self.parts if part.flow is not None)

    @property
    def silent(self) -> tuple[StoreSeen, ...]:
        """The stores that do not answer."""
        return tuple(store for store in self.stores if store.silent_s is not None)

    @property
    def waiting(self) -> int | None:
        """Messages that are not through any pipe that is here; None while a store that knows of some is silent."""
        silent = {store.name for store in self.silent}
        if any(part.here and not silent.isdisjoint(part.stores) for part in self.pipes):
            return None
        total = self.total("waiting")
        return None if total is None else int(total)

    def total(self, name: str) -> float | None:
        """The sum of this number over all pipes; None where nobody knows it, or a pipe here does not answer."""
        if any(part.here and part.flow == PipeFlow() for part in self.pipes):
            return None
        found = [getattr(part.flow, name) for part in self.pipes]
        known = [number for number in found if number is not None]
        return sum(known) if known else None


# What stands out, and how far a part is: the same on a page and on a terminal.


STUCK_S = 10.0
"""A message that is unconfirmed for longer makes its pipe stand out."""


def is_worrying(part: Part) -> bool:
    """True for a pipe with dead letters, or one that gave something up, or that is stuck."""
    flow = part.flow
    if flow is None:
        return bool(part.counts.get("failed"))
    is_stuck = (flow.oldest_unconfirmed_s or 0) > STUCK_S
    return is_stuck or bool(flow.dead_letters) or bool(flow.given_up)


def progress_of(part: Part) -> Iterator[str]:
    """How far a source that has an end is."""
    if part.progress is not None and part.progress.of:
        yield f"{100 * part.progress.done / part.progress.of:.0f} % read"
        if part.progress.left_s is not None:
            yield f"{seconds(part.progress.left_s)} left"


# Rates from counters that only rise, over the last seconds: never since the start.


Counts: TypeAlias = Mapping[str, Mapping[str, int]]
"""By part, by name."""


class CounterRates:
    """Increase per second since the last sample that is at least ``over_s`` old, or else since the first.

    The first sample is ``before``. What a sample does not have was 0 then. When nobody has looked for ``stale_s``
    the rates are not known: an average over an hour would pass for what happens now.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        before: Counts,
        over_s: float = 5.0,
        gap_s: float = 0.5,
        stale_s: float = 15.0,
    ) -> None:
        self._clock = clock
        self._over_s = over_s
        self._gap_s = gap_s
        self._stale_s = stale_s
        self._samples: deque[tuple[float, Counts]] = deque([(clock(), _copied(before))])

    def look(self, counts: Counts) -> tuple[float, dict[str, dict[str, float]]]:
        """Over how many seconds, and what rose by how much a second, by part and name."""
        now = self._clock()
        while len(self._samples) > 1 and self._samples[1][0] <= now - self._over_s:
            self._samples.popleft()
        if now - self._samples[0][0] > self._stale_s:
            self._samples = deque([(now, _copied(counts))])
        since, before = self._samples[0]
        if now - self._samples[-1][0] >= self._gap_s:
            self._samples.append((now, _copied(counts)))
        took = now - since
        if took <= 0:
            return 0.0, {}
        return took, {
            part: _risen(before.get(part, {}), found, took) for part, found in counts.items()
        }


def _copied(counts: Counts) -> Counts:
    return {part: dict(found) for part, found in counts.items()}


def _risen(before: Mapping[str, int], found: Mapping[str, int], took: float) -> dict[str, float]:
    """A number that fell was begun again."""
    return {
        name: round(max(0, count - before.get(name, 0)) / took, 1) for name, count in found.items()
    }


# Numbers for people who look at them while they change: short, so that what stands beside them stays there.


UNKNOWN = "\u2013"


def compact(number: float | None) -> str:
    """At most five signs: 7, 9,999, 12.3k, 456k, 7.89M. A dash where nothing is known."""
    if number is None:
        return UNKNOWN
    if number < 9_999.5:
        return f"{number:,.1f}" if 0 < number < 9.95 and number != int(number) else f"{number:,.0f}"
    for size, unit in ((1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T")):
        shown = number / size
        if shown < 999.5:
            return f"{shown:.{0 if shown >= 99.95 else 1}f}{unit}"
    return "many"


def seconds(number: float | None) -> str:
    """A time: 0.4 s, 12 s, 3 min, 5 h."""
    if number is None:
        return UNKNOWN
    for limit, size, unit in (
        (9.95, 1, "s"),
        (99.5, 1, "s"),
        (5_970, 60, "min"),
        (172_800, 3_600, "h"),
    ):
        if number < limit:
            return f"{number / size:.{1 if limit < 10 else 0}f} {unit}"
    return f"{number / 86_400:.0f} days"


def milliseconds(number: float) -> str:
    """A short time: 0.5 ms, 20 ms, 5.0 s."""
    if number >= 1000:
        return seconds(number / 1000)
    return f"{number:g} ms"


# Which of the numbers that pipes and engines give are gauges.


GAUGES = frozenset(
    {
        *("backlog", "backlog_bytes", "held", "held_bytes", "in_flight", "in_flight_bytes"),
        *("in_work", "in_work_bytes", "lag", "loaded", "oldest_unconfirmed_us", "rto_us"),
        *("lanes", "lanes_busy", "parked", "queues"),
        *("spent_messages", "spent_bytes", "spent_units", "spent_seconds_us"),
        *("rows_per_s", "batch_us", "state_rows", "state_bytes"),
    }
)
"""What may fall as well as rise; everything else that is counted only rises."""


@runtime_checkable
class Faced(Protocol[T_co]):
    """An async face; ``sync`` is asked what it counts."""

    @property
    def sync(self) -> T_co: ...


def sync_of(pipe: T | Faced[T]) -> T:
    """Who answers questions of a pipe: of an async face the pipe that it is of."""
    return cast("Faced[T]", pipe).sync if isinstance(pipe, Faced) else pipe


def observed_as(named: object) -> str:
    """What a pipe or an end is called where somebody looks on; of anything else its name."""
    name: object = getattr(named, "observed_as", "") or getattr(named, "name", "")
    return str(name)
