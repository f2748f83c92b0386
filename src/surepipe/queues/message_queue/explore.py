"""Every state a message queue can be in, and every call that can be made there."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from surepipe.errors import ContractBroken, ContractViolation
from surepipe.pipes.message_queue.checked import Checked
from surepipe.pipes.message_queue.contract import M, MessageQueue

Step: TypeAlias = tuple[Literal["enqueue", "empty", "pick_one", "delete_all"], int]
State: TypeAlias = tuple[tuple[int, ...], int]


@dataclass(frozen=True, slots=True)
class ExploredQueue:
    """How many states were reached, and how many calls were made in them."""

    states: int
    steps: int


def explore(make: Callable[[], MessageQueue[M]], numbers: int = 4) -> ExploredQueue:
    """Walk from the new queue to every state that the four verbs can reach, checking each call.

    ``make`` gives a new, empty queue. Messages are numbered ``0 .. numbers - 1``, deletions go up
    to ``numbers``. A state is what the queue holds, and ``high`` where that decides what is taken
    next. It is reached again by a new queue and the shortest path, so a stored queue needs nothing
    more than a ``make`` that gives it a fresh place in its store.

    Raises `ContractBroken` when a call breaks the contract, or when a call that must be refused as
    the caller's fault is not.
    """
    paths: deque[tuple[Step, ...]] = deque([()])
    seen = {_state(_at((), make)): ()}
    steps = 0
    while paths:
        path = paths.popleft()
        for step in _steps(numbers):
            queue = _at(path, make)
            steps += 1
            if _breaks_duty(queue, step):
                _expect_violation(queue, step)
                continue
            _take(queue, step)
            state = _state(queue)
            if state not in seen:
                seen[state] = ()
                paths.append((*path, step))
    return ExploredQueue(len(seen), steps)


def _steps(numbers: int) -> Iterator[Step]:
    yield ("empty", 0)
    yield ("pick_one", 0)
    for number in range(numbers):
        yield ("enqueue", number)
    for number in range(numbers + 1):
        yield ("delete_all", number)


def _at(path: tuple[Step, ...], make: Callable[[], MessageQueue[M]]) -> Checked[M]:
    queue = Checked(make(), invariants="each")
    for step in path:
        _take(queue, step)
    return queue


def _state(queue: Checked[M]) -> State:
    return tuple(queue.contents), queue.high if queue.increasing else -1


def _take(queue: MessageQueue[M], step: Step) -> None:
    verb, number = step
    if verb == "enqueue":
        build = queue.form.builder("explore")
        queue.enqueue(build(number, b"payload of %d" % number))
    elif verb == "delete_all":
        queue.delete_all(number)
    elif verb == "pick_one":
        queue.pick_one()
    else:
        queue.empty()


def _breaks_duty(queue: Checked[M], step: Step) -> bool:
    verb, number = step
    contents = queue.contents
    return (verb == "enqueue" and number in contents) or (verb == "pick_one" and not contents)


def _expect_violation(queue: Checked[M], step: Step) -> None:
    """The checked queue and the queue inside must both refuse, and stay as they were."""
    before = _state(queue)
    for asked in (queue, queue.queue):
        try:
            _take(asked, step)
        except ContractViolation:
            continue
        raise ContractBroken(f"a broken duty raises ContractViolation: {step} of {asked!r}")
    queue.snapshot()
    if _state(queue) != before:
        raise ContractBroken(f"a broken duty changes nothing: {step} of {queue!r}")
