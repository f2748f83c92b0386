"""dedupe: no repeats, no order.

Problem: a carrier that brings messages more than once, and an application that wants each once and
doesn't care for the order. The sender numbers; the receiver remembers what it has passed, as ranges.

Assumes that a repeat comes no later than ``dedupe_window`` numbers behind the newest message; what
is older counts as seen (``too_old``). Promises that nothing is repeated under any fault of the route,
and loses only what the carrier loses, or brings later than that: over a bare route that overtakes, where
nothing bounds how late a message comes, it does not promise no-loss. Keeps no order of its own.
Catalogue: none; it is strict-monotonic's set where that one has a cursor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, TypeAlias, cast

from pydantic import Field

from surepipe.core.effects import Ranges
from surepipe.core.machine import Randomness
from surepipe.core.payloads import part_of, size_of
from surepipe.core.ranges import RangeSet
from surepipe.pipes.declaration import M_OR_G, NO_REPEAT, G, N, PipeKind, Provision, row
from surepipe.pipes.kinds.index import IndexReceiver, IndexSender
from surepipe.pipes.options import IndexOptions, LayerPlace, Messages, Misfit
from surepipe.pipes.retry.backlog import prefix_within
from surepipe.pipes.stack.in_work import InWork, count_of
from surepipe.pipes.stack.layers import ReceiverPort, SenderPort, Token
from surepipe.pipes.wire.frames import Numbered

Early: TypeAlias = tuple[int, Sequence[bytes], Token | None]
"""A run of the next epoch that waits: first number, payloads, who wants the answer."""


class Dedupe(IndexOptions):
    """No repeats, no order."""

    kind: ClassVar[str] = "dedupe"

    dedupe_window: Messages = Field(
        default=65_536, description="span below the highest seq that is remembered"
    )

    def misfits(self, place: LayerPlace) -> Iterator[Misfit]:
        """It must remember at least as far back as its carrier may bring messages late."""
        widest, window = "", 0
        for label, layer in place.below:
            if layer.span_max > window:
                widest, window = label, layer.span_max
        if window > self.dedupe_window:
            yield Misfit(
                "bounds",
                f"{place.label} remembers {self.dedupe_window} messages and its carrier has up to "
                f"{window} under way, so it would take a late first arrival for a repeat",
                (
                    f"raise dedupe_window to {window}",
                    f"lower the window of {widest} to {self.dedupe_window}",
                ),
            )


class Sender(IndexSender):
    """Numbers and passes down, at most the receiver's window ahead of what is confirmed."""

    def __init__(self, options: Dedupe, port: SenderPort, rng: Randomness) -> None:
        window = min(options.held_max, options.dedupe_window)
        super().__init__(options, port, rng, window=window)


