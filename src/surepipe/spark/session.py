"""Starting Spark: quietly, with the settings that surepipe needs, and with one clear error when it can't.

    with open_session(SparkOptions(master="local[2]")) as spark:
        spark.read.format("surepipe").options(**place.options(), stream="orders").load()

What Spark and its Python workers write goes to a file (``SparkOptions.log_path``), never to the terminal.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urlsplit

from surepipe.errors import ConfigurationError, MisuseError
from surepipe.spark.java import JavaHome, archive_options, find_java
from surepipe.spark.shipping import archives_of

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


logger = logging.getLogger("surepipe")
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
TASK_ATTEMPTS = 4
_MEMORY_MIN_MB = 512
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_LOOKS_EVERY_S = 0.1
_LOG_LINES_SHOWN = 5
_MASTERS = re.compile(
    r"local|local\[(\d+|\*)(,\s*\d+)?\]|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]"
    r"|spark://.+|yarn|k8s://.+"
)
_PORTS = {"http": 80, "https": 443}
_IN_JAVA = re.compile(r"at [\w.$]+\S*\(|\.\.\. \d+ more")
"""A line of Java's that says where, and not what."""
_UNITS_MB = {"k": 1 / 1024, "m": 1, "g": 1024, "t": 1024 * 1024}

NEEDED = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
}
"""Settings that surepipe counts on; a session that somebody else started takes them, too."""


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """How a session is started."""

    master: str = "local[*]"
    app_name: str = "surepipe"
    memory: str | None = None
    """Heap of the driver (with a local master, of everything), such as 2g; Spark's own default is 1g."""
    log_path: Path | None = None
    """Where Spark's log goes; ``state_dir/spark.log`` when not given."""
    state_dir: Path = Path(".surepipe/spark")
    python: str = sys.executable
    """The interpreter of the executors."""
    ship: Sequence[str | Path] = ()
    """Modules, packages or files that executors need besides surepipe (``shipping``)."""
    settings: Mapping[str, str] = field(default_factory=dict[str, str])
    """Further settings of Spark; they win over ours. Java options are added to ours."""
    connect_within_s: float = 5.0
    executors_within_s: float = 60.0

    @property
    def is_local(self) -> bool:
        """True when everything runs in this machine's one JVM."""
        return re.fullmatch(r"local(\[.*\])?", self.master) is not None

    @property
    def log(self) -> Path:
        """The file that the log goes to."""
        return (self.log_path or self.state_dir / "spark.log").absolute()


def open_session(options: SparkOptions | None = None) -> SparkSession:
    """Start Spark with what surepipe needs, and ship our code to its executors.

    Raises ConfigurationError when the extra is not installed, no Java fits, the master can't be reached or gives
    no executors in time, or the memory is too little; MisuseError when this process runs another session.
    """
    options = options or SparkOptions()
    java = check_start(options)
    _refuse_second()
    options.log.parent.mkdir(parents=True, exist_ok=True)
    archives = [] if options.is_local else archives_of(options.ship)
    session = _started(options, java, archives)
    try:
        _await_executors(session, options)
        _prepare(session, archives)
    except BaseException:
        session.stop()
        raise
    logger.info("Spark %s on %s; log: %s", session.version, java, options.log)
    return session


def check_start(options: SparkOptions) -> JavaHome:
    """All that can be told of a start before anything is written; the Java that will run.

    Raises ConfigurationError as ``open_session`` does.
    """
    require_extra()
    _check_memory(options)
    _check_master(options)
    _check_reachable(options)
    return find_java()


def prepare_session(session: SparkSession, ship: Sequence[str | Path] = ()) -> None:
    """Give a session that somebody else started what surepipe needs. A repeat changes nothing.

    Raises ConfigurationError for something to ship that is not there.
    """
    _prepare(session, [] if is_local(session) else archives_of(ship))


