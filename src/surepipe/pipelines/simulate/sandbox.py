"""Keeps stages from the outside world while they are simulated, and gives them substitutes.

While a stage is called, the clocks and the chance of the standard library are virtual, also where the stage's
module has imported a function by name. Sockets, subprocesses, threads and writing to files are refused, with the
file and line of the call. What can't be intercepted (a module's own generator of chance, the hash of a string)
shows when the same seed is run twice.
"""

from __future__ import annotations

import asyncio
import builtins
import ctypes
import datetime as datetime_module
import inspect
import io
import logging
import logging.handlers
import os
import random
import secrets
import signal
import socket
import sqlite3
import ssl
import stat
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from types import FrameType, ModuleType, SimpleNamespace
from typing import Any, TypeAlias, cast

from surepipe.actors.consuming.coroutines import VirtualLoop
from surepipe.core.callables import is_users
from surepipe.errors import words_of
from surepipe.pipelines.simulate.ends import without_addresses
from surepipe.pipelines.simulate.memory import SHARED_LOCKS, SYNCHRONIZING
from surepipe.pipelines.simulate.written import beneath
from surepipe.pipelines.users_code import imported
from surepipe.simulation.actors.lives import Life
from surepipe.simulation.chance.randomness import Draws, draws

# Notices a call of a user's function that does not come back, by the real clock.
#
# Virtual time stands still while a stage is called, so a stage that loops for ever, or waits for a lock that
# nobody gives back, would let a simulation hang without a word. A thread looks now and then whether the same
# call still runs; after so long it says where, and lets the call raise. A call that waits inside of the
# interpreter takes no step at which it could: a signal lets the main thread take one, also in the midst of
# waiting for a lock. In another thread such a call can only be told of, on standard error.


HANGS_AFTER_S = 5.0
"""So long may one call take, in real time."""
_LOOKS = 4
"""so often within that time"""
_WAKES = signal.SIGURG
"""What lets the main thread take a step of Python wherever it waits; nobody is harmed who does not expect it."""

Progress: TypeAlias = Callable[[], object]
"""Equal as long as the same call runs; None while no user's code does."""
Told: TypeAlias = Callable[[FrameType], str]
"""Called once with the frame in which a call hangs; gives the words for it."""

_monotonic = time.monotonic
_frames: Callable[[], dict[int, FrameType]] = vars(sys)["_current_frames"]


class _Watch:
    """One thread that looks at the thread it was made in."""

    def __init__(
        self, progress: Progress, told: Told, error: type[BaseException], limit_s: float
    ) -> None:
        self._progress = progress
        self._told = told
        self._error = error
        self._limit_s = limit_s
        self._watched = threading.get_ident()
        self._is_over = threading.Event()
        self._said = ""
        self._has_sent = False
        self._thread = threading.Thread(target=self._look, name="surepipe-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Nothing is raised from here on."""
        self._is_over.set()
        self._thread.join()
        if self._has_sent:
            self._let_out()

    def _let_out(self) -> None:
        """Raise here what the call has not raised yet.

        Taking it back would not do: Python would go on asking every thread at every step whether an error waits
        for it, and under a tracer (a debugger, a measurement of coverage) 3.11 then never gets past the next call.
        """
        with suppress(self._error):
            _raise_in(self._watched, self._error)
            while True:  # Python raises at a step backwards, if not before
                pass

    def _look(self) -> None:
        seen, since = self._progress(), _monotonic()
        while not self._is_over.wait(self._limit_s / _LOOKS):
            now, found = _monotonic(), self._progress()
            if found is None or found != seen:
                seen, since = found, now
            elif now - since >= self._limit_s:
                since = now
                self._interrupt()

    def _interrupt(self) -> None:
        if self._said:  # it caught what was raised, or waits where nothing can be
            said = f"surepipe: {self._said}; it does not let itself be interrupted\n"
            beneath(sys.stderr).write(said)
        else:
            self._said = self._told(_frames()[self._watched])
        self._has_sent = True
        _raise_in(self._watched, self._error)


def _raise_in(thread: int, error: type[BaseException]) -> None:
    """The thread raises this at its next step, instead of another that it has not raised yet."""
    target = ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), target)
    if thread == threading.main_thread().ident:
        signal.pthread_kill(thread, _WAKES)


