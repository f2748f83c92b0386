"""Nodes: several machines by name behind one actor and one inbox, with routes by name between them and others."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from random import Random

import pytest

from surepipe import FaultyRoute, LocalRoute, PipeReceiver, PipeSender, TcpRoute
from surepipe.actors import Route, StepRuntime, ThreadRuntime
from surepipe.actors.codecs import choose_codec, wire_form
from surepipe.actors.consuming.consumer import each
from surepipe.actors.ends.intake import Until
from surepipe.actors.ends.machine import MachineEnd
from surepipe.actors.ends.receiver import ReceiverEnd
from surepipe.actors.ends.sender import SenderEnd
from surepipe.actors.host import EndOptions, Node
from surepipe.actors.routes import RouteSide
from surepipe.actors.runtime import Runtime
from surepipe.core.effects import (
    Accepted,
    Addressed,
    Confirmed,
    Deliver,
    Effect,
    Ranges,
    Transmit,
    WakeAt,
)
from surepipe.core.timing import earlier
from surepipe.errors import ConfigurationError, MisuseError, NotConfirmed
from surepipe.pipes.catalogue import parse_layers
from surepipe.pipes.stack.agreement import Terms, stack_text
from surepipe.pipes.stack.assembled import ReceiverStack, SenderStack
from surepipe.testing.servers import free_port
from tests.actors.kit import await_that
from tests.actors.links.kit import KEY, QUICK, Got

NAMES = ("a", "b", "c")
ROUNDS = 10
COUNT = 40
LAYERS = parse_layers(QUICK)
TERMS = Terms(stack_text(LAYERS), wire_form(choose_codec("auto")))


class Passing:
    """Passes a number on, one higher, until it is high enough."""

    def __init__(self) -> None:
        self.passed = 0

    def begin(self, number: int) -> list[Effect]:
        """Send a number to the next one."""
        return [Transmit(Addressed("next", number))]

    def frame(self, frame: object, now: int) -> list[Effect]:
        """A number came from the one before."""
        del now
        assert isinstance(frame, Addressed), "a machine with several routes is told which one"
        assert frame.route == "before"
        assert isinstance(frame.frame, int)
        self.passed += 1
        return self.begin(frame.frame + 1) if frame.frame < ROUNDS * len(NAMES) else []

    def wake(self, now: int) -> list[Effect]:
        """It has no deadline."""
        del now
        return []

    def answer(self, ticket: int, outcome: object, now: int) -> list[Effect]:
        """It asks nothing."""
        raise NotImplementedError

    def close(self, now: int) -> list[Effect]:
        """It holds nothing."""
        return self.wake(now)

    def counters(self) -> Mapping[str, int]:
        """How many numbers came by."""
        return {"passed": self.passed}

    def gauges(self) -> Mapping[str, int]:
        """Nothing stands here."""
        return {}

    def export(self) -> object:
        """What it counted."""
        return self.passed


def ring_of(runtime: Runtime) -> tuple[Node, list[MachineEnd[Passing]]]:
    """Three machines in one node, each with a route to the next."""
    options = EndOptions(runtime=runtime)
    node = Node("ring", options)
    routes = {name: LocalRoute() for name in NAMES}
    ends = [
        MachineEnd(
            name,
            Passing,
            {"next": routes[name].sender, "before": routes[NAMES[at - 1]].receiver},
            options,
            node=node,
        )
        for at, name in enumerate(NAMES)
    ]
    return node, ends


def passed(ends: Sequence[MachineEnd[Passing]]) -> list[int]:
    """What each of them counted, over all its lives."""
    return [end.counters().get("passed", 0) for end in ends]


def test_three_machines_in_one_actor_pass_frames_around_a_ring(runtime: Runtime) -> None:
    """pipes H-1: a number goes ten times around; each has passed it on ten times, and the node has one address."""
    node, ends = ring_of(runtime)
    ends[0].start()
    ends[0].tell(lambda machine, _: machine.begin(1))
    await_that(runtime, lambda: passed(ends) == [ROUNDS] * 3, "ten rounds")
    assert {end.keeper for end in ends} == {node.keeper}
    assert [end.stop(5) for end in ends] == [True] * 3
    assert passed(ends) == [ROUNDS] * 3


def test_a_turn_of_the_node_is_a_turn_of_its_one_actor(steps: StepRuntime) -> None:
    """In virtual time every step of the ring is one of the actor at the node's address."""
    _, ends = ring_of(steps)
    ends[0].start()
    ends[0].tell(lambda machine, _: machine.begin(1))
    steps.run_until_idle()
    assert set(steps.trace) == {"ring"}
    for end in ends:
        end.stop(1)


