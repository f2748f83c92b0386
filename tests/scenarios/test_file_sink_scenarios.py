"""File sinks of pipelines whose receivers come and go."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from surepipe import PipeStopped
from surepipe.core.store_requests import Store
from surepipe.pipelines.assembly import Cursor, Sink
from surepipe.pipelines.models.stages import AnySink
from surepipe.pipelines.run import PlanEngine
from surepipe.pipelines.run.file_log import FileLog
from surepipe.pipelines.run.running import letters_in
from surepipe.storage.sqlite.store import SqliteStore
from tests.pipelines.run.kit import Bench, finish, plan_of, read_lines, run, write_lines

PLAN = (
    "sources: {lines: {kind: jsonl, path: in.jsonl}}\n"
    "pipes: {intake: {from: lines, journal: main, state: main, boundary: committed}}\n"
    'stages: {same: {from: intake, map: "test:same", retries: 1, dead_letter: main/dead}}\n'
    "sinks: {out: {from: same, kind: jsonl, path: out.jsonl}}\n"
)


class Overtaken(Bench):
    """A process whose file is taken over as soon as it has it; its receiver's state is not."""

    def sink(self, part: AnySink, stores: Mapping[str, Store], cursor: Cursor | None) -> Sink:
        """The other process gets no further than this."""
        made = super().sink(part, stores, cursor)
        FileLog(stores["main"], "shop/out/place").claim()
        return made


def same(number: int) -> int:
    """The message."""
    return number


def test_sink_taken_over_ends_the_receiver_and_blames_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """sink: zombie: a later process has the file, and the older one still receives.

    1. the commit of the file's place was refused; 2. that counted as a failure of the handler, again and again, so
    messages became dead letters, or the pipe never came to rest (simulation P12).
    """
    monkeypatch.chdir(tmp_path)
    write_lines("in.jsonl", range(3))
    plan = plan_of(PLAN)
    bench = Overtaken(plan, same=same)
    older = PlanEngine(plan, "main", bench, once=True)
    older.start()
    try:
        with pytest.raises(PipeStopped, match="'shop/out/place' was taken over"):
            finish(older, bench)
    finally:
        older.close(0)
    with SqliteStore(tmp_path / "main.db") as store:
        assert not list(letters_in({"main": store}, "main/dead").all())
    run(plan, same=same)
    assert read_lines("out.jsonl") == [0, 1, 2]