class Receiver(IndexReceiver):
    """Receives one epoch at a time. Never finished.

    Its deliveries overlap, so the first messages of a higher epoch (``early``) wait until nothing of
    the present one is in work: otherwise they could be settled first.
    """

    TRANSIENT: ClassVar[tuple[str, ...]] = (*IndexReceiver.TRANSIENT, "dedupe_window")
    ordered: ClassVar[bool] = False
    answers_each: ClassVar[bool] = True

    def __init__(self, options: Dedupe, port: ReceiverPort, rng: Randomness) -> None:
        super().__init__(options, port, rng)
        self.dedupe_window = options.dedupe_window
        self.done = RangeSet()
        self.highest = 0
        self.work = InWork()
        self.early: list[Early] = []
        self.early_epoch = 0

    @property
    def newest_epoch(self) -> int:
        """The epoch that is received, or the one that waits to be."""
        return max(self.epoch, self.early_epoch)

    @property
    def floor(self) -> int:
        """Everything up to here counts as seen; nothing while it is below 1."""
        return self.highest - self.dedupe_window

    @property
    def load(self) -> tuple[int, int]:
        return self.work.count, self.work.size_bytes

    # From below.

    def accept(self, frame: Numbered, token: Token | None) -> None:
        """Hand up what was not seen."""
        if frame.epoch == self.epoch:
            self._receive(frame.first, frame.payloads, token)
        elif self.work:
            self._keep_for_later(frame, token)
        else:
            self._adopt(frame.epoch)
            self._receive(frame.first, frame.payloads, token)

    def _adopt(self, epoch: int) -> None:
        self.epoch = epoch
        self.done = RangeSet()
        self.highest = 0
        self.work = InWork()

    def _receive(self, first: int, payloads: Sequence[bytes], token: Token | None) -> None:
        last = first + len(payloads) - 1
        fresh = self._unseen(first, last)
        if not fresh:
            self._count_seen(first, last)
            self._answer_when_done(first, last, token)
            return
        left_out = 0
        is_taken, is_whole = False, self.takes_whole(token)
        for part in fresh:
            run = part_of(payloads, part[0] - first, part[1] - first + 1)
            fitting = run if is_whole else self._fitting(run) if not left_out else ()
            if fitting:
                is_taken = True
                self._hand_up(part[0], fitting)
            left_out += len(run) - len(fitting)
        if is_taken:
            self._count("duplicate", len(payloads) - count_of(fresh))
        self._count("over_limit", left_out)
        if left_out:
            self.port.refuse(token)
        else:
            self._answer_when_done(first, last, token)

    def _unseen(self, first: int, last: int) -> Ranges:
        fresh: list[tuple[int, int]] = []
        for part in self.done.missing(max(first, self.floor + 1), last):
            fresh += self.work.ranges.missing(*part)
        return tuple(fresh)

    def _count_seen(self, first: int, last: int) -> None:
        """One counter for a run of which nothing is new: the one that says most."""
        in_work = count_of(self.work.ranges.within(first, last))
        too_old = max(0, min(last, self.floor) - first + 1)
        if in_work:
            self.port.count("in_work", in_work)
        elif too_old:
            self.port.count("too_old", too_old)
        else:
            self.port.count("duplicate", last - first + 1)

    def _fitting(self, run: Sequence[bytes]) -> Sequence[bytes]:
        in_work = self.work.count
        run = run[: self.options.held_max - in_work]
        room_bytes = self.options.held_max_bytes - self.work.size_bytes
        if size_of(run) > room_bytes:
            run, _ = prefix_within(list(run), room_bytes, at_least_one=not in_work)
        return run

    def _hand_up(self, first: int, run: Sequence[bytes]) -> None:
        last = first + len(run) - 1
        self.work.add(first, last, size_of(run))
        self.highest = max(self.highest, last)
        self.done.discard_below(self.floor + 1)
        self.port.hand_up(self.epoch, first, run)

    def _answer_when_done(self, first: int, last: int, token: Token | None) -> None:
        if token is not None and not self.work.answer_for(first, last, token):
            self.port.settle(token)

    def _count(self, name: str, amount: int) -> None:
        if amount > 0:
            self.port.count(name, amount)

    # The next epoch.

    def _keep_for_later(self, frame: Numbered, token: Token | None) -> None:
        """A new life, while messages of the former one are in work."""
        if frame.epoch > self.early_epoch:
            self._drop_early()
        size = self.work.size_bytes + size_of(frame.payloads) + self._early_bytes
        count = self.work.count + len(frame.payloads) + self._early_count
        if count > self.options.held_max or size > self.options.held_max_bytes:
            self.port.count("over_limit", len(frame.payloads))
            self.port.refuse(token)
        else:
            self.early_epoch = frame.epoch
            self.early.append((frame.first, frame.payloads, token))

    def _drop_early(self) -> None:
        self._count("abandoned", self._early_count)
        for _, _, token in self.early:
            self.port.refuse(token)
        self.early = []

    @property
    def _early_count(self) -> int:
        return sum(len(payloads) for _, payloads, _ in self.early)

    @property
    def _early_bytes(self) -> int:
        return sum(len(payload) for _, payloads, _ in self.early for payload in payloads)

    def _go_on(self) -> None:
        """Nothing of the former epoch is in work any more."""
        if self.work or not self.early:
            return
        early, self.early = self.early, []
        self._adopt(self.early_epoch)
        for first, payloads, token in early:
            self._receive(first, payloads, token)

    # From above.

    def settle_current(self, first: int, last: int) -> None:
        """Remember these as seen, and answer who waited for them."""
        self.done.add(max(first, self.floor + 1), last)
        self.settle_all(self.work.settle(first, last))
        self._go_on()

    def refuse_current(self, first: int, last: int) -> None:
        """These were not seen after all."""
        self.refuse_all(self.work.refuse(first, last))
        self._go_on()

    # What survives.

    def cursor(self, epoch: int = 0, also: Ranges = (), _producer: str = "") -> object:
        """The epoch, the highest number, and the settled ranges above the floor."""
        settled = RangeSet(self.done)
        for first, last in also if epoch == self.epoch else ():
            settled.add(first, last)
        return [self.epoch, self.highest, [list(part) for part in settled]]

    def restore_cursor(self, cursor: object) -> None:
        """Go on with what was seen before."""
        self.epoch, self.highest, ranges = cast("tuple[int, int, list[tuple[int, int]]]", cursor)
        self.done = RangeSet(ranges)

    def gauges(self) -> dict[str, int]:
        return {"held": self._early_count, "in_work": self.work.count}


_LOSS = Provision(
    N,
    "never sends again, so it loses what its carrier loses",
    window="dedupe_window",
    beyond="takes what comes more than dedupe_window late for a repeat",
)
_AS_THEY_COME = "keeps the order of first arrivals, whatever that is"

PIPE = PipeKind(
    *(Dedupe, Sender, Receiver),
    declares=(
        row(
            Dedupe,
            (
                _LOSS,
                NO_REPEAT,
                Provision(M_OR_G, _AS_THEY_COME),
                Provision(G, _AS_THEY_COME),
            ),
        ),
    ),
    advised=5,
)
