"""The sending end of a pipe, usable alone over a side of a route: what callers hold while actors come and go.

It has a stable address. When its actor dies it gets another life there: with a journal that goes on with
what was not confirmed, without one that is lost and said so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Protocol, cast

import pykka

from surepipe.actors.codecs import Codec, payloads_of
from surepipe.actors.ends.intake import Item, Mark, SenderEntry, SenderMarks, Until, describe
from surepipe.actors.host import EndOptions, Host, Node, NodeEnd, Surroundings
from surepipe.actors.letters import DeadLetterPlace
from surepipe.actors.routes import RouteSide
from surepipe.actors.store_calls import Journal, Stores, StreamAccess
from surepipe.actors.tracing import SenderTrace, after, sender_pipe
from surepipe.core.effects import (
    Accepted,
    Confirmed,
    DeadLetter,
    Effect,
    JournalContents,
    Notice,
    NoticeKind,
    Ranges,
    Reject,
    RejectReason,
    Renumbered,
)
from surepipe.core.machine import SenderMachine
from surepipe.core.store_requests import CommitPosition
from surepipe.errors import (
    ConfigurationError,
    Fenced,
    PipeClosed,
    PipeStopped,
    StacksDiffer,
    StoreUnavailable,
    SurepipeError,
)
from surepipe.errors import Fenced as FencedError
from surepipe.pipes.options import BacklogOptions, LayerOptions, room_options
from surepipe.pipes.stack.agreement import Terms
from surepipe.pipes.stack.assembled import SenderStack
from surepipe.pipes.stream.options import Stream, stream_layer
from surepipe.storage.journal import Beside, StoreJournal
from surepipe.storage.positions import CHANCE_BITS, began_later, numbered

# The actor of a sending end: moves what the intake holds into the machine, and tells it what came of that.


BUILD_AGAIN_US = 200_000
LATELY_S = 10.0
"""An end that has answered within this is thought to be there."""


class SendingMachine(SenderMachine, Protocol):
    """A machine that a sender's host can run: a ``SenderStack``, or one direction of a channel."""

    @property
    def confirms(self) -> bool:
        """True when the machine ever says ``Confirmed``."""
        ...

    def route_is_back(self, now: int) -> list[Effect]:
        """Frames get through again: what is not confirmed may be sent again now."""
        ...

    def verify(self, now: int) -> list[Effect]:
        """Ask the store that keeps what is confirmed, where one does, whether it is still there."""
        ...

    @property
    def verifying(self) -> bool:
        """True while the first answer to that is awaited."""
        ...

    @property
    def is_stored(self) -> bool:
        """True when a journal, where there is one, knows what is confirmed."""
        ...

    @property
    def stopped(self) -> str:
        """Why the machine stopped for good; empty while it has not."""
        ...


