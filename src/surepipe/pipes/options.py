"""What the layers of a stack have in common as values: frozen models, checked when they are built.

The model of each kind stands in its own module (``pipes/kinds``), built on one of these. Settings are in seconds,
messages and bytes; machines convert seconds to whole microseconds once, when they are built.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from surepipe.core.callables import nearest
from surepipe.core.timing import BackOff
from surepipe.errors import ConfigurationError

Messages: TypeAlias = Annotated[int, Field(ge=1, le=2**31)]
Bytes: TypeAlias = Annotated[int, Field(ge=1, le=2**31)]
Seconds: TypeAlias = Annotated[float, Field(gt=0, le=86_400 * 365, allow_inf_nan=False)]


def micros(seconds: float) -> int:
    """Whole microseconds of a setting in seconds."""
    return round(seconds * 1_000_000)


def told_wrong(model: type[LayerOptions], error: ValidationError) -> list[str]:
    """What is wrong with the options of a layer, and what to write instead: a line for each."""
    lines: list[str] = []
    for problem in error.errors():
        where = str(problem["loc"][0]) if problem["loc"] else ""
        if problem["type"] == "extra_forbidden":
            what = f"option {where!r} is unknown: {nearest(where, model.model_fields)}"
        elif where:
            what = f"option {where!r} is {problem['input']!r}: {_rule(problem['msg'])}"
        else:
            what = _rule(problem["msg"])
        lines.append(f"({model.kind}): {what}")
    return list(dict.fromkeys(lines))


def _rule(message: str) -> str:
    return message.removeprefix("Value error, ").replace("Input should be", "it must be")


class LayerPlace(NamedTuple):
    """Where a layer stands in its stack, with the label that findings call it by, and what is below it."""

    number: int
    label: str
    below: Sequence[tuple[str, LayerOptions]]


class Misfit(NamedTuple):
    """Why a layer can't do its work at its place: the code of the finding, the reason, and alternatives."""

    code: str
    why: str
    remedies: tuple[str, ...]


class LayerOptions(BaseModel):
    """What every layer has: sizes that people set, and facts about its kind that stacks and the algebra ask."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    kind: ClassVar[str]
    """The name that people write."""
    is_retry: ClassVar[bool] = False
    """True when it sends again what is not confirmed."""
    is_cursor: ClassVar[bool] = False
    """True when its receiver keeps a place, which can be stored and refuses what is older."""
    is_index: ClassVar[bool] = False
    """True when it numbers messages and never sends again."""
    confirms: ClassVar[bool] = False
    """True when its sender learns what is settled, or stored for good."""
    agreed: ClassVar[tuple[str, ...]] = ()
    """Options that change what its frames mean to the other end, so that both ends must have them alike."""

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

    if not TYPE_CHECKING:  # the options of each kind are known to a type checker by its fields

        def __new__(cls, **options: object) -> LayerOptions:
            """Refuse what a program writes wrong as files and mappings are refused. Those are validated, and give
            no options here. Raises ConfigurationError."""
            if options:
                try:
                    cls.model_validate(options)
                except ValidationError as error:
                    lines = told_wrong(cls, error)
                    raise ConfigurationError("\n".join(f"layer {line}" for line in lines)) from None
            return super().__new__(cls)

    def __str__(self) -> str:
        """The kind, with the options that were given."""
        given = ", ".join(
            f"{name}={getattr(self, name)}"
            for name in type(self).model_fields
            if name in self.model_fields_set
        )
        return f"{self.kind}({given})" if given else self.kind

    @property
    def span_max(self) -> int:
        """How many messages of this layer may be under way at once; 0 when it keeps no count."""
        return 0

    @property
    def waits_for_carried_confirms(self) -> bool:
        """True when this layer never sends again by itself, so that its confirms must not be lost."""
        return False

    @property
    def lets_repeats_through(self) -> bool:
        """True when it is set to hand up what it has handed up before."""
        return False

    def misfits(self, place: LayerPlace) -> Iterator[Misfit]:
        """What of its options does not fit the place where it stands. Kinds that have such options override it."""
        del place
        yield from ()

    def notes(self, label: str) -> Iterator[str]:
        """Remarks of ``check`` beside the promises."""
        del label
        yield from ()


class BacklogOptions(LayerOptions):
    """Layers whose sender keeps messages that are not on the way yet."""

    confirms: ClassVar[bool] = True

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

    @property
    def back_off(self) -> BackOff:
        """The waits between two attempts, before any round trip was measured."""
        return BackOff.of_seconds(self.rto_initial_s, self.rto_max_s, self.jitter)

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
    def span_max(self) -> int:
        """The window, where many frames are on the way at once."""
        return self.window

    @property
    def held_max(self) -> int:
        """Messages that the receiver holds and has in work at the most."""
        return self.receive_window or self.window

    @property
    def held_max_bytes(self) -> int:
        """The same in bytes."""
        return self.receive_window_bytes or self.window_bytes


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


def keeper_of(layers: Sequence[LayerOptions]) -> BacklogOptions | None:
    """The outermost layer that keeps messages which are not on the way yet."""
    return next((layer for layer in layers if isinstance(layer, BacklogOptions)), None)


def room_options(layers: Sequence[LayerOptions], *, journaled: bool) -> str:
    """The options that say how much a sender accepts, in words; a journal has a backlog of its own, as large."""
    outermost, keeper = layers[0], keeper_of(layers)
    if keeper is None or keeper is outermost:
        return "backlog" if keeper else ""
    return f"backlog of {keeper.kind}" if journaled else f"receive_window of {outermost.kind}"


def entry_layer(layers: Sequence[LayerOptions]) -> int | None:
    """The layer whose messages carry confirms of the opposite stack of a channel; None if none can.

    It is the outermost that does not itself wait for carried confirms: each of those would need another.
    """
    entries = (n for n, layer in enumerate(layers) if not layer.waits_for_carried_confirms)
    return next(entries, None)
