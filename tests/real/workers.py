"""The controller's side of a worker: order it to play, hear what it says, kill it, pause it."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

Said = dict[str, object]
PATIENCE_S = 20.0
ROOT = Path(__file__).parents[2]


class WorkerFailed(AssertionError):
    """A worker said something that no schedule explains, or nothing at all."""


class Worker:
    """One worker process. ``heard`` is called with everything that it says, in order."""

    def __init__(
        self,
        name: str,
        heard: Callable[[Said], None] | None = None,
        *,
        within: Sequence[str] = (),
    ) -> None:
        """``within``: a command to run it under, such as ``ip netns exec``."""
        self.name = name
        self.pid = 0
        self.incarnation = 0
        self.last: dict[str, Said] = {}
        """What it said last in this part, of each kind."""
        self._heard = heard
        self._said: queue.SimpleQueue[Said | None] = queue.SimpleQueue()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        self._process = subprocess.Popen(
            [*within, sys.executable, "-m", "tests.real.worker"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = cast("Said", json.loads(line))
            self.last[str(said["say"])] = said
            if self._heard is not None:
                self._heard(said)
            self._said.put(said)
        self._said.put(None)

    def play(self, part: str, **order: object) -> None:
        """Begin a part; returns when the child is there."""
        self.incarnation += 1
        self.last.clear()
        self._send({"do": "play", "part": part, **order})
        self.pid = cast("int", self.wait_for("started")["pid"])

    def wait_for(self, what: str, count: int = 1) -> Said:
        """What it says next of this kind (the count-th); everything before that is passed over."""
        while True:
            said = self._next()
            if said["say"] == "failed":
                raise self._trouble(f"failed: {said['why']}")
            if said["say"] == what:
                count -= 1
                if not count:
                    return said
            elif said["say"] == "ended":
                raise self._trouble(f"ended ({said['status']}) before it said {what!r}")

    def wait_for_new(self, what: str, count: int = 1) -> Said:
        """The same, but what it has said before now does not count."""
        for _ in range(self._said.qsize()):
            said = self._next()
            if said["say"] in ("failed", "ended"):
                raise self._trouble(f"said {said}")
        return self.wait_for(what, count)

    def _next(self) -> Said:
        try:
            said = self._said.get(timeout=PATIENCE_S)
        except queue.Empty:
            os.kill(self.pid, signal.SIGUSR1)  # it logs where its threads are
            time.sleep(1.0)
            raise self._trouble(f"says nothing for {PATIENCE_S:g} s") from None
        if said is None:
            raise self._trouble("is gone")
        return said

    def end(self) -> int:
        """Wait for the end of the part; how it ended."""
        return cast("int", self.wait_for("ended")["status"])

    def kill(self) -> None:
        """SIGKILL to the child; returns when it is gone."""
        os.kill(self.pid, signal.SIGKILL)
        self.end()

    def stop(self) -> None:
        """Let the part come to its end in good order."""
        self._send({"do": "stop"})
        if status := self.end():
            raise self._trouble(f"ended with {status} when it was told to stop")

    def pause(self) -> None:
        """SIGSTOP."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def _send(self, order: Said) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()

    def close(self) -> None:
        """End the whole group."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        self._log.close()

    def _trouble(self, text: str) -> WorkerFailed:
        """With the last lines that it logged."""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - 20000))
        logged = self._log.read().decode(errors="replace")
        self._log.seek(0, os.SEEK_END)
        return WorkerFailed(f"{self.name} {text}; it logged:\n{logged}")

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
