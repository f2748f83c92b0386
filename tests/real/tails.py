"""The end of Redis's file is gone, by whole records or in the middle of one: the pipe says so.

The sender's journal and the reader's place are in a SQLite file that went through unharmed, so both ends remember
what the stream has lost. A server that may not truncate its file must refuse to start with a torn one.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from pathlib import Path
from random import Random

import pytest

from surepipe import StreamReceiver, StreamSender
from surepipe.actors.notices import PipeNotice
from surepipe.core.effects import NoticeKind
from surepipe.errors import PipeStopped
from surepipe.storage import Level, RedisStore, SqliteStore
from surepipe.testing.proxy import RespValues
from surepipe.testing.servers import RedisServer, ServerFailed
from tests.real.ground import a_server, no_redis
from tests.real.parts import ALARMS
from tests.real.stage import Stage, Tally
from tests.storage.test_redis_crashes import aof_of

EACH = 20
_MESSAGES = 20
_LAYERS = {
    "stream": {"start": "earliest", "rto_min_s": 0.01, "rto_initial_s": 0.05, "rto_max_s": 0.2}
}
_WITHIN_S = 10.0


class Bench:
    """A server and a file beside it, both as they were before the tear, for each trial anew."""

    def __init__(self, server: RedisServer, folder: Path) -> None:
        self.server = server
        self.side, self._saved = folder / "side.db", folder / "saved.db"
        self.start = 0
        self.whole = b""

    def prepare(self) -> None:
        """Messages through, everything closed, the files kept."""
        with (
            self._stores() as (streams, side),
            StreamSender("o", _LAYERS, store=streams, journal=side) as sender,
            StreamReceiver("o", _LAYERS, store=streams, state=side) as receiver,
        ):
            receiver.receive(lambda _: None)
            self.start = aof_of(self.server).stat().st_size
            for number in range(_MESSAGES):
                sender.send(number, until="confirmed", timeout=_WITHIN_S)
            assert receiver.catch_up(_WITHIN_S)
        self.server.kill()
        self.whole = aof_of(self.server).read_bytes()
        shutil.copy(self.side, self._saved)

    def tear(self, kept: int) -> None:
        """Only so many bytes are left."""
        aof_of(self.server).write_bytes(self.whole[:kept])
        shutil.copy(self._saved, self.side)

    def _stores(self) -> _Stores:
        return _Stores(self.server.url, self.side)

    def alarms(self) -> set[NoticeKind]:
        """Both ends begin anew, with something to send; what they tell within a while."""
        alarms = _Alarms()
        with self._stores() as (streams, side):
            try:
                with (
                    StreamSender(
                        "o", _LAYERS, store=streams, journal=side, notices=alarms
                    ) as sender,
                    StreamReceiver(
                        "o", _LAYERS, store=streams, state=side, notices=alarms
                    ) as receiver,
                ):
                    receiver.receive(lambda _: None)
                    sender.send("after", until="confirmed", timeout=_WITHIN_S)
                    alarms.rung.wait(_WITHIN_S)
            except PipeStopped:
                return alarms.kinds  # a store that went back may stop a pipe, and say why
        return alarms.kinds


class _Alarms:
    """Takes notices, and remembers those about a store that went back."""

    def __init__(self) -> None:
        self.kinds: set[NoticeKind] = set()
        self.rung = threading.Event()

    def __call__(self, notice: PipeNotice) -> None:
        if notice.kind in ALARMS:
            self.kinds.add(notice.kind)
            self.rung.set()


class _Stores:
    """A store on the server and one in the file, for a block."""

    def __init__(self, url: str, side: Path) -> None:
        self._streams = RedisStore.from_url(url, pipeline="tails")
        self._side = SqliteStore(side, level=Level.PROCESS)

    def __enter__(self) -> tuple[RedisStore, SqliteStore]:
        return self._streams, self._side

    def __exit__(self, *_: object) -> None:
        self._streams.close()
        self._side.close()


def run(rng: Random, tally: Tally) -> None:
    """Whole records first, torn ones then; each is tried with truncation refused, too."""
    with (
        tempfile.TemporaryDirectory(prefix="surepipe-tails-") as folder,
        a_server().server(appendonly="yes", appendfsync="everysec") as server,
    ):
        tally.note(server.binary.name)
        bench = Bench(server, Path(folder))
        bench.prepare()
        ends = _ends_before_messages(bench)
        for number in range(EACH):
            with tally.timed(f"records {number}"):
                _trial(bench, rng.choice(ends), tally, torn=False)
            with tally.timed(f"byte {number}"):
                _trial(bench, _inside(ends, rng), tally, torn=True)


def _ends_before_messages(bench: Bench) -> list[int]:
    """Where each transaction, or command outside of one, ends that was written after the stream was there. Not
    behind the last message: a sender that asks at its end what is stored writes what stands there already."""
    ends, at, last, is_inside = list[int](), 0, 0, False
    for record in RespValues().feed(bench.whole):
        last = at if b"XADD" in record else last
        at += len(record)
        is_inside = b"MULTI" in record or (is_inside and b"EXEC" not in record)
        if at >= bench.start and not is_inside:
            ends.append(at)
    assert at == len(bench.whole), "the file holds something else than commands"
    return [end for end in ends if end <= last]


def _inside(ends: list[int], rng: Random) -> int:
    """A byte of a record that is not the last of it."""
    number = rng.randrange(len(ends) - 1)
    return rng.randrange(ends[number] + 1, ends[number + 1])


def _trial(bench: Bench, kept: int, tally: Tally, *, torn: bool) -> None:
    bench.tear(kept)
    bench.server.settings["aof_load_truncated"] = "no"
    if torn:
        with pytest.raises(ServerFailed, match="nexpected end of file"):
            bench.server.start()
        tally.add("torn files refused")
    else:
        bench.server.start()
        bench.server.kill()
    bench.tear(kept)
    bench.server.settings["aof_load_truncated"] = "yes"
    bench.server.start()
    found = bench.alarms()
    bench.server.kill()
    assert found, f"{len(bench.whole) - kept} bytes are gone and nobody was told"
    for kind in found:
        tally.add(f"told {kind}")
    tally.add("cut at a torn byte" if torn else "cut by records")


STAGE = Stage(
    "tails",
    "redis",
    run,
    {"cut by records": EACH, "cut at a torn byte": EACH, "torn files refused": EACH},
    no_redis,
    omits="a file that is damaged in the middle",
)
