"""One node of a pipeline, assembled from its plan and running.

``PlanEngine`` decides nothing about delivery: it makes the pipes that the plan names, joins them by feeds and
flows, and ends them in the order of the flow. What holds is what ``check`` derives.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

from surepipe.actors.codecs import choose_codec
from surepipe.actors.ends.face import ReceivingFace
from surepipe.actors.ends.stores import lives_of
from surepipe.actors.parties import Figures
from surepipe.actors.replaying import Replayed
from surepipe.actors.tracing import FlowTrace
from surepipe.core.effects import Letter
from surepipe.core.store_requests import Store, StreamInfo, called
from surepipe.errors import ConfigurationError, NotConfirmed, PipeStopped
from surepipe.observe.status import BookSeen, PathSeen
from surepipe.observe.watch import silent_us
from surepipe.pipelines.assembly import Environment, Finite, Sink, Source
from surepipe.pipelines.engine_limits import actor_refusals, homes_before
from surepipe.pipelines.links import Node
from surepipe.pipelines.models.pipes import PipePart
from surepipe.pipelines.models.sources import (
    AnySource,
    ReadSource,
    RedisStreamSource,
    StreamSource,
    replays,
)
from surepipe.pipelines.models.stages import (
    AnySink,
    CsvSink,
    JsonlSink,
    PythonSink,
    StagePart,
    StreamSink,
    Trying,
)
from surepipe.pipelines.plan import Plan
from surepipe.pipelines.run.books import BookPipe
from surepipe.pipelines.run.feeding import Feed, FeedTarget
from surepipe.pipelines.run.file_log import FileLog
from surepipe.pipelines.run.flow import FlowTurn, Forward, StageFlow, Step
from surepipe.pipelines.run.looping import FlowLoop
from surepipe.pipelines.run.parties import PartiesHere
from surepipe.pipelines.run.pipes import (
    AnyFace,
    PipeMaker,
    handling,
    pipe_name,
    retention_of,
    sending,
    stream_name,
)
from surepipe.pipelines.run.real import RealEnvironment
from surepipe.pipelines.run.tallies import LetterBox, Tallies
from surepipe.pipelines.run.unfinished import Unfinished, unfinished
from surepipe.pipelines.run.ways import Shape, Ways
from surepipe.pipelines.run.writers import (
    IntoStream,
    PassedOn,
    SharedSink,
    StoreCursor,
    passed_in,
)
from surepipe.pipelines.sinks.files import LineFile
from surepipe.pipelines.sources.streams import StreamRows
from surepipe.pipelines.stages import About
from surepipe.pipes.stack.boundary import Boundary
from surepipe.queues.book import Manual
from surepipe.storage.letters import DeadLetterStream

logger = logging.getLogger("surepipe")
LETTERS_SHOWN = 5
PARTING_S = 0.5
"""How long a pipe that leaves some in its journal gets for the confirmations of what was settled: what is
confirmed is not sent again."""
FEED_S = 0.5
"""How long a feed gets to hand over what it has, before what it waits in is told to take nothing more."""


@dataclass(slots=True)
class _Outbox:
    """Messages on their way from a transaction of one pipe into the next: a stream beside its state."""

    store: Store
    stream: str
    writer: IntoStream
    latest: object = field(default_factory=object)
    """Another one after each message: who has seen it can tell whether more came since."""


class PlanEngine:
    """The parts of a plan that run on one node.

    ``start`` opens them, ``look`` is to be called from time to time until it says that all is done, ``close`` ends
    them. ``once``: sources that wait for more end when there is nothing more now. ``until_idle``: an end that
    another process sends to counts as through while it has nothing in work, for callers who watch that process
    too; else it runs until ``stop_sources``. ``with_sources=False``: nothing is taken from sources, only what is
    in the stores goes on. ``answers_s``: it ends when another party has answered nothing for so long, too, and
    ``gave_up`` says so; without it, it waits.
    """

    def __init__(
        self,
        plan: Plan,
        node: str,
        environment: Environment,
        *,
        once: bool = False,
        until_idle: bool = False,
        with_sources: bool = True,
        by_hand: bool = False,
        answers_s: float | None = None,
    ) -> None:
        if node not in plan.nodes:
            known = ", ".join(plan.nodes)
            raise ConfigurationError(
                f"node {node!r} has no part of {plan.name}: its nodes are {known}"
            )
        self.plan = plan
        self.node = node
        self.feeds: dict[str, Feed] = {}
        self.faces: dict[str, AnyFace] = {}
        self.stores: dict[str, Store] = {}
        if refused := [issue.text for issue in actor_refusals(plan)]:
            raise ConfigurationError("\n".join(refused))
        self._shape = Shape(plan, node)
        self._ways = Ways(self._shape, self.faces, once=once, until_idle=until_idle)
        self._environment = environment
        self._once = once
        self._with_sources = with_sources
        self._sinks: dict[str, SharedSink] = {}
        self._loops: dict[str, FlowLoop] = {}
        self._letters: dict[str, LetterBox] = {}
        self._outboxes: dict[tuple[str, str], _Outbox] = {}
        self._tallies = Tallies()
        self._last_counters: dict[str, Mapping[str, int]] = {}
        self._buried_in_books: Counter[str] = Counter()
        """Dead letters of books that are closed, by stream."""
        self._maker = PipeMaker(plan, node, environment, self.stores, by_hand=by_hand)
        self._trace: FlowTrace | None = None
        self._signal = environment.runtime.signal()
        self._parties = PartiesHere(plan, node, environment, self.stores)
        self._answers_s = answers_s
        self.gave_up = False

    # Opening.

    def start(self) -> None:
        """Open everything and go on where the stores say.

        Raises ConfigurationError, CompositionError, StoreUnavailable; nothing is left running then.
        """
        try:
            self._open()
        except BaseException:
            self.close(1.0)
            raise

    def _require(self) -> None:
        """From another folder neither functions nor files are found: told before anything is made there."""
        for part in self.plan.parts:
            is_read = self._with_sources or part not in self.plan.sources
            if is_read and self._shape.is_here(part.name):
                self._environment.require(part)

    def _open(self) -> None:
        self._require()
        self._trace = self._flow_trace()
        for part in self.plan.stores:
            if part.name in self._shape.stores_used():
                self.stores[part.name] = self._environment.store(part)
        for sink in self.plan.sinks:
            if self._shape.is_here(sink.name):
                opened = self._open_sink(sink)
                if self._trace is not None and isinstance(opened, LineFile):
                    self._trace.opened(sink.name, opened.path.stat().st_size)
                self._sinks[sink.name] = SharedSink(
                    sink.name, opened, self._environment, calls=isinstance(sink, PythonSink)
                )
        flows = {
            pipe.name: self._flow_of(pipe) for pipe in self.plan.pipes if self._shape.receives(pipe)
        }
        for pipe in self.plan.pipes:
            if self._shape.receives(pipe) or self._shape.sends(pipe):
                letters = self._letter_box(pipe, flows.get(pipe.name))
                self.faces[pipe.name] = self._maker.make(pipe, letters)
        for source in self.plan.sources if self._with_sources else ():
            if self._shape.is_here(source.name):
                self._feed_from(source)
        self._feed_from_outboxes()
        self._parties.open(self._trace)
        self._tell_positions()
        for feed in self.feeds.values():  # before anything is delivered: its files may not be there
            feed.prepare()
        for name, flow in flows.items():
            self._consume(self.plan.pipe(name), flow)
        self._begin()

    def _begin(self) -> None:
        """Take messages, now that all is open and each pipe has its handler.

        1. The first pipe's receiver takes a message, and settles it: with boundary "handed" as soon as it lies in
        the handler's inbox, with "before" earlier still. 2. The stream of the second pipe can't be opened: its
        store does not answer. 3. This process ends, nobody has handled the message, and nobody sends it again.
        """
        for face in self.faces.values():
            face.start()
        for face in self.faces.values():  # before anything is fed, and before anybody is told
            if isinstance(face, ReceivingFace) and face.receiver.starts_at_latest:
                face.receiver.await_place()
        self._parties.start()
        for feed in self.feeds.values():
            feed.start()

    def _flow_trace(self) -> FlowTrace | None:
        sink, name = self._environment.trace, self.plan.name
        # A simulation has its own rows of what its world does, and judges by them.
        if sink is None or getattr(sink, "with_reasons", False) is True:
            return None
        return FlowTrace(sink, self._environment.runtime, f"{name}/{self.node}/flow", name)

    def _tell_positions(self) -> None:
        """1. A receiver commits, and is killed before its row. 2. This life tells where the store has it."""
        trace = self._trace
        for pipe in self.plan.pipes:
            if trace is None or pipe.stream_store is None or not self._shape.receives(pipe):
                continue
            store, stream = self.stores[pipe.stream_store], stream_name(self.plan, pipe)
            info, name = store.info(stream), pipe_name(self.plan, pipe)
            if isinstance(info, StreamInfo):
                for producer, epoch, seq in passed_in(store, info, stream):
                    trace.passed(f"{name}@{producer}", epoch, seq)

    # Sinks.

    def _open_sink(self, sink: AnySink) -> Sink:
        home = homes_before(self.plan, sink.name).pop()  # there is one: see ``on_actors``
        if isinstance(sink, StreamSink):
            store = self.stores[sink.store]
            name, runtime = f"{self.plan.name}/{sink.name}", self._environment.runtime
            return IntoStream(store, sink.stream, name, choose_codec("auto"), noted_by=runtime)
        cursor = None
        if home is not None and sink.commits:
            kind = FileLog if isinstance(sink, JsonlSink | CsvSink) else StoreCursor
            place = f"{self.plan.name}/{sink.name}/place"
            cursor = kind(self.stores[home], place, lives_of(self._environment.runtime))
        return self._environment.sink(sink, self.stores, cursor)

    # Flows.

    def _flow_of(self, pipe: PipePart) -> StageFlow:
        forward: Forward = self._into_pipe if pipe.book is None else self._out_of_book
        if self._shape.is_committed(pipe.name):
            forward = self._into_outbox(pipe)
        return StageFlow(
            self.plan,
            pipe.name,
            self._environment,
            forward=forward,
            sinks=self._sinks,
            tallies=self._tallies,
            at_once=self._shape.at_once(pipe),
            counts=self._trace is not None,
        )

    def _into_pipe(self, following: PipePart, taken_from: str) -> Step:
        """Settled when the next pipe has stored it in its journal, or, where it has none, when it is confirmed:
        see ``_passed_on``."""
        del taken_from

        def hand_over(message: object, about: About, turn: FlowTurn) -> None:
            del about, turn
            sending(self.faces[following.name]).send(message)

        return hand_over

    def _out_of_book(self, following: PipePart, taken_from: str) -> Step:
        """The same of a book, whose messages are settled one by one."""
        hand_over = self._into_pipe(following, taken_from)

        def hand_over_and_wait(message: object, about: About, turn: FlowTurn) -> None:
            hand_over(message, about, turn)
            for part in self._confirming((following,)):
                part.seal(None)

        return hand_over_and_wait

    def _passed_on(self, pipe: PipePart) -> list[PassedOn]:
        """The pipes behind this one of which it must wait for the confirm, to have its messages settled."""
        if pipe.settled is not Boundary.PROCESSED:
            return []
        return self._confirming(self.plan.reach(pipe.name))

    def _confirming(self, parts: Sequence[Node]) -> list[PassedOn]:
        pipes = [part for part in parts if isinstance(part, PipePart) and part.journal is None]
        faces = [sending(self.faces[pipe.name]) for pipe in pipes]
        return [
            PassedOn(face.sender.intake)
            for face in faces
            if not isinstance(face, BookPipe) and face.sender.confirms
        ]

    def _into_outbox(self, pipe: PipePart) -> Callable[[PipePart, str], Step]:
        """In the transaction of the first pipe: into the next one's stream, or beside the state, to be fed on."""

        def make(following: PipePart, taken_from: str) -> Step:
            del taken_from
            key = (pipe.name, following.name)
            box = self._outboxes.get(key) or self._outboxes.setdefault(
                key, self._outbox(pipe, following)
            )

            def hand_over(message: object, about: About, turn: FlowTurn) -> None:
                box.latest = object()
                box.writer.put(message, about, turn.transaction)

            return hand_over

        return make

    def _outbox(self, pipe: PipePart, following: PipePart) -> _Outbox:
        home = self._shape.home_of(pipe)
        codec = choose_codec(self._maker.codec(following))
        name = pipe_name(self.plan, pipe)
        is_stream = following.ibc is None and following.journal is None
        if following.stream_store == home and is_stream:
            stream, retention = stream_name(self.plan, following), retention_of(following)
            told = None if self._trace is None else (self._trace, pipe_name(self.plan, following))
            writer = IntoStream(self.stores[home], stream, name, codec, retention, told=told)
        else:
            stream = f"{name}>{following.name}"
            writer = IntoStream(self.stores[home], stream, name, codec)
        return _Outbox(self.stores[home], stream, writer)

    def _consume(self, pipe: PipePart, flow: StageFlow) -> None:
        reached = {part.name for part in self.plan.reach(pipe.name)} - self._shape.at_once(pipe)
        face = self.faces[pipe.name]
        if isinstance(face, BookPipe):
            face.receive_by(flow)
            return
        shared = [one for name, one in self._sinks.items() if name in reached]
        writers = [box.writer for (first, _), box in self._outboxes.items() if first == pipe.name]
        loop = FlowLoop(
            pipe_name(self.plan, pipe),
            flow,
            shared,
            [*writers, *self._passed_on(pipe)],
            self._environment,
            self._trace,
        )
        self._loops[pipe.name] = loop
        handling(self.faces[pipe.name]).receive_by(loop.make, awaits=flow.awaits)

    # Dead letters.

    def _letter_box(self, pipe: PipePart, flow: StageFlow | None) -> LetterBox | None:
        if flow is None:
            return None
        return self._box(pipe.name, self.plan.reach(pipe.name))

    def _box(self, name: str, parts: Sequence[object]) -> LetterBox | None:
        named = [
            part.dead_letter for part in parts if isinstance(part, Trying) and part.dead_letter
        ]
        if not named:
            return None
        streams = {one: letters_in(self.stores, one) for one in dict.fromkeys(named)}
        box = self._letters[name] = LetterBox(streams)
        return box

    # Feeds.

    def _feed_from(self, source: AnySource) -> None:
        pipes = self._shape.pipes_behind(source.name)
        targets = {pipe.name: self._target(source.name, pipe, _home(source)) for pipe in pipes}
        opened = self._environment.source(source, self.stores)
        feed = self._add_feed(source.name, opened, targets)
        if isinstance(source, ReadSource) and source.dead_letter is not None:
            streams = {source.dead_letter: letters_in(self.stores, source.dead_letter)}
            feed.unreadable = self._letters[f"{source.name}>"] = LetterBox(streams)
        if any(isinstance(part, StagePart) for part in self.plan.takers(source.name)):
            flow = StageFlow(
                self.plan,
                source.name,
                self._environment,
                forward=feed.collect,
                sinks={},
                tallies=self._tallies,
            )
            feed.flow = flow
            feed.letters = self._box(source.name, self._shape.stages_behind(source.name))
        has_letters = feed.unreadable is not None or feed.letters is not None
        if has_letters and not replays(source):
            feed.life = lives_of(self._environment.runtime)()

    def _add_feed(self, name: str, source: Source, targets: Mapping[str, FeedTarget]) -> Feed:
        feed = Feed(
            f"{self.plan.name}/{name}",
            source,
            self._environment,
            targets,
            once=self._once,
            changed=self._signal.notify,
            tallies=self._tallies,
            trace=self._trace,
        )
        self.feeds[name] = feed
        for pipe in targets:
            self._ways.fed_by(pipe, feed)
        return feed

    def _feed_from_outboxes(self) -> None:
        """What a transaction has put aside goes into the next pipe, each message once."""
        for (first, following), box in self._outboxes.items():
            pipe = self.plan.pipe(following)
            if box.stream == stream_name(self.plan, pipe):
                continue  # it is in the pipe already
            if not self._shape.sends(pipe):
                continue
            rows = StreamRows(
                box.store,
                box.stream,
                choose_codec(self._maker.codec(pipe)),
                reader="feed",
                trims=True,
            )
            home = self._shape.home_of(self.plan.pipe(first))
            targets = {following: self._target(f"{first}>", pipe, home)}
            feed = self._add_feed(f"{first}>{following}", rows, targets)
            feed.once = True
            feed.may_end = partial(self._ways.is_over, first)
            feed.may_rest = partial(self._ways.is_drained, first)
            feed.latest = partial(getattr, box, "latest")

    def _target(self, feeder: str, pipe: PipePart, home: str | None) -> FeedTarget:
        """A pipe to be filled. ``home``: the store of the source itself, where it has one."""
        face = sending(self.faces[pipe.name])
        name = f"{self.plan.name}/{feeder}>{pipe.name}"
        kept = pipe.journal or pipe.taking_store or home
        if kept is None:
            return FeedTarget(face, None, beside=False)
        store = self.stores[kept]
        cursor = StoreCursor(store, name, lives_of(self._environment.runtime))
        beside = face.sender.can_send_beside(store) and bool(getattr(store, "one_slot", True))
        return FeedTarget(face, cursor, beside=beside)

    # Running.

    def look(self) -> bool:
        """End the pipes whose feeders have ended; True when all has come to its end.

        Raises what ended a source before its time, and PipeStopped when a pipe of this node can't go on.
        """
        for feed in self.feeds.values():
            if feed.failure is not None:
                raise feed.failure
        for pipe in self._ways.in_order():
            self._raise_failure(pipe)
            self._ways.finish_when_fed_up(pipe)
        self._parties.look()
        if not self._ways.are_drained():
            return False
        if self._parties.are_settled():
            return True
        self.gave_up = self._answers_s is not None and self._parties.silent_s() >= self._answers_s
        return self.gave_up

    def replay(
        self,
        pipe: str,
        letters: DeadLetterStream,
        letters_max: int | None,
        index: int | None = None,
    ) -> Replayed:
        """Send dead letters into a pipe of this node again; before the first ``look``. Raises what that raises."""
        return sending(self.faces[pipe]).replay(letters, letters_max=letters_max, index=index)

    def execute(self, pipe: str, address: str) -> Manual:
        """Run one message that waits for a person in the book of a pipe. Raises BadAddress, StoreUnavailable."""
        face = self.faces[pipe]
        assert isinstance(face, BookPipe), "only a book keeps messages for people"
        return face.execute(address)

    def _raise_failure(self, pipe: PipePart) -> None:
        face = self.faces[pipe.name]
        if isinstance(face, BookPipe):
            face.look()
            return
        receiver, sender = getattr(face, "receiver", None), getattr(face, "sender", None)
        failure = receiver.works.failure if receiver is not None else None
        if failure is None and sender is not None:
            failure = sender.failure
        if failure is not None:
            raise failure

    def wait(self, timeout: float) -> None:
        """Wait until a feed has ended, ``timeout`` seconds at the most."""
        running = [feed for feed in self.feeds.values() if not feed.ended]
        self._signal.wait(lambda: any(feed.ended for feed in running), timeout)

    def stop_sources(self) -> None:
        """Take nothing more out of the sources; what was taken goes its way.

        Ends that receive from another process finish the message that they are at; the rest stays where it is.
        """
        self._ways.stop()
        for feed in self.feeds.values():
            feed.stop()

    def unfinished(self) -> tuple[Unfinished, ...]:
        """What is not through, part by part, and whether another run goes on with it. To be asked before
        ``close``; waits for the actors that it asks, some seconds at the most."""
        return (*unfinished(self.plan, self.faces, self.feeds), *self._parties.unfinished())

    def counters(self) -> Mapping[str, Mapping[str, int]]:
        """The counters of each part of this node, by its name. They only rise. From any thread, any time."""
        counted = dict(self._last_counters)
        counted |= {name: face.counters() for name, face in list(self.faces.items())}
        return {**counted, **self._tallies.all()}

    @property
    def buried(self) -> Mapping[str, int]:
        """Dead letters that were stored in this run, by the stream that has them."""
        found = self._buried_in_books.copy()
        for box in self._letters.values():
            found.update(box.stored)
        for face in self.faces.values():
            if isinstance(face, BookPipe) and face.buried:
                found[face.letters] += face.buried
        return found

    def last_letters(self) -> Sequence[tuple[str, Letter]]:
        """The last dead letters of this run, the newest first, and the stream of each. From any thread."""
        found = [each for box in list(self._letters.values()) for each in list(box.last)]
        return sorted(found, key=lambda each: each[1].last_failure_us, reverse=True)[:LETTERS_SHOWN]

    def progress(self) -> Mapping[str, tuple[int, int, int]]:
        """How far each source is that has an end: done, all, and in how many rows. From any thread."""
        finite = (
            (feed, feed.source.progress())
            for feed in list(self.feeds.values())
            if feed.is_source and isinstance(feed.source, Finite)
        )
        return {feed.part: (*found, feed.rows) for feed, found in finite if found is not None}

    def books(self) -> Mapping[str, BookSeen]:
        """How the books stand that are open here. From any thread; waits for nobody."""
        return {
            name: seen
            for name, face in list(self.faces.items())
            if isinstance(face, BookPipe) and (seen := face.seen()) is not None
        }

    def paths(self) -> Mapping[str, PathSeen]:
        """What relays of this process carry between parties. From any thread; waits for nobody."""
        return self._parties.paths()

    def relay_figures(self) -> Figures:
        """The same for metrics."""
        return self._parties.figures()

    def silent_s(self) -> Mapping[str, float]:
        """The stores that pipes here have been waiting for in vain, and how long each of them. From any thread."""
        longest = silent_us(list(self.faces.values()))
        return {
            name: longest[called(store)] / 1_000_000
            for name, store in list(self.stores.items())
            if called(store) in longest
        }

    # Ending.

    def close(self, timeout: float = 30.0) -> None:
        """End all of it, in the order of the flow. What is not through stays in the stores, where there are any.

        What is still busy after ``timeout`` seconds in all is left alone. A second call does nothing.
        """
        end = self._environment.runtime.now() + round(timeout * 1_000_000)

        def left() -> float:
            return max(0, end - self._environment.runtime.now()) / 1_000_000

        self._last_counters |= {name: face.counters() for name, face in self.faces.items()}
        with ExitStack() as ends:  # whatever fails at the end of one part, the others end too
            ends.callback(close_store, self._environment)
            for store in self.stores.values():
                ends.callback(close_store, store)
            for route in self._maker.routes:
                ends.callback(close_store, route)
            if self._trace is not None:
                ends.callback(self._trace.end, at_rest=True)
            for box in self._outboxes.values():
                ends.callback(box.writer.close)
            for shared in self._sinks.values():
                ends.callback(shared.sink.close)
            ends.callback(self._parties.close)
            for pipe in reversed(list(self._ways.in_order())):
                ends.callback(self._close_pipe, pipe, left)
            for feed in self.feeds.values():
                ends.callback(self._close_feed, feed, left)
            for feed in self.feeds.values():
                feed.stop()
        self._trace = None
        self.feeds.clear()
        for face in self.faces.values():
            if isinstance(face, BookPipe) and face.buried:
                self._buried_in_books[face.letters] += face.buried
        self.faces.clear()
        self._sinks.clear()
        self.stores.clear()

    def _close_feed(self, feed: Feed, left: Callable[[], float]) -> None:
        if not feed.ends_within(min(left(), FEED_S)):
            for name in feed.pipes:  # it may be waiting for room that will not come
                sending(self.faces[name]).sender.finish()
        feed.close(left())

    def _close_pipe(self, pipe: PipePart, left: Callable[[], float]) -> None:
        if not self.faces[pipe.name].is_started:
            self.faces[pipe.name].abort()
            return
        self._ways.begin_nothing_more(pipe.name)
        longest = PARTING_S if self._ways.leaves_some(pipe.name) else left()
        try:
            self.faces[pipe.name].close(min(longest, left()))
        except (NotConfirmed, PipeStopped) as error:
            logger.info("%s", error)


