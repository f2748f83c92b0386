"""One run of a plan: its stores, links, sources and sinks in a world, and the program of each of its nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import TypeVar

from surepipe.actors.codecs import AutoCodec, Undecodable
from surepipe.actors.notices import PipeNotice
from surepipe.actors.routes import Route
from surepipe.audit.findings import Violation
from surepipe.audit.trace import Kind
from surepipe.core.claims import Atom, Fault
from surepipe.core.effects import Letter
from surepipe.core.store_requests import Batch, Store, StreamInfo, Transaction
from surepipe.errors import ConfigurationError, StoreUnavailable, SurepipeError
from surepipe.guarantees import hops
from surepipe.pipelines.assembly import Cursor, Sink, Source
from surepipe.pipelines.assessing import declared_level
from surepipe.pipelines.calling import entry_of
from surepipe.pipelines.links import Node
from surepipe.pipelines.models.pipes import PipePart, StoreRoutePart, TcpRoutePart
from surepipe.pipelines.models.sources import AnySource, ReadSource, replays
from surepipe.pipelines.models.stages import (
    AnySink,
    CsvSink,
    JsonlSink,
    PythonSink,
    StagePart,
    StreamSink,
    Trying,
)
from surepipe.pipelines.models.stores import AnyStore
from surepipe.pipelines.plan import Plan, Way
from surepipe.pipelines.run.file_log import FileLog
from surepipe.pipelines.run.pipes import stream_name
from surepipe.pipelines.run.running import PlanEngine
from surepipe.pipelines.simulate.ends import (
    Effect,
    Ends,
    Nth,
    Reference,
    RunOutcome,
    SetAside,
    about_what,
    all_done,
    asked_for,
    canonical,
    done_again,
    judge_ends,
    judge_keys,
    members_of,
    slips_of,
    so_many,
    without_addresses,
)
from surepipe.pipelines.simulate.functions import (
    Calls,
    Functions,
    VirtualClock,
    built,
)
from surepipe.pipelines.simulate.memory import ProcessMemory, in_transaction
from surepipe.pipelines.simulate.plain import at_first_attempts
from surepipe.pipelines.simulate.sources_and_sinks import (
    BareDisk,
    DiskInLife,
    Record,
    RecorderInLife,
    RowsInLife,
    SeededRows,
    Unreadable,
    WorldFile,
    with_unreadable,
)
from surepipe.pipelines.simulate.visitors import Visitor
from surepipe.pipelines.stages import About, Context, StageCall
from surepipe.simulation.actors.lives import ActorNode, Life
from surepipe.simulation.actors.runtime import SimulatedRuntime
from surepipe.simulation.actors.stores import (
    ActorPort,
    LifeStore,
    LifeTrace,
    SharedStore,
    SimulatedRoute,
    SimulatedSide,
)
from surepipe.simulation.network import Link
from surepipe.simulation.outside import by_a_key, ordinal
from surepipe.simulation.report.words import EFFECT_LOST, EFFECT_REPEATED, IDEMPOTENCY_KEY
from surepipe.simulation.timeline import as_detail, digest_of
from surepipe.simulation.world import Deployment, World
from surepipe.storage.letters import decode as letter_of
from surepipe.storage.letters import name_of

# The world as the engine of one simulated process sees it.


T = TypeVar("T")


class SimulatedEnvironment:
    """What a node of a pipeline runs on, for one life of it."""

    def __init__(self, deployment: PlanDeployment, life: Life) -> None:
        self.runtime = SimulatedRuntime(life)
        self.clock = VirtualClock(life)
        self.seed = None
        self.trace = LifeTrace(life)
        self.failure: BaseException | None = None
        self._deployment = deployment
        self._life = life
        self._calls = Calls(life, deployment.called)

    def store(self, part: AnyStore) -> Store:
        return LifeStore(self._deployment.stores[part.name], self._life)

    def route(self, pipe: PipePart, sends: bool, receives: bool) -> Route | None:
        """Links of the world, also for a local route."""
        del sends, receives
        return self._deployment.routes[pipe.name].in_life(self._life)

    def source(self, part: AnySource, stores: Mapping[str, Store]) -> Source:
        """Rows that are known beforehand."""
        del stores
        return RowsInLife(self._deployment.rows[part.name], self._life)

    def sink(self, part: AnySink, stores: Mapping[str, Store], cursor: Cursor | None) -> Sink:
        """A record; of a file the production sink, on a file of the world."""
        del stores
        if isinstance(part, JsonlSink | CsvSink):
            file = self._deployment.files[part.name]
            return file.opened(cursor, DiskInLife(file, self._life))
        call = self._caller(part) if isinstance(part, PythonSink) else None
        return RecorderInLife(self._deployment.records[part.name], self._life, call)

    def _caller(self, part: PythonSink) -> Callable[[object, About, Transaction | None], object]:
        function = entry_of(f"sink {part.name}", part.call, self.function(part.call))

        def call(message: object, about: About, transaction: Transaction | None) -> object:
            attempt = about.attempt
            context = (
                Context(about, part.name, attempt, self.clock, transaction)
                if function.asks
                else None
            )
            entry = StageCall(
                function.function, context, part.time_limit_s, about, attempt, function.awaits
            )
            return self.call(part.name, entry, message)

        return call

    def require(self, part: Node) -> None:
        """Functions and rows were found before the world was made."""

    def function(self, path: str) -> Callable[..., object]:
        """A function of the plan, or its double; of a class an instance."""
        self._deployment.memory.enter(self._life)
        return built(self._life, path, self._deployment.functions.find(path))

    def telling(self, name: str, path: str) -> Callable[[object], object]:
        """A function that is asked in virtual time, too, and with the memory of its process."""
        function = self.function(path)

        @wraps(function)
        def told(message: object) -> object:
            return self._calls.told(name, function, message)

        return told

    def call(self, name: str, function: StageCall, message: object) -> object:
        """Enter the user's code."""
        return self._calls.enter(name, function, message)

    def calls_plainly(self) -> bool:
        """Each call is a point at which a process may end."""
        return False

    def blocking(self, work: Callable[[], T]) -> T:
        """Nothing holds anybody up in virtual time."""
        return work()

    def notice(self, notice: PipeNotice) -> None:
        if self._life.is_alive:
            facts = {"notice": str(notice.kind), "text": without_addresses(str(notice))}
            self._life.world.note(notice.pipe, self._life.number, "notice", detail=as_detail(facts))

    def stopped(self, why: BaseException) -> None:
        """The program of this node is told."""
        self.failure = self.failure or why
        if isinstance(why, ConfigurationError) and self._deployment.refusal is None:
            self._deployment.refusal = why


