"""PL-10 to PL-19: errors of sequential-confirm (SQ), strict-monotonic (SM) and continuous-index (CI)."""

from __future__ import annotations

from collections.abc import Sequence

from surepipe.core.effects import Effect, Ranges, Transmit
from surepipe.pipes.kinds import continuous_index, sequential_confirm, strict_monotonic
from surepipe.pipes.stack.boundary import Boundary
from surepipe.pipes.stack.layers import Token
from surepipe.pipes.stack.reorder import Offered, ReorderBuffer
from surepipe.pipes.wire.frames import Confirm, Nack, Numbered
from surepipe.simulation.subjects import HopSubject
from tests.mutants.mutant import Mutant, MutatedHop, TicketedReceiver, claimed, mutated
from tests.mutants.retrying import RETRY
from tests.plain.base import Confirm as PlainConfirm
from tests.plain.base import Data as PlainData
from tests.plain.base import PlainSubject
from tests.plain.sequential import Sender as PlainSequential

INDEX = {"run_max": 1}
SQ = HopSubject({"sequential-confirm": {"run_max": 1}}, name="sequential-confirm")
SM = HopSubject({"strict-monotonic": INDEX}, name="strict-monotonic")
CI = HopSubject(
    [{"continuous-index": INDEX}, {"multi-unconfirmed": RETRY}],
    name="continuous-index over multi-unconfirmed",
)
CI_KEPT = HopSubject(
    CI.layers,
    boundary=Boundary.COMMITTED,
    journaled=True,
    durable=True,
    name="continuous-index, kept",
)
BARE_CI = MutatedHop(
    {"continuous-index": INDEX},
    name="continuous-index over a route that only reorders",
    claim=dict.fromkeys(
        ("no-loss", "no-duplicate", "monotonic", "gap-free"), ("route-reordering",)
    ),
)
"""Alone: over a carrier that sends again an error would be a stop that never ends, and not a loss."""


class AnyConfirmReleases(sequential_confirm.Sender):
    """PL-10: the number in the confirm is not looked at."""

    def _is_acceptable(self, frame: Confirm | Nack, highest: int) -> bool:
        del frame, highest
        return True

    def take_facts(self, cum: int, done: Ranges) -> bool:
        """Whatever is on the way is settled."""
        del cum, done
        return super().take_facts(self.next - 1, ())


class FirstTwo(PlainSequential):
    """PL-11: does not wait for the confirm of the first."""

    def take(self, data: PlainData, now: int) -> list[Effect]:
        """Two may be on the way."""
        super().take(data, now)
        return [Transmit(data)] if len(self.waiting) <= 2 else []

    def frame(self, frame: object, now: int) -> list[Effect]:
        """One is done: another one may leave."""
        known = [
            data for data in self.waiting[:2] if frame == PlainConfirm(data.epoch, data.number)
        ]
        if known:
            rest = tuple(data for data in self.waiting if data not in known)
            self.waiting = (known[0], *rest)
        answer = super().frame(PlainConfirm(known[0].epoch, known[0].number), now) if known else []
        return [*answer[:1], *map(Transmit, self.waiting[1:2])] if answer else []


class AcceptsEqual(strict_monotonic.Receiver):
    """PL-12: the last one may come again."""

    def accept(self, frame: Numbered, token: Token | None) -> None:
        """Compares with >=."""
        self.relaxed = True
        super().accept(frame, token)


class NeverSets(strict_monotonic.Receiver):
    """PL-13: the cursor stays where it was."""

    def _hand_up(self, start: int, fresh: Sequence[bytes], again: Sequence[bytes]) -> None:
        former = self.cursor_at
        super()._hand_up(start, fresh, again)
        self.cursor_at = former


class OneIndex(continuous_index.Receiver):
    """PL-14: a new sender is received under the index of the former one."""

    def _change_epoch(self, epoch: int) -> None:
        if self.epoch:
            self.epoch = epoch
        else:
            super()._change_epoch(epoch)


class AcceptsCurrent(continuous_index.Receiver):
    """PL-15: what was handed up last is handed up again."""

    def accept(self, frame: Numbered, token: Token | None) -> None:
        """Compares with the index and not with the next one."""
        self.repeats = "last"
        super().accept(frame, token)


class NeverDrains(ReorderBuffer):
    """PL-16."""

    __slots__ = ()

    def _drain(self, offered: Offered) -> None:
        pass


