"""Check the parts of a pipe as a whole, then make its ends from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, TypedDict, cast

from surepipe.actors.codecs import Codec, CodecChoice, choose_codec, wire_form
from surepipe.actors.consuming.committed import Commits
from surepipe.actors.consuming.lanes import KeyChoice, chosen_lanes, key_reader
from surepipe.actors.ends.intake import ExclusiveStore
from surepipe.actors.ends.receiver import ReceiverEnd
from surepipe.actors.ends.sender import SenderEnd
from surepipe.actors.ends.stores import (
    Letters,
    StoreRoles,
    hop_of,
    journal_of,
    letter_place,
    lives_of,
    state_of,
    stream_of,
)
from surepipe.actors.host import FRAMES_MAX, EndOptions
from surepipe.actors.notices import NoticeCallback, log_notice
from surepipe.actors.routes import LocalRoute, Route
from surepipe.actors.runtime import Runtime
from surepipe.actors.supervision import RestartPolicy
from surepipe.actors.threads import THREADS
from surepipe.actors.tracing import TraceSink, Tracing
from surepipe.core.callables import refuse_unknown, require
from surepipe.core.store_requests import KEEP_ALL, Retention, Store, TransactionalStore, called
from surepipe.errors import ConfigurationError, StoreUnavailable
from surepipe.guarantees import derive, hops
from surepipe.guarantees.derivation import Derived
from surepipe.pipes.catalogue import KINDS, Layers, kind_of, parse_layers
from surepipe.pipes.options import LayerOptions
from surepipe.pipes.stack.agreement import Terms, stack_text
from surepipe.pipes.stack.assembled import composition
from surepipe.pipes.stack.boundary import Boundary, BoundaryOptions, require_count
from surepipe.pipes.stream.options import Stream, stream_layer
from surepipe.storage.journal import StoreJournal
from surepipe.storage.letters import DeadLetterStream

# Larger runs for a pipe within one process: frames there are objects, and cost nothing per byte.
#
# Every step of a machine and every change from one thread to another is paid per run, so longer runs are
# faster. The bounds in bytes stay those of the options; only their number of messages grows.


DELIVER_MAX = 4096
"""Messages in one delivery at the most, where runs are this long."""

SIZES = {
    "run_max": 4096,
    "frame_max_bytes": 1024 * 1024,
    "window": 8192,
    "receive_window": 8192,
    "backlog": 16_384,
}


IN_STACK_BYTES = 256 * 1024
"""``frame_max_bytes`` above other layers: such a frame is a message of the next layer, whose window has 8 MiB."""


def with_long_runs(layers: Sequence[LayerOptions]) -> tuple[LayerOptions, ...]:
    """The same layers, of which the outermost has the sizes above, where nobody has given any.

    In a stack the frames of one layer are messages of the next, so the inner layers have fewer of them and stay as
    they are. Bounds in bytes that were given there may be too small for such messages.
    """
    first, *inner = layers
    given = {name for layer in layers for name in layer.model_fields_set}
    is_sized = bool(SIZES.keys() & given)
    sizes = SIZES
    if inner:
        is_sized |= any(name.endswith("_bytes") for name in given)
        sizes = SIZES | {"frame_max_bytes": IN_STACK_BYTES}
    known = type(first).model_fields
    sends_singly = known["run_max"].default == 1
    if isinstance(first, Stream) or sends_singly or is_sized:
        return tuple(layers)
    update = {name: size for name, size in sizes.items() if name in known}
    return (first.model_copy(update=update), *inner)


BoundaryText: TypeAlias = Boundary | Literal["handed", "before", "processed", "committed"]


class EndKeywords(TypedDict, total=False):
    """Keywords of every end of a pipe; ``Pipe`` explains each."""

    codec: CodecChoice
    notices: NoticeCallback
    restarts: RestartPolicy | None
    seed: int | None
    runtime: Runtime | None
    trace: TraceSink | None
    start: bool


class HandlingKeywords(EndKeywords, total=False):
    """Keywords of ends that have handlers."""

    boundary: BoundaryText
    retries: int | None
    retry_min_s: float
    retry_max_s: float
    key: KeyChoice | None
    lanes: int | None
    state: Store | None
    dead_letter: Letters | None


class PipeKeywords(HandlingKeywords, total=False):
    """What ``Pipe`` may be given by name."""

    route: Route | None
    store: Store | None
    journal: Store | None
    retention: Retention
    frames_max: int


class PipeSenderKeywords(EndKeywords, total=False):
    """What ``PipeSender`` may be given by name."""

    journal: Store | None
    dead_letter: Letters | None
    frames_max: int


class PipeReceiverKeywords(HandlingKeywords, total=False):
    """What ``PipeReceiver`` may be given by name."""

    frames_max: int


class StreamSenderKeywords(EndKeywords, total=False):
    """What ``StreamSender`` may be given by name."""

    journal: Store | None
    retention: Retention


class StreamReceiverKeywords(HandlingKeywords, total=False):
    """What ``StreamReceiver`` may be given by name."""

    retention: Retention


@dataclass(frozen=True, slots=True, kw_only=True)
class PipeOptions:
    """Everything that a pipe or an end of one was given beside its name and layers, with what it was not given."""

    route: Route | None = None
    codec: CodecChoice = "auto"
    boundary: BoundaryText = Boundary.PROCESSED
    retries: int | None = None
    retry_min_s: float = 0.1
    retry_max_s: float = 30.0
    key: KeyChoice | None = None
    lanes: int | None = None
    store: Store | None = None
    journal: Store | None = None
    state: Store | None = None
    dead_letter: Letters | None = None
    retention: Retention = KEEP_ALL
    notices: NoticeCallback = log_notice
    restarts: RestartPolicy | None = None
    frames_max: int = FRAMES_MAX
    seed: int | None = None
    runtime: Runtime | None = None
    trace: TraceSink | None = None
    start: bool = True

    @classmethod
    def given(cls, face: str, known: type, options: Mapping[str, Any]) -> PipeOptions:
        """The options that a face was given by name. Raises TypeError for one that it does not know."""
        refuse_unknown(face, options, names_in(known) | {"layers"}, _where_known)
        given = cls(**options)
        given.check(face)
        return given

    def check(self, face: str) -> None:
        """Refuse what would fail only later, in an actor. Raises ConfigurationError."""
        runtime, trace, frames_max = self.runtime, self.trace, self.frames_max
        is_count = type(frames_max) is int and frames_max > 0
        is_seed = self.seed is None or type(self.seed) is int
        is_policy = isinstance(cast("object", self.restarts), RestartPolicy | None)
        for name, is_right, wanted in (
            ("frames_max", is_count, "a whole number from 1"),
            ("restarts", is_policy, "RestartPolicy(...)"),
            ("runtime", runtime is None or hasattr(runtime, "alarm"), "one, as StepRuntime(7)"),
            ("notices", callable(self.notices), "a function that is called with (notice)"),
            ("trace", trace is None or hasattr(trace, "write"), "one, as TraceRecorder(path)"),
            ("seed", is_seed, "a whole number"),
            ("start", type(self.start) is bool, "True or False"),
        ):
            value = getattr(self, name)
            require(is_right, f"{face}: {name}", value, wanted, error=ConfigurationError)

    @property
    def roles(self) -> StoreRoles:
        """Which store keeps what."""
        return StoreRoles(self.store, self.journal, self.state, self.dead_letter, self.retention)

    def of_end(self) -> EndOptions:
        """What each end's actor is given."""
        runtime = self.runtime or THREADS
        return EndOptions(
            runtime=runtime,
            notices=self.notices,
            restarts=self.restarts or RestartPolicy(),
            frames_max=self.frames_max,
            seed=self.seed,
            trace=Tracing(self.trace, runtime) if self.trace is not None else None,
        )


