"""Nodes and the ends that live in them: an actor with one inbox around any number of machines.

A ``Node`` is an address; its actor comes and goes. A ``NodeEnd`` is what callers hold of one machine, a ``Host``
one life of that machine. An end has a node for itself unless it is given one, and then shares its actor, its inbox
and its lives with the other ends there: a pipe's sender is a node with one end, a relay one with several.

The step is always the same: take one event, give it to its machine with ``now``, perform the effects in order (the
last of them re-arms the machine's one deadline). Nothing about the protocol is decided here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Container, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any, Generic, TypeVar, cast

import pykka

from surepipe.actors.codecs import unmarked
from surepipe.actors.inbox import Bell, BellRing, Box
from surepipe.actors.letters import awaiting
from surepipe.actors.notices import NoticeCallback, Notices, log_notice, observed_name
from surepipe.actors.routes import RouteSide
from surepipe.actors.runtime import Alarm, Running, Runtime
from surepipe.actors.store_calls import WAITER, Clerk, Request, Silences, Stores
from surepipe.actors.supervision import KILL, ActorKeeper, Kill, Killed, RestartPolicy, Start
from surepipe.actors.threads import THREADS
from surepipe.actors.tracing import Tracing
from surepipe.core.effects import (
    Call,
    DeadLetter,
    Effect,
    Notice,
    NoticeKind,
    Persist,
    Transmit,
    WakeAt,
)
from surepipe.core.machine import Machine
from surepipe.errors import ConfigurationError, MisuseError, PipeStopped

M = TypeVar("M", bound=Machine)


@dataclass(frozen=True, slots=True)
class Ask:
    """A question to an actor about one of its ends; ``ask`` returns what it answers."""

    question: Callable[[Host[Any]], object]
    end: str


@dataclass(slots=True)
class Surroundings:
    """The parts of an end that outlive its hosts: its inbox, its alarm, its way to route and stores."""

    runtime: Runtime
    bell: Bell
    frames: Box[object]
    transmit: Callable[[object], None]
    notices: Notices
    clerk: Callable[[tuple[object, Request]], object] | None
    silences: Silences
    woken: Callable[[], object] | None = None
    """Told whenever the deadline has passed, before the machine hears of it."""
    alarm: Alarm | None = None
    """The one deadline. Its ring sets ``due`` and rings the bell."""
    due: bool = False
    is_route_back: bool = False
    heard_at: int | None = None
    """When the other end was last heard of."""

    put: Callable[[object], None] = field(init=False)
    """From the route: a frame has arrived."""

    def __post_init__(self) -> None:
        self.put = self.frames.put

    @property
    def room(self) -> int:
        """For the route: how many more frames fit."""
        return self.frames.room

    def wake(self) -> None:
        """From the route: the other end has room again."""
        self.bell.ring()

    def reconnected(self, elsewhere: Container[int] = ()) -> None:
        """From the route: frames get through again."""
        del elsewhere
        self.is_route_back = True
        self.bell.ring()

    def ring(self) -> None:
        self.due = True
        self.bell.ring()


class Host(ABC, Generic[M]):
    """One life of one end: a machine, and what becomes of its effects."""

    machine: M
    """The machine of this life, once it is built."""

    has_boxes = False
    """True where frames are taken in a way of its own."""

    def __init__(self, around: Surroundings) -> None:
        self.around = around
        self.is_built = False
        """False while the stores that a life begins with are not answering."""
        self.now = around.runtime.now
        self.perform_by_type: dict[type[Effect], Callable[..., object]] = {
            Transmit: self._transmit,
            WakeAt: self._wake_at,
            Notice: self.notice,
            Persist: self._request,
            DeadLetter: self._post,
            Call: self._request,
        }
        self.moves = 0
        """How many effects and answers this life has had."""
        self._answers: deque[tuple[int, object]] = deque()
        self.over = False
        """True when this life is over, and what still comes concerns it no more."""
        self.mismatch = ""
        """How the other end is configured differently, once the machine has met it."""

    # Its turn in the actor.

    def begin(self) -> None:
        around = self.around
        if around.alarm is not None:
            around.alarm.set(None)
        if self.build():
            self.perform(self.machine.wake(self.now()))
        self.look()

    def look(self) -> None:
        """Give the machine all that waits: the deadline first, then frames, answers of stores, and the rest."""
        around = self.around
        around.bell.rung = False  # before the boxes are emptied: what comes after that rings again
        if self.over:
            return
        silences = around.silences
        if silences.oldest is not None or silences.told:
            for notice in silences.news():
                around.notices.tell(notice)
        is_due, around.due = around.due, False
        if not self.is_built:
            if is_due:
                self.begin()
            return
        if is_due:
            if around.woken is not None:
                around.woken()
            self.perform(self.machine.wake(self.now()))
        if self.has_boxes:
            self.take_frames()
        elif around.frames.items:
            machine, now = self.machine, self.now
            items = around.frames.items
            taken = items[:]
            del items[: len(taken)]  # what others append in between stays for the next time
            for frame in taken:
                around.heard_at = at = now()
                self.perform(machine.frame(frame, at))
        while self._answers:
            self.moves += 1
            self.perform(self.machine.answer(*self._answers.popleft(), self.now()))
        self.look_further()

    def take_frames(self) -> None:
        """Every frame that has arrived is an event."""
        for frame in self.around.frames.take():
            self.around.heard_at = at = self.now()
            self.perform(self.machine.frame(frame, at))

    def perform(self, effects: list[Effect]) -> None:
        self.moves += len(effects)
        by_type = self.perform_by_type
        for effect in effects:
            by_type[type(effect)](effect)

    def retry_build_at(self, at: int) -> None:
        """Begin again at this time: a store did not answer."""
        assert self.around.alarm is not None
        self.around.alarm.set(at)

    # What ends add.

    @abstractmethod
    def build(self) -> bool:
        """Build the machine; False when that is tried again later."""

    @abstractmethod
    def look_further(self) -> None:
        """The events that only this kind of end has."""

    # Effects.

    def _transmit(self, effect: Transmit) -> None:
        self.around.transmit(effect.frame)

    def _wake_at(self, effect: WakeAt) -> None:
        assert self.around.alarm is not None
        self.around.alarm.set(effect.deadline)

    def notice(self, effect: Notice) -> None:
        """Tell the people who run the pipe."""
        if effect.kind is NoticeKind.MISMATCH:
            self.mismatch = effect.detail
        self.around.notices.tell(effect)

    def _post(self, effect: DeadLetter) -> None:
        """A letter outlives this process, so its times are those of the wall clock. Its payload is what was sent,
        without what a replay had put in front of it."""
        runtime = self.around.runtime
        since = runtime.wall_ms() * 1000 - runtime.now()
        letter = effect.letter
        payload, replays = unmarked(letter.payload)
        dated = replace(
            letter,
            payload=payload,
            replays=replays,
            first_failure_us=letter.first_failure_us + since,
            last_failure_us=letter.last_failure_us + since,
        )
        self._request(DeadLetter(effect.ticket, dated))

    def _request(self, effect: Request) -> None:
        assert self.around.clerk is not None, f"{type(effect).__name__} without a store"
        self.around.clerk((self, effect))

    def answered(self, ticket: int, outcome: object) -> None:
        """From a clerk: the outcome of a request of this life."""
        self._answers.append((ticket, outcome))
        self.around.bell.ring()

    # Questions.

    def counters(self) -> Mapping[str, int]:
        """Count events of this life, by name."""
        return self.machine.counters() if self.is_built else {}

    def gauges(self) -> Mapping[str, int]:
        """What stands in the machine now."""
        return self.machine.gauges() if self.is_built else {}


# Nodes, and what every end keeps from life to life.


ASK_S = 5.0
FRAMES_MAX = 1024
STOP_WAITING_S = 0.02
"""How long a wait gets to end before it is told again."""


@dataclass(frozen=True, slots=True)
class EndOptions:
    """What both ends of a pipe may be given beside their layers.

    ``frames_max``: frames that wait for the end's actor; more are dropped, which is route loss, and counted.
    ``seed``: makes the random draws of the machines repeatable, for tests. ``trace``: writes down what happens.
    ``asserts``: the machines assert their invariants after each step, which costs some speed; one that fails is a
    defect of surepipe and restarts the end as a crash would.
    """

    runtime: Runtime = field(default_factory=lambda: THREADS)
    notices: NoticeCallback = log_notice
    restarts: RestartPolicy = field(default_factory=RestartPolicy)
    frames_max: int = FRAMES_MAX
    seed: int | None = None
    trace: Tracing | None = None
    asserts: bool = False


class NodeActor:
    """One life of a node: the actor that gives each of its hosts its turn."""

    def __init__(self, node: Node, hosts: Mapping[str, Host[Any]]) -> None:
        self._node = node
        self.hosts = hosts

    def receive(self, message: object) -> object:
        """Look into the boxes, begin, answer a question, or die as told."""
        match message:
            case BellRing():
                for host in self.hosts.values():
                    host.look()
            case Start():
                for host in self.hosts.values():
                    host.begin()
            case Ask(question, end):
                return question(self.hosts[end])
            case Kill():
                raise Killed("the actor was told to die")
            case _:
                raise TypeError(f"a node takes no {type(message).__name__}")
        return None

    def died(self, error: BaseException) -> None:
        self._node.died(self.hosts, error)


class Node:
    """An address with one actor at a time and one inbox, where any number of ends live under their names.

    They begin, crash and begin anew together. Add all of them before the first is started: starting one starts
    the node.
    """

    def __init__(self, address: str, options: EndOptions) -> None:
        self.address = address
        self.options = options
        self.bell = Bell()
        self.ends: dict[str, NodeEnd] = {}
        self._hosts: dict[str, Host[Any]] = {}
        self._left: set[str] = set()
        """Ends that have no further life here, though others may."""
        self._closed: set[str] = set()
        """Those of them that are closed: what their hosts counted is counted already."""
        self._keeper: ActorKeeper | None = None
        self.is_started = False
        """True from the first start on."""

    def add(self, end: NodeEnd) -> None:
        """Let an end live here. Raises MisuseError when the name is taken, or the node has begun, and
        ConfigurationError for an end of another runtime."""
        if end.runtime is not self.options.runtime:
            raise ConfigurationError(
                f"{end.address}: the ends of node {self.address} run on one runtime"
            )
        if self._keeper is not None or end.address in self.ends:
            why = "has begun already" if self._keeper is not None else "has an end of that name"
            raise MisuseError(f"{end.address} can't be added to node {self.address}, which {why}")
        self.ends[end.address] = end

    @property
    def keeper(self) -> ActorKeeper:
        """Who keeps the actor at its address."""
        assert self._keeper is not None
        return self._keeper

    @property
    def is_open(self) -> bool:
        """True from the first opening on."""
        return self._keeper is not None

    @property
    def is_alive(self) -> bool:
        """False between two lives and after the last."""
        return self._keeper is not None and self._keeper.is_alive

    def open(self) -> None:
        """Open the routes of all ends: what can't be had is known, and nothing is taken. Frames that come wait."""
        if self._keeper is not None:
            return
        keeper = self._keeper = ActorKeeper(
            self.options.runtime, self.address, self._new_life, self._gave_up, self.options.restarts
        )
        self.bell.tell = keeper.tell
        for end in self.ends.values():
            end.open()

    def start(self) -> None:
        """Open, if that was not done, and begin the first life. A second call does nothing."""
        self.open()
        if not self.is_started:
            self.is_started = True
            self.keeper.start()

    def crash(self) -> None:
        """Let the actor die as a defect would, for fault injection. It gets another life after a while."""
        self.keeper.tell(KILL)

    def ask(self, question: Ask) -> object:
        """What the actor answers. LookupError between two lives, and where the end has none any more."""
        if self._keeper is None:
            raise LookupError(f"{self.address} has not begun")
        return self._keeper.ask(question, ASK_S)

    def _new_life(self) -> NodeActor:
        self._hosts = {
            name: end.new_life() for name, end in self.ends.items() if name not in self._left
        }
        return NodeActor(self, self._hosts)

    def died(self, hosts: Mapping[str, Host[Any]], error: BaseException) -> None:
        """From the actor. Each end hears of it, and the keeper last, even where one of them raises.

        Were the keeper told first:

        1. It begins the next life, whose machine delivers, and the works wait for the consumer.
        2. Only now the receiver's end hears of the death, and makes all works void.
        3. Nobody answers those deliveries: the pipe stands still.
        """
        with ExitStack() as steps:
            steps.callback(self.keeper.died, error)
            for name, host in hosts.items():
                if name not in self._closed:
                    steps.callback(self.ends[name].died, host, error)

    def renew(self, wait_s: float) -> None:
        """From the actor itself: it can't go on, and the next life begins after a while. No death is counted."""
        for name, host in self._hosts.items():
            if name not in self._closed:
                self.ends[name].ended(host, "begins anew")
        self.keeper.renew(wait_s)

    def retire(self, end: NodeEnd) -> None:
        """This end gets no further life. The node goes on while it has another one."""
        self._left.add(end.address)
        if len(self._left) == len(self.ends):
            self.keeper.retire()

    def leave(self, end: NodeEnd, timeout: float) -> bool:
        """This end is closed; with the last one the actor ends. False when it is still busy after ``timeout``."""
        self._left.add(end.address)
        if len(self._left) < len(self.ends):
            self._closed.add(end.address)
            if end.address in self._hosts:
                self._hosts[end.address].over = True
            return True
        self.keeper.stop()
        return self.keeper.join(timeout)

    def _gave_up(self, why: str) -> None:
        for end in self.ends.values():
            end.gave_up(why)


