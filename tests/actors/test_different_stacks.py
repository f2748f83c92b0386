"""Ends in different processes that are configured differently: both are told which two stacks met."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import pairwise

import pytest
from pydantic import BaseModel

from surepipe import (
    ConfigurationError,
    FaultyRoute,
    LocalRoute,
    Pipe,
    PipeNotice,
    PipeReceiver,
    PipeSender,
    PipeStopped,
    StacksDiffer,
    TcpRoute,
)
from surepipe.actors.codecs import CodecChoice
from surepipe.actors.routes import Route
from surepipe.actors.runtime import Runtime
from surepipe.actors.steps import StepRuntime
from surepipe.actors.threads import ThreadRuntime
from surepipe.simulation.stores.store import SimulatedStore
from tests.kit.stacks import Layers, directory

STACKS = directory()
UNCONFIRMED = ("strict-monotonic", "dedupe", "strict-monotonic(relaxed=True)")
CHOSEN = [text for text in STACKS if text.split(" > ")[-1] not in UNCONFIRMED][::4]
HERE = "127.0.0.1:0"
WITHIN_S = 30.0


class Order(BaseModel):
    """A message with a model."""

    number: int


class Ends:
    """Both ends, each with what it told, closed with the test."""

    def __init__(
        self,
        stack: ExitStack,
        routes: tuple[Route, Route],
        layers: tuple[Layers, Layers],
        runtime: Runtime,
        codecs: tuple[CodecChoice, CodecChoice] = ("auto", "auto"),
    ) -> None:
        self.told: dict[str, list[PipeNotice]] = {"sender": [], "receiver": []}
        self.seen: list[object] = []
        self.receiver = stack.enter_context(
            PipeReceiver(
                "orders",
                list(layers[1]),
                route=routes[1],
                codec=codecs[1],
                notices=self.told["receiver"].append,
                runtime=runtime,
            )
        )
        sender = PipeSender(
            "orders",
            list(layers[0]),
            route=routes[0],
            codec=codecs[0],
            notices=self.told["sender"].append,
            runtime=runtime,
        )
        stack.callback(sender.abort)
        self.sender = sender

    def mismatches(self, who: str) -> list[str]:
        """What one end told of the other's stack."""
        return [notice.detail for notice in self.told[who] if notice.kind == "Mismatch"]


def assert_told_at_both(ends: Ends, own: str, other: str) -> None:
    """Whoever sends, and whoever takes messages, gets a configuration error that names both stacks."""
    mine = f"this end has {own}; the other end has {other}"
    theirs = f"this end has {other}; the other end has {own}"
    with pytest.raises(StacksDiffer) as sending:
        ends.sender.send({"number": 1}, until="confirmed", timeout=WITHIN_S)
    with pytest.raises(StacksDiffer) as taking:
        next(iter(ends.receiver))
    assert mine in str(sending.value)
    assert theirs in str(taking.value)
    assert isinstance(sending.value, ConfigurationError)
    assert any(mine in text for text in ends.mismatches("sender"))
    assert any(theirs in text for text in ends.mismatches("receiver"))
    kinds = {notice.kind for notices in ends.told.values() for notice in notices}
    assert "Fenced" not in kinds


@pytest.mark.parametrize("own", CHOSEN)
def test_two_stacks_that_differ_are_named_at_both_ends_over_a_memory_link(own: str) -> None:
    """Each of the chosen stacks against each, in virtual time; equal ones pass a message."""
    for other in CHOSEN:
        with ExitStack() as stack:
            runtime, route = StepRuntime(3), LocalRoute()
            layers = (STACKS[own], STACKS[other])
            ends = Ends(stack, (route, route), layers, runtime)
            if own != other:
                assert_told_at_both(ends, f"{own}, payloads auto", f"{other}, payloads auto")
            else:
                ends.receiver.receive(ends.seen.append)
                ends.sender.send({"number": 1})
                ends.sender.flush(WITHIN_S)
                assert ends.seen == [{"number": 1}]
                assert not ends.told["sender"] + ends.told["receiver"]