LOOK_S = 1.0
START_AGAIN_S = 0.5


class SimulatedSharedRoute:
    """The links of one pipe."""

    def __init__(self, world: World, plan: Plan, pipe: PipePart) -> None:
        name = f"{plan.name}/{pipe.name}"
        self.declared = _declared(pipe)
        self.sender = ActorPort(f"{name}/sender")
        self.receiver = ActorPort(f"{name}/receiver")
        self.there = world.network.link(self.sender.name, self.receiver, name)
        self.back = world.network.link(self.receiver.name, self.sender, name)
        self.receiver.heard, self.sender.heard = self.there, self.back

    def in_life(self, life: Life) -> SimulatedRoute:
        """As one process has it."""
        there: Link = self.there
        return SimulatedRoute(
            self.declared,
            SimulatedSide(life, self.sender, there),
            SimulatedSide(life, self.receiver, self.back),
        )


def _declared(pipe: PipePart) -> hops.DeclaredRoute:
    if isinstance(pipe.route, TcpRoutePart):
        return hops.TCP
    return hops.LOSSY_ROUTE if isinstance(pipe.route, StoreRoutePart) else hops.LOCAL


@dataclass(frozen=True, slots=True)
class _Through:
    """A process that has nothing left to do: since when, and when it began to look for the last time."""

    life: Life
    since: int
    looked: int