class SenderHost(Host[SendingMachine]):
    """One life of a sender. ``stopped`` is called when the machine stops for good, ``drained`` when the
    intake is closed and everything that was taken is confirmed (or sent, where nothing confirms).
    ``asks_a_store``: a store keeps what is confirmed, and can be asked whether it still does."""

    def __init__(
        self,
        around: Surroundings,
        intake: SenderEntry,
        build: Callable[[], SendingMachine],
        *,
        stopped: Callable[[SenderHost], None],
        drained: Callable[[], None],
        route_room: Callable[[], int],
        ended: Callable[[Fenced | StacksDiffer], None] | None = None,
        asks_a_store: bool = False,
    ) -> None:
        super().__init__(around)
        self._asks_a_store = asks_a_store
        self.ledger = SenderMarks()
        self._intake = intake
        self._build = build
        self._stopped = stopped
        self._drained = drained
        self._route_room = route_room
        self._ended = ended
        self._held: list[bytes] = []
        self._offering: list[bytes] = []
        self._looked_at = -1
        self._is_closing = False
        self._is_drained = False
        self._is_stopped = False
        self._is_verifying = False
        self._trace: SenderTrace | None = None
        self.perform_by_type |= {
            Accepted: self.ledger.accepted,
            Reject: self._reject,
            Confirmed: self._confirmed,
            Renumbered: self.ledger.renumbered,
            DeadLetter: after(self.ledger.gave_up, self._post),
        }

    def traced_by(self, trace: SenderTrace) -> None:
        """Write down what becomes of messages, before anybody else hears of it."""
        self._trace = trace
        performed = self.perform_by_type
        performed[Accepted] = after(trace.accepted, performed[Accepted])
        performed[Reject] = after(trace.rejected, performed[Reject])
        performed[Confirmed] = after(trace.confirmed, performed[Confirmed])
        performed[Renumbered] = after(trace.renumbered, performed[Renumbered])

    def answered(self, ticket: int, outcome: object) -> None:
        """From a clerk: the outcome of a request of this life."""
        if self._trace is not None and isinstance(outcome, JournalContents):
            self._trace.loaded(outcome)
        super().answered(ticket, outcome)

    def build(self) -> bool:
        """Build the machine from what the journal holds."""
        try:
            self.machine = self._build()
            self.is_built = True
        except StoreUnavailable:
            self.retry_build_at(self.now() + BUILD_AGAIN_US)
        except (Fenced, StacksDiffer) as error:
            assert self._ended is not None, "only an end with a journal has anything to lose"
            self.over = True
            self._ended(error)
        return self.is_built

    def look_further(self) -> None:
        """Take in what was sent, say how much room is left, and resolve what somebody waits for."""
        machine, intake, ledger = self.machine, self._intake, self.ledger
        if self.around.is_route_back:
            self.around.is_route_back = False
            self.perform(machine.route_is_back(self.now()))
        items, has_marks = intake.drain()
        payloads = (
            ledger.offering(items, len(self._held)) if has_marks else cast("list[bytes]", items)
        )
        if self._held:  # what the machine had no room for, against expectation, goes first
            payloads, self._held = [*self._held, *payloads], []
            if not machine.room:
                payloads, self._held = [], payloads
        if payloads:
            self._offering = payloads
            ledger.offered(len(payloads))
            if self._trace is not None:
                self._trace.offered(payloads)
            self.perform(machine.send(payloads, self.now()))
            self._offering = []
        if intake.refusal is not None:
            self._close()
        if ledger.is_asked_for_all and self._asks_a_store:
            # Nothing may be under way that would show it if the store had lost what it had confirmed.
            ledger.is_asked_for_all = False
            self._is_verifying = True
            self.perform(machine.verify(self.now()))
        # Without an effect or an answer nothing has been confirmed, and nothing has stopped.
        has_moved, self._looked_at = self.moves != self._looked_at, self.moves
        is_news = has_marks or has_moved
        has_looked = has_marks
        if ledger.marks and is_news:
            has_looked |= self._is_verifying
            self._is_verifying = self._is_verifying and machine.verifying
            has_looked |= ledger.resolve(machine.unconfirmed(), verifying=self._is_verifying)
        if has_looked:
            intake.signal.notify()
        # What is never sent again must not meet a full inbox: there the route's room is a bound too.
        room = machine.room if machine.confirms else min(machine.room, self._route_room())
        intake.publish(room, machine.room_bytes, len(self._held))
        if has_moved and machine.stopped and not self._is_stopped:
            self._is_stopped = True
            self._stopped(self)

    def _close(self) -> None:
        if self._intake.drained and not self._held:
            if not self._is_closing:
                self._is_closing = True
                self.perform(self.machine.close(self.now()))
                self._intake.signal.notify()
            if self.machine.idle and not self._is_drained:
                self._is_drained = True
                self._drained()
        if self._intake.is_noted != self.machine.is_stored:
            self._intake.is_noted = not self._intake.is_noted
            self._intake.signal.notify()

    # Effects that only senders have.

    def _reject(self, effect: Reject) -> None:
        rest = self._offering[-effect.count :]
        if effect.reason is RejectReason.FULL:
            self._held = rest
            self.ledger.offered(-effect.count)
        else:
            self.ledger.rejected(effect.count, self._rejection(effect))

    def _rejection(self, effect: Reject) -> SurepipeError:
        kind = StacksDiffer if self.mismatch else PipeStopped
        said = effect.detail or self.machine.stopped
        why = f": {said}" if said else ""
        return kind(
            f"pipe {self._intake.pipe} did not accept the message ({effect.reason}{why}); it was not sent"
        )

    def _confirmed(self, effect: Confirmed) -> None:
        """Nothing to do now: ``look_further`` asks the machine what is left, and tells whoever waits."""


