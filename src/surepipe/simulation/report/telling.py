"""Tells the story of a run from its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from surepipe.simulation.findings import RunResult, Violation
from surepipe.simulation.report.frames import Frame, Frames, ends
from surepipe.simulation.report.grouping import LATE, Troubles, groups_of
from surepipe.simulation.report.numbers import Numbers
from surepipe.simulation.report.phrases import phrase
from surepipe.simulation.report.story import NETWORK, Arrow, Fate, Held, Step, Story
from surepipe.simulation.report.whereabouts import Whereabouts
from surepipe.simulation.report.words import fact, place_of
from surepipe.simulation.trace import Kind, Row

_SILENT: frozenset[str] = frozenset(
    {Kind.RUN, Kind.MARK, Kind.PHASE, Kind.SUBMIT, Kind.UNKNOWN, "notice", "answer", "refused"}
)
"""Rows that make no step of their own."""
_NAMED: Mapping[str, str] = {Kind.LOST: NETWORK, Kind.COPIED: NETWORK, Kind.END: "end"}
"""Who does what has no node."""


def tell(result: RunResult, violation: Violation | None, focus: Violation | None = None) -> Story:
    """The story of a run up to its violation; with none, to its end.

    ``focus`` names the message when there is no violation here: that of the run to compare with.
    """
    last = violation.step if violation else result.rows[-1].step
    rows = [row for row in result.rows if row.step <= last]
    return _Teller(result, rows, violation or focus).story(violates=violation is not None)


class _Teller:
    """Everything that is known of a run while its story is told."""

    def __init__(self, result: RunResult, rows: Sequence[Row], about: Violation | None) -> None:
        self._rows = rows
        self._numbers = Numbers(result.rows)
        self._frames = Frames(rows)
        self._troubles = Troubles(result.script.decisions)
        pipe, place = (about.pipe, about.position) if about else ("", 0)
        self._where = Whereabouts(pipe, place, self._numbers, self._frames)
        self._focus = self._where.name if place else ""

    def story(self, *, violates: bool) -> Story:
        """All of it."""
        steps: list[Step] = []
        holders: list[tuple[str, ...]] = []
        drains = False
        groups = groups_of(self._rows)
        for group in groups:
            drains = drains or _begins_drain(group[0])
            if step := self._step(group, drains=drains, violates=violates and group is groups[-1]):
                steps.append(step)
                holders.append(self._where.holders())
        arrows = self._arrows(steps)
        return Story(_nodes(steps, arrows), tuple(steps), arrows, self._focus, _held(holders))

    def _step(self, group: Sequence[Row], *, drains: bool, violates: bool) -> Step | None:
        effects = [effect for effect in map(self._where.see, group) if effect]
        faults = [fault for fault in map(self._troubles.fault, group) if fault]
        if all(map(_is_silent, group)) and not violates:
            return None
        return Step(
            node=_NAMED.get(group[0].kind, place_of(group[0])),
            rows=tuple(group),
            does=phrase(group, self._numbers, self._frames) + _late(faults),
            effect=_telling(effects),
            fault=faults[0] if faults else "",
            is_focus=bool(effects) or violates,
            violates=violates,
            drains=drains,
        )

    def _arrows(self, steps: Sequence[Step]) -> tuple[Arrow, ...]:
        at = {row.step: place for place, step in enumerate(steps) for row in step.rows}
        known = (frame for frame in self._frames.all if frame.begun.step in at)
        return tuple(self._arrow(frame, at, len(steps) - 1) for frame in known)

    def _arrow(self, frame: Frame, at: Mapping[int, int], last: int) -> Arrow:
        begun, ended = at[frame.begun.step], frame.ended
        source, target = ends(frame)
        return Arrow(
            text=_frame_text(frame, self._numbers, self._frames),
            source=source,
            target=target,
            begin=at.get(frame.original.step, begun),
            end=at.get(ended.step, last) if ended else last,
            fate=_FATES[ended.kind] if ended else Fate.FLYING,
            is_focus=self._where.concerns(frame.original),
            is_control=not self._frames.carries(frame.original),
            fork=begun if frame.begun is not frame.original else -1,
        )


def _is_silent(row: Row) -> bool:
    return row.kind in _SILENT or (row.kind == Kind.START and row.incarnation <= 1)


def _begins_drain(row: Row) -> bool:
    return row.kind == Kind.PHASE and fact(row, "phase") in ("heal", "drain", "quiescent")


def _late(faults: Sequence[str]) -> str:
    return "".join(f"; the frame {LATE[fault]}" for fault in faults if fault in LATE)


def _telling(effects: Sequence[str]) -> str:
    """Only the last of what a step did to the message counts, but a delivery is never hidden."""
    telling = [text for text in effects if " is delivered" in text or " comes out" in text]
    return (telling or list(effects) or [""])[-1]


def _held(holders: Sequence[tuple[str, ...]]) -> tuple[Held, ...]:
    """Stretches, from who has the message after each step."""
    since: dict[str, int] = {}
    held: list[Held] = []
    for place, nodes in enumerate(holders):
        lost = [name for name in since if name not in nodes]
        held += [Held(node, since.pop(node), place) for node in lost]
        since = {**dict.fromkeys(nodes, place), **since}
    last = len(holders) - 1
    return (*held, *(Held(node, begin, last, stays=True) for node, begin in since.items()))


_FATES: Mapping[str, Fate] = {Kind.ARRIVED: Fate.ARRIVED, Kind.LOST: Fate.LOST}


def _frame_text(frame: Frame, numbers: Numbers, frames: Frames) -> str:
    """``#2, again`` for messages; what control frames are, and which messages they speak of."""
    row = frame.original
    label = numbers.label(row)
    if not frames.carries(row):
        return f"{frames.word(row)} {label}".strip()
    extra = ", copy" if frame.begun is not row else ", again" if row.attempt > 1 else ""
    return label + extra


def _nodes(steps: Sequence[Step], arrows: Sequence[Arrow]) -> tuple[str, ...]:
    """Senders left, receivers right: along the frames that carry messages, then as they first appear."""
    acting = (step.node for step in steps if step.kind not in _NAMED)
    meeting = (end for arrow in arrows for end in (arrow.source, arrow.target))
    seen = [name for name in dict.fromkeys((*acting, *meeting)) if name not in ("", NETWORK)]
    follows = {
        name: {a.source for a in arrows if a.target == name and not a.is_control} for name in seen
    }
    ordered: list[str] = []
    while len(ordered) < len(seen):
        rest = [name for name in seen if name not in ordered]
        ready = [name for name in rest if not follows[name] - set(ordered) - {name}]
        ordered.append(min(ready or rest, key=lambda name: (_role(name), rest.index(name))))
    return tuple(ordered)


def _role(name: str) -> int:
    """Where a node stands by what it is called, when no frame tells."""
    word = name.lower()
    roles = ("sender", "store", "receiver", "outside")
    return next((rank for rank, role in enumerate(roles) if role in word), 1)