def _prepare(session: SparkSession, archives: Sequence[Path]) -> None:
    from surepipe.spark.source import SurepipeSource  # noqa: PLC0415 - needs pyspark

    for name, value in NEEDED.items():
        session.conf.set(name, value)
    shipped = {file.rpartition("/")[2] for file in session.sparkContext.listFiles}
    for archive in archives:
        if archive.name not in shipped:
            session.sparkContext.addPyFile(str(archive))
    # After shipping: Spark notes with the source what its workers need on their path.
    session.dataSource.register(SurepipeSource)


def is_local(session: SparkSession) -> bool:
    """True when the executors are threads of the driver's JVM, and their workers see what this process sees."""
    return re.fullmatch(r"local(\[.*\])?", str(session.sparkContext.master)) is not None


def require_extra() -> None:
    """Raises ConfigurationError when what the engine needs is not installed."""
    missing = [name for name in ("pyspark", "pyarrow", "pandas") if find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f"the engine spark needs {', '.join(missing)}: pip install 'surepipe[spark]'"
        )


# Before Spark is started.


def _check_memory(options: SparkOptions) -> None:
    if options.memory is None:
        return
    found = re.fullmatch(r"(\d+)([kmgt])b?", options.memory.lower())
    if found is None:
        raise ConfigurationError(f"memory is {options.memory!r}: write it as 2g or 1500m")
    wanted_mb = int(found[1]) * _UNITS_MB[found[2]]
    if wanted_mb < _MEMORY_MIN_MB:
        raise ConfigurationError(
            f"memory is {options.memory}, and Spark does not start with less than {_MEMORY_MIN_MB}m: "
            "give it more, 2g for a query"
        )
    # Java reserves a heap without having it, and is killed when it fills it: in the middle of the work.
    machine_mb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    if wanted_mb > machine_mb:
        raise ConfigurationError(
            f"memory is {options.memory}, and this machine has {machine_mb}m in all: give Spark less, such as 2g"
        )


def _check_master(options: SparkOptions) -> None:
    if not _MASTERS.fullmatch(options.master):
        raise ConfigurationError(
            f"the master {options.master} is none that Spark knows: write local[4], spark://host:port, yarn or "
            "k8s://https://host:port"
        )
    if options.master == "yarn" and not {"HADOOP_CONF_DIR", "YARN_CONF_DIR"} & {*os.environ}:
        raise ConfigurationError(
            "the master yarn is found by the settings of Hadoop: set HADOOP_CONF_DIR to the folder that has them"
        )


def _refuse_second() -> None:
    from pyspark import SparkContext  # noqa: PLC0415 - checked above

    active = SparkContext._active_spark_context  # pyright: ignore[reportPrivateUsage]
    if active is not None:
        raise MisuseError(
            f"this process runs Spark already ({active.master}): stop that session first, or give it to "
            "prepare_session"
        )


def _check_reachable(options: SparkOptions) -> None:
    """A master at an address: Spark itself would ask for a minute, and then fail in three places at once."""
    addresses = _addresses(options.master)
    tried: list[str] = []
    for address in addresses:
        host, _, port = address.rpartition(":")
        try:
            with socket.create_connection(
                (host.strip("[]"), int(port)), timeout=options.connect_within_s
            ):
                return
        except (OSError, ValueError) as error:
            tried.append(f"{address}: {error}")
    if addresses:
        raise ConfigurationError(
            f"no master of Spark answers at {options.master} ({'; '.join(tried)}): start it, or correct the "
            "address"
        )


def _addresses(master: str) -> list[str]:
    """Where the master, or one of several, may answer, as 'host:port'; empty for one that has no address."""
    kind, _, rest = master.partition("://")
    if kind == "spark":
        return rest.split(",")
    if kind == "k8s":
        found = urlsplit(rest if "://" in rest else f"https://{rest}")
        return [found.netloc if found.port else f"{found.netloc}:{_PORTS.get(found.scheme, 443)}"]
    return []


# Starting.


