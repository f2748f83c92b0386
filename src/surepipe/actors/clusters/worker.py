"""What runs the user's function at a node of a replicated queue, so that a slow message holds up no fast one.

A node asks for the outcomes of a block and waits for a part of its slot only. What isn't done by then goes on, and
its outcome is kept: the message is put off until a later turn, and then costs nothing. So a message that takes
longer than a slot is decided, too; and one that never ends takes one of a few threads, and is refused at last.
"""

from __future__ import annotations

import inspect
import logging
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TypeAlias, cast

from surepipe.actors.runtime import Running, Runtime
from surepipe.actors.store_calls import Asking
from surepipe.core.callables import require_call
from surepipe.core.records import record
from surepipe.errors import ConfigurationError, a_or_an
from surepipe.queues.rmq.session import Done, Job, JobOutcomes, Later, Outcome, ProcessJobs, Refuse

logger = logging.getLogger("surepipe")
RETRY_US, RETRY_MAX_US = 500_000, 30_000_000
LANES = 4
"""So many threads run the function, if one isn't enough."""
LOOK_US = 20_000
"""A lane that is busy with one message for so long doesn't keep the others waiting."""
PUT_OFF_US, PUT_OFF_MAX_US = 50_000, 2_000_000
HUNG_US = 30_000_000
"""A run of the function that takes longer has failed."""
HUNG_TRIES = 2
"""Each takes a thread for good."""
KEPT_MAX = 4_096
QUEUED_MAX = 512


class ProcessContext:
    """Gives the user's function what it may ask for; all of it is the same on every node."""

    def __init__(self, job: Job, time_ms: int) -> None:
        self.id = job.id
        self.random = Random(job.id)
        self._time_ms = time_ms
        self.has_asked_time = False

    def now(self) -> int:
        """The time of the block, in milliseconds since 1970. An outcome that depends on it holds for one block."""
        self.has_asked_time = True
        return self._time_ms


Function: TypeAlias = Callable[[Job, ProcessContext], Outcome]


def checked_function(process: Function) -> Function:
    """The function, if it is one that can be run. Raises ConfigurationError."""
    if inspect.iscoroutinefunction(process) or inspect.isgeneratorfunction(process):
        raise ConfigurationError(
            "process is a coroutine function or a generator: give a plain function that returns Done, Refuse or "
            "Later"
        )
    require_call("process", process, "message, context", ConfigurationError)
    return process


@record
class _Ran:
    """A run that has ended. ``time_ms``: the block's time, if the outcome depends on it."""

    job: Job
    outcome: Outcome | BaseException
    time_ms: int | None


@record
class _Look:
    """Something was done, or a deadline has passed."""


@dataclass(slots=True)
class _Asked:
    """A request that isn't answered yet."""

    host: Asking
    ticket: int
    request: ProcessJobs
    due: int
    got: dict[bytes, Outcome] = field(default_factory=dict[bytes, Outcome])


class _Lane:
    """An actor that runs the function on what waits, one message after the other."""

    def __init__(self, process: Function, desk: NodeWorker) -> None:
        self._process, self._desk = process, desk
        self.current: tuple[Job, int] | None = None
        """What it runs, and since when."""
        self.is_given_up = False
        self.is_awake = False

    def receive(self, message: object) -> None:
        del message
        desk = self._desk
        while not self.is_given_up:
            try:
                job, time_ms = desk.queued.popleft()
            except IndexError:
                break
            self.current = job, desk.now()
            desk.ran.append(self._run(job, time_ms))
            self.current = None
        self.is_awake = False
        desk.look()

    def _run(self, job: Job, time_ms: int) -> _Ran:
        context = ProcessContext(job, time_ms)
        try:
            outcome: Outcome | BaseException = self._process(job, context)
            if not isinstance(outcome, Done | Refuse | Later):  # pyright: ignore[reportUnnecessaryIsInstance] - users return anything
                raise TypeError(
                    f"process returned {a_or_an(type(outcome).__name__)}: return Done(result), Refuse(reason) or "
                    "Later()"
                )
        except BaseException as error:  # noqa: BLE001 - SystemExit too is told, and tried again
            outcome = error
        return _Ran(job, outcome, time_ms if context.has_asked_time else None)

    def died(self, error: BaseException) -> None:
        """What waited is asked again in a later slot."""
        self.is_given_up = True
        logger.error("what runs the function of a node ended: %s", type(error).__name__)


