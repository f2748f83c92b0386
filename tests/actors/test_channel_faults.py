"""Channels while frames are lost and actors die, step by step in virtual time."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import cast

import pytest

from surepipe import Channel, ChannelFace, FaultyRoute, Listener, LocalRoute, NotConfirmed
from surepipe.actors import StepRuntime
from surepipe.actors.runtime import Runtime
from surepipe.pipes.catalogue import LayerText
from surepipe.pipes.channel import CHANNEL_LAYER
from surepipe.pipes.wire.frames import Data, Open, Opened
from tests.actors.channel_kit import Answering, Keeping, ScriptedRoute
from tests.actors.kit import PATIENCE_S, Noted, await_that

CARRIED: list[LayerText] = [{"sequential-confirm": {"retry": "carrier"}}, "multi-unconfirmed"]
FATES: dict[str, tuple[float, ...]] = {"lost": (), "doubled": (0.0, 5.0), "late": (3.0,)}
ON_TIME = (0.0,)


@pytest.mark.parametrize("number", range(1, 5))
@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize("layers", ["reliable", "multi-unconfirmed"])
def test_ch1_any_handshake_frame_may_be_lost_doubled_or_late(
    steps: StepRuntime, layers: str, fate: str, number: int
) -> None:
    """pipes C-2, C-3 (ch1): up within two timeouts, one end made, both directions carry; no actor is left over."""
    route = ScriptedRoute(lambda _f, _w, n: FATES[fate] if n == number else ON_TIME)
    accept, back = Keeping(), list[object]()
    with (
        Listener(route, names=["t"], accept=accept, layers=layers, runtime=steps),
        Channel("t", layers, route=route, runtime=steps) as channel,
    ):
        channel.receive(back.append)
        steps.advance(3)
        assert channel.is_up
        assert [end.is_up for end in accept.ends] == [True]
        channel.send_many(list(range(10)), until="confirmed", timeout=60)
        accept.ends[0].send_many(list(range(10)), until="confirmed", timeout=60)
        steps.advance(10)
        assert len(accept.ends) == 1
    assert accept.seen == back == list(range(10))


def test_ch2_the_first_data_frame_of_each_direction_may_be_lost(steps: StepRuntime) -> None:
    """pipes C-1 (ch2): both messages arrive by the re-send of their direction."""
    lost: list[str] = []

    def fate(frame: object, who: str, _number: int) -> Sequence[float]:
        if isinstance(frame, Data) and who not in lost:
            lost.append(who)
            return ()
        return ON_TIME

    route, accept, answers = ScriptedRoute(fate), Answering(), list[object]()
    with (
        Listener(route, names=["t"], accept=accept, runtime=steps),
        Channel("t", route=route, runtime=steps) as channel,
    ):
        channel.receive(answers.append)
        channel.send("there")
        steps.advance(10)
    assert lost == ["caller", "listener"]
    assert answers == [["re", "there"]]


@pytest.mark.parametrize("layers", ["reliable", "continuous-index", "strict-monotonic", "resend"])
def test_ch3_messages_sent_before_it_is_up_arrive_in_order(steps: StepRuntime, layers: str) -> None:
    """pipes C-3 (ch3): 100 messages while the first two Opens are lost."""
    opens = 0

    def fate(frame: object, who: str, _number: int) -> Sequence[float]:
        nonlocal opens
        if who == "caller" and isinstance(frame, Open) and frame.layer == CHANNEL_LAYER:
            opens += 1
            return () if opens <= 2 else ON_TIME
        return ON_TIME

    route, accept = ScriptedRoute(fate), Keeping()
    with (
        Listener(route, names=["t"], accept=accept, layers=layers, runtime=steps),
        Channel("t", layers, route=route, runtime=steps) as channel,
    ):
        for number in range(100):
            channel.send(number)
        assert not channel.is_up
        channel.flush(60)
        assert opens == 3
    assert accept.seen == list(range(100))


@pytest.mark.parametrize("back", ["multi-unconfirmed", CARRIED], ids=str)
def test_ch4_sequential_confirm_gets_its_confirms_through_the_opposite_stack(
    steps: StepRuntime, back: str | list[LayerText]
) -> None:
    """pipes C-1, K-4 (ch4): retry: carrier, a fifth of all frames lost: all, once, in order, by five seeds."""
    for seed in range(5):
        route = FaultyRoute(LocalRoute(), loss=0.2, delay=0.001, seed=seed)
        accept, answers = Answering(), list[object]()
        with (
            Listener(
                route, names=["t"], accept=accept, layers=CARRIED, back=back, runtime=steps
            ) as listener,
            Channel("t", CARRIED, route=route, back=back, runtime=steps) as channel,
        ):
            channel.receive(answers.append)
            channel.send_many(list(range(30)))
            channel.flush(900)
            listener.at(channel.address).flush(900)
        assert accept.seen == list(range(30))
        assert sorted(map(str, answers)) == sorted(str(["re", n]) for n in range(30))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("at", ["caller", "listener"])
def test_a_crash_of_either_end_loses_what_its_guarantee_says_and_nothing_else(
    at: str, seed: int
) -> None:
    """pipes C-5, H-2: an actor is killed between two steps of the traffic; the other end links to its next life.

    What the end that died had sent and not got confirmed is named by its next flush; all else arrives. It may get
    again what it had handled and not confirmed; the other end gets nothing twice.
    """
    runtime = StepRuntime(seed)
    route = FaultyRoute(LocalRoute(), loss=0.1, reorder=0.1, delay=(0.0, 0.005), seed=seed)
    accept, answers, noted = Answering(), list[object](), Noted()
    layers: LayerText = {"reliable": {"run_max": 4, "window": 16}}
    with (
        Listener(route, names=["t"], accept=accept, layers=layers, runtime=runtime, notices=noted),
        Channel("t", layers, route=route, runtime=runtime, notices=noted) as channel,
    ):
        channel.receive(answers.append)
        assert channel.wait_up(60)
        runtime.advance(5)
        ends = {"caller": channel, "listener": accept.ends[0]}
        for number in range(100):
            if number == 50:
                ends[at].end.crash()
            channel.send(number)
            runtime.advance(0.002)
        lost = {name: _lost(end) for name, end in ends.items()}
        runtime.advance(60)
        assert channel.is_up
        assert [ends[at].end.keeper.restarts, len(accept.ends)] == [1, 1]
        assert noted.kinds().count("Up") >= 3
    assert lost["listener" if at == "caller" else "caller"] == 0
    handled = [n for n in accept.seen if isinstance(n, int)]
    answered = [cast("list[object]", answer)[1] for answer in answers]
    assert 100 - len(set(handled)) <= lost["caller"]
    assert len(set(handled)) - len(set(answered)) <= lost["listener"]
    if at == "caller":
        assert handled == sorted(set(handled))
    else:
        assert len(answered) - len(set(answered)) <= len(handled) - len(set(handled))


def _lost(channel: ChannelFace) -> int:
    """How many messages the next flush names: those that went with a life."""
    try:
        channel.flush(600)
    except NotConfirmed as error:
        return sum(last - first + 1 for _, first, last in error.ranges)
    return 0


def test_a_confirmed_message_survives_the_crash_of_the_end_that_sent_it(steps: StepRuntime) -> None:
    """pipes C-5: the caller dies five times, each time after a confirm: every message once, none named as lost."""
    route, accept = LocalRoute(), Keeping()
    with (
        Listener(route, names=["t"], accept=accept, runtime=steps),
        Channel("t", route=route, runtime=steps) as channel,
    ):
        for number in range(5):
            channel.send(number, until="confirmed", timeout=60)
            channel.end.crash()
            steps.advance(0.001)
            assert not channel.is_up
        channel.flush(60)
    assert accept.seen == [0, 1, 2, 3, 4]


def test_a_dead_listening_end_is_asked_to_open_by_what_the_caller_sends(steps: StepRuntime) -> None:
    """pipes C-5, T-9: the caller has not noticed; its next message brings both directions up again."""
    route, accept, answers = LocalRoute(), Answering(), list[object]()
    with (
        Listener(route, names=["t"], accept=accept, runtime=steps),
        Channel("t", route=route, runtime=steps) as channel,
    ):
        channel.receive(answers.append)
        channel.send(1, until="confirmed", timeout=60)
        accept.ends[0].end.crash()
        steps.advance(5)
        channel.send(2, until="confirmed", timeout=60)
        steps.advance(5)
    assert accept.seen == [1, 2]
    assert answers == [["re", 1], ["re", 2]]


def test_a_handler_whose_actor_died_gets_its_message_again(steps: StepRuntime) -> None:
    """pipes H-2: what it had in work was not settled."""
    route, accept = LocalRoute(), Keeping()
    with (
        Listener(route, names=["t"], accept=accept, runtime=steps),
        Channel("t", route=route, runtime=steps) as channel,
    ):
        channel.send(1, until="confirmed", timeout=60)
        accept.ends[0].end.crash_consumer()
        channel.send(2, until="confirmed", timeout=60)
    assert accept.seen == [1, 2]


def test_a_caller_that_starts_anew_finds_the_end_that_is_there(steps: StepRuntime) -> None:
    """pipes C-2, C-5: a second process takes the same name: a higher life of the same channel, no second end."""
    route, accept = LocalRoute(), Answering()
    with Listener(route, names=["t"], accept=accept, runtime=steps):
        for number in range(3):
            answers: list[object] = []
            with Channel("t", route=route, runtime=steps) as channel:
                channel.receive(answers.append)
                channel.send(number, until="confirmed", timeout=60)
                steps.advance(5)
            assert answers == [["re", number]]
    assert accept.seen == [0, 1, 2]
    assert len(accept.ends) == 1


def test_frames_that_make_no_sense_are_counted_and_change_nothing(steps: StepRuntime) -> None:
    """pipes P-8: bytes that are no frame, a frame of nobody's pipe, an answer to no link of ours."""
    route, accept = ScriptedRoute(), Keeping()
    with (
        Listener(route, names=["t"], accept=accept, runtime=steps),
        Channel("t", route=route, runtime=steps) as channel,
    ):
        channel.send(1, until="confirmed", timeout=60)
        opened = next(f for who, f in route.sent if isinstance(f, Opened) and who == "listener")
        strangers = [b"nonsense", object(), Open(5, CHANNEL_LAYER, 1, 1, 1, 1, 1, 1), opened]
        for side in (route.sender, route.receiver):
            for frame in strangers:
                side.send(frame)
        steps.advance(5)
        assert channel.counters()["repeated_confirm"] == 1
        channel.send(2, until="confirmed", timeout=60)
    assert accept.seen == [1, 2]
    assert len(accept.ends) == 1


def test_a_crash_on_threads_is_followed_by_another_life(runtime: Runtime) -> None:
    """Both ends are killed once while messages go both ways; a later request is answered."""
    route, accept, answers = LocalRoute(), Answering(), list[object]()
    with (
        Listener(route, names=["t"], accept=accept, runtime=runtime),
        Channel("t", route=route, runtime=runtime) as channel,
    ):
        channel.receive(answers.append)
        channel.send("first", until="confirmed", timeout=PATIENCE_S)
        accept.ends[0].flush(PATIENCE_S)
        for end in (channel.end, accept.ends[0].end):
            end.crash()
            await_that(runtime, lambda end=end: end.keeper.restarts == 1, "a death")  # type: ignore[misc]
        await_that(runtime, lambda: channel.is_up, "up again")
        channel.send("last", until="confirmed", timeout=PATIENCE_S)
        await_that(runtime, lambda: ["re", "last"] in answers, "the answer")
        names = [one.name for one in threading.enumerate() if one.name.startswith("t/")]
        assert len(set(names)) == len(names), "one thread for each address"
