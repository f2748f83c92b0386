"""One seeded schedule of faults for real things: connections, stores and processes of a test.

    with RealFaults(seed=7) as faults:
        proxy = faults.route(server.url)                 # a FaultProxy with weather of its own
        store = faults.wrap(SqliteStore(path))           # calls fail now and then
        faults.pause(worker)                             # now, for a drawn while
        faults.crash(worker)                             # after a drawn while
        ...
        faults.heal()                                    # now everything must come to its end

The seed repeats what is done and after how long, not what the processes make of it. ``str(faults)`` has it, for
the message of a test that fails.
"""

from __future__ import annotations

import difflib
import heapq
import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from types import TracebackType
from typing import Protocol

from surepipe.core.store_requests import Store
from surepipe.errors import ConfigurationError, MisuseError
from surepipe.simulation.faults import chosen as chosen_in_simulations
from surepipe.simulation.faults import words_of_faults
from surepipe.storage.faulty import FaultyStore, Rates
from surepipe.testing.proxy import CLEAR, FaultProxy, Toward, Weather

# What a proxy is told to do, one thing after the other, drawn from a seed: the storms of fault tests.
#
# for gust in draw_gusts(seed=7, count=5): gust.blow(proxy) ... # some work proxy.clear()
#
# Like every schedule against real processes it repeats what is done, not what comes of it.


class GustKind(StrEnum):
    """What a gust does."""

    DELAY = "delay"
    SLOW = "slow"
    SLICES = "slices"
    BLACK_HOLE = "black-hole"
    RESET = "reset"
    CUT = "cut"
    LOST_REPLY = "lost-reply"
    REFUSED = "refused"
    CALM = "calm"


STORMY: tuple[GustKind, ...] = tuple(kind for kind in GustKind if kind is not GustKind.CALM)


def gust_kinds(given: str | Collection[str]) -> tuple[GustKind, ...]:
    """The kinds that these words name: a list, or a text with commas; ``claim`` is all of them.

    Raises ConfigurationError for a word that is none of them, and MisuseError for what is no words.
    """
    words = words_of_faults(given)
    return STORMY if words == ("claim",) else tuple(map(_gust_kind, words))


def _gust_kind(word: str) -> GustKind:
    try:
        return GustKind(word)
    except ValueError:
        close = difflib.get_close_matches(word, [*GustKind, "claim"], n=1)
        meant = f"did you mean {str(close[0])!r}? " if close else ""
        raise ConfigurationError(
            f"{word!r} is nothing that a connection suffers: {_elsewhere(word)}{meant}"
            f"{'K' if meant else 'k'}nown are claim (all of them), {', '.join(GustKind)}"
        ) from None


def _elsewhere(word: str) -> str:
    """Where a word is known that is none here."""
    try:
        chosen_in_simulations([word])
    except ConfigurationError:
        return ""
    return (
        "it is a word of simulate(faults=...), and real stores and processes suffer where they are given, to "
        ".wrap(store), .crash(process) and .pause(process); "
    )


@dataclass(frozen=True, slots=True)
class Gust:
    """One thing to do to a proxy. ``amount`` is in the unit of its kind: milliseconds, bytes, or replies."""

    kind: GustKind
    toward: Toward
    amount: int

    def __str__(self) -> str:
        return f"{self.kind} toward {self.toward} by {self.amount}"

    def blow(self, proxy: FaultProxy, *, command: bytes = b"") -> None:
        """Do it. ``command``: which commands' replies may be lost."""
        match self.kind:
            case GustKind.RESET:
                proxy.reset()
            case GustKind.CUT:
                proxy.cut_after(self.amount, self.toward)
            case GustKind.LOST_REPLY:
                proxy.lose_reply(to=command, after=self.amount % 4)
            case GustKind.REFUSED:
                proxy.refuse()
                proxy.reset()
            case GustKind.CALM:
                proxy.clear()
            case _:
                self._change(proxy)

    def _change(self, proxy: FaultProxy) -> None:
        weather = self._weather()
        if self.toward is Toward.SERVER:
            proxy.weather(to_server=weather, to_client=CLEAR)
        else:
            proxy.weather(to_server=CLEAR, to_client=weather)

    def _weather(self) -> Weather:
        match self.kind:
            case GustKind.DELAY:
                return Weather(delay_s=self.amount / 20_000, jitter_s=self.amount / 10_000)
            case GustKind.SLOW:
                return Weather(bytes_per_s=20_000 + 1_000 * self.amount)
            case GustKind.SLICES:
                return Weather(slice_max=1 + self.amount)
            case _:
                return Weather(black_hole=True)


def draw_gusts(seed: int, count: int, kinds: Sequence[GustKind] = STORMY) -> list[Gust]:
    """So many gusts: the same for the same seed."""
    rng = Random(seed)
    return [
        Gust(rng.choice(kinds), rng.choice(list(Toward)), rng.randint(0, 200)) for _ in range(count)
    ]


_WITHIN_S = 30.0
_GUST_S = (0.02, 0.2)
_CALM_S = (0.05, 0.5)
_CRASH_S = (0.0, 0.5)
_PAUSE_S = (0.05, 1.0)
_RATE_MAX = 0.05


