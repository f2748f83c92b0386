"""Power cuts: the servers' files lie on a disk that forgets what was not synced.

Where a store claims level ``power`` nothing that it acknowledged may be gone. Where it claims less, or the disk
lies, the loss must be *seen* here: otherwise the zero of the first kind would prove nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import cast

from surepipe.core.store_requests import (
    KEEP_ALL,
    Batch,
    Created,
    ProducerOpened,
    ReadOutcome,
    Stored,
    Unavailable,
)
from surepipe.storage import Level, RedisStore, SqliteStore, Store
from surepipe.storage.redis.link import RedisLimits
from surepipe.testing.forgetful import PowerDisk, why_no_power_cuts
from surepipe.testing.servers import RedisServer
from tests.real.ground import a_server, no_redis
from tests.real.stage import Stage, Tally
from tests.real.workers import PATIENCE_S, Worker

CUTS = 20
_STREAM, _PRODUCER = "s", "p"
_QUICK = RedisLimits(connect_s=5, answer_s=5, pause_min_s=0.005, pause_max_s=0.02)


@dataclass(frozen=True)
class Mode:
    """A store and how it syncs, on an honest disk or not; whether losses must never be, or must be seen."""

    name: str
    fsync: str = ""
    level: Level = Level.POWER
    lies: bool = False

    @property
    def keeps(self) -> bool:
        """Whether what was acknowledged must be there after a cut."""
        return self.level is Level.POWER and not self.lies


REDIS = (
    Mode("redis always", "always"),
    Mode("redis everysec", "everysec", Level.INTERVAL),
    Mode("redis no", "no", Level.INTERVAL),
    Mode("redis always on a lying disk", "always", lies=True),
)
SQLITE = (
    Mode("sqlite FULL"),
    Mode("sqlite NORMAL", level=Level.PROCESS),
    Mode("sqlite FULL on a lying disk", lies=True),
)


def run(rng: Random, tally: Tally) -> None:
    """Every mode in turn, on one disk."""
    with PowerDisk() as disk, Worker("writer") as writer:
        for mode in (*REDIS, *SQLITE):
            lost = 0
            for number in range(CUTS):
                with tally.timed(f"{mode.name} {number}"):
                    lost += Trial(mode, number, disk, rng, tally).run(writer)
                tally.add(f"cuts of {mode.name}")
            _judge(mode, lost, tally)


def _judge(mode: Mode, lost: int, tally: Tally) -> None:
    tally.add(f"lost by {mode.name}", lost)
    if mode.keeps:
        assert not lost, f"{mode.name}: {lost} acknowledged messages are gone after power cuts"
    else:
        assert lost, f"{mode.name}: no loss was seen, so this stage can't see any"


@dataclass
class Trial:
    """A store in a folder of its own, one writer, one cut at a drawn moment."""

    mode: Mode
    number: int
    disk: PowerDisk
    rng: Random
    tally: Tally

    def run(self, writer: Worker) -> int:
        """How many acknowledged messages are gone."""
        place = self.disk.directory / f"{self.mode.name.replace(' ', '-')}-{self.number}"
        place.mkdir()
        return self._under_redis(place) if self.mode.fsync else self._under_sqlite(place, writer)

    def _under_redis(self, place: Path) -> int:
        """The server dies with the power."""
        with ExitStack() as stack:
            server = a_server(self.number).server(appendonly="yes", appendfsync=self.mode.fsync)
            self.tally.note(server.binary.name)
            server.directory = place
            stack.enter_context(server)
            store = RedisStore.from_url(server.url, pipeline="power", limits=_QUICK)
            stack.callback(store.close)
            assert isinstance(store.create(_STREAM, 1, KEEP_ALL), Created)
            assert store.level is self.mode.level, f"{self.mode.name} has level {store.level}"
            self._begin()
            acknowledged = _write_until_killed(store, server, self.rng)
            self._cut(acknowledged)
            server.start()
            return _lost(store, acknowledged)

    def _under_sqlite(self, place: Path, writer: Worker) -> int:
        """The process that writes dies with the power, and another one looks."""
        path = place / "stream.db"
        with SqliteStore(path, level=self.mode.level) as store:
            assert isinstance(store.create(_STREAM, 1, KEEP_ALL), Created)
        self._begin()
        writer.play(
            "append",
            where=str(path),
            level=self.mode.level.name,
            seed=self.rng.getrandbits(32),
        )
        writer.wait_for("stored", self.rng.randint(5, 40))
        writer.kill()
        acknowledged = cast("int", writer.last["stored"]["last"])
        self._cut(acknowledged)
        with SqliteStore(path, level=self.mode.level) as store:
            return _lost(store, acknowledged)

    def _begin(self) -> None:
        """What is there now is safe; from now on the disk is as the mode says."""
        self.disk.settle()
        self.disk.lie(on=self.mode.lies)

    def _cut(self, acknowledged: int) -> None:
        """Sometimes the beginning of what was not synced has got through; a torn record is among it."""
        keep = 0 if self.mode.lies else self.rng.choice([0, self.rng.randint(1, 4000)])
        self.disk.cut(keep)
        self.disk.lie(on=False)
        self.tally.add("acknowledged", acknowledged)


class _Writer(threading.Thread):
    """Appends as fast as it can, and counts what was acknowledged."""

    def __init__(self, store: Store, sizes: Sequence[int]) -> None:
        super().__init__(daemon=True)
        self.acknowledged = 0
        self.progress = threading.Semaphore(0)
        self.trouble: object = None
        self._store = store
        self._sizes = sizes

    def run(self) -> None:
        while True:
            first = self.acknowledged + 1
            count = self._sizes[first % len(self._sizes)]
            payloads = [f"m{first + n}".encode() for n in range(count)]
            outcome = self._store.append(_STREAM, _PRODUCER, 1, first, payloads)
            if not isinstance(outcome, Stored):
                self.trouble = outcome
                return
            self.acknowledged = outcome.last
            self.progress.release()


def _write_until_killed(store: Store, server: RedisServer, rng: Random) -> int:
    writer = _Writer(store, [rng.randint(1, 20) for _ in range(7)])
    writer.start()
    for _ in range(rng.randint(5, 40)):
        assert writer.progress.acquire(timeout=PATIENCE_S), f"the writer stands: {writer.trouble}"
    server.kill()
    writer.join(PATIENCE_S)
    assert isinstance(writer.trouble, Unavailable), writer.trouble
    return writer.acknowledged


def _lost(store: Store, acknowledged: int) -> int:
    """What is left is a beginning of what was written, each message once; how many are missing of it."""
    index = 1
    while isinstance(found := _read(store, index), Batch):
        for entries in found.entries:
            expected = [f"m{entries.first + n}".encode() for n in range(len(entries.payloads))]
            assert entries.first == entries.index, "indexes and numbers run apart"
            assert list(entries.payloads) == expected, "a payload is not what was written"
        index = found.next
    opened = store.open_producer(_STREAM, _PRODUCER, 1, 1)
    assert isinstance(opened, ProducerOpened)
    assert opened.last == index - 1, f"the stream has {index - 1} messages and says {opened.last}"
    return max(0, acknowledged - opened.last)


def _read(store: Store, index: int) -> ReadOutcome:
    while isinstance(found := store.read(_STREAM, index, 1000, 1 << 20), Unavailable):
        continue
    return found


def needs() -> str:
    """A disk to forget, and a server to suffer."""
    return why_no_power_cuts() or no_redis()


STAGE = Stage(
    "cuts",
    "power",
    run,
    {f"cuts of {mode.name}": CUTS for mode in (*REDIS, *SQLITE)},
    needs,
    omits="sectors that are torn in the middle of synced data",
)
