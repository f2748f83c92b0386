"""The options of the stream pipe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from surepipe.pipes.options import (
    BacklogOptions,
    Bytes,
    LayerOptions,
    LayerPlace,
    Messages,
    Misfit,
)


class Stream(BacklogOptions):
    """A stream store in between: the two ends need not be alive together."""

    kind: ClassVar[str] = "stream"
    is_cursor: ClassVar[bool] = True

    stream: str | None = Field(
        default=None, description="name of the stream; the pipe's name when not given"
    )
    producer: str | None = Field(
        default=None, description="name of the sender; the pipe's name when not given"
    )
    reader: str | None = Field(
        default=None, description="name of the reader; the pipe's name when not given"
    )
    start: Literal["earliest", "latest"] | Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="where a reader without a position starts: earliest, latest or an index",
    )
    commit: (
        Literal["batch", "message"] | Annotated[int, Field(ge=1)] | Annotated[float, Field(gt=0)]
    ) = Field(
        default="batch",
        description="how often the position is committed, behind which a crash repeats: when all of a read "
        "is settled, or a second later (batch: up to `read_max` come again), after each message (message: one "
        "write each), each n, or after seconds (0.2)",
    )
    retain: int = Field(
        default=0, ge=0, description="confirmed messages the sender keeps for a rolled-back store"
    )
    calls_max: Annotated[int, Field(ge=1, le=64)] = Field(
        default=4, description="appends under way at once"
    )
    read_max: Messages = Field(default=1024, description="messages read and in work at once")
    read_max_bytes: Bytes = Field(default=1024 * 1024, description="the same in bytes")
    on_trimmed: Literal["stop", "skip"] = Field(
        default="stop", description="when unread entries are gone"
    )
    on_reset: Literal["stop", "earliest"] = Field(
        default="stop", description="when the stream was made anew"
    )
    on_diverged: Literal["stop", "earliest"] = Field(
        default="stop", description="when the store went back"
    )

    def misfits(self, place: LayerPlace) -> Iterator[Misfit]:
        """A store is the end of a stack, and a reader must know where to begin."""
        if self.start is None:
            yield Misfit(
                "no-start-policy",
                f"{place.label} does not say where a reader without a position begins",
                ("set start to earliest, latest or an index",),
            )

    def notes(self, label: str) -> Iterator[str]:
        """Say what is kept in case a store goes back."""
        del label
        if self.retain:
            yield f"store-rollback: up to {self.retain} messages are appended again"


def stream_layer(layers: Sequence[LayerOptions]) -> Stream:
    """The stream layer among these; one without any options where there is none."""
    return next((one for one in layers if isinstance(one, Stream)), Stream())
