"""Which rows speak of the same frame: its transmission, its copies, its loss, its arrival."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from surepipe.simulation.report.words import fact, fault_in
from surepipe.simulation.trace import Kind, Row

CONTROL = frozenset(
    {
        "confirm",
        "nack",
        "probe",
        "open",
        "opened",
        "unknown",
        "refused",
        "ack",
        "answer",
        "read",
        "fetch",
    }
)
"""Frames that only speak of messages; all others that count any carry them."""

_ENDS = (Kind.LOST, Kind.ARRIVED)


def row_id(row: Row) -> str:
    """How other rows name this one as their cause."""
    return f"{row.node}/{row.incarnation}/{row.step}"


@dataclass(slots=True)
class Frame:
    """One frame on its way; of a copy that the network made, ``begun`` is the row that says so."""

    begun: Row
    original: Row
    ended: Row | None = None


class Frames:
    """All frames of a run, in the order in which they leave."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.all: list[Frame] = []
        self._by_cause: dict[tuple[str, int], Frame] = {}
        self._of_row: dict[int, Frame] = {}
        for row in rows:
            if row.kind == Kind.TRANSMIT:
                self._begin(row, row, row_id(row), 0)
            elif row.kind == Kind.COPIED:
                before = self._find(row, copy=0)
                self._begin(row, before.original if before else row, row.cause, row.copy or 1)
                self._by_cause[row_id(row), 0] = self.all[-1]
            elif row.kind in _ENDS and (frame := self._find(row, row.copy)):
                frame.ended = row
                self._of_row[row.step] = frame

    def _begin(self, row: Row, original: Row, cause: str, copy: int) -> None:
        frame = Frame(row, original)
        self.all.append(frame)
        self._by_cause[cause, copy] = frame
        self._of_row[row.step] = frame

    def _find(self, row: Row, copy: int) -> Frame | None:
        """By its cause; else the first frame still on its way that holds the same."""
        frame = self._by_cause.get((row.cause, copy))
        if frame is not None:
            return frame
        return next((f for f in self.all if f.ended is None and _alike(f.original, row)), None)

    def of(self, row: Row) -> Frame | None:
        """The frame that a row speaks of."""
        return self._of_row.get(row.step)

    def word(self, row: Row) -> str:
        """What sort of frame it is: ``data``, ``confirm``."""
        frame = self.of(row)
        return frame_word(frame.original if frame else row)

    def carries(self, row: Row) -> bool:
        """Whether it holds the messages themselves."""
        return row.count > 0 and self.word(row) not in CONTROL


def frame_word(row: Row) -> str:
    """The sort of a frame, from the row that transmits it."""
    word = fact(row, "frame") or fact(row, "text").partition(" ")[0].lower()
    return "data" if not word or fault_in(word) else word


def _alike(left: Row, right: Row) -> bool:
    same = (left.pipe, left.epoch, left.seq, left.count) == (
        right.pipe,
        right.epoch,
        right.seq,
        right.count,
    )
    return same and (right.kind != Kind.ARRIVED or left.node != right.node)


def ends(frame: Frame) -> tuple[str, str]:
    """From where to where it goes: by the name of its link, else by the nodes of its rows."""
    link = frame.original.link or (frame.ended.link if frame.ended else "")
    source, _, target = link.partition(">")
    arrived = frame.ended.node if frame.ended and frame.ended.kind == Kind.ARRIVED else ""
    return source.strip(" -") or frame.original.node, target.strip(" -") or arrived
