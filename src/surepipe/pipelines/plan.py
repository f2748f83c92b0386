"""The plan: a whole pipeline as one frozen value, checked in itself, that every engine takes.

A plan is made from a YAML file (``surepipe.pipelines.load``) or in Python::

    plan = Plan(
        name="orders",
        sources=(JsonlSource(name="lines", path=Setting("orders.jsonl")),),
        pipes=(PipePart(name="intake", from_=("lines",), layers=["reliable"]),),
        sinks=(StdoutSink(name="out", from_=("intake",)),),
    )

It holds no open thing and no secret, and making it does no input or output: it is what is checked, drawn,
simulated, and run on actors and on Spark. What an engine may rely on, and must do:

*Parts.* ``sources``, ``pipes``, ``stages`` and ``sinks`` are nodes of a graph without cycles; ``from_`` names
what feeds a node. Every node leads somewhere and is fed by something, every way from a source to an end has a
pipe in it, and every named store is there. ``order`` lists the nodes so that each comes after what feeds it.

*Settling.* What stands between two pipes belongs to the receiver of the first: a message of a pipe is settled
when everything that follows it, as far as the next pipes (which must have accepted it, under the boundary of the
first pipe) and the sinks, has it. With boundary ``committed`` that is one transaction of one store.

*Fan-out.* Each of several consumers gets every message, and the message is settled when the last has it. A
consumer that fails is tried again alone, while the process lives; after a crash all of them get it again.

*Fan-in.* A node that is fed by several keeps the order of each; how they mix is as they come. A pipe that is
fed by several has one sender.

*Stages.* ``call`` passes on what it returns, and nothing for None; ``flat-map`` may give several messages. All
that comes of one message is handed over as one. Stages before the first pipe run in the process of the source,
and a row of the source counts as taken when what came of it was accepted.

*Keys and lanes.* A message's key is what the last ``key`` or ``key-by`` before it says. With ``lanes`` messages of
one key keep their order, those of different keys may overtake each other, and one that fails holds up its key.

*Nodes.* ``places`` says in which process each part runs: a source where its ``node`` says, a pipe's sender where
it is fed, its receiver where the pipe's ``node`` says, all else where it is fed. Each process is started with the
same file and the name of its node.

*Functions.* ``module:name`` is looked for in the folder of the plan's file, then in the one that the command runs
in, then where Python looks: by every command alike. Paths of files are those of the folder that it runs in.

*Restart.* Sources that replay go on after the last row whose message the journal accepted; without a journal a
restart is a new run. File sinks with boundary ``committed`` store the length of the file with the cursor, and
cut the file to that length when they start.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from surepipe.errors import ConfigurationError
from surepipe.pipelines.links import Node, link
from surepipe.pipelines.models.file import Engine, SimulateSection
from surepipe.pipelines.models.pipes import Expect, PipePart
from surepipe.pipelines.models.sources import AnySource
from surepipe.pipelines.models.stages import AnySink, StagePart
from surepipe.pipelines.models.stores import AnyStore
from surepipe.pipelines.structure import PartPlace, in_flow, issues, places_of

WAYS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Way:
    """One way of messages: the names from a source to where they end (a sink, or a stage with an effect)."""

    names: tuple[str, ...]

    @property
    def source(self) -> str:
        return self.names[0]

    @property
    def end(self) -> str:
        return self.names[-1]

    def __str__(self) -> str:
        return " -> ".join(self.names)


@dataclass(frozen=True, slots=True)
class Plan:
    """A pipeline. Raises ConfigurationError that names everything that does not add up."""

    name: str
    sources: tuple[AnySource, ...]
    pipes: tuple[PipePart, ...]
    stages: tuple[StagePart, ...] = ()
    sinks: tuple[AnySink, ...] = ()
    stores: tuple[AnyStore, ...] = ()
    expect: Expect | None = None
    engine: Engine = field(default_factory=Engine)
    simulate: SimulateSection = field(default_factory=SimulateSection)
    description: str = ""
    folder: Path | None = field(default=None, repr=False, compare=False)
    """where its file lies: functions are looked for there first"""
    _places: dict[str, PartPlace] = field(
        default_factory=dict[str, PartPlace], init=False, repr=False, compare=False
    )
    """Worked out once, as are the next: an engine asks for them often."""
    _order: list[Node] = field(default_factory=list[Node], init=False, repr=False, compare=False)
    _before: dict[str, frozenset[str]] = field(
        default_factory=dict[str, frozenset[str]], init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        found = tuple(issues([link(part) for part in (*self.stores, *self.parts)], self.name))
        if found:
            raise ConfigurationError("\n".join(f"{self.name}: {issue.text}" for issue in found))

    @property
    def parts(self) -> tuple[Node, ...]:
        """All parts that messages pass: sources, pipes, stages, sinks."""
        return (*self.sources, *self.pipes, *self.stages, *self.sinks)

    def part(self, name: str) -> Node:
        """The part of this name. Raises KeyError."""
        return next((part for part in self.parts if part.name == name), None) or _absent(name)

    def pipe(self, name: str) -> PipePart:
        """The pipe of this name. Raises KeyError."""
        return next((pipe for pipe in self.pipes if pipe.name == name), None) or _absent(name)

    def store(self, name: str) -> AnyStore:
        """The store of this name. Raises KeyError."""
        return next((store for store in self.stores if store.name == name), None) or _absent(name)

    def feeders(self, name: str) -> tuple[str, ...]:
        return feeders_of(self.part(name))

    def takers(self, name: str) -> tuple[Node, ...]:
        return tuple(part for part in self.parts if name in feeders_of(part))

    def pipes_before(self, name: str) -> frozenset[str]:
        """The pipes whose receivers a part belongs to."""
        found = self._before.get(name)
        if found is None:
            feeders = [self.part(feeder) for feeder in self.feeders(name)]
            found = frozenset[str]().union(
                *(
                    {one.name} if isinstance(one, PipePart) else self.pipes_before(one.name)
                    for one in feeders
                )
            )
            self._before[name] = found
        return found

    @property
    def order(self) -> tuple[Node, ...]:
        """The nodes, each after what feeds it; otherwise as written."""
        if not self._order:
            parts = {part.name: part for part in self.parts}
            feeders = {name: feeders_of(part) for name, part in parts.items()}
            self._order.extend(parts[name] for name in in_flow(feeders))
        return tuple(self._order)

    @property
    def ends(self) -> tuple[Node, ...]:
        """Where messages end: the sinks, and stages that nothing follows."""
        return tuple(part for part in self.parts if not self.takers(part.name))

    def ways(self) -> Iterator[Way]:
        """Every way from a source to an end, at most ``WAYS_MAX`` of them."""
        count = 0
        pending: list[tuple[str, ...]] = [(source.name,) for source in reversed(self.sources)]
        while pending and count < WAYS_MAX:
            names = pending.pop()
            takers = self.takers(names[-1])
            pending += [(*names, part.name) for part in reversed(takers)]
            if not takers:
                count += 1
                yield Way(names)

    @property
    def places(self) -> dict[str, PartPlace]:
        """The node of each part, and the node of the part that feeds it."""
        if not self._places:
            links = [link(part) for part in self.parts]
            self._places.update(
                places_of([(one.name, one.node, one.feeders, one.role == "pipe") for one in links])
            )
        return self._places

    @property
    def nodes(self) -> tuple[str, ...]:
        """The processes that the plan is made for; one of them is called main where nothing is said."""
        return tuple(dict.fromkeys(place.node for place in self.places.values()))

    def reach(self, pipe: str) -> tuple[Node, ...]:
        """What belongs to the receiver of a pipe: all that follows it, the next pipes and the ends included."""
        found: dict[str, Node] = {}
        pending = list(self.takers(pipe))
        while pending:
            part = pending.pop(0)
            if found.setdefault(part.name, part) is part and not isinstance(part, PipePart):
                pending += self.takers(part.name)
        return tuple(found.values())

    def behind(self, *names: str) -> set[str]:
        """All parts that what comes out of these may come to, through pipes too."""
        found: set[str] = set()
        pending = list(names)
        while pending:
            new = {part.name for part in self.takers(pending.pop())} - found
            found |= new
            pending += new
        return found

    def behind_batches(self) -> set[str]:
        """All parts that are given what depends on how messages fall into batches."""
        return self.behind(*(stage.name for stage in self.stages if stage.batch is not None))

    def takes_batches(self, name: str) -> bool:
        """Whether the lists of a batch come to a part as they were made, through pipes too."""
        return any(self._gives_batches(self.part(feeder)) for feeder in self.feeders(name))

    def _gives_batches(self, part: Node) -> bool:
        if isinstance(part, StagePart) and part.batch is not None:
            return True
        is_passing = isinstance(part, PipePart) or (
            isinstance(part, StagePart) and part.kind in ("filter", "key-by")
        )
        return is_passing and self.takes_batches(part.name)


def feeders_of(part: Node) -> tuple[str, ...]:
    """The names in ``from``; none for a source."""
    return part.from_ if isinstance(part, PipePart | StagePart) else getattr(part, "from_", ())


def _absent(name: str) -> NoReturn:
    raise KeyError(name)
