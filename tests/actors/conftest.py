"""Both runtimes as one fixture, and the check that no test leaves an actor or a thread behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pykka
import pytest

from surepipe.actors import StepRuntime, ThreadRuntime
from surepipe.actors.runtime import Runtime

WITHIN_S = 60.0


@pytest.fixture(params=["threads", "steps"])
def runtime(request: pytest.FixtureRequest) -> Runtime:
    """The runtime of production, and the one in virtual time."""
    return ThreadRuntime() if request.param == "threads" else StepRuntime(7)


@pytest.fixture
def steps() -> StepRuntime:
    """The runtime in virtual time."""
    return StepRuntime(7)


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """After each test: no actor in pykka's registry and no thread of ours."""
    before, refs = set(threading.enumerate()), pykka.ActorRegistry.get_all()
    yield
    assert [str(ref) for ref in pykka.ActorRegistry.get_all() if ref not in refs] == []
    left = [thread for thread in threading.enumerate() if thread not in before]
    for thread in left:
        # Nobody waits for a call in a thread once its caller was cancelled, nor a loop for its ``to_thread``.
        if thread.name.startswith(("surepipe-async", "asyncio_")):
            thread.join(WITHIN_S)
    assert [thread.name for thread in left if thread.is_alive()] == []
