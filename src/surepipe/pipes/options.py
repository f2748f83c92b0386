"""The layers of a stack as people write them: one frozen model per kind, checked when it is built.

A layer is written as its name (``"reliable"``) or as a mapping of its name to options
(``{"multi-unconfirmed": {"window": 512}}``). Settings are in seconds, messages and bytes; machines convert
seconds to whole microseconds once, when they are built.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal, TypeAlias, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from surepipe.errors import ConfigurationError

Messages: TypeAlias = Annotated[int, Field(ge=1, le=2**31)]
Bytes: TypeAlias = Annotated[int, Field(ge=1, le=2**31)]
Seconds: TypeAlias = Annotated[float, Field(gt=0, le=86_400 * 365, allow_inf_nan=False)]


def micros(seconds: float) -> int:
    """Whole microseconds of a setting in seconds."""
    return round(seconds * 1_000_000)


class LayerOptions(BaseModel):
    """What every layer has."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    kind: ClassVar[str]
    is_retry: ClassVar[bool] = False
    is_cursor: ClassVar[bool] = False
    is_index: ClassVar[bool] = False

    run_max: Messages = Field(default=512, description="messages in one frame at the most")
    frame_max_bytes: Bytes = Field(
        default=64 * 1024, description="payload bytes of a frame, unless one message is larger"
    )
    message_max_bytes: Bytes = Field(
        default=1024 * 1024, description="bytes of one message at the most"
    )
    gap_alarm_s: Seconds = Field(
        default=5.0, description="age of a hole after which it is reported"
    )

    def __str__(self) -> str:
        """The kind, with the options that were given."""
        given = ", ".join(
            f"{name}={getattr(self, name)}"
            for name in type(self).model_fields
            if name in self.model_fields_set
        )
        return f"{self.kind}({given})" if given else self.kind


class BacklogOptions(LayerOptions):
    """Layers whose sender keeps messages that are not on the way yet."""

    backlog: Messages = Field(default=8192, description="messages accepted and not yet transmitted")
    backlog_bytes: Bytes = Field(default=64 * 1024 * 1024, description="the same in bytes")
    rto_initial_s: Seconds = Field(
        default=1.0, description="time to wait for a confirm before any was seen"
    )
    rto_min_s: Seconds = Field(default=0.1, description="shortest time to wait for a confirm")
    rto_max_s: Seconds = Field(default=30.0, description="longest time between two attempts")
    jitter: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.1, description="random part of a deadline"
    )
    burst_max: Messages = Field(default=32, description="frames sent again at one wake")

    @model_validator(mode="after")
    def _timers_in_order(self) -> BacklogOptions:
        if self.rto_min_s > self.rto_max_s:
            raise ValueError(
                f"rto_min_s ({self.rto_min_s}) is above rto_max_s ({self.rto_max_s}); raise rto_max_s"
            )
        return self


class RetryOptions(BacklogOptions):
    """Layers that send again what is not confirmed."""

    is_retry: ClassVar[bool] = True

    window: Messages = Field(default=1024, description="span of messages in flight")
    window_bytes: Bytes = Field(default=8 * 1024 * 1024, description="the same in bytes")
    receive_window: Messages | None = Field(
        default=None,
        description="messages held and in work at the receiver; as window when not given",
    )
    receive_window_bytes: Bytes | None = Field(default=None, description="the same in bytes")
    initial_credit: Messages = Field(
        default=64, description="messages sent before the receiver was heard"
    )
    confirm_delay_s: Seconds = Field(
        default=0.01, description="how long a confirm may wait for company"
    )
    nack_delay_s: Seconds = Field(
        default=0.02, description="age of a hole after which it is reported"
    )
    nack_after: Messages = Field(
        default=3, description="later frames after which a hole is reported"
    )
    warn_after: Messages = Field(
        default=5, description="attempts after which Unanswered is noticed"
    )
    give_up_after_s: Seconds | None = Field(
        default=None, description="age after which a message is given up"
    )

    @property
    def held_max(self) -> int:
        """Messages that the receiver holds and has in work at the most."""
        return self.receive_window or self.window

    @property
    def held_max_bytes(self) -> int:
        """The same in bytes."""
        return self.receive_window_bytes or self.window_bytes


class ResendOptions(RetryOptions):
    """At-least-once with the least state: one frame unconfirmed at a time."""

    kind: ClassVar[str] = "resend"


class MultiUnconfirmedOptions(RetryOptions):
    """At-least-once with a window of messages in flight; no order."""

    kind: ClassVar[str] = "multi-unconfirmed"


class SequentialConfirmOptions(RetryOptions):
    """One message at a time, each confirmed before the next."""

    kind: ClassVar[str] = "sequential-confirm"
    is_cursor: ClassVar[bool] = True

    run_max: Messages = Field(default=1, description="messages in one frame at the most")
    retry: Literal["own", "carrier"] = Field(
        default="own", description="who sends again: this layer, or what is below"
    )
    repeats: Literal["none", "forward"] = Field(
        default="none", description="what happens to a repeat"
    )

    @model_validator(mode="after")
    def _a_unit_fits(self) -> SequentialConfirmOptions:
        """Nobody would send the rest of a unit again, where only the carrier repeats."""
        if self.retry == "carrier" and min(self.run_max, self.window) > self.held_max:
            raise ValueError(
                f"a unit of {min(self.run_max, self.window)} messages exceeds the receive_window of "
                f"{self.held_max}, and with retry: carrier what has no room is not sent again; "
                "lower run_max"
            )
        if self.retry == "carrier" and self.frame_max_bytes > self.held_max_bytes:
            raise ValueError(
                f"a unit of frame_max_bytes ({self.frame_max_bytes}) exceeds the receive_window_bytes of "
                f"{self.held_max_bytes}, and with retry: carrier what has no room is not sent again; "
                "lower frame_max_bytes"
            )
        return self