def test_a_route_that_loses_every_other_frame_hides_nothing() -> None:
    """Introductions are repeated until both ends have heard one."""
    with ExitStack() as stack:
        runtime = StepRuntime(5)
        route = FaultyRoute(LocalRoute(), loss=0.5, seed=4)
        layers = (STACKS["reliable"], STACKS["multi-unconfirmed"])
        ends = Ends(stack, (route, route), layers, runtime)
        with pytest.raises(StacksDiffer):
            next(iter(ends.receiver))
        with pytest.raises(StacksDiffer):
            ends.sender.send(1, until="confirmed", timeout=600)
        assert ends.mismatches("sender")
        assert ends.mismatches("receiver")


@pytest.mark.parametrize(("own", "other"), list(pairwise(CHOSEN[:6])))
@pytest.mark.parametrize("listens", ["sender", "receiver"])
def test_two_stacks_that_differ_are_named_at_both_ends_over_tcp(
    own: str, other: str, listens: str
) -> None:
    """Real sockets, whichever end listens."""
    with ExitStack() as stack:
        listening = TcpRoute.listen(HERE)
        runtime = ThreadRuntime()
        holder = stack.enter_context(
            PipeReceiver("another", route=listening, runtime=runtime)
        )  # opens the port, which is drawn
        connecting = TcpRoute.connect(f"127.0.0.1:{listening.port}")
        routes = (listening, connecting) if listens == "sender" else (connecting, listening)
        ends = Ends(stack, routes, (STACKS[own], STACKS[other]), runtime)
        assert_told_at_both(ends, f"{own}, payloads auto", f"{other}, payloads auto")
        holder.close()


@pytest.mark.parametrize(
    ("codecs", "fits"),
    [
        (("auto", "json"), False),
        (("json", "auto"), False),
        ((Order, "auto"), False),
        (("json", "bytes"), True),
        (("bytes", "json"), True),
        ((Order, "json"), True),
        (("json", "json"), True),
    ],
)
def test_codecs_that_cannot_read_each_other_are_a_difference_too(
    codecs: tuple[CodecChoice, CodecChoice], *, fits: bool
) -> None:
    """What one writes as JSON behind a mark, another would take for a broken message."""
    with ExitStack() as stack:
        runtime, route = StepRuntime(3), LocalRoute()
        layers = (STACKS["reliable"], STACKS["reliable"])
        ends = Ends(stack, (route, route), layers, runtime, codecs)
        if fits:
            ends.receiver.receive(ends.seen.append)
            ends.sender.send(b"1" if codecs[0] == "bytes" else {"number": 1})
            ends.sender.flush(WITHIN_S)
            assert len(ends.seen) == 1
        else:
            texts = [
                "reliable, payloads auto",
                "reliable, payloads json",
            ]
            own, other = texts if codecs[0] == "auto" else reversed(texts)
            assert_told_at_both(ends, own, other)


@pytest.mark.parametrize(
    ("former", "new"),
    [("reliable", "continuous-index > multi-unconfirmed"), ("multi-unconfirmed", "resend")],
)
def test_a_receiver_with_the_state_of_another_stack_says_so_at_once(former: str, new: str) -> None:
    """Nothing of it is handled, no actor dies of it, and with the former layers all goes on where it was."""
    store, seen, told = SimulatedStore(), list[object](), list[PipeNotice]()

    def life(layers: str) -> Pipe:
        layer_list: Layers = layers.split(" > ")
        pipe = Pipe("orders", layer_list, state=store, runtime=StepRuntime(1), notices=told.append)
        pipe.receive(seen.append)
        return pipe

    with life(former) as pipe:
        pipe.send_many([0, 1])
        pipe.flush(WITHIN_S)
    changed = life(new)
    named = f"was stored by {former}, and this one is {new}: give it the layers that it had, or another name"
    with pytest.raises(PipeStopped, match=named):
        changed.send(2, until="confirmed", timeout=WITHIN_S)
    assert [str(one.kind) for one in told] == ["Mismatch"]
    changed.abort()
    with life(former) as pipe:
        pipe.send(3)
        pipe.flush(WITHIN_S)
    assert seen == [0, 1, 3]
