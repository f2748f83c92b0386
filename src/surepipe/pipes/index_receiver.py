"""What the receiving halves of the index pipes have in common: epochs that end, and answers.

A higher epoch is a new life of the sender. What is in work of the former epoch stays in work and is
answered under its own numbers. Frames of a lower epoch come from a former life: they are refused,
and who sent them is told so, where there is a way back.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable

from surepipe.effects import NoticeKind
from surepipe.machines import Randomness
from surepipe.pipes.frames import Frame, Numbered, Refused, RefusedReason
from surepipe.pipes.in_work import InWork
from surepipe.pipes.layers import ReceiverLayer, ReceiverPort, Token
from surepipe.pipes.options import IndexOptions


class IndexReceiver(ReceiverLayer):
    """Sorts frames by epoch. ``epoch`` is the one being received, 0 before the first."""

    def __init__(self, options: IndexOptions, port: ReceiverPort, rng: Randomness) -> None:
        self.options: IndexOptions = options
        self.port = port
        self.rng = rng
        self.epoch = 0
        self.former: dict[int, InWork] = {}

    # What each pipe decides.

    @abstractmethod
    def accept(self, frame: Numbered, token: Token | None) -> None:
        """A run of this epoch or a higher one."""

    @abstractmethod
    def settle_current(self, first: int, last: int) -> None:
        """The layer above settled messages of this epoch."""

    @abstractmethod
    def refuse_current(self, first: int, last: int) -> None:
        """The layer above refused messages of this epoch."""

    @property
    def newest_epoch(self) -> int:
        """Anything below it comes from a former life."""
        return self.epoch

    # From below.

    def data(self, frame: Frame, token: Token | None) -> None:
        """A frame that belongs to this layer."""
        if not isinstance(frame, Numbered):
            self.wrong_state()
            self.port.refuse(token)
        elif frame.epoch < max(self.newest_epoch, 1):
            self.refuse_stale(frame.epoch)
            self._answer_stale(frame, token)
        else:
            self.accept(frame, token)

    def refuse_stale(self, epoch: int) -> None:
        """Count a frame of a former life, and tell its sender who is served now."""
        self.port.count("stale_epoch")
        self.port.control(
            Refused(
                *(self.port.tag, self.port.layer, 0, epoch),
                RefusedReason.FENCED,
                self.newest_epoch,
            )
        )

    def _answer_stale(self, frame: Numbered, token: Token | None) -> None:
        if not self.port.carrier_is_stream:
            self.port.refuse(token)
            return
        last = frame.first + len(frame.payloads) - 1
        detail = (
            f"a message of epoch {frame.epoch} came out of the stream after {self.newest_epoch}"
        )
        self.port.notice(NoticeKind.FENCED, frame.epoch, ((frame.first, last),), detail)
        self.port.settle(token)

    def wrong_state(self) -> None:
        """Count a frame that an index pipe never gets."""
        self.port.count("wrong_state")

    # From above.

    def settled(self, epoch: int, first: int, last: int) -> None:
        """Messages crossed the boundary: answer the carrier's messages that waited for them."""
        if epoch == self.epoch:
            self.settle_current(first, last)
        elif epoch in self.former:
            self.settle_all(self.former[epoch].settle(first, last))
            self._forget_if_answered(epoch)

    def refused(self, epoch: int, first: int, last: int) -> None:
        """Messages were not taken: pass that on. Of a former epoch nothing can come again."""
        if epoch == self.epoch:
            self.refuse_current(first, last)
        elif epoch in self.former:
            self.refuse_all(self.former[epoch].refuse(first, last))
            self._forget_if_answered(epoch)

    def _forget_if_answered(self, epoch: int) -> None:
        if not self.former[epoch]:
            del self.former[epoch]

    def retire(self, work: InWork) -> None:
        """What is in work of this epoch will be answered while another one is current."""
        if work:
            self.former[self.epoch] = work

    # For the carrier.

    def settle_all(self, tokens: Iterable[Token]) -> None:
        """Answer these messages of the carrier: settled."""
        for token in tokens:
            self.port.settle(token)

    def refuse_all(self, tokens: Iterable[Token]) -> None:
        """Answer these messages of the carrier: refused."""
        for token in tokens:
            self.port.refuse(token)

    # Bounds.

    @property
    def former_count(self) -> int:
        """Messages of former epochs in work."""
        return sum(work.count for work in self.former.values())

    @property
    def former_bytes(self) -> int:
        """Their bytes."""
        return sum(work.size_bytes for work in self.former.values())
