"""Marks: what a campaign must have exercised before it may say *held*. They are read off the rows of each run.

A fault that struck is not enough: it must have mattered, which is that what it struck was sent again, delivered
again, or restarted before a message came out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias, cast

from surepipe.audit.properties.ledger import frame_kind
from surepipe.audit.trace import Kind, Row
from surepipe.errors import MisuseError
from surepipe.simulation.causal import OUTPUTS, cause_of, steps_towards
from surepipe.simulation.chance.script import Decision
from surepipe.simulation.faults import BY_ID
from surepipe.simulation.options import DRAINS

# Which faults mattered: it is not enough that one struck, something that came out must have depended on it.
#
# A frame that was lost mattered when another one of its kind had to do its work, or when newer messages came
# out without it. A frame that came late, again or broken mattered when somebody acted upon it. An end of a
# process mattered when a later one had an output, a fault of a store when a call was answered after it and
# something came out.


Frame: TypeAlias = tuple[str, str, str, int, int, int]
"""link, kind, layer, epoch, seq, count."""

CRASHES = frozenset({"F8", "F10", "F26", "F31"})
_SHIFTED = frozenset({"delay", "overtake"})
_ALL_THEY_ARE = frozenset({"F7", "F22", "F24"})
"""Nothing can repair the first, and the other two matter by what they are: offers that are refused."""


def mattered(rows: Sequence[Row], decisions: Iterable[Decision]) -> frozenset[str]:
    """The ids of the faults of a run (of its rows, and of decisions that shifted frames) that mattered."""
    reader = _EffectReader(rows)
    found = {fault for row in rows for fault in reader.of_row(row)}
    shifted = {
        (one.authority.removeprefix("network/"), *_named(one.at)): one.fault
        for one in decisions
        if one.fault and one.verb in _SHIFTED
    }
    if shifted:
        found |= reader.shifted(shifted)
    if reader.has_output_after(0):
        found |= {one.fault for one in decisions if one.verb in ("slow", "step") and one.fault}
    return frozenset(found)


class _EffectReader:
    """The rows of one run, and what led to its outputs."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows
        self.towards = steps_towards(rows)
        self.causing = {cause_of(row) for row in rows}
        self.last_output = max((row.step for row in rows if row.kind in OUTPUTS), default=-1)
        self.last_answer = max((row.step for row in rows if row.kind == "answer"), default=-1)
        self.outputs_of = {
            row.node: row.incarnation
            for row in rows
            if row.kind in OUTPUTS or self.towards[row.step]
        }
        self.useful = self._useful()
        self._looks: Mapping[str, Callable[[Row], Iterable[str]]] = {
            Kind.LOST: self._lost,
            Kind.ARRIVED: self._arrived,
            Kind.CRASH: self._crashed,
            Kind.PAUSE: self._paused,
            Kind.FAULT: self._struck,
            Kind.RAISED: self._raised,
            Kind.REJECTED: self._rejected,
        }
        self.copies: dict[tuple[Frame, int, int], str] = {
            (frame_of(row), row.attempt, row.copy): str(_effect_facts(row).get("fault"))
            for row in rows
            if row.kind == Kind.COPIED
        }

    def of_row(self, row: Row) -> Iterable[str]:
        """The faults that this row shows to have mattered."""
        look = self._looks.get(row.kind)
        return look(row) if look is not None else ()

    def has_output_after(self, step: int) -> bool:
        """Whether anything came out later."""
        return self.last_output > step

    def shifted(self, frames: Mapping[tuple[str, str, int], str]) -> set[str]:
        """Of the frames that came late, those whose arrival made their receiver do something."""
        return {
            frames[key]
            for row in self.rows
            if row.kind == Kind.ARRIVED
            and row.step in self.causing
            and (key := (row.link, _name(row), row.attempt)) in frames
        }

    def _useful(self) -> dict[tuple[str, str, str], list[Row]]:
        """Transmissions on the path of an output, by link, kind and layer."""
        found: dict[tuple[str, str, str], list[Row]] = {}
        for row in self.rows:
            if row.kind == Kind.TRANSMIT and self.towards[row.step]:
                found.setdefault(frame_of(row)[:3], []).append(row)
        return found

    def _lost(self, row: Row) -> Iterable[str]:
        fault = str(_effect_facts(row).get("fault", ""))
        if not fault:
            return ()
        instead = self.useful.get(frame_of(row)[:3], ())
        is_data = frame_of(row)[1] == "data"
        if any(one.step > row.step and (not is_data or _meet(one, row)) for one in instead):
            return (fault,)
        if fault in _ALL_THEY_ARE or (is_data and self._is_missing(row)):
            return (fault,)
        return ()

    def _is_missing(self, lost: Row) -> bool:
        """Newer messages came out and this one did not: what came out shows the loss."""
        later = [row for row in self.rows[lost.step :] if row.kind == Kind.SETTLED]
        is_newer = any(row.epoch == lost.epoch and row.seq > lost.last for row in later)
        return is_newer and not any(_meet(row, lost) for row in later)

    def _arrived(self, row: Row) -> Iterable[str]:
        if not row.copy or row.step not in self.causing:
            return ()
        fault = self.copies.get((frame_of(row), row.attempt, row.copy), "")
        return (fault,) if fault and fault != "F28" else ()

    def _crashed(self, row: Row) -> Iterable[str]:
        fault = str(_effect_facts(row).get("fault", ""))
        is_followed = self.outputs_of.get(row.node, 0) > row.incarnation
        return (fault,) if fault in CRASHES and is_followed else ()

    def _paused(self, row: Row) -> Iterable[str]:
        """A pause is over when the process acts again; a zombie acts while its successor does."""
        later = [one for one in self.rows[row.step :] if one.node == row.node]
        resumed = next((one.step for one in later if one.kind == Kind.RESUME), None)
        if resumed is None or not self.has_output_after(resumed):
            return ()
        starts = [one for one in later if one.kind == Kind.START and one.step < resumed]
        return (f"F28{row.node[0]}" if starts else "F28",)

    def _struck(self, row: Row) -> Iterable[str]:
        facts = _effect_facts(row)
        fault = str(facts.get("fault", ""))
        if fault in ("F6", "F7"):
            return ("F7",) if fault == "F7" else ()  # what a partition cut off tells of itself
        if fault == "F14" and row.node == "index":
            fault = "F17"
        if fault == "F25":
            return (fault,) if self.has_output_after(row.step) else ()
        if fault == "F25r":
            return (fault,) if facts.get("refused") and self.has_output_after(row.step) else ()
        is_used = self.last_answer > row.step and self.has_output_after(row.step)
        return ("F30" if facts.get("verb") == "refuse" else fault,) if is_used else ()

    def _raised(self, row: Row) -> Iterable[str]:
        return ("F20",) if self.has_output_after(row.step) else ()

    def _rejected(self, row: Row) -> Iterable[str]:
        reason = _effect_facts(row).get("reason")
        return {"full": ("F22",), "too-large": ("F24",)}.get(str(reason), ())


