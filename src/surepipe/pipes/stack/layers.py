"""The interface of a layer's two halves to the stack that holds them.

A stack is a row of layers between an application and a route. The sender halves number and send; what one of
them passes down is a message of the one below. The receiver halves work in the other direction, and each gives
its carrier exactly one answer for every message that it was handed: *settled* or *refused*. So a carrier never
confirms what the layers above it only buffer.

A layer talks to its neighbours through its port only. Calls between layers are queued by the stack and run one
after the other, never inside each other, so a layer is never entered twice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol, TypeAlias

from surepipe.core.effects import NoticeKind, Ranges
from surepipe.core.machine import Randomness
from surepipe.pipes.wire.frames import Frame

Token: TypeAlias = tuple[int, int, str]
"""A message of the carrier that awaits its answer: epoch and seq there, and the producer, as in ``hand_up``."""

UNBOUNDED = 2**31


class Port(Protocol):
    """What both halves of a layer may ask of their stack."""

    @property
    def now(self) -> int:
        """Monotonic microseconds of the step that is running."""
        ...

    @property
    def tag(self) -> int:
        """The 64-bit tag of the pipe, for frames."""
        ...

    @property
    def layer(self) -> int:
        """The number of this layer, 0 for the outermost, for frames."""
        ...

    @property
    def pipe(self) -> str: ...

    @property
    def has_reverse(self) -> bool:
        """False when nothing can come back (or, at the receiver, go back): a one-way route or a store."""
        ...

    @property
    def differs(self) -> str:
        """Report a frame that shows a different stack at the other end."""
        ...

    def control(self, frame: Frame) -> None:
        """Transmit a control frame on the raw route."""
        ...

    def count(self, name: str, amount: int = 1) -> None: ...

    def notice(self, kind: NoticeKind, epoch: int, ranges: Ranges = (), detail: str = "") -> None:
        """Tell the people who run the pipe."""
        ...

    def call(self, request: object) -> int:
        """Ask a store; the answer comes to ``answer`` under the ticket that this returns."""
        ...

    def call_again(self, ticket: int, request: object) -> None:
        """Ask the same under the same ticket: whichever answer comes first is the answer."""
        ...

    def forget(self, ticket: int) -> None:
        """The answer to this ticket matters no more; if it comes it is counted as late."""
        ...


class SenderPort(Port, Protocol):
    """What a sender half may ask of its stack."""

    @property
    def stack_digest(self) -> int:
        """Digest of the layers and their order options, for Open."""
        ...

    @property
    def life(self) -> int:
        """The number of this life of the sender, for Open. The epoch that is served may be an older one."""
        ...

    @property
    def carrier_confirms(self) -> bool:
        """True when some layer below confirms, so that ``carried`` will be called."""
        ...

    @property
    def carrier_room(self) -> int:
        """How many messages (frames of this layer) the carrier would take now."""
        ...

    @property
    def carrier_room_bytes(self) -> int:
        """How many bytes of frames the carrier would take now."""
        ...

    def pass_down(self, frame: Frame) -> bool:
        """Give a data frame to the carrier; False when it has no room now and took nothing.

        The n-th frame that the carrier took since ``carrier_restarted`` is its message n.
        """
        ...

    def confirmed(self, first: int, last: int) -> None:
        """These messages of this layer's epoch are settled at the receiver."""
        ...

    def fenced(self, known: int, *, answered: bool) -> None:
        """The receiver knows a life or epoch ``known`` and refuses ours. ``answered`` tells whether it
        ever accepted this epoch in this life; where a layer above knows that it did, that counts as much.
        The stack starts a higher life or stops this sender."""
        ...

    def reached(self, through: int) -> None:
        """The receiver has settled this epoch up to ``through``, which may be more than was sent in this life."""
        ...

    def epoch_closed(self, through: int, detail: str) -> None:
        """The receiver has gone past this epoch; ``through`` is the last message of it that it settled."""
        ...

    def raise_life(self, above: int) -> None:
        """Nothing of this epoch was transmitted and its number is taken: go on under a higher one."""
        ...

    def stop(self, detail: str, kind: NoticeKind = NoticeKind.FENCED) -> None:
        """This sender can't go on; the stack rejects what comes and tells what is unconfirmed."""
        ...

    def give_up(self, first: int, payloads: Sequence[bytes], attempts: int, since: int) -> None:
        """These messages are given up (T-10): they go to the sender's dead letters."""
        ...


