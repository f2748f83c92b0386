"""The user's code that executors need: the modules of a plan's functions, found by themselves.

What is installed beside this interpreter's own packages is left out: executors have it installed, as they have
Arrow, or it has parts that a zip can't carry.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

from surepipe.pipelines.models.stages import PythonSink
from surepipe.pipelines.plan import Plan

_INSTALLED = ("site-packages", "dist-packages")


def code_of(plan: Plan) -> tuple[str, ...]:
    """Top-level modules and packages to ship: those of the plan's functions, and what the plan's engine names.

    To be asked when the functions were imported once, so that their folder is on the path.
    """
    return own_code([*_functions(plan)], plan.engine.ship)


def own_code(functions: Iterable[str], more: Iterable[str] = ()) -> tuple[str, ...]:
    """Those of functions that are written 'module:name', and these."""
    found = [top for path in functions if _is_own(top := _top(path))]
    return tuple(dict.fromkeys([*found, *more]))


def _functions(plan: Plan) -> Iterator[str]:
    """Everything that is written 'module:name' and runs in tasks."""
    for pipe in plan.pipes:
        yield pipe.payload
    for stage in plan.stages:
        yield from filter(None, (stage.call, stage.map, stage.filter, stage.flat_map, stage.key_by))
    for source in plan.sources:
        yield source.model or ""
    yield from (sink.call for sink in plan.sinks if isinstance(sink, PythonSink))


def _top(path: str) -> str:
    module, is_function, _ = path.partition(":")
    return module.partition(".")[0] if is_function else ""


def _is_own(top: str) -> bool:
    spec = find_spec(top) if top else None
    if spec is None or top == "surepipe":
        return False
    places = [*(spec.submodule_search_locations or []), *([spec.origin] if spec.origin else [])]
    return any(_is_own_place(Path(place)) for place in places[:1])


def _is_own_place(place: Path) -> bool:
    standard = Path(sysconfig.get_path("stdlib"))
    is_installed = any(part in _INSTALLED for part in place.parts)
    return place.exists() and not is_installed and not place.is_relative_to(standard)
