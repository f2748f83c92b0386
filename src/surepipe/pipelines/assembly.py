"""What an engine needs of the world to run a plan, so that a real process and a simulation run the same assembly.

``surepipe.pipelines.run.Engine(plan, node, environment)`` builds a node's part of a plan from the production
parts: pipes and their ends, feeds that move rows from sources into pipes, flows of stages and sinks behind them.
Everything outside is reached through an ``Environment``: clock and actors, stores, routes, sources, sinks, and the
user's functions. ``engine.real.RealEnvironment`` is the one of a process.

Whoever implements this for a simulation: each method of an environment, of a ``Source`` and of a ``Sink`` is a
touch of the outside, and so a point at which the node may crash.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, runtime_checkable

from surepipe.pipelines.stages import About

if TYPE_CHECKING:
    from surepipe.actors.notices import PipeNotice
    from surepipe.actors.routes import Route
    from surepipe.actors.runtime import Runtime
    from surepipe.actors.tracing import TraceSink
    from surepipe.core.store_requests import CommitPosition, Store, Transaction
    from surepipe.errors import Fenced
    from surepipe.pipelines.links import Node
    from surepipe.pipelines.models.pipes import PipePart
    from surepipe.pipelines.models.sources import AnySource
    from surepipe.pipelines.models.stages import AnySink
    from surepipe.pipelines.models.stores import AnyStore
    from surepipe.pipelines.stages import Clock, StageCall


T = TypeVar("T")


# Sources.


@dataclass(frozen=True, slots=True)
class SourceRow:
    """One message of a source, and where reading goes on behind it (a short text that only the source reads)."""

    message: object
    after: str
    wrong: str = ""
    """Why it can't be read, with its place; ``message`` is then what stands there, as bytes."""


@dataclass(frozen=True, slots=True)
class RowRun:
    """Messages of a source that follow each other, each a row, and nothing special among them. ``behind``: the
    place behind so many of them. ``texts``: the same as JSON, where that is what the source reads."""

    messages: Sequence[object]
    behind: Callable[[int], str]
    texts: Sequence[bytes] | None = None

    @property
    def rows(self) -> list[SourceRow]:
        """As ``read`` of the source gives them."""
        return [
            SourceRow(message, self.behind(count)) for count, message in enumerate(self.messages, 1)
        ]


NOTHING: Final = object()
"""In place of a message: only the place goes on."""


class Source(Protocol):
    """Rows in an order. A source that can be read again gives the same rows behind the same place."""

    def begin(self, after: str) -> None:
        """Read from behind this place, or from the beginning for ''. May be called again."""
        ...

    def read(self, rows_max: int) -> Sequence[SourceRow] | None:
        """The next rows, without waiting long; () when there is none now, None when there will be no more.

        Raises ConfigurationError for what can't be read, naming the place. Of a source with dead letters it is a
        row that says so.
        """
        ...

    def taken(self, rows: Sequence[SourceRow]) -> None:
        """These rows were accepted by everything that the source feeds."""
        ...

    def close(self) -> None:
        """Let go of what it holds open. A repeat does nothing."""
        ...


@runtime_checkable
class ReadsRuns(Protocol):
    """A source that can give many rows with less ado, and need not hear what was taken."""

    def read_run(self, rows_max: int) -> RowRun | None:
        """The next rows, of which there is one; None where ``read`` must see what is there."""
        ...


@runtime_checkable
class EndsByItself(Protocol):
    """A source that says when there will be no more: to have nothing now is no end of it, in a run with ``--once``
    either."""

    ends_by_itself: bool


@runtime_checkable
class Serving(Protocol):
    """A source that others send to."""

    def refuse(self) -> None:
        """Take nothing more: who sends now is told so, and keeps what it has. From any thread; a repeat does
        nothing."""
        ...


@runtime_checkable
class Finite(Protocol):
    """A source that knows where it ends."""

    def progress(self) -> tuple[int, int] | None:
        """How much is read, and how much there is, in bytes or rows; None where that is not known. Any thread."""
        ...


# Sinks.


class Sink(Protocol):
    """Where messages end. Not entered twice at once: whoever uses it holds ``lock``-like order among takers.

    With boundary ``committed`` the calls are: ``begin``, then ``put`` for each message (``mark`` before it, and
    ``back_to`` when something fails at it), then ``seal``, all with one transaction of the store of the receiver's
    state. Elsewhere the same with None. What was put counts only when ``seal`` has returned and, with a
    transaction, that is done.
    """

    def begin(self, transaction: Transaction | None) -> None:
        """A new group of messages. What an earlier group left that was not committed is taken back."""
        ...

    def mark(self) -> int:
        """Where the group is now."""
        ...

    def back_to(self, mark: int) -> None:
        """Forget what was put since this mark, as far as that can be."""
        ...

    def put(self, message: object, about: About, transaction: Transaction | None) -> None:
        """Take one message. Raises what makes the message fail; StoreUnavailable when it is not to blame."""
        ...

    def seal(self, transaction: Transaction | None) -> None:
        """The group is complete: make it last, and add to the transaction what belongs into it."""
        ...

    def close(self) -> None:
        """Let go of what it holds open. A repeat does nothing."""
        ...