class ReceiverPort(Port, Protocol):
    """What a receiver half may ask of its stack."""

    @property
    def stack_digest(self) -> int:
        """Digest of the layers and their order options, to compare with that of an Open."""
        ...

    @property
    def incarnation(self) -> int:
        """Random 64-bit number of this start of the receiver."""
        ...

    @property
    def life(self) -> int:
        """Above that of every earlier start of this receiver."""
        ...

    @property
    def durable(self) -> bool:
        """True when the cursors of this stack survive a crash."""
        ...

    @property
    def has_lanes(self) -> bool:
        """True when what is handed up is settled in any order: one message may stay while many others go on."""
        ...

    @property
    def carrier_is_stream(self) -> bool:
        """True when messages come out of a store below, which can't bring a refused one again."""
        ...

    def state(self) -> bytes:
        """The cursors of all layers as they are now, in their stored form."""
        ...

    def restore_above(self, state: bytes) -> object:
        """Give the layers above their cursors from a stored state, before they get their first message.

        Returns the cursor of this layer, or None when the state is not one of this stack (nothing is done).
        """
        ...

    def hand_up(
        self, epoch: int, first: int, payloads: Sequence[bytes], producer: str = ""
    ) -> None:
        """Give consecutive messages to the layer above (or the boundary); each will be answered once.

        ``producer``: who numbered them, where several may have used the same epoch. It is part of each answer."""
        ...

    def settle(self, token: Token | None) -> None:
        """Answer the carrier's message: settled. None (it came from the raw route) does nothing."""
        ...

    def refuse(self, token: Token | None) -> None:
        """Answer the carrier's message: refused; it will come again."""
        ...


class SenderLayer(ABC):
    """The sending half of a layer. It serves one epoch at a time; ``begin`` starts the next."""

    TRANSIENT: ClassVar[tuple[str, ...]] = ("port", "options", "rng")
    one_at_a_time: ClassVar[bool] = False
    """True when it waits for the confirm of one frame before it sends the next."""
    stops_when_unanswered: ClassVar[bool] = True
    """True when giving a message up ends the pipe, because the order would break without it."""
    greets: ClassVar[bool] = False
    """True when nothing is transmitted before the other end has answered who it is, so that what an older sender
    left on the route is not taken for a newer one's."""
    answered: bool = False
    """True once the receiver has accepted something of this epoch. Layers that nobody answers leave it."""
    taken: bool = False
    """True once it has told of a message of this epoch, so the layers below let that through. An answer to a frame
    that went past them, such as a Probe, shows nothing."""

    def __init__(self, options: Any, port: SenderPort, rng: Randomness) -> None:
        """Each kind takes the options of its own."""

    @property
    @abstractmethod
    def room(self) -> int:
        """How many messages ``send`` would take now."""

    @property
    @abstractmethod
    def room_bytes(self) -> int:
        """How many payload bytes ``send`` would take now."""

    @abstractmethod
    def begin(self, epoch: int, base: int) -> None:
        """Drop what is left and number messages (epoch, base), (epoch, base + 1) ... from now on.

        Called once before anything else, again for each later epoch (what came before is confirmed),
        and when the stack takes a higher life (what is dropped comes again through ``send``).
        """

    def carrier_restarted(self) -> None:
        """The carrier dropped everything and numbers its messages from 1 again. ``begin`` follows."""

    @abstractmethod
    def send(self, payloads: Sequence[bytes]) -> int:
        """Take a prefix of these messages and say how many; number them in order."""

    @abstractmethod
    def waiting(self) -> list[bytes]:
        """The payloads of everything taken and not confirmed, in order (to be numbered again)."""

    @abstractmethod
    def unconfirmed(self) -> Ranges:
        """What was taken in this epoch and is not confirmed."""

    @property
    @abstractmethod
    def in_flight(self) -> int:
        """Messages transmitted and not confirmed."""

    def carried(self, first: int, last: int) -> None:
        """The carrier reports its messages first..last confirmed."""

    @abstractmethod
    def control(self, frame: Frame) -> None:
        """A frame of the reverse path for this layer."""

    def other_end_restarted(self) -> None:
        """Another receiver than before is there. Layers that hear of it by its frames need not be told."""

    def route_is_back(self) -> None:
        """Frames get through again: layers that send again need not wait for their deadlines."""

    @property
    def verifying(self) -> bool:
        """True while the first answer to ``verify`` is awaited."""
        return False

    def verify(self) -> None:
        """Ask who keeps what was confirmed, where that is a store, whether it is still there. It may be asked at
        any time, and often; what is missing is told by a notice, or ends the pipe."""

    def answer(self, ticket: int, outcome: object) -> None:
        """The outcome of a store call of this layer."""
        raise AssertionError(f"{type(self).__name__} made no call {ticket}: {outcome}")

    def wake(self) -> None:
        """A deadline may have passed; ``port.now`` says."""

    @property
    def deadline(self) -> int | None:
        """When this layer wants to be woken."""
        return None

    def gauges(self) -> dict[str, int]:
        """What stands now, by name."""
        return {}


