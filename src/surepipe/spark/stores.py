"""Where a store is, as a small value: it travels to executors, and each process opens the store once.

A place is written as text, too, for options of Spark and on command lines: ``redis://host:6379/0``,
``rediss://...``, ``unix://...``, or the path of a SQLite file.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, cast

from surepipe.core.store_requests import Failed, Level, Owner, Position, Unavailable
from surepipe.errors import ConfigurationError, Fenced, StoreUnavailable
from surepipe.storage import SqliteStore
from surepipe.storage.positions import Claims
from surepipe.storage.redis.keys import Spread

if TYPE_CHECKING:
    from surepipe.storage.redis.store import RedisStore

OpenStore: TypeAlias = "RedisStore | SqliteStore"
ATTEMPTS = 20
"""How often an unanswered call is made. The stores pause between attempts, so it is about half a minute."""

T = TypeVar("T")
_REDIS = re.compile(r"(redis|rediss|unix)://")
_LEVELS: Final = {level.name.lower(): level for level in Level}


@dataclass(frozen=True, slots=True)
class StorePlace:
    """How any process opens one store. Equal places share one open store in a process."""

    where: str = field(repr=False)
    """A Redis URL, or the path of a SQLite file. It may hold a password: never shown whole."""
    pipeline: str = ""
    """The name that all keys on a Redis server carry; not used by SQLite."""
    spread: Spread = "pipeline"
    level: str | None = None
    """``none``, ``interval``, ``process`` or ``power``; None: as the store says."""
    replicas: int = 0
    answer_s: float = 5.0

    def __post_init__(self) -> None:
        if not self.where:
            raise ConfigurationError(
                "a store's place is empty: write redis://host:6379/0 or the path of a SQLite file"
            )
        if self.is_redis and not self.pipeline:
            raise ConfigurationError(
                f"the store on {self.name} needs the pipeline's name, which all of its keys carry: give pipeline"
            )
        if self.level is not None and self.level not in _LEVELS:
            raise ConfigurationError(f"level is {self.level!r}: write one of {', '.join(_LEVELS)}")
        if self.spread not in ("pipeline", "stream"):
            raise ConfigurationError(f"spread is {self.spread!r}: write pipeline or stream")

    @property
    def is_redis(self) -> bool:
        """True for a Redis server, which executors on other machines can reach."""
        return bool(_REDIS.match(self.where))

    @property
    def name(self) -> str:
        """For people: without the password."""
        return re.sub(r"//[^/@]*@", "//", self.where)

    def __str__(self) -> str:
        return f"{self.name} ({self.pipeline})" if self.is_redis else self.name

    def options(self) -> dict[str, str]:
        """The place as options of the data source (``of_options`` takes them back)."""
        found = {
            "store": self.where,
            "pipeline": self.pipeline,
            "spread": self.spread,
            "level": self.level or "",
            "replicas": str(self.replicas),
            "answer_s": str(self.answer_s),
        }
        return {name: value for name, value in found.items() if value}

    @classmethod
    def of_options(cls, options: Mapping[str, str]) -> StorePlace:
        """The place that these options name. Raises ConfigurationError."""
        if not options.get("store"):
            raise ConfigurationError(
                "option store is missing: write redis://host:6379/0 or the path of a SQLite file"
            )
        try:
            return cls(
                options["store"],
                options.get("pipeline", ""),
                cast("Spread", options.get("spread", "pipeline")),
                options.get("level") or None,
                int(options.get("replicas", "0")),
                float(options.get("answer_s", "5")),
            )
        except ValueError as error:
            raise ConfigurationError(f"an option of the store is no number: {error}") from None

    def store(self) -> OpenStore:
        """The store, opened once per process and then kept. Raises ConfigurationError, StoreUnavailable."""
        with _lock:
            key = (os.getpid(), self)  # connections don't survive the fork that makes a worker
            known = _open.get(key)
            if known is None or known.closed:
                known = _open[key] = self._opened()
            return known

    def _opened(self) -> OpenStore:
        if not self.is_redis:
            return SqliteStore(self.where, level=_LEVELS[self.level or "power"])
        # Each query of Spark starts processes of its own, and the client of Redis takes 0.2 s of each.
        from surepipe.storage.redis.link import RedisLimits  # noqa: PLC0415
        from surepipe.storage.redis.store import RedisStore  # noqa: PLC0415

        return RedisStore.from_url(
            self.where,
            pipeline=self.pipeline,
            spread=self.spread,
            level=_LEVELS[self.level] if self.level else None,
            replicas=self.replicas,
            limits=RedisLimits(answer_s=self.answer_s),
        )


_open: dict[tuple[int, StorePlace], OpenStore] = {}
_lock = threading.Lock()


def asked(call: Callable[[], T | Unavailable | Failed], what: str, place: StorePlace) -> T:
    """What a call answers, made again while the store is unavailable (so it must be safe to repeat).

    ``what`` says what is asked, for people. Raises StoreUnavailable when the store stays away,
    ConfigurationError when it says that asking again will not help.
    """
    outcome = call()
    for _ in range(ATTEMPTS - 1):
        if not isinstance(outcome, Unavailable):
            break
        outcome = call()
    if isinstance(outcome, Unavailable):
        raise StoreUnavailable(f"{what} in {place}: {outcome.detail}; start the store again")
    if isinstance(outcome, Failed):
        raise ConfigurationError(f"{what} in {place}: {outcome.reason}")
    return outcome


# Taking over a position by intent: each attempt at a task, and each query, is a life of its own.


BEGINNINGS = 5
"""How often a life is begun anew when another one began in the same millisecond."""


def claimed(place: StorePlace, stream: str, reader: str, what: str) -> int:
    """The owner's number under which the caller may commit from now on, until somebody else claims.

    Raises Fenced when others do so again and again at this very moment, StoreUnavailable and ConfigurationError as
    ``asked``.
    """
    for _ in range(BEGINNINGS):
        claims = Claims(place.store())
        outcome = asked(partial(claims.claim, stream, reader, 1), what, place)
        if isinstance(outcome, Owner):
            return outcome.number
    raise Fenced(f"{what} in {place}: others claim it at this moment; this one stops")


def stored_position(place: StorePlace, stream: str, reader: str, what: str) -> Position | None:
    """Where a reader stands; None when it never committed. Raises as ``asked``."""
    store = place.store()
    outcome = asked(partial(store.get, stream, reader), what, place)
    return outcome if isinstance(outcome, Position) else None