def _take_a_step(*_: object) -> None:
    """At which is raised what was sent."""


@contextmanager
def _woken() -> Generator[None]:
    """While this lasts, the main thread takes a step of Python where it is sent what wakes it."""
    if (
        threading.current_thread() is not threading.main_thread()
    ):  # only that one is asked by Python
        yield
        return
    before = signal.signal(_WAKES, _take_a_step)
    try:
        yield
    finally:
        signal.signal(_WAKES, before or signal.SIG_DFL)


@contextmanager
def watched(
    progress: Progress, told: Told, error: type[BaseException], limit_s: float | None = None
) -> Generator[None]:
    """While this lasts, a call in this thread that makes no progress for so long raises ``error``."""
    watch = _Watch(progress, told, error, HANGS_AFTER_S if limit_s is None else limit_s)
    with _woken():
        watch.start()
        try:
            yield
        finally:
            watch.stop()


Speaking: TypeAlias = Callable[[], Life | None]
"""The process whose user's code runs now; None while none does."""

Double: TypeAlias = tuple[ModuleType | type, str, Any]
"""Where a function is kept, under which name, and what stands in for it."""

WALL_ORIGIN_NS = 1_700_000_000 * 1_000_000_000


class Slip(BaseException):
    """A stage did what can't be simulated. Not an ``Exception``: no stage catches it."""


class Hang(Slip):
    """A stage did not come back. Raised in it from outside, so it finds its words itself."""

    def __init__(self) -> None:
        super().__init__(str(_now.refused[-1]) if _now.refused else "")


@dataclass(frozen=True, slots=True)
class Refusal:
    """A call that was refused, and its place."""

    what: str
    place: str
    function: str
    advice: str = ""
    """What to do about it; where it is empty, a double helps."""

    def __str__(self) -> str:
        return f"{self.place}: a stage {self.what}, which a simulation can't let happen"


class _Current:
    """Which world's stage runs now, for the functions that stand in for those of the standard library."""

    def __init__(self) -> None:
        self.speaking: Speaking = lambda: None
        self.refused: list[Refusal] = []
        self.is_hooked = False
        self.importing: Life | None = None
        """While modules are imported: whose clock and chance they read. Nothing is refused them."""
        self.connected: list[sqlite3.Connection] = []
        """To which databases modules that are being imported have connected."""


_now = _Current()


def _life() -> Life | None:
    return _now.speaking() or _now.importing


# Virtual clocks and chance.


def _wall_ns(life: Life) -> int:
    return WALL_ORIGIN_NS + (life.world.now + life.node.wall_jumps_us) * 1000


def _chance(life: Life) -> Draws:
    """One generator for each process and stage."""
    world = life.world
    key = f"stage/{world.speaking} {life.name} {life.number}"
    return world.chances.setdefault(key, draws(world.options.seed, key))


def _virtual(name: str, real: Callable[..., Any], act: Callable[..., Any]) -> Callable[..., Any]:
    """The real function outside of stages, ``act(life, ...)`` inside."""

    def stand_in(*args: Any, **named: Any) -> Any:
        life = _life()
        return real(*args, **named) if life is None else act(life, *args, **named)

    stand_in.__name__ = stand_in.__qualname__ = name
    return stand_in


_GMTIME, _STRFTIME, _ASCTIME, _SLEEP = time.gmtime, time.strftime, time.asctime, time.sleep


