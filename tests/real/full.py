"""The disk is full: refused and told, nothing acknowledged lost, and it goes on once there is space."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

from surepipe.core.store_requests import KEEP_ALL, Failed, ProducerOpened, Stored, Unavailable
from surepipe.storage import Level, RedisStore, SqliteStore, Store
from surepipe.storage.redis.link import RedisLimits
from tests.real.ground import a_server, no_redis
from tests.real.stage import Stage, Tally

EACH = 10
_SIZE = "3m"
_PAYLOAD = b"x" * 2000
_TRIES = 2000
_QUICK = RedisLimits(connect_s=2, answer_s=2, pause_min_s=0.005, pause_max_s=0.02)


class SmallDisk:
    """A file system in memory of few megabytes, and a file that takes what is left of them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._filler = directory / "filler"

    def fill(self) -> None:
        """Take all the space."""
        with suppress(OSError), self._filler.open("ab", buffering=0) as file:
            while file.write(bytes(4096)):
                continue

    def free(self) -> None:
        """Give it back."""
        self._filler.unlink()


@contextmanager
def small_disk() -> Generator[SmallDisk]:
    """Mounted for the block."""
    with tempfile.TemporaryDirectory(prefix="surepipe-small-") as folder:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_SIZE}", "tmpfs", folder], check=True)
        try:
            yield SmallDisk(Path(folder))
        finally:
            subprocess.run(["umount", "-l", folder], check=True)


def run(rng: Random, tally: Tally) -> None:
    """Redis that syncs every second refuses writes; SQLite refuses the statement."""
    del rng
    for number in range(EACH):
        with small_disk() as disk, tally.timed(f"sqlite {number}"):
            _sqlite_trial(disk, tally)
        with small_disk() as disk, tally.timed(f"redis {number}"):
            _redis_trial(number, disk, tally)


def _sqlite_trial(disk: SmallDisk, tally: Tally) -> None:
    with SqliteStore(disk.directory / "stream.db", level=Level.POWER) as store:
        _trial(store, disk, tally)
    tally.add("full under sqlite")


def _redis_trial(number: int, disk: SmallDisk, tally: Tally) -> None:
    server = a_server(number).server(appendonly="yes", appendfsync="everysec")
    server.directory = disk.directory
    with server:
        store = RedisStore.from_url(server.url, pipeline="full", limits=_QUICK)
        _trial(store, disk, tally)
        store.close()
    tally.add("full under redis")


def _trial(store: Store, disk: SmallDisk, tally: Tally) -> None:
    store.create("s", 1, KEEP_ALL)
    stored = _append_until_refused(store, 0, 20)[0]
    disk.fill()
    stored, refused = _append_until_refused(store, stored, _TRIES)
    assert isinstance(refused, Unavailable | Failed), "a full disk went unnoticed"
    said = _reason(refused).partition(": ")[2]
    tally.note(f"told: {said.partition(';')[0]!r}")
    disk.free()
    _append_again(store, stored + 1)
    opened = store.open_producer("s", "p", 1, 1)
    assert isinstance(opened, ProducerOpened)
    assert opened.last == stored + 1, f"{opened.last} stored of {stored + 1} acknowledged"


def _append_again(store: Store, number: int) -> None:
    """There is space again: it goes on before long."""
    outcome: object = None
    for _ in range(_TRIES):
        outcome = store.append("s", "p", 1, number, [_PAYLOAD])
        if isinstance(outcome, Stored):
            return
        os.sched_yield()
    raise AssertionError(f"it does not go on when there is space again: {outcome}")


def _append_until_refused(store: Store, stored: int, most: int) -> tuple[int, object]:
    """So many appends at most; the last number stored, and what was said instead of storing one."""
    for _ in range(most):
        outcome = store.append("s", "p", 1, stored + 1, [_PAYLOAD])
        if not isinstance(outcome, Stored):
            return stored, outcome
        stored = outcome.last
    return stored, None


def _reason(outcome: Unavailable | Failed) -> str:
    return outcome.detail if isinstance(outcome, Unavailable) else outcome.reason


def needs() -> str:
    """The right to mount, and a server."""
    return no_redis() or ("" if os.geteuid() == 0 else "only root can mount a small disk")


STAGE = Stage(
    "full",
    "power",
    run,
    {"full under sqlite": EACH, "full under redis": EACH},
    needs,
    omits="quotas, a Redis that syncs always (it ends itself)",
)
