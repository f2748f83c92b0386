"""A handler alone as a plan: it is put behind a stream pipe, in a process of its own, with 5 retries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

from surepipe.errors import MisuseError
from surepipe.pipelines.models.pipes import PipePart, StoreRoute
from surepipe.pipelines.models.sources import PythonSource
from surepipe.pipelines.models.stages import StagePart
from surepipe.pipelines.models.stores import SqliteStorePart
from surepipe.pipelines.plan import Plan
from surepipe.pipelines.simulated.functions import Functions, module_of
from surepipe.pipelines.simulated.process_memory import ProcessMemory
from surepipe.pipelines.simulated.project import project_modules
from surepipe.pipelines.simulated.subject import PlanSubject

Builder: TypeAlias = Callable[[], object]
"""Gives a handler, or a handler and a check."""

RETRIES = 5
HANDLER = "surepipe.simulated:handler"
SOURCE = "surepipe.simulated:messages"


def plan_around_handler(name: str) -> Plan:
    """Messages go through a stream into the handler. Sender and receiver are two processes."""
    return Plan(
        name=name,
        stores=(SqliteStorePart.model_validate({"name": "main", "path": "main.db"}),),
        sources=(
            PythonSource.model_validate(
                {"name": "messages", "call": SOURCE, "repeatable": True, "node": "sender"}
            ),
        ),
        pipes=(
            PipePart.model_validate(
                {
                    "name": "pipe",
                    "from": "messages",
                    "route": StoreRoute(kind="sqlite", store="main"),
                    "journal": "main",
                    "node": "receiver",
                }
            ),
        ),
        stages=(
            StagePart.model_validate(
                {
                    "name": "handler",
                    "from": "pipe",
                    "call": HANDLER,
                    "retries": RETRIES,
                    "dead_letter": "main/dead",
                }
            ),
        ),
    )


def built(builder: Builder) -> Functions:
    """The handler (and the check) of one run. Raises MisuseError when the builder gives neither."""
    found = builder()
    handler, check = (
        cast("tuple[object, object]", found) if isinstance(found, tuple) else (found, None)
    )
    if not callable(handler):
        raise MisuseError(
            f"the builder gave {found!r}: it returns a handler, or a handler and a check"
        )
    functions = Functions(given={HANDLER: handler})
    if check is not None:
        if not callable(check):
            raise MisuseError(f"the builder gave {check!r} as its check, which is no function")
        functions.check = check
    return functions


def handler_subject(
    builder: Builder, messages: Sequence[object], name: str = "handler"
) -> PlanSubject:
    """A builder as a subject: it is called once for each run, and once before to see where its handler is from.

    The module of the builder is that of a test, which may note there what it sees: it is not set back.
    """
    beside = [one for one in (module_of(builder),) if one is not None]
    handlers = [module_of(built(builder).find(HANDLER))]
    own = project_modules([*beside, *(one for one in handlers if one is not None)])
    return PlanSubject(
        plan_around_handler(name),
        {"messages": list(messages)},
        lambda: built(builder),
        modules=own,
        memory=ProcessMemory(one for one in own if one not in beside),
        needs_all=True,
    )
