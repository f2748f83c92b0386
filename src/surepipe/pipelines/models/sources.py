"""``sources``: where messages come from. ``replays`` says which can be read again from a place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import Field

from surepipe.pipelines.models.common import (
    Address,
    CallablePath,
    Count,
    Frozen,
    FrozenMapping,
    InStore,
    NamedPart,
    PartModel,
    Text,
    Word,
)


class SourceBase(NamedPart):
    """What every source has."""

    replays: ClassVar[bool] = True
    key: Word | None = Field(
        default=None,
        description="the field whose value is a message's key, or a function 'module:function' that gives it",
        examples=["customer"],
    )
    node: Word | None = Field(
        default=None,
        description="the process that it runs in; main when not given",
        examples=["shop"],
    )
    model: CallablePath | None = Field(
        default=None,
        description="a pydantic model of the messages, 'module:Class'; what does not fit is refused",
        examples=["shop.orders:Order"],
    )


class ReadSource(SourceBase):
    """What sources have that read: nobody waits for an answer about a row that can't be read."""

    dead_letter: InStore | None = Field(
        default=None,
        description="the stream, 'store/stream', for rows that can't be read; without it, one stops the run",
        examples=["main/orders.unread"],
    )


class FileSource(ReadSource):
    """What sources that read a file have."""

    path: Text = Field(description="the file", examples=["data/orders.jsonl"])


class JsonlSource(FileSource):
    """A file with one JSON value on each line."""

    word: ClassVar[str] = "jsonl source"
    kind: Literal["jsonl"] = "jsonl"
    follow: bool = Field(default=False, description="wait for lines that are added later")


class CsvSource(FileSource):
    """A CSV file with a header line; each row is a mapping of texts."""

    word: ClassVar[str] = "csv source"
    kind: Literal["csv"] = "csv"
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] = Field(
        default=",", description="what separates fields"
    )
    follow: bool = Field(default=False, description="wait for rows that are added later")


class ParquetSource(FileSource):
    """A Parquet file; each row is a mapping. Needs pyarrow."""

    word: ClassVar[str] = "parquet source"
    kind: Literal["parquet"] = "parquet"


class RedisStreamSource(ReadSource):
    """A Redis stream that others write (XADD); each entry is a mapping of its fields."""

    word: ClassVar[str] = "redis-stream source"
    kind: Literal["redis-stream"] = "redis-stream"
    store: Word = Field(description="a store of kind redis")
    stream: Word = Field(description="the key of the stream")
    start: Literal["earliest", "latest"] = Field(
        default="earliest", description="where to begin the first time"
    )


class StreamSource(ReadSource):
    """A stream that another pipe or program of surepipe writes."""

    word: ClassVar[str] = "stream source"
    kind: Literal["stream"] = "stream"
    store: Word = Field(description="the store that has the stream")
    stream: Word = Field(description="the name of the stream")
    start: Literal["earliest", "latest"] | Count = Field(
        default="earliest",
        description="where to begin the first time: earliest, latest or an index",
    )
    reader: Word | None = Field(
        default=None, description="name of the reader; pipeline and source when not given"
    )
    codec: Literal["auto", "json", "bytes"] = Field(
        default="auto",
        description="how its writer puts messages into bytes: auto, as pipes and sinks do unless told otherwise, "
        "json, or bytes as they are",
    )


class StdinSource(ReadSource):
    """Standard input, one message on each line."""

    word: ClassVar[str] = "stdin source"
    replays: ClassVar[bool] = False
    kind: Literal["stdin"] = "stdin"
    format: Literal["json", "text"] = Field(default="json", description="what a line is")


class PythonSource(ReadSource):
    """A function that returns an iterable of messages, such as a generator."""

    word: ClassVar[str] = "python source"
    replays: ClassVar[bool] = False
    kind: Literal["python"] = "python"
    call: CallablePath = Field(description="the function", examples=["shop.orders:new_orders"])
    arguments: Annotated[Mapping[str, str | int | float | bool | None], Frozen] = Field(
        default_factory=FrozenMapping, description="what it is called with"
    )
    repeatable: bool = Field(
        default=False,
        description="it gives the same messages in the same order each time it is called, "
        "so that a restart can pass over those that were accepted",
    )


class ServerTls(PartModel):
    """The certificate of a server: paths of PEM files on the machine that listens."""

    word: ClassVar[str] = "tls"
    cert: Text = Field(description="the certificate that it shows")
    key: Text = Field(description="its private key")
    ca: Text | None = Field(
        default=None, description="who has signed the certificates that clients must show"
    )


class HttpSource(SourceBase):
    """A server that takes messages by POST and answers when they are accepted."""

    word: ClassVar[str] = "http source"
    replays: ClassVar[bool] = False
    kind: Literal["http"] = "http"
    listen: Address = Field(description="host and port", examples=["127.0.0.1:8080"])
    path: Word = Field(default="/", description="the path that takes messages")
    tls: ServerTls | None = Field(default=None, description="a certificate: then it is https")


AnySource: TypeAlias = (
    JsonlSource
    | CsvSource
    | ParquetSource
    | RedisStreamSource
    | StreamSource
    | StdinSource
    | PythonSource
    | HttpSource
)
SourcePart: TypeAlias = Annotated[AnySource, Field(discriminator="kind")]


def replays(source: AnySource) -> bool:
    """True when the source can be read again from a place, after a crash."""
    return source.repeatable if isinstance(source, PythonSource) else source.replays
