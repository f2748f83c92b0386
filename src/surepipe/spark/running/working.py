"""What tasks do with messages: the stages, by the same flow as on actors, and rows for the writers.

A message that fails is tried again where it is, with the waits that the plan says; on its last attempt it goes to
the dead letters, stored by its identity before the batch is done, so a batch that is done again adds none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby, islice, repeat
from typing import Any, cast

from surepipe.actors.codecs import Codec, Undecodable, are_alike, choose_codec, was_replayed
from surepipe.actors.consuming.consumer import GiveUp, error_text
from surepipe.core.effects import Letter
from surepipe.core.store_requests import JoinedRequest, Transaction
from surepipe.core.timing import BackOff
from surepipe.errors import ConfigurationError, MisuseError, StoreUnavailable, SurepipeError
from surepipe.pipelines.models.pipes import PipePart
from surepipe.pipelines.models.sources import StreamSource
from surepipe.pipelines.models.stages import Trying
from surepipe.pipelines.run.flow import FlowTurn, StageFlow, Step
from surepipe.pipelines.run.pipes import PipeMaker
from surepipe.pipelines.run.real import RealEnvironment
from surepipe.pipelines.run.tallies import LetterBox, Tallies
from surepipe.pipelines.run.writers import SharedSink
from surepipe.pipelines.stages import About
from surepipe.spark.columns import Batches, RecordBatch
from surepipe.spark.running.layout import SPARK_NODE, Input, SparkLayout
from surepipe.spark.running.rows import LETTERS, Made, RowsToWrite, parts_for
from surepipe.spark.shipping import keep_what_is_loaded
from surepipe.spark.sink import PAGE_NEEDED, PageRow, page_rows
from surepipe.storage.letters import DeadLetterStream

Entry = tuple[int, str, int, int, bytes]
"""Its index in the input, producer, epoch, seq and payload."""
_OF_PAGES = ("store", "stream", "life", "producer", "epoch", "seq")
READ = tuple(dict.fromkeys([*_OF_PAGES, *PAGE_NEEDED]))
"""The columns that stages need, of rows that are pages."""


def stages_of(layout: SparkLayout) -> Callable[[Batches], Batches]:
    """The function of a task: pages of inputs come in, rows of ``rows.SCHEMA`` come out, in the same order."""

    def work(batches: Batches) -> Batches:
        worker = TaskStages(layout)
        keep_what_is_loaded()
        for batch in batches:
            worker.take(batch)
            yield worker.rows.take()

    return work


class TaskStages:
    """The stages of all inputs, in one task."""

    def __init__(self, layout: SparkLayout) -> None:
        self.rows = RowsToWrite()
        self._layout = layout
        self._tallies = Tallies()
        self._environment = RealEnvironment(layout.plan)
        self._ways: dict[str, InputWay] = {}

    def take(self, batch: RecordBatch) -> None:
        """All entries of a batch of pages."""
        columns = [cast("list[Any]", batch.column(name).to_pylist()) for name in _OF_PAGES]
        pages = zip(zip(*columns, strict=True), page_rows(batch), strict=True)
        for (store, stream, life), group in groupby(pages, key=lambda page: page[0][:3]):
            found = [entry for told, page in group for entry in _entries(page, *told[3:])]
            for one in self._layout.inputs:
                if (one.stream.store, one.stream.name) == (store, stream):
                    self._way_of(one).take(life, found)
        self.rows.counts(self._counted())
        self._tallies.clear()

    def _counted(self) -> Mapping[str, Mapping[str, int]]:
        """Counters of the parts, without what went into targets: that is counted where it is written."""
        return {
            part: {
                what: count
                for what, count in counts.items()
                if what != "taken" or part not in self._layout.targets
            }
            for part, counts in self._tallies.all().items()
        }

    def _way_of(self, input_: Input) -> InputWay:
        if input_.part not in self._ways:
            self._ways[input_.part] = InputWay(
                self._layout, input_, self._environment, self.rows, self._tallies
            )
        return self._ways[input_.part]


def _entries(page: PageRow, producer: str, epoch: int, seq: int) -> Iterator[Entry]:
    """What is read of a page: each of its entries is one message."""
    count = page.count
    indexes, seqs = range(page.first, page.first + count), range(seq, seq + count)
    producers, epochs = repeat(producer, count), repeat(epoch, count)
    return zip(indexes, producers, epochs, seqs, page.payloads, strict=True)


class NoTransaction(Transaction):
    """Stands where actors have a transaction: what fails in a turn is taken back, and nothing may be added."""

    def add(self, request: JoinedRequest) -> None:
        """Refused. Raises MisuseError."""
        del request
        raise MisuseError(
            "stages on Spark have no transaction: what they return is written once, in one step with its index; "
            "write through a sink, or run this pipeline on actors"
        )


_NO_TRANSACTION = NoTransaction()


class InputWay:
    """What becomes of the messages of one input."""

    def __init__(
        self,
        layout: SparkLayout,
        input_: Input,
        environment: RealEnvironment,
        rows: RowsToWrite,
        tallies: Tallies,
    ) -> None:
        self._layout = layout
        self._input = input_
        self._environment = environment
        self._rows = rows
        self._tallies = tallies
        self._index = 0
        self._attempts = 1
        self._made: dict[str, list[Made]] = {target: [] for target in input_.targets}
        self._maker = PipeMaker(layout.plan, SPARK_NODE, environment, {})
        self._codec = self._codec_of(input_.part)
        self._name = f"{layout.plan.name}/{input_.part}"
        sinks = {
            name: SharedSink(name, Collecting(self._put_into(name)), environment)
            for name in input_.targets
            if name in {sink.name for sink in layout.plan.sinks}
        }
        self._flow = StageFlow(
            layout.plan,
            input_.part,
            environment,
            forward=self._forward,
            sinks=sinks,
            tallies=tallies,
        )
        self._letters = self._letter_box()
        self._all_made = [*self._made.values()]
        self._is_batched = self._flow.size > 1
        self._is_bare = self._goes_on_as_it_is()

    def _codec_of(self, part: str) -> Codec:
        found = self._layout.plan.part(part)
        if isinstance(found, StreamSource):
            return choose_codec(found.codec)
        return choose_codec(self._maker.codec(found) if isinstance(found, PipePart) else "auto")

    # Where messages go.

    def _goes_on_as_it_is(self) -> bool:
        """Whether all that take its messages are ends, and write them as they are written."""
        takers = {one.name for one in self._layout.plan.takers(self._input.part)}
        into = map(self._codec_of, self._made)
        return takers == set(self._made) and all(are_alike(self._codec, one) for one in into)

    def _asks(self, target: str) -> bool:
        """Whether a target wants to know which message each one is."""
        return self._layout.targets[target].stream is None

    def _put_into(self, target: str) -> Callable[[object, About], None]:
        codec = self._codec_of(target)
        made, asks = self._made[target], self._asks(target)

        def put(message: object, about: About) -> None:
            made.append((self._index, codec.encode(message), about if asks else None))

        return put

    def _forward(self, pipe: PipePart, taken_from: str) -> Step:
        del taken_from
        put = self._put_into(pipe.name)

        def hand_over(message: object, about: About, turn: FlowTurn) -> None:
            del turn
            put(message, about)

        return hand_over

    # The messages.

    def take(self, life: int, entries: Sequence[Entry]) -> None:
        """All of them. Each attempt reads its message anew: a stage may have changed the one that it was given."""
        done = 0
        while done < len(entries):
            done = self._way_for(entries[done])(entries, done)
        first, last = entries[0][0], entries[-1][0]
        for target, made in self._made.items():
            for part in parts_for(first, last, made):
                self._rows.part(target, self._input.part, life, part)
            made.clear()
        self._tallies.add(self._input.part, "settled", len(entries))

    def _way_for(self, entry: Entry) -> Callable[[Sequence[Entry], int], int]:
        """How to go on from this message: takes some from there on, and says where to go on then."""
        if self._is_bare:
            return self._pass_on
        return self._turn if self._is_batched or self._has_failed(entry) else self._run

    def _pass_on(self, entries: Sequence[Entry], done: int) -> int:
        """No code of the user's is between: what can be read goes on as it lies there."""
        codec, name = self._codec, self._name
        ways = [(made, self._asks(target)) for target, made in self._made.items()]
        for index, producer, epoch, seq, payload in islice(entries, done, None):
            try:
                message = codec.decode(payload)
            except Undecodable as error:
                self._bury(About(name, epoch, seq, producer), payload, 1, error)
                continue
            same = codec.encode(message) if was_replayed(payload) else payload
            for made, asks in ways:
                made.append((index, same, About(name, epoch, seq, producer) if asks else None))
        return len(entries)

    def _run(self, entries: Sequence[Entry], done: int) -> int:
        """Messages one behind the other until one fails. They share a turn, so that it costs nothing for each."""
        flow, enter, decode, name = self._flow, self._flow.entry, self._codec.decode, self._name
        start, turn = done, flow.begin(self._about(entries[done]), _NO_TRANSACTION)
        for index, producer, epoch, seq, payload in islice(entries, done, None):
            about, marks = About(name, epoch, seq, producer), self._marks()
            self._index = index
            try:
                message = decode(payload)
            except Undecodable as error:
                flow.end(turn, done - start)
                self._bury(about, payload, 1, error)
                return done + 1
            try:
                enter(message, about, turn)
            except Exception as error:  # noqa: BLE001 - whatever a function of the user's raises
                _back_to(marks)
                flow.end(turn, done - start)
                return done + self._failed(entries[done], _noted(flow, turn, about, error))
            done += 1
        flow.end(turn, done - start)
        return done

    def _turn(self, entries: Sequence[Entry], done: int) -> int:
        """One attempt at one message, or at a few where a stage makes batches."""
        marks, group = self._marks(), self._group(entries, done)
        if not group:
            return done + 1
        self._index = entries[done + len(group) - 1][0]
        try:
            self._flow.take(group, _NO_TRANSACTION)
        except Exception as error:  # noqa: BLE001 - whatever a function of the user's raises
            _back_to(marks)
            return done + self._failed(entries[done], error, waits=len(group) == 1)
        self._attempts = 1
        return done + len(group)

    def _group(self, entries: Sequence[Entry], done: int) -> list[tuple[object, About]]:
        """The messages of a turn; none when the first can't be read, and is a dead letter now."""
        count = 1 if self._has_failed(entries[done]) else self._flow.size
        group: list[tuple[object, About]] = []
        for entry in entries[done : done + count]:
            try:
                group.append((self._codec.decode(entry[-1]), self._about(entry)))
            except Undecodable as error:
                if not group:
                    self._bury(self._about(entry), entry[-1], 1, error)
                break
        return group

    def _failed(self, entry: Entry, error: Exception, *, waits: bool = True) -> int:
        """An attempt came to nothing: how many messages are done with, 1 after the last attempt. Raises what is
        no failure of a message."""
        if isinstance(error, GiveUp):
            self._bury(self._about(entry), entry[-1], self._attempts, error)
            self._attempts = 1
            return 1
        if isinstance(error, SurepipeError) and not isinstance(error, StoreUnavailable):
            raise error
        if waits:
            self._pause()
        return 0

    def _about(self, entry: Entry) -> About:
        _, producer, epoch, seq, _ = entry
        return About(self._name, epoch, seq, producer)

    def _has_failed(self, entry: Entry) -> bool:
        return bool(self._flow.trials.known) and self._flow.has_failed(self._about(entry))

    def _marks(self) -> list[tuple[list[Made], int]]:
        return [(made, len(made)) for made in self._all_made]

    def _pause(self) -> None:
        """Wait before the next attempt, longer after each failure."""
        waits = BackOff.of_seconds(*_waits(self._layout, self._input))
        self._environment.clock.sleep(waits.calm(self._attempts) / 1_000_000)
        self._attempts += 1

    # Dead letters.

    def _letter_box(self) -> LetterBox | None:
        named = [
            part.dead_letter
            for part in self._layout.plan.reach(self._input.part)
            if isinstance(part, Trying) and part.dead_letter
        ]
        if not named:
            return None
        streams = {one: letters_at(self._layout, one) for one in dict.fromkeys(named)}
        return LetterBox(streams)

    def _bury(self, about: About, payload: bytes, attempts: int, error: BaseException) -> None:
        if self._letters is None:
            raise ConfigurationError(
                f"{about.key} can't be taken, and there is no place for it: give a stage or sink behind "
                f"{self._input.part} a dead_letter ({error})"
            )
        now_us = round(self._environment.clock.now() * 1_000_000)
        self._letters(letter_of(about, payload, error, attempts, first_us=now_us, last_us=now_us))
        self._tallies.add(self._input.part, "dead_lettered")
        for stream, count in self._letters.stored.items():
            self._tallies.add(f"{LETTERS}{stream}", "stored", count)
        self._letters.stored.clear()