def test_machines_of_a_node_die_and_begin_anew_together(runtime: Runtime) -> None:
    """pipes H-2: all three have another life, what they counted before is kept, and the ring goes on."""
    node, ends = ring_of(runtime)
    ends[0].start()
    ends[0].tell(lambda machine, _: machine.begin(1))
    await_that(runtime, lambda: passed(ends) == [ROUNDS] * 3, "the first life")
    node.crash()
    await_that(runtime, lambda: node.keeper.restarts == 1 and node.is_alive, "the next life")
    ends[1].tell(lambda machine, _: machine.begin(1))
    await_that(runtime, lambda: passed(ends) == [2 * ROUNDS] * 3, "the second life")
    assert [end.counters()["restarts"] for end in ends] == [1, 1, 1]
    for end in ends:
        end.stop(5)


def test_an_end_that_leaves_lets_the_others_of_its_node_go_on(runtime: Runtime) -> None:
    """One of three machines is stopped: a number reaches the one before it and no further, also in the next life.

    What the stopped one counted stays as it is.
    """
    node, ends = ring_of(runtime)
    ends[0].start()
    ends[1].tell(lambda machine, _: machine.begin(ROUNDS * len(NAMES)))
    await_that(runtime, lambda: passed(ends) == [0, 0, 1], "the last step of a round")
    assert ends[2].stop(5)
    ends[0].tell(lambda machine, _: machine.begin(1))
    await_that(runtime, lambda: passed(ends) == [0, 1, 1], "one step")
    counted = ends[2].counters()
    node.crash()
    await_that(runtime, lambda: node.keeper.restarts == 1 and node.is_alive, "the next life")
    assert ends[2].counters() == counted
    ends[0].tell(lambda machine, _: machine.begin(1))
    await_that(runtime, lambda: passed(ends) == [0, 2, 1], "one more step")
    assert ends[0].stop(5)
    assert ends[1].stop(5)
    assert not node.is_alive


def test_a_node_takes_each_name_once_and_none_after_it_has_begun(steps: StepRuntime) -> None:
    """Both are misuse, and change nothing."""
    node, ends = ring_of(steps)
    with pytest.raises(MisuseError, match="has an end of that name"):
        MachineEnd("a", Passing, {}, EndOptions(runtime=steps), node=node)
    ends[0].start()
    with pytest.raises(MisuseError, match="has begun already"):
        MachineEnd("d", Passing, {}, EndOptions(runtime=steps), node=node)
    assert list(node.ends) == ["a/machine", "b/machine", "c/machine"]
    for end in ends:
        end.stop(1)


