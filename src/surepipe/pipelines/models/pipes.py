"""``pipes``: the layers, what carries them, the stores they use, and what is expected of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
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
    Count,
    InStore,
    NamedPart,
    Names,
    PartModel,
    Seconds,
    Secret,
    Text,
    Word,
    Words,
    one_of,
    row_of,
)
from surepipe.pipelines.models.stores import RetentionPart
from surepipe.pipes.catalogue import KINDS, Layers, parse_layers
from surepipe.pipes.options import LayerOptions
from surepipe.pipes.stack.boundary import Boundary
from surepipe.pipes.stream.options import Stream
from surepipe.queues.book.config import BookConfig, Budget

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


class BudgetPart(PartModel):
    """At most so much; what is left out has no bound."""

    word: ClassVar[str] = "budget"
    messages: Count | None = Field(default=None, description="messages")
    bytes: Count | None = Field(default=None, description="bytes of payload")
    units: Count | None = Field(default=None, description="units, of which `cost` says how many")
    seconds: Seconds | None = Field(
        default=None, description="seconds that stages and sinks take, all workers together"
    )

    @model_validator(mode="after")
    def _bounds_something(self) -> BudgetPart:
        if self.budget == Budget():
            raise ValueError("bounds nothing: write one of messages, bytes, units, seconds")
        return self

    @property
    def budget(self) -> Budget:
        """The same as the book has it."""
        return Budget(self.messages, self.bytes, self.units, self.seconds)


PartyName: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.+#\[\]<>-]{2,64}$")]
CostWord: TypeAlias = Annotated[int, Field(ge=0, le=2**31)] | Word


class BookRoutePart(PartModel):
    """Through a book in a store: one queue for each key, and a stated budget that is shared fairly.

    What can never be paid, or fails too often, is parked until a person has looked at it. `lanes` says how many
    keys are handled at once; without it, one.
    """

    word: ClassVar[str] = "route through a book"
    kind: Literal["book"] = "book"
    store: Word = Field(description="the store that keeps the book")
    budget: BudgetPart | None = Field(
        default=None,
        description="what all processes together may spend in period_s; without it nothing limits the rate",
        examples=[{"units": 50}],
    )
    period_s: Seconds = Field(default=1.0, description="how long the budget is for")
    cost: CostWord = Field(
        default=1,
        description="units of a message: a number, the field that has it, or 'module:function'",
        examples=["shop.apis:cost"],
    )
    max_message_cost: BudgetPart | None = Field(
        default=None,
        description="what costs more can never be paid; without it, what costs more than the budget",
    )
    policy: Literal["drr", "rotate"] = Field(
        default="drr",
        description="drr: each key in turn gets its quantum. rotate: each period begins with the next key",
    )
    quantum: Count = Field(default=100, description="what a key gets in its turn, in `fair_by`")
    fair_by: Literal["units", "messages", "bytes"] = Field(
        default="units", description="what is shared fairly"
    )
    on_overweight: Literal["park", "block", "dead_letter"] = Field(
        default="park", description="what becomes of a message that can never be paid"
    )
    on_poison: Literal["park", "block", "dead_letter"] = Field(
        default="park", description="what becomes of a message that failed `retries` times"
    )
    on_rejected: Literal["dead_letter", "park", "drop"] = Field(
        default="dead_letter",
        description="what becomes of a message that a stage gave Rejected for",
    )
    retries: Annotated[int, Field(ge=1, le=2**31)] = Field(
        default=5, description="attempts that a message has; each stage and sink behind counts here"
    )
    retry_min_s: Seconds = Field(
        default=0.1, description="wait after the first failure; doubles with each further one"
    )
    retry_max_s: Seconds = Field(default=30.0, description="longest such wait")
    lease_s: Seconds = Field(
        default=30.0,
        description="after so long without a sign of life, others go on with a process's queues",
    )
    commit_messages: Annotated[int, Field(ge=1, le=2**20)] = Field(
        default=100,
        description="messages of one key that may come again after a crash, at the most",
    )
    max_origins: Count = Field(default=65_536, description="keys that have messages, at the most")
    refuse_pages: Count | None = Field(
        default=48,
        description="pages that may wait for one key; what feeds the pipe waits when there are more",
    )
    page_bytes: Annotated[int, Field(ge=16, le=1 << 20)] = Field(
        default=65_536, description="size of a page; a message is 5 bytes shorter at least"
    )

    @model_validator(mode="after")
    def _adds_up(self) -> BookRoutePart:
        try:
            config = self.config
        except ConfigurationError as error:
            raise ValueError(str(error)) from None
        if isinstance(self.cost, int) and (most := config.cut_off((None,) * 4)[2]) is not None:
            limit = "budget" if self.max_message_cost is None else "max_message_cost"
            if self.cost > most:
                raise ValueError(
                    f"each message costs {self.cost} units, and {limit} has {most}: none would ever be "
                    "served; raise it, or lower cost"
                )
        return self

    @property
    def config(self) -> BookConfig:
        """The same as the book has it. Raises ConfigurationError."""
        most = None if self.max_message_cost is None else self.max_message_cost.budget
        bounds = BookConfig(
            page_bytes=self.page_bytes,
            policy=self.policy,
            quantum=self.quantum,
            fair_by=self.fair_by,
            period_s=self.period_s,
            max_message_cost=most,
            on_overweight=self.on_overweight,
            on_poison=self.on_poison,
            on_rejected=self.on_rejected,
            retries=self.retries,
            retry_min_s=self.retry_min_s,
            retry_max_s=self.retry_max_s,
            suspend_pages=None,
            resume_pages=None,
            refuse_pages=self.refuse_pages,
            max_origins=self.max_origins,
            lease_s=self.lease_s,
            commit_messages=self.commit_messages,
        )
        if self.budget is None:
            return bounds
        return replace(bounds, period_budget=self.budget.budget, idle_budget=None)

    @property
    def has_overweight(self) -> bool:
        """Whether there can be a message that is never paid."""
        return self.budget is not None or self.max_message_cost is not None

    @property
    def parking(self) -> tuple[str, ...]:
        """The settings by which a message may come to wait for a person, each with what keeps it from that."""
        found: list[str] = []
        if self.has_overweight and self.on_overweight == "park":
            found.append("on_overweight")
        if self.on_poison == "park":
            found.append("on_poison")
        if self.on_rejected == "park":
            found.append("on_rejected")
        return tuple(found)


class PartyPart(PartModel):
    """One side of a connection between parties: its name, and the store and keys that only it has."""

    word: ClassVar[str] = "party"
    party: PartyName = Field(description="its name, which its headers bear", examples=["east"])
    store: Word = Field(description="the store of this party, and of no other")
    keys: Word = Field(
        description="the file of its private keys, made at the first start", examples=["east.keys"]
    )
    trust: Word = Field(
        description="the file that says what the other party is trusted with: surepipe relay trust writes it",
        examples=["west.trust"],
    )


class IbcRoutePart(PartModel):
    """Between two parties that don't trust each other: what one side says, the other verifies.

    Each side has a process, a store and keys of its own. Without ``timeout_s`` each message is executed once, in
    order, as long as both parties and one relay run.
    """

    word: ClassVar[str] = "route between parties"
    kind: Literal["ibc"] = "ibc"
    sends: PartyPart = Field(description="the side that sends")
    receives: PartyPart = Field(description="the side that receives")
    order: Literal["ordered", "unordered"] = Field(
        default="ordered", description="ordered: one after the other. unordered: each by itself"
    )
    trusting_days: Seconds = Field(
        default=14.0,
        description="for how many days a header is worth anything; both sides write the same",
    )
    timeout_s: Seconds | None = Field(
        default=None,
        description="a message that the other side has not received so long after it was sent comes back",
    )
    dead_letter: InStore | None = Field(
        default=None,
        description="store/stream of the sending side: where messages come back that the other side did not take",
        examples=["shop/returned"],
    )
    relay: Literal["sender", "receiver", "none"] = Field(
        default="sender",
        description="whose process carries; it needs both stores. none: surepipe relay does",
    )
    relayers: Words = Field(
        default=("relay",),
        min_length=1,
        description="the relays that both sides take submissions of; each has a name of its own",
        examples=[["relay", "second"]],
    )

    @model_validator(mode="after")
    def _is_between_two(self) -> IbcRoutePart:
        for word, one in (("party", "name"), ("store", "store"), ("keys", "file of keys")):
            if getattr(self.sends, word) == getattr(self.receives, word):
                raise ValueError(
                    f"both sides have {word} {getattr(self.sends, word)}: give one side another {one}; two "
                    "parties that don't trust each other share nothing"
                )
        for side in (self.sends, self.receives):
            if side.trust in (self.sends.keys, self.receives.keys):
                raise ValueError(
                    f"the trust of {side.party} is {side.trust}, which is a file of private keys: write the file "
                    "that the other side makes by surepipe relay trust"
                )
        if self.timeout_s is not None and self.dead_letter is None:
            raise ValueError(
                f"with timeout_s messages come back: say where they go, dead_letter: {self.sends.store}/returned"
            )
        if self.dead_letter is not None and self.dead_letter.partition("/")[0] != self.sends.store:
            raise ValueError(
                f"what comes back is written in the step that gives it up, in the store of {self.sends.party}: "
                f"write dead_letter: {self.sends.store}/{self.dead_letter.partition('/')[2]}"
            )
        return self

    @property
    def store(self) -> str:
        """The store that what comes out is read from."""
        return self.receives.store

    @property
    def retention(self) -> RetentionPart:
        """What comes out is kept."""
        return RetentionPart()


AnyRoute: TypeAlias = LocalRoutePart | TcpRoutePart | StoreRoutePart | BookRoutePart | IbcRoutePart
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
        return _default_stack(isinstance(self.route, StoreRoutePart | BookRoutePart | IbcRoutePart))

    @property
    def has_stream(self) -> bool:
        """True when a layer keeps messages in a store."""
        return any(isinstance(layer, Stream) for layer in self.stack)

    @property
    def stream_store(self) -> str | None:
        """The store that keeps the messages, where one does."""
        if isinstance(self.route, BookRoutePart | IbcRoutePart):
            return self.route.store
        return (
            self.route.store if isinstance(self.route, StoreRoutePart) and self.has_stream else None
        )

    @property
    def taking_store(self) -> str | None:
        """The store that keeps what the sender has accepted, if there is one; between two parties, the
        sender's."""
        return self.route.sends.store if isinstance(self.route, IbcRoutePart) else self.stream_store

    @property
    def ibc(self) -> IbcRoutePart | None:
        """The two parties that it goes between, if it does."""
        return self.route if isinstance(self.route, IbcRoutePart) else None

    @property
    def book(self) -> BookRoutePart | None:
        """The settings of the book that it goes through, if it does."""
        return self.route if isinstance(self.route, BookRoutePart) else None

    @property
    def workers(self) -> int:
        """How many keys are handled at once; 0 where messages are not told apart by keys."""
        return self.lanes or (1 if self.book is not None else 0)

    @property
    def settled(self) -> Boundary:
        """The boundary as the algebra has it."""
        return Boundary(self.boundary)
