"""Tells the story of a run from its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from surepipe.simulation.findings import RunResult, Violation
from surepipe.simulation.report.frames import Frame, Frames, ends
from surepipe.simulation.report.grouping import LATE, ON_LINKS, Troubles, groups_of
from surepipe.simulation.report.numbers import Numbers
from surepipe.simulation.report.phrases import phrase
from surepipe.simulation.report.story import NETWORK, Arrow, Fate, Held, Step, Story
from surepipe.simulation.report.whereabouts import Stages, Whereabouts
from surepipe.simulation.report.words import fact, fault_words, place_of
from surepipe.simulation.trace import Kind, Row

_SILENT: frozenset[str] = frozenset(
    {Kind.RUN, Kind.MARK, Kind.PHASE, Kind.SUBMIT, Kind.UNKNOWN, "notice", "answer", "refused"}
)
"""Rows that make no step of their own."""
_NAMED: Mapping[str, str] = {Kind.LOST: NETWORK, Kind.COPIED: NETWORK, Kind.END: "end"}
"""Who does what has no node."""


def tell(
    result: RunResult,
    violation: Violation | None,
    focus: Violation | None = None,
    places: Mapping[str, str] | None = None,
    usual: Mapping[str, str] | None = None,
) -> Story:
    """The story of a run up to its violation; with none, to its end.

    ``focus`` names the message when there is no violation here: that of the run to compare with. ``places``: where
    the functions of stages are written. ``usual``: what they answer for the message when nothing goes wrong.
    """
    last = violation.step if violation else result.rows[-1].step
    rows = [row for row in result.rows if row.step <= last]
    told = _Teller(result, rows, violation or focus, places or {}, usual or {})
    return told.story(violation)


def is_staged(rows: Iterable[Row]) -> bool:
    """Whether functions of users were called."""
    return any(row.kind == Kind.CALLED and fact(row, "stage") for row in rows)


class _Teller:
    """Everything that is known of a run while its story is told."""

    def __init__(
        self,
        result: RunResult,
        rows: Sequence[Row],
        about: Violation | None,
        places: Mapping[str, str],
        usual: Mapping[str, str],
    ) -> None:
        self._rows = rows
        self._numbers = Numbers(result.rows)
        self._frames = Frames(rows)
        self._troubles = Troubles(result.script.decisions)
        pipe, place = (about.pipe, about.position) if about else ("", 0)
        self._is_staged = is_staged(result.rows)
        self._where = Whereabouts(pipe, place, self._numbers, self._frames)
        if self._is_staged:
            self._where.stages = Stages(about, usual, places)
        self._focus = self._where.name if place else ""
        self._places = places
        self._quota = Counter(item.fault for item in result.script.decisions if item.fault)
        self._strikes: Counter[str] = Counter()
        self._said: Counter[tuple[str, str, str]] = Counter()

    def story(self, violation: Violation | None) -> Story:
        """All of it."""
        violates = violation is not None
        steps: list[Step] = []
        holders: list[tuple[str, ...]] = []
        drains = False
        groups = groups_of(self._rows)
        for group in groups:
            drains = drains or _begins_drain(group[0])
            if step := self._step(group, drains=drains, violates=violates and group is groups[-1]):
                steps.append(step)
                holders.append(self._where.holders())
        steps = [self._with_more(step) for step in steps]
        if violation is not None and self._is_staged:
            _decide(steps, violation, self._where)
        arrows = self._arrows(steps)
        held = _held(holders)
        nodes = _nodes(steps, arrows)
        return Story(nodes, tuple(steps), arrows, self._focus, held, self._is_staged)

    def _with_more(self, step: Step) -> Step:
        """The first row of a decision that befell many frames, with how many they are."""
        more = self._strikes[step.fault] - self._quota[step.fault]
        if step.kind not in ON_LINKS or not self._quota[step.fault] or more <= 0:
            return step
        self._strikes[step.fault] = 0
        frames = "1 more frame" if more == 1 else f"{more} more frames"
        return replace(step, does=f"{step.does}, and {frames} ({fault_words(step.fault)})")

    def _step(self, group: Sequence[Row], *, drains: bool, violates: bool) -> Step | None:
        effects = [effect for effect in map(self._where.see, group) if effect]
        faults = [fault for fault in map(self._troubles.fault, group) if fault]
        told = any(row.kind == Kind.REFUSED for row in group) and effects
        if all(map(_is_silent, group)) and not violates and not told:
            return None
        more = bool(faults) and self._is_more(group[0], faults[0])
        node, effect = _NAMED.get(group[0].kind, place_of(group[0])), _telling(effects)
        spoken = self._of_focus(group)
        does = phrase(spoken, self._numbers, self._frames, self._places) + _late(faults)
        self._said[node, does, effect] += 1
        often = any(row.kind in _CALLS for row in group) + 1
        again = self._is_staged and self._said[node, does, effect] > often
        return Step(
            node=node,
            rows=tuple(group),
            does=does,
            effect=effect,
            fault=faults[0] if faults and not more else "",
            is_focus=bool(effects) or violates,
            violates=violates,
            drains=drains and not self._is_staged,
            repeats=(more or (again and not faults)) and not violates,
        )

    def _of_focus(self, group: Sequence[Row]) -> Sequence[Row]:
        """Of several messages for which functions are called in one step, only the one that this is about."""
        calls = [row for row in group if row.kind in _CALLS]
        if not any(map(self._where.concerns, calls)):
            return group
        return [row for row in group if row.kind not in _CALLS or self._where.concerns(row)]

    def _is_more(self, row: Row, fault: str) -> bool:
        """Whether a frame is struck by a decision that was told of: a cut, or a replaced process that goes on."""
        if row.kind not in ON_LINKS or not self._quota[fault]:
            return False
        self._strikes[fault] += 1
        return self._strikes[fault] > self._quota[fault]

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


_CALLS = frozenset({Kind.CALLED, Kind.RETURNED, Kind.RAISED})


def _decide(steps: list[Step], violation: Violation, where: Whereabouts) -> None:
    """What was found at the end was decided before: that step is shown as the one that breaks the rule."""
    stages = where.stages
    if stages is None or not violation.position:
        return
    step, why = stages.decisive(violation)
    at = next(
        (n for n, one in enumerate(steps) if any(row.step == step for row in one.rows)),
        len(steps) - 1,
    )
    steps[-1] = replace(steps[-1], violates=False)
    steps[at] = replace(steps[at], violates=True, is_focus=True, repeats=False, verdict=why)


def _is_silent(row: Row) -> bool:
    return row.kind in _SILENT or (row.kind == Kind.START and row.incarnation <= 1)


def _begins_drain(row: Row) -> bool:
    return row.kind == Kind.PHASE and fact(row, "phase") in ("heal", "drain", "quiescent")


def _late(faults: Sequence[str]) -> str:
    return "".join(f"; the frame {LATE[fault]}" for fault in faults if fault in LATE)


_TELLING = (" is delivered", " comes out", " gave ", "without faults ", " fails in ")


def _telling(effects: Sequence[str]) -> str:
    """Only the last of what a step did to the message counts, but a delivery is never hidden."""
    telling = [text for text in effects if any(sign in text for sign in _TELLING)]
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
