"""A run as a story: who did what, step by step, and what each step did to one message.

A step is one event of one node with everything that it caused at once: *accepts #1, transmits it*. Frames are
arrows between steps. Text, page and picture are all made from a story, so they agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from surepipe.audit.properties.coverage import Positions
from surepipe.audit.settings import facts_of, integers
from surepipe.audit.trace import Kind, Row

NETWORK = "network"
"""Where losses and copies happen."""


class FrameEnd(Enum):
    """How a frame ends."""

    ARRIVED = "arrived"
    LOST = "lost"
    FLYING = "flying"


@dataclass(frozen=True, slots=True)
class Arrow:
    """A frame from the step that sent it to the step at which it ends; indexes into the steps.

    ``fork`` is the index of the step in which the network copied it, -1 for an original. ``end`` is the last step
    when the frame is still on its way.
    """

    text: str
    source: str
    target: str
    begin: int
    end: int
    fate: FrameEnd
    is_focus: bool
    is_control: bool
    fork: int = -1


@dataclass(frozen=True, slots=True)
class HeldSpan:
    """A node has the message from step to step, by index; ``stays``: it has it at the end of the story."""

    node: str
    begin: int
    end: int
    stays: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """One event of one node. ``does`` says what happened, ``effect`` what that did to the message of the story.

    ``rows`` is empty for a folded step, which stands for ``folded`` others with the rows ``hidden``.
    """

    node: str
    rows: tuple[Row, ...]
    does: str
    effect: str = ""
    fault: str = ""
    is_focus: bool = False
    violates: bool = False
    drains: bool = False
    folded: int = 0
    hidden: tuple[Row, ...] = ()
    number: int = 0
    """what it is called where a story was folded twice, 0 where its place says it"""
    repeats: bool = False
    """says and does what a step before it did"""
    verdict: str = ""
    """of the step that decides, why"""

    @property
    def kind(self) -> str:
        """The kind of its event."""
        return self.rows[0].kind if self.rows else ""


@dataclass(frozen=True, slots=True)
class Story:
    """A run, told about one message. ``nodes`` are in the order of the picture, from left to right."""

    nodes: tuple[str, ...]
    steps: tuple[Step, ...]
    arrows: tuple[Arrow, ...]
    focus: str
    """the message, ``#2``; empty when the story is about none"""
    held: tuple[HeldSpan, ...] = ()
    is_staged: bool = False
    """functions of users were called"""


# Where two stories part.


def first_difference(one: Story, other: Story) -> int:
    """The index of the first step that the two do not share; the length of the shorter when one continues."""
    shared = 0
    for left, right in zip(one.steps, other.steps, strict=False):
        if _told(left) != _told(right):
            break
        shared += 1
    return shared


def _told(step: Step) -> tuple[str, str, str]:
    return step.node, step.does, step.effect


# Leaves out of a story what does not matter: steps that neither touch the message nor are faults.


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
    if story.is_staged and not story.focus:  # nobody can say which call decides, so none is hidden
        kept = [keep or _calls(step) for keep, step in zip(kept, story.steps, strict=True)]
    if _count(kept) > rows_max:
        kept = _ends_only(story.steps, kept, rows_max)
    return _folded(story, kept)


def _matters(step: Step) -> bool:
    return (step.is_focus and not step.repeats) or bool(step.fault) or step.violates


def _calls(step: Step) -> bool:
    """A function of the user's is called in it, and not for the same again."""
    return not step.repeats and any(row.kind == Kind.CALLED for row in step.rows)


def _count(kept: Sequence[bool]) -> int:
    """Rows that this makes: what is kept, and one for each stretch between."""
    gaps = sum(1 for place, keep in enumerate(kept) if not keep and (place == 0 or kept[place - 1]))
    return sum(kept) + gaps


def _ends_only(steps: Sequence[Step], kept: Sequence[bool], rows_max: int) -> list[bool]:
    """The violation, the first and last steps that touch the message, faults, calls, and then what fits."""
    must = [place for place, step in enumerate(steps) if step.violates]
    faults = [place for place, step in enumerate(steps) if step.fault]
    rest = [place for place, keep in enumerate(kept) if keep]
    inward = [place for pair in zip(rest, reversed(rest), strict=True) for place in pair]
    chosen: list[bool] = [False] * len(steps)
    touching = [place for place in inward if steps[place].is_focus][:8]
    calls = [place for place in inward if _calls(steps[place])]
    for place in dict.fromkeys((*must, *faults[:4], *touching, *faults, *calls, *inward)):
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


# Calls messages by their place among all accepted ones of their pipe: ``#2``.


class Numbers:
    """The place of each message, in the order of the rows that accept them, as the judge counts."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._pipes: dict[str, Positions] = {}
        for row in rows:
            if row.kind == Kind.ACCEPTED and not row.layer:
                self._pipe(row.pipe).add(row.epoch, row.seq, row.count)
            elif row.kind == Kind.RENUMBERED:
                now = integers(facts_of(row))
                self._pipe(row.pipe).move(row.epoch, row.seq, row.count, now["epoch"], now["seq"])

    def _pipe(self, pipe: str) -> Positions:
        return self._pipes.setdefault(pipe, Positions())

    def places(self, row: Row) -> tuple[int, ...]:
        """The places of the messages that a row speaks of; those that were never accepted are left out."""
        if row.pipe not in self._pipes or not row.count:
            return ()
        parts = self._pipes[row.pipe].find(row.epoch, row.seq, row.count)
        return tuple(p for _, first, count in parts if first for p in range(first, first + count))

    def label(self, row: Row) -> str:
        """``#2``, ``#1-#3`` or ``#1 #4``; a message without a place by its number in the pipe."""
        places = self.places(row)
        if places:
            return spoken(places)
        return f"message {row.epoch}:{row.seq}" if row.count else ""


def spoken(places: Iterable[int]) -> str:
    """Places as people write them, in order, runs of three and more with a dash."""
    return " ".join(
        f"#{first}" if first == last else f"#{first}{'-' if last - first > 1 else ' '}#{last}"
        for first, last in _runs(places)
    )


def _runs(places: Iterable[int]) -> Iterator[tuple[int, int]]:
    first = last = 0
    for place in places:
        if place == last + 1 and first:
            last = place
            continue
        if first:
            yield first, last
        first = last = place
    if first:
        yield first, last
