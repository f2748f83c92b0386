"""Listeners: which ends they make, many of them on one route, and how they end."""

from __future__ import annotations

import contextlib

import pytest

from surepipe import (
    Channel,
    ChannelFace,
    ConfigurationError,
    FaultyRoute,
    Listener,
    LocalRoute,
    MisuseError,
    NotConfirmed,
    PipeStopped,
    StacksDiffer,
)
from surepipe.actors import StepRuntime
from surepipe.actors.runtime import Runtime
from surepipe.pipes.catalogue import LayerText
from tests.actors.channel_kit import Answering, Keeping, ScriptedRoute
from tests.actors.kit import PATIENCE_S, Noted, await_that


def test_a_hundred_channels_share_a_listener_and_a_route(runtime: Runtime) -> None:
    """pipes C-2: each caller gets its own answers, each name has one end, and nothing is left running."""
    names = [f"c{number}" for number in range(100)]
    route, accept = LocalRoute(), Answering()
    answers: dict[str, list[object]] = {name: [] for name in names}
    with Listener(route, names=names, accept=accept, runtime=runtime) as listener:
        channels = [Channel(name, route=route, runtime=runtime) for name in names]
        for channel in channels:
            channel.receive(answers[channel.name].append)
            channel.send(channel.name)
        await_that(runtime, lambda: all(answers.values()), "an answer for each")
        assert sorted(listener.channels()) == sorted(names)
        for channel in channels:
            channel.close(PATIENCE_S)
    assert answers == {name: [["re", name]] for name in names}
    assert len(accept.ends) == 100


def test_many_channels_over_a_bad_route_do_not_mix(steps: StepRuntime) -> None:
    """Ten channels, 20 messages each, loss and reordering: every stream whole and in order."""
    names = [f"c{number}" for number in range(10)]
    route = FaultyRoute(LocalRoute(), loss=0.15, duplicate=0.1, reorder=0.2, delay=0.002, seed=5)
    seen: dict[str, list[object]] = {name: [] for name in names}

    def accept(channel: ChannelFace) -> None:
        channel.receive(seen[channel.name].append)

    with Listener(route, names=names, accept=accept, runtime=steps):
        channels = [Channel(name, route=route, runtime=steps) for name in names]
        for number in range(20):
            for channel in channels:
                channel.send([channel.name, number])
        for channel in channels:
            channel.close(300)
    assert seen == {name: [[name, n] for n in range(20)] for name in names}


def test_only_names_that_are_listened_for_come_in(steps: StepRuntime) -> None:
    """pipes C-2: an Open of another name brings no end; its caller waits."""
    route, accept = LocalRoute(), Keeping()
    with Listener(route, names={"a", "b"}, accept=accept, runtime=steps) as listener:
        stranger = Channel("stranger", route=route, runtime=steps)
        known = Channel("b", route=route, runtime=steps)
        assert known.wait_up(60)
        assert not stranger.wait_up(60)
        assert list(listener.channels()) == ["b"]
        known.close()
        stranger.close()


def test_listening_may_begin_after_the_caller_sent(steps: StepRuntime) -> None:
    """pipes C-3: Opens are repeated; what waited arrives."""
    route, accept = LocalRoute(), Keeping()
    with Channel("t", route=route, runtime=steps) as channel:
        channel.send_many([1, 2, 3])
        steps.advance(20)
        with Listener(route, names=["t"], accept=accept, runtime=steps):
            channel.flush(60)
    assert accept.seen == [1, 2, 3]


def test_an_end_that_was_closed_is_made_anew_by_the_next_message(steps: StepRuntime) -> None:
    """pipes C-5: the listening side closes its end; the caller goes on and meets a new one."""
    route, accept = LocalRoute(), Keeping()
    with (
        Listener(route, names=["t"], accept=accept, runtime=steps) as listener,
        Channel("t", route=route, runtime=steps) as channel,
    ):
        channel.send(1, until="confirmed", timeout=60)
        accept.ends[0].close()
        assert listener.channels() == {}
        channel.send(2, until="confirmed", timeout=60)
        assert len(accept.ends) == 2
        assert list(listener.channels()) == ["t"]
    assert accept.seen == [1, 2]