def _started(options: SparkOptions, java: JavaHome, archives: Sequence[Path]) -> SparkSession:
    from py4j.protocol import Py4JError  # noqa: PLC0415
    from pyspark import SparkContext, java_gateway  # noqa: PLC0415
    from pyspark.errors import PySparkRuntimeError  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    conf = _conf(options, java)
    _set_environment(options, java)
    start = options.log.stat().st_size if options.log.exists() else 0
    try:
        with options.log.open("ab") as log:
            launch: Callable[..., Any] = getattr(java_gateway, "launch_gateway")  # noqa: B009 - it has no types
            with _python_path(archives):
                gateway = launch(conf, _outputs(log))
        with own_interrupt():
            context = SparkContext(conf=conf, gateway=gateway)
    except (PySparkRuntimeError, Py4JError, ValueError) as error:
        said = str(error)  # it asks the JVM, which is gone in a moment
        _forget_gateway()
        raise _refusal(options, start, said) from error
    return SparkSession(context)


@contextmanager
def _python_path(archives: Sequence[Path]) -> Generator[None]:
    """While the JVM starts: the worker of a streaming source beside the driver takes the JVM's path, and what is
    shipped to executors is not on it (seen with Spark 4.3.0)."""
    before = os.environ.get("PYTHONPATH")
    if archives:
        parts = [*map(str, archives), *([before] if before else [])]
        os.environ["PYTHONPATH"] = os.pathsep.join(parts)
    try:
        yield
    finally:
        if before is not None:
            os.environ["PYTHONPATH"] = before
        else:
            os.environ.pop("PYTHONPATH", None)


@contextmanager
def own_interrupt() -> Generator[None]:
    """Whoever hears Ctrl-C goes on to hear it: Spark's context installs a handler that breaks off all jobs."""
    before = signal.getsignal(signal.SIGINT)
    of_spark = getattr(before, "__module__", "").startswith("pyspark")
    is_own = before not in (None, signal.default_int_handler) and not of_spark
    try:
        yield
    finally:
        if is_own and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def _outputs(log: IO[bytes]) -> dict[str, object]:
    return {"stdout": log, "stderr": log}


def _forget_gateway() -> None:
    """Let the next start launch a JVM of its own, with settings of its own."""
    from pyspark import SparkContext  # noqa: PLC0415

    gateway = SparkContext._gateway  # pyright: ignore[reportPrivateUsage]
    if gateway is not None:
        gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None  # pyright: ignore[reportPrivateUsage]


def end_java(within_s: float) -> None:
    """End the JVM that stopped sessions leave for the next one, and wait until it is gone.

    Raises subprocess.TimeoutExpired when it takes longer than that.
    """
    from pyspark import SparkContext  # noqa: PLC0415

    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)  # pyright: ignore[reportPrivateUsage]
    _forget_gateway()
    if process is not None and process.stdin is not None:
        process.stdin.close()  # the sign for it
        process.wait(within_s)


def _refusal(options: SparkOptions, start: int, said: str) -> ConfigurationError:
    """What the log says since the start, in one sentence."""
    with options.log.open("rb") as log:
        log.seek(start)
        told = log.read().decode(errors="replace")
    told += f"\n{said}"
    memory = f"memory is {options.memory or 'not given'}"
    if "must be at least" in told or "reserve enough space" in told or "OutOfMemory" in told:
        advice = f"there is too little memory ({memory}): give the session more, or free some"
    elif "All masters are unresponsive" in told or "Could not parse Master URL" in told:
        advice = (
            f"the master {options.master} is no master of Spark, or does not answer: correct it"
        )
    else:
        lines = [line.strip() for line in told.splitlines()]
        lines = [line for line in lines if line and not _IN_JAVA.match(line)]
        advice = "; ".join(lines[-_LOG_LINES_SHOWN:])
    return ConfigurationError(f"Spark did not start: {advice} (log: {options.log})")


def _set_environment(options: SparkOptions, java: JavaHome) -> None:
    """What Spark's scripts take from the environment only."""
    os.environ["JAVA_HOME"] = str(java.path)
    os.environ["PYSPARK_PYTHON"] = options.python
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if options.is_local or options.master.startswith("local-cluster"):
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"