class HasPid(Protocol):
    """A process: of ``subprocess``, of ``multiprocessing``, or any object with a pid."""

    @property
    def pid(self) -> int | None:
        """Its number; None before it was started."""
        ...


class RealFaults:
    """See the module. Use it in a ``with`` block: at its end all weather is fair, and nothing is paused.

    ``kinds``: which gusts connections suffer, see ``gust_kinds``, which says what is raised for others. Each
    route, store and process draws from a generator of its own, so another one changes nothing for those before it.
    """

    def __init__(self, seed: int, kinds: str | Collection[str] = STORMY) -> None:
        self.seed = seed
        self.kinds = gust_kinds(kinds)
        self._numbers = itertools.count(1)
        self._orders = itertools.count()
        self._wake = threading.Condition(threading.RLock())
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._proxies: list[FaultProxy] = []
        self._stores: list[FaultyStore] = []
        self._paused: set[int] = set()
        self._is_over = False
        self._is_healed = False
        self._thread = threading.Thread(target=self._run, name=f"faults {seed}", daemon=True)
        self._thread.start()

    def __str__(self) -> str:
        return f"faults of seed {self.seed}"

    # What may suffer.

    def route(self, address: str | tuple[str, int]) -> FaultProxy:
        """A started proxy to this address, with gusts and calms in turn until ``heal``; ended with us."""
        rng = self._generator("route")
        proxy = FaultProxy(address, seed=rng.getrandbits(32)).start()
        self._proxies.append(proxy)
        self._later(rng.uniform(*_CALM_S), lambda: self._blow(proxy, rng))
        return proxy

    def wrap(self, store: Store) -> FaultyStore:
        """The store, but calls are not done, or done and not answered, at drawn rates until ``heal``."""
        rng = self._generator("store")
        rates = Rates(
            outage=rng.uniform(0, _RATE_MAX), unknown=rng.uniform(0, _RATE_MAX), outage_calls_max=5
        )
        wrapped = FaultyStore(store, rates=rates, seed=rng.getrandbits(32))
        self._stores.append(wrapped)
        return wrapped

    def crash(self, process: HasPid) -> None:
        """SIGKILL after a drawn while, if it still runs then. To start it again is the test's part."""
        pid = _pid_of(process)
        self._later(self._generator("crash").uniform(*_CRASH_S), lambda: _tell(pid, signal.SIGKILL))

    def pause(self, process: HasPid) -> None:
        """SIGSTOP now, SIGCONT after a drawn while."""
        pid = _pid_of(process)
        self._paused.add(pid)
        _tell(pid, signal.SIGSTOP)
        self._later(self._generator("pause").uniform(*_PAUSE_S), lambda: self._resume(pid))

    def heal(self) -> None:
        """From now on nothing goes wrong: fair weather, stores as they are, everybody awake, no crash to come."""
        with self._wake:
            self._is_healed = True
            self._due.clear()
            for proxy in self._proxies:
                proxy.clear()
            for store in self._stores:
                store.rates = Rates()
            for pid in list(self._paused):
                self._resume(pid)

    def close(self) -> None:
        """Heal, and end the proxies. A second call does nothing."""
        if self._is_over:
            return
        self.heal()
        with self._wake:
            self._is_over = True
            self._wake.notify()
        self._thread.join(_WITHIN_S)
        for proxy in self._proxies:
            proxy.close()

    def __enter__(self) -> RealFaults:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if error is not None:
            error.add_note(str(self))
        self.close()

    # The schedule.

    def _generator(self, what: str) -> Random:
        return Random(f"{self.seed} {what} {next(self._numbers)}")

    def _later(self, after_s: float, act: Callable[[], None]) -> None:
        with self._wake:
            if not self._is_healed:
                at = time.monotonic() + after_s
                heapq.heappush(self._due, (at, next(self._orders), act))
                self._wake.notify()

    def _run(self) -> None:
        with self._wake:
            while not self._is_over:
                if self._due and self._due[0][0] <= time.monotonic():
                    heapq.heappop(self._due)[2]()
                else:
                    left = self._due[0][0] - time.monotonic() if self._due else None
                    self._wake.wait(left)

    def _blow(self, proxy: FaultProxy, rng: Random) -> None:
        (gust,) = draw_gusts(rng.getrandbits(32), 1, self.kinds)
        gust.blow(proxy)
        self._later(rng.uniform(*_GUST_S), lambda: self._calm(proxy, rng))

    def _calm(self, proxy: FaultProxy, rng: Random) -> None:
        proxy.clear()
        self._later(rng.uniform(*_CALM_S), lambda: self._blow(proxy, rng))

    def _resume(self, pid: int) -> None:
        self._paused.discard(pid)
        _tell(pid, signal.SIGCONT)


def _pid_of(process: HasPid) -> int:
    if process.pid is None:
        raise MisuseError("the process was not started yet, so nothing can happen to it")
    return process.pid


def _tell(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # it has ended by itself
        os.kill(pid, number)
