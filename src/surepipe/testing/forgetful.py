"""A mounted file system that forgets, on demand, what was not synced: a power cut without pulling the plug.

    with PowerDisk() as disk:
        server.directory = disk.directory
        ...
        server.kill()
        disk.cut()              # what was not synced is gone
        server.start()

SIGKILL alone can't find a durability defect, because the page cache of the system outlives the process. Here the
files live in a process of ours (FUSE), which knows what was synced. ``lie`` makes syncs succeed and do nothing.

Needs Linux with /dev/fuse, libfuse, the right to mount, and mfusepy (the extra ``surepipe[test]``);
``why_no_power_cuts`` says what is missing.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias, cast

from surepipe.errors import ConfigurationError

# Files in memory that know which of their bytes a power cut leaves.
#
# The disk behaves as a journaling file system may: a name (made, moved, removed) is durable once *anything* was
# synced after it, the bytes of a file once that file was. Between two syncs of a file nothing of it is
# promised, and after a cut any beginning of what changed may have got through. A disk that *lies* answers every
# sync with yes and keeps nothing.
#
# This part knows no operating system: the process below mounts it.


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
        found = self._names.get(path)
        if found is None:
            raise _error(errno.ENOENT, path)
        return found

    def file(self, path: str) -> File:
        found = self.entry(path)
        if not isinstance(found, File):
            raise _error(errno.EISDIR, path)
        return found

    def list(self, path: str) -> list[str]:
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


_WITHIN_S = 30.0
_BLOCK = 512


def why_no_power_cuts() -> str:
    """Why no such file system can be mounted here; empty when it can."""
    if not Path("/dev/fuse").exists():
        return "no /dev/fuse"
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "no right to use /dev/fuse (root has it)"
    if find_spec("mfusepy") is None:
        return "no mfusepy (pip install 'surepipe[test]')"
    tried = subprocess.run(
        [sys.executable, "-c", "import mfusepy"], capture_output=True, check=False
    )
    return "no libfuse (apt-get install fuse3)" if tried.returncode else ""


class PowerDisk:
    """A forgetful disk, mounted at ``directory`` by a process of its own. Use it in a ``with`` block."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="surepipe-disk-"))
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> PowerDisk:
        """Mount it. Raises ConfigurationError where that can't be done."""
        if reason := why_no_power_cuts():
            self.directory.rmdir()
            raise ConfigurationError(f"no forgetful disk can be mounted here: {reason}")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "surepipe.testing.forgetful", str(self.directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._answer()
        return self

    def cut(self, keep: int = 0) -> int:
        """The power fails. End the processes that use the disk first; then look at what is left.

        ``keep``: of each file so many bytes that were not synced have got through nevertheless. Returns how many
        bytes are gone.
        """
        return self._order("cut", keep)

    def lie(self, *, on: bool = True) -> None:
        """From now on syncs are answered and nothing is kept; or the truth again."""
        self._order("lie", int(on))

    def settle(self) -> None:
        """Make everything durable that is there now."""
        self._order("settle", 0)

    @property
    def syncs(self) -> int:
        """How often something was synced."""
        return self._order("syncs", 0)

    def close(self) -> None:
        """Unmount it and forget everything. A second call does nothing."""
        process, self._process = self._process, None
        if process is None:
            return
        subprocess.run(["umount", "-l", self.directory], capture_output=True, check=False)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            process.wait(_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_WITHIN_S)
        process.stdout.close()
        self.directory.rmdir()

    def __enter__(self) -> PowerDisk:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.close()

    def _order(self, verb: str, value: int) -> int:
        assert self._process is not None, "the disk is not mounted"
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([verb, value]) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> int:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ConfigurationError(f"the forgetful disk at {self.directory} ended by itself")
        return int(line)


# The process that serves the files.


class _Served:
    """The disk, for one caller at a time."""

    def __init__(self) -> None:
        self.disk = ForgetfulDisk()
        self.lock = threading.Lock()

    def obey(self, verb: str, value: int) -> int:
        with self.lock:
            match verb:
                case "cut":
                    return self.disk.cut(value)
                case "lie":
                    self.disk.lies = bool(value)
                case "settle":
                    self.disk.settle()
                case _:
                    return self.disk.syncs
        return 0

    def obey_all(self) -> None:
        """Until the other side has gone."""
        for line in sys.stdin:
            verb, value = json.loads(line)
            _say(self.obey(verb, value))


def _say(value: int) -> None:
    sys.stdout.write(f"{value}\n")
    sys.stdout.flush()


class ForgetfulFiles:
    """What libfuse calls; the names and parameters are its own."""

    use_ns = True

    def __init__(self, served: _Served) -> None:
        self._served = served
        self._disk = served.disk
        self._lock = served.lock

    def init(self, path: str) -> None:
        del path
        threading.Thread(target=self._served.obey_all, daemon=True).start()
        _say(0)

    def getattr(self, path: str, fh: int | None = None) -> dict[str, int]:
        del fh
        with self._lock:
            entry = self._disk.entry(path)
            size = len(entry.data) if isinstance(entry, File) else 0
            now = time.time_ns()
            return {
                "st_mode": entry.mode,
                "st_size": size,
                "st_blocks": -(-size // _BLOCK),
                "st_nlink": 2 if stat.S_ISDIR(entry.mode) else 1,
                "st_uid": os.getuid(),
                "st_gid": os.getgid(),
                "st_atime": now,
                "st_mtime": now,
                "st_ctime": now,
            }

    def readdir(self, path: str, fh: int) -> list[str]:
        del fh
        with self._lock:
            return [".", "..", *self._disk.list(path)]

    def create(self, path: str, mode: int, fi: object = None) -> int:
        del fi
        with self._lock:
            self._disk.create(path, mode)
        return 0

    def open(self, path: str, flags: int) -> int:
        with self._lock:
            self._disk.file(path)
            if flags & os.O_TRUNC:
                self._disk.truncate(path, 0)
        return 0

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        del fh
        with self._lock:
            return self._disk.read(path, size, offset)

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        del fh
        with self._lock:
            return self._disk.write(path, data, offset)

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        del fh
        return self._do(self._disk.truncate, path, length)

    def fsync(self, path: str, datasync: int, fh: int) -> int:
        del datasync, fh
        return self._do(self._disk.sync, path)

    def fsyncdir(self, path: str, datasync: int, fh: int) -> int:
        del datasync, fh
        return self._do(self._disk.sync, path)

    def mkdir(self, path: str, mode: int) -> int:
        return self._do(self._disk.make_folder, path, mode)

    def unlink(self, path: str) -> int:
        return self._do(self._disk.remove, path)

    def rmdir(self, path: str) -> int:
        return self._do(self._disk.remove, path)

    def rename(self, old: str, new: str) -> int:
        return self._do(self._disk.rename, old, new)

    def chmod(self, path: str, mode: int) -> int:
        with self._lock:
            entry = self._disk.entry(path)
            entry.mode = stat.S_IFMT(entry.mode) | stat.S_IMODE(mode)
        return 0

    def chown(self, path: str, uid: int, gid: int) -> int:
        del path, uid, gid
        return 0

    def utimens(self, path: str, times: object = None) -> int:
        del path, times
        return 0

    def statfs(self, path: str) -> dict[str, int]:
        del path
        return {"f_bsize": 4096, "f_frsize": 4096, "f_blocks": 1 << 20, "f_bavail": 1 << 20}

    def _do(self, act: Callable[..., None], *arguments: object) -> int:
        with self._lock:
            act(*arguments)
        return 0


def serve(mountpoint: str) -> None:
    """Mount and serve until unmounted; obeys orders on stdin."""
    fuse = cast("Any", import_module("mfusepy"))  # an extra, without types
    fuse.FUSE(
        ForgetfulFiles(_Served()),
        mountpoint,
        foreground=True,
        nothreads=True,
        attr_timeout=0,
        entry_timeout=0,
        negative_timeout=0,
    )


if __name__ == "__main__":
    serve(sys.argv[1])
