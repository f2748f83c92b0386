from __future__ import annotations

from collections.abc import Container

import pytest

from surepipe import NotConfirmed, PipeClosed, PipeStopped
from surepipe.actors import EndOptions, LocalRoute, ReceiverEnd, RestartPolicy, SenderEnd
from surepipe.actors.codecs import BytesCodec
from surepipe.actors.consuming.consumer import each, pull
from surepipe.actors.ends.intake import Until
from surepipe.actors.routes import Landing, LocalSide
from surepipe.actors.runtime import Runtime
from surepipe.actors.steps import StepRuntime
from surepipe.core.effects import (
    JournalContents,
    NoteTransmitted,
    SaveState,
    Write,
    WriteOutcome,
    WriteStored,
)
from surepipe.errors import ConfigurationError, StoreUnavailable
from surepipe.pipes.catalogue import parse_layers
from surepipe.pipes.stack.boundary import Boundary, BoundaryOptions
from tests.actors.kit import PATIENCE_S, Noted, await_that
from tests.kit.journal import MemoryJournal

RELIABLE = parse_layers({"reliable": {"rto_initial_s": 0.05, "rto_min_s": 0.02}})


class Journal:
    """A journal in memory that can be down, or refuse one kind of write."""

    def __init__(self) -> None:
        self.memory = MemoryJournal()
        self.down = 0
        self.refused: type[NoteTransmitted] | None = None

    def _answer(self) -> None:
        if self.down:
            self.down -= 1
            raise StoreUnavailable("down")

    def load(self) -> JournalContents:
        self._answer()
        return self.memory.contents()

    def write(self, write: Write) -> WriteOutcome:
        self._answer()
        if self.refused is not None and isinstance(write, self.refused):
            raise StoreUnavailable("refused")
        return self.memory.write(write)


class State:
    """A receiver's state in memory that can be down."""

    def __init__(self) -> None:
        self.saved: bytes | None = None
        self.down = 0

    def load(self) -> bytes | None:
        if self.down:
            self.down -= 1
            raise StoreUnavailable("down")
        return self.saved

    def rollback(self) -> str:
        return ""

    def write(self, write: Write) -> WriteOutcome:
        assert isinstance(write, SaveState)
        self.saved = write.state
        return WriteStored()


def _ends(
    runtime: Runtime, journal: Journal | None = None, state: State | None = None
) -> tuple[SenderEnd, ReceiverEnd]:
    route = LocalRoute()
    options = EndOptions(runtime=runtime, restarts=RestartPolicy(wait_min_s=0.001))
    receiver = ReceiverEnd(
        "p",
        RELIABLE,
        route.receiver,
        options,
        boundary=BoundaryOptions(durable=state is not None),
        state=state,
    )
    sender = SenderEnd("p", RELIABLE, route.sender, options, journal=journal)
    return sender, receiver


def _stop(*ends: SenderEnd | ReceiverEnd) -> None:
    for end in ends:
        assert end.stop(PATIENCE_S)


def test_the_two_ends_know_each_other_by_the_route_only(runtime: Runtime) -> None:
    """Started in the order that is less convenient."""
    sender, receiver = _ends(runtime)
    seen: list[object] = []
    sender.start()
    sender.intake.put(b"a")
    receiver.start()
    receiver.consume(each(seen.append, BytesCodec()))
    sender.intake.offer(b"b", Until.CONFIRMED, PATIENCE_S)
    assert seen == [b"a", b"b"]
    sender.close(PATIENCE_S)
    with pytest.raises(PipeClosed):
        sender.intake.put(b"c")
    _stop(receiver)


def test_an_end_alone_can_be_pulled_from(steps: StepRuntime) -> None:
    """Works are where whoever consumes finds them."""
    sender, receiver = _ends(steps)
    receiver.start()
    sender.start()
    sender.intake.offer_many([b"a", b"b"], Until.ACCEPTED, None)
    loop = pull(receiver.works, BytesCodec())
    assert [next(loop), next(loop)] == [b"a", b"b"]
    _stop(receiver)
    assert list(loop) == []
    with pytest.raises(NotConfirmed):
        sender.close(0.1)


