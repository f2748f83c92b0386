"""Somebody else who uses the pipes of a plan, at their bounds: bursts above what they hold, the largest messages.

Sources wait for room and stop at a message that is too large, so they never come there. What is refused must be
told and leave no trace; what is accepted comes out like all the rest, beside what the sinks are expected to have.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator

from surepipe.actors.codecs import AutoCodec
from surepipe.audit.findings import Violation
from surepipe.errors import PayloadTooLarge, PipeFull
from surepipe.pipelines.models.pipes import PipePart
from surepipe.pipelines.models.stages import JsonlSink, StreamSink
from surepipe.pipelines.plan import Plan
from surepipe.pipelines.run.books import BookPipe
from surepipe.pipelines.run.pipes import sending
from surepipe.pipelines.run.running import PlanEngine
from surepipe.pipelines.simulate.ends import canonical
from surepipe.pipes.options import BacklogOptions, RetryOptions
from surepipe.simulation.actors.lives import Life
from surepipe.simulation.options import Options
from surepipe.simulation.timeline import as_detail, digests_of

BURST_MAX = 256
"""Pipes that hold more than this are not flooded: a run would consist of nothing else."""
QUOTES = 2
ABOUT_THE_BOUND = (-1, 0, 1)


def is_open(plan: Plan) -> bool:
    """Whether strangers' messages get through: nothing of the user's looks into them."""
    return (
        not plan.stages
        and all(isinstance(sink, JsonlSink | StreamSink) for sink in plan.sinks)
        and all(pipe.key is None and pipe.payload in ("auto", "json") for pipe in plan.pipes)
    )


def held_at_most(pipe: PipePart) -> int:
    """How many messages its sender takes while nothing is confirmed."""
    layers = [layer for layer in pipe.stack if isinstance(layer, BacklogOptions)]
    windows = [layer.window for layer in layers if isinstance(layer, RetryOptions)]
    return sum(layer.backlog for layer in layers) + sum(windows)


def can_be_flooded(plan: Plan) -> bool:
    """Whether bursts above all bounds are still short."""
    return is_open(plan) and all(held_at_most(pipe) <= BURST_MAX for pipe in plan.pipes)


class Visitor:
    """What it has still to offer outlives processes: each message is offered once."""

    def __init__(self, plan: Plan, options: Options) -> None:
        self.offered: set[str] = set()
        """As sinks would show them."""
        self._accepted: dict[str, None] = {}
        self._refused: dict[str, None] = {}
        self._misjudged: dict[str, None] = {}
        self._plan = plan
        self._at_us = options.chaos_us // 2
        self._left: dict[str, deque[Callable[[int], str]]] = {
            pipe.name: deque(_offers(pipe, options)) for pipe in plan.pipes if pipe.book is None
        }

    def visit(self, life: Life, engine: PlanEngine, node: str) -> None:
        """From the program of a node: offer what is left, to the pipes that take from a source here."""
        fed = [name for name, place in self._plan.places.items() if place.sender == node]
        left = {name: self._left[name] for name in fed if self._left.get(name)}
        if left:
            life.sleep(self._at_us - life.world.now)
        for name, offers in left.items():
            while offers:
                self._offer(life, engine, name, offers.popleft())

    def _offer(self, life: Life, engine: PlanEngine, name: str, make: Callable[[int], str]) -> None:
        face = sending(engine.faces[name])
        assert not isinstance(face, BookPipe), "what a visitor says has no key"
        longest = face.sender.message_max
        message = make(longest)
        text, payload = canonical(message), AutoCodec().encode(message)
        self.offered.add(text)
        reason = ""
        try:
            face.send_nowait(message)
        except PipeFull:
            reason = "full"
        except PayloadTooLarge:
            reason = "too-large"
        (self._refused if reason else self._accepted)[text] = None
        if (reason == "too-large") != (len(payload) > longest):
            self._misjudged[text] = None
        if reason:
            self._tell(life, f"{self._plan.name}/{name}", payload, reason)

    @staticmethod
    def _tell(life: Life, pipe: str, payload: bytes, reason: str) -> None:
        life.world.row_of(
            life,
            f"{pipe}/sender",
            "rejected",
            pipe=pipe,
            count=1,
            digests=digests_of([payload]),
            detail=as_detail({"reason": reason}),
        )

    def judge(self, came: Collection[str], step: int, *, keeps_all: bool) -> Iterator[Violation]:
        """Broken promises about its messages; ``came``: the contents of sinks. ``keeps_all``: nothing may be
        lost."""
        found = {
            "was taken and never came out": [
                text for text in self._accepted if keeps_all and text not in came
            ],
            "was refused and came out": [text for text in self._refused if text in came],
            "was not measured by the bound": list(self._misjudged),
        }
        for sentence, texts in found.items():
            if texts:
                yield Violation("P13", "backpressure", step, f"{texts[0][:60]} {sentence}.")


def _offers(pipe: PipePart, options: Options) -> Iterator[Callable[[int], str]]:
    """Given the size of the largest message that the pipe takes, each makes one."""
    for number in range(options.too_large):
        for beyond in ABOUT_THE_BOUND:
            yield _sized(f"{pipe.name}, large {number}, {beyond}", beyond)
    for number in range(held_at_most(pipe) + options.flood if options.flood else 0):
        yield _sized(f"{pipe.name}, flood {number}")


def _sized(text: str, beyond: int | None = None) -> Callable[[int], str]:
    """This text, or as many bytes more than the bound as ``beyond`` says."""

    def make(longest: int) -> str:
        return text if beyond is None else text.ljust(longest - QUOTES + beyond, ".")

    return make
