from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from surepipe.actors import StepRuntime, ThreadRuntime
from surepipe.actors.ends.intake import Mark, SenderEntry, SenderMarks, Until
from surepipe.actors.inbox import Bell
from surepipe.actors.runtime import Runtime
from surepipe.core.effects import Accepted, Ranges
from surepipe.errors import NotConfirmed, PayloadTooLarge, PipeClosed, PipeFull, PipeStopped
from tests.actors.kit import PATIENCE_S


class Entry:
    """An intake and a machine that takes what is drained and confirms it when told."""

    def __init__(self, runtime: Runtime, room: int, unit: int = 10, message_max: int = 100) -> None:
        self.runtime = runtime
        self.rung = 0
        self.told = threading.Event()
        self.room = room
        self.taken: list[bytes] = []
        self.intake = SenderEntry(
            runtime, Bell(self._ring), "p", unit=unit, message_max=message_max, durable=False
        )
        self.unit = unit

    def _ring(self, message: object) -> None:
        del message
        self.rung += 1
        self.told.set()

    def look(self, confirm: int = 0) -> None:
        """A step of the actor: drain, get ``confirm`` messages out of the way, publish the room."""
        self.intake.bell.rung = False
        items, _ = self.intake.drain()
        for item in items:
            payloads = item.payloads if isinstance(item, Mark) else (item,)
            self.taken.extend(payloads)
            self.room -= sum(max(1, -(-len(payload) // self.unit)) for payload in payloads)
        self.room += confirm
        self.intake.publish(self.room, self.room * self.unit, 0)


def test_messages_are_taken_in_order_and_the_actor_is_told_once_for_all(steps: StepRuntime) -> None:
    """Three puts, one ring (pipes H-2: batches by tell)."""
    entry = Entry(steps, room=10)
    entry.look()
    for payload in (b"a", b"b", b"c"):
        entry.intake.put(payload)
    assert entry.rung == 1
    entry.look()
    assert entry.taken == [b"a", b"b", b"c"]


def test_nothing_is_taken_before_the_machine_has_said_how_much_room_it_has(
    steps: StepRuntime,
) -> None:
    """The first life is not ready yet."""
    entry = Entry(steps, room=10)
    with pytest.raises(PipeFull):
        entry.intake.offer(b"a", Until.ACCEPTED, 0.0)
    entry.look()
    entry.intake.offer(b"a", Until.ACCEPTED, 0.0)


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize(
    ("is_seen", "may_take", "error"),
    [(False, False, PipeClosed), (True, False, NotConfirmed), (False, True, NotConfirmed)],
)
def test_who_sends_as_the_pipe_is_closed_is_told_that_it_is_closed_only_where_nothing_was_taken(
    is_seen: bool, may_take: bool, error: type[Exception], several: bool, steps: StepRuntime
) -> None:
    """pipes P-15: what the actor had in work, or may have yet, may be in the journal or at the receiver; who sends
    it again because nothing was accepted would send it twice. Of several the first may have been taken."""
    entry = Entry(steps, room=10)
    entry.look()
    intake = entry.intake

    def close() -> None:
        if is_seen:
            SenderMarks().offering(intake.drain()[0], 0)
        intake.end(PipeClosed, "pipe p is closed", may_take=may_take)

    steps.alarm(close).set(500_000)

    def send() -> object:
        if several:
            return intake.offer_many([b"a", b"b"], Until.CONFIRMED, None)
        intake.offer(b"a", Until.CONFIRMED, None)
        return None

    with pytest.raises(NotConfirmed if several else error, match="pipe p is closed") as told:
        send()
    assert ("may have arrived" in str(told.value)) is (told.type is NotConfirmed)
    with pytest.raises(PipeClosed):
        intake.flush(None)


def test_to_begin_is_no_wait_for_room(steps: StepRuntime) -> None:
    """A sender that was just made says half a second later how much room it has: a first ``send`` without any time
    is taken."""
    entry = Entry(steps, room=10)
    steps.alarm(entry.look).set(500_000)
    entry.intake.offer(b"a", Until.ACCEPTED, 0.0)
    assert steps.now() == 500_000


def test_to_begin_is_no_wait_for_room_of_several_either(steps: StepRuntime) -> None:
    """``send_many`` without any time, as ``send``."""
    entry = Entry(steps, room=10)
    steps.alarm(entry.look).set(500_000)
    assert entry.intake.offer_many([b"a", b"b"], Until.ACCEPTED, 0.0) == 2
    assert steps.now() == 500_000


def test_a_full_intake_refuses_and_an_attempt_leaves_no_trace(steps: StepRuntime) -> None:
    """Room for 3; a thousand refused attempts change nothing; confirming one makes room for one (pipes P-9)."""
    entry = Entry(steps, room=3)
    entry.look()
    for payload in (b"a", b"b", b"c"):
        entry.intake.put(payload)
    for _ in range(1000):
        with pytest.raises(PipeFull, match="pipe p has no room"):
            entry.intake.offer(b"x", Until.ACCEPTED, 0.0)
    entry.look()
    assert entry.taken == [b"a", b"b", b"c"]
    entry.look(confirm=1)
    entry.intake.offer(b"d", Until.ACCEPTED, 0.0)
    with pytest.raises(PipeFull):
        entry.intake.offer(b"x", Until.ACCEPTED, 0.0)
    entry.look()
    assert entry.taken == [b"a", b"b", b"c", b"d"]


def test_a_wait_for_room_ends_after_its_time(steps: StepRuntime) -> None:
    """Two virtual seconds."""
    entry = Entry(steps, room=0)
    entry.look()
    with pytest.raises(PipeFull):
        entry.intake.offer(b"a", Until.ACCEPTED, 2.0)
    assert steps.now() == 2_000_000


def test_a_large_message_takes_as_much_room_as_its_bytes(steps: StepRuntime) -> None:
    """Room for 5 units of 10 bytes: one message of 41 bytes fills it (pipes P-9: bounds in bytes)."""
    entry = Entry(steps, room=5)
    entry.look()
    entry.intake.put(b"x" * 41)
    with pytest.raises(PipeFull):
        entry.intake.offer(b"a", Until.ACCEPTED, 0.0)
    entry.look()
    assert entry.taken == [b"x" * 41]
    entry.look(confirm=5)
    for _ in range(5):
        entry.intake.offer(b"a", Until.ACCEPTED, 0.0)


def test_a_message_above_the_limit_is_refused_before_anything_is_taken(steps: StepRuntime) -> None:
    """Alone, and in the middle of many (pipes P-9)."""
    entry = Entry(steps, room=50)
    entry.look()
    with pytest.raises(PayloadTooLarge, match="101 bytes and 100 are allowed"):
        entry.intake.put(b"x" * 101)
    with pytest.raises(PayloadTooLarge, match="payload 2 has 101"):
        entry.intake.offer_many([b"a", b"b", b"x" * 101], Until.ACCEPTED, None)
    entry.look()
    assert entry.taken == []


def test_many_messages_are_put_piece_by_piece_and_the_error_says_how_many(
    steps: StepRuntime,
) -> None:
    """Room for 6, ten offered: pieces of 3."""
    entry = Entry(steps, room=6)
    entry.look()
    payloads = [str(n).encode() for n in range(10)]
    with pytest.raises(PipeFull, match="the first 6 of 10 were accepted"):
        entry.intake.offer_many(payloads, Until.ACCEPTED, 0.0)
    entry.look()
    assert entry.taken == payloads[:6]
    entry.look(confirm=6)
    assert entry.intake.offer_many(payloads[6:], Until.ACCEPTED, 0.0) == 4
    entry.look()
    assert entry.taken == payloads


def test_large_messages_among_many_keep_their_place(steps: StepRuntime) -> None:
    """A piece with a message above the unit goes one by one."""
    entry = Entry(steps, room=50)
    entry.look()
    payloads = [b"a", b"x" * 35, b"b", b"c"]
    assert entry.intake.offer_many(payloads, Until.ACCEPTED, 0.0) == 4
    entry.look()
    assert entry.taken == payloads
    assert entry.room == 50 - 7


def _drained(entry: Entry) -> list[bool]:
    """Whether the intake is drained, before and after a look of the actor."""
    before = entry.intake.drained
    entry.look()
    return [before, entry.intake.drained]


def test_a_closed_intake_takes_nothing_and_knows_when_it_is_drained(steps: StepRuntime) -> None:
    """What was put before is still drained; only then is it drained."""
    entry = Entry(steps, room=10)
    entry.look()
    entry.intake.put(b"a")
    entry.intake.refuse(PipeClosed, "p is closed")
    with pytest.raises(PipeClosed, match="p is closed"):
        entry.intake.put(b"b")
    with pytest.raises(PipeClosed):
        entry.intake.offer_many([b"b"], Until.ACCEPTED, None)
    assert _drained(entry) == [False, True]
    assert entry.taken == [b"a"]


def test_an_intake_is_not_drained_while_somebody_holds_a_ticket_that_was_granted(
    steps: StepRuntime,
) -> None:
    """A thread between its ticket and its message when the pipe is closed: its message is waited for."""
    entry = Entry(steps, room=10)
    entry.look()
    ticket = entry.intake._take(1)  # pyright: ignore[reportPrivateUsage]
    assert ticket == [0]
    entry.intake.refuse(PipeClosed, "p is closed")
    assert _drained(entry) == [False, False]
    entry.intake._append(b"late")  # pyright: ignore[reportPrivateUsage]
    assert _drained(entry) == [False, True]
    assert entry.taken == [b"late"]


def test_a_ticket_given_back_does_not_keep_a_closed_intake_open(steps: StepRuntime) -> None:
    """Two refused attempts, then room, then close."""
    entry = Entry(steps, room=1)
    entry.look()
    entry.intake.put(b"a")
    for _ in range(2):
        with pytest.raises(PipeFull):
            entry.intake.offer(b"x", Until.ACCEPTED, 0.0)
    entry.look(confirm=5)
    entry.intake.refuse(PipeClosed, "p is closed")
    entry.look()
    assert entry.intake.drained


def test_who_waits_for_room_is_told_when_the_pipe_stops() -> None:
    """A thread blocked in put gets PipeStopped, not silence."""
    entry = Entry(ThreadRuntime(), room=0)
    entry.look()
    errors: list[Exception] = []

    def blocked() -> None:
        try:
            entry.intake.put(b"a")
        except PipeStopped as error:
            errors.append(error)

    thread = threading.Thread(target=blocked)
    thread.start()
    entry.intake.end(PipeStopped, "fenced")
    thread.join(PATIENCE_S)
    assert [str(error) for error in errors] == ["fenced; the message was not accepted"]


class Meddled(list["bytes | Mark"]):
    """A list to which another thread appends the moment it has been copied."""

    def __getitem__(self, key: object) -> list[bytes | Mark]:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        copied = super().__getitem__(slice(None))
        assert key == slice(None)
        self.append(b"between")
        return copied


def test_a_flush_that_the_stop_overtakes_raises_though_nothing_is_left_to_confirm(
    steps: StepRuntime,
) -> None:
    """A machine that stopped confirms nothing more, and has nothing unconfirmed either.

    1. A message is refused, and its sender hears of it. 2. He flushes: the pipe still seems to go on. 3. The actor
    says that it stopped. 4. It looks at the mark of the flush, before which nothing is unconfirmed.
    """

    def stop_and_look(message: object) -> None:
        del message
        entry.intake.bell.rung = False
        items, _ = entry.intake.drain()
        for mark in items:
            assert isinstance(mark, Mark)
            assert entry.intake.failure is None
            entry.intake.end(PipeStopped, "it was fenced")
            mark.target = (1, 1)
            mark.look([])
            assert mark.done

    entry = Entry(steps, room=10)
    entry.intake.bell.tell = stop_and_look
    with pytest.raises(PipeStopped, match="it was fenced"):
        entry.intake.flush(PATIENCE_S)


def test_who_is_refused_because_the_pipe_stopped_finds_it_stopped(steps: StepRuntime) -> None:
    """From the refusal on: whoever hears it may flush in the same moment."""
    heard: list[str] = []

    def look(message: object) -> None:
        del message
        if entry.intake.refusal is not None:
            heard.append(str(entry.intake.failure))

    entry = Entry(steps, room=10)
    entry.intake.bell.tell = look
    entry.intake.end(PipeStopped, "it was fenced")
    assert heard == ["it was fenced"]


def test_what_is_put_between_two_steps_of_draining_stays_for_the_next_time(
    steps: StepRuntime,
) -> None:
    """A thread appends after the actor has copied and before it has removed."""
    entry = Entry(steps, room=10)
    entry.look()
    items = Meddled([b"a"])
    entry.intake._items = items  # pyright: ignore[reportPrivateUsage]
    entry.look()
    assert entry.taken == [b"a"]
    assert list(items) == [b"between"]


def _sends(entry: Entry, name: int, count: int) -> Callable[[], None]:
    def send() -> None:
        for number in range(count):
            payload = f"{name} {number}".encode()
            if number % 7 == 3:
                entry.intake.offer_many([payload], Until.ACCEPTED, None)
            elif number % 11 == 5:
                entry.intake.put(payload.ljust(25))
            else:
                entry.intake.put(payload)

    return send


def test_many_threads_at_once_lose_nothing_and_each_keeps_its_order() -> None:
    """Six threads, little room, mixed calls and sizes; the actor drains all the time (pipes P-9)."""
    entry = Entry(ThreadRuntime(), room=8)
    entry.look()
    threads = [threading.Thread(target=_sends(entry, name, 500)) for name in range(6)]
    for thread in threads:
        thread.start()
    while len(entry.taken) < 6 * 500:
        assert entry.told.wait(PATIENCE_S), f"nothing came after {len(entry.taken)} messages"
        entry.told.clear()
        entry.look()
        while entry.room < 8:  # whatever it holds is confirmed at once
            entry.look(confirm=8 - entry.room)
    for thread in threads:
        thread.join(PATIENCE_S)
    taken = [payload.decode().split() for payload in entry.taken]
    for name in range(6):
        assert [int(n) for who, n in taken if who == str(name)] == list(range(500))


def test_waiting_for_confirmation_without_one_names_what_is_not_numbered_yet(
    steps: StepRuntime,
) -> None:
    """Nobody drains the intake: the mark was never seen."""
    entry = Entry(steps, room=10)
    entry.look()
    with pytest.raises(NotConfirmed, match="no number yet"):
        entry.intake.offer(b"a", Until.CONFIRMED, 1.0)


def _confirms_half_a_second_later(entry: Entry, unconfirmed: list[tuple[int, Ranges]]) -> None:
    """The actor looks at last, and has so much open."""
    ledger = SenderMarks()

    def look() -> None:
        items, _ = entry.intake.drain()
        payloads = ledger.offering(items, 0)
        ledger.offered(len(payloads))
        if payloads:
            ledger.accepted(Accepted(7, 1, len(payloads)))
        ledger.resolve(unconfirmed)

    entry.runtime.alarm(look).set(500_000)


def test_a_flush_without_time_of_what_has_sent_nothing_waits_for_the_answer_alone(
    steps: StepRuntime,
) -> None:
    """Only the actor knows that nothing is open: to ask it is no wait for a confirmation (pipes P-14)."""
    entry = Entry(steps, room=10)
    _confirms_half_a_second_later(entry, [])
    entry.intake.flush(0.0)
    assert steps.now() == 500_000


@pytest.mark.parametrize("ends", [False, True])
def test_without_time_what_is_not_confirmed_is_named_as_with_some(
    steps: StepRuntime, *, ends: bool
) -> None:
    """Two messages are open: flush and close say so when they are asked, however short their time is."""
    entry = Entry(steps, room=10)
    entry.look()
    entry.intake.put(b"a")
    entry.intake.put(b"b")
    _confirms_half_a_second_later(entry, [(7, ((1, 2),))])
    if ends:
        entry.intake.refuse(PipeClosed, "it is closed")
    with pytest.raises(NotConfirmed, match="epoch 7: 1 to 2") as raised:
        (entry.intake.finish if ends else entry.intake.flush)(0.0)
    assert raised.value.ranges == ((7, 1, 2),)
    assert steps.now() == 500_000
