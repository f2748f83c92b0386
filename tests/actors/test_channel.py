"""Channels as applications use them: sending, answering, closing, and what is refused."""

from __future__ import annotations

import pytest

from surepipe import (
    Channel,
    ChannelFace,
    CompositionError,
    ConfigurationError,
    DeadLetters,
    FaultyRoute,
    Listener,
    LocalRoute,
    MisuseError,
    NotConfirmed,
    PipeClosed,
    PipeFull,
    PipeReceiver,
    StacksDiffer,
)
from surepipe.actors import Reply, StepRuntime
from surepipe.actors.runtime import Runtime
from surepipe.pipes.catalogue import LayerText
from tests.actors.channel_kit import Answering, Keeping, ScriptedRoute
from tests.actors.kit import PATIENCE_S, Failing, Noted, await_that

CARRIED: list[LayerText] = [{"sequential-confirm": {"retry": "carrier"}}, "multi-unconfirmed"]
KINDS: list[LayerText | list[LayerText]] = [
    *("reliable", "multi-unconfirmed", "resend", "sequential-confirm"),
    *("strict-monotonic", "continuous-index", "dedupe", CARRIED),
]


def test_a_request_is_answered_through_the_channel_it_came_through(runtime: Runtime) -> None:
    """pipes C-4: a handler with a second argument replies; the answers come back once, in order."""
    route, answers, accept = LocalRoute(), list[object](), Answering()
    with (
        Listener(route, names=["talk"], accept=accept, runtime=runtime),
        Channel("talk", route=route, runtime=runtime) as channel,
    ):
        channel.receive(answers.append)
        channel.send_many(list(range(300)))
        channel.send("last", until="confirmed", timeout=PATIENCE_S)
        await_that(runtime, lambda: len(answers) == 301, "every answer is back")
    assert accept.seen == [*range(300), "last"]
    assert answers == [["re", n] for n in [*range(300), "last"]]
    assert len(accept.ends) == 1


@pytest.mark.parametrize("layers", KINDS, ids=str)
def test_both_directions_carry_messages_through_every_kind_of_stack(
    runtime: Runtime, layers: list[LayerText]
) -> None:
    """pipes C-1: 200 each way at once, over a local route; closing waits until all is handled."""
    route, seen, accept = LocalRoute(), list[object](), Keeping()
    with (
        Listener(route, names=["t"], accept=accept, layers=layers, runtime=runtime) as listener,
        Channel("t", layers, route=route, runtime=runtime) as channel,
    ):
        channel.receive(seen.append)
        channel.send_many(list(range(200)))
        assert channel.wait_up(PATIENCE_S)
        listener.at(channel.address).send_many(list(range(200)))
        await_that(runtime, lambda: len(seen) == 200, "all come back")
    assert accept.seen == seen == list(range(200))


def test_a_bad_route_shows_neither_way(steps: StepRuntime) -> None:
    """Loss, copies, reordering and delay in both directions (pipes composition 1), by five seeds."""
    for seed in range(5):
        route = FaultyRoute(
            LocalRoute(), loss=0.2, duplicate=0.1, reorder=0.2, delay=(0.0, 0.01), seed=seed
        )
        answers, accept = list[object](), Answering()
        with (
            Listener(route, names=["talk"], accept=accept, runtime=steps) as listener,
            Channel("talk", route=route, runtime=steps) as channel,
        ):
            channel.receive(answers.append)
            for number in range(200):
                channel.send(number)
            channel.flush(300)
            listener.at(channel.address).flush(300)
        assert accept.seen == list(range(200))
        assert answers == [["re", n] for n in range(200)]


def test_the_same_seed_gives_the_same_steps() -> None:
    """Two runs over a bad route: the traces and the answers are equal; another seed's trace is not."""

    def run(seed: int) -> tuple[list[str], list[object]]:
        runtime, answers = StepRuntime(seed), list[object]()
        route = FaultyRoute(LocalRoute(), loss=0.2, reorder=0.2, delay=0.01, seed=3)
        with (
            Listener(route, names=["t"], accept=Answering(), runtime=runtime, seed=1) as listener,
            Channel("t", route=route, runtime=runtime, seed=2) as channel,
        ):
            channel.receive(answers.append)
            channel.send_many(list(range(50)))
            channel.flush(300)
            listener.at(channel.address).flush(300)
        return runtime.trace, answers

    assert run(5) == run(5)
    assert run(5)[0] != run(6)[0]