def _clocks() -> dict[str, Callable[..., Any]]:
    def struct(make: Callable[[float], time.struct_time]) -> Callable[..., time.struct_time]:
        def at(life: Life, secs: float | None = None) -> time.struct_time:
            return make(_wall_ns(life) / 1e9 if secs is None else secs)

        return at

    def seconds(life: Life) -> float:
        return life.world.now / 1e6

    def nanoseconds(life: Life) -> int:
        return life.world.now * 1000

    def wall(life: Life) -> float:
        return _wall_ns(life) / 1e9

    def sleep(life: Life, seconds: float) -> None:
        life.sleep(round(seconds * 1_000_000))

    def strftime(life: Life, format: str, t: Any = None) -> str:
        return _STRFTIME(format, _GMTIME(wall(life)) if t is None else t)

    def asctime(life: Life, t: Any = None) -> str:
        return _ASCTIME(_GMTIME(wall(life)) if t is None else t)

    def ctime(life: Life, secs: float | None = None) -> str:
        return _ASCTIME(_GMTIME(wall(life) if secs is None else secs))

    def clock_ns(life: Life, clock: int) -> int:
        is_wall = clock == getattr(time, "CLOCK_REALTIME", None)
        return _wall_ns(life) if is_wall else nanoseconds(life)

    def clock(life: Life, clock: int) -> float:
        return clock_ns(life, clock) / 1e9

    counters = ("monotonic", "perf_counter", "process_time", "thread_time")
    return {
        **dict.fromkeys(counters, seconds),
        **dict.fromkeys([f"{name}_ns" for name in counters], nanoseconds),
        "time": wall,
        "time_ns": _wall_ns,
        "clock_gettime": clock,
        "clock_gettime_ns": clock_ns,
        "localtime": struct(_GMTIME),
        "gmtime": struct(_GMTIME),
        "strftime": strftime,
        "asctime": asctime,
        "ctime": ctime,
        "sleep": sleep,
    }


RANDOM_NAMES = tuple(name for name in random.__all__ if hasattr(random.Random, name))


def _chances() -> dict[str, Callable[..., Any]]:
    def through(name: str) -> Callable[..., Any]:
        def draw(life: Life, *args: Any, **named: Any) -> Any:
            return getattr(_chance(life), name)(*args, **named)

        return draw

    return {name: through(name) for name in RANDOM_NAMES}


def _system_chance(name: str) -> Callable[..., Any]:
    def draw(life: Life, self: object, *args: Any) -> Any:
        del self
        return getattr(_chance(life), name)(*args)

    return _virtual(name, vars(random.SystemRandom)[name], draw)


def _uuid4(life: Life, *_: object) -> uuid.UUID:
    return uuid.UUID(int=_chance(life).getrandbits(128), version=4)


def _bytes(life: Life, count: int | None = None) -> bytes:
    return _chance(life).randbytes(32 if count is None else count)


def _hex(life: Life, count: int | None = None) -> str:
    return _bytes(life, count).hex()


def _below(life: Life, bound: int) -> int:
    return _chance(life).below(bound)


def _bits(life: Life, count: int) -> int:
    return _chance(life).getrandbits(count)


def _pick(life: Life, items: Sequence[Any]) -> Any:
    return _chance(life).pick(items)


def _seeding(real: Callable[..., None]) -> Callable[..., None]:
    """A generator that is made without a seed gets one."""

    def seed(self: random.Random, a: Any = None, version: int = 2) -> None:
        life = _life()
        real(self, a if a is not None or life is None else _chance(life).getrandbits(64), version)

    return seed


_REAL_DATETIME = datetime_module.datetime


def _refused(name: str, real: Callable[..., Any], what: str) -> Callable[..., Any]:
    """The real function outside of stages, also while modules are imported."""

    def stand_in(*args: Any, **named: Any) -> Any:
        if _now.speaking() is not None and args != (signal.SIGINT,):  # which is Ctrl-C
            for coroutine in filter(asyncio.iscoroutine, args):
                coroutine.close()  # else Python says that nobody awaited it
            _refuse(what)
        return real(*args, **named)

    stand_in.__name__ = name
    return stand_in


