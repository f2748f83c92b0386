"""Keeps a node's key and the last thing that it signed, apart from its store."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import IO, Protocol
from zlib import crc32

from surepipe.errors import ConfigurationError, MisuseError
from surepipe.queues.rmq.encoding import Ed25519Keys, MemberKeys
from surepipe.queues.rmq.stored_log import Release, Released, Withheld


class Guard(Protocol):
    """Remembers the last entry that a node signed in each session, so that it never signs another one there."""

    def last(self, session: bytes, epoch: int = 0) -> tuple[int, bytes] | None:
        """Height and digest; (0, b"") for none; None when that can't be known, as of forgotten epochs."""
        ...

    def forget(self, session: bytes, epoch: int) -> None:
        """Nothing of this session, or of one of this epoch or before that isn't known, is signed any more."""
        ...

    def release(self, request: Release, keys: MemberKeys) -> Released | Withheld:
        """Note the entry, then sign it."""
        ...


FORGOTTEN = "forgotten"
"""In place of a session: the newest epoch of which nothing is known any more."""
SLOT_BYTES = 16_384


def guarded(data: bytes) -> tuple[int, dict[str, tuple[int, str]] | None]:
    """How often a guard was written, and what it remembers: height and digest by session; None for nothing."""
    found: list[tuple[int, dict[str, tuple[int, str]]]] = []
    for place in (0, SLOT_BYTES):
        line = data[place:].partition(b"\n")[0]
        check, _, text = line.partition(b" ")
        if check == b"%08x" % crc32(text):
            writes, known = json.loads(text)
            found.append((writes, {each: (height, last) for each, (height, last) in known.items()}))
    return max(found, key=lambda each: each[0], default=(0, None))


class FileGuard:
    """A guard in a file, which is locked as long as this process has it."""

    def __init__(self, path: Path, *, is_new: bool, is_synced: bool = True) -> None:
        """``is_new``: the node has never signed anything. A guard that should be there and isn't remembers
        nothing, so its node only listens."""
        self._is_synced = is_synced
        self._lock: IO[bytes] = open(f"{path}.lock", "wb")  # noqa: SIM115 - held until close
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise MisuseError(f"{path} is in use by another process of this node") from None
        is_there = path.exists()
        mode = "r+b" if is_there else "w+b"
        self._file: IO[bytes] = open(path, mode, buffering=0)  # noqa: SIM115 - held until close
        self._writes, self._known = guarded(self._file.read())
        if is_new and not is_there:
            self._known = {}
            self._write()

    def last(self, session: bytes, epoch: int = 0) -> tuple[int, bytes] | None:
        if self._known is None:
            return None
        height, text = self._known.get(session.hex(), (0, ""))
        if not height and 0 < epoch <= self._known.get(FORGOTTEN, (0, ""))[0]:
            return None
        return height, bytes.fromhex(text)

    def forget(self, session: bytes, epoch: int) -> None:
        if self._known is not None:
            self._known.pop(session.hex(), None)
            self._known[FORGOTTEN] = max(epoch, self._known.get(FORGOTTEN, (0, ""))[0]), ""
            self._write()

    def release(self, request: Release, keys: MemberKeys) -> Released | Withheld:
        found = self.last(request.session)
        if found is None:
            return Withheld(0, b"")
        height, digest = found
        if request.height < height or (request.height == height and request.digest != digest):
            return Withheld(height, digest)
        if request.height > height:
            assert self._known is not None
            self._known[request.session.hex()] = request.height, request.digest.hex()
            self._write()
        return Released(keys.sign(request.signed))

    def _write(self) -> None:
        """Write over the older of two places, each with a checksum: a crash leaves the other one as it is."""
        self._writes += 1
        text = json.dumps([self._writes, self._known]).encode()
        assert len(text) < SLOT_BYTES - 16, "so many sessions are never open at once"
        place = self._writes % 2 * SLOT_BYTES
        os.pwrite(self._file.fileno(), b"%08x %s\n" % (crc32(text), text), place)
        if self._is_synced:
            os.fdatasync(self._file.fileno())

    def close(self) -> None:
        """Let another process have it."""
        self._file.close()
        self._lock.close()


def keys_of(folder: Path, name: str) -> Ed25519Keys:
    """The key of a node, made when it isn't there. Only its owner may read it."""
    path = folder / f"{name}.key"
    if not path.exists():
        write_private(path, os.urandom(32))
    seed = path.read_bytes()
    if len(seed) != 32:
        raise ConfigurationError(f"{path} is no key: it has {len(seed)} bytes in place of 32")
    return Ed25519Keys(seed)


def write_private(path: Path, data: bytes) -> None:
    """Write a file that isn't there, which only its owner may read."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
