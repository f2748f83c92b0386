"""Stacks: layers put together into one sender machine and one receiver machine.

The sender's stack is ``intake > layer 0 > layer 1 > ... > route``; the receiver's is the same read upwards, with
the ``delivery`` at the top. A single pipe is a stack of one layer. The stack is the plumbing only: it gives each
input to the layer that it belongs to, carries what one layer says to its neighbour, and collects effects. What
layers say to each other is queued and done one after the other, so no layer is entered while it runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import ClassVar, ParamSpec, cast

from surepipe.core import snapshot
from surepipe.core.effects import (
    NOBODY,
    Call,
    Cause,
    DeadLetter,
    Effect,
    JournalContents,
    Letter,
    Notice,
    NoticeKind,
    Ranges,
    Reject,
    RejectReason,
    Speaker,
    Transmit,
    WakeAt,
    WriteStored,
)
from surepipe.core.machine import Randomness
from surepipe.core.timing import earlier
from surepipe.errors import ConfigurationError, MisuseError, StacksDiffer
from surepipe.pipes.catalogue import kind_of, receiver_layer, sender_layer
from surepipe.pipes.kinds.index import FRAME_BYTES
from surepipe.pipes.options import LayerOptions, RetryOptions
from surepipe.pipes.retry.window import WindowSender
from surepipe.pipes.stack.agreement import Agreement, Terms, difference, stack_digest, stack_text
from surepipe.pipes.stack.boundary import (
    Boundary,
    BoundaryOptions,
    decode_state,
    encode_state,
    given_up_in,
    stack_in,
)
from surepipe.pipes.stack.counters import fresh_counters
from surepipe.pipes.stack.delivery import Delivery, DeliveryBase, Posting
from surepipe.pipes.stack.intake import Intake
from surepipe.pipes.stack.journal import JournaledIntake
from surepipe.pipes.stack.lanes import KeyOf, LaneDelivery, Window
from surepipe.pipes.stack.layers import (
    UNBOUNDED,
    ReceiverLayer,
    SenderLayer,
    Token,
)
from surepipe.pipes.stack.reorder import ReorderBuffer
from surepipe.pipes.stream.options import Stream
from surepipe.pipes.stream.sender import Sender as StreamSender
from surepipe.pipes.wire import codec
from surepipe.pipes.wire.frames import (
    Confirm,
    Data,
    Frame,
    Introduction,
    Nack,
    Numbered,
    Open,
    Opened,
    Probe,
    Refused,
    Unknown,
    tag_of,
)

# What must hold of the parts of a stack between any two events, whatever came before.
#
# A stack asserts it at the end of each step when its ``asserts`` is set: in simulations always, elsewhere by
# choice. What fails here is a defect of ours and no fault of anybody else, so it is an AssertionError.


def assert_layers(layers: Iterable[object]) -> None:
    """Assert what holds of each layer: of senders with a window or a store, of receivers with a reorder buffer."""
    for layer in layers:
        if isinstance(layer, WindowSender):
            _assert_window(layer)
        elif isinstance(layer, StreamSender):
            _assert_appending(layer)
        elif isinstance(buffer := getattr(layer, "buffer", None), ReorderBuffer):
            _assert_buffer(buffer)


def backlog_of(layer: SenderLayer) -> int:
    """Messages that wait in a layer to be transmitted."""
    if isinstance(layer, WindowSender):
        return len(layer.backlog)
    return layer.gauges().get("backlog", 0)


def assert_balance(counters: Mapping[str, int], *, loaded: int, waiting: int) -> None:
    """Assert that every message that a sender took is waiting, confirmed or given up, and none twice."""
    taken = loaded + counters["accepted"]
    gone = counters["confirmed"] + counters["given_up"]
    assert taken == waiting + gone, (
        f"{taken} messages were taken, but {waiting} wait and {gone} are confirmed or given up"
    )


def assert_deadline(effects: int) -> None:
    """Assert that a step has set its one deadline at most once."""
    assert effects <= 1, f"a step set {effects} deadlines; a machine has one"


def _assert_window(layer: WindowSender) -> None:
    base, following = layer.base, layer.next
    assert base <= following, f"base {base} is above next {following}"
    assert following - base <= layer.span, (
        f"{base}..{following - 1} are more than the window of {layer.span}"
    )
    if layer.done:
        assert base not in layer.done, f"{base} is done, so the window should begin above it"
        assert layer.done.highest() < following, (
            f"{layer.done} is done, but only {following - 1} was sent"
        )
    assert layer.backlog.size_bytes >= 0, f"a backlog of {layer.backlog.size_bytes} bytes"
    runs = layer.flights.runs
    if runs:
        assert base <= runs[0].first <= runs[-1].last < following, (
            f"{runs[0].first}..{runs[-1].last} are on the way, outside of {base}..{following - 1}"
        )
    if layer.in_flight:
        assert runs, f"{layer.in_flight} messages are on the way, and nothing would send them again"


def _assert_appending(layer: StreamSender) -> None:
    first, base, following = layer.first, layer.base, layer.next
    assert first <= base <= following, f"base {base} is not within {first}..{following}"
    assert first <= layer.next_append <= following, (
        f"{layer.next_append} is to be appended next, and {first}..{following - 1} are here"
    )


def _assert_buffer(buffer: ReorderBuffer) -> None:
    held, in_work = buffer.held_count if buffer.held else 0, buffer.in_work
    assert in_work >= 0, f"{in_work} messages are in work"
    assert held + in_work <= buffer.held_max, (
        f"{held} held and {in_work} in work are more than held_max {buffer.held_max}"
    )
    if not buffer.expected:
        return
    if held:
        assert buffer.expected not in buffer.held, (
            f"{buffer.expected} is held, and it is the one to hand up next"
        )
    if buffer.settled_above:
        assert buffer.settled + 1 not in buffer.settled_above, (
            f"{buffer.settled + 1} is settled, so the settled prefix should reach beyond it"
        )


P = ParamSpec("P")
_FORWARD = (Numbered, Data, Probe, Open)
_BACKWARD = (Confirm, Nack, Opened, Unknown, Refused)
_FRAMES = _FORWARD + _BACKWARD


def composition(layers: Iterable[LayerOptions]) -> str:
    """The printed form of a stack, outermost layer first."""
    return " > ".join(str(layer) for layer in layers)


def _confirms(layers: Iterable[LayerOptions]) -> bool:
    return any(layer.confirms for layer in layers)


def _refuse_inner_giving_up(layers: Sequence[LayerOptions]) -> None:
    """A message that an inner layer gave up would leave a hole that nobody above can know of."""
    for number, layer in enumerate(layers[1:], 1):
        if isinstance(layer, RetryOptions) and layer.give_up_after_s is not None:
            raise ConfigurationError(
                f"layer {number} ({layer.kind}): option 'give_up_after_s' is {layer.give_up_after_s}, "
                f"but only the outermost layer may give messages up; set it on {layers[0].kind} or remove it"
            )


class Stack:
    """What both ends share: the step, the deadline, the counters, the queue of things to do."""

    TRANSIENT: ClassVar[tuple[str, ...]] = (
        *(
            "asserts",
            "life",
            "pipe",
            "tag",
            "options",
            "digest",
            "rng",
            "reverse",
            "boundary",
            "confirms",
        ),
        *(
            "ports",
            "layers",
            "intake",
            "delivery",
            "take_confirm",
            "agreement",
            "effects",
            "knows_writers",
            "_kinds",
            "_todo",
        ),
    )
    agreement: Agreement | None = None
    """What is known of the other end's stack, where the two are configured apart."""

    def __init__(
        self, pipe: str, layers: Sequence[LayerOptions], rng: Randomness, *, reverse: bool
    ) -> None:
        if not layers:
            raise ConfigurationError(f"pipe {pipe!r} has no layers")
        _refuse_inner_giving_up(layers)
        self.pipe = pipe
        self.tag = tag_of(pipe)
        self.options = tuple(layers)
        self.digest = stack_digest(layers)
        self.rng = rng
        self.reverse = reverse
        self.confirms = _confirms(self.options)
        """True when the sender learns what is settled, and sends again what is not."""
        self.asserts = False
        self.now = 0
        self.started = False
        self.closing = False
        self._armed: int | None = None
        self._last_ticket: int = 0
        self._callers: dict[int, int] = {}
        self._counts: dict[str, int] = fresh_counters()
        self.effects: list[Effect] = []
        """What this step has to be performed so far."""
        self.ports: Sequence[_LayerPort] = ()
        self._todo: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()

    def __str__(self) -> str:
        return composition(self.options)

    # For the parts of the stack.

    def emit(self, effect: Effect) -> None:
        """Add to the effects of this step."""
        self.effects.append(effect)

    def count(self, name: str, amount: int = 1) -> None:
        self._counts[name] += amount

    def ticket(self) -> int:
        self._last_ticket += 1
        return self._last_ticket

    def call_from(self, layer: int, request: object) -> int:
        """A store call of a layer."""
        ticket = self.ticket()
        self._callers[ticket] = layer
        self.emit(Call(ticket, request))
        return ticket

    def call_again(self, layer: int, ticket: int, request: object) -> None:
        """A store call of a layer, once more under its ticket."""
        self._callers[ticket] = layer
        self.emit(Call(ticket, request))

    def forget_call(self, ticket: int) -> None:
        """The answer to this ticket matters no more."""
        self._callers.pop(ticket, None)

    def later(self, todo: Callable[P, object], *args: P.args, **named: P.kwargs) -> None:
        """Do this when the layer that runs now has returned."""
        self._todo.append((partial(todo, **named) if named else todo, args))

    # The step.

    def _begin(self, now: int) -> None:
        if now < self.now:
            raise MisuseError(
                f"time went back from {self.now} to {now}: machines need a monotonic clock"
            )
        self.now = now
        for port in self.ports:
            port.now = now
        self.effects = []

    def _run(self) -> None:
        while self._todo:
            todo, args = self._todo.popleft()
            todo(*args)

    def _finish(
        self, deadline: int | None, layers: Iterable[SenderLayer | ReceiverLayer]
    ) -> list[Effect]:
        """The end of a step. ``deadline`` is the earliest one above the layers, which may have an earlier one."""
        for layer in layers:
            at = layer.deadline
            if at is not None and (deadline is None or at < deadline):
                deadline = at
        if deadline != self._armed:
            self._armed = deadline
            self.effects.append(WakeAt(deadline))
        if self.asserts:
            self._assert()
        return self.effects

    def _assert(self) -> None:
        """Nothing touches a machine between two steps, so what holds after one holds before the next."""
        assert_layers(self._parts())
        if len(self.effects) > 1:
            assert_deadline([type(effect) for effect in self.effects].count(WakeAt))

    def _known(self, frame: object) -> Frame | None:
        """A decoded frame that this stack may have been sent; what is none is counted."""
        if isinstance(frame, codec.NotAFrame):
            self.count(frame.counter)
            return None
        if not isinstance(frame, _FRAMES):
            self.count("malformed")
            return None
        if frame.pipe != self.tag:
            self.count("foreign")
            return None
        if frame.layer >= len(self.options):
            self.count("wrong_state")
            return None
        return frame

    # The other end's stack.

    def _introduced(self, frame: Introduction) -> bool:
        """The other end says how it is configured; True when this is the first that does not fit."""
        if self.agreement is None or frame.pipe != self.tag:
            self.count("wrong_state" if frame.pipe == self.tag else "foreign")
            return False
        was_fine = not self.agreement.differs
        self._say(self.agreement.heard(frame))
        return was_fine and bool(self.agreement.differs)

    def _say(self, frames: Iterable[Introduction]) -> None:
        for frame in frames:
            self.emit(Transmit(frame))

    @property
    def terms(self) -> Terms:
        """What the other end must have."""
        return self.agreement.own if self.agreement is not None else Terms(stack_text(self.options))

    def _with_agreement(self, parts: Sequence[object]) -> Sequence[object]:
        return parts if self.agreement is None else (*parts, self.agreement)

    # For hosts.

    @property
    def differs(self) -> str:
        """Why the two ends can't work together, once they have told each other; empty otherwise."""
        return self.agreement.differs if self.agreement is not None else ""

    def counters(self) -> Mapping[str, int]:
        """Everything counted since the machine was built, by name."""
        return dict(self._counts)

    def replaces(self, former: Stack, now: int) -> None:
        """Take the place of a machine that is forgotten: late answers to its tickets are no answers to ours."""
        self._begin(now)
        self.closing = former.closing
        self._last_ticket = former._last_ticket
        self._counts = former._counts

    def _parts(self) -> Sequence[object]:
        raise NotImplementedError

    def export(self) -> object:
        """The whole state as a plain value, for ``restore``; the random generator is not part of it."""
        return [snapshot.export_attributes(part) for part in (self, *self._parts())]

    def restore(self, state: object) -> None:
        """Go on from an exported state. This machine must have been built with the same arguments."""
        for part, value in zip((self, *self._parts()), cast("list[object]", state), strict=True):
            snapshot.restore_attributes(part, value)
        for port in self.ports:
            port.renew()