def _conf(options: SparkOptions, java: JavaHome) -> SparkConf:
    from pyspark import SparkConf  # noqa: PLC0415

    settings = {
        "spark.master": _with_retries(options.master),
        "spark.app.name": options.app_name,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": str((options.state_dir / "warehouse").absolute()),
        _JAVA_OPTIONS: f"-Dlog4j2.configurationFile={_log4j(options)} {archive_options(java)}",
        "spark.pyspark.python": options.python,
        "spark.pyspark.driver.python": sys.executable,
        **NEEDED,
    }
    if options.is_local:
        settings["spark.driver.host"] = "127.0.0.1"
        settings["spark.sql.shuffle.partitions"] = str(_threads(options.master))
    if options.memory:
        settings["spark.driver.memory"] = options.memory
    own = dict(options.settings)
    if java_options := own.pop(_JAVA_OPTIONS, ""):
        settings[_JAVA_OPTIONS] += f" {java_options}"
    conf = SparkConf(loadDefaults=False)
    conf.setAll(list({**settings, **own}.items()))
    return conf


def _with_retries(master: str) -> str:
    """Local masters give up a job at its first failed task, unless they are told how often to try."""
    if master == "local":
        return f"local[1,{TASK_ATTEMPTS}]"
    return re.sub(r"^local\[([^,\]]+)\]$", rf"local[\1,{TASK_ATTEMPTS}]", master)


def _threads(master: str) -> int:
    found = re.match(r"local\[(\d+)", master)
    return int(found[1]) if found else (1 if master == "local" else os.cpu_count() or 1)


def _log4j(options: SparkOptions) -> str:
    """A file that tells Spark to log into ours only."""
    path = options.log.with_suffix(".log4j2.properties")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "rootLogger.level = warn\n"
        "rootLogger.appenderRef.file.ref = file\n"
        "appender.file.type = File\n"
        "appender.file.name = file\n"
        f"appender.file.fileName = {options.log}\n"
        "appender.file.append = true\n"
        "appender.file.layout.type = PatternLayout\n"
        "appender.file.layout.pattern = %d{yyyy-MM-dd HH:mm:ss} %p %c{1}: %m%n%ex\n",
        encoding="utf-8",
    )
    return path.as_uri()


def _await_executors(session: SparkSession, options: SparkOptions) -> None:
    """On a cluster: without executors the first job would wait for ever, and say so in the log only."""
    if options.is_local:
        return
    give_up_at = time.monotonic() + options.executors_within_s
    while _executors(session) == 0:
        if time.monotonic() > give_up_at:
            raise ConfigurationError(
                f"the master {options.master} gave no executor within {options.executors_within_s:.0f} s: are its "
                f"workers running, with free cores and memory? (log: {options.log})"
            )
        time.sleep(_LOOKS_EVERY_S)


def _executors(session: SparkSession) -> int:
    """Executors that have registered; the driver itself is in Spark's list and is none."""
    java: Any = session.sparkContext._jsc  # pyright: ignore[reportPrivateUsage]
    return int(java.sc().getExecutorMemoryStatus().size()) - 1


# Starting a streaming query, and starting it again when Spark's process of a source was late.
#
# Spark gives the process of each source ten seconds to answer, and no setting changes that. On a busy machine
# that may be too little. Such a query has read and written nothing, so it is started once more, on the same
# checkpoint.


STARTS = 3
_LOOKS_AGAIN_EVERY_S = 0.05


def start(writer: DataStreamWriter) -> StreamingQuery:
    """``writer.start()``; gives the query when its sources have answered, or it ended for another reason.

    The third start is the last one, and is given as it is. Raises what Spark raises.
    """
    for _ in range(STARTS - 1):
        query = writer.start()
        if not _came_too_late(query):
            return query
    return writer.start()


def _came_too_late(query: StreamingQuery) -> bool:
    try:
        while query.isActive and str(query.status["message"]).startswith("Initializing"):
            time.sleep(_LOOKS_AGAIN_EVERY_S)
    except BaseException:  # nobody else knows the query yet
        query.stop()
        raise
    return "worker failed to connect back" in str(query.exception())