class _AnyDatetime(type):
    """Every moment is an instance, also those that were made before."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _REAL_DATETIME)


class _Datetime(datetime_module.datetime, metaclass=_AnyDatetime):
    """``datetime`` with virtual ``now``, which calls itself as the real one does: users see it in messages."""

    def __repr__(self) -> str:
        said = super().__repr__()
        return f"{datetime_module.__name__}.{said}" if type(self) is _Datetime else said

    @classmethod
    def now(cls, tz: datetime_module.tzinfo | None = None) -> Any:
        life = _life()
        if life is None:
            return _REAL_DATETIME.now(tz)
        seconds = _wall_ns(life) / 1e9
        return cls.fromtimestamp(seconds, tz or datetime_module.UTC).replace(tzinfo=tz)

    @classmethod
    def utcnow(cls) -> Any:
        return cls.now(datetime_module.UTC).replace(tzinfo=None)

    @classmethod
    def today(cls) -> Any:
        return cls.now()


_Datetime.__module__ = datetime_module.__name__
_Datetime.__name__ = _Datetime.__qualname__ = _REAL_DATETIME.__name__


STARTS_A_THREAD = "starts a thread"
_OWN_LOOP = "runs an event loop of its own, instead of being an async def that awaits"
_RUN_UNTIL_COMPLETE = asyncio.BaseEventLoop.run_until_complete
_REFUSED_LOOP = _refused("run_until_complete", _RUN_UNTIL_COMPLETE, _OWN_LOOP)


def _run_until_complete(loop: asyncio.BaseEventLoop, call: Any) -> Any:
    """A loop that was made before; that of the coroutines of stages is virtual."""
    run = _RUN_UNTIL_COMPLETE if isinstance(loop, VirtualLoop) else _REFUSED_LOOP
    return run(loop, call)


def _guards() -> Iterator[Double]:
    """What is refused and no audit hook is told of, or not with the line."""
    # Below ``start`` the audit hook would still refuse, but the thread would stay among those about to start.
    start = _refused("start", threading.Thread.start, STARTS_A_THREAD)
    yield threading.Thread, "start", start
    for name in ("run", "new_event_loop"):
        yield asyncio, name, _refused(name, getattr(asyncio, name), _OWN_LOOP)
    for name in ("__init__", "run"):  # a runner may have been made before
        yield asyncio.Runner, name, _refused(name, getattr(asyncio.Runner, name), _OWN_LOOP)
    yield asyncio.BaseEventLoop, "run_until_complete", _run_until_complete
    for kind in (socket.socket, ssl.SSLSocket):  # one may have been opened before
        for name in ("send", "sendall", "sendto"):
            yield kind, name, _refused(name, getattr(kind, name), "sends something by a socket")
    yield os, "write", _write
    yield sqlite3, "connect", _connect
    yield logging.Handler, "handle", _handle
    for name in ("_exit", "abort"):  # which no audit hook is told of
        yield os, name, _refused(name, getattr(os, name), "ends its process")
    for name in ("raise_signal", "alarm", "setitimer"):  # nor of these
        if hasattr(signal, name):
            yield signal, name, _refused(name, getattr(signal, name), "sends a signal")


def _noting(real: Callable[..., None]) -> Callable[..., None]:
    """Made here, it may be used by several processes, which real ones never do."""
    thread = threading.get_ident()

    def init(self: object, *args: Any, **named: Any) -> None:
        real(self, *args, **named)
        if threading.get_ident() == thread:
            SHARED_LOCKS.note(self, is_of_life=_now.speaking() is not None)

    return init


def _stand_ins() -> Iterator[Double]:
    yield from _guards()
    for kind in SYNCHRONIZING:
        yield kind, "__init__", _noting(vars(kind)["__init__"])
    act: Callable[..., Any]
    for name, act in _clocks().items():
        if hasattr(time, name):  # not every system has every clock
            yield time, name, _virtual(name, getattr(time, name), act)
    for name, act in _chances().items():
        yield random, name, _virtual(name, getattr(random, name), act)
    for name in ("uuid1", "uuid4", "uuid6", "uuid7"):
        if hasattr(uuid, name):  # newer Pythons have more
            yield uuid, name, _virtual(name, getattr(uuid, name), _uuid4)
    yield os, "urandom", _virtual("urandom", os.urandom, _bytes)
    yield random.Random, "seed", _seeding(random.Random.seed)
    for name in ("random", "getrandbits", "randbytes"):  # what all else of SystemRandom is made of
        yield random.SystemRandom, name, _system_chance(name)
    secret: dict[str, Callable[..., Any]] = {
        "token_bytes": _bytes,
        "token_hex": _hex,
        "token_urlsafe": _hex,
        "randbelow": _below,
        "randbits": _bits,
        "choice": _pick,
    }
    for name, act in secret.items():
        yield secrets, name, _virtual(name, getattr(secrets, name), act)


class _Importing:
    """What the clocks and the chance that modules read while they are imported ask of a process: it begins at the
    beginning of the run, and moves on, as a module may wait for something."""

    name, number = "import", 1

    def __init__(self) -> None:
        self.world = SimpleNamespace(
            now=0, speaking="modules", chances={}, options=SimpleNamespace(seed=0)
        )
        self.node = SimpleNamespace(wall_jumps_us=0)

    def sleep(self, us: int) -> None:
        _SLEEP(us / 1_000_000)  # for a thread, say, that is real
        self.world.now += us


_INHERITED: Any = object()


def _put(stand_ins: Iterable[Double], replaced: list[Double]) -> None:
    for owner, name, stand_in in stand_ins:
        replaced.append((owner, name, vars(owner).get(name, _INHERITED)))
        setattr(owner, name, stand_in)


def _put_back(replaced: Sequence[Double]) -> None:
    for owner, name, real in reversed(replaced):
        if real is _INHERITED:
            delattr(owner, name)
        else:
            setattr(owner, name, real)


@contextmanager
def importing() -> Generator[None]:
    """While this lasts, modules that are imported read a virtual clock and a chance with a seed, so that each
    process of a campaign has the same. ``datetime`` stays the real class: a model or a table of types that has a
    stand-in for it would keep that for ever."""
    _hook()
    before = _now.importing
    replaced: list[Double] = []
    _now.importing = before or cast("Life", _Importing())
    try:
        _put((*_stand_ins(), *_opening()), replaced)
        yield
    finally:
        _put_back(replaced)
        _now.importing = before
        while _now.connected:
            _keep_database(_now.connected.pop())


def imported_virtually(path: str) -> Callable[..., object]:
    """What 'module:name' names; where its module is not loaded yet, that reads a virtual clock meanwhile."""
    if path.partition(":")[0] in sys.modules:
        return imported(path)
    with importing():
        return imported(path)


@contextmanager
def at_one_moment(modules: Iterable[ModuleType]) -> Generator[None]:
    """While this lasts, functions of these modules read the same clock and chance in each process, ``datetime``
    included. Nothing is imported meanwhile."""
    names = [(module, name) for module in modules for name in list(vars(module))]
    dates = [(module, name, _Datetime) for module, name in names if _is_datetime(module, name)]
    replaced: list[Double] = []
    with importing():
        try:
            _put([(datetime_module, "datetime", _Datetime), *dates], replaced)
            yield
        finally:
            _put_back(replaced)


def _is_datetime(module: ModuleType, name: str) -> bool:
    return vars(module)[name] is _REAL_DATETIME


@contextmanager
def sandboxed(
    modules: Iterable[ModuleType], speaking: Speaking, doubles: Iterable[Double] = ()
) -> Generator[list[Refusal]]:
    """While this lasts, what stages call of the standard library is virtual, or refused. Gives what was refused.

    ``modules``: those of the stages, where a name may have been imported from another one. ``doubles`` stand in
    for functions that stages call.
    """
    _hook()
    replaced: list[Double] = []
    before = _now.speaking, _now.refused
    _now.speaking, _now.refused = speaking, []
    writes_nothing = sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # of what a stage imports when it is called
    try:
        dates: Double = (datetime_module, "datetime", _Datetime)
        stand_ins: list[Double] = [*_stand_ins(), dates, *doubles]
        by_real = {
            id(vars(owner).get(name, _INHERITED)): stand_in for owner, name, stand_in in stand_ins
        }
        for module in modules:
            for name, value in list(vars(module).items()):
                _keep(value)  # where it was imported before anything was simulated
                if id(value) in by_real:
                    stand_ins.append((module, name, by_real[id(value)]))
        _put(stand_ins, replaced)
        with watched(_progress, _hung, Hang):
            yield _now.refused
    finally:
        _put_back(replaced)
        _now.speaking, _now.refused = before
        sys.dont_write_bytecode = writes_nothing


# What does not come back.


def _progress() -> object:
    """Where the user's code is that runs now: a call that goes on for ever stays at one event."""
    life = _now.speaking()
    return None if life is None else (life, life.world.events, len(life.world.rows))