class Relaying:
    """A relay: a receiver and two senders in one machine. A message is settled when both others have it."""

    def __init__(self, rng: Random) -> None:
        self.receiver = ReceiverStack("in", LAYERS, rng=rng, terms=TERMS)
        self.senders = {
            name: SenderStack(name, LAYERS, rng=rng, life_hint=1, terms=TERMS)
            for name in ("left", "right")
        }
        self.open: dict[str, deque[tuple[int, Ranges, int]]] = {"left": deque(), "right": deque()}
        self.half: dict[tuple[int, Ranges], int] = {}
        self.deadlines: dict[str, int | None] = {}

    def frame(self, frame: object, now: int) -> list[Effect]:
        """From one of three others."""
        assert isinstance(frame, Addressed)
        inner = frame.frame
        machine = self.receiver if frame.route == "in" else self.senders[frame.route]
        return self._through(frame.route, machine.frame(inner, now), now)

    def wake(self, now: int) -> list[Effect]:
        """Every deadline is looked at: an early wake is harmless."""
        effects = self._through("in", self.receiver.wake(now), now)
        for name, sender in self.senders.items():
            effects += self._through(name, sender.wake(now), now)
        return effects

    def _through(self, name: str, effects: list[Effect], now: int) -> list[Effect]:
        out: list[Effect] = []
        for effect in effects:
            match effect:
                case Transmit(frame):
                    out.append(Transmit(Addressed(name, frame)))
                case WakeAt(deadline):
                    self.deadlines[name] = deadline
                case Deliver():
                    last = effect.first + len(effect.payloads) - 1
                    part = (effect.ticket, ((effect.first, last),))
                    for other, sender in self.senders.items():
                        self.open[other].append((*part, len(effect.payloads)))
                        out += self._through(other, sender.send(effect.payloads, now), now)
                case Confirmed():
                    out += self._confirmed(name, effect, now)
                case _:
                    assert isinstance(effect, Accepted), effect
        soonest: int | None = None
        for deadline in self.deadlines.values():
            soonest = earlier(soonest, deadline)
        return [*(each for each in out if not isinstance(each, WakeAt)), WakeAt(soonest)]

    def _confirmed(self, name: str, effect: Confirmed, now: int) -> list[Effect]:
        """Deliveries come back in order, as a whole or in parts."""
        out: list[Effect] = []
        count = sum(last - first + 1 for first, last in effect.ranges)
        waiting = self.open[name]
        while count and waiting:
            ticket, ranges, left = waiting.popleft()
            if count < left:
                waiting.appendleft((ticket, ranges, left - count))
                break
            count -= left
            key = (ticket, ranges)
            self.half[key] = self.half.get(key, 0) + 1
            if self.half[key] == len(self.senders):
                del self.half[key]
                out += self._through("in", self.receiver.settled(ticket, ranges, now), now)
        return out

    def answer(self, ticket: int, outcome: object, now: int) -> list[Effect]:
        """Nothing is stored here."""
        raise NotImplementedError

    def close(self, now: int) -> list[Effect]:
        """It keeps nothing that its senders do not keep."""
        return self.wake(now)

    def counters(self) -> Mapping[str, int]:
        """Those of the receiver."""
        return self.receiver.counters()

    def gauges(self) -> Mapping[str, int]:
        """Those of the receiver."""
        return self.receiver.gauges()

    def export(self) -> object:
        """That of the receiver."""
        return self.receiver.export()


def bad(route: Route, seed: int) -> FaultyRoute:
    """Loses, repeats and reorders."""
    return FaultyRoute(route, loss=0.1, duplicate=0.1, reorder=0.2, reorder_s=0.01, seed=seed)


Ends = tuple[RouteSide, Route]
"""The relay's side, and the route as the other end knows it."""


def locally(stack: ExitStack, seed: int, *, receives: bool) -> Ends:
    """One faulty local route."""
    del stack
    route = bad(LocalRoute(), seed)
    return (route.receiver if receives else route.sender), route


def over_tcp(stack: ExitStack, seed: int, *, receives: bool) -> Ends:
    """A sealed link, faulty on the side of the other end."""
    del stack
    here = f"127.0.0.1:{free_port()}"
    listening = TcpRoute.listen(here, security=KEY)
    calling = TcpRoute.connect(here, security=KEY)
    if receives:
        return bad(listening, seed).receiver, bad(calling, seed + 1)
    return bad(calling, seed).sender, bad(listening, seed + 1)