def test_each_direction_has_layers_and_a_guarantee_of_its_own(steps: StepRuntime) -> None:
    """pipes C-1, G-4: what the caller sends is in order, what it receives is not; the ends agree on it."""
    route = FaultyRoute(LocalRoute(), loss=0.1, reorder=0.1)
    accept = Keeping()
    with (
        Listener(
            route, names=["t"], accept=accept, back="multi-unconfirmed", runtime=steps
        ) as listener,
        Channel("t", route=route, back="multi-unconfirmed", runtime=steps) as channel,
    ):
        assert channel.wait_up(60)
        there, back = channel.guarantee.headline, channel.guarantee_back.headline
        assert (there.delivery, there.order) == ("exactly-once", "absolute")
        assert (back.delivery, back.order) == ("at-least-once", "none")
        other = listener.at("t/caller")
        assert other.guarantee.headline == back
        assert other.guarantee_back.headline == there
        assert str(channel) == ("t (caller): reliable there, multi-unconfirmed back / faulty local")


def test_addresses_name_the_ends(steps: StepRuntime) -> None:
    """pipes C-4: each end knows its own and the other's; a reply says where it goes."""
    route, addresses = LocalRoute(), list[str]()

    def handle(message: object, reply: Reply) -> None:
        assert message == "where"
        addresses.append(reply.address)

    def accept(channel: ChannelFace) -> None:
        channel.receive(handle)
        addresses.extend((channel.address, channel.peer_address))

    with (
        Listener(route, names=["talk"], accept=accept, runtime=steps) as listener,
        Channel("talk", route=route, runtime=steps) as channel,
    ):
        channel.send("where", until="confirmed", timeout=60)
        assert addresses == ["talk/listener", "talk/caller", "talk/caller"]
        assert (channel.address, channel.peer_address) == ("talk/caller", "talk/listener")
        assert listener.at(channel.address).name == "talk"
        with pytest.raises(MisuseError, match="no channel here leads to 'other/caller'"):
            listener.at("other/caller")


def test_an_end_can_be_read_by_a_loop(steps: StepRuntime) -> None:
    """The messages of the other end in a for loop; one that was left early goes on where it stood."""
    route = LocalRoute()
    with (
        Listener(route, names=["t"], accept=lambda c: c.send_many([1, 2, 3]), runtime=steps),
        Channel("t", route=route, runtime=steps) as channel,
    ):
        seen: list[object] = []
        for message in channel:
            seen.append(message)
            if message == 2:
                break
        for message in channel:
            seen.append(message)
            if message == 3:
                channel.finish()
    assert seen == [1, 2, 2, 3]


def test_a_handler_may_wait_for_the_answer_to_what_it_sends(runtime: Runtime) -> None:
    """The listener's handler sends and waits for the confirm before it returns."""
    route, seen = LocalRoute(), list[object]()

    def accept(channel: ChannelFace) -> None:
        channel.receive(lambda m: channel.send(m, until="confirmed", timeout=PATIENCE_S))

    with (
        Listener(route, names=["t"], accept=accept, runtime=runtime),
        Channel("t", route=route, runtime=runtime) as channel,
    ):
        channel.receive(seen.append)
        channel.send("x", until="confirmed", timeout=PATIENCE_S)
        assert seen == ["x"]


def test_a_handler_whose_confirm_would_queue_up_behind_it_may_not_wait(steps: StepRuntime) -> None:
    """sequential-confirm(retry=carrier): confirms are messages of the direction that the handler holds up."""
    route, raised = LocalRoute(), list[str]()

    def accept(channel: ChannelFace) -> None:
        def handle(message: object) -> None:
            with pytest.raises(MisuseError) as error:
                channel.send(message, until="confirmed")
            raised.append(str(error.value))

        channel.receive(handle)

    with (
        Listener(route, names=["t"], accept=accept, layers=CARRIED, runtime=steps),
        Channel("t", CARRIED, route=route, runtime=steps) as channel,
    ):
        channel.send(1, until="confirmed", timeout=60)
    assert "inside the handler of channel t would wait" in raised[0]


def test_what_a_handler_fails_on_becomes_a_dead_letter(steps: StepRuntime) -> None:
    """pipes D-2: three attempts at the listening end, one letter, and the next message goes on."""
    route, letters, handler = LocalRoute(), DeadLetters(), Failing(bad=9)
    with (
        Listener(
            route,
            names=["t"],
            accept=lambda channel: channel.receive(handler),
            retries=3,
            dead_letter=letters,
            runtime=steps,
        ),
        Channel("t", route=route, runtime=steps) as channel,
    ):
        channel.send_many(["bad", "good"], until="confirmed", timeout=60)
    assert handler.calls == ["bad", "bad", "bad", "good"]
    assert [(letter.pipe, letter.attempts) for letter in letters] == [("t/forward", 3)]


