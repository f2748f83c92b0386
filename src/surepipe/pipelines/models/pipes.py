"""``pipes``: the layers, what carries them, the stores they use, and what is expected of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, cast

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    InstanceOf,
    WithJsonSchema,
    model_validator,
)

from surepipe.core.claims import FAULTS_OF, WORDS, Claim
from surepipe.errors import ConfigurationError
from surepipe.pipelines.models.common import (
    Address,
    CallablePath,
    NamedPart,
    Names,
    PartModel,
    Secret,
    Text,
    Word,
    one_of,
    row_of,
)
from surepipe.pipelines.models.stores import RetentionPart
from surepipe.pipes.catalogue import KINDS, Layers, parse_layers
from surepipe.pipes.options import LayerOptions
from surepipe.pipes.stack.boundary import Boundary
from surepipe.pipes.stream.options import Stream

# ``layers``: a name or a mapping of a name to options, and what an editor may know of them.


def layers_of(written: object) -> tuple[LayerOptions, ...]:
    """The layers of a pipe. Raises ValueError that names what is wrong; () stays ()."""
    if isinstance(written, tuple) and not written:
        return ()
    try:
        return parse_layers(cast("Layers", written))
    except ConfigurationError as error:
        raise ValueError(str(error)) from None


def _options_schema(model: type[LayerOptions]) -> dict[str, Any]:
    schema = model.model_json_schema()
    schema.pop("title", None)
    for option in cast("dict[str, dict[str, Any]]", schema.get("properties", {})).values():
        option.pop("title", None)
    return {"anyOf": [schema, {"type": "null"}]}


def _described(model: type[LayerOptions]) -> str:
    return (model.__doc__ or model.kind).splitlines()[0]


def _layer_schema(kinds: Mapping[str, type[LayerOptions]]) -> dict[str, Any]:
    names = [
        {"const": kind, "type": "string", "description": _described(model)}
        for kind, model in kinds.items()
    ]
    with_options = {
        "type": "object",
        "properties": {
            kind: {**_options_schema(model), "description": _described(model)}
            for kind, model in kinds.items()
        },
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    }
    return {"anyOf": [*names, with_options]}


LAYER_SCHEMA: dict[str, Any] = _layer_schema(KINDS)
LAYERS_SCHEMA: dict[str, Any] = {
    "anyOf": [LAYER_SCHEMA, {"type": "array", "items": LAYER_SCHEMA, "minItems": 1}]
}


FAULT_WORDS: tuple[str, ...] = tuple(FAULTS_OF)


def _fault(word: str) -> str:
    return one_of(word, "fault", FAULT_WORDS)


FaultWord: TypeAlias = Annotated[
    str, AfterValidator(_fault), WithJsonSchema({"type": "string", "enum": list(FAULT_WORDS)})
]
_FAULTS_SCHEMA = {
    "anyOf": [
        {"type": "string", "enum": list(FAULT_WORDS)},
        {"type": "array", "items": {"type": "string", "enum": list(FAULT_WORDS)}},
    ]
}


class Expect(PartModel):
    """What must hold: a delivery, an order, and the faults that both must survive together."""

    word: ClassVar[str] = "expect"
    delivery: Literal["best-effort", "at-most-once", "at-least-once", "exactly-once"] = Field(
        default="best-effort", description="how often each message is delivered"
    )
    order: Literal["none", "monotonic", "strict", "gap-free", "continuous", "absolute"] = Field(
        default="none", description="in which order"
    )
    tolerates: Annotated[
        tuple[FaultWord, ...], BeforeValidator(row_of), WithJsonSchema(_FAULTS_SCHEMA)
    ] = Field(
        default=(),
        description=f"what this must survive, all of it together: {', '.join(WORDS)}, "
        "or the faults behind these words",
    )
    per: Literal["pipe", "key"] = Field(
        default="pipe",
        description="key: the order is expected among messages of one key only",
    )

    @property
    def claim(self) -> Claim:
        """The same as the algebra has it."""
        return Claim.named(self.delivery, self.order, self.tolerates)


class LocalRoutePart(PartModel):
    """Within one process: nothing is lost, repeated or overtaken."""

    word: ClassVar[str] = "local route"
    kind: Literal["local"] = "local"


class Tls(PartModel):
    """Certificates of both sides: paths of PEM files on the machine that opens the link."""

    word: ClassVar[str] = "tls"
    cert: Text = Field(description="the certificate that this side shows")
    key: Text = Field(description="its private key")
    ca: Text = Field(description="who has signed the other side's certificate")
    name: Word | None = Field(
        default=None, description="name in the other side's certificate, if it is not the host"
    )


class TcpRoutePart(PartModel):
    """Between processes and machines, over TCP. Off one machine it needs `secret` or `tls`."""

    word: ClassVar[str] = "tcp route"
    kind: Literal["tcp"] = "tcp"
    address: Address = Field(
        description="host and port where one side listens", examples=["orders.internal:7400"]
    )
    listens: Literal["receiver", "sender"] = Field(
        default="receiver", description="the side that listens; the other connects"
    )
    secret: Secret | None = Field(
        default=None,
        description="a shared key of 32 signs or more, in an environment variable",
        examples=["${ORDERS_KEY}"],
    )
    tls: Tls | None = Field(default=None, description="certificates, in place of a shared key")

    @model_validator(mode="after")
    def _protected_once(self) -> TcpRoutePart:
        if self.secret is not None and self.tls is not None:
            raise ValueError("has secret and tls: write one of them")
        return self


class StoreRoutePart(PartModel):
    """Through a store: a stream layer (the default) keeps messages there until they are read.

    Redis between machines, SQLite between processes of one machine, memory for trying things out. The kind must
    be that of the store. Other layers need a route that carries frames: local or tcp.
    """

    word: ClassVar[str] = "route through a store"
    kind: Literal["redis", "sqlite", "memory"] = "sqlite"
    store: Word = Field(description="the store that keeps the stream")
    retention: RetentionPart = Field(
        default_factory=RetentionPart, description="how long messages are kept; all when not given"
    )


AnyRoute: TypeAlias = LocalRoutePart | TcpRoutePart | StoreRoutePart
RoutePart: TypeAlias = Annotated[AnyRoute, Field(discriminator="kind")]


@cache
def _default_stack(through_store: bool) -> tuple[LayerOptions, ...]:
    """What stands for layers where none are written."""
    return layers_of([{"stream": {"start": "earliest"}}] if through_store else ["reliable"])


class PipePart(NamedPart):
    """A reliable way from what feeds it to what follows it."""

    word: ClassVar[str] = "pipe"
    from_: Names = Field(
        validation_alias="from", description="the sources or stages (or pipes) that feed it"
    )
    layers: Annotated[
        tuple[InstanceOf[LayerOptions], ...],
        BeforeValidator(layers_of),
        WithJsonSchema(LAYERS_SCHEMA),
    ] = Field(
        default=(),
        description="the patterns that make the pipe, outermost first; by default reliable, "
        "and over a store stream",
        examples=[["continuous-index", {"multi-unconfirmed": {"window": 512}}]],
    )
    route: RoutePart = Field(
        default_factory=LocalRoutePart,
        description="what carries it; within the process when not given",
    )
    journal: Word | None = Field(
        default=None, description="the store that keeps what was accepted and is not confirmed"
    )
    state: Word | None = Field(
        default=None, description="the store that keeps how far the receiver is"
    )
    boundary: Literal["handed", "before", "processed", "committed"] = Field(
        default="processed",
        description="when a message counts as settled: taken over; before it is processed; after; or "
        "in one transaction with its effect",
    )
    node: Word | None = Field(
        default=None,
        description="the process that its receiver, and what follows it, runs in; where its sender is when "
        "not given",
        examples=["warehouse"],
    )
    key: Word | None = Field(
        default=None,
        description="the field, or 'module:function', that gives a message's key; the key that it has already "
        "when not given",
        examples=["customer"],
    )
    lanes: Annotated[int, Field(ge=1, le=1024)] | None = Field(
        default=None,
        description="how many keys are handled at once: messages of one key keep their order, others may "
        "overtake, and one that fails holds up its own key only. Needs a key",
    )
    payload: Literal["auto", "json", "bytes"] | CallablePath = Field(
        default="auto", description="json, bytes, or a pydantic model 'module:Class'"
    )
    expect: Expect | None = Field(default=None, description="what this pipe must guarantee")

    @property
    def stack(self) -> tuple[LayerOptions, ...]:
        """The layers, also where none are written."""
        if self.layers:
            return self.layers
        return _default_stack(isinstance(self.route, StoreRoutePart))

    @property
    def has_stream(self) -> bool:
        """True when a layer keeps messages in a store."""
        return any(isinstance(layer, Stream) for layer in self.stack)

    @property
    def stream_store(self) -> str | None:
        """The store that keeps the messages, where one does."""
        return (
            self.route.store if isinstance(self.route, StoreRoutePart) and self.has_stream else None
        )

    @property
    def settled(self) -> Boundary:
        """The boundary as the algebra has it."""
        return Boundary(self.boundary)