def names_in(keywords: type) -> frozenset[str]:
    """The names that a set of keywords has, with those of its bases."""
    found: frozenset[str] = getattr(keywords, "__optional_keys__")  # noqa: B009 - of a TypedDict
    return found


_FACES = {
    "Pipe": names_in(PipeKeywords),
    "PipeSender": names_in(PipeSenderKeywords) | {"route"},
    "PipeReceiver": names_in(PipeReceiverKeywords) | {"route"},
    "StreamSender": names_in(StreamSenderKeywords) | {"store"},
    "StreamReceiver": names_in(StreamReceiverKeywords) | {"store"},
}


def _where_known(option: str) -> str:
    """Where an option belongs that another face has, or that is one of a layer; '' for any other word."""
    if faces := [face for face, known in _FACES.items() if option in known]:
        return f"it is an option of {', '.join(faces)}"
    found = [kind for kind, model in KINDS.items() if option in model.model_fields]
    if not found:
        return ""
    kind = "reliable" if "reliable" in found else found[0]
    return f"it is an option of a layer, such as layers=[{{{kind!r}: {{{option!r}: ...}}}}]"


def require_route(whose: str, route: object) -> None:
    """Refuse anything else, such as an address."""
    if not hasattr(route, "declared"):
        raise ConfigurationError(
            f"{whose}: route is {route!r}: give a route, such as LocalRoute() or FaultyRoute(...)"
        )


