"""P18, P19 and P20: machines never raise, keep within their bounds, and their counts add up."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import ClassVar

from surepipe.audit.properties.base import Property, Report
from surepipe.audit.properties.ledger import CONTROL, TOLD, Look, PipeHistories
from surepipe.audit.settings import facts_of, number
from surepipe.audit.trace import Kind, Row
from surepipe.pipes.stack.counters import FRAME_COUNTERS


class Totality(Property):
    """P18: no event makes a machine raise, and one frame, or one message in it, changes one counter of ignored
    frames at most (in runs that tell counters after each step).

    In a stack each message of a frame may be a frame of the layer above, which gets it when its carrier gives it.
    1. The first frame of a carrier is lost, and ten behind it are kept. 2. Another life of the sender opens the
    carrier, which hands up what it kept. 3. The layer above ignores ten frames at once.
    """

    id: ClassVar[str] = "P18"

    def __init__(self, books: PipeHistories, report: Report) -> None:
        super().__init__(books, report)
        self._ignored: dict[tuple[str, int], int] = {}
        self._arrivals: dict[tuple[str, int], int] = {}
        self._carried: dict[tuple[str, int], int] = {}
        """Messages in frames of carriers, but for those that were ignored."""

    def looks(self) -> Mapping[str, Look]:
        """Crashes that are none of the faults, and counters."""
        if not self.books.settings.gauges:
            return {Kind.CRASH: self._crashed}
        return {
            Kind.CRASH: self._crashed,
            CONTROL: self._arrived,
            Kind.ARRIVED: self._arrived,
            TOLD: self._counted,
        }

    def _crashed(self, row: Row) -> None:
        raised = facts_of(row).get("exception")
        if raised:
            self.fail(f"The machine of {row.node} raised {raised}.", row)

    def _arrived(self, row: Row) -> None:
        life, count = (row.node, row.incarnation), max(1, row.count)
        self._arrivals[life] = self._arrivals.get(life, 0) + count
        if row.layer not in ("", "0"):
            self._carried[life] = self._carried.get(life, 0) + count

    def _counted(self, row: Row) -> None:
        counters = self.books.counters
        if not counters:
            return
        ignored = sum(counters.get(name, 0) for name in FRAME_COUNTERS)
        life = (row.node, row.incarnation)
        before = self._ignored.get(life, 0)
        self._ignored[life] = ignored
        arrivals, carried = self._arrivals.pop(life, 0), self._carried.get(life, 0)
        # Answers of stores that come late are counted with the frames, one by one too.
        if ignored - before > max(1, arrivals, carried):
            self.fail(
                f"{row.node} counted {ignored - before} ignored frames where {max(1, arrivals)} came.",
                row,
            )
        if carried:
            self._carried[life] = max(0, carried - (ignored - before))


class Bounds(Property):
    """P19: each buffer, window and table stays within its bound at every step that tells of it; and no message is
    accepted that is larger than allowed."""

    id: ClassVar[str] = "P19"

    def looks(self) -> Mapping[str, Look]:
        """Gauges, wherever they are told; nothing where no bound is."""
        if not self.books.settings.bounds:
            return {}
        return {TOLD: self._look, Kind.ACCEPTED: self._accepted}

    def _accepted(self, row: Row) -> None:
        size = number(facts_of(row).get("bytes")) if row.detail else None
        allowed = self.books.settings.bounds.get("message_bytes")
        if size is not None and allowed is not None and size > allowed:
            self.fail(f"{row.node} took a message of {size} bytes; {allowed} are allowed.", row)

    def _look(self, row: Row) -> None:
        bounds = self.books.settings.bounds
        for name, value in self.books.gauges.items():
            if value > bounds.get(name, value):
                self.fail(f"{row.node} has {name} {value}; its bound is {bounds[name]}.", row)


class Conservation(Property):
    """P20: loaded + accepted = confirmed + in flight + backlog + given up, at every step of a sender that hears of
    confirms; and its counters are those of the rows."""

    id: ClassVar[str] = "P20"

    def __init__(self, books: PipeHistories, report: Report) -> None:
        super().__init__(books, report)
        self._accepted: dict[tuple[str, int], int] = {}
        self._confirmed: dict[tuple[str, int], int] = {}

    def looks(self) -> Mapping[str, Look]:
        """Compares counters of senders with rows; looks at nothing where no row tells of counters."""
        if not self.books.settings.may_tell:
            return {}
        return {
            Kind.ACCEPTED: self._accept,
            Kind.CONFIRMED: self._confirm,
            TOLD: self._balance,
        }

    def _accept(self, row: Row) -> None:
        if not row.layer and not facts_of(row).get("loaded"):
            # Also what a successor has found in the journal before the life that accepted it could tell.
            life = (row.node, row.incarnation)
            self._accepted[life] = self._accepted.get(life, 0) + row.count

    def _confirm(self, row: Row) -> None:
        if not row.layer:
            life = (row.node, row.incarnation)
            self._confirmed[life] = self._confirmed.get(life, 0) + row.count

    def _balance(self, row: Row) -> None:
        gauges, counters = self.books.gauges, self.books.counters
        if "in_flight" not in gauges or "accepted" not in counters:
            return
        if self.books.settings.confirms:
            self._add_up(row, gauges, counters)
        self._compare(row, "accepted", counters["accepted"], self._accepted)
        self._compare(row, "confirmed", counters.get("confirmed", 0), self._confirmed)

    def _add_up(self, row: Row, gauges: Mapping[str, int], counters: Mapping[str, int]) -> None:
        taken = gauges.get("loaded", 0) + counters["accepted"]
        left = gauges["in_flight"] + gauges.get("backlog", 0)
        gone = counters.get("confirmed", 0) + counters.get("given_up", 0)
        if taken != left + gone:
            self.fail(
                f"{row.node} took {taken} messages and accounts for {left + gone}: {left} wait, "
                f"{gone} are confirmed or given up.",
                row,
            )

    def _compare(
        self, row: Row, what: str, counted: int, told: Mapping[tuple[str, int], int]
    ) -> None:
        rows = told.get((row.node, row.incarnation), 0)
        if rows != counted:
            self.fail(f"{row.node} counts {counted} {what} and the trace tells of {rows}.", row)


def gauges_text(gauges: Mapping[str, int], counters: Mapping[str, int]) -> str:
    """Write the gauges of a host into ``detail``, from where P18 to P20 are judged."""
    return json.dumps({"counters": counters, "gauges": gauges}, sort_keys=True)