class ReceiverLayer(ABC):
    """The receiving half of a layer."""

    TRANSIENT: ClassVar[tuple[str, ...]] = ("port", "options", "rng")
    ordered: ClassVar[bool] = True
    """True when at most one delivery to the boundary may be outstanding."""
    holds_early: ClassVar[bool] = False
    """True when it holds what comes early, within a bounded span, and tells of a hole that stays."""
    answers_each: ClassVar[bool] = False
    """True when what is settled does not come again though something older is not settled."""

    def __init__(self, options: Any, port: ReceiverPort, rng: Randomness) -> None:
        """Each kind takes the options of its own."""

    @abstractmethod
    def data(self, frame: Frame, token: Token | None) -> None:
        """A data frame, from the raw route (no token) or as a message of the carrier."""

    def control(self, frame: Frame) -> None:  # noqa: ARG002 - layers without control frames count them
        """A control frame for this layer, from the raw route."""
        self.wrong_state()

    @abstractmethod
    def settled(self, epoch: int, first: int, last: int, producer: str = "", /) -> None:
        """The layer above answers these messages: settled. ``producer`` as they were handed up."""

    @abstractmethod
    def refused(self, epoch: int, first: int, last: int, producer: str = "", /) -> None:
        """The layer above answers these messages: refused. They must be brought again."""

    def not_for_us(self, token: Token) -> None:
        """What this layer handed up is no message of the layer above: refused, as a stranger may have sent it."""
        epoch, seq, producer = token
        self.refused(epoch, seq, seq, producer)

    @abstractmethod
    def wrong_state(self) -> None:
        """Count a frame that has no meaning for this layer."""

    def answer(self, ticket: int, outcome: object) -> None:
        """The outcome of a store call of this layer."""
        raise AssertionError(f"{type(self).__name__} made no call {ticket}: {outcome}")

    def wake(self) -> None:
        """A deadline may have passed; ``port.now`` says. The first wake is the start."""

    @property
    def deadline(self) -> int | None:
        """When this layer wants to be woken."""
        return None

    def cursor(self, epoch: int = 0, also: Ranges = (), producer: str = "", /) -> object:  # noqa: ARG002 - see the cursor pipes
        """What must survive a crash, as a JSON value; ``also`` (of ``epoch``) is taken as settled."""
        return None

    def restore_cursor(self, cursor: object) -> None:
        """Start from a stored cursor; called at most once, before anything else."""

    def begins_behind(self) -> Sequence[tuple[str, int, int, int]]:
        """What the stored cursor was behind, while nothing has come yet: producer, epoch, first and last."""
        return ()

    def finish(self) -> None:
        """The receiver is closing: say the last Confirm now."""

    @property
    def is_stored(self) -> bool:
        """True when this layer has nothing to store of what is settled."""
        return True

    def gauges(self) -> dict[str, int]:
        """What stands now, by name."""
        return {}
