"""``stores``: where messages, journals, states and dead letters are kept."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import Field

from surepipe.pipelines.models.common import Count, NamedPart, PartModel, RedisUrl, Text, Word


class MemoryStorePart(NamedPart):
    """In memory: for trying things out. It ends with its process."""

    word: ClassVar[str] = "memory store"
    kind: Literal["memory"] = "memory"


class SqliteStorePart(NamedPart):
    """One SQLite file: for one machine, for several processes."""

    word: ClassVar[str] = "sqlite store"
    kind: Literal["sqlite"] = "sqlite"
    path: Text = Field(
        description="the file; it is made when it is not there. ${NAME} is an environment variable",
        examples=[".surepipe/orders.db"],
    )
    durability: Literal["process", "power"] = Field(
        default="power",
        description="power: survives loss of power (each write waits for the disk). "
        "process: survives a crash of the process only, and is faster",
    )


class RedisStorePart(NamedPart):
    """A Redis server: for several machines."""

    word: ClassVar[str] = "redis store"
    kind: Literal["redis"] = "redis"
    url: RedisUrl = Field(
        description="the server's address; put secrets into environment variables: ${NAME}",
        examples=["redis://localhost:6379/0", "${REDIS_URL}"],
    )
    durability: Literal["none", "interval", "process", "power"] | None = Field(
        default=None,
        description="what the server keeps when it crashes, if you declare it. Otherwise `run` asks the "
        "server, and `check` takes it for none unless it is told to --probe",
    )
    keys: Word | None = Field(
        default=None, description="name that all keys carry; the pipeline's name when not given"
    )
    spread: Literal["pipeline", "stream"] = Field(
        default="pipeline",
        description="pipeline: all keys in one slot, so that one transaction can write them. "
        "stream: a slot for each stream, without such transactions",
    )
    replicas: Annotated[int, Field(ge=0, le=16)] = Field(
        default=0, description="replicas that must have a write before it counts"
    )
    answer_within_s: Annotated[float, Field(gt=0, le=600)] | None = Field(
        default=None, description="seconds after which a call counts as unanswered"
    )


class RetentionPart(PartModel):
    """How long a stream keeps messages that were read. Without a bound it keeps all."""

    word: ClassVar[str] = "retention"
    max_bytes: Count | None = Field(default=None, description="bytes that the stream may take")
    max_age_s: Annotated[float, Field(gt=0, le=86_400 * 36_500)] | None = Field(
        default=None, description="age in seconds after which messages may go"
    )
    force: bool = Field(
        default=False, description="let messages go before they were read (they are then lost)"
    )


AnyStore: TypeAlias = SqliteStorePart | MemoryStorePart | RedisStorePart
StorePart: TypeAlias = Annotated[AnyStore, Field(discriminator="kind")]
