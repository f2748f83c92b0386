from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from surepipe import (
    CompositionError,
    ConfigurationError,
    DeadLetters,
    FaultyRoute,
    LocalRoute,
    MisuseError,
    NotConfirmed,
    PayloadTooLarge,
    Pipe,
    PipeFull,
    SqliteStore,
)
from surepipe.actors import StepRuntime, ThreadRuntime, Undecodable
from surepipe.actors.codecs import AutoCodec
from surepipe.actors.ends.assembly import BoundaryText
from surepipe.actors.runtime import Runtime
from surepipe.core.effects import Letter, NoticeKind
from surepipe.pipes.catalogue import LayerText
from tests.actors.kit import PATIENCE_S, Failing, Gate, Noted, await_that

SMALL = {"reliable": {"window": 4, "backlog": 6, "initial_credit": 4}}
KINDS = (
    "reliable",
    "multi-unconfirmed",
    "resend",
    "sequential-confirm",
    "strict-monotonic",
    "continuous-index",
    "dedupe",
)


def test_messages_arrive_once_in_order_and_as_they_were_sent(runtime: Runtime) -> None:
    """Objects and bytes through the default pipe, by every way of sending."""
    seen: list[object] = []
    with Pipe("orders", runtime=runtime) as pipe:
        pipe.receive(seen.append)
        pipe.send({"order": 1})
        pipe.send(b"\x1eraw")
        pipe.send_nowait("three")
        assert pipe.send_many([4, [5], None]) == 3
        assert pipe.send_many(str(n) for n in range(7, 1500)) == 1493
    assert seen == [
        *({"order": 1}, b"\x1eraw", "three", 4, [5], None),
        *(str(n) for n in range(7, 1500)),
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_pipe_carries_messages_over_a_local_route(
    runtime: Runtime, kind: str
) -> None:
    """One layer of each kind that needs no store; flush waits as far as the kind allows."""
    seen: list[object] = []
    with Pipe("p", kind, runtime=runtime, codec="bytes") as pipe:
        pipe.receive(seen.append)
        pipe.send_many([str(n).encode() for n in range(3000)])
        pipe.flush(PATIENCE_S)
    assert seen == [str(n).encode() for n in range(3000)]


def test_a_stack_over_a_bad_route_delivers_exactly_once_in_order(runtime: Runtime) -> None:
    """Loss, copies, reordering and delay (pipes al4)."""
    route = FaultyRoute(
        LocalRoute(), loss=0.1, duplicate=0.1, reorder=0.2, delay=(0.0, 0.002), reorder_s=0.005
    )
    seen: list[object] = []
    layers: list[LayerText] = [
        {"continuous-index": {"run_max": 4}},
        {"multi-unconfirmed": {"run_max": 1, "rto_initial_s": 0.05, "rto_min_s": 0.02}},
    ]
    with Pipe("p", layers, route=route, runtime=runtime) as pipe:
        pipe.receive(seen.append)
        for number in range(300):
            pipe.send(number)
        pipe.flush(PATIENCE_S)
    assert seen == list(range(300))
    assert route.sender.lost + route.receiver.lost > 0


def test_until_confirmed_returns_when_the_handler_has_run(runtime: Runtime) -> None:
    """pipes P-14, for one message and for many."""
    seen: list[object] = []
    with Pipe("p", runtime=runtime) as pipe:
        pipe.receive(seen.append)
        pipe.send(1, until="confirmed", timeout=PATIENCE_S)
        assert seen == [1]
        pipe.send_many([2, 3], until="confirmed")
        assert seen == [1, 2, 3]
        pipe.send_many(iter([4, 5]), until="confirmed")
        assert seen == [1, 2, 3, 4, 5]


def test_a_pipe_nobody_reads_takes_what_fits_and_then_says_that_it_is_full(
    runtime: Runtime,
) -> None:
    """Window 4 and backlog 6; refused messages leave no trace (pipes P-9, P-5)."""
    pipe = Pipe("p", SMALL, runtime=runtime)
    for number in range(10):
        pipe.send(number, timeout=PATIENCE_S)
    with pytest.raises(PipeFull, match="pipe p has no room"):
        pipe.send("x", timeout=0.05)
    with pytest.raises(PipeFull):
        pipe.send_nowait("x")
    assert pipe.counters()["accepted"] == 10
    seen: list[object] = []
    pipe.receive(seen.append)
    pipe.flush(PATIENCE_S)
    pipe.send_nowait(10)
    pipe.close()
    assert seen == list(range(11))


@pytest.mark.parametrize("how", ["send", "send_many", "loop"])
def test_a_handler_that_fills_its_own_pipe_is_told_that_nothing_makes_room(
    runtime: Runtime, how: str
) -> None:
    """It would wait for itself. Window 4 and backlog 6; the message that it is at counts, too."""
    told: list[str] = []
    is_told = runtime.signal()
    pipe = Pipe("p", SMALL, runtime=runtime)

    def send() -> None:
        for _ in range(20):
            pipe.send("more")

    def fill(message: object) -> None:
        if message != "first":
            return
        with pytest.raises(MisuseError) as refused:
            pipe.send_many(["more"] * 20) if how == "send_many" else send()
        told.append(str(refused.value))
        is_told.notify()

    if how == "loop":
        pipe.send("first")
        for message in pipe:
            fill(message)
            pipe.finish()
    else:
        pipe.receive(fill)
        pipe.send("first")
        assert is_told.wait(lambda: bool(told), PATIENCE_S)
    pipe.close()
    assert told[0].startswith("pipe p is full, and who sends is its own handler")
    assert ("of 20 were accepted" in told[0]) == (how == "send_many")


def test_a_handler_may_wait_in_its_own_pipe_for_what_others_have_done(runtime: Runtime) -> None:
    """The pipe is full, and the confirm of the message before this one is still to come."""
    seen: list[object] = []
    pipe = Pipe("p", SMALL, runtime=runtime)

    def pass_on(message: object) -> None:
        seen.append(message)
        if message == 1:
            pipe.send("more")

    pipe.send_many(list(range(10)))
    pipe.receive(pass_on)
    pipe.flush(PATIENCE_S)
    pipe.close()
    assert seen == [*range(10), "more"]


@pytest.mark.parametrize("kind", ["strict-monotonic", "continuous-index", "dedupe"])
def test_a_stack_that_never_sends_again_drops_nothing_in_one_process(
    steps: StepRuntime, kind: str
) -> None:
    """Nobody reads: the inbox fills up, then the sender is told so (pipes P-9; al11 claims no loss)."""
    layers: LayerText = {kind: {"run_max": 1, "receive_window": 4}}
    pipe = Pipe("p", layers, frames_max=3, runtime=steps)
    sent = 0
    for _ in range(50):
        try:
            pipe.send(sent, timeout=0.01)
        except PipeFull:
            break
        sent += 1
        steps.advance(0.001)
    assert sent == 4 + 3
    seen: list[object] = []
    pipe.receive(seen.append)
    for number in range(sent, 100):
        pipe.send(number, timeout=PATIENCE_S)
    pipe.close()
    assert seen == list(range(100))
    assert pipe.counters()["frames_dropped"] == 0


def test_what_was_promised_too_much_room_waits_and_is_not_lost(steps: StepRuntime) -> None:
    """The intake is told of room that the machine doesn't have; 100 messages were accepted on that word."""
    pipe = Pipe("p", SMALL, runtime=steps)
    steps.advance(0.01)
    pipe.sender.intake.publish(1000, 1 << 30, 0)
    pipe.send_many(list(range(100)), timeout=0.0)
    steps.advance(0.01)
    assert pipe.counters()["accepted"] == 10
    seen: list[object] = []
    pipe.receive(seen.append)
    pipe.close()
    assert seen == list(range(100))


def test_a_flush_in_vain_names_what_is_not_confirmed_and_the_pipe_goes_on(
    runtime: Runtime,
) -> None:
    """Nobody reads for a while (pipes P-14)."""
    pipe = Pipe("p", runtime=runtime)
    pipe.send_many(["a", "b", "c"])
    with pytest.raises(NotConfirmed, match="1 to 3") as caught:
        pipe.flush(0.05)
    assert [(first, last) for _, first, last in caught.value.ranges] == [(1, 3)]
    with pytest.raises(NotConfirmed) as caught:
        pipe.send("d", until="confirmed", timeout=0.05)
    assert [(first, last) for _, first, last in caught.value.ranges] == [(4, 4)]
    seen: list[object] = []
    pipe.receive(seen.append)
    pipe.close(PATIENCE_S)
    assert seen == ["a", "b", "c", "d"]


def test_a_list_with_something_that_can_not_be_sent_is_not_begun(runtime: Runtime) -> None:
    """The wrong type in the middle, and a payload too large at the end."""
    seen: list[object] = []
    with Pipe("p", {"reliable": {"message_max_bytes": 10}}, runtime=runtime) as pipe:
        pipe.receive(seen.append)
        with pytest.raises(MisuseError, match="type set"):
            pipe.send_many([1, {2}, 3])
        with pytest.raises(PayloadTooLarge, match="payload 2 has 11 bytes"):
            pipe.send_many([b"", b"", b"x" * 11])
        with pytest.raises(PayloadTooLarge):
            pipe.send(b"x" * 11)
        assert pipe.counters()["accepted"] == 0
    assert seen == []


def test_one_message_is_not_taken_for_many(steps: StepRuntime) -> None:
    """Bytes and text are iterable, and nobody means that."""
    with Pipe("p", runtime=steps) as pipe:
        for message in (b"abc", "abc", {"a": 1}):
            with pytest.raises(MisuseError, match="use send for it"):
                pipe.send_many(message)
        assert pipe.send_many([]) == 0


def test_a_generator_that_raises_leaves_the_pieces_before_it_sent(steps: StepRuntime) -> None:
    """It may be endless, so it is taken piece by piece."""

    def source() -> Iterator[int]:
        yield from range(1000)
        raise LookupError("the file ends here")

    seen: list[object] = []
    with Pipe("p", runtime=steps) as pipe:
        pipe.receive(seen.append)
        with pytest.raises(LookupError):
            pipe.send_many(source())
    assert seen == list(range(512))


class Order(BaseModel):
    number: int


def test_typed_messages_arrive_as_instances_of_their_model(runtime: Runtime) -> None:
    """A pydantic model as the codec."""
    seen: list[object] = []
    with Pipe("p", codec=Order, runtime=runtime) as pipe:
        pipe.receive(seen.append)
        pipe.send(Order(number=1))
        pipe.send_many([{"number": 2}])
        with pytest.raises(MisuseError, match="is no Order"):
            pipe.send({"number": "x"})
    assert seen == [Order(number=1), Order(number=2)]


def test_a_batch_handler_gets_messages_as_they_come(runtime: Runtime) -> None:
    """All of them, in order, in fewer calls."""
    batches: list[list[object]] = []
    with Pipe("p", runtime=runtime) as pipe:
        pipe.receive_many(batches.append)
        pipe.send_many(list(range(2000)))
        pipe.flush(PATIENCE_S)
    assert [message for batch in batches for message in batch] == list(range(2000))
    assert len(batches) < 200


def test_a_message_that_fails_is_tried_again_before_what_follows(runtime: Runtime) -> None:
    """b fails twice; attempts count for b alone (pipes D-1, dl4)."""
    handler = Failing(b=2)
    with Pipe("p", runtime=runtime, retry_min_s=0.001) as pipe:
        pipe.receive(handler)
        pipe.send_many(["a", "b", "c"])
        pipe.flush(PATIENCE_S)
    assert handler.calls == ["a", "b", "b", "b", "c"]
    assert handler.done == ["a", "b", "c"]


def test_poison_becomes_one_letter_after_the_retries_and_the_rest_goes_on(
    runtime: Runtime,
) -> None:
    """pipes D-2, D-3, dl1."""
    handler, letters = Failing(e3=99), DeadLetters()
    with Pipe("p", runtime=runtime, retries=3, retry_min_s=0.001, dead_letter=letters) as pipe:
        pipe.receive(handler)
        pipe.send_many([f"e{n}" for n in range(1, 6)])
        pipe.flush(PATIENCE_S)
        assert pipe.counters()["confirmed"] == 5
    assert handler.calls.count("e3") == 3
    assert handler.done == ["e1", "e2", "e4", "e5"]
    (letter,) = letters.list()
    assert (letter.pipe, letter.seq, letter.attempts) == ("p", 3, 3)
    assert (letter.error_type, letter.error_text) == ("ValueError", "no e3 today")
    assert letter.payload == b'\x1e"e3"'


class Speechless(Exception):
    """Can't be shown."""

    def __str__(self) -> str:
        raise KeyError("text")


def test_an_error_without_words_is_the_message_s_failure_and_not_the_receiver_s(
    runtime: Runtime,
) -> None:
    """The message becomes a letter, what follows goes on, and no receiver dies (pipes D-2, D-3)."""
    letters, done = DeadLetters(), list[object]()

    def handle(message: object) -> None:
        if message == "b":
            raise Speechless
        done.append(message)

    with Pipe("p", runtime=runtime, retries=2, retry_min_s=0.001, dead_letter=letters) as pipe:
        pipe.receive(handle)
        pipe.send_many(["a", "b", "c"])
        pipe.flush(PATIENCE_S)
    assert done == ["a", "c"]
    (letter,) = letters.list()
    assert (letter.attempts, letter.error_type) == (2, "Speechless")


def test_a_message_is_not_confirmed_before_its_letter_is_stored(runtime: Runtime) -> None:
    """The place for letters is down three times (pipes D-4, dl3)."""
    handler, letters = Failing(b=99), DeadLetters()
    failures = [OSError("down"), OSError("down"), OSError("down")]
    seen_at_failure: list[int] = []

    def place(letter: Letter) -> None:
        if failures:
            seen_at_failure.append(len(handler.done))
            raise failures.pop()
        letters(letter)

    with Pipe("p", runtime=runtime, retries=1, retry_min_s=0.001, dead_letter=place) as pipe:
        pipe.receive(handler)
        pipe.send_many(["a", "b", "c"])
        pipe.flush(PATIENCE_S)
    assert seen_at_failure == [1, 1, 1], "c waits until the letter of b is stored"
    assert [letter.seq for letter in letters] == [2]
    assert handler.done == ["a", "c"]


class Picky:
    """A codec that can't read what it wrote, if that was ``bad``."""

    def encode(self, message: object) -> bytes:
        return str(message).encode()

    def decode(self, payload: bytes) -> object:
        if payload == b"bad":
            raise Undecodable("not today")
        return payload.decode()


def test_an_undecodable_payload_is_a_letter_at_the_first_attempt(runtime: Runtime) -> None:
    """The handler never sees it, by whichever way messages are taken (pipes D-3)."""
    for batched in (False, True):
        seen: list[object] = []
        letters = DeadLetters()
        with Pipe("p", codec=Picky(), dead_letter=letters, runtime=runtime) as pipe:
            if batched:
                pipe.receive_many(seen.extend)
            else:
                pipe.receive(seen.append)
            pipe.send_many(["a", "bad", "c"])
            pipe.flush(PATIENCE_S)
        assert seen == ["a", "c"]
        assert [(x.seq, x.attempts, x.error_type) for x in letters] == [(2, 1, "Undecodable")]


def test_without_a_place_for_letters_poison_is_noticed_and_tried_for_ever(
    steps: StepRuntime,
) -> None:
    """Never dropped: the pipe waits, and says so after five attempts (pipes D-2)."""
    noted, handler = Noted(), Failing(b=7)
    with Pipe("p", runtime=steps, notices=noted) as pipe:
        pipe.receive(handler)
        pipe.send_many(["a", "b", "c"])
        pipe.flush(600)
    assert handler.done == ["a", "b", "c"]
    assert noted.kinds() == ["Poison"]
    assert [(n.pipe, n.end, n.ranges) for n in noted.notices] == [("p", "receiver", ((2, 2),))]
    assert "message 2:" in str(noted.notices[0])


def test_a_notices_callback_that_raises_does_no_harm(steps: StepRuntime) -> None:
    """The error is logged, the pipe goes on."""

    def broken(notice: object) -> None:
        raise RuntimeError(f"can't take {notice}")

    handler = Failing(b=7)
    with Pipe("p", runtime=steps, notices=broken) as pipe:
        pipe.receive(handler)
        pipe.send_many(["a", "b", "c"])
        pipe.flush(600)
        assert pipe.counters()["restarts"] == 0
    assert handler.done == ["a", "b", "c"]


def test_handed_over_is_settled_before_the_handler_has_run() -> None:
    """The handler stands at the first message, and everything that lies in its inbox is confirmed (pipes K-3)."""
    gate = Gate("a")
    with Pipe("p", boundary="handed", runtime=ThreadRuntime()) as pipe:
        pipe.receive(gate)
        pipe.send("a")
        gate.await_reached()
        pipe.send("b")
        pipe.flush(PATIENCE_S)
        assert gate.seen == []
        gate.opened.set()
        await_that(ThreadRuntime(), lambda: gate.seen == ["a", "b"], "both handled")


def test_handed_over_has_a_bound_too(steps: StepRuntime) -> None:
    """Nobody reads: what is confirmed is what lies in the inbox, the rest waits in the pipe (pipes P-9)."""
    pipe = Pipe("p", boundary="handed", runtime=steps)
    for number in range(20):
        pipe.send(number)
        steps.run_until(lambda: False, 0.5)
    assert pipe.counters()["confirmed"] < 5
    seen: list[object] = []
    pipe.receive(seen.append)
    pipe.close()
    assert seen == list(range(20))


def test_a_loop_that_never_began_is_in_nobodys_way(steps: StepRuntime) -> None:
    """It was made and dropped, as in a program that thinks better of it."""
    with Pipe("p", runtime=steps) as pipe:
        iter(pipe)
        pipe.send_many(["a", "b"])
        pipe.finish()
        first, second = iter(pipe), iter(pipe)
        assert list(first) == ["a", "b"]
        assert list(second) == []


def test_what_a_codec_can_not_read_in_a_loop_is_tried_again_and_becomes_a_letter(
    steps: StepRuntime,
) -> None:
    """Whatever it raises: with a handler the same message is one that failed, too."""

    class Bad(AutoCodec):
        def decode(self, payload: bytes) -> object:
            if b"b" in payload:
                raise ValueError("not this one")
            return super().decode(payload)

    letters = DeadLetters()
    with Pipe("p", codec=Bad(), runtime=steps, dead_letter=letters, retries=2) as pipe:
        pipe.send_many(["a", "b", "c"])
        pipe.finish()
        assert list(pipe) == ["a", "c"]
    assert [(letter.seq, letter.attempts) for letter in letters.list()] == [(2, 2)]


@pytest.mark.parametrize("way", ["plain", "coroutine", "batch", "loop"])
def test_handed_over_and_failed_is_told_and_takes_no_other_message_along(
    way: str, steps: StepRuntime
) -> None:
    """It is settled and lost, which is said; what was handed over beside it is handled (pipes K-3)."""
    handler, notices = Failing(b=1), Noted()

    async def handle(message: object) -> None:
        handler(message)

    def handle_all(messages: list[object]) -> None:
        for message in messages:
            handler(message)

    class Bad(AutoCodec):
        def decode(self, payload: bytes) -> object:
            if way == "loop" and b"b" in payload:
                raise Undecodable("not this one")
            return super().decode(payload)

    with Pipe("p", boundary="handed", codec=Bad(), runtime=steps, notices=notices) as pipe:
        if way == "loop":
            pipe.send_many(["a", "b", "c"])
            pipe.finish()
            for message in pipe:
                handler(message)
        elif way == "batch":
            pipe.receive_many(handle_all)
            for message in ("a", "b", "c"):
                pipe.send(message, until="confirmed")
        else:
            pipe.receive(handler if way == "plain" else handle)
            pipe.send_many(["a", "b", "c"])
    assert handler.done == ["a", "c"]
    (notice,) = notices.notices
    assert (notice.kind, notice.ranges) == (NoticeKind.POISON, ((2, 2),))
    assert "not tried again: it is lost" in notice.detail


class Opening(logging.Handler):
    """Lets the handler go on as soon as the pipe has told of its losses."""

    def __init__(self, gate: Gate) -> None:
        super().__init__()
        self.gate = gate
        self.told: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.told.append(record.getMessage())
        self.gate.opened.set()


@pytest.mark.parametrize("boundary", ["handed", "before"])
def test_what_was_settled_and_is_not_handled_at_the_end_is_told(
    boundary: BoundaryText, tmp_path: Path
) -> None:
    """The block is left by an error while the handler has the first of three messages (pipes K-3)."""
    gate = Gate("a")
    opening, logger = Opening(gate), logging.getLogger("surepipe")
    logger.addHandler(opening)
    try:
        with SqliteStore(tmp_path / "state.db") as store:
            pipe = Pipe(
                "p",
                boundary=boundary,
                runtime=ThreadRuntime(),
                state=store if boundary == "before" else None,
            )
            pipe.receive(gate)
            pipe.send_many(["a", "b", "c"])
            gate.await_reached()
            pipe.flush(PATIENCE_S)
            pipe.abort()
    finally:
        logger.removeHandler(opening)
    assert gate.seen == ["a"]
    assert opening.told == [
        f"pipe p: 2 messages are lost that no handler has had: with boundary {boundary} they were settled before"
    ]


def test_what_is_not_settled_at_the_end_is_not_lost_that_way(
    steps: StepRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody has handled it, and nobody has said so; that it is given up is told."""
    pipe = Pipe("p", runtime=steps)
    pipe.send_many(["a", "b"])
    steps.advance(1)
    pipe.abort()
    (told,) = caplog.messages
    assert "2 messages that are not confirmed" in told


@pytest.mark.parametrize("option", [{"dead_letter": DeadLetters()}, {"retries": 3}])
def test_what_needs_another_attempt_is_refused_where_there_is_none(option: dict[str, Any]) -> None:
    """A dead letter that never comes would be believed in."""
    with pytest.raises(CompositionError, match="can't be had with boundary handed"):
        Pipe("p", boundary="handed", **option)


def test_the_progress_of_a_slow_handler_is_reported_while_it_works() -> None:
    """It stands at the fourth message of one delivery; the first three are confirmed meanwhile (pipes D-1)."""
    gate = Gate("d")
    runtime = ThreadRuntime()
    with Pipe("p", runtime=runtime) as pipe:
        pipe.send_many(["a", "b", "c", "d", "e"])
        pipe.receive(gate)
        gate.await_reached()
        await_that(runtime, lambda: pipe.counters()["confirmed"] == 3, "three confirmed")
        gate.opened.set()
        pipe.flush(PATIENCE_S)
    assert gate.seen == ["a", "b", "c", "d", "e"]


def test_a_receiver_answers_while_a_message_is_being_handled_for_a_minute(
    steps: StepRuntime,
) -> None:
    """The sender probes and sends nothing again (pipes T-2, mu6)."""
    with Pipe("p", runtime=steps) as pipe:
        pipe.send_many(["a", "b"])
        loop = iter(pipe)
        assert next(loop) == "a"
        steps.advance(60)
        counters = pipe.counters()
        assert counters["retransmitted"] == 0
        assert counters["confirmed"] == 0
        assert next(loop) == "b"
        pipe.finish()
        assert list(loop) == []


def test_messages_of_many_threads_arrive_once_and_each_thread_keeps_its_order() -> None:
    """Eight threads with little room (pipes P-9)."""
    seen: list[object] = []
    layers = {"reliable": {"window": 32, "backlog": 32}}
    with Pipe("p", layers, runtime=ThreadRuntime()) as pipe:
        pipe.receive(seen.append)

        def send(name: int) -> None:
            for number in range(300):
                pipe.send([name, number])

        threads = [threading.Thread(target=send, args=(name,)) for name in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        pipe.flush(PATIENCE_S)
    for name in range(8):
        assert [m for m in seen if isinstance(m, list) and m[0] == name] == [  # pyright: ignore[reportUnknownVariableType]
            [name, number] for number in range(300)
        ]


def test_a_stack_that_never_confirms_says_so_and_flush_waits_for_the_route(
    steps: StepRuntime,
) -> None:
    """pipes K-8: until confirmed would wait for ever."""
    seen: list[object] = []
    with Pipe("p", "strict-monotonic", runtime=steps) as pipe:
        pipe.receive(seen.append)
        with pytest.raises(MisuseError, match="no layer of it confirms"):
            pipe.send(1, until="confirmed")
        pipe.send(2)
        pipe.flush(1)
        with pytest.raises(MisuseError, match="until is 'never': write"):
            pipe.send(3, until="never")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert seen == [2]


def test_a_pipe_prints_as_its_composition_and_knows_its_guarantee(steps: StepRuntime) -> None:
    """pipes K-9, G-8."""
    layers: list[LayerText] = ["continuous-index", {"multi-unconfirmed": {"window": 512}}]
    with Pipe("orders", layers, runtime=steps) as pipe:
        assert str(pipe) == "orders: continuous-index > multi-unconfirmed(window=512) / local"
        assert pipe.guarantee.headline.delivery == "exactly-once"
        assert pipe.guarantee.headline.order == "absolute"


def test_what_does_not_add_up_is_refused_and_nothing_is_started() -> None:
    """Options, stacks, a limit without a place for letters, an unknown codec; no thread is left."""
    lossy = FaultyRoute(LocalRoute(), loss=0.1)
    before = set(threading.enumerate())
    with pytest.raises(ConfigurationError, match="did you mean 'reliable'"):
        Pipe("p", "relaible")
    with pytest.raises(ConfigurationError, match="did you mean 'window'"):
        Pipe("p", {"reliable": {"windw": 1}})
    with pytest.raises(CompositionError, match="swap layers 0 and 1"):
        Pipe("p", ["multi-unconfirmed", "continuous-index"], route=lossy)
    with pytest.raises(CompositionError, match="Put multi-unconfirmed below layer 0"):
        Pipe("p", "continuous-index", route=FaultyRoute(LocalRoute(), reorder=0.1))
    with pytest.raises(CompositionError, match="one-way"):
        Pipe("p", route=LocalRoute(one_way=True))
    with pytest.raises(CompositionError, match="Name dead_letter"):
        Pipe("p", retries=3)
    with pytest.raises(ConfigurationError, match="codec is 'xml'"):
        Pipe("p", codec="xml")
    with pytest.raises(ConfigurationError, match="needs a name"):
        Pipe("")
    assert not [thread.name for thread in set(threading.enumerate()) - before]


def test_one_handler_takes_the_messages_of_a_pipe(steps: StepRuntime) -> None:
    """A second handler, or a loop beside it, is refused."""
    with Pipe("p", runtime=steps) as pipe:
        pipe.receive(print)
        with pytest.raises(MisuseError, match="has a handler"):
            pipe.receive(print)
        with pytest.raises(MisuseError, match="has a handler"):
            iter(pipe)


def test_flush_and_close_inside_the_handler_are_refused_at_once(runtime: Runtime) -> None:
    """They would wait for the message that the handler is at."""
    errors: list[str] = []

    def handler(message: object) -> None:
        assert message == 1
        for wait in (pipe.flush, pipe.close):
            try:
                wait()
            except MisuseError as error:
                errors.append(str(error).split(" of ")[0])

    with Pipe("p", runtime=runtime) as pipe:
        pipe.receive(handler)
        pipe.send(1)
        pipe.flush(PATIENCE_S)
    assert errors == ["flush inside the handler", "close inside the handler"]


def test_waiting_for_confirmation_inside_a_loop_is_refused_at_once(steps: StepRuntime) -> None:
    """The message of the loop is settled when the next one is asked for."""
    with Pipe("p", runtime=steps) as pipe:
        pipe.send(1)
        pipe.finish()
        for _ in pipe:
            with pytest.raises(MisuseError, match="flush inside the loop over pipe p"):
                pipe.flush()
            with pytest.raises(MisuseError, match="until='confirmed' inside the loop"):
                pipe.send(2, until="confirmed")
        pipe.flush()


def test_a_handler_may_send_into_its_own_pipe(runtime: Runtime) -> None:
    """Each message sends the next one, down to zero."""
    seen: list[object] = []

    def handler(message: object) -> None:
        seen.append(message)
        if isinstance(message, int) and message:
            pipe.send(message - 1)

    with Pipe("p", runtime=runtime) as pipe:
        pipe.receive(handler)
        pipe.send(5)
        await_that(runtime, lambda: 0 in seen, "zero")
    assert seen == [5, 4, 3, 2, 1, 0]
