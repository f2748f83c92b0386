"""``stages`` and ``sinks``: what is done with messages, and where they go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import Field, model_validator

from surepipe.pipelines.models.common import (
    CallablePath,
    Count,
    Frozen,
    FrozenMapping,
    Hidden,
    InStore,
    NamedPart,
    Names,
    PartModel,
    Seconds,
    Text,
    Word,
    Words,
)

STAGE_KINDS = ("call", "map", "filter", "flat-map", "key-by", "batch")


class Trying(NamedPart):
    """What everything has that may fail on a message."""

    retries: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        default=None,
        description="attempts after which a message becomes a dead letter; without it, it is tried for ever",
    )
    retry_min_s: Seconds = Field(
        default=0.1, description="wait after the first failure; doubles with each further one"
    )
    retry_max_s: Seconds = Field(default=30.0, description="longest such wait")
    time_limit_s: Seconds | None = Field(
        default=None, description="time after which an attempt counts as failed"
    )
    dead_letter: InStore | None = Field(
        default=None,
        description="the stream, 'store/stream', for messages that failed too often",
        examples=["main/orders.dead"],
    )

    @model_validator(mode="after")
    def _waits_in_order(self) -> Trying:
        if self.retry_min_s > self.retry_max_s:
            raise ValueError(
                f"retry_min_s ({self.retry_min_s}) is above retry_max_s ({self.retry_max_s}): raise retry_max_s"
            )
        return self


class Batching(PartModel):
    """When a batch is full."""

    word: ClassVar[str] = "batch"
    max: Count = Field(description="messages in a batch at the most")
    wait_s: Seconds = Field(default=0.1, description="how long a batch waits for company")


def _one_kind(schema: dict[str, Any]) -> None:
    """Exactly one of the words that say what a stage does."""
    schema["oneOf"] = [{"required": [kind]} for kind in STAGE_KINDS]


class StagePart(Trying):
    """A step: exactly one of call, map, filter, flat-map, key-by, batch.

    Functions are called with the message, or with message and context.
    """

    word: ClassVar[str] = "stage"
    model_config: ClassVar[Any] = {"json_schema_extra": _one_kind}
    from_: Names = Field(
        validation_alias="from", description="the sources, pipes or stages that feed it"
    )
    call: CallablePath | None = Field(
        default=None,
        description="a function with effects; what it returns goes on, None does not",
        examples=["shop.orders:price"],
    )
    map: CallablePath | None = Field(
        default=None, description="a function without effects: its result is the new message"
    )
    filter: CallablePath | None = Field(
        default=None, description="a function without effects: messages go on for which it is true"
    )
    flat_map: CallablePath | None = Field(
        default=None,
        validation_alias="flat-map",
        description="a function that gives any number of messages",
    )
    key_by: Word | None = Field(
        default=None,
        validation_alias="key-by",
        description="a field, or 'module:function', that gives the new key",
    )
    batch: Batching | None = Field(default=None, description="several messages become one list")

    @model_validator(mode="after")
    def _exactly_one(self) -> StagePart:
        given = [kind for kind in STAGE_KINDS if self._given(kind) is not None]
        if len(given) != 1:
            said = f"has {' and '.join(given)}" if given else "does nothing"
            raise ValueError(f"{said}: write exactly one of {', '.join(STAGE_KINDS)}")
        return self

    def _given(self, kind: str) -> object:
        return getattr(self, kind.replace("-", "_"))

    @model_validator(mode="after")
    def _limits_what_it_calls(self) -> StagePart:
        if self.time_limit_s is not None and (self.key_by is not None or self.batch is not None):
            raise ValueError(f"time_limit_s ends a call, and {self.kind} makes none: leave it out")
        return self

    @property
    def kind(self) -> str:
        """Which of the kinds it is."""
        return next(kind for kind in STAGE_KINDS if self._given(kind) is not None)

    @property
    def does(self) -> str:
        """What it does, in a few signs: the function, the field, the size."""
        if self.batch is not None:
            return f"batch of {self.batch.max}"
        return str(self._given(self.kind))

    @property
    def may_end(self) -> bool:
        """True when its effect is the end of a way: nothing need follow it."""
        return self.call is not None


class SinkBase(Trying):
    """What every sink has. ``commits``: it can take part in the transaction of boundary ``committed``."""

    commits: ClassVar[bool] = False
    from_: Names = Field(
        validation_alias="from", description="the pipes or stages whose messages go here"
    )

    @model_validator(mode="after")
    def _limits_what_it_calls(self) -> SinkBase:
        if self.time_limit_s is not None and not isinstance(self, PythonSink | HttpSink):
            raise ValueError(
                f"time_limit_s ends a call or a request, and a {self.word} makes neither: leave it out"
            )
        return self


class JsonlSink(SinkBase):
    """A file, one JSON value on each line."""

    word: ClassVar[str] = "jsonl sink"
    commits: ClassVar[bool] = True
    kind: Literal["jsonl"] = "jsonl"
    path: Text = Field(description="the file; lines are added to it", examples=["out/orders.jsonl"])


class CsvSink(SinkBase):
    """A CSV file."""

    word: ClassVar[str] = "csv sink"
    commits: ClassVar[bool] = True
    kind: Literal["csv"] = "csv"
    path: Text = Field(description="the file; rows are added to it")
    columns: Words = Field(
        default=(), description="the fields to write; those of the first message"
    )


class ParquetSink(SinkBase):
    """A folder of Parquet files. Needs pyarrow."""

    word: ClassVar[str] = "parquet sink"
    kind: Literal["parquet"] = "parquet"
    path: Text = Field(description="the folder")
    rows_per_file: Count = Field(default=100_000, description="rows in a file at the most")


class StdoutSink(SinkBase):
    """Standard output, one message on each line."""

    word: ClassVar[str] = "stdout sink"
    kind: Literal["stdout"] = "stdout"
    format: Literal["json", "text"] = Field(default="json", description="what a line is")


class PythonSink(SinkBase):
    """A function that takes each message. With boundary committed, its context has the transaction."""

    word: ClassVar[str] = "python sink"
    commits: ClassVar[bool] = True
    kind: Literal["python"] = "python"
    call: CallablePath = Field(description="the function", examples=["shop.orders:book"])
    idempotent: bool = Field(
        default=False, description="a message that comes again has no second effect"
    )


class HttpSink(SinkBase):
    """A POST for each message, with its identity as Idempotency-Key."""

    word: ClassVar[str] = "http sink"
    kind: Literal["http"] = "http"
    url: Text = Field(description="the address", examples=["https://${HOST}/orders"])
    headers: Annotated[Mapping[str, Hidden], Frozen] = Field(
        default_factory=FrozenMapping, description="headers; put secrets into environment variables"
    )
    idempotent: bool = Field(
        default=False, description="the server heeds Idempotency-Key, so a repeat has no effect"
    )


class StreamSink(SinkBase):
    """A stream of surepipe, for other pipelines and programs. Appended by identity: a repeat adds nothing."""

    word: ClassVar[str] = "stream sink"
    commits: ClassVar[bool] = True
    kind: Literal["stream"] = "stream"
    store: Word = Field(description="the store that keeps the stream")
    stream: Word = Field(description="the name of the stream")


class RmqSink(SinkBase):
    """A replicated queue, which survives its nodes. Submitted with its identity: a repeat is decided once."""

    word: ClassVar[str] = "rmq sink"
    kind: Literal["rmq"] = "rmq"
    cluster: Text = Field(
        description="the file of the queue, which surepipe node new writes",
        examples=["orders/cluster.yaml"],
    )
    until: Literal["decided", "placed"] = Field(
        default="decided",
        description="decided: the queue has done it, and a refused message fails here. placed: more nodes keep it "
        "than may be lost",
    )
    ttl_s: Annotated[Seconds, Field(le=86_400)] = Field(
        default=60.0, description="what isn't decided after so many seconds is submitted again"
    )


AnySink: TypeAlias = (
    JsonlSink | CsvSink | ParquetSink | StdoutSink | PythonSink | HttpSink | StreamSink | RmqSink
)
SinkPart: TypeAlias = Annotated[AnySink, Field(discriminator="kind")]