def frame_of(row: Row) -> Frame:
    """Identifies the frame of a row, whatever copy or attempt."""
    return (row.link, frame_kind(row), row.layer, row.epoch, row.seq, row.count)


def _name(row: Row) -> str:
    """The frame as decisions name it, without what only a control frame says, and without its attempt."""
    run = f" {row.seq}+{row.count}" if row.count else ""
    return f"{row.pipe}/{row.layer} {frame_kind(row)} e{row.epoch}{run}"


def _named(at: str) -> tuple[str, int]:
    """The same of the name in a decision, and the attempt."""
    place, kind, epoch, *rest = at.split(" ")
    run = f" {rest[0]}" if rest and "+" in rest[0] else ""
    attempt = next((word for word in reversed(rest) if word[0] == "a"), "a0")
    return f"{place} {kind} {epoch}{run}", int(attempt[1:])


def _meet(one: Row, other: Row) -> bool:
    return one.epoch == other.epoch and one.seq <= other.last and other.seq <= one.last


def _effect_facts(row: Row) -> Mapping[str, object]:
    return cast("Mapping[str, object]", json.loads(row.detail)) if row.detail else {}


_REGISTRY: dict[str, str] = {}


def register(name: str, meaning: str) -> str:
    """Make a mark known. Raises MisuseError for a name that means something else already."""
    if _REGISTRY.get(name, meaning) != meaning:
        raise MisuseError(f"mark {name!r} is registered already: {_REGISTRY[name]}")
    _REGISTRY[name] = meaning
    return name


def registered() -> Mapping[str, str]:
    """All marks, with what each means."""
    return dict(_REGISTRY)


CONFIRM_LOST = register("confirm-lost", "a confirm was lost after its message was settled")
CROSSED = register("crossed", "a message was sent again while its confirm was on the way")
HELD = register("held-three", "three messages behind a hole had arrived before it was filled")
LATE_COPY = register("late-copy", "a copy arrived after something newer was settled")
DEAD_LETTER = register("dead-letter", "a message became a dead letter")
REJECTED_FULL = register("rejected-full", "a sender was full")
ZOMBIE = register("zombie-acted", "a process that had been replaced did something")
CRASH_AFTER = tuple(
    register(f"crash-after-{k}", f"a process ended after effect {k} of an event") for k in range(3)
)
CRASH_SETTLED = register("crash-settled", "a receiver ended between settling and confirming")
ROLLED_BACK = register("rolled-back-lagging", "the position of a lagging reader was rolled back")
DRAINED: Mapping[str, str] = {
    drain.value: register(
        f"drain-{drain.value}",
        f"a run came to its end over a {'slow' if drain.is_slow else 'quick'} network, and "
        f"{'new messages kept coming' if drain.has_load else 'nothing new came'}",
    )
    for drain in DRAINS
}
MATTERED: Mapping[str, str] = {
    kind.id: register(f"mattered-{kind.id}", f"something that came out depended on {kind.kind}")
    for kind in BY_ID.values()
}
STRUCK: Mapping[str, str] = {
    kind.id: register(f"fault-{kind.id}", f"{kind.kind} struck") for kind in BY_ID.values()
}