def _hung(frame: FrameType) -> str:
    place, function = _place(frame)
    blocks_its_loop = any(
        one.f_code.co_flags & inspect.CO_COROUTINE for one, _ in traceback.walk_stack(frame)
    )
    advice = _BLOCKED_LOOP if blocks_its_loop else _ENDLESS
    _now.refused.append(Refusal("has not come back from a call", place, function, advice))
    return str(_now.refused[-1])


_ENDLESS = (
    "it loops without end, or waits for what nobody gives it, a lock that it holds itself, say; if it is only "
    "slow, simulate it on a smaller input, or give it a double (simulate: replace)"
)
_BLOCKED_LOOP = (
    "a coroutine that does not come back holds up its event loop, and so all other calls, also in a real run: a "
    "lock of threads that is held over an await is never given back. Take asyncio.Lock, or give it back before "
    "the await"
)


# What is refused.

_REFUSED = {
    "socket.__new__": "opens a socket",
    "socket.connect": "connects to a server",
    "socket.getaddrinfo": "asks for an address",
    "socket.gethostbyname": "asks for an address",
    "socket.gethostbyaddr": "asks for an address",
    "builtins.input": "reads from the terminal",
    "subprocess.Popen": "starts a process",
    "os.system": "starts a process",
    "os.fork": "starts a process",
    "os.posix_spawn": "starts a process",
    "os.exec": "starts a process",
    "os.kill": "sends a signal",
    "os.killpg": "sends a signal",
    "os.forkpty": "starts a process",
    "signal.pthread_kill": "sends a signal",
    "_thread.start_new_thread": STARTS_A_THREAD,
    "_thread.start_joinable_thread": STARTS_A_THREAD,
    "os.chdir": "changes the current folder",
    "os.remove": "removes a file",
    "os.rename": "renames a file",
    "os.truncate": "cuts a file",
    "os.link": "links a file",
    "os.symlink": "links a file",
    "os.mkdir": "makes a folder",
    "os.rmdir": "removes a folder",
    "shutil.rmtree": "removes a folder",
    "surepipe.connection": "uses SQL on its transaction's connection",
}
_CONNECTED = "sqlite3.connect/handle"
_WATCHED = frozenset({*_REFUSED, "open", "sqlite3.connect", _CONNECTED})
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def _hook() -> None:
    """Once for each process: an audit hook can't be taken away again, so it looks first whether a stage runs."""
    if not _now.is_hooked:
        _now.is_hooked = True
        sys.addaudithook(partial(_audit, _now, _WATCHED))