def test_with_a_journal_a_message_is_accepted_when_its_row_is_stored(runtime: Runtime) -> None:
    """send returns when the journal has answered, also when it was down for a while (pipes P-6)."""
    journal = Journal()
    sender, receiver = _ends(runtime, journal)
    sender.start()
    sender.intake.put(b"a")
    assert [row for rows in journal.memory.rows.values() for row in rows] == [(1, b"a")]
    journal.down = 2
    sender.intake.put(b"b")
    assert sum(map(len, journal.memory.rows.values())) == 2
    with pytest.raises(NotConfirmed):
        sender.intake.flush(0.05)
    _stop(sender, receiver)


def test_a_sender_with_a_journal_that_crashes_loses_nothing(runtime: Runtime) -> None:
    """Sent, crashed before anybody read, delivered by the next life under the same numbers (pipes L-3)."""
    journal = Journal()
    sender, receiver = _ends(runtime, journal)
    sender.start()
    sender.intake.offer_many([b"a", b"b"], Until.ACCEPTED, None)
    ((epoch, *_),) = before = sender.unconfirmed()
    await_that(runtime, lambda: journal.memory.transmitted == epoch, "a note that they are sent")
    journal.down = 1
    sender.crash()
    await_that(runtime, lambda: sender.keeper.restarts == 1 and sender.is_alive, "the next life")
    await_that(runtime, lambda: sender.unconfirmed() == before, "the journal to answer")
    _hear_the_rest(sender, receiver)


def test_messages_that_were_never_sent_are_numbered_again_by_the_next_life(
    runtime: Runtime,
) -> None:
    """1. Two are accepted. 2. That they are sent can't be noted, so they aren't. 3. The life ends. 4. The next one
    knows that no receiver has seen their numbers, and gives them its own (pipes L-3)."""
    journal = Journal()
    journal.refused = NoteTransmitted
    sender, receiver = _ends(runtime, journal)
    sender.start()
    sender.intake.offer_many([b"a", b"b"], Until.ACCEPTED, None)
    ((epoch, *_),) = sender.unconfirmed()
    sender.crash()
    await_that(runtime, lambda: sender.keeper.restarts == 1 and sender.is_alive, "the next life")
    journal.refused = None
    await_that(runtime, lambda: journal.memory.transmitted > epoch, "a note under a new number")
    ((later, first, last),) = sender.unconfirmed()
    assert later > epoch
    assert (first, last) == (1, 2)
    _hear_the_rest(sender, receiver)


def _hear_the_rest(sender: SenderEnd, receiver: ReceiverEnd) -> None:
    """The receiver begins, and gets what two lives of the sender took."""
    seen: list[object] = []
    receiver.start()
    receiver.consume(each(seen.append, BytesCodec()))
    sender.intake.put(b"c")
    sender.intake.flush(PATIENCE_S)
    assert seen == [b"a", b"b", b"c"]
    sender.close(PATIENCE_S)
    _stop(receiver)


def test_a_receiver_with_a_stored_state_goes_on_where_it_was(runtime: Runtime) -> None:
    """Crashed when all was settled and stored: nothing is delivered twice, though its store is down at first."""
    state = State()
    sender, receiver = _ends(runtime, state=state)
    seen: list[object] = []
    receiver.start()
    receiver.consume(each(seen.append, BytesCodec()))
    sender.start()
    sender.intake.offer_many([b"a", b"b"], Until.CONFIRMED, PATIENCE_S)
    state.down = 2
    receiver.crash()
    await_that(runtime, lambda: receiver.keeper.restarts == 1 and receiver.is_alive, "a new life")
    sender.intake.offer(b"c", Until.CONFIRMED, PATIENCE_S)
    assert seen == [b"a", b"b", b"c"]
    sender.close(PATIENCE_S)
    _stop(receiver)