def _nothing_arrives(frame: object, who: str, number: int) -> tuple[float, ...]:
    """As where the other end was unplugged."""
    del frame, who, number
    return ()


@pytest.mark.parametrize("at", ["the caller", "the listener", "both"])
def test_what_an_end_gives_up_is_put_aside_and_the_next_message_goes_on(
    at: str, steps: StepRuntime
) -> None:
    """pipes T-10, D-2: the other end was away for longer than the message is worth, in either direction."""
    giving: LayerText = {"multi-unconfirmed": {"give_up_after_s": 1.0}}
    forward = "multi-unconfirmed" if at == "the listener" else giving
    back = "multi-unconfirmed" if at == "the caller" else giving
    answers, letters, accept = list[object](), DeadLetters(), Keeping()
    route = ScriptedRoute()
    always = route.fate
    with (
        Listener(
            route,
            names=["t"],
            accept=accept,
            layers=forward,
            back=back,
            dead_letter=letters,
            runtime=steps,
        ),
        Channel(
            "t", forward, back=back, route=route, dead_letter=letters, runtime=steps
        ) as channel,
    ):
        channel.receive(answers.append)
        assert channel.wait_up(60)
        steps.advance(1)
        (other,) = accept.ends
        route.fate = _nothing_arrives
        for end, message, gives_up in (
            (channel, "there", at != "the listener"),
            (other, "back", at != "the caller"),
        ):
            says = "given up, as nobody confirmed it" if gives_up else "not confirmed in time"
            with pytest.raises(NotConfirmed, match=says):
                end.send(message, until="confirmed", timeout=5)
        route.fate = always
        channel.send("there again", until="confirmed", timeout=60)
        other.send("back again")
        other.flush(60)
    given_up = {"the caller": ["there"], "the listener": ["back"], "both": ["back", "there"]}[at]
    assert sorted(letter.payload.decode().strip('\x1e"') for letter in letters) == given_up
    sent = {"there", "there again", "back", "back again"}
    assert {*accept.seen, *answers} == sent.difference(given_up)


def test_messages_handed_to_a_handler_are_confirmed_before_it_returns(steps: StepRuntime) -> None:
    """boundary handed: the confirm comes although the handler has failed on the message."""
    route, handler = LocalRoute(), Failing(x=100)
    with (
        Listener(
            route,
            names=["t"],
            accept=lambda c: c.receive(handler),
            boundary="handed",
            runtime=steps,
        ),
        Channel("t", route=route, runtime=steps) as channel,
    ):
        channel.send("x", until="confirmed", timeout=60)
    assert handler.calls == ["x"]


# Up, down, and closing.


def test_an_end_says_when_it_is_up_and_when_silence_took_it_down(steps: StepRuntime) -> None:
    """pipes C-2, C-5: Up at both ends, Down after 900 s, up again by the next message."""
    route, noted, accept = LocalRoute(), Noted(), Keeping()
    with (
        Listener(route, names=["t"], accept=accept, notices=noted, runtime=steps),
        Channel("t", route=route, notices=noted, runtime=steps) as channel,
    ):
        assert [channel.is_up] == [False]
        assert channel.wait_up(60)
        steps.advance(1)
        assert noted.kinds() == ["Up", "Up"]
        steps.advance(1000)
        assert noted.kinds() == ["Up", "Up", "Down", "Down"]
        assert [channel.is_up] == [False]
        channel.send("awake", until="confirmed", timeout=60)
        assert [channel.is_up] == [True]
    assert accept.seen == ["awake"]
    assert len(accept.ends) == 1


def test_nobody_listening_is_waited_for_as_long_as_asked(runtime: Runtime) -> None:
    """wait_up gives False; closing names what was not confirmed; nothing is left running."""
    channel = Channel("t", route=LocalRoute(), runtime=runtime)
    assert not channel.wait_up(0.02)
    channel.send("x")
    with pytest.raises(NotConfirmed, match="pipe t/forward: not confirmed in time"):
        channel.close(0.02)
    channel.close()
    for use in (channel.wait_up, lambda: channel.send("y"), lambda: channel.receive(print)):
        with pytest.raises(PipeClosed):
            use()


