"""Files under simulation: their bytes belong to the world, and the sink that writes them is the production one."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass, field
from pathlib import Path

from surepipe.pipelines.assembly import Cursor
from surepipe.pipelines.models.stages import CsvSink, JsonlSink
from surepipe.pipelines.sinks.files import CsvLines, JsonlLines, LineFile
from surepipe.pipelines.sinks.keeping import Disk
from surepipe.simulation.lives import Life


@dataclass(slots=True)
class WorldFile:
    """The file of a sink. ``is_decided``: a store knows what it is to hold."""

    part: JsonlSink | CsvSink
    data: bytearray = field(default_factory=bytearray)
    is_decided: bool = False

    @property
    def messages(self) -> list[object]:
        """What somebody reads who opens it: of CSV a mapping of texts for each row."""
        text = self.data.decode(errors="replace")
        if isinstance(self.part, CsvSink):
            return list(csv.DictReader(io.StringIO(text, newline="")))
        return [_value(line) for line in text.removesuffix("\n").split("\n")] if text else []

    def opened(self, cursor: Cursor | None, disk: Disk) -> LineFile:
        """The sink, as ``surepipe run`` makes it, on this disk. Raises what that raises."""
        self.is_decided = self.is_decided or cursor is not None
        path = Path(self.part.name)
        if isinstance(self.part, CsvSink):
            return CsvLines(path, cursor, self.part.columns, opened=lambda _: disk)
        return JsonlLines(path, cursor, opened=lambda _: disk)


def _value(line: str) -> object:
    """Half a line is no value: it is shown as it is."""
    try:
        found: object = json.loads(line)
    except ValueError:
        return line
    return found


class BareDisk:
    """The bytes of a file of the world, when no process runs any more."""

    def __init__(self, file: WorldFile) -> None:
        self._data = file.data

    def size(self) -> int:
        """How many there are."""
        return len(self._data)

    def read(self, count: int, at: int) -> bytes:
        """Those at a place."""
        return bytes(self._data[at : at + count])

    def write(self, data: memoryview, at: int) -> int:
        """Write all of it."""
        missing = max(0, at - len(self._data))
        self._data.extend(bytes(missing))
        self._data[at : at + len(data)] = data
        return len(data)

    def cut(self, length: int) -> None:
        """Make it this long."""
        del self._data[length:]

    def sync(self) -> None:
        """What is written stays."""

    def close(self) -> None:
        """Nothing is held open."""


class DiskInLife(BareDisk):
    """The same in the hands of one process: each change is a point at which it may end."""

    def __init__(self, file: WorldFile, life: Life) -> None:
        super().__init__(file)
        self._name = file.part.name
        self._life = life

    def size(self) -> int:
        """How many bytes there are now, whoever has written them."""
        self._life.check()
        return super().size()

    def write(self, data: memoryview, at: int) -> int:
        """Write all but the last byte, or that one: a process may end with half a line in the file."""
        some = data[:-1] or data
        what = f"{self._name} writes {len(some)} bytes at {at}"
        return self._life.at(what, lambda: self._written(some, at))

    def _written(self, data: memoryview, at: int) -> int:
        if self.read(len(data), at) != bytes(data):
            self._life.world.effect(self._name, f"writes {len(data)} bytes at {at}")
        return super().write(data, at)

    def cut(self, length: int) -> None:
        """Make it this long."""
        self._life.at(f"{self._name} is cut to {length} bytes", lambda: self._cut(length))

    def _cut(self, length: int) -> None:
        self._life.world.effect(self._name, f"is cut to {length} bytes")
        super().cut(length)