class NodeWorker:
    """An actor that has the user's function run and answers the node in time. What the function raises is a failed
    try."""

    def __init__(
        self, process: Function, retries: int, *, budget_us: int, runtime: Runtime, name: str
    ) -> None:
        """``budget_us``: for so long a request waits for what isn't done."""
        self._process, self._retries, self._budget_us = process, retries, budget_us
        self._runtime, self._name = runtime, name
        self.now = runtime.now
        self.queued: deque[tuple[Job, int]] = deque(maxlen=QUEUED_MAX)
        """Taken by lanes; older ones that nobody has taken go when it is full, and are asked for again."""
        self.ran: deque[_Ran] = deque()
        self._self: Running | None = None
        self._lanes: list[tuple[_Lane, Running]] = []
        self._given_up: list[tuple[_Lane, Running]] = []
        """Lanes whose run never ended, so far."""
        self._tries: dict[bytes, int] = {}
        self._known: OrderedDict[bytes, tuple[Outcome, int | None]] = OrderedDict()
        self._asked: list[_Asked] = []
        self._alarm = runtime.alarm(self.look)

    def begin(self, running: Running) -> Running:
        """It is started as this."""
        self._self = running
        return running

    def look(self) -> None:
        """Have it look at what is done."""
        if self._self is not None:
            self._self.tell(_Look())

    def stop(self, timeout: float) -> bool:
        """End the lanes; false when a run of the function didn't end in time."""
        self._alarm.close()
        for lane, running in (*self._lanes, *self._given_up):
            lane.is_given_up = True
            running.stop()
        end = self.now() + round(timeout * 1_000_000)
        are_ended = [
            running.join(max(0, end - self.now()) / 1_000_000) for _, running in self._lanes
        ]
        return all([*are_ended, *(running.join(0) for _, running in self._given_up)])

    def receive(self, message: object) -> None:
        if not isinstance(message, _Look):
            host, ticket, request = cast("tuple[Asking, int, ProcessJobs]", message)
            self._asked.append(_Asked(host, ticket, request, self.now() + self._budget_us))
        while self.ran:
            self._take(self.ran.popleft())
        self._give_up_hung()
        queued = {job.id for job, _ in list(self.queued)}
        for each in self._asked:
            self._seek(each, queued)
        self._answer()
        self._run_lanes()

    def _under_way(self) -> list[tuple[Job, int]]:
        """What lanes run now, and since when."""
        found = [lane.current for lane, _ in self._lanes]
        return [each for each in found if each is not None]

    def _take(self, ran: _Ran) -> None:
        job, outcome = ran.job, ran.outcome
        if isinstance(outcome, BaseException):
            why = type(outcome).__name__
            self._settle(job, self._failed(job, why, str(outcome), self._retries), ran.time_ms)
        else:
            self._tries.pop(job.id, None)
            self._settle(job, outcome, ran.time_ms)

    def _settle(self, job: Job, outcome: Outcome, time_ms: int | None) -> None:
        """Keep an outcome, and give it to who waits for it."""
        if not isinstance(outcome, Later):
            self._known[job.id] = outcome, time_ms
            if len(self._known) > KEPT_MAX:
                self._known.popitem(last=False)
        for each in self._asked:
            if time_ms in (None, each.request.time_ms):
                each.got.setdefault(job.id, outcome)

    def _failed(self, job: Job, why: str, detail: str, tries_max: int) -> Outcome:
        tries = self._tries[job.id] = self._tries.get(job.id, 0) + 1
        logger.warning("process failed on %s: %s: %s", job.id.hex()[:12], why, detail)
        if tries < tries_max:
            return Later(min(RETRY_US << tries, RETRY_MAX_US))
        self._tries.pop(job.id)
        return Refuse(f"failed: {why}")

    def _seek(self, asked: _Asked, queued: set[bytes]) -> None:
        """Have what it lacks run, unless that is known or under way."""
        running = {job.id for job, _ in self._under_way()}
        for job in asked.request.jobs:
            if job.id in asked.got:
                continue
            outcome, time_ms = self._known.get(job.id, (None, None))
            if outcome is not None and time_ms in (None, asked.request.time_ms):
                asked.got[job.id] = outcome
            elif job.id not in queued and job.id not in running:
                queued.add(job.id)
                self.queued.append((job, asked.request.time_ms))

    def _answer(self) -> None:
        """Answer what is complete, or has waited long enough: what isn't done is put off."""
        now, waiting = self.now(), list[_Asked]()
        for each in self._asked:
            jobs = each.request.jobs
            if len(each.got) < len({job.id for job in jobs}) and now < each.due:
                waiting.append(each)
                continue
            outcomes = tuple(each.got.get(job.id) or self._put_off(job) for job in jobs)
            each.host.answered(each.ticket, JobOutcomes(outcomes))
        self._asked = waiting

    def _put_off(self, job: Job) -> Later:
        """Asked again after a part of the time that it takes so far, so that it costs few slots."""
        since = [began for each, began in self._under_way() if each.id == job.id]
        spent = self.now() - since[0] if since else 0
        return Later(min(max(spent // 4, PUT_OFF_US), PUT_OFF_MAX_US))

    def _give_up_hung(self) -> None:
        """A run that takes too long has failed; another lane takes the place of its own, a few times."""
        self._given_up = [each for each in self._given_up if each[0].current is not None]
        for place in list(self._lanes):
            current = place[0].current
            if current is None or self.now() - current[1] < HUNG_US:
                continue
            if len(self._given_up) >= LANES:
                return
            place[0].is_given_up = True
            place[1].stop()
            self._lanes.remove(place)
            self._given_up.append(place)
            why, left = f"took longer than {HUNG_US // 1_000_000} s", "its thread is left to it"
            tries_max = min(self._retries, HUNG_TRIES)
            self._settle(current[0], self._failed(current[0], why, left, tries_max), None)

    def _run_lanes(self) -> None:
        """Wake a lane for what waits. Another one only when those before are busy with one message for a while."""
        if self.queued and all(lane.is_awake for lane, _ in self._lanes):
            since = [began for _, began in self._under_way()]
            all_run = len(since) == len(self._lanes)
            are_slow = all_run and self.now() - max(since, default=0) >= LOOK_US
            if not self._lanes or (are_slow and len(self._lanes) < LANES):
                lane = _Lane(self._process, self)
                number = len(self._lanes) + len(self._given_up) + 1
                self._lanes.append((lane, self._runtime.start(lane, f"{self._name}-{number}")))
        if self.queued:
            sleeping = [each for each in self._lanes if not each[0].is_awake]
            for lane, running in sleeping[:1]:
                lane.is_awake = True
                running.tell(_Look())
        due = [each.due for each in self._asked]
        if self.queued or self._asked:
            due.append(self.now() + LOOK_US)
        self._alarm.set(min(due) if due else None)

    def died(self, error: BaseException) -> None:
        """The node takes no turns any more until it is started again."""
        logger.error("the worker of a node ended: %s", type(error).__name__)
