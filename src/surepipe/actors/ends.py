"""The two ends of a pipe, each usable alone over a side of a route: what callers hold while actors come and go.

An end has a stable address. When its actor dies it gets another life there: a sender as a new life (with a journal
it goes on with what was not confirmed, without one that is lost and said so), a receiver as a new incarnation.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from random import Random
from typing import cast

import pykka

from surepipe.actors.clerk import Journal, StateStore, Stores
from surepipe.actors.consumer import ConsumerActor, Loop, WorkQueue
from surepipe.actors.end import ASK_S, End, EndOptions
from surepipe.actors.host import Ask, Host
from surepipe.actors.inbox import Bell
from surepipe.actors.intake import Intake, describe
from surepipe.actors.letters import DeadLetterPlace
from surepipe.actors.marks import Item
from surepipe.actors.receiver import Progress, ReceiverActor
from surepipe.actors.routes import RouteSide
from surepipe.actors.sender import SenderActor
from surepipe.actors.supervision import KILL, Keeper
from surepipe.effects import Notice, NoticeKind, Ranges
from surepipe.errors import MisuseError, PipeClosed, PipeStopped
from surepipe.pipes.desk import BoundaryOptions
from surepipe.pipes.options import BacklogOptions, LayerOptions
from surepipe.pipes.stack import ReceiverStack, SenderStack

logger = logging.getLogger("surepipe")
UNIT_BYTES = 4096


class SenderEnd(End):
    """The sending end of a pipe over one side of a route.

    ``intake`` is where messages go in, as payloads. Without a journal what is not confirmed is lost when the
    sender crashes; the next ``flush`` names it. Raises ConfigurationError before anything is started.
    """

    side_name = "sender"

    def __init__(
        self,
        name: str,
        layers: Sequence[LayerOptions],
        side: RouteSide,
        options: EndOptions | None = None,
        *,
        journal: Journal | None = None,
        undeliverable: DeadLetterPlace | None = None,
        call: Callable[[object], object] | None = None,
        drained: Callable[[], None] | None = None,
    ) -> None:
        stores = Stores(journal.write if journal else None, undeliverable, call)
        super().__init__(name, side, options or EndOptions(), stores)
        self._layers = tuple(layers)
        self._journal = journal
        self._on_drained = drained
        self._last_life = 0
        self.confirms = self._new_machine(
            None
        ).confirms  # built once for its errors, which are the caller's
        unit, message_max = _units(self._layers[0])
        self.intake = Intake(
            self.runtime,
            self.around.bell,
            name,
            unit=unit,
            message_max=message_max,
            durable=journal is not None,
        )

    def _build(self) -> SenderStack:
        return self._new_machine(self._journal)

    def _new_machine(self, journal: Journal | None) -> SenderStack:
        hint = (self.runtime.wall_ms() << 20) + self.rng.getrandbits(20)
        self._last_life = max(hint, self._last_life + 1)
        return SenderStack(
            self.name,
            self._layers,
            rng=Random(self.rng.getrandbits(64)),
            life_hint=self._last_life,
            journal=journal.load() if journal else None,
            reverse=self._side.has_reverse,
        )

    def _new_life(self) -> SenderActor:
        return SenderActor(
            self.around,
            self.intake,
            self._build,
            stopped=self._stop_for_good,
            drained=self._drained,
            route_room=lambda: self._side.room,
        )

    def _drained(self) -> None:
        if self._on_drained is not None:
            self._on_drained()

    def _died(self, host: Host, error: BaseException) -> None:
        assert isinstance(host, SenderActor)
        try:
            self._account_for(host)
        finally:  # a machine that died half-way may not even say what it held
            super()._died(host, error)

    def _account_for(self, host: SenderActor) -> None:
        """Say what went with this life: everything unconfirmed, unless a journal has it."""
        ranges = [] if self._journal or not host.is_built else list(host.machine.unconfirmed())
        for epoch, spans in ranges:
            self.around.notices.tell(
                Notice(
                    NoticeKind.UNDELIVERABLE, epoch, spans, "lost with the sender, which crashed"
                )
            )
        self.intake.lost += _items(ranges)
        host.ledger.fail(
            f"pipe {self.name}: the sender crashed before this was confirmed"
            + ("; the journal has what it had stored" if self._journal else "; it is lost")
        )
        self.intake.notify()

    def _stop_for_good(self, host: SenderActor) -> None:
        self.keeper.retire()  # fenced, or given up: another life would only do harm
        items = _items(host.machine.unconfirmed())
        left = f"; not confirmed: {describe(items)}" if items else ""
        self.intake.end(PipeStopped, f"pipe {self.name} stopped: {host.machine.stopped}{left}")

    def _gave_up(self, why: str) -> None:
        self.intake.end(PipeStopped, f"pipe {self.name} stopped: {why}")

    def give_up(self, why: str) -> None:
        """The pipe is of no use any more: whoever sends or waits is told PipeStopped."""
        self._gave_up(why)

    def unconfirmed(self) -> list[Item]:
        """What was accepted and is not confirmed, as (epoch, first, last)."""
        try:
            answer = self.keeper.ask(Ask(_open_items), ASK_S)
        except (LookupError, pykka.ActorDeadError, pykka.Timeout):
            return []
        return cast("list[Item]", answer)

    def finish(self) -> None:
        """Take nothing more; what was taken goes on. A second call does nothing."""
        self.intake.refuse(PipeClosed, f"pipe {self.name} is closed and takes no more messages")

    def close(self, timeout: float) -> None:
        """Take nothing more, wait for confirmation, and end.

        Raises NotConfirmed, after everything is ended, for what was not confirmed in time. A second call
        does nothing.
        """
        if self._is_stopped:
            return
        self.finish()
        try:
            if self._is_started:
                self.intake.finish(timeout)
        finally:
            self.stop(timeout)

    def stop(self, timeout: float) -> bool:
        """End at once; what is not confirmed is given up."""
        is_ended = super().stop(timeout)
        self.intake.end(PipeClosed, f"pipe {self.name} is closed")
        return is_ended


class ReceiverEnd(End):
    """The receiving end of a pipe over one side of a route.

    ``works`` is where deliveries wait for whoever consumes them: ``consume`` starts an actor for that, or pull
    from it. Raises ConfigurationError before anything is started.
    """

    side_name = "receiver"

    def __init__(
        self,
        name: str,
        layers: Sequence[LayerOptions],
        side: RouteSide,
        options: EndOptions | None = None,
        *,
        boundary: BoundaryOptions | None = None,
        state: StateStore | None = None,
        dead_letter: DeadLetterPlace | None = None,
        call: Callable[[object], object] | None = None,
        gave_up: Callable[[str], None] | None = None,
    ) -> None:
        stores = Stores(state.write if state else None, dead_letter, call)
        super().__init__(name, side, options or EndOptions(), stores)
        self._layers = tuple(layers)
        self._boundary = boundary or BoundaryOptions()
        self._state = state
        self._on_gave_up = gave_up
        self._new_machine(None)  # built once for its errors, which are the caller's
        self.works = WorkQueue(self.runtime)
        self._progress = Progress(self.around.bell.ring)
        self._consumer: Keeper | None = None
        self._is_ending = False
        self._actor: ReceiverActor | None = None

    def start(self) -> None:
        """Open the route and begin the first incarnation."""
        if not self._is_started:
            self._progress.alarm = self.runtime.alarm(self._progress.ring)
        super().start()

    def _build(self) -> ReceiverStack:
        return self._new_machine(self._state)

    def _new_machine(self, state: StateStore | None) -> ReceiverStack:
        return ReceiverStack(
            self.name,
            self._layers,
            rng=Random(self.rng.getrandbits(64)),
            boundary=self._boundary,
            state=state.load() if state else None,
            reverse=self._side.has_reverse,
        )

    def _new_life(self) -> ReceiverActor:
        actor = ReceiverActor(
            self.around, self.works, self._progress, self._build, self._side.taken
        )
        actor.ending = self._is_ending
        self._actor = actor
        return actor

    def _gave_up(self, why: str) -> None:
        self.works.end(PipeStopped(f"pipe {self.name} stopped: {why}"))
        if self._on_gave_up is not None:
            self._on_gave_up(why)

    def consume(self, loop: Loop) -> None:
        """Start an actor that takes works through this loop. Raises MisuseError when there is one."""
        if self._consumer is not None:
            raise MisuseError(
                f"pipe {self.name} has a handler already: one handler takes all messages; "
                "make it pass them on to several"
            )
        bell = Bell(lambda message: self._consumer is not None and self._consumer.tell(message))
        self._consumer = Keeper(
            self.runtime,
            f"{self.name}/handler",
            lambda: ConsumerActor(self.works, loop, bell, self._consumer_died),
            self._gave_up,
            self.options.restarts,
        )
        self._consumer.start()
        self.works.serve(bell)

    def crash_consumer(self) -> None:
        """Let the actor that runs the handler die as a defect would, for fault injection."""
        if self._consumer is not None:
            self._consumer.tell(KILL)

    @property
    def has_consumer(self) -> bool:
        """True once ``consume`` was called."""
        return self._consumer is not None

    def _consumer_died(self, error: BaseException) -> None:
        # What it had in work will never be answered: only a new incarnation brings that again.
        assert self._consumer is not None
        self.crash()
        self._consumer.died(error)

    def expect_end(self) -> None:
        """The sender has finished: once what has arrived is handled, no more works will come."""
        self._is_ending = True
        if self._actor is not None:
            self._actor.ending = True
        self.around.bell.ring()

    def stop(self, timeout: float) -> bool:
        """Finish the message that is being handled, confirm what is settled, and end.

        False when a handler is still busy after ``timeout`` seconds: its thread goes on, what it handles is
        not confirmed.
        """
        if not self._is_started or self._is_stopped:
            self.works.end()
            return True
        end = self.runtime.now() + round(timeout * 1_000_000)
        self.works.cancel()
        is_ended = True
        if self._consumer is not None:
            self._consumer.stop()
            is_ended = self._consumer.join(timeout)
        try:
            self.keeper.ask(Ask(lambda host: cast(ReceiverActor, host).close()), ASK_S)
        except (LookupError, pykka.ActorDeadError, pykka.Timeout):
            logger.debug("%s is between two lives: there is nothing to confirm", self.address)
        left = max(0, end - self.runtime.now()) / 1_000_000
        is_ended = super().stop(max(left, 1.0)) and is_ended
        assert self._progress.alarm is not None
        self._progress.alarm.close()
        return is_ended


def _units(outermost: LayerOptions) -> tuple[int, int]:
    """Bytes that one credit stands for, and the largest message that can ever be accepted."""
    if isinstance(outermost, BacklogOptions):
        unit = min(UNIT_BYTES, max(1, outermost.backlog_bytes // outermost.backlog))
        return unit, min(outermost.message_max_bytes, outermost.backlog_bytes)
    return UNIT_BYTES, outermost.message_max_bytes


def _open_items(host: Host) -> list[Item]:
    assert isinstance(host, SenderActor)
    return _items(host.machine.unconfirmed()) if host.is_built else []


def _items(unconfirmed: Sequence[tuple[int, Ranges]]) -> list[Item]:
    return [(epoch, first, last) for epoch, ranges in unconfirmed for first, last in ranges]