def test_what_waits_for_the_channel_to_open_is_not_taken_for_sent(steps: StepRuntime) -> None:
    """pipes C-3 on a stack that never confirms, and nothing arrives: flush and close say that it waits."""
    route, accept = ScriptedRoute(lambda _frame, _who, _number: ()), Keeping()
    with Listener(route, names=["t"], accept=accept, layers="continuous-index", runtime=steps):
        channel = Channel("t", "continuous-index", route=route, runtime=steps)
        channel.send("x")
        with pytest.raises(NotConfirmed, match="channel t is not up"):
            channel.flush(0.1)
        with pytest.raises(NotConfirmed, match="channel t is not up"):
            channel.close(0.1)
    assert accept.ends == []


def test_closing_handles_what_has_arrived(runtime: Runtime) -> None:
    """The caller closes as soon as its requests are confirmed; the answers, sent before, still arrive."""
    for _ in range(5):
        route, answers = LocalRoute(), list[object]()
        with (
            Listener(route, names=["t"], accept=Answering(), runtime=runtime),
            Channel("t", route=route, runtime=runtime) as channel,
        ):
            channel.receive(answers.append)
            channel.send_many(list(range(100)), until="confirmed", timeout=PATIENCE_S)
        assert answers == [["re", n] for n in range(100)]


def _fail_inside(route: LocalRoute, runtime: Runtime) -> None:
    with (
        Listener(route, names=["t"], accept=Keeping(), runtime=runtime),
        Channel("other", route=route, runtime=runtime) as channel,
    ):
        channel.send("x")
        raise ZeroDivisionError


