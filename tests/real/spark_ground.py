"""What is killed under Spark: one pipeline over four streams, with a naive sink beside the one that counts.

Each message must come out once, in the order of its stream. The naive sink, a function that adds lines to a file,
must have repeats, or the kills would have hit nothing.
"""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

from surepipe.actors.codecs import AutoCodec
from surepipe.core.store_requests import KEEP_ALL, Batch, Created, Stored, StreamInfo
from surepipe.spark.stores import StorePlace
from tests.real import naive_sink
from tests.real.history import Anomaly

STREAMS = ("north", "east", "south", "west")
PIPELINE = """
version: 1
name: killed
engine: {{kind: spark, master: "local[2]", checkpoint: points}}
stores: {{main: {store}}}
sources:
  north: {{kind: stream, store: main, stream: north}}
  east: {{kind: stream, store: main, stream: east}}
  south: {{kind: stream, store: main, stream: south}}
  west: {{kind: stream, store: main, stream: west}}
pipes: {{all: {{from: [north, east, south, west], route: {{kind: {kind}, store: main}}}}}}
stages:
  some: {{from: all, filter: "naive_sink:is_for_naive"}}
sinks:
  out: {{from: all, kind: stream, store: main, stream: out}}
  naive: {{from: some, kind: python, call: "naive_sink:naive"}}
"""
PIPE, OUT, NAIVE = SIGNS = range(3)
"""What grows while a query works."""


class Ground:
    """The folder of a run, and what was put into its streams: in a file there, or in the Redis of ``url``."""

    def __init__(self, folder: Path, url: str = "") -> None:
        self.folder = folder
        self.sent: Counter[str] = Counter()
        self.lines = folder / "naive.jsonl"
        if url:
            self.text = PIPELINE.format(store=f'{{kind: redis, url: "{url}"}}', kind="redis")
            self.store = StorePlace(url, pipeline="killed").store()
        else:
            file = folder / "main.db"
            given = f"{{kind: sqlite, path: {file}, durability: process}}"
            self.text = PIPELINE.format(store=given, kind="sqlite")
            self.store = StorePlace(str(file), level="process").store()
        (folder / "killed.yaml").write_text(self.text, encoding="utf-8")
        shutil.copy(naive_sink.__file__, folder)
        for stream in STREAMS:
            assert isinstance(self.store.create(stream, 1, KEEP_ALL), Created)

    def send(self, count: int) -> None:
        """So many more messages into each stream."""
        encode = AutoCodec().encode
        for stream in STREAMS:
            first = self.sent[stream] + 1
            numbers = range(first, first + count)
            payloads = [encode({"s": stream, "n": number}) for number in numbers]
            assert isinstance(self.store.append(stream, "maker", 1, first, payloads), Stored)
            self.sent[stream] += count

    # Signs of work.

    def sign(self, which: int) -> int:
        """The length of the pipe, of what comes out, or of the naive sink's file."""
        if which == NAIVE:
            return self.lines.stat().st_size if self.lines.exists() else 0
        return self._next("killed/all" if which == PIPE else "out")

    def _next(self, stream: str) -> int:
        info = self.store.info(stream)
        return info.next if isinstance(info, StreamInfo) else 1

    # The verdict.

    def came_out(self) -> list[dict[str, object]]:
        """All messages of the stream that counts."""
        found: list[dict[str, object]] = []
        decode, index = AutoCodec().decode, 1
        while isinstance(batch := self.store.read("out", index, 20_000, 1 << 26), Batch):
            for run in batch.entries:
                found += [one for one in map(decode, run.payloads) if isinstance(one, dict)]
            index = batch.next
        return found

    def check(self) -> None:
        """Raises Anomaly unless each message came out once, in the order of its stream."""
        found: dict[str, list[object]] = {stream: [] for stream in STREAMS}
        for message in self.came_out():
            found[str(message["s"])].append(message["n"])
        for stream, numbers in found.items():
            if numbers != list(range(1, self.sent[stream] + 1)):
                seen = Counter(numbers)
                lost = self.sent[stream] - len(seen)
                twice = sum(count > 1 for count in seen.values())
                raise Anomaly(f"{stream}: {lost} lost, {twice} repeated, of {self.sent[stream]}")

    def naive_lines(self) -> list[tuple[str, int]]:
        """What the naive sink wrote, and which process did."""
        told = self.lines.read_text("utf-8").rpartition("\n")[0] if self.lines.exists() else ""
        parts = (line.split("\t") for line in told.splitlines())
        return [(message, int(process)) for message, process in parts]

    def naive_repeats(self) -> int:
        """Lines of the naive sink that are there again."""
        messages = [message for message, _ in self.naive_lines()]
        return len(messages) - len(set(messages))
