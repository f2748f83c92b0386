"""Which faults mattered: it is not enough that one struck, something that came out must have depended on it.

A frame that was lost mattered when another one of its kind had to do its work, or when newer messages came out
without it. A frame that came late, again or
broken mattered when somebody acted upon it. An end of a process mattered when a later one had an output, a fault
of a store when a call was answered after it and something came out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias, cast

from surepipe.simulation.causes import OUTPUTS, cause_of, steps_towards
from surepipe.simulation.properties.books import frame_kind
from surepipe.simulation.script import Decision
from surepipe.simulation.trace import Kind, Row

Frame: TypeAlias = tuple[str, str, str, int, int, int]
"""link, kind, layer, epoch, seq, count."""

CRASHES = frozenset({"F8", "F10", "F26", "F31"})
_SHIFTED = frozenset({"delay", "overtake"})
_ALL_THEY_ARE = frozenset({"F7", "F22", "F24"})
"""Nothing can repair the first, and the other two matter by what they are: offers that are refused."""


def mattered(rows: Sequence[Row], decisions: Iterable[Decision]) -> frozenset[str]:
    """The ids of the faults of a run (of its rows, and of decisions that shifted frames) that mattered."""
    reader = _Reader(rows)
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


class _Reader:
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
            (frame_of(row), row.attempt, row.copy): str(_facts(row).get("fault"))
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
        fault = str(_facts(row).get("fault", ""))
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
        fault = str(_facts(row).get("fault", ""))
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
        facts = _facts(row)
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
        reason = _facts(row).get("reason")
        return {"full": ("F22",), "too-large": ("F24",)}.get(str(reason), ())


def frame_of(row: Row) -> Frame:
    """Which frame a row speaks of, whatever copy or attempt."""
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


def _facts(row: Row) -> Mapping[str, object]:
    return cast("Mapping[str, object]", json.loads(row.detail)) if row.detail else {}