class _LayerPort:
    """The parts of a port that both halves have."""

    def __init__(self, stack: Stack, layer: int) -> None:
        self.stack = stack
        self.layer = layer
        self.tag = stack.tag
        self.pipe = stack.pipe
        self.has_reverse = stack.reverse
        self.stack_digest = stack.digest
        self.is_innermost = layer == len(stack.options) - 1
        self.now = stack.now
        self.count = stack.count

    def renew(self) -> None:
        """The stack was restored: know again what is asked at each step."""
        self.now = self.stack.now

    @property
    def differs(self) -> str:
        return self.stack.differs or difference(self.stack.terms, None)

    def control(self, frame: Frame) -> None:
        if self.has_reverse:
            self.stack.effects.append(Transmit(frame))

    def notice(self, kind: NoticeKind, epoch: int, ranges: Ranges = (), detail: str = "") -> None:
        self.stack.emit(Notice(kind, epoch, ranges, detail))

    def call(self, request: object) -> int:
        return self.stack.call_from(self.layer, request)

    def call_again(self, ticket: int, request: object) -> None:
        self.stack.call_again(self.layer, ticket, request)

    def forget(self, ticket: int) -> None:
        self.stack.forget_call(ticket)


class _SenderPort(_LayerPort):
    """The port of one sender half."""

    def __init__(self, stack: SenderStack, layer: int) -> None:
        super().__init__(stack, layer)
        self.sender = stack
        self.carrier_confirms = any(option.confirms for option in stack.options[layer + 1 :])
        self.over_stream = isinstance(stack.options[-1], Stream)

    @property
    def life(self) -> int:
        return self.sender.intake.life

    @property
    def carrier_room(self) -> int:
        return UNBOUNDED if self.is_innermost else self.sender.layers[self.layer + 1].room

    @property
    def carrier_room_bytes(self) -> int:
        return UNBOUNDED if self.is_innermost else self.sender.layers[self.layer + 1].room_bytes

    def pass_down(self, frame: Frame) -> bool:
        if self.is_innermost:
            self.stack.effects.append(Transmit(frame))
            return True
        # What goes into a store is read from there: nobody would ask for the frame itself.
        encode = codec.encode if self.over_stream else codec.encoded
        return self.sender.layers[self.layer + 1].send([encode(frame)]) == 1

    def confirmed(self, first: int, last: int) -> None:
        if self.layer == 0:
            self.sender.intake.confirmed(first, last)
        else:
            above = self.sender.layers[self.layer - 1]
            self.stack.later(above.carried, first, last)

    def fenced(self, known: int, *, answered: bool) -> None:
        # An index layer over a raw route gets no answer of its own; one to a layer above shows that its receiver
        # let our epoch through. One to a layer below says nothing: it carries, and confirms, what is then refused.
        was_served = answered or any(layer.taken for layer in self.sender.layers[: self.layer])
        self.stack.later(self.sender.intake.fenced, known, answered=was_served)

    def reached(self, through: int) -> None:
        if self.layer == 0:
            self.sender.intake.reached(through)

    def epoch_closed(self, through: int, detail: str) -> None:
        self.stack.later(self.sender.intake.epoch_closed, through, detail)

    def raise_life(self, above: int) -> None:
        self.stack.later(self.sender.intake.raise_life, above)

    def stop(self, detail: str, kind: NoticeKind = NoticeKind.FENCED) -> None:
        self.stack.later(self.sender.intake.stop, kind, detail)

    def give_up(self, first: int, payloads: Sequence[bytes], attempts: int, since: int) -> None:
        self.sender.give_up(self.layer, first, payloads, attempts, since)


