"""Tells the story of a run from its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from surepipe.audit.findings import Violation
from surepipe.audit.trace import Kind, Row
from surepipe.simulation.chance.script import Decision
from surepipe.simulation.report.story import (
    NETWORK,
    Arrow,
    FrameEnd,
    HeldSpan,
    Numbers,
    Step,
    Story,
)
from surepipe.simulation.report.whereabouts import (
    Frame,
    Frames,
    Stages,
    Usual,
    Whereabouts,
    ends,
    frame_word,
)
from surepipe.simulation.report.words import (
    brief,
    fact,
    facts,
    fault_in,
    fault_of,
    fault_words,
    place_of,
)
from surepipe.simulation.results import RunResult

# Which rows are one step, and which faults the rows tell of without naming them.


ON_LINKS: frozenset[str] = frozenset({Kind.LOST, Kind.COPIED})
LATE: Mapping[str, str] = {"F4": "is overtaken", "F5": "is late"}
"""Faults of a frame that have no row of their own."""

_OPENS: frozenset[str] = frozenset(
    {
        *(Kind.SUBMIT, Kind.ARRIVED, Kind.WAKE, Kind.CRASH, Kind.START, Kind.PAUSE, Kind.RESUME),
        *(Kind.LOST, Kind.COPIED, Kind.FAULT, Kind.PHASE, Kind.RUN, Kind.END, Kind.TRIMMED),
        *("answer", "call"),
    }
)
"""Rows that tell of an event; what follows on the same node at the same time belongs to it."""
_ALONE = frozenset({*ON_LINKS, Kind.PHASE, Kind.RUN, Kind.END})


def groups_of(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows, those of one step together. Where the clock counts steps, each row has a time of its own."""
    ticks = bool(rows) and fact(rows[0], "clock") == "steps"
    groups: list[list[Row]] = []
    for row in rows:
        if groups and _belongs(row, groups[-1]) and (ticks or row.time_us == groups[-1][0].time_us):
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


def _belongs(row: Row, group: Sequence[Row]) -> bool:
    first, last = group[0], group[-1]
    if row.kind in _OPENS or first.kind in _ALONE:
        return False
    if (row.node, row.incarnation) != (first.node, first.incarnation):
        return False
    # Without a row `submit`, each acceptance is an event; what it caused comes after it.
    return not (row.kind == first.kind == Kind.ACCEPTED and last.kind == Kind.TRANSMIT)


class Troubles:
    """The fault of a row: where it names only the node or the frame, the decisions of the script tell."""

    def __init__(self, decisions: Sequence[Decision]) -> None:
        self._left = [(item.at, item.fault) for item in decisions if item.fault]

    def fault(self, row: Row) -> str:
        """The fault that a row tells of; each decision is told of once."""
        told = fault_of(row)
        if told:
            return told
        if row.kind in (Kind.CRASH, Kind.PAUSE):
            return self._take(lambda at, _: at.partition(":")[0] == row.node)
        if row.kind == Kind.TRANSMIT:
            return self._take(lambda at, fault: fault in LATE and _is_name(at, row))
        if row.kind == Kind.FAULT:
            words = fact(row, "text").split()
            return self._take(lambda at, _: at in words)
        return ""

    def _take(self, fits: Callable[[str, str], bool]) -> str:
        for place, (at, fault) in enumerate(self._left):
            if fits(at, fault):
                del self._left[place]
                return fault
        return ""


def _is_name(at: str, row: Row) -> bool:
    """Whether a decision is about the frame that this row transmits."""
    start = f"{row.pipe}/{row.layer or '0'} {frame_word(row)} e{row.epoch} {row.seq}+{row.count} "
    return at.startswith(start) and at.endswith(f"a{row.attempt}")


# What a node did, as a short sentence without its subject: ``accepts #1, transmits it``.


@dataclass(frozen=True, slots=True)
class _Sort:
    """Rows of one event that are told in one breath."""

    kind: str
    rows: list[Row]
    label: str
    word: str
    """what sort of frame they speak of"""


def phrase(
    rows: Sequence[Row],
    numbers: Numbers,
    frames: Frames,
    places: Mapping[str, str] | None = None,
) -> str:
    """Everything that one event of a node was and caused. ``places``: where stages are written."""
    parts: list[str] = []
    before = ""
    raises = any(row.kind == Kind.RAISED for row in rows)
    heard = [row for row in rows if not (raises and row.kind == Kind.CALLED) or fact(row, "stage")]
    for sort in _sorts(heard, numbers, frames):
        text = _TOLD[sort.kind](sort) if sort.kind in _TOLD else ""
        if stage := fact(sort.rows[0], "stage"):
            text = _of_stage(sort, stage, (places or {}).get(stage, ""), text)
        if text and sort.label and sort.label == before:
            text = text.replace(sort.label, "it" if _is_one(sort.label) else "them")
        before = sort.label or before
        if text and text not in parts:
            parts.append(text)
    if len(parts) > 1:
        parts = [part for part in parts if part not in (_HANDED, _RETURNED)]
    told = [*parts, *_silence(rows, frames, len(parts))]
    return ", ".join(told) or _PLAIN.get(rows[0].kind, f"{rows[0].kind}")