def _audit(now: _Current, audited: frozenset[str], event: str, args: tuple[Any, ...]) -> None:
    # An interpreter that ends takes the names of this module away and goes on asking: so both are handed in.
    if event not in audited:
        return
    if now.speaking() is None:
        if event == _CONNECTED and now.importing is not None:
            now.connected.append(args[0])
        return
    if event in _REFUSED:
        if args[-1:] != (_WAKES,):  # by who watches, from a thread of its own
            _refuse(_REFUSED[event])
    elif event == "open" and args[0] != os.devnull and _is_writing(args):
        _refuse(f"writes to the file {args[0]}")
    elif event == "sqlite3.connect" and not _is_harmless(str(args[0])):
        _refuse(f"opens the database {args[0]}")


def _is_writing(args: tuple[Any, ...]) -> bool:
    flags = args[2] if len(args) > 2 else 0
    return isinstance(flags, int) and bool(flags & _WRITES)


def _is_harmless(database: str) -> bool:
    """One of memory, or only to be read."""
    is_uri = database.startswith("file:")
    return database in ("", ":memory:") or (
        is_uri and any(word in database for word in ("mode=ro", "mode=memory", "immutable=1"))
    )


# What modules have opened while they were imported, when nothing was refused: stages may read it.


def _keep(value: object) -> None:
    if isinstance(value, sqlite3.Connection):
        _keep_database(value)
    elif isinstance(value, io.IOBase) and _is_written_on_disk(value):
        _keep_file(value)