def test_an_end_that_gave_up_makes_room_for_another(steps: StepRuntime) -> None:
    """pipes C-5, T-10: it has stopped for good as its caller was away. It tells nobody that it is up; the caller
    that comes again meets a new one, and the old one says why it stopped until then."""
    route, accept, noted = LocalRoute(), Keeping(), Noted()
    back: LayerText = {"reliable": {"give_up_after_s": 1.0}}
    with Listener(route, names=["t"], accept=accept, back=back, notices=noted, runtime=steps):
        caller = Channel("t", route=route, back=back, runtime=steps)
        caller.send(1, until="confirmed", timeout=60)
        caller.abort()
        accept.ends[0].send("anybody there?")
        steps.advance(30)
        with pytest.raises(PipeStopped, match=r"attempts unanswered in \d\.\d s; not confirmed"):
            accept.ends[0].send("anything")
        with Channel("t", route=route, back=back, runtime=steps) as caller:
            caller.send(2, until="confirmed", timeout=60)
            caller.wait_up(60)
            assert [end.is_up for end in accept.ends] == [False, True]
    assert accept.seen == [1, 2]
    assert noted.kinds().count("Undeliverable") == 1


def test_a_caller_that_was_mended_is_served_by_the_listener_that_refused_it(
    steps: StepRuntime,
) -> None:
    """pipes F-5: two configurations met, and both ends stopped; the listener need not start anew."""
    route, accept, noted = LocalRoute(), Keeping(), Noted()
    with Listener(route, names=["t"], accept=accept, notices=noted, runtime=steps) as listener:
        wrong = Channel("t", "resend", route=route, runtime=steps)
        with pytest.raises(StacksDiffer):
            wrong.wait_up(60)
        steps.advance(60)
        assert (len(accept.ends), noted.kinds()) == (1, ["Mismatch"])
        assert list(listener.channels()) == ["t"]
        wrong.abort()
        with Channel("t", route=route, runtime=steps) as mended:
            mended.send(1, until="confirmed", timeout=60)
            assert list(listener.channels().values()) == accept.ends[1:]
            accept.ends[0].close()  # of the one that has gone: nothing happens to the other
            mended.send(2, until="confirmed", timeout=60)
    assert accept.seen == [1, 2]


def test_a_listener_that_starts_anew_makes_the_ends_anew(steps: StepRuntime) -> None:
    """pipes C-5: the process of the listening side ends and another begins; the caller links to it."""
    route, accept = LocalRoute(), Keeping()
    with Channel("t", route=route, runtime=steps) as channel:
        for number in range(3):
            with Listener(route, names=["t"], accept=accept, runtime=steps):
                channel.send(number, until="confirmed", timeout=120)
    assert accept.seen == [0, 1, 2]
    assert len(accept.ends) == 3