def test_a_block_that_is_left_by_an_exception_ends_at_once(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is waited for, what is given up is said, and nothing is left running."""
    route = LocalRoute()
    with pytest.raises(ZeroDivisionError):
        _fail_inside(route, runtime)
    assert "channel other ends with 1 message that is not confirmed" in caplog.text


def test_a_handler_can_not_close_its_own_channel(steps: StepRuntime) -> None:
    """The attempt changes nothing: the message is settled and the channel goes on."""
    route, refused = LocalRoute(), list[str]()

    def accept(channel: ChannelFace) -> None:
        def handle(message: object) -> None:
            with pytest.raises(MisuseError) as error:
                channel.close()
            refused.append(f"{message} {error.value}")

        channel.receive(handle)

    with (
        Listener(route, names=["t"], accept=accept, runtime=steps),
        Channel("t", route=route, runtime=steps) as channel,
    ):
        channel.send(1)
        channel.send(2)
        channel.flush(60)
    assert [text.split(" ", 2)[:2] for text in refused] == [["1", "close"], ["2", "close"]]


# Bounds.


def _has_room(channel: Channel, message: object) -> bool:
    try:
        channel.send(message, timeout=0.01)
    except PipeFull:
        return False
    return True


def test_a_stack_that_never_sends_again_drops_nothing_and_holds_up_only_itself(
    steps: StepRuntime,
) -> None:
    """pipes P-9: nobody reads forward, its inbox fills up and the sender is told so; meanwhile 50 go back."""
    layers: LayerText = {"continuous-index": {"run_max": 1, "receive_window": 4}}
    ends, seen, back = list[ChannelFace](), list[object](), list[object]()
    route = LocalRoute()
    with Listener(
        route, names=["t"], accept=ends.append, layers=layers, back="reliable", frames_max=8,
        runtime=steps,
    ):  # fmt: skip
        channel = Channel("t", layers, route=route, back="reliable", frames_max=8, runtime=steps)
        channel.receive(back.append)
        assert channel.wait_up(60)
        sent = 0
        while _has_room(channel, sent):
            sent += 1
        assert 8 <= sent < 20
        ends[0].send_many(list(range(50)), until="confirmed", timeout=60)
        assert back == list(range(50))
        ends[0].receive(seen.append)
        for number in range(sent, 100):
            channel.send(number, timeout=60)
        channel.close()
        assert ends[0].counters()["frames_dropped"] == 0
    assert seen == list(range(100))


def test_what_is_sent_before_the_other_end_is_there_fits_when_it_comes(steps: StepRuntime) -> None:
    """pipes C-3, P-9: an inbox of 8 frames and a stack that never sends again: 100 messages, none dropped."""
    layers: LayerText = {"strict-monotonic": {"run_max": 1}}
    route, accept = LocalRoute(), Keeping()
    with (
        Listener(route, names=["t"], accept=accept, layers=layers, frames_max=8, runtime=steps),
        Channel("t", layers, route=route, frames_max=8, runtime=steps) as channel,
    ):
        for number in range(100):
            channel.send(number, timeout=60)
    assert accept.seen == list(range(100))


# What is refused.


def _of_three(_message: object, _reply: Reply, _more: object) -> None:
    """A handler that nobody can call."""


@pytest.mark.parametrize(
    ("layers", "back", "reason"),
    [
        (["multi-unconfirmed", "continuous-index"], None, "unmet-carrier: pipe t: "),
        ("reliable", ["multi-unconfirmed", "continuous-index"], "unmet-carrier: pipe t/back: "),
        (CARRIED, "strict-monotonic", "unprotected-confirms: pipe t: "),
        ("strict-monotonic", CARRIED, "unprotected-confirms: pipe t/back: "),
    ],
)
def test_a_direction_that_can_not_keep_its_promise_is_refused(
    steps: StepRuntime,
    layers: LayerText | list[LayerText],
    back: LayerText | list[LayerText] | None,
    reason: str,
) -> None:
    """pipes G-4, G-9: at both ends, with the algebra's reason, before anything is started."""
    route = FaultyRoute(LocalRoute(), loss=0.1)
    with pytest.raises(CompositionError, match=reason):
        Channel("t", layers, route=route, back=back, runtime=steps)
    with pytest.raises(CompositionError, match=reason):
        Listener(route, names=["t"], accept=Keeping(), layers=layers, back=back, runtime=steps)


def test_confirms_that_a_channel_carries_make_a_stack_sound(steps: StepRuntime) -> None:
    """pipes composition 14: refused for a pipe over the same route, taken here."""
    route = FaultyRoute(LocalRoute(), loss=0.1)
    with Channel("t", CARRIED, route=route, back="multi-unconfirmed", runtime=steps) as channel:
        headline = channel.guarantee.headline
        assert (headline.delivery, headline.order) == ("exactly-once", "absolute")


def test_ends_with_different_layers_tell_both_sides(steps: StepRuntime) -> None:
    """pipes F-5: both stop with an error that names both stacks, and each tells it once."""
    route, noted, noted_here = LocalRoute(), Noted(), Noted()
    here, there = "layers reliable, back resend", "layers resend, back resend"
    accept = Keeping()
    with (
        Listener(route, names=["t"], accept=accept, layers="resend", notices=noted, runtime=steps),
        Channel(
            "t", "reliable", route=route, back="resend", notices=noted_here, runtime=steps
        ) as channel,
    ):
        met = f"this end has {here}, payloads auto; the other end has {there}, payloads auto"
        with pytest.raises(StacksDiffer, match=met):
            channel.wait_up(60)
        with pytest.raises(StacksDiffer, match=met):
            next(iter(channel))
        met = f"this end has {there}, payloads auto; the other end has {here}, payloads auto"
        with pytest.raises(StacksDiffer, match=met):
            accept.ends[0].send("anything")
    assert [set(one.kinds()) for one in (noted, noted_here)] == [{"Mismatch"}] * 2


def test_misuse_is_named_and_changes_nothing(runtime: Runtime) -> None:
    """A name in use, two handlers, a handler and a loop, three arguments, no name, a one-way route."""
    route, accept = LocalRoute(), Keeping()
    with Listener(route, names=["t"], accept=accept, runtime=runtime):
        with pytest.raises(MisuseError, match="somebody listens on this side"):
            Listener(route, names=["u"], accept=accept, runtime=runtime)
        with Channel("t", route=route, runtime=runtime) as channel:
            with pytest.raises(MisuseError, match=r"^channel t has an end on this side"):
                Channel("t", route=route, runtime=runtime)
            with (
                PipeReceiver("p", route=route, runtime=runtime),
                pytest.raises(MisuseError, match=r"^pipe p has an end on this side"),
            ):
                PipeReceiver("p", route=route, runtime=runtime)
            with pytest.raises(ConfigurationError, match="the same runtime"):
                Channel("u", route=route, runtime=StepRuntime(1))
            with pytest.raises(
                MisuseError, match=r"write handler\(message\) or handler\(message, reply\)"
            ):
                channel.receive(_of_three)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
            channel.receive(print)
            with pytest.raises(MisuseError, match="channel t has a handler"):
                channel.receive_many(print)
            with pytest.raises(MisuseError, match="channel t has a handler"):
                iter(channel)
            channel.send(1, until="confirmed", timeout=PATIENCE_S)
    assert accept.seen == [1]
    with pytest.raises(ConfigurationError, match="a channel needs a name"):
        Channel("", route=route, runtime=runtime)
    with pytest.raises(ConfigurationError, match="no way back"):
        Channel("t", "strict-monotonic", route=LocalRoute(one_way=True), runtime=runtime)