def _is_written_on_disk(file: io.IOBase) -> bool:
    """And not in memory, or to the terminal."""
    name = str(getattr(file, "name", ""))
    return not file.closed and file.writable() and os.path.isfile(name)


_PACKING: list[ModuleType] = []
for _name in ("gzip", "bz2", "lzma"):
    with suppress(ImportError):  # not every Python was built with each
        _PACKING.append(import_module(_name))


def _opening() -> Iterator[Double]:
    """While modules are imported: what opens files, also by a path, as temporary ones, or packed."""
    for module in (builtins, io, sys.modules["_io"], *_PACKING):
        yield module, "open", partial(_opened, vars(module)["open"])


def _opened(real: Callable[..., Any], *args: Any, **named: Any) -> Any:
    file = real(*args, **named)
    if _now.importing is None:  # of a module that has kept this function under a name of its own
        return file
    if file.writable() and args[:1] != (os.devnull,):
        _keep_file(file)
    return file


def _keep_file(file: Any) -> None:
    """Its own methods, as a module may hand one of them on: ``csv.writer`` asks for ``write`` once."""
    name = getattr(file, "name", "that it has packed")
    for layer in filter(None, (file, getattr(file, "buffer", None))):
        for how in ("write", "writelines", "truncate"):
            if how not in vars(layer):
                setattr(layer, how, partial(_unless_simulated, name, getattr(layer, how)))


def _unless_simulated(file: object, act: Callable[..., Any], *args: Any) -> Any:
    if _now.speaking() is not None:
        _refuse(f"writes to the file {file}")
    return act(*args)


_WRITE = os.write


def _write(number: int, data: Any) -> int:
    """A file that was opened without Python's own; 1 and 2 are where a library in C prints."""
    is_file = number > 2 and stat.S_ISREG(os.fstat(number).st_mode)
    if _now.speaking() is not None and is_file:
        _refuse("writes to a file that was opened before")
    return _WRITE(number, data)


_BOUND_ELSEWHERE = (" is bound to a different event loop", " attached to a different loop")
"""So ends what asyncio says of a lock that another loop has used, and of a future."""
_HANDLE = logging.Handler.handle
_OUTSIDE = (
    *(logging.FileHandler, logging.handlers.SocketHandler, logging.handlers.SysLogHandler),
    *(logging.handlers.HTTPHandler, logging.handlers.SMTPHandler),
)


def _handle(handler: logging.Handler, record: logging.LogRecord) -> bool | logging.LogRecord:
    """What is logged while stages are simulated goes to no file and no server; that is no defect of theirs."""
    stream = getattr(handler, "stream", None)
    kept = getattr(stream, "__dict__", {}).get("write")
    is_kept = isinstance(kept, partial) and kept.func is _unless_simulated
    if _now.importing is None and (is_kept or isinstance(handler, _OUTSIDE)):
        return False
    return _HANDLE(handler, record)