@pytest.mark.parametrize("layers", ["reliable", "multi-unconfirmed", "sequential-confirm"])
def test_a_listener_that_starts_anew_during_the_handshake_is_found(layers: str) -> None:
    """pipes C-2, C-5: its process dies at each moment of the first handshake, another begins at once: the message
    that was sent before all of it is confirmed, and both ends are up, within ten seconds."""
    for moment in range(1, 30):
        steps = StepRuntime()
        route, accept = ScriptedRoute(lambda _f, _w, _n: (0.01,)), Keeping()
        with Channel("t", layers, route=route, runtime=steps) as channel:
            channel.send(1)
            with (
                contextlib.suppress(KeyboardInterrupt),
                Listener(route, names=["t"], accept=accept, layers=layers, runtime=steps),
            ):
                steps.advance(moment * 0.003)
                raise KeyboardInterrupt
            accept.ends.clear()
            with Listener(route, names=["t"], accept=accept, layers=layers, runtime=steps):
                channel.flush(10)
                channel.send(2, until="confirmed", timeout=10)
                steps.advance(10)
                assert channel.is_up, moment
                assert [end.is_up for end in accept.ends] == [True], moment


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_an_accept_that_raises_closes_the_end_and_gets_another(
    error: type[BaseException], steps: StepRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    """The error is logged; the caller's next Open is a new chance; other channels don't notice."""
    route, calls, seen = LocalRoute(), list[str](), list[object]()

    def accept(channel: ChannelFace) -> None:
        calls.append(channel.name)
        if calls.count("t") == 1:
            raise error("not today")
        channel.receive(seen.append)

    with (
        Listener(route, names=["t"], accept=accept, runtime=steps),
        Channel("t", route=route, runtime=steps) as channel,
    ):
        channel.send(1, until="confirmed", timeout=60)
    assert "accept raised for channel t" in caplog.text
    assert calls == ["t", "t"]
    assert seen == [1]


def test_a_listener_whose_actor_died_goes_on(runtime: Runtime) -> None:
    """pipes H-2: ends that are there don't notice; new channels come in with its next life."""
    route, accept = LocalRoute(), Keeping()
    with Listener(route, names=["a", "b"], accept=accept, runtime=runtime) as listener:
        first = Channel("a", route=route, runtime=runtime)
        assert first.wait_up(PATIENCE_S)
        listener.crash()
        first.send(1, until="confirmed", timeout=PATIENCE_S)
        second = Channel("b", route=route, runtime=runtime)
        second.send(2, until="confirmed", timeout=PATIENCE_S)
        first.close()
        second.close()
    assert sorted(map(str, accept.seen)) == ["1", "2"]


def test_closing_a_listener_closes_its_ends_and_names_what_nobody_confirmed(
    steps: StepRuntime,
) -> None:
    """One of three callers is gone with a message on its way: NotConfirmed for that one, all else is fine."""
    silent: set[str] = set()
    route = ScriptedRoute(lambda _f, who, _n: () if who in silent else (0.0,))
    accept = Keeping()
    listener = Listener(route, names=["a", "b"], accept=accept, runtime=steps)
    gone = Channel("a", route=route, runtime=steps)
    there = Channel("b", route=route, runtime=steps)
    for channel in (gone, there):
        channel.receive(lambda _message: None)
        assert channel.wait_up(60)
    steps.advance(1)
    gone.close()
    for end in accept.ends:
        end.send("news")
    with pytest.raises(NotConfirmed, match="pipe a/back") as error:
        listener.close(2)
    assert "b/back" not in str(error.value)
    assert len(error.value.ranges) == 1
    listener.close()
    there.close()


def test_a_listener_can_not_be_closed_inside_accept(steps: StepRuntime) -> None:
    """It would wait for itself; the attempt changes nothing."""
    route, refused, listeners = LocalRoute(), list[str](), list[Listener]()

    def accept(channel: ChannelFace) -> None:
        with pytest.raises(MisuseError) as error:
            listeners[0].close()
        refused.append(f"{channel.name}: {error.value}")

    with (
        Listener(route, names=["t"], accept=accept, runtime=steps) as listener,
        Channel("t", route=route, runtime=steps) as channel,
    ):
        listeners.append(listener)
        assert channel.wait_up(60)
    assert refused == ["t: close inside accept would wait for accept: call it outside"]


@pytest.mark.parametrize("names", [[], [""], ["a", ""]])
def test_a_listener_needs_names(steps: StepRuntime, names: list[str]) -> None:
    """Without one nothing could ever come in."""
    with pytest.raises(ConfigurationError, match="a listener needs names"):
        Listener(LocalRoute(), names=names, accept=Keeping(), runtime=steps)


@pytest.mark.parametrize("seed", range(6))
def test_answers_given_while_an_end_closes_are_confirmed_too(seed: int) -> None:
    """The confirm of the last answers is a message of the other direction, which goes on until it has come."""
    steps = StepRuntime(seed)
    route, accept, answers = FaultyRoute(LocalRoute(), delay=0.01), Answering(), list[object]()
    layers: list[LayerText] = [
        {"sequential-confirm": {"retry": "carrier", "run_max": 1}},
        "multi-unconfirmed",
    ]
    with (
        Listener(route, names=["t"], accept=accept, layers=layers, runtime=steps),
        Channel("t", layers, route=route, runtime=steps) as channel,
    ):
        channel.receive(answers.append)
        channel.send_many(list(range(20)))
        steps.run_until(lambda: len(accept.seen) >= 5, 60)
        accept.ends[0].close(60)
        handled = len(accept.seen)
        assert len(answers) == handled < 20
        channel.flush(60)
        accept.ends[1].flush(60)
    assert len(accept.ends) == 2
    assert accept.seen == list(range(20))