class PlanDeployment(Deployment):
    """What outlives the processes of one run."""

    def __init__(
        self,
        plan: Plan,
        messages: Mapping[str, Sequence[object]],
        functions: Functions,
        ways: Mapping[Way, Mapping[str, Sequence[str]]],
        reference: Reference,
        *,
        ways_by_key: Mapping[str, frozenset[str]] | None = None,
        aside: Mapping[str, Collection[bytes]] | None = None,
        memory: ProcessMemory,
    ) -> None:
        self.plan = plan
        self.memory = memory
        self.functions = functions
        self.stores: dict[str, SharedStore] = {}
        self.routes: dict[str, SimulatedSharedRoute] = {}
        self.rows: dict[str, SeededRows] = {}
        self.records: dict[str, Record] = {}
        self.files: dict[str, WorldFile] = {}
        self.refusal: ConfigurationError | None = None
        self.calls: Counter[tuple[str, str]] = Counter()
        self._handled: dict[str, dict[str, str]] = {
            end.name: {} for end in plan.ends if isinstance(end, StagePart)
        }
        """Of each stage that nothing follows: the messages that came to it."""
        self._messages = messages
        self._ways = ways
        self._reference = reference
        self.befalls = (Fault.HANDLER_FAILURE.value,) if reference.fails else ()
        self._ways_by_key = ways_by_key or {}
        self._aside_at_source = aside or {}
        self._through: dict[str, _Through] = {}
        self._is_through = False
        self._visitor: Visitor | None = None

    # The beginning.

    def begin(self, world: World) -> None:
        """Stores, links, sources, sinks, and a node for each process of the plan."""
        world.remembers = self.memory.enter
        world.in_company = world.of_batches = self.plan.behind_batches()
        plan = self.plan
        for part in plan.stores:
            store = world.add_store(part.name, declared_level(part), part.kind)
            self.stores[part.name] = SharedStore(store)
        for pipe in plan.pipes:
            if pipe.stream_store is None:
                self.routes[pipe.name] = SimulatedSharedRoute(world, plan, pipe)
            else:
                world.streams[stream_name(plan, pipe)] = None
        for sink in plan.sinks:
            if isinstance(sink, JsonlSink | CsvSink):
                self.files[sink.name] = WorldFile(sink)
            else:
                is_of_many = isinstance(sink, PythonSink) and plan.takes_batches(sink.name)
                self.records[sink.name] = Record(sink, is_of_many)
        self._begin_sources(world)
        self._visitor = Visitor(plan, world.options)
        for node in plan.nodes:
            self._add_node(world, node)

    def _begin_sources(self, world: World) -> None:
        chooser, last = world.chooser, 0
        for source in self.plan.sources:
            messages = self._messages[source.name][: world.options.messages]
            aside = self._aside_at_source.get(source.name, ())
            messages = with_unreadable(source, messages, aside, world.options)
            due: list[int] = []
            at = number = 0
            while len(due) < len(messages):
                number += 1
                offer = f"submit {number} of {source.name}"
                after, count = chooser.submit(offer, len(messages) - len(due))
                at += after
                due += [at] * count
            last = max(last, at)
            self.rows[source.name] = SeededRows(source, messages, due[: len(messages)])
        world.chaos_us = max(world.chaos_us, last)

    def _add_node(self, world: World, node: str) -> None:
        places = self.plan.places
        pipes = [places[pipe.name] for pipe in self.plan.pipes]

        def run(life: Life) -> None:
            self._run(life, node)

        world.add_node(
            node,
            run,
            sends=any(place.sender == node for place in pipes),
            receives=any(place.node == node for place in pipes),
        )

    # The program of a node.

    def _run(self, life: Life, node: str) -> None:
        """What ``surepipe run`` does, under a supervisor that starts it again when it stops."""
        environment = SimulatedEnvironment(self, life)
        try:
            engine = PlanEngine(self.plan, node, environment, once=True, until_idle=True)
            engine.start()
            assert self._visitor is not None
            self._visitor.visit(life, engine, node)
            while not self._is_over(life, engine, environment):
                life.sleep(round(LOOK_S * 1_000_000))
        except (SurepipeError, OSError) as error:
            self._stopped(life, error)
            return
        engine.close(5.0)

    def _stopped(self, life: Life, error: Exception) -> None:
        """It can't go on as it is: the process ends, and is started again after a while."""
        if isinstance(error, ConfigurationError):
            self.refusal = self.refusal or error
            raise error
        node: ActorNode = life.node
        is_current = node.current is life
        fault = "" if isinstance(error, StoreUnavailable) else "stop"
        reason = str(error).partition(" stopped: ")[2] or f"{type(error).__name__}: {error}"
        node.end(life, f"stops: {reason}", fault=fault)
        if is_current:
            node.start_after(round(START_AGAIN_S * 1_000_000) * min(20, node.lives))

    def _is_over(self, life: Life, engine: PlanEngine, environment: SimulatedEnvironment) -> bool:
        """True when nothing is left to do in the whole plan: each node said so after the last one began to.

        Raises what ended a source.
        """
        world, name = life.world, life.node.name
        began = (
            world.now
        )  # a process may be paused in the middle of its look, and what it saw first is old then
        try:
            is_through = engine.look()
        except StoreUnavailable:
            is_through = False
        if environment.failure is not None:
            raise environment.failure
        if life.node.current is not life or self._is_through:
            return is_through or self._is_through
        known = self._through.pop(name, None)
        if not is_through:
            return False
        since = known.since if known and known.life is life else began
        self._through[name] = _Through(life, since, began)
        found = [self._through.get(one) for one in world.nodes]
        sure = [one for one in found if one and world.nodes[one.life.name].current is one.life]
        if len(sure) == len(found):
            latest = max(one.since for one in sure)
            self._is_through = len(sure) == 1 or all(one.looked > latest for one in sure)
        return self._is_through

    def called(self, name: str, about: About, message: object) -> None:
        """A stage is called for a message."""
        self.calls[name, about.key] += 1
        handled = self._handled.get(name)
        if handled is None:
            return
        is_of_many = self.plan.takes_batches(name)
        for key, one in members_of(message, about) if is_of_many else ((about.key, message),):
            if key not in handled:
                handled[key] = canonical(one)

    # The end.

    def delivered(self) -> dict[str, list[object]]:
        """Of each sink: what is in it, but for what visitors sent."""
        return {name: [*self._own(messages)] for name, messages in self._contents().items()}

    def _own(self, messages: Iterable[object]) -> Iterator[object]:
        strange = self._visitor.offered if self._visitor else set[str]()
        return (message for message in messages if canonical(message) not in strange)

    def at_ends(self, delivered: Mapping[str, Sequence[object]]) -> dict[str, list[str]]:
        """Messages at each sink, and at each stage without a follower; where a function gets batches, what is in
        these."""
        singly = {
            name: [*self._own(record.singly)]
            for name, record in self.records.items()
            if record.takes_batches
        }
        kept = {
            name: [canonical(message) for message in messages]
            for name, messages in {**delivered, **singly}.items()
        }
        return kept | {name: [*handled.values()] for name, handled in self._handled.items()}

    def _comparable(self, delivered: Mapping[str, Sequence[object]]) -> dict[str, list[str]]:
        """The same, without what is another in each run."""
        found = self.at_ends(delivered)
        veils = self._reference.veils
        return found | {end: [*map(veil.over, found[end])] for end, veil in veils.items()}

    def _contents(self) -> dict[str, list[object]]:
        return {sink.name: self._in(sink) for sink in self.plan.sinks}

    def _in(self, sink: AnySink) -> list[object]:
        if isinstance(sink, StreamSink):
            return self._in_stream(sink)
        if isinstance(sink, JsonlSink | CsvSink):
            return self._in_file(self.files[sink.name])
        return self.records[sink.name].messages

    def _in_file(self, file: WorldFile) -> list[object]:
        """After the next process has written what was decided and is missing, as it does when it begins."""
        if file.is_decided:
            pipe = self._pipe_before(file.part.name)
            store = self.stores[pipe.state or pipe.stream_store or ""].store
            store.is_down = False
            log = FileLog(store, f"{self.plan.name}/{file.part.name}/place")
            file.opened(log, BareDisk(file)).close()
        return file.messages

    def _pipe_before(self, name: str) -> PipePart:
        part = self.plan.part(self.plan.feeders(name)[0])
        return part if isinstance(part, PipePart) else self._pipe_before(part.name)

    def _in_stream(self, sink: StreamSink) -> list[object]:
        return [_decoded(payload) for payload in self._payloads(sink.store, sink.stream)]

    def _payloads(self, store: str, stream: str) -> list[bytes]:
        inside = self.stores[store].store
        inside.is_down = False
        info = inside.info(stream)
        if not isinstance(info, StreamInfo):
            return []
        found: list[bytes] = []
        index = info.earliest
        while index < info.next:
            batch = inside.read(stream, index, 1024, 1 << 24)
            if not isinstance(batch, Batch):
                break
            found += [payload for entry in batch.entries for payload in entry.payloads]
            index = batch.next
        return found

    def dead(self) -> int:
        """How many letters lie in dead-letter streams."""
        return len(list(self._letters()))

    def _letters(self) -> Iterator[Letter]:
        parts = [part for part in self.plan.parts if isinstance(part, Trying | ReadSource)]
        for written in sorted(filter(None, {part.dead_letter for part in parts})):
            yield from self._letters_in(written)
        for pipe in self.plan.pipes:
            if pipe.book is not None:
                yield from self._letters_in(
                    f"{pipe.stream_store}/{self.plan.name}/{pipe.name}/dead"
                )

    def letters_of(self, pipe: str) -> list[Letter]:
        """The dead letters that the messages of a pipe became."""
        return [one for one in self._letters() if one.pipe == f"{self.plan.name}/{pipe}"]

    def _place_of(self, name: str) -> str:
        """The source or pipe that letters and rows call so."""
        return name.partition("@")[0].removeprefix(f"{self.plan.name}/")

    def aside(self, world: World) -> SetAside:
        """The messages that are dead letters, or parked in books for people. One that two parts have set aside,
        each in a place of its own, is one."""
        rows = {(source, content) for (source, content), _ in self._put_aside()}
        letters = {name_of(one): one for one in self._letters()}.values()
        looks = [(self._place_of(one.pipe), one.payload) for one in letters]
        found = Counter(
            (place, digest_of(payload)) for place, payload in looks if (place, payload) not in rows
        )
        parked = {
            (row.pipe, row.epoch, row.seq)
            for row in world.rows
            if row.kind == Kind.DEAD and '"kept":true' in row.detail
        }
        found.update((self._place_of(pipe), "") for pipe, _, _ in parked)
        return found

    def _letters_in(self, written: str) -> list[Letter]:
        store, _, stream = written.partition("/")
        return [letter_of(payload) for payload in self._payloads(store, stream)]

    def outcome(self, world: World) -> RunOutcome:
        """The run, as a user's check sees it."""
        letters = list(self._letters())
        return RunOutcome(
            delivered=self.delivered(),
            dead=len(letters),
            calls=self._calls_of_parts(),
            outsides=tuple(world.outsides),
            letters=letters,
        )

    def _calls_of_parts(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for (name, _), count in self.calls.items():
            total[name] += count
        return total

    def end(self, world: World) -> Sequence[Violation]:
        """Compare what sinks have with what each way promises, and call the user's check."""
        outcome = self.outcome(world)
        doubts = {name: rows.doubt for name, rows in self.rows.items()}
        put_aside = dict(self._put_aside())
        known = self._reference
        aside, got = self.aside(world), self._comparable(outcome.delivered)
        ends = Ends(got, known.expected, aside, known.offspring)
        found = list(judge_ends(world, ends, self._ways, doubts))
        found += judge_keys(world, ends, known.keyed, self._ways_by_key)
        found += self._judge_unreadable(world, put_aside, doubts)
        if self._visitor is not None and not world.limit:
            found += self._judge_visitor(self._visitor, world)
        if self.functions.check is not None and not world.limit:
            end, content = about_what(ends)
            said = outcome.checked(world, self.functions.check, known.usual, known.times)
            found += [one if one.end else replace(one, end=end, content=content) for one in said]
        world.outcome = outcome
        last = len(world.rows) - 1
        found += [
            Violation("stage", IDEMPOTENCY_KEY, last, f"{slip}.", end=where, content=effect)
            for slip, (where, effect) in {**slips_of(world.outsides), **known.slips}.items()
        ]
        found += self._judge_repeats(world)
        found += self._judge_effects(world, doubts, aside)
        return found

    def _put_aside(self) -> Iterator[tuple[tuple[str, bytes], int]]:
        """Of each row of a source that can't be read: how many dead letters there are of it."""
        for source in self.plan.sources:
            if not isinstance(source, ReadSource) or source.dead_letter is None:
                continue
            found = self._letters_in(source.dead_letter)
            here = f"{self.plan.name}/{source.name}"
            letters = [letter.payload for letter in found if letter.pipe == here]
            for row in self.rows[source.name].messages:
                if isinstance(row, Unreadable):
                    yield (source.name, row.content), letters.count(row.content)

    def _judge_unreadable(
        self,
        world: World,
        put_aside: Mapping[tuple[str, bytes], int],
        doubts: Mapping[str, Atom | None],
    ) -> Iterator[Violation]:
        """A row that can't be read is among the dead letters, once, where no message may be lost.

        Where a source can't be read again, a letter is named by the run that read its row, and two processes of a
        simulated world may have read it. (Plan 1010 of the generated ones, seed 7.)
        """
        if world.limit or not self._keeps_all(world):
            return
        for (source, content), times in put_aside.items():
            row = f"{source}: the row {content.decode(errors='replace')!r} can't be read, and"
            step = len(world.rows) - 1
            if not times and doubts[source] is not Atom.NO_LOSS:
                yield Violation("P2", "no loss", step, f"{row} is not among the dead letters.")
            elif times > 1 and replays(self.rows[source].part):
                yield Violation(
                    "P3", "no duplicate", step, f"{row} is a dead letter {times} times."
                )

    def _judge_effects(
        self, world: World, doubts: Mapping[str, Atom | None], aside: SetAside
    ) -> Iterator[Violation]:
        """What was never done outside, though no message may be lost, but for what dead letters take with them.

        1. A stage puts a message into a list, and returns. 2. The message is settled. 3. The process ends, and the
        list with it: what was to be done with the message is done by nobody, and no sink shows that.
        """
        wanted = self._reference.effects
        missing = wanted.keys() - all_done(world.outsides).keys() - self._excused_effects(aside)
        if not missing or world.limit or Atom.NO_LOSS in doubts.values():
            return
        if not self._keeps_all(world):
            return
        outside, action, value = first = min(missing, key=_in_turn)
        others = so_many(missing) - 1
        more = f", nor {'was' if others == 1 else 'were'} {others} more" if others else ""
        yield Violation(
            "stage",
            EFFECT_LOST,
            len(world.rows) - 1,
            f"{outside} {action} {value!r} was never done{more}: without faults {wanted[first]} does it. "
            f"{self._against_losing(first)}.",
            end=outside,
            content=asked_for(action, value, wanted[first]),
        )

    def _against_losing(self, effect: Effect) -> str:
        stage = self._reference.effects[effect].partition(" ")[0]
        if effect in self._reference.of_first_attempts:
            return at_first_attempts(stage)
        return (
            "What a stage keeps for later, or notes as done before it is, is lost with its process: do it while "
            f"the message is handled, and note it behind that, or {in_transaction(self.plan, stage)}"
        )

    def _excused_effects(self, aside: SetAside) -> set[Effect]:
        """What is done for the messages that are dead letters. Of one that nobody knows it may be anything that is
        done behind its pipe."""
        known = self._reference
        behind = self.plan.behind(*known.offspring.strangers(aside))
        excused = known.deeds.excused(known.effects, aside, known.offspring.usual)
        return excused.union(
            effect for effect, who in known.effects.items() if who.partition(" ")[0] in behind
        )

    def _judge_repeats(self, world: World) -> Iterator[Violation]:
        """What has no key and was done once more for a message, though its stage looks first.

        1. A stage finds no note of a payment, and pays. 2. The process ends. 3. The next one finds no note of it
        either, as that is made behind the payment.
        """
        once = self._reference.once
        for stage, (outside, action, value), who in done_again(world.outsides, once):
            usual = once[stage, (outside, action, value)]
            yield Violation(
                "stage",
                EFFECT_REPEATED,
                len(world.rows) - 1,
                f"{who} did {outside} {action} {value!r} once more when its message was tried again. It has no "
                f"key, and what else keeps a second attempt from it was not there: {by_a_key(world, stage)}.",
                end=outside,
                content=f"{action} {value!r}, for the {ordinal(usual + 1)} time",
            )

    def _keeps_all(self, world: World) -> bool:
        """Whether no way may lose a message in this run."""
        faults = frozenset(world.faults)
        return all(
            Atom.NO_LOSS in claim and faults <= frozenset(claim[Atom.NO_LOSS])
            for claim in self._ways.values()
        )

    def _judge_visitor(self, visitor: Visitor, world: World) -> Iterator[Violation]:
        if not visitor.offered:
            return
        came = {canonical(message) for sink in self._contents().values() for message in sink}
        yield from visitor.judge(came, len(world.rows) - 1, keeps_all=self._keeps_all(world))


def _in_turn(effect: Effect) -> tuple[int, str]:
    """Where it stands among those that are told: how often something is done comes last."""
    return (effect[2].number if isinstance(effect[2], Nth) else 0, repr(effect))


def _decoded(payload: bytes) -> object:
    try:
        return AutoCodec().decode(payload)
    except Undecodable:
        return payload