class SenderStack(Stack):
    """The sending end of a pipe: a machine (see ``surepipe.core.machine.SenderMachine``)."""

    def __init__(
        self,
        pipe: str,
        layers: Sequence[LayerOptions],
        *,
        rng: Randomness,
        life_hint: int,
        journal: JournalContents | None = None,
        reverse: bool = True,
        terms: Terms | None = None,
    ) -> None:
        """``terms``: what the other end, which is configured apart, is told and must have."""
        super().__init__(pipe, layers, rng, reverse=reverse)
        if terms is not None:
            self.agreement = Agreement(terms, self.tag, sends=True)
        self.ports = ports = [_SenderPort(self, number) for number in range(len(layers))]
        self.layers: list[SenderLayer] = [
            sender_layer(option, port, rng)
            for option, port in zip(self.options, ports, strict=True)
        ]
        limit = layers[0].message_max_bytes
        self.intake: Intake = (
            Intake(self, self.layers[0], limit, life_hint)
            if journal is None
            else JournaledIntake(
                self, self.layers[0], self.options, life_hint, contents=journal, rng=rng
            )
        )
        self.undeliverable: dict[int, Posting] = {}

    # For the intake.

    def begin(self, epoch: int, base: int) -> None:
        """Start an epoch in the outermost layer."""
        self.layers[0].begin(epoch, base)

    def restart(self, life: int, epoch: int, base: int) -> None:
        """Start a new life in every layer, innermost first; what they hold is dropped."""
        for layer in reversed(self.layers[1:]):
            layer.carrier_restarted()
            layer.begin(life, 1)
        self.layers[0].carrier_restarted()
        self.layers[0].begin(epoch, base)

    def give_up(
        self, layer: int, first: int, payloads: Sequence[bytes], attempts: int, since: int
    ) -> None:
        """Send given-up messages to the dead letters (T-10). Only the outermost layer's are messages."""
        epoch = self.intake.epoch
        last = first + len(payloads) - 1
        waited_s = (self.now - since) / 1_000_000
        what = f"nobody confirmed it in {waited_s:.1f} s, tried {attempts} times"
        detail = f"layer {layer}: {what}" if layer else what
        self.emit(Notice(NoticeKind.UNDELIVERABLE, epoch, ((first, last),), detail))
        if layer > 0:
            return
        self.count("given_up", len(payloads))
        for seq, payload in enumerate(payloads, first):
            ticket = self.ticket()
            letter = Letter(
                self.pipe,
                layer,
                epoch,
                seq,
                payload,
                attempts,
                since,
                self.now,
                NoticeKind.UNDELIVERABLE.value,
                detail,
            )
            self.undeliverable[ticket] = Posting(letter)
            self.emit(DeadLetter(ticket, letter))

    # Inputs.

    def send(self, payloads: Sequence[bytes], now: int) -> list[Effect]:
        """Offer messages; a prefix of them is accepted, the rest rejected."""
        self._begin(now)
        if self.closing:
            self.count("rejected", len(payloads))
            self.emit(Reject(RejectReason.CLOSED, len(payloads)))
        else:
            self.intake.send(payloads)
        return self._end()

    def has_room_inside(self, layer: int) -> bool:
        """Whether ``send_inside`` would find room for a message now."""
        outermost = self.intake if layer == 0 else self.layers[layer]
        return self.intake.active and outermost.room > 0 and outermost.room_bytes > 0

    def send_inside(self, layer: int, payload: bytes, now: int) -> list[Effect]:
        """Make a message of a layer, also while closing: how a channel sends the confirms of its other direction.

        In the outermost layer it is accepted, confirmed or rejected as any other message is.
        """
        self._begin(now)
        if layer == 0:
            self.intake.send([payload])
        else:
            taken = self.layers[layer].send([payload])
            assert taken == 1, f"layer {layer} had room and took nothing"
        return self._end()

    def other_end_restarted(self, now: int) -> list[Effect]:
        """The receiver is a new one, which may know nothing of what its former one took and did not confirm."""
        self._begin(now)
        for layer in self.layers if self.intake.active else ():
            layer.other_end_restarted()
        return self._end()

    def route_is_back(self, now: int) -> list[Effect]:
        """Frames get through again after an outage: what waits for its turn to be sent again need not wait on.

        It is never more than an early retransmission, so a host that is mistaken does no harm.
        """
        self._begin(now)
        if self.agreement is not None:
            self._say(self.agreement.route_is_back(now))
        for layer in reversed(self.layers) if self.intake.active else ():
            layer.route_is_back()
        return self._end()

    def verify(self, now: int) -> list[Effect]:
        """Ask the store that keeps what is confirmed, where one does, whether it is still there: for whoever is
        about to rely on it while nothing is under way that would show it."""
        self._begin(now)
        if self.intake.active and not self.intake.unconfirmed():
            self.layers[-1].verify()
        return self._end()

    def stop(self, detail: str, now: int, kind: NoticeKind = NoticeKind.FENCED) -> list[Effect]:
        """Take and send nothing more: a newer sender is served, or the other end has other layers."""
        self._begin(now)
        self.intake.stop(kind, detail)
        return self._end()

    def frame(self, frame: object, now: int) -> list[Effect]:
        """A frame of the reverse path has arrived."""
        self._begin(now)
        if not isinstance(frame, _FRAMES):
            frame = codec.decoded(frame)
        if isinstance(frame, Introduction):
            if self._introduced(frame):
                if self.intake.stopped:  # by a refusal, which could not say what the other end has
                    self.emit(Notice(NoticeKind.MISMATCH, 0, (), self.differs))
                self.intake.stop(NoticeKind.MISMATCH, self.differs)
            return self._end()
        known, intake = self._known(frame), self.intake
        if known is None:
            return self._end()
        if isinstance(known, _BACKWARD) and intake.begun and not intake.stopped:
            self.layers[known.layer].control(known)
        else:
            self.count("wrong_state")
        return self._end()

    def wake(self, now: int) -> list[Effect]:
        """The deadline has passed; the first wake starts the machine."""
        self._begin(now)
        self._armed = None
        if self.agreement is not None:  # before all else: the other end hears it before any message
            self._say(self.agreement.wake(now) if self.started else self.agreement.begin(now))
        if not self.started:
            self.started = True
            self.intake.start()
        self.intake.wake()
        self._post_again()
        if self.intake.active:
            for layer in reversed(self.layers):
                layer.wake()
        return self._end()

    def answer(self, ticket: int, outcome: object, now: int) -> list[Effect]:
        """The outcome of a Persist, Call or DeadLetter."""
        self._begin(now)
        caller = self._callers.pop(ticket, None)
        if caller is not None:
            self.layers[caller].answer(ticket, outcome)
        elif ticket in self.undeliverable:
            self._posted(ticket, outcome)
        elif not self.intake.answer(ticket, outcome):
            self.count("late_answer")
        return self._end()

    def _posted(self, ticket: int, outcome: object) -> None:
        """A letter that is not stored would be a message lost in silence: it is written again."""
        posting = self.undeliverable[ticket]
        if isinstance(outcome, WriteStored):
            del self.undeliverable[ticket]
            self.intake.given_up(posting.letter.epoch, posting.letter.seq)
        elif posting.repeat_at is not None:
            self.count("late_answer")
        else:
            options = self.options[0]
            assert isinstance(options, RetryOptions), "only a layer that sends again gives up"
            posting.repeat_at = self.now + options.back_off.wait(posting.attempts, self.rng)

    def _post_again(self) -> None:
        for ticket, posting in self.undeliverable.items():
            if posting.repeat_at is not None and posting.repeat_at <= self.now:
                posting.repeat_at = None
                posting.attempts += 1
                self.emit(DeadLetter(ticket, posting.letter))

    def close(self, now: int) -> list[Effect]:
        """Take nothing more; go on with what was accepted."""
        self._begin(now)
        self.closing = True
        return self._end()

    def _end(self) -> list[Effect]:
        while self._todo:
            todo, args = self._todo.popleft()
            todo(*args)
        self.intake.finish_step()
        if self._todo:
            self._run()
        intake = self.intake
        deadline = intake.deadline
        if self.agreement is not None:
            deadline = earlier(deadline, self.agreement.again_at)
        for posting in self.undeliverable.values():
            deadline = earlier(deadline, posting.repeat_at)
        return self._finish(deadline, self.layers if intake.begun and not intake.stopped else ())

    def _assert(self) -> None:
        super()._assert()
        if self.confirms and self.intake.begun:
            first = self.layers[0]
            waiting = first.in_flight + backlog_of(first) + self.intake.backlog
            assert_balance(self._counts, loaded=self.intake.loaded, waiting=waiting)

    # Questions.

    @property
    def room(self) -> int:
        """How many more messages ``send`` would accept now, were they small."""
        return 0 if self.closing else self.intake.room

    @property
    def room_bytes(self) -> int:
        """How many more payload bytes ``send`` would accept now."""
        return 0 if self.closing else self.intake.room_bytes

    @property
    def idle(self) -> bool:
        """True when everything accepted is confirmed (or was sent where nothing confirms), or in a dead letter."""
        return not (self.intake.pending or self.undeliverable or self.intake.unconfirmed())

    @property
    def is_stored(self) -> bool:
        """True when a journal, where there is one, knows what is confirmed."""
        return self.intake.is_stored

    @property
    def verifying(self) -> bool:
        """True while the first answer to ``verify`` is awaited, and for ever where that has ended this sender. (A
        store that is away has none to give.)"""
        return self.layers[-1].verifying

    @property
    def stopped(self) -> str:
        """Why this sender stopped for good; empty while it has not."""
        return self.intake.stopped

    def unconfirmed(self) -> Sequence[tuple[int, Ranges]]:
        """What was accepted and is not confirmed, oldest epoch first."""
        return self.intake.unconfirmed()

    def gauges(self) -> Mapping[str, int]:
        """What stands now, of the outermost layer first."""
        gauges: dict[str, int] = {}
        for layer in reversed(self.layers):
            gauges |= layer.gauges()
        begun = self.intake.begun
        gauges["in_flight"] = self.layers[0].in_flight if begun else 0
        waiting = self.layers[0].gauges().get("backlog", 0) if begun else 0
        gauges["backlog"] = waiting + self.intake.backlog
        gauges["loaded"] = self.intake.loaded
        return gauges

    def _parts(self) -> Sequence[object]:
        return self._with_agreement((self.intake, *self.layers))