def relayed(
    relay: Callable[[Mapping[str, RouteSide], Runtime], tuple[Node, Callable[[], None]]],
    make: Callable[..., Ends],
    runtime: Runtime,
) -> None:
    """Messages of one party go through a relay to two others: each has all of them, once, in order."""
    with ExitStack() as stack:
        sides: dict[str, RouteSide] = {}
        routes: dict[str, Route] = {}
        for seed, name in enumerate(("in", "left", "right"), 1):
            sides[name], routes[name] = make(stack, 10 * seed, receives=name == "in")
        node, close = relay(sides, runtime)
        got = {"left": Got(), "right": Got()}
        for name, handler in got.items():
            end = PipeReceiver(name, QUICK, route=routes[name], runtime=runtime)
            stack.enter_context(end).receive(handler)
        stack.callback(close)
        sender = PipeSender("in", QUICK, route=routes["in"], runtime=runtime)
        stack.enter_context(sender)
        for number in range(COUNT):
            sender.send(number)
        sender.flush(60)
        for handler in got.values():
            await_that(runtime, lambda handler=handler: len(handler.messages) >= COUNT, "all")  # type: ignore[misc]
            assert handler.messages == list(range(COUNT))
        assert node.keeper.restarts == 0


def one_machine(
    sides: Mapping[str, RouteSide], runtime: Runtime
) -> tuple[Node, Callable[[], None]]:
    """The relay as one machine with three routes."""
    end = MachineEnd("relay", lambda: Relaying(Random(5)), sides, EndOptions(runtime=runtime))
    end.start()
    return end.node, lambda: _stop(end)


def three_ends(sides: Mapping[str, RouteSide], runtime: Runtime) -> tuple[Node, Callable[[], None]]:
    """The relay as three ends in one node; its handler passes each message on and waits for both confirms."""
    options = EndOptions(runtime=runtime)
    node = Node("relay", options)
    receiver = ReceiverEnd("in", LAYERS, sides["in"], options, terms=TERMS, node=node)
    senders = [
        SenderEnd(name, LAYERS, sides[name], options, terms=TERMS, node=node)
        for name in ("left", "right")
    ]
    receiver.start()

    def pass_on(message: object) -> None:
        assert isinstance(message, bytes)
        for sender in senders:
            sender.intake.offer(message, Until.CONFIRMED, None)

    receiver.consume(each(pass_on, choose_codec("bytes")))
    return node, lambda: _stop(receiver, *senders)


def _stop(*ends: MachineEnd[Relaying] | ReceiverEnd | SenderEnd) -> None:
    assert all(end.stop(5) for end in ends)


@pytest.mark.parametrize("relay", [one_machine, three_ends])
def test_a_relay_in_one_node_brings_everything_to_two_parties_over_bad_local_routes(
    relay: Callable[..., tuple[Node, Callable[[], None]]], runtime: Runtime
) -> None:
    """As one machine with three routes, and as three ends that share an actor."""
    relayed(relay, locally, runtime)


@pytest.mark.parametrize("relay", [one_machine, three_ends])
def test_a_relay_in_one_node_brings_everything_to_two_parties_over_bad_links(
    relay: Callable[..., tuple[Node, Callable[[], None]]],
) -> None:
    """The same over TCP, whose frames are lost, repeated and reordered on the way."""
    relayed(relay, over_tcp, ThreadRuntime())


def test_when_one_end_has_its_node_begin_anew_the_others_account_for_what_they_held(
    steps: StepRuntime,
) -> None:
    """A receiver that must look at its store again renews the node: what a sender beside it had not got confirmed
    is lost with its life, and said so to whoever waits."""
    options = EndOptions(runtime=steps)
    node = Node("both", options)
    receiver = ReceiverEnd("in", LAYERS, LocalRoute().receiver, options, node=node)
    sender = SenderEnd("out", LAYERS, LocalRoute().sender, options, node=node)
    receiver.start()
    sender.intake.put(b"a message")
    receiver.ask(lambda _: node.renew(0))
    with pytest.raises(NotConfirmed, match="went with it") as lost:
        sender.flush(5)
    assert len(lost.value.ranges) == 1
    assert node.is_alive
    assert node.keeper.restarts == 0
    _stop(receiver, sender)


def test_ends_of_one_node_run_on_one_runtime(steps: StepRuntime) -> None:
    """Two clocks in one actor would be none."""
    node = Node("both", EndOptions(runtime=steps))
    with pytest.raises(ConfigurationError, match="one runtime"):
        MachineEnd("a", Passing, {}, EndOptions(runtime=StepRuntime(1)), node=node)