UNIT_BYTES = 4096
PARTING_S = 0.2
"""So long the threads of a sender have to end, whose time is up."""


class SenderEnd(NodeEnd):
    """The sending end of a pipe over one side of a route.

    ``intake`` is where messages go in, as payloads. Without a journal what is not confirmed is lost when the
    sender crashes; the next ``flush`` names it. ``apart``: the journal is in another store than the stream, and
    goes on when that one hangs. ``terms``: what the other end, which is configured apart, must have. ``node``:
    where it lives, None for alone. Raises ConfigurationError before anything is started.
    """

    side_name = "sender"
    _look_there = "Look at what the handler does there"
    _last_life = 0
    _has_loaded = False
    """True once the journal answered; from then on it knows by itself who may not have it back."""
    _sender_trace: SenderTrace | None = None
    _outliving: Sequence[Mark] = ()

    def __init__(
        self,
        name: str,
        layers: Sequence[LayerOptions],
        side: RouteSide,
        options: EndOptions | None = None,
        *,
        journal: Journal | None = None,
        undeliverable: DeadLetterPlace | None = None,
        stream: StreamAccess | None = None,
        apart: bool = False,
        drained: Callable[[], None] | None = None,
        terms: Terms | None = None,
        node: Node | None = None,
    ) -> None:
        stores = Stores.of(journal, undeliverable, stream, apart=apart)
        own_name = stream_layer(layers).producer
        super().__init__(name, side, options or EndOptions(), stores, node=node, own_name=own_name)
        self._layers = tuple(layers)
        self._journal = journal
        self._terms = terms
        self._codec: Codec | None = None
        # Built once for its errors, which are the caller's.
        self.confirms = self._new_sender(None).confirms
        self._begin_sending(name, journal, drained)

    def _begin_sending(
        self,
        pipe: str,
        journal: Journal | None = None,
        drained: Callable[[], None] | None = None,
    ) -> None:
        self._on_drained = drained
        unit, message_max = _units(self._layers[0])
        self.intake = SenderEntry(
            self.runtime,
            self.around.bell,
            pipe,
            unit=unit,
            message_max=message_max,
            durable=journal is not None,
            silent=self.silences.text,
        )
        self.intake.held_up = self.held_up
        self.intake.room_options = room_options(self._layers, journaled=journal is not None)

    def read_by(self) -> tuple[str, ...]:
        """Who reads the stream that it sends into, as far as its store says; nobody where there is no stream."""
        return self._stores.stream.readers() if self._stores.stream is not None else ()

    def held_up(self) -> str:
        """What the confirmation of what was sent waits for, as far as it can be known here, and what to do."""
        if silent := self.silences.text():
            return f"{silent}, and what was sent waits for it"
        if self._stores.stream is not None and (full := self._stores.stream.full):
            return f"what was sent waits for room. {full}"
        if self._stores.stream is not None:
            return f"what was sent waits for store {self._stores.streams_in}"
        if not self.confirms:
            return "what was sent waits for room on its route"
        if self.around.heard_at is None:
            return (
                "nothing has ever come back from the other end. See whether that runs, with the same name, layers "
                "and route"
            )
        ago_s = (self.runtime.now() - self.around.heard_at) / 1_000_000
        advice = self._look_there if ago_s < LATELY_S else "See whether it still runs"
        return f"what was sent waits for the other end, which last answered {ago_s:.1f} s ago. {advice}"

    def entry(self, codec: Codec) -> Callable[[object], None]:
        """What puts messages of this codec into the pipe."""
        self._codec = codec
        return self.intake.entry(codec)

    # For pipelines, which look after the pipes that they fill.

    @property
    def message_max(self) -> int:
        """Bytes of the largest message that is taken."""
        return self.intake.message_max

    @property
    def failure(self) -> BaseException | None:
        """Why nothing is taken any more; None while something is."""
        return self.intake.failure

    @property
    def waiting(self) -> int:
        """Messages that the machine has not taken yet."""
        return self.intake.waiting

    @property
    def drained(self) -> bool:
        """True when no more come, and the machine has taken all."""
        return self.intake.drained

    def can_send_beside(self, positions: object) -> bool:
        """True when positions of this store can move in one step with the journal of this pipe."""
        return isinstance(self._journal, StoreJournal) and self._journal.can_commit_beside(
            positions
        )

    def send_beside(
        self,
        reader: str,
        messages: Sequence[object],
        behind: Callable[[int], CommitPosition],
        texts: Sequence[bytes] | None = None,
    ) -> None:
        """Send messages, which enter the journal in one transaction with the position of this reader behind so
        many of them: both or neither. ``texts``: the same as JSON, where somebody has it.

        Returns when the journal has all. Raises what ``send`` raises; the positions then say what was accepted.
        Only where ``can_send_beside``.
        """
        journal, codec = self._journal, self._codec
        assert isinstance(journal, StoreJournal), "can_send_beside has said no"
        assert codec is not None, "an end that is sent into has an entry"
        payloads = None
        if texts is not None:
            payloads = payloads_of(codec, messages, texts, self.message_max)
        if payloads is None:
            payloads = [Beside(codec.encode(message)) for message in messages]
        journal.commit_beside(payloads, reader, behind)
        self.intake.offer_many(payloads, Until.ACCEPTED, None)

    def send_texts(self, messages: Sequence[object], texts: Sequence[bytes], until: Until) -> bool:
        """Send messages whose JSON is known; False, and nothing is sent, where the codec writes something else.
        Raises what ``send_many`` raises."""
        assert self._codec is not None, "an end that is sent into has an entry"
        payloads = payloads_of(self._codec, messages, texts, self.message_max)
        if payloads is None:
            return False
        self.intake.offer_many(payloads, until, None)
        return True

    def _build_sender(self) -> SenderStack:
        return self._new_sender(self._journal)

    def _new_sender(self, journal: Journal | None) -> SenderStack:
        stack = SenderStack(
            self.name,
            self._layers,
            rng=Random(self.rng.getrandbits(64)),
            life_hint=self._next_life(),
            journal=self._loaded(journal) if journal else None,
            reverse=self._side.has_reverse,
            terms=self._terms,
        )
        stack.asserts = self.options.asserts
        return stack

    def _loaded(self, journal: Journal) -> JournalContents:
        with self.silences.asking(self._stores.kept_in, "load", "the journal's contents wait"):
            contents = journal.load()
        now = numbered(self.runtime.wall_ms(), 0)
        if not self._has_loaded and began_later(contents.last_life, self._last_life, now):
            raise FencedError(
                f"the journal of pipe {self.name} was taken by life {contents.last_life}, which began later than "
                f"{self._last_life}"
            )
        self._has_loaded = True
        if self._sender_trace is not None:
            self._sender_trace.loaded(contents)
        return contents

    def _next_life(self) -> int:
        """By the wall clock. With a journal only the first: others renew it, below who began later."""
        if self._journal is not None and self._last_life:
            self._last_life += 1
            return self._last_life
        hint = numbered(self.runtime.wall_ms(), self.rng.getrandbits(CHANCE_BITS))
        self._last_life = max(hint, self._last_life + 1)
        return self._last_life

    def new_life(self) -> Host[Any]:
        """From the node: the host of a life that is about to begin."""
        actor = SenderHost(
            self.around,
            self.intake,
            self._build_sender,
            stopped=self._stop_for_good,
            drained=self._drained,
            route_room=lambda: self._side.room,
            ended=self._ended_by_journal,
            asks_a_store=self._stores.stream is not None,
        )
        actor.ledger.marks += self._outliving
        self._outliving = ()
        if self._trace is not None:
            stream = stream_layer(self._layers).stream
            self._trace.start(
                self.address, self.traced_pipe, **({"stream": stream} if stream else {})
            )
            self._sender_trace = SenderTrace(self._trace, self.address, self.traced_pipe)
            actor.traced_by(self._sender_trace)
        return actor

    @property
    def traced_pipe(self) -> str:
        """The messages of a stream are those of one of its producers."""
        outermost = self._layers[0]
        if not isinstance(outermost, Stream):
            return self.name
        return sender_pipe(self.name, outermost.producer or self.name)

    def is_at_rest(self, host: Host[Any]) -> bool:
        """All that was taken is confirmed, or was sent where nothing confirms."""
        return super().is_at_rest(host) and self._sender_of(host).machine.idle

    def _drained(self) -> None:
        if self._on_drained is not None:
            self._on_drained()

    @property
    def has_journal(self) -> bool:
        """True when what was accepted outlives the sender."""
        return self._journal is not None

    def died(self, host: Host[Any], error: BaseException) -> None:
        """From the node: its actor has died."""
        try:
            self._account_for(self._sender_of(host))
        finally:  # a machine that died half-way may not even say what it held
            super().died(host, error)

    def ended(self, host: Host[Any], why: str) -> None:
        """A life is over because another end of the node begins anew: what it held goes with it all the same."""
        self._account_for(self._sender_of(host))
        super().ended(host, why)

    def _sender_of(self, host: Host[Any]) -> SenderHost:
        """The part of this end's actor that sends."""
        assert isinstance(host, SenderHost)
        return host

    def _account_for(self, host: SenderHost) -> None:
        """Say what went with this life: everything unconfirmed, unless a journal has it."""
        ranges = [] if self._journal or not host.is_built else list(host.machine.unconfirmed())
        for epoch, spans in ranges:
            self.around.notices.tell(
                Notice(
                    NoticeKind.UNDELIVERABLE, epoch, spans, "lost with the sender, which crashed"
                )
            )
        self.intake.lost += _items(ranges)
        if self._journal:
            self._outliving = host.ledger.outliving()
        host.ledger.fail(
            f"pipe {self.name}: the sender crashed before this was confirmed"
            + ("; the journal has what it had stored" if self._journal else "; it is lost")
        )
        self.intake.signal.notify()

    def _stop_for_good(self, host: SenderHost) -> None:
        self.node.retire(self)  # fenced, or given up: another life would only do harm
        items = _items(host.machine.unconfirmed())
        left = f"; not confirmed: {describe(items)}" if items else ""
        kind = StacksDiffer if host.mismatch else PipeStopped
        self.stop_for_good(self._stopped(f"{host.machine.stopped}{left}", kind))

    def _ended_by_journal(self, error: Fenced | StacksDiffer) -> None:
        """The journal was taken over, or holds what another codec wrote. This end stays ended: to begin again
        would depose the later life, or send those messages as something else."""
        self.node.retire(self)
        self._stay_ended(error)

    def refused_by_store(self, error: ConfigurationError) -> None:
        """The stream can't be used, which nobody could know while its store was away: nothing more is accepted."""
        self._stay_ended(error)

    def _stay_ended(self, error: SurepipeError) -> None:
        kind = NoticeKind.FENCED if isinstance(error, Fenced) else NoticeKind.MISMATCH
        self.around.notices.tell(Notice(kind, 0, (), str(error)))
        is_told = StacksDiffer if isinstance(error, StacksDiffer) else PipeStopped
        self.stop_for_good(self._stopped(str(error), is_told))

    def met_other_reader(self, why: str) -> None:
        """A reader of the stream is configured differently. It reads nothing; what is sent is for the others."""
        self.around.notices.tell(Notice(NoticeKind.MISMATCH, 0, (), why))

    def leave_behind(self, error: PipeStopped) -> None:
        self.intake.renew_locks()
        super().leave_behind(error)

    def raise_from_now_on(self, error: PipeStopped) -> None:
        """Whoever sends, or waits for what was sent, gets this error."""
        self.intake.end(type(error), str(error))

    def unconfirmed(self) -> list[Item]:
        """What was accepted and is not confirmed, as (epoch, first, last)."""
        if not self.node.is_started:
            return []
        try:
            answer = self.ask(lambda host: _open_items(self._sender_of(host)))
        except (LookupError, pykka.ActorDeadError, pykka.Timeout):
            return []
        return cast("list[Item]", answer)

    def flush(self, timeout: float | None) -> None:
        """Wait until everything put so far is confirmed, or sent where nothing confirms; see ``Intake.flush``."""
        self.intake.flush(timeout)

    def finish(self) -> None:
        """Take nothing more; what was taken goes on. A second call does nothing."""
        self._take_none("closed")

    def say_finished(self) -> None:
        """The same, for whoever goes on receiving, and is told that when he sends."""
        self._take_none("finished")

    def _take_none(self, how: str) -> None:
        self.intake.refuse(PipeClosed, f"pipe {self.name} is {how} and takes no more messages")

    def close(self, timeout: float, interrupted: Callable[[], None] = lambda: None) -> None:
        """Take nothing more, wait for confirmation, and end.

        Raises NotConfirmed, after everything is ended, for what was not confirmed in time. ``interrupted`` is
        called when Ctrl-C ends the wait, while this end can still be asked. A second call does nothing.
        """
        if self._is_stopped:
            return
        end = self.runtime.now() + round(timeout * 1_000_000)
        self.finish()
        try:
            if self.node.is_started:
                self.intake.finish(timeout)
        except KeyboardInterrupt:
            interrupted()
            end = 0
            raise
        finally:  # what kept the confirmations may keep a clerk, too
            self.stop(max(self._left(end), PARTING_S))

    def stop(self, timeout: float) -> bool:
        """End at once; what is not confirmed is given up."""
        is_ended = super().stop(timeout)
        self.intake.end(PipeClosed, f"pipe {self.name} is closed", may_take=not is_ended)
        return is_ended


def _units(outermost: LayerOptions) -> tuple[int, int]:
    """Bytes that one credit stands for, and the largest message that can ever be accepted."""
    unit = UNIT_BYTES
    if isinstance(outermost, BacklogOptions):
        unit = min(unit, max(1, outermost.backlog_bytes // outermost.backlog))
    return unit, largest_message(outermost)


def largest_message(outermost: LayerOptions) -> int:
    """Bytes of the largest message that can ever be accepted."""
    if isinstance(outermost, BacklogOptions):
        return min(outermost.message_max_bytes, outermost.backlog_bytes)
    return outermost.message_max_bytes


def _open_items(host: SenderHost) -> list[Item]:
    return _items(host.machine.unconfirmed()) if host.is_built else []


def _items(unconfirmed: Sequence[tuple[int, Ranges]]) -> list[Item]:
    return [(epoch, first, last) for epoch, ranges in unconfirmed for first, last in ranges]
