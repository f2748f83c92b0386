"""BS-1 to BS-6: errors that ordinary runs don't show: nothing in them lasts long enough or is small enough.

Each has a subject of the hunts, or a property, that was made for its kind.
"""

from __future__ import annotations

from collections.abc import Sequence

from surepipe.effects import RejectReason
from surepipe.pipes import multi_unconfirmed, reliable, strict_monotonic
from surepipe.pipes.flights import NEVER
from surepipe.pipes.intake import Intake
from surepipe.pipes.layers import Token
from surepipe.pipes.stream_calls import StoreCalls
from surepipe.pipes.timing import doubled
from surepipe.simulation.subjects import HopSubject
from tests.faults.quarry import QUARRY
from tests.mutants.mutant import Mutant, mutated, swapped

SUBJECTS = {subject.name: subject for subject in QUARRY}


def of(name: str) -> HopSubject:
    """The subject of the hunts with this name."""
    return SUBJECTS[name]


class LosesPatience(multi_unconfirmed.Sender):
    """BS-1: once it waits as long as it ever does, it sends nothing again."""

    def next_deadline(self, waits: int) -> int:
        """Never, after the longest pause."""
        is_longest = doubled(self.round_trips.rto, self.rto_max, waits) >= self.rto_max
        return NEVER if is_longest else super().next_deadline(waits)


def loses_patience(calls: StoreCalls, attempts: int) -> int:
    """BS-2: the same of calls to a store."""
    return NEVER if calls.answer_us << attempts > calls.longest_us else _PATIENCE(calls, attempts)


_PATIENCE = vars(StoreCalls)["_patience"]


class SettlesTheRest(strict_monotonic.Receiver):
    """BS-3: what found no room is answered as if it had been overtaken."""

    def _refuse_rest(self, epoch: int, first: int, last: int, token: Token | None) -> None:
        del epoch, first, last
        if token is not None:
            self.port.settle(token)


class NeverAlarmed(reliable.Receiver):
    """BS-4: a hole may be as old as it likes, nobody is told."""

    def _stalled_due(self) -> int:
        return NEVER


class TakesAnything(Intake):
    """BS-5: no message is too large."""

    def admissible(self, payloads: Sequence[bytes]) -> tuple[Sequence[bytes], RejectReason]:
        """All of them."""
        self.message_max_bytes = max(map(len, payloads), default=0)
        return super().admissible(payloads)


class Hammers(multi_unconfirmed.Sender):
    """BS-6: waits no longer for the tenth answer than for the first."""

    def next_deadline(self, waits: int) -> int:
        """As for the first."""
        return super().next_deadline(min(waits, 1))


PATIENT = of("multi-unconfirmed, short patience")
PATIENT_STREAM = of("stream, short patience")
NARROW = of("strict-monotonic over multi-unconfirmed, receives less")
ALARMED = of("reliable, alarms soon")

UNSEEN: tuple[Mutant, ...] = (
    Mutant(
        "BS-1",
        "stops at the longest pause",
        ("P2", "P11", "P12"),
        mutated(PATIENT, LosesPatience),
        PATIENT,
    ),
    Mutant(
        "BS-2",
        "asks a store no more at the longest pause",
        ("P12",),
        PATIENT_STREAM,
        PATIENT_STREAM,
        swapped(StoreCalls, "_patience", loses_patience),
        replays=3,
    ),
    Mutant(
        "BS-3", "settles what found no room", ("P2", "P8"), mutated(NARROW, SettlesTheRest), NARROW
    ),
    Mutant("BS-4", "never tells of an old hole", ("P12",), mutated(ALARMED, NeverAlarmed), ALARMED),
    Mutant(
        "BS-5", "takes a message of any size", ("P19",), mutated(PATIENT, TakesAnything), PATIENT
    ),
    Mutant(
        "BS-6", "sends again without waiting longer", ("P9",), mutated(PATIENT, Hammers), PATIENT
    ),
)
