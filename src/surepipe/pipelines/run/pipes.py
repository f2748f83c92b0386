"""The pipes of a node, or those ends of them that run there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

from pydantic import BaseModel

from surepipe.actors.codecs import CodecChoice, choose_codec
from surepipe.actors.consuming.handling import HandlingFace
from surepipe.actors.consuming.lanes import KeyChoice
from surepipe.actors.ends.assembly import EndKeywords, HandlingKeywords
from surepipe.actors.ends.pipe import Pipe
from surepipe.actors.ends.remote import PipeReceiver, PipeSender, StreamReceiver, StreamSender
from surepipe.actors.letters import DeadLetterPlace
from surepipe.actors.replaying import ReplayingFace
from surepipe.actors.routes import Route
from surepipe.core.store_requests import Retention, Store
from surepipe.errors import ConfigurationError
from surepipe.guarantees.derivation import evaluate
from surepipe.pipelines.assembly import Environment
from surepipe.pipelines.assessing import hop_of
from surepipe.pipelines.calling import failing_only, require_key
from surepipe.pipelines.engine_limits import key_words
from surepipe.pipelines.models.pipes import BookRoutePart, IbcRoutePart, PipePart, StoreRoutePart
from surepipe.pipelines.models.stages import Trying
from surepipe.pipelines.plan import Plan
from surepipe.pipelines.run.books import BookPipe
from surepipe.pipes.stream.options import stream_layer

AnyFace: TypeAlias = Pipe | PipeSender | PipeReceiver | StreamSender | StreamReceiver | BookPipe


def pipe_name(plan: Plan, pipe: PipePart) -> str:
    """What a pipe of a plan is called in its stores, in traces and on the wire."""
    return f"{plan.name}/{pipe.name}"


def stream_name(plan: Plan, pipe: PipePart) -> str:
    """The stream that carries a pipe, as its store has it: its layer may give that a name of its own."""
    return stream_layer(pipe.stack).stream or pipe_name(plan, pipe)


def sends_at(plan: Plan, pipe: PipePart, node: str) -> bool:
    """True when the sender of a pipe runs on this node."""
    return plan.places[pipe.name].sender == node


def receives_at(plan: Plan, pipe: PipePart, node: str) -> bool:
    """True when its receiver does, and so what follows it."""
    return plan.places[pipe.name].node == node


class PipeMaker:
    """Makes pipes as the plan says them."""

    def __init__(
        self,
        plan: Plan,
        node: str,
        environment: Environment,
        stores: Mapping[str, Store],
        *,
        by_hand: bool = False,
    ) -> None:
        self._by_hand = by_hand
        self._plan = plan
        self._node = node
        self._environment = environment
        self._stores = stores
        self.routes: list[Route] = []

    def make(self, pipe: PipePart, letters: DeadLetterPlace | None) -> AnyFace:
        """The pipe, or its end that this node has, not started. Raises ConfigurationError, StoreUnavailable."""
        sends = sends_at(self._plan, pipe, self._node)
        receives = receives_at(self._plan, pipe, self._node)
        if pipe.book is not None:
            return self._book(pipe, pipe.book, sends=sends, receives=receives)
        if pipe.stream_store is not None:
            return self._stream(pipe, letters, sends=sends, receives=receives)
        return self._framed(pipe, letters, sends=sends, receives=receives)

    def codec(self, pipe: PipePart) -> CodecChoice:
        """How the payloads of a pipe are written."""
        if ":" not in pipe.payload:
            return pipe.payload
        model = self._environment.function(pipe.payload)
        if isinstance(model, type) and issubclass(model, BaseModel):
            return model
        raise ConfigurationError(f"pipe {pipe.name}: payload {pipe.payload} is no pydantic model")

    def _store(self, name: str | None) -> Store | None:
        """A store by its name; None also for one that only the other end of the pipe needs."""
        return None if name is None else self._stores.get(name)

    def _of_end(self, pipe: PipePart) -> EndKeywords:
        """What each end of a pipe is given."""
        env = self._environment
        return {
            "codec": self.codec(pipe),
            "notices": env.notice,
            "seed": env.seed,
            "runtime": env.runtime,
            "trace": env.trace,
            "start": False,
        }

    def _of_receiver(self, pipe: PipePart, letters: DeadLetterPlace | None) -> HandlingKeywords:
        """What an end is given that has handlers."""
        first_s, most_s = _waits(self._plan, pipe)
        return {
            **self._of_end(pipe),
            "state": self._store(pipe.state),
            "boundary": pipe.settled,
            "retries": None,  # stages and sinks count by themselves
            "retry_min_s": first_s,
            "retry_max_s": most_s,
            "key": self._key(pipe),
            "lanes": pipe.lanes,
            "dead_letter": letters,
        }

    def _stream(
        self, pipe: PipePart, letters: DeadLetterPlace | None, *, sends: bool, receives: bool
    ) -> AnyFace:
        name, layers = pipe_name(self._plan, pipe), pipe.stack
        assert pipe.stream_store is not None
        retention = retention_of(pipe)
        if not receives:
            assert pipe.taking_store is not None
            store = self._stores[pipe.taking_store]
            options = self._of_end(pipe)
            journal = self._store(pipe.journal)
            return StreamSender(
                name, layers, store=store, journal=journal, retention=retention, **options
            )
        given = self._of_receiver(pipe, letters)
        store = self._stores[pipe.stream_store]
        if not sends:
            return StreamReceiver(name, layers, store=store, retention=retention, **given)
        journal = self._store(pipe.journal)
        return Pipe(name, layers, store=store, journal=journal, retention=retention, **given)

    def _book(
        self, pipe: PipePart, route: BookRoutePart, *, sends: bool, receives: bool
    ) -> BookPipe:
        return BookPipe(
            pipe_name(self._plan, pipe),
            route,
            pipe.workers,
            self._node,
            self._environment,
            self._stores[route.store],
            choose_codec(self.codec(pipe)),
            self._key(pipe) or "",
            guarantee=evaluate(replace(hop_of(self._plan, pipe, {}), lanes=0)).guarantee,
            sends=sends,
            receives=receives,
            by_hand=self._by_hand,
        )

    def _framed(
        self, pipe: PipePart, letters: DeadLetterPlace | None, *, sends: bool, receives: bool
    ) -> AnyFace:
        name, layers = pipe_name(self._plan, pipe), pipe.stack
        route = self._environment.route(pipe, sends, receives)
        if route is not None:
            self.routes.append(route)
        journal = self._store(pipe.journal)
        if sends and receives:
            given = self._of_receiver(pipe, letters)
            return Pipe(name, layers, route=route, journal=journal, **given)
        if route is None:
            raise ConfigurationError(
                f"pipe {pipe.name} leads from one node to another, and its route stays within one process"
            )
        if sends:
            return PipeSender(name, layers, route=route, journal=journal, **self._of_end(pipe))
        return PipeReceiver(name, layers, route=route, **self._of_receiver(pipe, letters))

    def _key(self, pipe: PipePart) -> KeyChoice | None:
        """What tells the key of a message of this pipe, where it has lanes."""
        if not pipe.workers:
            return None
        (word,) = key_words(self._plan, pipe)  # one: see ``on_actors``
        if word is None or ":" not in word:
            return word
        function = self._environment.telling(pipe.name, word)
        what = f"the key of pipe {pipe.name}"
        require_key(what, word, function)

        def key(message: object) -> object:
            with failing_only(what):
                return function(message)

        return key


def retention_of(pipe: PipePart) -> Retention:
    """How long the stream of a pipe keeps messages."""
    assert isinstance(pipe.route, StoreRoutePart | IbcRoutePart)
    kept = pipe.route.retention
    age = None if kept.max_age_s is None else round(kept.max_age_s * 1_000_000)
    return Retention(kept.max_bytes, age, kept.force)


def _waits(plan: Plan, pipe: PipePart) -> tuple[float, float]:
    """The shortest first wait and the longest last one among all that may fail behind the pipe."""
    trying = [part for part in plan.reach(pipe.name) if isinstance(part, Trying)]
    if not trying:
        return 0.1, 30.0
    return min(part.retry_min_s for part in trying), max(part.retry_max_s for part in trying)


def sending(face: AnyFace) -> ReplayingFace | BookPipe:
    """The sending face of a pipe."""
    assert isinstance(face, ReplayingFace | BookPipe)
    return face


def handling(face: AnyFace) -> HandlingFace:
    """The receiving face of a pipe."""
    assert isinstance(face, HandlingFace)
    return face