def _require_stores(name: str, roles: StoreRoles) -> None:
    """Refuse anything else where a store is asked for, such as a path."""
    for role, store in (
        ("store", roles.stream),
        ("journal", roles.journal),
        ("state", roles.state),
    ):
        if store is not None and not isinstance(cast("object", store), Store):
            raise ConfigurationError(
                f"pipe {name}: {role} is {store!r}: give an open store, such as SqliteStore('shop.db')"
            )
    letters = roles.letters
    if (
        letters is not None
        and not callable(letters)
        and not isinstance(cast("object", letters), Store)
    ):
        raise ConfigurationError(
            f"pipe {name}: dead_letter is {letters!r}: give DeadLetters(), a store, or a function "
            "that takes a letter"
        )
    if not isinstance(cast("object", roles.retention), Retention):
        raise ConfigurationError(
            f"pipe {name}: retention is {roles.retention!r}: give Retention(max_bytes=...), "
            "Retention(max_age_us=...) or KEEP_ALL"
        )


def _require_open(name: str, roles: StoreRoles) -> None:
    """A closed store is noticed here: later it would look like one that refuses."""
    letters = roles.letters.store if isinstance(roles.letters, DeadLetterStream) else roles.letters
    for role, store in (
        ("store", roles.stream),
        ("journal", roles.journal),
        ("state", roles.state),
        ("dead_letter", letters),
    ):
        if getattr(store, "closed", False):
            raise ConfigurationError(
                f"pipe {name}: {role} is {type(store).__name__} {getattr(store, 'name', '')!r}, which is closed: "
                "open it, and keep it open until the pipe is closed"
            )


