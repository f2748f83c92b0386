"""Running a plan from Python, to its end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from surepipe.pipelines.engine.real import RealEnvironment
from surepipe.pipelines.engine.running import Engine
from surepipe.pipelines.plan import Plan

logger = logging.getLogger("surepipe")
LOOK_S = 0.05
DRAIN_S = 30.0
CLOSE_S = 2.0


def run(
    plan: Plan,
    node: str | None = None,
    *,
    once: bool = False,
    environment: RealEnvironment | None = None,
    stop_when: Callable[[], bool] = lambda: False,
    drain_s: float = DRAIN_S,
) -> Mapping[str, Mapping[str, int]]:
    """Run what of a plan belongs to a node until its sources end, and give what each part counted.

    ``once``: sources that wait for more end where there is nothing more now. ``stop_when`` is asked many times a
    second; when it says so nothing more is taken, and what was taken is finished, within ``drain_s`` seconds; what
    is not is logged. After a crash, or an exception, another run goes on where this one was. Raises
    ConfigurationError, CompositionError, StoreUnavailable, and what a source can't read.
    """
    world = environment or RealEnvironment(plan)
    engine = Engine(plan, node or plan.nodes[0], world, once=once)
    failures: list[BaseException] = []
    world.on_stop(failures.append)
    engine.start()
    end: float | None = None
    try:
        while not engine.look():
            if failures:
                raise failures[0]
            if end is None and stop_when():
                engine.stop_sources()
                end = world.clock.monotonic() + drain_s
            if end is not None and world.clock.monotonic() >= end:
                _tell_unfinished(engine)
                engine.close(CLOSE_S)
                return engine.counters()
            engine.wait(LOOK_S)
        if end is not None:
            _tell_unfinished(engine)
    except BaseException:
        engine.close(1.0)
        raise
    engine.close()
    return engine.counters()


def _tell_unfinished(engine: Engine) -> None:
    for one in engine.unfinished():
        logger.warning("left unfinished: %s", one)
