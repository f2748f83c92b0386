from __future__ import annotations

from functools import partial

import pytest

from surepipe import DeadLetters, FaultyRoute, LocalRoute, NotConfirmed, Pipe, PipeStopped
from surepipe.actors import ReceiverEnd, RestartPolicy, SenderEnd, StepRuntime, ThreadRuntime
from surepipe.actors.ends.intake import SenderEntry
from surepipe.actors.runtime import Runtime
from tests.actors.kit import PATIENCE_S, Noted, await_that

QUICK = RestartPolicy(wait_min_s=0.001, wait_max_s=0.01)


def _has_died(end: SenderEnd | ReceiverEnd, times: int) -> bool:
    """So often, and it lives again if it will."""
    return end.keeper.restarts == times and end.is_alive


def _is_refused(intake: SenderEntry) -> bool:
    """It takes nothing any more."""
    return intake.refusal is not None


def _ignore(message: object) -> None:
    """A handler that does nothing."""


def test_a_receiver_that_crashes_loses_nothing(runtime: Runtime) -> None:
    """Crashed between and amid messages: each is handled, some perhaps twice (pipes G-5: receiver-crash)."""
    seen: list[object] = []
    fast = {"reliable": {"rto_initial_s": 0.05, "rto_min_s": 0.02}}
    with Pipe("p", fast, runtime=runtime, restarts=QUICK) as pipe:
        pipe.receive(seen.append)
        for number in range(200):
            pipe.send(number)
            if number in (50, 120):
                pipe.receiver.crash()
                deaths = 1 if number == 50 else 2
                await_that(runtime, partial(_has_died, pipe.receiver, deaths), "a new incarnation")
        pipe.flush(PATIENCE_S)
        assert pipe.counters()["restarts"] == 2
        assert pipe.counters()["confirmed"] == 200
    assert sorted({int(str(m)) for m in seen}) == list(range(200))


def test_a_sender_that_crashes_names_what_went_with_it_once(steps: StepRuntime) -> None:
    """Nobody reads, the sender crashes, another life goes on (pipes L-3); no journal."""
    noted = Noted()
    pipe = Pipe("p", runtime=steps, notices=noted)
    pipe.send_many(["a", "b", "c"])
    steps.advance(0.01)
    pipe.sender.crash()
    steps.advance(1)
    pipe.send("d")
    seen: list[object] = []
    pipe.receive(seen.append)
    with pytest.raises(NotConfirmed, match="the sender crashed") as caught:
        pipe.flush(PATIENCE_S)
    assert [(first, last) for _, first, last in caught.value.ranges] == [(1, 3)]
    pipe.flush(PATIENCE_S)
    pipe.close()
    assert seen[-1] == "d"
    assert noted.kinds() == ["Undeliverable"]
    assert noted.notices[0].ranges == ((1, 3),)


def test_what_a_former_incarnation_had_in_work_is_not_reported_to_the_next(
    steps: StepRuntime,
) -> None:
    """A loop is at its second message when the receiver crashes; tickets begin at 1 again, the work is another."""
    pipe = Pipe("p", runtime=steps)
    pipe.send_many(["a", "b", "c"])
    loop = iter(pipe)
    assert [next(loop), next(loop)] == ["a", "b"]
    pipe.receiver.crash()
    steps.advance(60)
    assert pipe.counters()["confirmed"] == 0
    pipe.finish()
    assert list(loop) == ["a", "b", "c"]
    pipe.close()


def test_who_waits_for_a_message_that_a_crash_loses_is_told_at_once(steps: StepRuntime) -> None:
    """send(until=confirmed) does not wait for ever."""
    pipe = Pipe("p", runtime=steps)
    alarm = steps.alarm(pipe.sender.crash)
    alarm.set(steps.now() + 1_000)
    with pytest.raises(NotConfirmed, match="crashed before this was confirmed; it is lost"):
        pipe.send("a", until="confirmed")
    with pytest.raises(NotConfirmed):
        pipe.close()


def test_messages_that_the_actor_had_not_taken_survive_its_crash(steps: StepRuntime) -> None:
    """They lie in the intake, which is not the actor's."""
    seen: list[object] = []
    with Pipe("p", runtime=steps) as pipe:
        pipe.receive(seen.append)
        steps.advance(1)
        pipe.sender.crash()
        pipe.send("a")
    assert seen == ["a"]


