"""What both ends of a pipe have in common: an actor around a machine.

The step is always the same: take one event, give it to the machine with ``now``, perform the effects in order (the
last of them re-arms the one deadline). Nothing about the protocol is decided here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace

from surepipe.actors.clerk import Request, Silences
from surepipe.actors.inbox import Bell, Box, Ring
from surepipe.actors.notices import Notices
from surepipe.actors.replay_marks import unmarked
from surepipe.actors.runtime import Alarm, Runtime
from surepipe.actors.supervision import Kill, Killed, Start
from surepipe.effects import (
    Call,
    DeadLetter,
    Effect,
    Notice,
    NoticeKind,
    Persist,
    Transmit,
    WakeAt,
)
from surepipe.machines import Machine


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
