"""The figures as lines for people and as a document for machines."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Sequence

from surepipe.cli.benching.bench import Measured, MeasuredTimes, PipeFigures, Report, StoreFigures
from surepipe.cli.output import Line, line
from surepipe.observe.numbers import UNKNOWN, compact

_HEADS = ("pipe", "messages/s", "of loop", "under load p50 / p99", "alone p50 / p99")
_STORE_HEADS = ("store", "kind", "commands a message", "messages a commit")


def as_lines(report: Report) -> Iterator[Line]:
    """A line about the loop, one table of the pipes, one of the stores."""
    yield line(
        ("plain loop", "head"),
        f"  {compact(report.loop_per_s)} messages/s: JSON written, read, counted; no pipe",
    )
    yield line()
    pipes = [
        (_named(one, pipe.part.name), *_cells(pipe, report.loop_per_s))
        for one in report.measured
        for pipe in one.pipes
    ]
    yield from _table(_HEADS, pipes, left=1)
    stores = [
        (_named(one, store.name), *_store_cells(store))
        for one in report.measured
        for store in one.stores
    ]
    if stores:
        yield line()
        yield from _table(_STORE_HEADS, stores, left=2)


def _named(one: Measured, part: str) -> str:
    return part if part == one.plan.name else f"{one.plan.name}/{part}"


def _cells(pipe: PipeFigures, loop_per_s: float) -> tuple[str, ...]:
    rate = pipe.passed.per_s
    ratio = f"1/{compact(loop_per_s / rate)}" if rate else UNKNOWN
    return compact(rate or None), ratio, _times(pipe.loaded), _times(pipe.alone)


def _store_cells(store: StoreFigures) -> tuple[str, ...]:
    per_message = f"{store.commands / store.messages:.3f}" if store.messages else UNKNOWN
    per_commit = compact(store.messages / store.commits) if store.commits else UNKNOWN
    return store.kind, per_message, per_commit


def _times(took: MeasuredTimes | None) -> str:
    return UNKNOWN if took is None else f"{took.p50_ms:.2f} / {took.p99_ms:.2f} ms"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, left: int) -> Iterator[Line]:
    """Columns as wide as their widest cell; the first ``left`` ones begin at the left."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for number, row in enumerate((heads, *rows)):
        cells = [
            cell.ljust(width) if place < left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        text = "  ".join(cells).rstrip()
        yield line((text, "dim")) if number == 0 else line(text)


def as_document(report: Report) -> dict[str, object]:
    """The figures for machines. What was not measured is null."""
    return {
        "exit": int(report.code),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "processors": os.cpu_count(),
        "loop_per_s": round(report.loop_per_s),
        "pipelines": [_pipeline(one, report.loop_per_s) for one in report.measured],
    }


def _pipeline(one: Measured, loop_per_s: float) -> dict[str, object]:
    return {
        "name": one.plan.name,
        "complete": one.complete,
        "pipes": [_pipe(pipe, loop_per_s) for pipe in one.pipes],
        "stores": [_store(store) for store in one.stores],
    }


def _pipe(pipe: PipeFigures, loop_per_s: float) -> dict[str, object]:
    rate = pipe.passed.per_s
    return {
        "name": pipe.part.name,
        "route": pipe.part.route.kind,
        "boundary": pipe.part.boundary,
        "messages": pipe.passed.done,
        "per_s": round(rate, 1),
        "of_loop": round(rate / loop_per_s, 6),
        "under_load_ms": _milliseconds(pipe.loaded),
        "alone_ms": _milliseconds(pipe.alone),
    }


def _milliseconds(took: MeasuredTimes | None) -> dict[str, float] | None:
    return None if took is None else {"p50": took.p50_ms, "p99": took.p99_ms}


def _store(store: StoreFigures) -> dict[str, object]:
    per_message = store.commands / store.messages if store.messages else None
    return {
        "name": store.name,
        "kind": store.kind,
        "commands": store.commands,
        "commits": store.commits if store.kind == "sqlite" else None,
        "commands_per_message": None if per_message is None else round(per_message, 4),
    }