def test_a_handler_actor_that_dies_is_restarted_with_a_new_incarnation(runtime: Runtime) -> None:
    """A defect of our own, injected; what it had in work comes again (pipes H-2)."""
    seen: list[object] = []
    fast = {"reliable": {"rto_initial_s": 0.05, "rto_min_s": 0.02}}
    with Pipe("p", fast, runtime=runtime, restarts=QUICK) as pipe:
        pipe.receive(seen.append)
        pipe.send("a")
        pipe.flush(PATIENCE_S)
        pipe.receiver.crash_consumer()
        pipe.send("b")
        pipe.flush(PATIENCE_S)
    assert seen in (["a", "b"], ["a", "b", "b"]), "twice if it was amid the crash"


def test_an_end_that_keeps_dying_stops_the_pipe_and_tells_everybody(runtime: Runtime) -> None:
    """Three deaths in a row with room for two; a sender and a loop are told why."""
    policy = RestartPolicy(restarts_max=2, wait_min_s=0.001)
    for end in ("sender", "receiver"):
        pipe = Pipe("p", runtime=runtime, restarts=policy)
        side = pipe.sender if end == "sender" else pipe.receiver
        for deaths in (1, 2):
            side.crash()
            await_that(runtime, partial(_has_died, side, deaths), "a death and a new life")
        side.crash()
        intake = pipe.sender.intake
        await_that(runtime, partial(_is_refused, intake), "the end")
        with pytest.raises(PipeStopped, match=f"p/{end} died 3 times within 60 s"):
            pipe.flush(PATIENCE_S)
        with pytest.raises(PipeStopped):
            pipe.send("a")
        with pytest.raises(PipeStopped):
            pipe.close()


def test_a_crash_of_one_pipe_leaves_the_others_alone() -> None:
    """Both ends and the handler of one are killed while the other carries messages (pipes H-2)."""
    runtime = ThreadRuntime()
    seen: list[object] = []
    other = Pipe("other", runtime=runtime, restarts=QUICK)
    other.receive(_ignore)
    with Pipe("p", runtime=runtime) as pipe:
        pipe.receive(seen.append)
        for number in range(300):
            pipe.send(number)
            if number == 100:
                other.sender.crash()
                other.receiver.crash()
                other.receiver.crash_consumer()
        pipe.flush(PATIENCE_S)
        assert pipe.counters()["restarts"] == 0
    assert seen == list(range(300))
    other.close()


def _run(seed: int) -> tuple[list[str], dict[str, int], list[object]]:
    """A faulty run with crashes at both ends: steps, counters, what was handled."""
    runtime = StepRuntime(seed)
    seen: list[object] = []
    letters = DeadLetters()
    fails = {7: 2, 40: 99}

    def handler(message: object) -> None:
        assert isinstance(message, int)
        if fails.get(message, 0):
            fails[message] -= 1
            raise ValueError(message)
        seen.append(message)

    route = FaultyRoute(LocalRoute(), loss=0.2, duplicate=0.1, reorder=0.2, delay=0.01, seed=seed)
    with Pipe("p", route=route, runtime=runtime, retries=3, dead_letter=letters) as pipe:
        pipe.receive(handler)
        for number in range(60):
            pipe.send(number)
            if number % 20 == 15:
                pipe.receiver.crash()
            runtime.advance(0.003)
        pipe.flush(3600)
        assert [letter.attempts for letter in letters] == [3]
        counters = pipe.counters()
    return runtime.trace, counters, seen


def test_the_same_seed_gives_the_same_steps_and_the_same_counters() -> None:
    """Faults, crashes, retries and a dead letter (pipes P-12)."""
    assert _run(3) == _run(3)
    assert _run(3)[0] != _run(4)[0]


@pytest.mark.parametrize("seed", range(10))
def test_under_faults_and_receiver_crashes_nothing_is_lost_and_no_gap_is_made(seed: int) -> None:
    """N and G hold where U does not (pipes G-5): 60 messages, one of them a letter."""
    _, counters, seen = _run(seed)
    handled = [m for m in seen if isinstance(m, int)]
    assert sorted(set(handled) | {40}) == list(range(60))
    assert counters["confirmed"] == 60
    highest = -1
    for message in handled:
        assert message <= highest + 1 or (highest, message) == (39, 41), "a gap"
        highest = max(highest, message)
