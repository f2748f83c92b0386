"""The ring: every operation in every state of three origins, against a list."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from surepipe.queues.book import Ring

ORIGINS = "ABC"
Step = tuple[str, str]
STEPS: list[Step] = [
    *((verb, origin) for verb in ("knit", "unknit", "force", "to_tail") for origin in ORIGINS),
    ("bump", ""),
]


def apply(ring: Ring, step: Step) -> object:
    """Do one step."""
    verb, origin = step
    call: Callable[..., object] = getattr(ring, verb)
    return call(origin) if origin else call()


def expected(order: tuple[str, ...], step: Step) -> tuple[tuple[str, ...], object]:
    """What a list does: the first is the head, the last the tail."""
    verb, origin = step
    line = deque(order)
    answer: object = None
    match verb:
        case "knit":
            if origin not in line:
                line.append(origin)
        case "unknit":
            if origin in line:
                line.remove(origin)
        case "force":
            answer = origin in line
            while answer and line[0] != origin:
                line.rotate(-1)
        case "to_tail":
            if origin in line:
                line.remove(origin)
                line.append(origin)
        case _:
            answer = line[0] if line else None
            line.rotate(-1)
    return tuple(line), answer


def test_every_operation_in_every_state_is_that_of_a_list() -> None:
    """BQ-40, B-16: sixteen states, all of them reached; previous stays the inverse of next (BI-3)."""
    paths: dict[tuple[str, ...], list[Step]] = {(): []}
    waiting: list[tuple[str, ...]] = [()]
    while waiting:
        state = waiting.pop()
        for step in STEPS:
            ring = Ring()
            for past in paths[state]:
                apply(ring, past)
            assert tuple(ring.order()) == state
            answer = apply(ring, step)
            after, told = expected(state, step)
            assert (tuple(ring.order()), answer) == (after, told), (state, step)
            assert ring.head == (after[0] if after else None)
            assert len(ring) == len(after)
            for origin in after:
                following = ring.after(origin)
                assert following is not None
                assert ring.before(following) == origin
            if after not in paths:
                paths[after] = [*paths[state], step]
                waiting.append(after)
    assert len(paths) == 16
