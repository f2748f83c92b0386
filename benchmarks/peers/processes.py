"""Processes of a run: each in a group of its own, so that a worker can be killed with all its children."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

from benchmarks.peers.catalogue import System
from benchmarks.peers.environment import ROOT, command, variables
from benchmarks.peers.handling import FOLDER, MODE, STOP, URL
from benchmarks.peers.server import client_of

Process: TypeAlias = "subprocess.Popen[str]"


class RunFailed(Exception):
    """A system did not do what was asked of it in time; says which, and what it wrote."""


def start(arguments: Sequence[str], folder: Path, **environment: str) -> Process:
    """Start a program of the environment. What it writes to stderr is appended to ``log`` in the folder."""
    with (folder / "log").open("a") as log:
        return subprocess.Popen(
            [command(arguments[0]), *arguments[1:]],
            cwd=ROOT,
            env=variables(**environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if "benchmarks.peers.producing" in arguments else log,
            stderr=log,
            text=True,
            start_new_session=True,
        )


def kill(process: Process) -> None:
    """End the process and its children at once; nothing if they are gone."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout:
        process.stdout.close()


def end(process: Process, within_s: float = 20.0) -> None:
    """End it in good order, if it does that in time."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(within_s)
    kill(process)


def wait_for(condition: Callable[[], bool], within_s: float, what: str) -> None:
    """Return when it holds; look often, since what it waits for comes from other processes."""
    until = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > until:
            raise RunFailed(f"not within {within_s:.0f} s: {what}")
        time.sleep(0.002)


class Bench:
    """A database and a folder for one run of one system."""

    def __init__(self, system: System, url: str, mode: str, stack: ExitStack) -> None:
        self.system = system
        self.url = url
        self.folder = Path(tempfile.mkdtemp(prefix="surepipe-peers-"))
        self._environment = {URL: url, FOLDER: str(self.folder), MODE: mode}
        self._stack = stack
        stack.callback(shutil.rmtree, self.folder, ignore_errors=True)

    def worker(self, stop: str = "") -> Process:
        """Start a worker that stands still where ``stop`` says."""
        environment = {STOP: stop, **dict(self.system.environment)}
        return self._start(self.system.worker(self.url), environment)

    def producer(self, *count: str, **environment: str) -> Process:
        """Start a producer."""
        module = "benchmarks.peers.producing"
        return self._start(["python", "-m", module, self.system.module, *count], environment)

    def _start(self, arguments: Sequence[str], environment: dict[str, str]) -> Process:
        process = start(arguments, self.folder, **self._environment, **environment)
        self._stack.callback(kill, process)
        return process

    def log(self) -> str:
        """The last that the processes wrote."""
        return (self.folder / "log").read_text()[-2000:]


@contextmanager
def bench(system: System, url: str, mode: str) -> Generator[Bench]:
    """A bench on a database that must be empty, and is afterwards; all its processes have ended then."""
    client = client_of(url)
    if client.dbsize():
        raise RunFailed(f"database {url.rpartition('/')[2]} of the server is not empty")
    try:
        with ExitStack() as stack:
            yield Bench(system, url, mode, stack)
    finally:
        client.flushdb()
        client.close()
