"""What both ends of a pipe have in common: an actor around a machine.

The step is always the same: take one event, give it to the machine with ``now``, perform the effects in order (the
last of them re-arms the one deadline). Nothing about the protocol is decided here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import cast

import pykka

from surepipe.actors.codecs import unmarked
from surepipe.actors.inbox import Bell, Box, Ring
from surepipe.actors.letters import awaiting
from surepipe.actors.notices import NoticeCallback, Notices, log_notice
from surepipe.actors.routes import RouteSide
from surepipe.actors.runtime import Alarm, Running, Runtime
from surepipe.actors.store_calls import WAITER, Clerk, Request, Silences, Stores
from surepipe.actors.supervision import KILL, ActorKeeper, Kill, Killed, RestartPolicy, Start
from surepipe.actors.threads import THREADS
from surepipe.actors.tracing import TraceSink, Tracing
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


@dataclass(frozen=True, slots=True)
class Ask:
    """A question to an actor; ``ask`` returns what it answers."""

    question: Callable[[Host], object]


@dataclass(slots=True)
class Surroundings:
    """What an end keeps from life to life, around the actor."""

    runtime: Runtime
    bell: Bell
    frames: Box[object]
    transmit: Callable[[object], None]
    notices: Notices
    clerk: Callable[[tuple[object, Request]], object] | None
    died: Callable[[Host, BaseException], None]
    silences: Silences
    woken: Callable[[], object] | None = None
    """Told whenever the deadline has passed, before the machine hears of it."""
    alarm: Alarm | None = None
    """The one deadline. Its ring sets ``due`` and rings the bell."""
    due: bool = False
    is_route_back: bool = False

    def put(self, frame: object) -> None:
        """From the route: a frame has arrived."""
        self.frames.put(frame)

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
        """The deadline has passed."""
        self.due = True
        self.bell.ring()


class Host(ABC):
    """One life of one end: the actor that hosts a machine."""

    def __init__(self, around: Surroundings) -> None:
        self.around = around
        self.now = around.runtime.now
        self.perform_by_type: dict[type[Effect], Callable[..., None]] = {
            Transmit: self._transmit,
            WakeAt: self._wake_at,
            Notice: self.notice,
            Persist: self._request,
            DeadLetter: self._post,
            Call: self._request,
        }
        self._answers: deque[tuple[int, object]] = deque()
        self.over = False
        """True when this life is over, and what still comes concerns it no more."""
        self.mismatch = ""
        """How the other end is configured differently, once the machine has met it."""

    # The actor.

    def receive(self, message: object) -> object:
        """Look into the boxes, begin, answer a question, or die as told."""
        match message:
            case Ring():
                self.look()
            case Start():
                self._begin()
            case Ask(question):
                return question(self)
            case Kill():
                raise Killed("the actor was told to die")
            case _:
                raise TypeError(f"an end takes no {type(message).__name__}")
        return None

    def died(self, error: BaseException) -> None:
        """Tell the end."""
        self.around.died(self, error)

    def _begin(self) -> None:
        """The start of a life."""
        around = self.around
        if around.alarm is not None:
            around.alarm.set(None)
        if self.build():
            self.perform(self.machine.wake(self.now()))
        self.look()

    def look(self) -> None:
        """Everything that waits becomes an event: first time, then frames, then answers, then the rest."""
        around = self.around
        around.bell.take_down()
        if self.over:
            return
        for notice in around.silences.news():
            around.notices.tell(notice)
        is_due, around.due = around.due, False
        if not self.is_built:
            if is_due:
                self._begin()
            return
        machine = self.machine
        if is_due:
            if around.woken is not None:
                around.woken()
            self.perform(machine.wake(self.now()))
        self.take_frames()
        while self._answers:
            self.perform(machine.answer(*self._answers.popleft(), self.now()))
        self.look_further()

    def take_frames(self) -> None:
        """Every frame that has arrived is an event."""
        for frame in self.around.frames.take():
            self.perform(self.machine.frame(frame, self.now()))

    def perform(self, effects: list[Effect]) -> None:
        """Perform effects in order."""
        by_type = self.perform_by_type
        for effect in effects:
            by_type[type(effect)](effect)

    def retry_build_at(self, at: int) -> None:
        """Begin again at this time: a store did not answer."""
        assert self.around.alarm is not None
        self.around.alarm.set(at)

    # What ends add.

    @property
    @abstractmethod
    def machine(self) -> Machine:
        """The machine of this life."""

    @property
    @abstractmethod
    def is_built(self) -> bool:
        """False while the stores that a life begins with are not answering."""

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
        """What the machine of this life counted."""
        return self.machine.counters() if self.is_built else {}

    def gauges(self) -> Mapping[str, int]:
        """What stands in the machine now."""
        return self.machine.gauges() if self.is_built else {}


# What both ends of a pipe have: an actor kept at a stable address, its inbox, its alarm, its clerk.


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


def end_options(
    notices: NoticeCallback,
    restarts: RestartPolicy | None,
    seed: int | None,
    runtime: Runtime | None,
    trace: TraceSink | None,
    *,
    frames_max: int = FRAMES_MAX,
) -> EndOptions:
    """What a face was given, with what stands for the things that it was not given."""
    chosen = runtime or THREADS
    return EndOptions(
        runtime=chosen,
        notices=notices,
        restarts=restarts or RestartPolicy(),
        frames_max=frames_max,
        seed=seed,
        trace=Tracing(trace, chosen) if trace is not None else None,
    )


class End:
    """What both ends have: an actor kept at an address, its inbox, its alarm, its clerk."""

    side_name = "end"

    def __init__(
        self,
        name: str,
        side: RouteSide,
        options: EndOptions,
        stores: Stores,
        *,
        settles_first: bool = False,
    ) -> None:
        """``settles_first``: messages are settled before they are handled."""
        self.name = name
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
        self._is_started = False
        self._is_stopped = False
        self._final = False
        self.silences = Silences(self.runtime.now)
        bell = Bell(self._tell)
        self.around = Surroundings(
            runtime=self.runtime,
            bell=bell,
            frames=Box(bell, options.frames_max),
            transmit=side.send,
            notices=Notices(name, self.side_name, options.notices),
            clerk=self._ask_clerk if stores.any else None,
            died=self._died,
            silences=self.silences,
        )
        self._keeper: ActorKeeper | None = None

    def _tell(self, message: object) -> None:
        if self._keeper is not None:
            self._keeper.tell(message)

    @property
    def keeper(self) -> ActorKeeper:
        """The address of the end's actor."""
        assert self._keeper is not None
        return self._keeper

    def start(self) -> None:
        """Open the route and begin the first life. A second call does nothing."""
        if self._is_started:
            return
        self._is_started = True
        if self._trace is not None and self._trace.with_reasons:
            self.around.woken = partial(self._trace.woken, self.address, self.traced_pipe)
        self.around.alarm = self.runtime.alarm(self.around.ring)
        self._keeper = ActorKeeper(
            self.runtime, self.address, self._new_life, self._gave_up, self.options.restarts
        )
        for name in self._stores.clerks:
            address = f"{self.address}-{name}"
            clerk = Clerk(address, self._stores, self.silences)
            self._clerks[name] = self.runtime.start(clerk, address)
        self._side.open(self.around, self.runtime)
        self._keeper.start()

    @property
    def address(self) -> str:
        """The stable address of this end, which is also the name of its thread."""
        return f"{self.name}/{self.side_name}"

    def _ask_clerk(self, message: tuple[object, Request]) -> None:
        self._clerks[self._stores.clerk_for(message[1])].tell(message)

    def crash(self) -> None:
        """Let the actor die as a defect would, for fault injection. It gets another life after a while."""
        self.keeper.tell(KILL)

    @property
    def is_alive(self) -> bool:
        """False between two lives and after the last."""
        return self._keeper is not None and self._keeper.is_alive

    def stop(self, timeout: float) -> bool:
        """End all threads of this end; False when one of them is still busy after ``timeout`` seconds."""
        if not self._is_started or self._is_stopped:
            return True
        self._is_stopped = True
        self._side.close()
        self._retired, self._final = self.counters(), True
        is_at_rest = self._trace is not None and self.asked_at_rest()
        self.keeper.stop()
        is_ended = self.keeper.join(timeout)
        for name, clerk in self._clerks.items():
            if name == WAITER:
                self._stop_waiter(clerk, timeout)
            else:
                clerk.stop()
                is_ended = clerk.join(timeout) and is_ended
        assert self.around.alarm is not None
        self.around.alarm.close()
        if self._trace is not None:
            self._trace.end(self.address, self.traced_pipe, at_rest=is_at_rest)
        return is_ended

    def _stop_waiter(self, waiter: Running, timeout: float) -> None:
        """A wait that can't be told to stop is left alone: what it answers concerns nobody any more."""
        waiter.stop()
        assert self._stores.stream is not None
        end = self.runtime.now() + round(timeout * 1_000_000)
        while not waiter.join(STOP_WAITING_S) and self.runtime.now() < end:
            if (
                not self._stores.stream.stop_waiting()
            ):  # else again: a wait may be just about to begin
                return

    # Lives.

    def renew(self, host: Host, wait_s: float) -> None:
        """From the actor itself: it can't go on, and the next life begins after a while. No death is counted."""
        host.over = True
        self._retire(host)
        if self._trace is not None:
            self._trace.crash(self.address, self.traced_pipe, "begins anew")
        self.keeper.renew(wait_s)

    def _new_life(self) -> Host:
        raise NotImplementedError

    def _gave_up(self, why: str) -> None:
        raise NotImplementedError

    def _died(self, host: Host, error: BaseException) -> None:
        host.over = True
        self.around.frames.clear()  # what was in the inbox is gone with the actor
        if self._trace is not None:
            self._trace.crash(self.address, self.traced_pipe, type(error).__name__)
        try:
            self._retire(host)
        finally:
            self.keeper.died(error)

    def _retire(self, host: Host) -> None:
        for name, count in host.counters().items():
            self._retired[name] = self._retired.get(name, 0) + count

    # Traces.

    @property
    def traced_pipe(self) -> str:
        """How rows of a trace name the messages of this end."""
        return self.name

    def is_at_rest(self, host: Host) -> bool:
        """In the actor: nothing is left to do, as far as this end knows."""
        return host.is_built and not len(self.around.frames)

    def asked_at_rest(self) -> bool:
        """Whether nothing is left to do, as far as this end knows; False while nobody can say."""
        try:
            return bool(self.keeper.ask(Ask(self.is_at_rest), ASK_S))
        except (LookupError, pykka.ActorDeadError, pykka.Timeout):
            return False

    # Questions.

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
        total["restarts"] = self._keeper.restarts if self._keeper else 0
        return total

    def gauges(self) -> dict[str, int]:
        """What stands in the end's machine now; empty between two lives."""
        return dict(self._asked(lambda host: host.gauges()))

    def _asked(self, question: Callable[[Host], Mapping[str, int]]) -> Mapping[str, int]:
        if self._keeper is None or self._final:
            return {}
        try:
            answer = self._keeper.ask(Ask(question), ASK_S)
        except (LookupError, pykka.ActorDeadError, pykka.Timeout):
            return {}
        return cast("Mapping[str, int]", answer)
