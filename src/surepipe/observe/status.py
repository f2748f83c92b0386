"""What a running pipeline does just now, as one JSON value that may be kept, sent and read back.

    watch = Watch("orders", pipes_of([pipe]), lambda: {pipe.name: pipe.counters()}, latencies)
    print(watch.status().model_dump_json(by_alias=True))

Later versions may add keys; none is renamed, and ``Status`` reads past those that it does not know. A number that
this process can't know, such as what an end in another process counts, is null.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

State: TypeAlias = Literal["starting", "running", "stopping", "ended"]
STATUS_FORMAT = 1


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
    """A message that was given up, by what, and where ``surepipe dlq`` finds it."""

    stream: str
    pipe: str
    epoch: int
    seq: int
    error: str
    text: str


class Moment(_Value):
    """What went on ``ago_s`` seconds before this status: messages a second in and out, and how many waited."""

    ago_s: float
    in_per_s: float | None = None
    out_per_s: float | None = None
    waiting: int | None = None


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
        """The pipes among the parts."""
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