class Cursor(Protocol):
    """A durable text that a sink may keep in the store of the receiver's state, moved with the transaction."""

    def load(self) -> str | None:
        """What was stored last; None when nothing ever was. Takes the cursor over from an older process."""
        ...

    def save(self, text: str) -> None:
        """Store it now. Raises StoreUnavailable, ``errors.Fenced``."""
        ...

    def request(self, text: str) -> CommitPosition:
        """The commit that stores it, for a transaction."""
        ...


@dataclass(frozen=True, slots=True)
class FilePlace:
    """How far a file of lines is decided (``end``), and how far it was on the disk when that was decided."""

    end: int
    written: int

    @property
    def text(self) -> str:
        return f"{self.end} {self.written}"

    @classmethod
    def read(cls, text: str) -> FilePlace:
        """From what was stored."""
        end, written = text.split()
        return cls(int(end), int(written))


@runtime_checkable
class LineLog(Protocol):
    """A cursor that keeps lines too: what a file is to hold, in the store of the receiver's state."""

    def claim(self) -> FilePlace | None:
        """Take the file over from an older process; None when it was never written to. Raises StoreUnavailable,
        ``errors.Fenced`` (a process that began later has it)."""
        ...

    def save(self, text: str) -> None:
        """Store a place now. Raises StoreUnavailable, ``errors.Fenced``."""
        ...

    def begin(self, transaction: Transaction) -> None:
        """A new group, in this transaction."""
        ...

    def add(self, data: bytes, place: FilePlace, transaction: Transaction) -> None:
        """Put the lines of the group into the transaction, and where the file ends behind them."""
        ...

    def group(self, place: FilePlace) -> bytes:
        """The bytes between ``written`` and ``end``, as they were stored; none when they were forgotten, which
        they only are once they are in the file. Raises StoreUnavailable."""
        ...

    def landed(self) -> None:
        """All groups are on the disk, and no transaction is open."""
        ...

    def trim(self) -> None:
        """Everything is on the disk."""
        ...


@runtime_checkable
class LandingSink(Protocol):
    """A sink that does something once a transaction is done."""

    def land(self) -> Fenced | None:
        """Do it for the last transaction, if that is done. Raises nothing: what fails is tried again later.

        Gives ``errors.Fenced`` when a process that began later has the sink: this one can't go on.
        """
        ...


# The world.


class Environment(Protocol):
    """What a node of a pipeline runs on."""

    @property
    def runtime(self) -> Runtime:
        """Actors, monotonic time, chance."""
        ...

    @property
    def clock(self) -> Clock:
        """Time as stages see it."""
        ...

    @property
    def seed(self) -> int | None:
        """What random draws of pipes follow from; None: unpredictable."""
        ...

    @property
    def trace(self) -> TraceSink | None:
        """Where rows for an audit go."""
        ...

    def require(self, part: Node) -> None:
        """Look for what a part needs, before anything is opened or made. Raises ConfigurationError."""
        ...

    def store(self, part: AnyStore) -> Store:
        """Open a store; called once for each. The engine closes what has ``close``, after everything else."""
        ...

    def route(self, pipe: PipePart, sends: bool, receives: bool) -> Route | None:
        """Carries the frames of a pipe that has an end here, or both.

        None for a local one. Frames of a stream pipe need none. The engine closes what has ``close``.
        """
        ...

    def source(self, part: AnySource, stores: Mapping[str, Store]) -> Source:
        """Open a source of this node."""
        ...

    def sink(self, part: AnySink, stores: Mapping[str, Store], cursor: Cursor | None) -> Sink:
        """Open a sink of this node. ``cursor``: with boundary ``committed``, for sinks that keep a place."""
        ...

    def function(self, path: str) -> Callable[..., object]:
        """The function, or class, that 'module:name' names. Raises ConfigurationError that says what is wrong."""
        ...

    def telling(self, name: str, path: str) -> Callable[[object], object]:
        """The same of a function that tells something of the messages of the part ``name``: a key, or a cost. Who
        asks it calls what this gives."""
        ...

    def call(self, name: str, function: StageCall, message: object) -> object:
        """Call a user's function of the part ``name``: the one place where the user's code is entered, ``telling``
        apart.

        Waits for what an async function gives; raises what it raises, and ``stages.TimeLimit``.
        """
        ...

    def calls_plainly(self) -> bool:
        """True where ``call`` does nothing here for a plain function without a time limit but to enter it, and to
        look at what it raises and gives: so who calls very many may do that without it."""
        ...

    def blocking(self, work: Callable[[], T]) -> T:
        """Do what may hold up its thread, and is no code of the user's. Where many share a thread, they go on
        meanwhile."""
        ...

    def notice(self, notice: PipeNotice) -> None:
        """A pipe says what somebody should know."""
        ...

    def stopped(self, why: BaseException) -> None:
        """A source can't go on: the run has to end. Called from its actor."""
        ...
