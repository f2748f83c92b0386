"""Ctrl-C on a real ``surepipe run --engine spark`` with a batch under way, and what it shows (spark SP-17)."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, build_opener

from surepipe.actors.codecs import AutoCodec
from surepipe.cli.output import Exit
from surepipe.core.store_requests import Stored
from surepipe.spark.stores import StorePlace
from tests.packaging.repository import ROOT
from tests.spark.short_java import surroundings
from tests.spark.streams import Streams

PATIENCE_S = 400.0
PIPELINE = """
version: 1
name: held
engine: {kind: spark, master: "local[1]", python: "{python}"}
stores: {main: {kind: sqlite, path: main.db, durability: process}}
sources: {north: {kind: stream, store: main, stream: north}}
pipes: {all: {from: north, route: {kind: sqlite, store: main}}}
stages: {hold: {from: all, call: "tests.spark.running.functions:hold"}}
sinks: {out: {from: hold, kind: stream, store: main, stream: out}}
"""


def late_python(folder: Path) -> Path:
    """This interpreter, but the first process of a source never answers Spark; ``late`` is there then."""
    program = folder / "python"
    program.write_text(
        f'#!/bin/sh\ncase "$*" in *python_streaming_source_runner*)\n'
        f"  mkdir '{folder}/late' 2>/dev/null && exec sleep 600;;\n"
        f'esac\nexec {sys.executable} "$@"\n'
    )
    program.chmod(0o755)
    return program


@contextmanager
def running(folder: Path) -> Generator[subprocess.Popen[str]]:
    """The command, as a terminal has it: in one group with all that it starts."""
    process = subprocess.Popen(
        [*(sys.executable, "-m", "surepipe", "run", "held.yaml", "--json"),
         *("--web", "--web-port", "0", "--metrics", "0")],
        cwd=folder,
        env=surroundings(PYTHONPATH=str(ROOT)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )  # fmt: skip
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def wait_for(begun: int, process: subprocess.Popen[str]) -> None:
    """Until the stage says that it is here. AssertionError when the process ends instead."""
    handle = os.pidfd_open(process.pid)
    try:
        ready, _, _ = select.select([begun, handle], [], [], PATIENCE_S)
        assert begun in ready, process.communicate()
    finally:
        os.close(handle)


def until(process: subprocess.Popen[str], words: str) -> str:
    """The line of standard error in which these words are."""
    assert process.stderr is not None
    return next(line for line in process.stderr if words in line)


def asked(url: str) -> str:
    """What is served there."""
    with build_opener(ProxyHandler({})).open(url, timeout=30) as answer:
        found: bytes = answer.read()
    return found.decode()


def part(status: dict[str, Any], name: str) -> Any:
    """A part of a status."""
    return next(one for one in status["parts"] if one["name"] == name)


def told_by(page: str) -> dict[str, Any]:
    """The status, once Spark has told how the first batch went: the second one may begin before that."""
    end = time.monotonic() + PATIENCE_S
    while True:
        status: dict[str, Any] = json.loads(asked(f"{page.rstrip('/')}/status.json"))
        if "rows_per_s" in part(status, "spark")["counts"]:
            return status
        assert time.monotonic() < end, status


def test_an_interrupt_lets_the_batch_end_and_all_of_it_is_there(tmp_path: Path) -> None:
    """The stage waits in the second batch, and the whole group gets SIGINT, as from a terminal: 130, and 1 to 100
    in order. Before that, page and metrics tell of the first batch: its rate, what waits, its state. The first
    start of the query fails, as on a machine that is too busy, and it is started again."""
    text = PIPELINE.replace("{python}", str(late_python(tmp_path)))
    (tmp_path / "held.yaml").write_text(text)
    streams = Streams(StorePlace(str(tmp_path / "main.db"), level="process")).create("north")
    payloads = [AutoCodec().encode({"n": number}) for number in range(1, 101)]
    assert isinstance(streams.store.append("north", "maker", 1, 1, payloads), Stored)
    for name in ("begun", "go"):
        os.mkfifo(tmp_path / name)
    begun = os.open(tmp_path / "begun", os.O_RDONLY | os.O_NONBLOCK)
    with running(tmp_path) as process:
        page = until(process, "page").split()[-1]
        metrics = until(process, "metrics").split()[-1]
        wait_for(begun, process)
        assert (tmp_path / "late").is_dir()
        status = told_by(page)
        assert part(status, "spark")["counts"]["batches"] == 1
        assert part(status, "spark")["counts"]["rows_per_s"] > 0
        assert part(status, "spark")["counts"]["state_rows"] == 0
        assert part(status, "north")["counts"]["lag"] == 0
        assert part(status, "all")["flow"]["lag"] is not None
        assert 'surepipe_part_batch_seconds{part="held/spark"}' in asked(metrics)
        os.killpg(process.pid, signal.SIGINT)
        until(process, "finishing what was taken")
        (tmp_path / "go").write_text("on")
        out, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == Exit.INTERRUPTED
    os.close(begun)
    told = json.loads(out)
    assert (told["exit"], told["unfinished"]) == (Exit.INTERRUPTED, [])
    assert told["counters"]["out"] == {"taken": 100}
    assert told["counters"]["spark"]["batches"] == 2
    came = [AutoCodec().decode(one) for one in streams.read("out")]
    assert came == [{"n": number} for number in range(1, 101)]
