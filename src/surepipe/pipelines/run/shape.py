"""Questions about a plan that are asked while one node of it is assembled."""

from __future__ import annotations

from dataclasses import dataclass

from surepipe.errors import ConfigurationError
from surepipe.pipelines.engine_limits import home_of, pipes_before
from surepipe.pipelines.links import link
from surepipe.pipelines.models.pipes import PipePart
from surepipe.pipelines.models.stages import StagePart
from surepipe.pipelines.plan import Plan
from surepipe.pipelines.run.pipes import receives_at, sends_at
from surepipe.pipes.stack.boundary import Boundary


@dataclass(frozen=True, slots=True)
class Shape:
    """A plan as one of its nodes sees it."""

    plan: Plan
    node: str

    def is_here(self, name: str) -> bool:
        """True when this part (of a pipe: its receiver) runs on the node."""
        return self.plan.places[name].node == self.node

    def sends(self, pipe: PipePart) -> bool:
        """True when the sender of a pipe runs on the node."""
        return sends_at(self.plan, pipe, self.node)

    def receives(self, pipe: PipePart) -> bool:
        """True when its receiver does."""
        return receives_at(self.plan, pipe, self.node)

    def stores_used(self) -> set[str]:
        """Those that the parts of this node need."""
        used: set[str] = set()
        for part in self.plan.parts:
            if isinstance(part, PipePart):
                used |= self.stores_of(part)
            elif self.is_here(part.name):
                used |= {use.store for use in link(part).stores}
        return used

    def stores_of(self, pipe: PipePart) -> set[str]:
        """Those that the ends of a pipe need that are here."""
        sends, receives = self.sends(pipe), self.receives(pipe)
        roles = (
            pipe.stream_store if sends or receives else None,
            pipe.journal if sends else None,
            pipe.state if receives else None,
        )
        return {role for role in roles if role is not None}

    def pipes_before(self, name: str) -> set[str]:
        """The pipes whose receivers a part belongs to."""
        return pipes_before(self.plan, name)

    def is_committed(self, pipe: str) -> bool:
        """True when a pipe's effects belong to a transaction."""
        return self.plan.pipe(pipe).settled is Boundary.COMMITTED

    def home_of(self, pipe: PipePart) -> str:
        """The store of a receiver's state, which its transactions belong to. Raises ConfigurationError."""
        home = home_of(pipe)
        if home is None:
            raise ConfigurationError(
                f"pipe {pipe.name}: boundary committed needs a state: name a store"
            )
        return home

    def pipes_behind(self, name: str) -> list[PipePart]:
        """The pipes that a source feeds, through whatever stages."""
        found: dict[str, PipePart] = {}
        for taker in self.plan.takers(name):
            if isinstance(taker, PipePart):
                found[taker.name] = taker
            else:
                found |= {pipe.name: pipe for pipe in self.pipes_behind(taker.name)}
        return list(found.values())

    def stages_behind(self, name: str) -> list[StagePart]:
        """The stages between a part and the next pipes."""
        found: list[StagePart] = []
        for taker in self.plan.takers(name):
            if isinstance(taker, StagePart):
                found += [taker, *self.stages_behind(taker.name)]
        return found

    def at_once(self, pipe: PipePart) -> set[str]:
        """Sinks behind a pipe that can't be had alone for long: it has lanes, or other pipes feed them too."""
        if self.is_committed(pipe.name):
            return set()
        reached = {part.name for part in self.plan.reach(pipe.name)} & {
            sink.name for sink in self.plan.sinks
        }
        if pipe.lanes is not None:
            return reached
        return {name for name in reached if len(self.pipes_before(name)) > 1}