_CHANGES_NOTHING = frozenset(
    (
        *(sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION),
        *(sqlite3.SQLITE_RECURSIVE, sqlite3.SQLITE_PRAGMA, sqlite3.SQLITE_TRANSACTION),
        sqlite3.SQLITE_SAVEPOINT,
    )
)
_CONNECT = sqlite3.connect


def _connect(*args: Any, **named: Any) -> sqlite3.Connection:
    connection: sqlite3.Connection = _CONNECT(*args, **named)
    if _now.speaking() is not None:
        _keep_database(connection)
    return connection


def _keep_database(connection: sqlite3.Connection) -> None:
    """Stages change nothing on the disk by it; also what was prepared before asks ``may`` from here on."""
    try:
        rows = connection.execute("PRAGMA database_list").fetchall()
    except sqlite3.Error:  # it was closed again
        return
    files = {name: file for _, name, file in rows if file}

    def may(action: int, *of: str | None) -> int:
        """Asked for each part of a statement; what it raises is a no."""
        if _now.speaking() is None or action in _CHANGES_NOTHING:
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_ATTACH and (of[0] is None or not _is_harmless(of[0])):
            _refuse(f"opens the database {of[0]}" if of[0] else "opens a database")
        for file in (files[name] for name in of if name in files):
            _refuse(f"changes the database {file}")
        return sqlite3.SQLITE_OK

    connection.set_authorizer(may)


def _refuse(what: str) -> None:
    speaking = _now.speaking
    life = speaking()
    _now.speaking = lambda: None  # what follows opens source files itself
    try:
        stage = f"within {life.world.speaking}" if life else "while modules are imported"
        place, function = _place(otherwise=stage)
        refusal = Refusal(what, place, function)
        if refusal not in _now.refused:  # a stage may go on, and do it for each message
            _now.refused.append(refusal)
    finally:
        _now.speaking = speaking
    raise Slip(str(refusal))


def is_of_another_loop(error: BaseException) -> bool:
    """What a stage waited by is not of its process. That is refused: no attempt and no process would do better."""
    text = without_addresses(words_of(error)) if isinstance(error, RuntimeError) else ""
    if not text.endswith(_BOUND_ELSEWHERE):
        return False
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    place, function = _place(next((one for one in frames[::-1] if _is_of_user(one)), None))
    what = (
        f"waits by something of another event loop than that of its process ({text}): it was used in one that ran "
        "while its module was imported, say, and fails in a run as well, as soon as somebody else has it"
    )
    _now.refused.append(Refusal(what, place, function))
    return True


def _is_of_user(frame: FrameType) -> bool:
    return is_users(frame.f_code.co_filename)


def running_at() -> str:
    """File and line of the user's code that is running, of the file the name alone."""
    return os.path.basename(_place()[0])


def _place(
    running: FrameType | None = None, otherwise: str = "an unknown place"
) -> tuple[str, str]:
    """File, line and function of the user's code that is running, or has made the task that is."""
    for frame, line in traceback.walk_stack(running):
        file = frame.f_code.co_filename
        if is_users(file):
            module = cast("str", frame.f_globals.get("__name__", ""))
            name = frame.f_code.co_qualname.removesuffix(".__init__")  # a class is replaced whole
            return f"{file}:{line}", f"{module}:{name}"
    return _task_made_at() or (otherwise, "")


def _task_made_at() -> tuple[str, str] | None:
    """``asyncio.create_task(asyncio.to_thread(...))``: all that runs in such a task is Python's own."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no loop runs in this thread
        return None
    for file, line, name in getattr(task.get_coro() if task else None, "cr_origin", None) or ():
        if is_users(file):
            modules = [
                key for key, one in sys.modules.items() if getattr(one, "__file__", "") == file
            ]
            is_known = modules and hasattr(
                sys.modules[modules[0]], name
            )  # a method is not, by its name alone
            return f"{file}:{line}", f"{modules[0]}:{name}" if is_known else ""
    return None