class _ReceiverPort(_LayerPort):
    """The port of one receiver half."""

    def __init__(self, stack: ReceiverStack, layer: int) -> None:
        super().__init__(stack, layer)
        self.receiver = stack
        self.incarnation = stack.incarnation
        self.durable = stack.boundary.durable
        self.has_lanes = stack.boundary.lanes > 0
        self.carrier_is_stream = any(
            isinstance(option, Stream) for option in stack.options[layer + 1 :]
        )

    def renew(self) -> None:
        super().renew()
        self.incarnation = self.receiver.incarnation

    @property
    def life(self) -> int:
        return self.receiver.life

    def state(self) -> bytes:
        return self.receiver.state(NOBODY, ())

    def restore_above(self, state: bytes) -> object:
        return self.receiver.restore_above(self.layer, state)

    def hand_up(
        self, epoch: int, first: int, payloads: Sequence[bytes], producer: str = ""
    ) -> None:
        if self.layer == 0:
            self.receiver.delivery.take(epoch, first, payloads, producer)
        else:
            self.stack.later(self.receiver.carry, self.layer - 1, epoch, first, payloads, producer)

    def settle(self, token: Token | None) -> None:
        if token is not None:
            below = self.receiver.layers[self.layer + 1]
            epoch, seq, producer = token
            self.stack.later(below.settled, epoch, seq, seq, producer)

    def refuse(self, token: Token | None) -> None:
        if token is not None:
            below = self.receiver.layers[self.layer + 1]
            epoch, seq, producer = token
            self.stack.later(below.refused, epoch, seq, seq, producer)