class Hub:
    """The sender's side of a route, shared: what comes back reaches every sender."""

    def __init__(self, side: LocalSide) -> None:
        self.side = side
        self.landings: list[Landing] = []
        self.has_reverse = True

    @property
    def room(self) -> int:
        return self.side.room

    def open(self, landing: Landing, runtime: Runtime) -> None:
        self.landings.append(landing)
        self.side.open(self, runtime)

    def put(self, frame: object) -> None:
        for landing in self.landings:
            landing.put(frame)

    def wake(self) -> None:
        """Nobody here waits for room."""

    def reconnected(self, elsewhere: Container[int] = ()) -> None:
        """This route never breaks."""

    def send(self, frame: object) -> None:
        self.side.send(frame)

    def taken(self) -> None:
        """Nobody there waits for room."""

    def close(self) -> None:
        """The other sender goes on."""


def test_a_sender_that_was_replaced_stops_for_good_and_names_what_is_unconfirmed(
    runtime: Runtime,
) -> None:
    """Two senders of one pipe: the older is fenced and not restarted (pipes L-7, rl7)."""
    route = LocalRoute()
    hub = Hub(route.sender)
    noted = Noted()
    options = EndOptions(runtime=runtime, notices=noted)
    receiver = ReceiverEnd("p", RELIABLE, route.receiver, options)
    seen: list[object] = []
    receiver.start()
    receiver.consume(each(seen.append, BytesCodec()))
    old = SenderEnd("p", RELIABLE, hub, options)
    old.start()
    old.intake.offer(b"a", Until.CONFIRMED, PATIENCE_S)
    first_ms = runtime.wall_ms()
    await_that(runtime, lambda: runtime.wall_ms() > first_ms, "a later life number")
    new = SenderEnd("p", RELIABLE, hub, options)
    new.start()
    new.intake.offer(b"b", Until.CONFIRMED, PATIENCE_S)
    with pytest.raises(PipeStopped, match=r"pipe p stopped: .* not confirmed: epoch \d+: 2"):
        old.intake.offer(b"c", Until.CONFIRMED, PATIENCE_S)
    with pytest.raises(PipeStopped):
        old.intake.put(b"d")
    assert "Fenced" in noted.kinds()
    old.crash()
    new.intake.offer(b"e", Until.CONFIRMED, PATIENCE_S)
    assert old.keeper.restarts == 0
    assert seen == [b"a", b"b", b"e"]
    _stop(old, new, receiver)


def test_frames_beyond_the_inbox_are_dropped_counted_and_sent_again(steps: StepRuntime) -> None:
    """A receiver that takes no turn, with room for two frames (pipes P-9)."""
    route = LocalRoute()
    options = EndOptions(runtime=steps, frames_max=2)
    receiver = ReceiverEnd("p", RELIABLE, route.receiver, options)
    sender = SenderEnd("p", RELIABLE, route.sender, options)
    seen: list[object] = []
    receiver.start()
    sender.start()
    receiver.consume(each(seen.append, BytesCodec()))
    sender.intake.offer(b"a", Until.CONFIRMED, 10)
    for number in range(10):
        route.sender.send(number)
    assert receiver.counters()["frames_dropped"] == 8
    sender.intake.offer(b"b", Until.CONFIRMED, 10)
    assert receiver.counters()["malformed"] == 2
    assert seen == [b"a", b"b"]
    sender.close(1)
    _stop(receiver)


def test_a_crash_loses_what_the_inbox_holds(steps: StepRuntime) -> None:
    """A frame that came before the death is gone; one that comes after it waits for the next life (H-2)."""
    route = LocalRoute()
    receiver = ReceiverEnd("p", RELIABLE, route.receiver, EndOptions(runtime=steps))
    receiver.start()
    steps.advance(1)
    receiver.crash()
    route.sender.send("before")
    steps.run_until(lambda: not receiver.is_alive)
    route.sender.send("after")
    steps.advance(10)
    assert receiver.counters()["malformed"] == 1
    _stop(receiver)


def test_a_stack_that_can_not_be_built_is_refused_before_anything_starts(
    steps: StepRuntime,
) -> None:
    """No layers; and boundary before without a state."""
    route = LocalRoute()
    options = EndOptions(runtime=steps)
    with pytest.raises(ConfigurationError, match="has no layers"):
        SenderEnd("p", (), route.sender, options)
    with pytest.raises(ConfigurationError, match="nothing here is durable"):
        ReceiverEnd(
            "p",
            RELIABLE,
            route.receiver,
            options,
            boundary=BoundaryOptions(boundary=Boundary.BEFORE),
        )