class NodeEnd:
    """One end of a pipe or channel, or one machine, in a node. It outlives its hosts and adds up their counts."""

    side_name = "end"
    _noun = "pipe"

    def __init__(
        self,
        name: str,
        side: RouteSide,
        options: EndOptions,
        stores: Stores,
        *,
        settles_first: bool = False,
        node: Node | None = None,
        own_name: str | None = None,
    ) -> None:
        """``settles_first``: messages are settled before they are handled. ``node``: where it
        lives; None for alone. ``own_name``: that of a stream's reader or producer."""
        self.name = name
        self.observed_as = observed_name(name, own_name or "")
        self.options = options
        self.runtime = options.runtime
        self.rng: Random = self.runtime.rng(options.seed)
        self._side = side
        self._trace = options.trace
        if stores.letter is not None:
            stores = replace(stores, letter=awaiting(stores.letter, self.runtime))
        if self._trace is not None and stores.letter is not None:
            letters = self._trace.letters(self.address, stores.letter, settled=settles_first)
            stores = replace(stores, letter=letters)
        self._stores = stores
        self._retired: dict[str, int] = {}
        self._clerks: dict[str, Running] = {}
        self._is_stopped = False
        self._final = False
        self.other_end: NodeEnd | None = None
        """Of the same pipe, where both are used as one: when this one stops for good, that one does."""
        self.silences = Silences(self.runtime.now)
        self.node = node or Node(self.address, options)
        self.node.add(self)
        self.around = Surroundings(
            runtime=self.runtime,
            bell=self.node.bell,
            frames=Box(self.node.bell, options.frames_max),
            transmit=side.send,
            notices=Notices(name, self.side_name, options.notices, own_name or ""),
            clerk=self._ask_clerk if stores.any else None,
            silences=self.silences,
        )

    def start(self) -> None:
        """Start the node, if it has not begun: its ends open their routes and begin their first lives."""
        self.node.start()

    def open(self) -> None:
        """From the node, which begins: start the clerks and open the route."""
        if self._trace is not None and self._trace.with_reasons:
            self.around.woken = partial(self._trace.woken, self.address, self.traced_pipe)
        self.around.alarm = self.runtime.alarm(self.around.ring)
        for name in self._stores.clerks:
            address = f"{self.address}-{name}"
            clerk = Clerk(address, self._stores, self.silences)
            self._clerks[name] = self.runtime.start(clerk, address)
        self._side.open(self.around, self.runtime)

    @property
    def is_started(self) -> bool:
        return self.node.is_started

    @property
    def address(self) -> str:
        """The stable address of this end. A node that it has for itself has the same, and so has the thread."""
        return f"{self.name}/{self.side_name}"

    @property
    def keeper(self) -> ActorKeeper:
        """Who keeps the end's actor at its address."""
        return self.node.keeper

    def _ask_clerk(self, message: tuple[object, Request]) -> None:
        self._clerks[self._stores.clerk_for(message[1])].tell(message)

    def crash(self) -> None:
        """Let the actor die as a defect would, for fault injection. It gets another life after a while."""
        self.node.crash()

    @property
    def is_alive(self) -> bool:
        """False between two lives and after the last."""
        return self.node.is_alive

    def stop(self, timeout: float) -> bool:
        """End all threads of this end; False when one of them is still busy after ``timeout`` seconds."""
        if not self.node.is_open or self._is_stopped:
            return True
        self._is_stopped = True
        self._side.close()
        self._retired, self._final = self.counters(), True
        is_at_rest = self._trace is not None and self.asked_at_rest()
        end = self.runtime.now() + round(timeout * 1_000_000)
        is_ended = self.node.leave(self, timeout)
        is_ended = self._stop_clerks(end) and is_ended
        if self.around.alarm is not None:
            self.around.alarm.close()
        if self._trace is not None:
            self._trace.end(self.address, self.traced_pipe, at_rest=is_at_rest)
        return is_ended

    def _left(self, end: int) -> float:
        """Seconds until then."""
        return max(0, end - self.runtime.now()) / 1_000_000

    def _stop_clerks(self, end: int) -> bool:
        """False when one of them is still busy then: each may be at a store that does not answer."""
        for clerk in self._clerks.values():
            clerk.stop()
        if WAITER in self._clerks:
            self._stop_waiter(self._clerks[WAITER], end)
        clerks = [clerk for name, clerk in self._clerks.items() if name != WAITER]
        busy = [clerk for clerk in clerks if not clerk.join(self._left(end))]
        return not busy

    def _stop_waiter(self, waiter: Running, end: int) -> None:
        """A wait that can't be told to stop is left alone: what it answers concerns nobody any more."""
        assert self._stores.stream is not None
        while not waiter.join(STOP_WAITING_S) and self.runtime.now() < end:
            if (
                not self._stores.stream.stop_waiting()
            ):  # else again: a wait may be just about to begin
                return

    # Lives.

    def new_life(self) -> Host[Any]:
        """From the node: the host of a life that is about to begin."""
        raise NotImplementedError

    def gave_up(self, why: str) -> None:
        """From the node: there is no further life."""
        self.stop_for_good(self._stopped(why))

    def _stopped(self, why: str, kind: type[PipeStopped] = PipeStopped) -> PipeStopped:
        return kind(f"{self._noun} {self.name} stopped: {why}")

    def stop_for_good(self, error: PipeStopped) -> None:
        """The pipe can't go on, for whatever reason: whoever uses it hears this, whichever of its ends he asks and
        how, whether he waits already or comes later."""
        self.raise_from_now_on(error)
        if self.other_end is not None:
            self.other_end.raise_from_now_on(error)

    def raise_from_now_on(self, error: PipeStopped) -> None:
        """Whoever uses this end, or waits for it, gets this error."""
        raise NotImplementedError

    def ended(self, host: Host[Any], why: str) -> None:
        """A life is over; what it counted is kept."""
        host.over = True
        self._retire(host)
        if self._trace is not None:
            self._trace.crash(self.address, self.traced_pipe, why)

    def died(self, host: Host[Any], error: BaseException) -> None:
        """From the node: its actor has died."""
        host.over = True
        self.around.frames.clear()  # what was in the inbox is gone with the actor
        if self._trace is not None:
            self._trace.crash(self.address, self.traced_pipe, type(error).__name__)
        self._retire(host)

    def _retire(self, host: Host[Any]) -> None:
        for name, count in host.counters().items():
            self._retired[name] = self._retired.get(name, 0) + count

    # Traces.

    @property
    def traced_pipe(self) -> str:
        """How rows of a trace name the messages of this end."""
        return self.name

    def is_at_rest(self, host: Host[Any]) -> bool:
        """In the actor: nothing is left to do, as far as this end knows."""
        return host.is_built and not len(self.around.frames)

    def asked_at_rest(self) -> bool:
        """Whether nothing is left to do, as far as this end knows; False while nobody can say."""
        try:
            return bool(self.ask(self.is_at_rest))
        except (LookupError, pykka.ActorDeadError, pykka.Timeout):
            return False

    # Questions.

    def ask(self, question: Callable[[Host[Any]], object]) -> object:
        """What the host of this end answers. LookupError where it has no life now; pykka's errors."""
        return self.node.ask(Ask(question, self.address))

    @property
    def store_names(self) -> frozenset[str]:
        """How people call the stores of this end."""
        return self._stores.names

    def counters(self) -> dict[str, int]:
        """Everything counted since the end was made, over all its lives."""
        if self._final:
            return dict(self._retired)
        counted = self._asked(lambda host: host.counters())
        total = {
            name: self._retired.get(name, 0) + counted.get(name, 0)
            for name in {**self._retired, **counted}
        }
        total["frames_dropped"] = self.around.frames.dropped
        total["restarts"] = self.keeper.restarts if self.node.is_started else 0
        return total

    def gauges(self) -> dict[str, int]:
        """What stands in the end's machine now; empty between two lives."""
        return dict(self._asked(lambda host: host.gauges()))

    def _asked(self, question: Callable[[Host[Any]], Mapping[str, int]]) -> Mapping[str, int]:
        if self._final:
            return {}
        try:
            answer = self.ask(question)
        except (LookupError, pykka.ActorDeadError, pykka.Timeout):
            return {}
        return cast("Mapping[str, int]", answer)
