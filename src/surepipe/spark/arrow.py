"""The border to pyarrow, which has no types of its own: the parts that are used, typed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Array(Protocol):
    """A column."""

    @property
    def null_count(self) -> int: ...
    def __len__(self) -> int: ...
    def to_pylist(self) -> list[object]: ...
    def equals(self, other: Array) -> bool: ...
    def slice(self, offset: int, length: int) -> Array: ...
    def filter(self, mask: Array) -> Array: ...
    def is_valid(self) -> Array: ...
    def take(self, rows: Array) -> Array: ...


class Field(Protocol):
    """The name and the type of a column."""

    @property
    def name(self) -> str: ...


class Schema(Protocol):
    """The columns of record batches, in order."""

    @property
    def names(self) -> list[str]: ...
    def field(self, name: str) -> Field: ...
    def __iter__(self) -> Iterator[Field]: ...


class RecordBatch(Protocol):
    """Rows as columns."""

    @property
    def num_rows(self) -> int: ...
    @property
    def schema(self) -> Schema: ...
    def column(self, name: str | int) -> Array: ...
    def __getitem__(self, name: str) -> Array: ...
    def slice(self, offset: int, length: int) -> RecordBatch: ...
    def to_pylist(self) -> list[dict[str, Any]]: ...
    def validate(self, *, full: bool = False) -> None: ...


_arrow: Any = import_module("pyarrow")
_compute: Any = import_module("pyarrow.compute")

array: Callable[..., Array] = _arrow.array
"""A column of a numpy array."""
nulls: Callable[..., Array] = _arrow.nulls
TIME_UTC: object = _arrow.timestamp("us", tz="UTC")
BINARY: object = _arrow.binary()
STRING: object = _arrow.string()
INT32: object = _arrow.int32()
INT64: object = _arrow.int64()
INTEGER: object = _arrow.int64()
LARGE_BINARY: object = _arrow.large_binary()


def array_of_buffers(kind: object, count: int, offsets: object, body: object) -> Array:
    """A column of texts or bytes without nulls: where each begins (int32, one more than rows), and all of them."""
    buffers = [None, _arrow.py_buffer(offsets), _arrow.py_buffer(body)]
    made: Array = _arrow.Array.from_buffers(kind, count, buffers)
    return made


def times(microseconds: object) -> Array:
    """A column of times of a numpy array of microseconds since 1970."""
    made: Array = _arrow.array(microseconds, type=_arrow.int64()).cast(TIME_UTC)
    return made


def numbers(column: Array) -> NDArray[np.int64]:
    """A column of whole numbers without nulls."""
    border: Any = column
    found: NDArray[np.int64] = border.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return found


def flags(column: Array) -> NDArray[np.bool_]:
    """A column of truth values without nulls."""
    border: Any = column
    found: NDArray[np.bool_] = border.to_numpy(zero_copy_only=False)
    return found


def numbered(column: Array) -> tuple[NDArray[np.int64], list[object]]:
    """A column without nulls as numbers of its values, and the values."""
    border: Any = column
    known = border.dictionary_encode()
    return numbers(known.indices), known.dictionary.to_pylist()


def bytes_and_begins(column: Array) -> tuple[NDArray[np.int64], memoryview]:
    """A column of bytes without nulls: where each value begins in a buffer (and the last one ends), the buffer."""
    border: Any = column
    wide = border.cast(LARGE_BINARY)  # Spark may give either width
    if not len(wide):
        return np.zeros(1, np.int64), memoryview(b"")
    _, offsets, body = wide.buffers()
    begins = np.frombuffer(offsets, dtype=np.int64)[wide.offset : wide.offset + len(wide) + 1]
    return begins, memoryview(b"") if body is None else memoryview(body)


def plus(column: Array, more: NDArray[np.int64]) -> Array:
    """A column of whole numbers, each with one of these added; null stays null."""
    made: Array = _compute.add(column, _arrow.array(more))
    return made


def only(column: Array, wanted: NDArray[np.bool_]) -> Array:
    """A column without nulls, with null for what is not wanted."""
    if wanted.all():
        return column
    border: Any = column
    bits = _arrow.py_buffer(np.packbits(wanted, bitorder="little"))
    _, *rest = border.buffers()
    made: Array = _arrow.Array.from_buffers(border.type, len(column), [bits, *rest])
    return made


def batch_of_columns(columns: Mapping[str, Array]) -> RecordBatch:
    """Named columns as a record batch."""
    made: RecordBatch = _arrow.RecordBatch.from_arrays(list(columns.values()), list(columns))
    return made


def batch_of(arrays: Sequence[Array], schema: Schema) -> RecordBatch:
    """Columns as a record batch."""
    made: RecordBatch = _arrow.RecordBatch.from_arrays(arrays, schema=schema)
    return made


def batch_of_rows(rows: Iterable[object], schema: Schema) -> RecordBatch:
    """Rows (mappings) as a record batch."""
    made: RecordBatch = _arrow.RecordBatch.from_pylist(list(rows), schema=schema)
    return made


def schema_of(fields: Iterable[tuple[str, object] | Field]) -> Schema:
    """A schema of names and types."""
    made: Schema = _arrow.schema(list(fields))
    return made


# Functions of record batches on DataFrames: the border to Spark's Arrow calls, whose types are open.


Batches: TypeAlias = Iterator[RecordBatch]


def mapped(frame: DataFrame, function: Callable[[Batches], Batches], schema: str) -> DataFrame:
    """The frame that a function makes of each partition: its record batches in, others out."""
    border: Any = frame
    made: DataFrame = border.mapInArrow(function, schema)
    return made


def collected(frame: DataFrame) -> list[RecordBatch]:
    """Run the frame, and bring its rows to the driver. Raises what Spark raises."""
    border: Any = frame
    batches: list[RecordBatch] = border.toArrow().to_batches()
    return batches
