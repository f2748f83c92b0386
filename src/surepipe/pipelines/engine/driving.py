"""Running a plan from Python, to its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from surepipe.pipelines.engine.real import RealEnvironment
from surepipe.pipelines.engine.running import Engine
from surepipe.pipelines.plan import Plan

LOOK_S = 0.05


def run(
    plan: Plan,
    node: str | None = None,
    *,
    once: bool = False,
    environment: RealEnvironment | None = None,
    stop_when: Callable[[], bool] = lambda: False,
) -> Mapping[str, Mapping[str, int]]:
    """Run what of a plan belongs to a node until its sources end, and give what each part counted.

    ``once``: sources that wait for more end where there is nothing more now. ``stop_when`` is asked many times a
    second; when it says so nothing more is taken, and what was taken is finished. After a crash, or an exception,
    another run goes on where this one was. Raises ConfigurationError, CompositionError, StoreUnavailable, and what
    a source can't read.
    """
    world = environment or RealEnvironment(plan)
    engine = Engine(plan, node or plan.nodes[0], world, once=once)
    failures: list[BaseException] = []
    world.on_stop(failures.append)
    engine.start()
    try:
        while not engine.look():
            if failures:
                raise failures[0]
            if stop_when():
                engine.stop_sources()
            engine.wait(LOOK_S)
    except BaseException:
        engine.close(1.0)
        raise
    engine.close()
    return engine.counters()