@dataclass(frozen=True, slots=True)
class Exercised:
    """The marks of one run, and the faults that struck."""

    marks: frozenset[str]
    faults: frozenset[str]

    def pairs(self) -> frozenset[tuple[str, str]]:
        """The pairs of faults that struck together."""
        return frozenset(combinations(sorted(self.faults), 2))


def exercised(
    rows: Sequence[Row], faults: Iterable[str], drain: str, decisions: Sequence[Decision] = ()
) -> Exercised:
    """Read the marks off a run; ``faults`` are those that its decisions brought."""
    reader = _Reader()
    for row in rows:
        reader.see(row)
    struck = frozenset(faults) & STRUCK.keys()
    found = reader.found | {STRUCK[fault] for fault in struck}
    if struck:
        found |= {MATTERED[fault] for fault in mattered(rows, decisions) & struck}
    if drain in DRAINED:
        found.add(DRAINED[drain])
    return Exercised(frozenset(found), struck)


_PASSIVE = frozenset((Kind.PAUSE, Kind.RESUME, Kind.CRASH, Kind.LOST))
"""Rows of a process that did nothing itself."""


class _Reader:
    """One pass over the rows of a run."""

    def __init__(self) -> None:
        self.found: set[str] = set()
        self._settled: set[tuple[int, int]] = set()
        self._highest = 0
        self._arrived: dict[tuple[int, int], int] = {}
        self._waiting: set[tuple[int, int]] = set()
        self._current: dict[str, int] = {}
        self._is_unsaid = False
        self._appended = self._committed = 0
        self._looks: dict[str, Callable[[Row], None]] = {
            Kind.SETTLED: self._at_settled,
            Kind.LOST: self._at_lost,
            Kind.ARRIVED: self._at_arrived,
            Kind.DEAD: self._at_dead,
            Kind.REJECTED: self._at_rejected,
            Kind.CRASH: self._at_crash,
            Kind.START: self._at_start,
            Kind.TRANSMIT: self._at_transmit,
            Kind.APPENDED: self._at_appended,
            Kind.COMMITTED: self._at_committed,
            Kind.FAULT: self._at_fault,
        }

    def see(self, row: Row) -> None:
        if row.incarnation < self._current.get(row.node, 0) and row.kind not in _PASSIVE:
            self.found.add(ZOMBIE)
        look = self._looks.get(row.kind)
        if look is not None:
            look(row)

    def _at_settled(self, row: Row) -> None:
        if len(self._waiting) >= 3:
            self.found.add(HELD)
        for seq in range(row.seq, row.last + 1):
            self._settled.add((row.epoch, seq))
            self._waiting.discard((row.epoch, seq))
        self._highest = max(self._highest, row.last)
        self._is_unsaid = True

    def _at_lost(self, row: Row) -> None:
        if _frame(row) == "confirm" and (row.epoch, row.last) in self._settled:
            self.found.add(CONFIRM_LOST)

    def _at_arrived(self, row: Row) -> None:
        if _frame(row) != "data":
            return
        identity = (row.epoch, row.seq)
        is_repeat = identity in self._arrived
        if is_repeat and row.last < self._highest:
            self.found.add(LATE_COPY)
        self._arrived[identity] = row.step
        if identity not in self._settled:
            self._waiting.update((row.epoch, seq) for seq in range(row.seq, row.last + 1))

    def _at_dead(self, row: Row) -> None:
        del row
        self.found.add(DEAD_LETTER)

    def _at_rejected(self, row: Row) -> None:
        if '"full"' in row.detail:
            self.found.add(REJECTED_FULL)

    def _at_crash(self, row: Row) -> None:
        if self._is_unsaid and row.node == "receiver":
            self.found.add(CRASH_SETTLED)
        after = _facts(row).get("after")
        if isinstance(after, int) and 0 <= after < len(CRASH_AFTER):
            self.found.add(CRASH_AFTER[after])

    def _at_start(self, row: Row) -> None:
        self._current[row.node] = row.incarnation

    def _at_transmit(self, row: Row) -> None:
        if row.attempt > 1 and _frame(row) == "data" and (row.epoch, row.last) in self._settled:
            self.found.add(CROSSED)
        self._is_unsaid = self._is_unsaid and _frame(row) == "data"

    def _at_appended(self, row: Row) -> None:
        self._appended += row.count

    def _at_committed(self, row: Row) -> None:
        self._committed = int(str(_facts(row).get("next", 1))) - 1

    def _at_fault(self, row: Row) -> None:
        is_back = (row.node == "index" and '"F14"' in row.detail) or '"F16"' in row.detail
        if is_back and 0 < self._committed < self._appended:
            self.found.add(ROLLED_BACK)


def _frame(row: Row) -> str:
    """The kind of a frame, without reading JSON for each of them."""
    start = row.detail.find('"frame":"')
    if start < 0:
        return ""
    start += len('"frame":"')
    return row.detail[start : row.detail.index('"', start)]


def _facts(row: Row) -> dict[str, object]:
    return cast("dict[str, object]", json.loads(row.detail)) if row.detail else {}
