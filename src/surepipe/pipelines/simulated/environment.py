"""The world as the engine of one simulated process sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from surepipe.actors.notices import PipeNotice
from surepipe.actors.routes import Route
from surepipe.errors import ConfigurationError
from surepipe.pipelines.assembly import About, Cursor, Sink, Source
from surepipe.pipelines.calling import entry_of
from surepipe.pipelines.links import AnyStore, Node
from surepipe.pipelines.models.pipes import PipePart
from surepipe.pipelines.models.sources import AnySource
from surepipe.pipelines.models.stages import AnySink, CsvSink, JsonlSink, PythonSink
from surepipe.pipelines.simulated.calls import Calls, VirtualClock, with_all_it_gives
from surepipe.pipelines.simulated.files import DiskInLife
from surepipe.pipelines.simulated.places import RecorderInLife, RowsInLife
from surepipe.pipelines.stages import Call, Context
from surepipe.simulation.actor_stores import LifeStore, LifeTrace
from surepipe.simulation.lives import Life
from surepipe.simulation.runtime import SimulatedRuntime
from surepipe.simulation.world import as_detail
from surepipe.store_api import Store, Transaction

if TYPE_CHECKING:
    from surepipe.pipelines.simulated.deployment import PlanDeployment

T = TypeVar("T")


class SimulatedEnvironment:
    """What a node of a pipeline runs on, for one life of it."""

    def __init__(self, deployment: PlanDeployment, life: Life) -> None:
        self.runtime = SimulatedRuntime(life)
        self.clock = VirtualClock(life)
        self.seed = None
        self.trace = LifeTrace(life)
        self.failure: BaseException | None = None
        self._deployment = deployment
        self._life = life
        self._calls = Calls(life, deployment.called)

    def store(self, part: AnyStore) -> Store:
        """A store of the world."""
        return LifeStore(self._deployment.stores[part.name], self._life)

    def route(self, pipe: PipePart, sends: bool, receives: bool) -> Route | None:
        """Links of the world, also for a local route."""
        del sends, receives
        return self._deployment.routes[pipe.name].in_life(self._life)

    def source(self, part: AnySource, stores: Mapping[str, Store]) -> Source:
        """Rows that are known beforehand."""
        del stores
        return RowsInLife(self._deployment.rows[part.name], self._life)

    def sink(self, part: AnySink, stores: Mapping[str, Store], cursor: Cursor | None) -> Sink:
        """A record; of a file the production sink, on a file of the world."""
        del stores
        if isinstance(part, JsonlSink | CsvSink):
            file = self._deployment.files[part.name]
            return file.opened(cursor, DiskInLife(file, self._life))
        call = self._caller(part) if isinstance(part, PythonSink) else None
        return RecorderInLife(self._deployment.records[part.name], self._life, call)

    def _caller(self, part: PythonSink) -> Callable[[object, About, Transaction | None], object]:
        function = entry_of(f"sink {part.name}", part.call, self.function(part.call))

        def call(message: object, about: About, transaction: Transaction | None) -> object:
            attempt = about.attempt
            context = (
                Context(about, part.name, attempt, self.clock, transaction)
                if function.asks
                else None
            )
            entry = Call(function.function, context, part.time_limit_s, about, attempt)
            return self.call(part.name, entry, message)

        return call

    def require(self, part: Node) -> None:
        """Functions and rows were found before the world was made."""

    def function(self, path: str) -> Callable[..., object]:
        """A function of the plan, or its double. A class is made an instance of by whoever asked."""
        self._deployment.memory.enter(self._life)
        return self._deployment.functions.find(path)

    def call(self, name: str, function: Call, message: object) -> object:
        """Enter the user's code."""
        if name in self._deployment.flat_maps:
            function = with_all_it_gives(function)
        return self._calls.enter(name, function, message)

    def blocking(self, work: Callable[[], T]) -> T:
        """Nothing holds anybody up in virtual time."""
        return work()

    def notice(self, notice: PipeNotice) -> None:
        """A row."""
        if self._life.is_alive:
            facts = {"notice": str(notice.kind), "text": str(notice)}
            self._life.world.note(notice.pipe, self._life.number, "notice", detail=as_detail(facts))

    def stopped(self, why: BaseException) -> None:
        """The program of this node is told."""
        self.failure = self.failure or why
        if isinstance(why, ConfigurationError) and self._deployment.refusal is None:
            self._deployment.refusal = why
