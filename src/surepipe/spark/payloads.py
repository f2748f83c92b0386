"""Payloads as numpy sees them: where each one begins in a buffer. The sink makes pages of a store from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import overload

import numpy as np
from numpy.typing import NDArray

from surepipe.spark import arrow
from surepipe.spark.arrow import Array
from surepipe.storage.packed import Packed

Numbers = NDArray[np.int64]


class Payloads(Packed):
    """Payload n lies in the buffer from ``begins[n]`` up to ``begins[n + 1]``."""

    __slots__ = ("_buffer", "begins")

    def __init__(self, begins: Numbers, buffer: memoryview) -> None:
        self.begins = begins
        self._buffer = buffer

    @classmethod
    def of(cls, payloads: Sequence[bytes | memoryview]) -> Payloads:
        """Payloads that are objects, or are packed already."""
        if isinstance(payloads, Payloads):
            return payloads
        lengths = np.fromiter(map(len, payloads), np.int64, len(payloads))
        return cls.of_lengths(lengths, memoryview(b"".join(payloads)))

    @classmethod
    def of_lengths(cls, lengths: Numbers, buffer: memoryview) -> Payloads:
        """Payloads of these lengths, one after the other from the start of the buffer."""
        return cls(np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths))), buffer)

    @classmethod
    def of_column(cls, column: Array) -> Payloads:
        """The values of a column of bytes without nulls."""
        return cls(*arrow.bytes_and_begins(column))

    @classmethod
    def joined(cls, parts: Sequence[Payloads]) -> Payloads:
        """All of these, in order."""
        if len(parts) == 1:
            return parts[0]
        lengths = np.concatenate([np.zeros(0, np.int64), *(np.diff(one.begins) for one in parts)])
        return cls.of_lengths(lengths, memoryview(b"".join(one.body for one in parts)))

    def __len__(self) -> int:
        return len(self.begins) - 1

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> Payloads: ...
    def __getitem__(self, at: int | slice) -> bytes | Payloads:
        if isinstance(at, slice):
            start, stop, step = at.indices(len(self))
            assert step == 1, "a part of a buffer is one piece"
            return Payloads(self.begins[start : max(start, stop) + 1], self._buffer)
        place = range(len(self))[at]
        return self.view(place).tobytes()

    def __iter__(self) -> Iterator[bytes]:
        whole, begins = self.body.tobytes(), (self.begins - self.begins[0]).tolist()
        return (whole[start:stop] for start, stop in pairwise(begins))

    def view(self, at: int) -> memoryview:
        """One payload where it lies."""
        return self._buffer[self.begins[at] : self.begins[at + 1]]

    def column(self) -> Array:
        """All of them as a column of Arrow."""
        begins = (self.begins - self.begins[0]).astype(np.int32)
        return arrow.array_of_buffers(arrow.BINARY, len(self), begins, self.body)

    @property
    def body(self) -> memoryview:
        """All payloads, one after the other."""
        return self._buffer[self.begins[0] : self.begins[-1]]

    def lengths(self, width: int) -> bytes:
        """The length of each, as unsigned little-endian numbers of so many bytes."""
        return np.diff(self.begins).astype(f"<u{width}").tobytes()

    def extremes(self) -> tuple[int, int]:
        """The length of the shortest and of the longest."""
        lengths = np.diff(self.begins)
        return int(lengths.min()), int(lengths.max())

    def fitting(self, start: int, limit: int) -> int:
        """Up to where payloads from the ``start``-th on fit into so many bytes; one always does."""
        within = int(np.searchsorted(self.begins, int(self.begins[start]) + limit, "right"))
        return max(start + 1, within - 1)