def _of_stage(sort: _Sort, stage: str, place: str, text: str) -> str:
    """What a function of the user does."""
    row = sort.rows[0]
    if sort.kind == Kind.CALLED:
        return f"calls {stage}{f' ({place})' if place else ''} with {sort.label}"
    if sort.kind == Kind.RETURNED:
        answer = fact(row, "answer")
        return f"{stage} gives {brief(answer)}"
    if sort.kind == Kind.RAISED:
        by_itself = "" if fact(row, "fault") else "raises "
        return f"{stage} {by_itself}{fact(row, 'text')}"
    return text


def _silence(rows: Sequence[Row], frames: Frames, parts: int) -> list[str]:
    """What did not happen, where one would expect it."""
    taken = sum(row.count for row in rows if row.kind == Kind.ACCEPTED)
    if taken and not _went_out(rows):
        return ["keeps it" if taken == 1 else "keeps them"]
    if rows[0].kind == Kind.ARRIVED and parts == 1 and frames.carries(rows[0]):
        return ["delivers nothing"]
    return []


def _is_one(label: str) -> bool:
    return " " not in label and "-" not in label


def _went_out(rows: Sequence[Row]) -> bool:
    return any(row.kind in (Kind.TRANSMIT, Kind.PERSISTED) for row in rows)


def _sorts(rows: Sequence[Row], numbers: Numbers, frames: Frames) -> list[_Sort]:
    """Neighbours of one sort together; frames with messages and frames about messages are two sorts."""
    gathered: list[tuple[str, str, list[Row]]] = []
    for row in rows:
        word = frames.word(row) if row.kind in _FRAMES else ""
        kind = f"{row.kind} control" if word and not frames.carries(row) else str(row.kind)
        if gathered and gathered[-1][:2] == (kind, word):
            gathered[-1][2].append(row)
        else:
            gathered.append((kind, word, [row]))
    return [_Sort(kind, some, _label(some, numbers), word) for kind, word, some in gathered]


def _label(rows: Sequence[Row], numbers: Numbers) -> str:
    labels = dict.fromkeys(filter(None, (numbers.label(row) for row in rows)))
    return " ".join(labels)


def _verb(word: str) -> Callable[[_Sort], str]:
    return lambda sort: f"{word} {sort.label}".strip()


def _fixed(words: str) -> Callable[[_Sort], str]:
    return lambda _sort: words


def _transmits(sort: _Sort) -> str:
    if all(row.attempt > 1 for row in sort.rows):
        return f"transmits {sort.label} again"
    return f"transmits {sort.label}"


def _says(sort: _Sort) -> str:
    verb = "confirms" if sort.word == "confirm" else f"says {sort.word}"
    return f"{verb} {sort.label}".strip()


def _hears(sort: _Sort) -> str:
    if sort.word == "confirm":
        return f"hears: {sort.label} confirmed" if sort.label else "hears a confirm"
    return f"hears {sort.word} {sort.label}".strip()


def _writes(sort: _Sort) -> str:
    """State and other things that are no messages go unsaid."""
    return f"writes {sort.label} to disk" if sort.label else ""


def _loses(sort: _Sort) -> str:
    reason = fact(sort.rows[0], "reason") or fact(sort.rows[0], "text")
    return f"loses {sort.label}{'' if not reason or fault_in(reason) else f': {reason}'}"


def _about(verb: str) -> Callable[[_Sort], str]:
    return lambda sort: f"{verb} the {sort.word} of {sort.label}".removesuffix(" of ")


def _rejects(sort: _Sort) -> str:
    reason = fact(sort.rows[0], "reason") or fact(sort.rows[0], "text")
    return f"refuses a message{': ' + reason if reason else ''}"


_CRASHES: Mapping[str, str] = {
    "": "crash, memory lost",
    "crash": "crash, memory lost",
    "power": "power cut, memory lost",
    "mailbox": "stops, its mailbox is lost",
}


def _crashes(sort: _Sort) -> str:
    text = fact(sort.rows[0], "text")
    if text in _CRASHES or fault_in(text):
        return _CRASHES.get(text, _CRASHES[""])
    return text if text.startswith("stops: ") else f"crash, {text}"


def _starts(sort: _Sort) -> str:
    return "starts" if sort.rows[0].incarnation <= 1 else "starts anew"


def _commits(sort: _Sort) -> str:
    told = facts(sort.rows[-1])
    place = told.get("next", told.get("index"))
    return f"commits index {place}" if place is not None else f"commits {sort.label}".strip()


def _fault(sort: _Sort) -> str:
    row = sort.rows[0]
    words = fault_words(fault_of(row))
    verb = fact(row, "verb")
    return fact(row, "text") or ", ".join(filter(None, (words, verb if verb not in words else "")))