class Assembly:
    """The parts of one pipe.

    Raises ConfigurationError, CompositionError (the algebra refuses it; ``findings`` say why), and
    StoreUnavailable when a store does not answer. Nothing is left behind then but, at most, an empty stream in the
    store.
    """

    def __init__(
        self,
        name: str,
        layers: Layers,
        given: PipeOptions,
        *,
        route: Route | None = None,
        start: Literal["earliest"] | None = None,
        apart_with: Codec | None = None,
    ) -> None:
        """``route``: in place of the one that was given. ``start``: where a reader begins as far as the guarantee
        is concerned, if the layers don't say. ``apart_with``: the codec of an end whose other end is configured
        elsewhere."""
        roles, route = given.roles, route or given.route
        require_count("retries", given.retries)  # before anything is said of what they would do
        lanes = chosen_lanes(name, given.key, given.lanes)
        _require_stores(name, roles)
        _require_open(name, roles)
        if route is not None:
            require_route(f"pipe {name}", route)
        self.name = name
        self.layers = tuple(_started(layer, start) for layer in parse_layers(layers))
        self._given = given
        self.options = options = given.of_end()
        self._roles = roles
        self._boundary = boundary_of(given.boundary)
        self._lanes = lanes
        self.route = self._chosen_route(route)
        self.letters = letter_place(name, self.layers, roles.letters)
        carrier = self.route.declared
        if roles.stream is not None:  # calls go there and answers come back
            carrier = replace(hops.LOCAL, name=_store_name(roles))
        self.guarantee: Derived = derive(
            hop_of(
                name,
                self.layers,
                carrier,
                roles,
                boundary=self._boundary,
                retries=self._given.retries,
                lanes=lanes.count if lanes else 0,
            )
        )
        if options.trace is not None:
            options.trace.promise(self.guarantee.guarantee, stored=roles.stream is not None)
        self.composition = f"{composition(self.layers)} / {carrier.name}"
        self.journal = self._new_journal()
        number_of_life = lives_of(options.runtime)
        self.stream = stream_of(name, self.layers, roles, number_of_life)
        self._state = state_of(name, self._boundary, roles, number_of_life)
        if self.stream is not None:
            self.stream.make(
                roles.retention,
                self._own_terms(apart_with),
                options.runtime,
                may_be_away=roles.may_begin_away,
            )
        is_framed = roles.stream is None and apart_with is not None
        self._terms = self._own_terms(apart_with) if is_framed else None
        self._has_long_runs = isinstance(self.route, LocalRoute) and not (
            roles.stream or roles.journal or roles.state
        )

    def _own_terms(self, codec: Codec | None) -> Terms:
        """What the other end must have. One pipe object has one codec for both its ends."""
        return Terms(stack_text(self.layers), wire_form(codec) if codec is not None else "")

    @property
    def _run_layers(self) -> Sequence[LayerOptions]:
        return with_long_runs(self.layers) if self._has_long_runs else self.layers

    def _chosen_route(self, route: Route | None) -> Route:
        has_stream = any(isinstance(layer, Stream) for layer in self.layers)
        if has_stream and route is not None:
            raise ConfigurationError(
                f"pipe {self.name}: a stream layer speaks to its store, not over a route; drop route"
            )
        return route or LocalRoute(one_way=has_stream)

    @property
    def _deliver_max(self) -> int:
        return DELIVER_MAX if self._has_long_runs else BoundaryOptions().deliver_max

    @property
    def waits_for_each(self) -> bool:
        """True when a message is confirmed only after those before it, and not before its handler is done."""
        is_settled_there = self._boundary in (Boundary.PROCESSED, Boundary.COMMITTED)
        is_plain = len(self.layers) == 1 and self.stream is None and self._lanes is None
        return is_settled_there and is_plain and kind_of(self.layers[0]).receiver.ordered

    @property
    def is_committed(self) -> bool:
        """True when handlers get a transaction."""
        return self._boundary is Boundary.COMMITTED

    def receiver(self, codec: Codec) -> ReceiverEnd:
        """The receiving end. The codec decodes what a key is told from."""
        return ReceiverEnd(
            self.name,
            self._run_layers,
            self.route.receiver,
            self.options,
            boundary=BoundaryOptions(
                boundary=self._boundary,
                durable=self._state is not None,
                retries=self._given.retries,
                retry_min_s=self._given.retry_min_s,
                retry_max_s=self._given.retry_max_s,
                dead_letters=self.letters is not None,
                deliver_max=self._deliver_max,
                lanes=self._lanes.count if self._lanes else 0,
            ),
            state=self._state,
            dead_letter=self.letters,
            stream=self.stream,
            apart=self._roles.state not in (None, self._roles.stream),
            key_of=key_reader(self._lanes.key, codec) if self._lanes else None,
            terms=self._terms,
        )

    def sender(self, drained: Callable[[], None] | None = None) -> SenderEnd:
        """The sending end. Raises StacksDiffer where its stream or journal holds what another stack wrote."""
        self._require_own_rows()
        if self.stream is not None:
            self.stream.write_as(
                stream_layer(self.layers).producer or self.name,
                self._holds_rows,
                self._confirmed_before(),
                alone=len(self.layers) == 1,
            )
        end = SenderEnd(
            self.name,
            self._run_layers,
            self.route.sender,
            self.options,
            journal=self.journal,
            undeliverable=self.letters,
            stream=self.stream,
            apart=self._roles.journal not in (None, self._roles.stream),
            drained=drained,
            terms=self._terms,
        )
        roles = self._roles
        end.intake.accepted_by = _exclusive(roles.journal)
        end.intake.confirmed_by = _exclusive(roles.stream, roles.state)
        if self.stream is not None:
            self.stream.listen(end.refused_by_store, end.met_other_reader, end.around.notices.tell)
        return end

    def _holds_rows(self) -> bool:
        """True when the journal has messages that are not confirmed, and were accepted with other terms. Raises
        StoreUnavailable, StacksDiffer."""
        journal = self._new_journal()
        return journal is not None and journal.holds_rows_of_others()

    def _require_own_rows(self) -> None:
        """Refuse what could not be sent as what it was accepted as, if the journal says so now. It is asked again
        when the sender begins."""
        with suppress(StoreUnavailable):
            if (journal := self._new_journal()) is not None:
                journal.require_own_payloads()

    def _confirmed_before(self) -> tuple[int, int]:
        """How far messages of earlier lives were confirmed, as far as the journal can say now."""
        journal = self._new_journal()
        try:
            return (0, 0) if journal is None else journal.confirmed()
        except StoreUnavailable:
            return (0, 0)

    def _new_journal(self) -> StoreJournal | None:
        """The journal, whose rows are of one codec also where both ends of the pipe are one object."""
        terms = self._own_terms(choose_codec(self._given.codec))
        return journal_of(self.name, self.layers, self._roles.journal, terms)

    def commits(self, receiver: ReceiverEnd) -> Commits | None:
        """What makes the loops of handlers with a transaction; None for every other boundary."""
        if not self.is_committed:
            return None
        store: object = self._roles.state or self._roles.stream
        assert isinstance(store, TransactionalStore), "the algebra refuses any other"
        assert self._state is not None
        return Commits(receiver, store, self._state)


def _exclusive(*stores: object) -> tuple[ExclusiveStore, ...]:
    return tuple(one for one in stores if isinstance(one, ExclusiveStore))


def _store_name(roles: StoreRoles) -> str:
    assert roles.stream is not None
    return called(roles.stream)


def _started(layer: LayerOptions, start: Literal["earliest"] | None) -> LayerOptions:
    if isinstance(layer, Stream) and layer.start is None and start is not None:
        return layer.model_copy(update={"start": start})
    return layer


def boundary_of(text: BoundaryText) -> Boundary:
    """The boundary of this name. Raises ConfigurationError."""
    try:
        return Boundary(text)
    except ValueError:
        known = ", ".join(repr(str(one)) for one in Boundary)
        raise ConfigurationError(f"boundary is {text!r}: write one of {known}") from None
