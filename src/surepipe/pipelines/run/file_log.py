"""What a file of lines is to hold, as the store of the receiver's state knows it: its length, and the last group.

The lines of a group and the length behind them are stored in the transaction that settles their messages, and only
then written to the file. So the store alone decides what the file holds, byte for byte, and whoever writes to it
writes what is decided: also a process that was paused, was replaced, and wakes up in the middle of a write.
"""

from __future__ import annotations

from collections.abc import Callable

from surepipe.actors.codecs import choose_codec
from surepipe.core.store_requests import (
    Batch,
    CommitPosition,
    Empty,
    Store,
    StreamInfo,
    Transaction,
    Unavailable,
    said_of,
)
from surepipe.errors import StoreReset, StoreUnavailable
from surepipe.pipelines.assembly import FilePlace
from surepipe.pipelines.run.writers import IntoStream, StoreCursor
from surepipe.pipelines.stages import About
from surepipe.storage.positions import number_now

PIECE = 256 * 1024
"""Bytes of a group that are one entry of the stream."""
READ_BYTES = 4 << 20
TRIM_EVERY = 64
_NOBODY = About("", 0, 0)


class FileLog:
    """The place of one file sink. ``name`` is that of its position; its stream is ``<name>/lines``."""

    def __init__(
        self, store: Store, name: str, number_of_life: Callable[[], int] = number_now
    ) -> None:
        """``number_of_life`` as for ``StoreCursor``."""
        self._store = store
        self._name = name
        self._cursor = StoreCursor(store, name, number_of_life)
        self._stream = f"{name}/lines"
        self._writer: IntoStream | None = None
        self._groups = 0

    # Of any cursor.

    def load(self) -> str | None:
        """What was stored last, taken over from an older process. Raises what ``StoreCursor.load`` raises."""
        return self._cursor.load()

    def save(self, text: str) -> None:
        """Store it now. Raises what ``StoreCursor.save`` raises."""
        self._cursor.save(text)

    def request(self, text: str) -> CommitPosition:
        """The commit that stores it, for a transaction."""
        return self._cursor.request(text)

    # Of a file.

    def claim(self) -> FilePlace | None:
        """Take the file over from an older process; None when it was never written to. Raises what
        ``StoreCursor.load`` raises."""
        text = self.load()
        if self._writer is None:
            codec = choose_codec("bytes")
            self._writer = IntoStream(self._store, self._stream, self._name, codec)
        return None if text is None else FilePlace.read(text)

    def begin(self, transaction: Transaction) -> None:
        """A new group, in this transaction."""
        self._lines.begin(transaction)

    @property
    def _lines(self) -> IntoStream:
        assert self._writer is not None, "claimed before"
        return self._writer

    def add(self, data: bytes, place: FilePlace, transaction: Transaction) -> None:
        """The lines of the group, and where the file ends behind them."""
        self._groups += 1
        start = place.end - len(data)
        for at in range(0, len(data), PIECE):
            entry = (start + at).to_bytes(8, "big") + data[at : at + PIECE]
            self._lines.put(entry, _NOBODY, transaction)
        self._lines.seal(transaction)
        transaction.commit(self.request(place.text))

    def group(self, place: FilePlace) -> bytes:
        """The bytes between ``written`` and ``end``, as they were stored; none when they were forgotten, which
        they only are once they are in the file. Raises StoreUnavailable."""
        found: list[bytes] = []
        start = place.end
        for at, data in reversed(self._entries()):
            if start <= place.written or at + len(data) != start:
                break
            found.append(data)
            start = at
        return b"".join(reversed(found)) if start == place.written else b""

    def _entries(self) -> list[tuple[int, bytes]]:
        info = self._store.info(self._stream)
        if not isinstance(info, StreamInfo):
            raise _lacking(self._stream, info)
        found: list[tuple[int, bytes]] = []
        index, codec = info.earliest, choose_codec("bytes")
        while True:
            batch = self._store.read(self._stream, index, 1024, READ_BYTES)
            if isinstance(batch, Empty):
                return found
            if not isinstance(batch, Batch):
                raise _lacking(self._stream, batch)
            for run in batch.entries:
                for payload in run.payloads:
                    entry = codec.decode(payload)
                    assert isinstance(entry, bytes)
                    found.append((int.from_bytes(entry[:8], "big"), entry[8:]))
            index = batch.next

    def landed(self) -> None:
        """All groups are in the file. From time to time what is not needed any more goes."""
        if self._groups >= TRIM_EVERY:
            self.trim()

    def trim(self) -> None:
        """Forget all groups: they are in the file. What a store does not forget now goes the next time."""
        self._groups = 0
        info = self._store.info(self._stream)
        if isinstance(info, StreamInfo):
            self._store.trim(self._stream, info.next)


def _lacking(stream: str, outcome: object) -> Exception:
    what = said_of("lines for a file wait in stream", stream, outcome)
    return StoreUnavailable(what) if isinstance(outcome, Unavailable) else StoreReset(what)
