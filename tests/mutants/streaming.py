"""PL-20 to PL-27: errors of the stream pipe (ST), its stores, and the handling of messages that fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from surepipe.core.effects import Cause, Ranges
from surepipe.core.store_requests import (
    AppendRun,
    CommitOutcome,
    CommitPosition,
    Committed,
    Position,
    ReadFrom,
    Stored,
    StoreOutcome,
    StoreRequest,
    StreamInfo,
)
from surepipe.pipes.kinds import stream
from surepipe.pipes.stack.boundary import BoundaryOptions
from surepipe.pipes.stack.delivery import Delivery, FailedMessage
from surepipe.simulation.stores import contents as keeping
from surepipe.simulation.stores import store as stores
from surepipe.simulation.stores.calls import PLAIN, CallFate
from surepipe.simulation.stores.store import SimulatedStore
from surepipe.simulation.subjects import HopSubject
from surepipe.storage.memory import MemoryStore
from tests.mutants.mutant import WATCHED, Mutant, mutated, swapped

ST = HopSubject({"stream": {"start": "earliest", "run_max": 2, "read_max": 4}}, name="stream")
ST_LETTERS = replace(
    ST, name="stream, letters", options=BoundaryOptions(retries=2, dead_letters=True)
)


class CommitsBefore(stream.Receiver):
    """PL-20: the place behind what is handed up is committed with it."""

    def _hand_up(self) -> None:
        before = self.work.end
        super()._hand_up()
        if self.work.end > before and self.committing is None:
            self._commit()

    def cursor(self, epoch: int = 0, also: Ranges = (), producer: str = "") -> object:
        """As if everything in work were done."""
        self.work.next, former = self.work.end, self.work.next
        anchor, self.work.anchor = self.work.anchor, None
        try:
            return super().cursor(epoch, also, producer)
        finally:
            self.work.next, self.work.anchor = former, anchor


class CommitsTooFar(stream.Receiver):
    """PL-21: one entry too many."""

    def cursor(self, epoch: int = 0, also: Ranges = (), producer: str = "") -> object:
        """One behind the place."""
        former = self.work.next
        anchor, self.work.anchor = self.work.anchor, None
        self.work.next = former + 1 if former > 1 else former
        try:
            return super().cursor(epoch, also, producer)
        finally:
            self.work.next, self.work.anchor = former, anchor


class TakesLower(MemoryStore):
    """PL-22: an index store that keeps whatever comes last, from whomever."""

    def _commit(self, request: CommitPosition) -> tuple[CommitOutcome, Callable[[], None] | None]:
        known = self._reader(request.stream, request.reader)
        position = Position(
            *(request.tag, request.next, request.anchor, request.state, request.owner),
            request.revision,
        )
        readers = self._state.readers.setdefault(request.stream, {})
        readers[request.reader] = replace(known, position=position)

        def take_back() -> None:
            readers[request.reader] = known

        return Committed(), take_back


class StartsLatest(stream.Receiver):
    """PL-23: whoever has no position begins behind the last entry."""

    def _start(self, info: StreamInfo) -> None:
        super()._start(replace(info, earliest=info.next))


class ConfirmsFirst(SimulatedStore):
    """PL-24: a run is confirmed when it comes and appended when the next one does."""

    owed: AppendRun | None = None

    def call(self, request: StoreRequest, fate: CallFate = PLAIN) -> StoreOutcome | None:
        """Confirm now, append later."""
        if not isinstance(request, AppendRun) or self.is_down or fate.verb != PLAIN.verb:
            return super().call(request, fate)
        owed, self.owed = self.owed, request
        if owed is not None:
            super().call(owed)
        return Stored(request.first + len(request.payloads) - 1, 0, None)

    def crash(self, lost: int = 0, *, power: bool = False) -> int:
        """What was not appended is gone."""
        self.owed = None
        return super().crash(lost, power=power)


class ReadsBehind(stream.Receiver):
    """PL-25: asks for what is greater than its index, where the index is the next one."""

    def _read_request(self) -> ReadFrom:
        request = super()._read_request()
        return replace(request, index=request.index + (request.index > 1))


class ReadsAgain(stream.Receiver):
    """PL-25, the reverse: goes on from the last that it has taken, once for each place."""

    been_at = 0

    def _read_request(self) -> ReadFrom:
        request = super()._read_request()
        is_new = request.index > max(self.been_at, 1)
        if self.work.unanswered or not is_new:
            return request
        self.been_at = request.index
        self.work.start_at(request.index - 1, None)
        return replace(request, index=request.index - 1)


class Swallows(Delivery):
    """PL-26: the handler raised, and that is that."""

    def failed(self, number: int, seq: int, error: Cause, *, final: bool = False) -> None:
        """As if it had returned."""
        del seq, error, final
        ticket = self.tickets[number]
        last = ticket.first + len(ticket.payloads) - 1
        self.settled(number, ((ticket.first, last),))


class NeverPoison(Delivery):
    """PL-27: however often a message fails, it is tried again."""

    def _is_poison(self, history: FailedMessage) -> bool:
        del history
        return False


STREAMING: tuple[Mutant, ...] = (
    Mutant("PL-20", "commits before it processes", ("P2", "P10"), mutated(ST, CommitsBefore), ST),
    Mutant("PL-21", "commits one too far", ("P2",), mutated(ST, CommitsTooFar), ST, within=300),
    Mutant(
        "PL-22",
        "index store takes a lower value",
        ("P10", "P9"),
        ST,
        ST,
        swapped(stores, "MemoryStore", TakesLower),
    ),
    Mutant("PL-23", "no index: starts at the latest", ("P2",), mutated(ST, StartsLatest), ST),
    Mutant(
        "PL-24",
        "store confirms before it appends",
        ("P2", "P8"),
        ST,
        ST,
        swapped(keeping, "SimulatedStore", ConfirmsFirst),
    ),
    Mutant(
        "PL-25-greater",
        "reads above an index that is inclusive",
        ("P2",),
        mutated(ST, ReadsBehind),
        ST,
    ),
    Mutant("PL-25-again", "reads from the last one again", ("P9",), mutated(ST, ReadsAgain), ST),
    Mutant(
        "PL-26", "exception swallowed, index moves on", ("P2", "P14"), mutated(ST, Swallows), ST
    ),
    Mutant(
        "PL-27",
        "poison is tried for ever",
        ("P12", "P14"),
        mutated(ST_LETTERS, NeverPoison),
        ST_LETTERS,
        base=replace(WATCHED, poison=1),
    ),
)
