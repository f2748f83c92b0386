"""Files in memory that know which of their bytes a power cut leaves.

The disk behaves as a journaling file system may: a name (made, moved, removed) is durable once *anything* was
synced after it, the bytes of a file once that file was. Between two syncs of a file nothing of it is promised,
and after a cut any beginning of what changed may have got through. A disk that *lies* answers every sync with
yes and keeps nothing.

No operating system in here: ``forgetful`` mounts it.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(eq=False, slots=True)
class File:
    """A file: its bytes, those that are durable, and from which offset the two differ."""

    mode: int
    data: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    differs_from: int | None = None

    def changed(self, offset: int) -> None:
        """Bytes from this offset on differ from what is durable."""
        self.differs_from = offset if self.differs_from is None else min(self.differs_from, offset)

    def sync(self) -> None:
        """Everything is durable."""
        if self.differs_from is not None:
            self.durable[self.differs_from :] = self.data[self.differs_from :]
            self.differs_from = None

    def forget(self, keep: int) -> int:
        """Go back to what is durable, but for the first ``keep`` bytes that changed; how many are gone."""
        if self.differs_from is None:
            return 0
        kept = self.differs_from + keep
        before = len(self.data)
        self.data = bytearray(self.data[:kept] + self.durable[kept:] if keep else self.durable)
        self.durable = bytearray(self.data)
        gone = max(before - self.differs_from - keep, 0)
        self.differs_from = None
        return gone


@dataclass(eq=False, slots=True)
class Folder:
    """A folder; what it holds is known by the paths."""

    mode: int


Entry: TypeAlias = File | Folder


class ForgetfulDisk:
    """A tree of files by path. Every method that can't do its work raises OSError, as the system call would."""

    def __init__(self) -> None:
        self.lies = False
        self.syncs = 0
        self._names: dict[str, Entry] = {"/": Folder(stat.S_IFDIR | 0o755)}
        self._durable_names = dict(self._names)

    # Names.

    def entry(self, path: str) -> Entry:
        """What is there."""
        found = self._names.get(path)
        if found is None:
            raise _error(errno.ENOENT, path)
        return found

    def file(self, path: str) -> File:
        """The file that is there."""
        found = self.entry(path)
        if not isinstance(found, File):
            raise _error(errno.EISDIR, path)
        return found

    def list(self, path: str) -> list[str]:
        """The names in a folder."""
        if not isinstance(self.entry(path), Folder):
            raise _error(errno.ENOTDIR, path)
        inside = path.rstrip("/") + "/"
        return [
            name[len(inside) :]
            for name in self._names
            if name.startswith(inside) and name != inside and "/" not in name[len(inside) :]
        ]

    def create(self, path: str, mode: int) -> None:
        """Make a file, or empty the one that is there."""
        self._check_folder_of(path)
        if isinstance(self._names.get(path), File):
            self.truncate(path, 0)
        else:
            self._names[path] = File(stat.S_IFREG | stat.S_IMODE(mode))

    def make_folder(self, path: str, mode: int) -> None:
        """Make a folder."""
        self._check_folder_of(path)
        if path in self._names:
            raise _error(errno.EEXIST, path)
        self._names[path] = Folder(stat.S_IFDIR | stat.S_IMODE(mode))

    def rename(self, old: str, new: str) -> None:
        """Move a file or folder, in place of what has the new name."""
        self.entry(old)
        self._check_folder_of(new)
        self._names.pop(new, None)
        inside = old + "/"
        for path in [path for path in self._names if path == old or path.startswith(inside)]:
            self._names[new + path[len(old) :]] = self._names.pop(path)

    def remove(self, path: str) -> None:
        """Remove a file, or a folder that holds nothing."""
        if isinstance(self.entry(path), Folder) and self.list(path):
            raise _error(errno.ENOTEMPTY, path)
        del self._names[path]

    def _check_folder_of(self, path: str) -> None:
        self.list(os.path.dirname(path))

    # Bytes.

    def read(self, path: str, size: int, offset: int) -> bytes:
        """Bytes of a file."""
        return bytes(self.file(path).data[offset : offset + size])

    def write(self, path: str, data: bytes, offset: int) -> int:
        """Write into a file, at the end or inside; how many bytes."""
        file = self.file(path)
        if offset > len(file.data):
            file.changed(len(file.data))
            file.data += bytes(offset - len(file.data))
        file.changed(offset)
        file.data[offset : offset + len(data)] = data
        return len(data)

    def truncate(self, path: str, length: int) -> None:
        """Give a file this length."""
        file = self.file(path)
        file.changed(min(length, len(file.data)))
        del file.data[length:]
        file.data += bytes(length - len(file.data))

    # What a cut leaves.

    def sync(self, path: str) -> None:
        """Make a file durable, and every name; nothing when the disk lies."""
        self.syncs += 1
        found = self._names.get(path)
        if self.lies:
            return
        if isinstance(found, File):
            found.sync()
        self._durable_names = dict(self._names)

    def cut(self, keep: int = 0) -> int:
        """The power fails: names and bytes are what is durable; how many bytes are gone.

        Of each file the first ``keep`` bytes that changed since its last sync have reached the disk by chance.
        """
        self._names = dict(self._durable_names)
        files = {entry for entry in self._names.values() if isinstance(entry, File)}
        return sum(file.forget(keep) for file in files)

    def settle(self) -> None:
        """Everything becomes durable, lying or not: the state before a trial begins."""
        for entry in self._names.values():
            if isinstance(entry, File):
                entry.sync()
        self._durable_names = dict(self._names)


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