class ReliableOptions(RetryOptions):
    """Exactly-once in order over any route with a way back, in one layer."""

    kind: ClassVar[str] = "reliable"
    is_cursor: ClassVar[bool] = True


class IndexOptions(LayerOptions):
    """Layers that number messages and never send again."""

    is_index: ClassVar[bool] = True
    is_cursor: ClassVar[bool] = True

    receive_window: Messages = Field(
        default=1024, description="messages held and in work at the receiver"
    )
    receive_window_bytes: Bytes = Field(default=8 * 1024 * 1024, description="the same in bytes")

    @property
    def held_max(self) -> int:
        """Messages that the receiver holds and has in work at the most."""
        return self.receive_window

    @property
    def held_max_bytes(self) -> int:
        """The same in bytes."""
        return self.receive_window_bytes


class StrictMonotonicOptions(IndexOptions):
    """Never a repeat, never backwards; loses what is overtaken."""

    kind: ClassVar[str] = "strict-monotonic"

    relaxed: bool = Field(default=False, description="let the last message through again")


class ContinuousIndexOptions(IndexOptions):
    """Absolute order over a carrier that loses nothing; holds what comes early."""

    kind: ClassVar[str] = "continuous-index"

    repeats: Literal["none", "last", "all"] = Field(
        default="none", description="which repeats are delivered"
    )
    rto_initial_s: Seconds = Field(
        default=1.0, description="first wait for an answer on the control path"
    )
    rto_max_s: Seconds = Field(
        default=30.0, description="longest wait for an answer on the control path"
    )
    jitter: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.1, description="random part of a deadline"
    )


class DedupeOptions(IndexOptions):
    """No repeats, no order."""

    kind: ClassVar[str] = "dedupe"

    dedupe_window: Messages = Field(
        default=65_536, description="span below the highest seq that is remembered"
    )


class StreamOptions(BacklogOptions):
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
        description="how often the position is committed: batch, message, n or seconds",
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


KINDS: Mapping[str, type[LayerOptions]] = {
    model.kind: model
    for model in (
        ResendOptions,
        MultiUnconfirmedOptions,
        StreamOptions,
        SequentialConfirmOptions,
        StrictMonotonicOptions,
        ContinuousIndexOptions,
        DedupeOptions,
        ReliableOptions,
    )
}


def waits_for_carried_confirms(layer: LayerOptions) -> bool:
    """True when this layer never sends again, so that its confirms must not be lost."""
    return isinstance(layer, SequentialConfirmOptions) and layer.retry == "carrier"


def entry_layer(layers: Sequence[LayerOptions]) -> int | None:
    """The layer whose messages carry confirms of the opposite stack of a channel; None if none can.

    It is the outermost that does not itself wait for carried confirms: each of those would need another.
    """
    entries = (n for n, layer in enumerate(layers) if not waits_for_carried_confirms(layer))
    return next(entries, None)


LayerText: TypeAlias = str | Mapping[str, Mapping[str, object] | None] | LayerOptions


def parse_layers(layers: LayerText | Sequence[object]) -> tuple[LayerOptions, ...]:
    """Read a list of layers, outermost first; one layer may stand without a list.

    Raises ConfigurationError that names the value and what to write instead.
    """
    if isinstance(layers, str | Mapping | LayerOptions):
        layers = [layers]
    if not layers:
        raise ConfigurationError("layers is empty: a pipe needs one at least, such as 'reliable'")
    return tuple(_parse_layer(number, layer) for number, layer in enumerate(layers))


def _parse_layer(number: int, layer: object) -> LayerOptions:
    """One layer. What people write is not typed, so each shape is looked at."""
    if isinstance(layer, LayerOptions):
        return layer
    name, options = layer, None
    if isinstance(layer, Mapping):
        written = cast("Mapping[object, object]", layer)
        if len(written) == 1:
            name, options = next(iter(written.items()))
    if not isinstance(name, str):
        raise ConfigurationError(
            f"layer {number} is {layer!r}: write its name, or one mapping of its name to its "
            "options, such as {'multi-unconfirmed': {'window': 512}}"
        )
    model = KINDS.get(name)
    if model is None:
        raise ConfigurationError(
            f"layer {number} is {name!r}, which is no pipe: {_nearest(name, KINDS)}"
        )
    try:
        return model.model_validate({} if options is None else options)
    except ValidationError as error:
        raise ConfigurationError(_explain(number, model, error)) from None


def _nearest(word: str, known: Mapping[str, object]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {close[0]!r}?" if close else "known are " + ", ".join(sorted(known))


def _explain(number: int, model: type[LayerOptions], error: ValidationError) -> str:
    lines: list[str] = []
    for problem in error.errors():
        where = str(problem["loc"][0]) if problem["loc"] else ""
        if problem["type"] == "extra_forbidden":
            what = f"option {where!r} is unknown: {_nearest(where, model.model_fields)}"
        elif where:
            what = f"option {where!r} is {problem['input']!r}: {_rule(problem['msg'])}"
        else:
            what = _rule(problem["msg"])
        line = f"layer {number} ({model.kind}): {what}"
        if line not in lines:
            lines.append(line)
    return "\n".join(lines)


def _rule(message: str) -> str:
    return message.removeprefix("Value error, ").replace("Input should be", "it must be")