class ReceiverStack(Stack):
    """The receiving end of a pipe: a machine (see ``surepipe.core.machine.ReceiverMachine``)."""

    def __init__(
        self,
        pipe: str,
        layers: Sequence[LayerOptions],
        *,
        rng: Randomness,
        boundary: BoundaryOptions | None = None,
        state: bytes | None = None,
        reverse: bool = True,
        take_confirm: Callable[[bytes], bool] | None = None,
        key_of: KeyOf | None = None,
        life: int = 1,
        terms: Terms | None = None,
    ) -> None:
        """``life`` is above that of every earlier start: a stream's store refuses readers of a lower one.
        ``terms`` as for the sender."""
        super().__init__(pipe, layers, rng, reverse=reverse)
        if terms is not None:
            self.agreement = Agreement(terms, self.tag, sends=False, may_speak=reverse)
        self.life = life
        self.take_confirm = take_confirm
        self.boundary = boundary or BoundaryOptions()
        if self.boundary.boundary is Boundary.BEFORE and not self.boundary.durable:
            raise ConfigurationError(
                f"pipe {pipe!r}: boundary 'before' stores the cursor first, and nothing here is durable; "
                "give the receiver a state store, or use boundary 'processed'"
            )
        self.incarnation = rng.getrandbits(63) + 1
        self.ports = ports = [_ReceiverPort(self, number) for number in range(len(layers))]
        self.layers: list[ReceiverLayer] = [
            receiver_layer(option, port, rng)
            for option, port in zip(self.options, ports, strict=True)
        ]
        self.delivery = self._new_delivery(key_of)
        self._kinds = " > ".join(option.kind for option in self.options)
        self.knows_writers = False
        """Whether the host stops this end before a message that was written for another stack."""
        if state is not None and (
            self._stored_by_others(state) or not self._restored(len(layers), state)
        ):
            raise StacksDiffer(
                f"the state of this receiver was stored by {stack_in(state) or 'another stack'}, and this one is "
                f"{self._kinds}: give it the layers that it had, or another name"
            )

    def _new_delivery(self, key_of: KeyOf | None) -> DeliveryBase:
        boundary, ends = self.boundary, (self.rng, self.pipe)
        if not boundary.lanes:
            return Delivery(self, boundary, *ends, ordered=self.layers[0].ordered)
        if key_of is None:
            raise ConfigurationError(
                f"pipe {self.pipe!r}: {boundary.lanes} lanes, and nothing tells the key of a message: "
                "give a key"
            )
        window = self._window()
        return LaneDelivery(self, boundary, *ends, key_of=key_of, window=window)

    def _window(self) -> Window:
        """How far the receiver may be ahead of its oldest message that is not settled; see ``has_room``."""
        outermost, innermost = self.options[0], self.options[-1]
        count: int = getattr(outermost, "held_max", UNBOUNDED)
        size: int = getattr(outermost, "held_max_bytes", UNBOUNDED)
        sends_ahead = outermost.is_retry and not kind_of(outermost).sender.one_at_a_time
        spans = sends_ahead or self.layers[0].holds_early
        if isinstance(innermost, Stream):
            in_turn = len(self.options) == 1
            return Window(min(count, innermost.read_max), UNBOUNDED, spans=True, in_turn=in_turn)
        if not self.confirms:
            count, size = count - outermost.run_max + 1, size - self._largest + 1
            return Window(max(1, count), max(1, size), spans=True)
        return Window(count, max(1, size - outermost.frame_max_bytes), spans)

    @property
    def _largest(self) -> int:
        """Bytes of the largest run that may come."""
        return max(self.options[0].frame_max_bytes, self.options[0].message_max_bytes)

    # For the delivery and the layers.

    def settle_outermost(self, speaker: Speaker, first: int, last: int) -> None:
        producer, epoch = speaker
        self._todo.append((self.layers[0].settled, (epoch, first, last, producer)))

    def refuse_outermost(self, speaker: Speaker, first: int, last: int) -> None:
        producer, epoch = speaker
        self.later(self.layers[0].refused, epoch, first, last, producer)

    def cursors(self, speaker: Speaker, also: Ranges) -> list[object]:
        """The cursors of all layers. Those below may lag: what they repeat, the outermost drops."""
        (producer, epoch), (outermost, *others) = speaker, self.layers
        return [outermost.cursor(epoch, also, producer), *(layer.cursor() for layer in others)]

    def state(self, speaker: Speaker, also: Ranges) -> bytes:
        """What is stored of this end when ``also`` is settled in the outermost layer."""
        given_up = self.delivery.given_up_without(speaker, also)
        return encode_state(self.cursors(speaker, also), given_up, self._kinds)

    def restore_above(self, layer: int, state: bytes) -> object:
        """Restore the layers above ``layer``; returns its own cursor (None: not a state of this stack).

        The place in a stream is one for any layers above it. What those of another stack knew is nothing to these,
        where whoever wrote for them is told from whoever writes for these before a message is handed up.
        """
        if self._stored_by_others(state):
            goes_on = self.knows_writers and layer == len(self.layers) - 1
            return decode_state(state)[-1] if goes_on and not given_up_in(state, "") else None
        cursors = self._restored(layer, state)
        return cursors[layer] if cursors else None

    def _stored_by_others(self, state: bytes) -> bool:
        try:
            return stack_in(state) not in ("", self._kinds)
        except ValueError:
            return False

    def _restored(self, count: int, state: bytes) -> list[object]:
        """Restore so many layers; returns the cursors of all, none where it is no state of this stack."""
        try:
            cursors = decode_state(state)
            if len(cursors) != len(self.layers):
                return []
            for layer, cursor in zip(self.layers[:count], cursors, strict=False):
                layer.restore_cursor(cursor)
            self.delivery.restore(given_up_in(state, self.pipe))
        except (ValueError, TypeError, LookupError, AttributeError):  # of another shape
            return []
        return cursors

    def carry(
        self, layer: int, epoch: int, first: int, payloads: Sequence[bytes], producer: str
    ) -> None:
        """Hand messages of the layer below to a layer: each is one of its data frames."""
        for seq, payload in enumerate(payloads, first):
            if self.take_confirm is not None and self.take_confirm(payload):
                self.layers[layer + 1].settled(epoch, seq, seq, producer)
                continue
            decoded = codec.decoded(payload)
            if self.asserts:
                assert decoded == codec.decode(payload), f"{decoded} is not what its bytes say"
            frame, token = self._known(decoded), (epoch, seq, producer)
            if frame is None:
                self.layers[layer + 1].not_for_us(token)
            elif frame.layer != layer or not isinstance(frame, Numbered | Data):
                self.count("wrong_state")
                self.layers[layer + 1].not_for_us(token)
            else:
                self.layers[layer].data(frame, token)

    # Inputs.

    def frame(self, frame: object, now: int) -> list[Effect]:
        """A frame of the forward path has arrived."""
        self._begin(now)
        if not isinstance(frame, _FRAMES):
            frame = codec.decoded(frame)
        if isinstance(frame, Introduction):
            if self._introduced(frame):
                self.emit(Notice(NoticeKind.MISMATCH, 0, (), self.differs))
            return self._end()
        known = self._known(frame)
        if known is None:
            return self._end()
        differs = self.agreement is not None and self.agreement.differs
        is_message = isinstance(known, Numbered | Data)
        is_late = self.closing and (is_message or self.delivery.closed)
        if not self.started or not isinstance(known, _FORWARD) or is_late or differs:
            self.count("wrong_state")
        elif not is_message:
            self.layers[known.layer].control(known)
        elif known.layer == len(self.layers) - 1:
            self.layers[known.layer].data(known, None)
        else:
            self.count("wrong_state")
        return self._end()

    def wake(self, now: int) -> list[Effect]:
        """The deadline has passed; the first wake starts the machine."""
        self._begin(now)
        self._armed = None
        if self.agreement is not None:
            self._say(self.agreement.wake(now) if self.started else self.agreement.begin(now))
        self.started = True
        for layer in reversed(self.layers):
            layer.wake()
        self._run()
        self.delivery.wake()
        return self._end()

    def answer(self, ticket: int, outcome: object, now: int) -> list[Effect]:
        """The outcome of a Persist, Call or DeadLetter."""
        self._begin(now)
        caller = self._callers.pop(ticket, None)
        if caller is not None:
            self.layers[caller].answer(ticket, outcome)
        elif not self.delivery.answer(ticket, outcome):
            self.count("late_answer")
        return self._end()

    def settled(
        self, ticket: int, ranges: Ranges, now: int, *, by_host: bool = True
    ) -> list[Effect]:
        """These messages of the ticket have crossed the boundary.

        Not ``by_host``: no transaction of the host stores the cursor behind them, where the boundary has those.
        """
        self._begin(now)
        self.delivery.settled(ticket, ranges, by_host=by_host)
        return self._end()

    def settled_each(self, answers: Sequence[tuple[int, Ranges]], now: int) -> list[Effect]:
        """As ``settled`` for several tickets, in one step: with lanes their messages lie side by side."""
        self._begin(now)
        for ticket, ranges in answers:
            self.delivery.settled(ticket, ranges)
        return self._end()

    def failed(
        self, ticket: int, seq: int, error: Cause, now: int, *, final: bool = False
    ) -> list[Effect]:
        """The handler raised for ``seq`` (error type and text); what stands before it is settled.

        ``final``: trying again can't help; it becomes a dead letter at once, where there is a place for it.
        """
        self._begin(now)
        self.delivery.failed(ticket, seq, error, final=final)
        return self._end()

    def refused(self, ticket: int, ranges: Ranges, now: int) -> list[Effect]:
        """These messages were not taken; the carrier must bring them again."""
        self._begin(now)
        self.delivery.refused(ticket, ranges)
        return self._end()

    def again(self, now: int) -> list[Effect]:
        """The host's store was away: what has no answer is delivered again in its order, under new tickets."""
        self._begin(now)
        self.delivery.again()
        return self._end()

    def state_after(self, ticket: int, through: int) -> bytes:
        """The state to commit together with the effect of the ticket's messages up to ``through``."""
        return self.delivery.state_after(ticket, through)

    def take_no_more(self, now: int) -> list[Effect]:
        """What was taken is delivered, and the sender gets its answers, but nothing more is taken. Not over a
        stream, which is read as before."""
        self._begin(now)
        self.closing = True
        return self._end()

    def fill_gaps(self, now: int) -> list[Effect]:
        """Before ``close``, where messages are settled in any order: deliver only what is older than something
        settled, and take nothing more. What is in work may be ``given_back``."""
        self._begin(now)
        self.closing = True
        self.delivery.fill_gaps()
        return self._end()

    def given_back(self, ticket: int, now: int) -> list[Effect]:
        """Nobody handles what of this ticket has no answer."""
        self._begin(now)
        self.delivery.given_back(ticket)
        return self._end()

    def close(self, now: int) -> list[Effect]:
        """Deliver nothing more; what is in work may still be answered, and is still confirmed."""
        self._begin(now)
        self.closing = True
        self.delivery.close()
        return self._end()

    def _end(self) -> list[Effect]:
        while self._todo:
            todo, args = self._todo.popleft()
            todo(*args)
        self.delivery.finish_step()
        if self._todo:
            self._run()
        if self.closing:
            for layer in self.layers:
                layer.finish()
        deadline = self.delivery.deadline
        if self.agreement is not None:
            deadline = earlier(deadline, self.agreement.again_at)
        return self._finish(deadline, self.layers)

    # Questions.

    @property
    def has_room(self) -> bool:
        """False while what is in work leaves no room for a whole run more.

        A stack that confirms nothing drops what comes then (``over_limit``), and nobody sends it again. Its
        guarantee through ``handler-failure`` counts on a host that leaves frames on the route until there is room,
        as actors do (decision 0034).
        """
        count, size = self.delivery.in_work
        if not count:
            return True
        size += self._largest
        return self._is_within(0, count + self.options[0].run_max, size) and all(
            self._is_within(n, count + 1, size + (count + 1) * FRAME_BYTES)
            for n in range(1, len(self.options))
        )

    def _is_within(self, layer: int, count: int, size: int) -> bool:
        """Whether so much may be in work in a layer; a message of an inner one is a run of the one above."""
        options = self.options[layer]
        most: int = getattr(options, "held_max", UNBOUNDED)
        most_bytes: int = getattr(options, "held_max_bytes", UNBOUNDED)
        return count <= most and size <= most_bytes

    @property
    def idle(self) -> bool:
        """True when nothing is in work: no delivery, retry, state write or dead letter is open."""
        return self.delivery.idle

    @property
    def has_gaps(self) -> bool:
        """After ``fill_gaps``: True while something older than something settled is not, or is in work."""
        return self.delivery.has_gaps

    @property
    def answers_each(self) -> bool:
        """True when what is settled does not come again though something older is not settled."""
        return all(layer.answers_each for layer in self.layers)

    @property
    def comes_again(self) -> int:
        """So many messages are settled that whoever receives next has again, as something older is not settled."""
        return 0 if self.answers_each else self.delivery.settled_ahead

    @property
    def is_stored(self) -> bool:
        """True when what is settled is stored, wherever something of it is."""
        return self.delivery.is_stored and all(layer.is_stored for layer in self.layers)

    def gauges(self) -> Mapping[str, int]:
        """What stands now, of the outermost layer first."""
        gauges: dict[str, int] = {}
        for layer in reversed(self.layers):
            gauges |= layer.gauges()
        return gauges

    def _parts(self) -> Sequence[object]:
        return self._with_agreement((self.delivery, *self.layers))
