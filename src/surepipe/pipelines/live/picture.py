"""The flow of a plan, as ``surepipe graph`` draws it, with what happens in it just now.

Stores, and the layers of the pipes, are left out: they do not change. Boxes and arrows stay where they are from
one picture to the next, since numbers are never wider than the other words of a box.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from surepipe.observe.numbers import compact
from surepipe.observe.status import Flow, Part, Status
from surepipe.pipelines.drawing.diagram import Arrow, Box, Diagram

STUCK_S = 10.0
"""A message that is unconfirmed for longer makes its pipe stand out."""


def live_diagram(diagram: Diagram, status: Status) -> Diagram:
    """The diagram with numbers in the pipes, and rates on the arrows."""
    parts = {part.name: part for part in status.parts}
    return replace(
        diagram,
        boxes=tuple(_box(box, parts[box.name]) for box in diagram.boxes if box.role != "store"),
        arrows=tuple(_arrow(arrow, parts) for arrow in diagram.flow),
    )


def _box(box: Box, part: Part) -> Box:
    tone = "away" if not part.here else "warn" if is_worrying(part) else ""
    if part.flow is None:
        where = () if part.here else (f"on node {part.node}",)
        return replace(box, live=where, tone=tone)
    return replace(box, lines=box.lines[-1:], live=tuple(_lines(part.flow)), tone=tone)


def _lines(flow: Flow) -> Iterator[str]:
    yield f"waiting {compact(flow.waiting)}"
    yield f"unconfirmed {compact(flow.unconfirmed)}"
    yield f"sent again {compact(flow.retransmitted)}"
    yield f"dead letters {compact(flow.dead_letters)}"


def is_worrying(part: Part) -> bool:
    """True for a pipe with dead letters, or one that gave something up, or that is stuck."""
    flow = part.flow
    if flow is None:
        return bool(part.counts.get("failed"))
    is_stuck = (flow.oldest_unconfirmed_s or 0) > STUCK_S
    return is_stuck or bool(flow.dead_letters) or bool(flow.given_up)


def _arrow(arrow: Arrow, parts: dict[str, Part]) -> Arrow:
    rate = _rate(parts[arrow.start], parts[arrow.end])
    return arrow if rate is None else replace(arrow, label=f"{compact(rate)}/s")


def _rate(start: Part, end: Part) -> float | None:
    """What goes from one to the other a second: what the other takes, if it is fed by this one alone."""
    if len(end.feeders) > 1:
        return start.flow.settled_per_s if start.flow is not None else _own(start)
    return end.flow.accepted_per_s if end.flow is not None else _own(end)


def _own(part: Part) -> float | None:
    """A part that is no pipe counts what it took, or, a stage, what passed through it."""
    return part.per_s.get("taken", part.per_s.get("passed"))