def letters_in(stores: Mapping[str, Store], written: str) -> DeadLetterStream:
    """The dead letters of 'store/stream'."""
    store, _, stream = written.partition("/")
    return DeadLetterStream(stores[store], stream)


def _home(source: AnySource) -> str | None:
    return source.store if isinstance(source, StreamSource | RedisStreamSource) else None


def close_store(store: object) -> None:
    """Close what can be closed: not every store (or route) holds something open."""
    close = getattr(store, "close", None)
    if callable(close):
        close()


# Running a plan from Python, to its end.


LOOK_S = 0.05
DRAIN_S = 30.0
CLOSE_S = 2.0


def run(
    plan: Plan,
    node: str | None = None,
    *,
    once: bool = False,
    environment: RealEnvironment | None = None,
    stop_when: Callable[[], bool] = lambda: False,
    drain_s: float = DRAIN_S,
) -> Mapping[str, Mapping[str, int]]:
    """Run what of a plan belongs to a node until its sources end, and give what each part counted.

    ``once``: sources that wait for more end where there is nothing more now, and another party that answers
    nothing for ``drain_s`` seconds isn't waited for. ``stop_when`` is asked many times a second; when it says so
    nothing more is taken, and what was taken is finished, within ``drain_s`` seconds. What is left is logged.
    After a crash, or an exception, another run goes on where this one was. Raises ConfigurationError,
    CompositionError, StoreUnavailable, and what a source can't read.
    """
    world = environment or RealEnvironment(plan)
    answers_s = drain_s if once else None
    engine = PlanEngine(plan, node or plan.nodes[0], world, once=once, answers_s=answers_s)
    failures: list[BaseException] = []
    world.on_stop(failures.append)
    engine.start()
    end: float | None = None
    try:
        while not engine.look():
            if failures:
                raise failures[0]
            if end is None and stop_when():
                engine.stop_sources()
                end = world.clock.monotonic() + drain_s
            if end is not None and world.clock.monotonic() >= end:
                _tell_unfinished(engine)
                engine.close(CLOSE_S)
                return engine.counters()
            engine.wait(LOOK_S)
        if end is not None or engine.gave_up:
            _tell_unfinished(engine)
    except BaseException:
        engine.close(1.0)
        raise
    engine.close()
    return engine.counters()


def _tell_unfinished(engine: PlanEngine) -> None:
    for one in engine.unfinished():
        logger.warning("left unfinished: %s", one)