_FRAMES = frozenset({Kind.TRANSMIT, Kind.ARRIVED, Kind.LOST, Kind.COPIED})
_PLAIN: Mapping[str, str] = {Kind.PERSISTED: "writes its state to disk"}
_HANDED = "is handed a message"
_RETURNED = "the handler returns"
_TOLD: Mapping[str, Callable[[_Sort], str]] = {
    Kind.SUBMIT: _fixed(_HANDED),
    Kind.ACCEPTED: _verb("accepts"),
    Kind.REJECTED: _rejects,
    Kind.UNKNOWN: _verb("does not learn the fate of"),
    Kind.DELIVERED: _verb("delivers"),
    Kind.SETTLED: _verb("settles"),
    Kind.CONFIRMED: _verb("forgets"),
    Kind.DEAD: _verb("sets aside as dead letter"),
    Kind.TRIMMED: _verb("trims"),
    Kind.CRASH: _crashes,
    Kind.START: _starts,
    Kind.END: _fixed("the run ends"),
    Kind.TRANSMIT: _transmits,
    f"{Kind.TRANSMIT} control": _says,
    Kind.LOST: _loses,
    f"{Kind.LOST} control": _about("loses"),
    Kind.COPIED: _verb("copies"),
    f"{Kind.COPIED} control": _about("copies"),
    Kind.ARRIVED: _verb("receives"),
    f"{Kind.ARRIVED} control": _hears,
    Kind.APPENDED: _verb("appends"),
    Kind.FETCHED: _verb("reads"),
    Kind.COMMITTED: _commits,
    Kind.PERSISTED: _writes,
    Kind.WAKE: _fixed("time runs out"),
    Kind.CALLED: _verb("calls the handler with"),
    Kind.RETURNED: _fixed(_RETURNED),
    Kind.RAISED: _verb("the handler raises for"),
    Kind.FAULT: _fault,
    Kind.REFUSED: _fixed("does not take what was done"),
    Kind.PAUSE: _fixed("stands still"),
    Kind.RESUME: _fixed("goes on"),
    Kind.RENUMBERED: _fixed("numbers anew what is left"),
    "effect": lambda sort: "; ".join(fact(row, "text") for row in sort.rows[:3]),
}


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
    usual: Usual | None = None,
) -> Story:
    """The story of a run up to its violation; with none, to its end.

    ``focus`` names the message when there is no violation here: that of the run to compare with. ``places``: where
    the functions of stages are written. ``usual``: what they answer for the message when nothing goes wrong.
    """
    last = violation.step if violation else result.rows[-1].step
    rows = [row for row in result.rows if row.step <= last]
    told = _Teller(
        result,
        rows,
        violation or focus,
        places or {},
        usual or Usual(),
        holds=violation is None,
    )
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
        usual: Usual,
        *,
        holds: bool,
    ) -> None:
        self._rows = rows
        self._numbers = Numbers(result.rows)
        self._frames = Frames(rows)
        self._troubles = Troubles(result.script.decisions)
        pipe, place = (about.pipe, about.position) if about else ("", 0)
        self._is_staged = is_staged(result.rows)
        self._where = Whereabouts(pipe, place, self._numbers, self._frames)
        if self._is_staged:
            self._where.stages = Stages(about, usual, places, holds=holds)
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
        more = more or (again and faults[:1] == [STOP])
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
            fate=_FATES[ended.kind] if ended else FrameEnd.FLYING,
            is_focus=self._where.concerns(frame.original),
            is_control=not self._frames.carries(frame.original),
            fork=begun if frame.begun is not frame.original else -1,
        )


STOP = "stop"
"""What the row of a process says that can't go on by itself, in place of a fault."""
_CALLS = frozenset({Kind.CALLED, Kind.RETURNED, Kind.RAISED})


def _decide(steps: list[Step], violation: Violation, where: Whereabouts) -> None:
    """Mark the step that decided a finding at the end: it is shown as the one that breaks the rule."""
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


_TELLING = (
    " is delivered",
    " comes out",
    " gave ",
    "without faults ",
    " fails in ",
    " is a dead letter",
)


def _telling(effects: Sequence[str]) -> str:
    """Only the last of what a step did to the message counts, but a delivery is never hidden."""
    telling = [text for text in effects if any(sign in text for sign in _TELLING)]
    return (telling or list(effects) or [""])[-1]


def _held(holders: Sequence[tuple[str, ...]]) -> tuple[HeldSpan, ...]:
    """Stretches, from who has the message after each step."""
    since: dict[str, int] = {}
    held: list[HeldSpan] = []
    for place, nodes in enumerate(holders):
        lost = [name for name in since if name not in nodes]
        held += [HeldSpan(node, since.pop(node), place) for node in lost]
        since = {**dict.fromkeys(nodes, place), **since}
    last = len(holders) - 1
    return (*held, *(HeldSpan(node, begin, last, stays=True) for node, begin in since.items()))


_FATES: Mapping[str, FrameEnd] = {Kind.ARRIVED: FrameEnd.ARRIVED, Kind.LOST: FrameEnd.LOST}


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
