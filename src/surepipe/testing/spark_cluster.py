"""A real cluster of Spark on one machine: a standalone master and its workers, each a process of its own.

    with StandaloneCluster(workers=2) as cluster:
        open_session(SparkOptions(master=cluster.url))

They are started by Spark's own ``spark-class``, listen on 127.0.0.1 only, and end with the block.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from surepipe.errors import ConfigurationError

if TYPE_CHECKING:
    from typing import Self


_EXECUTOR = b"CoarseGrainedExecutorBackend"
_STARTS_WITHIN_S = 120.0
_ENDS_WITHIN_S = 30.0


class _Daemon:
    """A master or a worker: ready when it has written a line that matches."""

    def __init__(self, arguments: Sequence[str], ready: str, folder: Path) -> None:
        from surepipe.spark.java import find_java  # noqa: PLC0415 - an extra: loaded when it is used

        java = str(find_java().path)
        environment = {**os.environ, "JAVA_HOME": java, "SPARK_LOCAL_IP": "127.0.0.1"}
        self.process = subprocess.Popen(
            [str(_spark_home() / "bin" / "spark-class"), *arguments],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._lines: list[str] = []
        self._found: re.Match[str] | None = None
        self._told = threading.Event()
        self._reading = threading.Thread(target=self._read, args=(re.compile(ready),), daemon=True)
        self._reading.start()

    def _read(self, ready: re.Pattern[str]) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.append(line)
            if not self._found and (found := ready.search(line)):
                self._found = found
                self._told.set()
        self._told.set()

    def wait(self) -> re.Match[str]:
        """The line that says it is ready. Raises ConfigurationError when it does not come."""
        self._told.wait(_STARTS_WITHIN_S)
        if self._found is None:
            raise ConfigurationError(f"Spark's daemon did not start:\n{''.join(self._lines[-20:])}")
        return self._found

    def end(self) -> None:
        """End it, and what it has started."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self._reading.join(_ENDS_WITHIN_S)
        assert self.process.stdout is not None
        self.process.stdout.close()


class StandaloneCluster:
    """A master and some workers, of one core and so much memory each."""

    def __init__(self, workers: int = 2, memory: str = "1g", cores: int = 1) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="surepipe-spark-"))
        self._workers: list[_Daemon] = []
        self._master: _Daemon | None = None
        self._wanted = workers
        self._memory = memory
        self._cores = cores
        self.url = ""
        """What ``SparkOptions.master`` takes, once it runs."""

    def start(self) -> Self:
        """Start all, and return when the workers are registered. Raises ConfigurationError."""
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def _start(self) -> None:
        master = "org.apache.spark.deploy.master.Master"
        arguments = [master, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        self._master = _Daemon(arguments, r"Starting Spark master at (spark://\S+)", self._folder)
        self.url = self._master.wait()[1]
        for _ in range(self._wanted):
            self.add_worker()
        for worker in self._workers:
            worker.wait()

    def add_worker(self) -> None:
        worker = "org.apache.spark.deploy.worker.Worker"
        size = ["--cores", str(self._cores), "--memory", self._memory]
        places = [
            "--host",
            "127.0.0.1",
            "--webui-port",
            "0",
            "--work-dir",
            str(self._folder / "work"),
        ]
        arguments = [worker, *size, *places, self.url]
        self._workers.append(
            _Daemon(arguments, "Successfully registered with master", self._folder)
        )

    def executors(self) -> list[int]:
        """The processes of the executors that run now, oldest first."""
        workers = {str(worker.process.pid) for worker in self._workers}
        found: list[int] = []
        for status in Path("/proc").glob("[0-9]*/status"):
            try:
                told = status.read_text()
                command = (status.parent / "cmdline").read_bytes()  # empty once it was killed
            except OSError:
                continue  # it has ended meanwhile
            parent = re.search(r"^PPid:\s+(\d+)", told, re.MULTILINE)
            if parent and parent[1] in workers and _EXECUTOR in command:
                found.append(int(status.parent.name))
        return sorted(found)

    def close(self) -> None:
        """End all, and remove what they left. A repeat does nothing."""
        for daemon in [*self._workers, *([self._master] if self._master else [])]:
            daemon.end()
        self._workers, self._master = [], None
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.close()


def _spark_home() -> Path:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ConfigurationError("Spark is not installed: pip install 'surepipe[spark]'")
    return Path(spec.origin).parent
