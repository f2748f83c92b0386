"""Leaves out of a story what does not matter: steps that neither touch the message nor are faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from surepipe.simulation.report.story import Arrow, Step, Story
from surepipe.simulation.trace import Kind

DRAIN = "drain"
OTHERS = "..."


def fold(story: Story, rows_max: int) -> Story:
    """At most ``rows_max`` steps, if that can be had; the violating one is always among them.

    The drain is folded in any case. Then, as far as needed, what does not concern the message, and at last the
    middle of the story.
    """
    kept = [not (step.drains or step.repeats) or _matters(step) for step in story.steps]
    if _count(kept) > rows_max or (story.is_staged and story.focus):
        kept = [_matters(step) for step in story.steps]
    if _count(kept) > rows_max:
        kept = _ends_only(story.steps, kept, rows_max)
    return _folded(story, kept)


def _matters(step: Step) -> bool:
    return (step.is_focus and not step.repeats) or bool(step.fault) or step.violates


def _count(kept: Sequence[bool]) -> int:
    """Rows that this makes: what is kept, and one for each stretch between."""
    gaps = sum(1 for place, keep in enumerate(kept) if not keep and (place == 0 or kept[place - 1]))
    return sum(kept) + gaps


def _ends_only(steps: Sequence[Step], kept: Sequence[bool], rows_max: int) -> list[bool]:
    """The violation, the first and last steps that touch the message, faults, and then what fits."""
    must = [place for place, step in enumerate(steps) if step.violates]
    faults = [place for place, step in enumerate(steps) if step.fault]
    rest = [place for place, keep in enumerate(kept) if keep]
    inward = [place for pair in zip(rest, reversed(rest), strict=True) for place in pair]
    chosen: list[bool] = [False] * len(steps)
    touching = [place for place in inward if steps[place].is_focus][:8]
    for place in dict.fromkeys((*must, *faults[:4], *touching, *faults, *inward)):
        chosen[place] = True
        if _count(chosen) > rows_max:
            chosen[place] = False
    return chosen


def _folded(story: Story, kept: Sequence[bool]) -> Story:
    steps: list[Step] = []
    places: list[int] = []
    stretch: list[Step] = []
    for step, keep in zip(story.steps, kept, strict=True):
        if keep:
            _close(steps, stretch)
            steps.append(step)
        else:
            stretch.append(step)
        places.append(len(steps) - 1 if keep else len(steps))
    _close(steps, stretch)
    moved = (_moved(arrow, places) for arrow in story.arrows)
    arrows = tuple(a for a in moved if a.begin != a.end and a.begin < len(steps))
    held = (replace(h, begin=places[h.begin], end=places[h.end]) for h in story.held)
    return replace(story, steps=tuple(steps), arrows=arrows, held=tuple(held))


def _moved(arrow: Arrow, places: Sequence[int]) -> Arrow:
    fork = places[arrow.fork] if arrow.fork >= 0 else -1
    return replace(arrow, begin=places[arrow.begin], end=places[arrow.end], fork=fork)


def _close(steps: list[Step], stretch: list[Step]) -> None:
    if len(stretch) == 1 and (stretch[0].folded or not stretch[0].drains):
        steps.append(stretch[0])
    elif stretch:
        drains = any(step.drains for step in stretch)
        steps.append(
            Step(
                node=DRAIN if drains else OTHERS,
                rows=(),
                does=_summary(stretch, drains=drains),
                drains=drains,
                folded=sum(step.folded or 1 for step in stretch),
                hidden=tuple(row for step in stretch for row in (step.rows or step.hidden)),
            )
        )
    stretch.clear()


def _summary(stretch: Sequence[Step], *, drains: bool) -> str:
    counted = Counter(row.kind for step in stretch for row in (step.rows or step.hidden))
    words = {
        Kind.ACCEPTED: "accepted",
        Kind.CALLED: "call",
        Kind.WAKE: "wake",
        Kind.ARRIVED: "frame",
        Kind.DELIVERED: "delivered",
        Kind.START: "start",
    }
    parts = [_counted(counted[kind], word) for kind, word in words.items() if counted[kind]]
    told = ", ".join(parts) or _counted(len(stretch), "step")
    if all(step.repeats for step in stretch):
        told = f"the same again, {told}"
    return f"healed; {told}" if drains else told


def _counted(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 or word in ('accepted', 'delivered') else 's'}"