class DrainsOne(ReorderBuffer):
    """PL-17: one run goes up with each arrival."""

    __slots__ = ()

    def _drain(self, offered: Offered) -> None:
        firsts, chunks = self._firsts[1:], self._chunks[1:]
        held = self.held.within(firsts[0], self.held.highest()) if firsts else ()
        del self._firsts[1:], self._chunks[1:]
        for part in held:
            self.held.discard(*part)
        super()._drain(offered)
        self._firsts.extend(firsts)
        self._chunks.extend(chunks)
        for part in held:
            self.held.add(*part)


LONG = 3


class SkipsGap(ReorderBuffer):
    """PL-18: when much waits, the gap before it is left out."""

    __slots__ = ()

    def offer(self, first: int, payloads: Sequence[bytes], now: int) -> Offered:
        """Wait no longer."""
        offered = super().offer(first, payloads, now)
        if self.expected and self.held_count > LONG and not offered.ready:
            start = self._firsts[0]
            self.settled = start - 1
            self.expected = start
            self.holes.raise_base(start)
            self._drain(offered)
        return offered


class EvictsLowest(ReorderBuffer):
    """PL-19: when it is full, what is needed first goes."""

    __slots__ = ()

    def offer(self, first: int, payloads: Sequence[bytes], now: int) -> Offered:
        """Make room at the wrong end."""
        if self.held_count >= LONG and self.expected:
            low, chunk = self._firsts.pop(0), self._chunks.pop(0)
            self._held_bytes -= sum(map(len, chunk))
            self.held.discard(low, low + len(chunk) - 1)
            self.holes.reopen(low, low + len(chunk) - 1, now)
        return super().offer(first, payloads, now)


def buffered(kind: type[ReorderBuffer]) -> type[continuous_index.Receiver]:
    """A receiver with this buffer."""

    class Changed(continuous_index.Receiver):
        def accept(self, frame: Numbered, token: Token | None) -> None:
            self.buffer.__class__ = kind
            super().accept(frame, token)

        def _start_epoch(self, epoch: int, expected: int) -> None:
            super()._start_epoch(epoch, expected)
            self.buffer.__class__ = kind

    return Changed


PLAIN_SQ = claimed(
    PlainSubject("plain sequential confirm", PlainSequential, TicketedReceiver),
    "route-reordering",
    atoms=("no-loss", "no-duplicate", "monotonic", "gap-free"),
)
HASTY_SQ = claimed(
    PlainSubject("plain sequential confirm, hasty", FirstTwo, TicketedReceiver),
    "route-reordering",
    atoms=("no-loss", "no-duplicate", "monotonic", "gap-free"),
)

ORDERING: tuple[Mutant, ...] = (
    Mutant(
        "PL-10", "any confirm releases the next", ("P6", "P6g"), mutated(SQ, AnyConfirmReleases), SQ
    ),
    Mutant("PL-11", "sends the first two at once", ("P6", "P6g"), HASTY_SQ, PLAIN_SQ),
    Mutant("PL-12", "lets through what equals the index", ("P3",), mutated(SM, AcceptsEqual), SM),
    Mutant("PL-13", "never sets the index", ("P5", "P4", "P3"), mutated(SM, NeverSets), SM),
    Mutant(
        "PL-14",
        "one index for all senders",
        ("P7", "P6g", "P2"),
        mutated(CI_KEPT, OneIndex),
        CI_KEPT,
    ),
    Mutant(
        "PL-15", "accepts the current index again", ("P7", "P3"), mutated(CI, AcceptsCurrent), CI
    ),
    Mutant(
        "PL-16",
        "never drains the buffer",
        ("P2",),
        mutated(BARE_CI, buffered(NeverDrains)),
        BARE_CI,
    ),
    Mutant(
        "PL-17",
        "drains one entry per arrival",
        ("P2",),
        mutated(BARE_CI, buffered(DrainsOne)),
        BARE_CI,
    ),
    Mutant(
        "PL-18", "skips a gap when much waits", ("P6", "P6g"), mutated(CI, buffered(SkipsGap)), CI
    ),
    Mutant(
        "PL-19",
        "a full buffer lets the lowest go",
        ("P2",),
        mutated(BARE_CI, buffered(EvictsLowest)),
        BARE_CI,
    ),
)