def _noted(flow: StageFlow, turn: FlowTurn, about: About, error: Exception) -> Exception:
    """What becomes of a failure now that it is counted."""
    try:
        flow.failed(turn, about, error)
    except GiveUp as last:
        return last
    return error


def _back_to(marks: Sequence[tuple[list[Made], int]]) -> None:
    """Forget what was made since."""
    for made, mark in marks:
        del made[mark:]


def letter_of(
    about: About,
    payload: bytes,
    error: BaseException,
    attempts: int,
    *,
    first_us: int,
    last_us: int,
) -> Letter:
    """The dead letter of a message that Spark gave up: it failed so often, from the first time to the last."""
    return Letter(
        *(about.pipe, 0, about.epoch, about.seq, payload, attempts, first_us, last_us),
        *(*error_text(error), about.producer),
        place=error.place if isinstance(error, GiveUp) else "",
    )


def letters_at(layout: SparkLayout, written: str) -> DeadLetterStream:
    """The dead letters of 'store/stream'."""
    store, _, stream = written.partition("/")
    return DeadLetterStream(layout.places[store].store(), stream)


def _waits(layout: SparkLayout, input_: Input) -> tuple[float, float]:
    """The shortest first wait and the longest last one of all that may fail behind an input."""
    trying = [part for part in layout.plan.reach(input_.part) if isinstance(part, Trying)]
    if not trying:
        return 0.1, 30.0
    return min(one.retry_min_s for one in trying), max(one.retry_max_s for one in trying)


class Collecting:
    """A sink that makes rows of its messages; the real one is entered later, behind the shuffle."""

    def __init__(self, put: Callable[[object, About], None]) -> None:
        self._put = put

    def begin(self, transaction: Transaction | None) -> None:
        """Nothing to begin."""

    def mark(self) -> int:
        """Taken back by whoever has the rows."""
        return 0

    def back_to(self, mark: int) -> None:
        """Taken back by whoever has the rows."""

    def put(self, message: object, about: About, transaction: Transaction | None) -> None:
        del transaction
        self._put(message, about)

    def seal(self, transaction: Transaction | None) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Nothing is held."""
