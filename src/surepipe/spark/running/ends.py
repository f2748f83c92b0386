"""Ends of a pipeline that are no streams: files and functions, each message once as far as the end itself can.

Beside each end the store of the input keeps its place: the last message that is in. A file's length is kept with
it, in one commit, so what a crash left behind that length is cut off and comes again: once. A Parquet file is
named by its first message and written as a whole before the place moves: once. A function is called before the
place moves: at least once, unless it takes part in the transaction of boundary ``committed``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar, cast

from surepipe.actors.codecs import AutoCodec
from surepipe.core.store_requests import (
    Batch,
    CommitPosition,
    JoinedRequest,
    Store,
    Transaction,
    TransactionalStore,
    Unavailable,
)
from surepipe.core.store_requests import FencedOut as FencedOutcome
from surepipe.core.timing import BackOff
from surepipe.errors import ConfigurationError, Fenced, StoreReset, StoreUnavailable, SurepipeError
from surepipe.pipelines.assembly import Sink
from surepipe.pipelines.models.pipes import PipePart
from surepipe.pipelines.models.stages import AnySink, ParquetSink, PythonSink
from surepipe.pipelines.run.real import RealEnvironment
from surepipe.pipelines.run.tallies import Tallies
from surepipe.pipelines.run.writers import StoreCursor
from surepipe.pipelines.stages import About
from surepipe.spark.running.layout import SparkLayout
from surepipe.spark.running.rows import LETTERS
from surepipe.spark.running.working import letter_of, letters_at
from surepipe.spark.stores import ATTEMPTS

T = TypeVar("T")
Place: TypeAlias = tuple[int, int]
"""Index of a message, and which of those that came of it."""
Row: TypeAlias = tuple[int, int, bytes, About]
"""Index and part of a message for an end, its payload, and which one it is."""
LAST_PART = 2**31 - 1
"""Behind everything that came of a message."""
GROUP_MAX = 2_000
_WAIT_S = 0.5


class EndPlaces:
    """The place of each input at one end, and the length of its file: a text in a store, moved as one.

    As a cursor it is what a file sink keeps its length in.
    """

    def __init__(self, store: Store, name: str, environment: RealEnvironment) -> None:
        """Takes the end over from an older process. Raises StoreUnavailable, ConfigurationError."""
        self._cursor = StoreCursor(store, name)
        self._environment = environment
        found = self._patiently(self._cursor.load)
        known = cast("dict[str, object]", json.loads(found)) if found else {}
        self._length = cast("str | None", known.get("length"))
        places = cast("dict[str, tuple[int, int]]", known.get("places", {}))
        self._places: dict[str, Place] = {name: (at[0], at[1]) for name, at in places.items()}

    def of(self, input_: str) -> Place | None:
        """The last message of an input that is in."""
        return self._places.get(input_)

    def text_with(self, input_: str, place: Place) -> str:
        """What is stored when this input has come so far."""
        places = {**self._places, input_: place}
        return json.dumps({"length": self._length, "places": places}, sort_keys=True)

    def move(self, input_: str, place: Place) -> None:
        """Store it. Raises ``errors.Fenced`` when another process has this end now."""
        text = self.text_with(input_, place)
        self._patiently(lambda: self._cursor.save(text))
        self.moved(input_, place)

    def moved(self, input_: str, place: Place) -> None:
        self._places[input_] = place

    def commit_of(self, input_: str, place: Place) -> CommitPosition:
        """The commit that stores it, for a transaction."""
        return self._cursor.request(self.text_with(input_, place))

    # As a cursor of a file's length.

    def load(self) -> str | None:
        """The length that counts."""
        return self._length

    def save(self, text: str) -> None:
        """Store the length; the places stay."""
        self._length = text
        stored = json.dumps({"length": text, "places": self._places}, sort_keys=True)
        self._patiently(lambda: self._cursor.save(stored))

    def request(self, text: str) -> CommitPosition:
        """The length goes with the next move."""
        self._length = text
        return self._cursor.request(text)

    def _patiently(self, call: Callable[[], T]) -> T:
        """Do it again while the store is away, about as long as everything else on Spark waits for one."""
        for _ in range(ATTEMPTS):
            try:
                return call()
            except StoreUnavailable:
                self._environment.clock.sleep(_WAIT_S)
        return call()


class Sealed(Transaction):
    """Stands for a transaction where the move of the place is all that has to be stored."""

    def add(self, request: JoinedRequest) -> None:
        """A commit is part of the move that follows; no sink of this kind adds anything else."""
        assert isinstance(request, CommitPosition), request


@dataclass(slots=True)
class _Try:
    """How far a group came."""

    done: int
    failure: Exception | None = None


@dataclass(slots=True)
class _Failures:
    """Of the message that is tried."""

    row: Place = (0, 0)
    count: int = 0
    since_us: int = field(default=0)


class SparkEnd:
    """One end, as it takes the messages of inputs. In tasks there is one for each input."""

    def __init__(
        self,
        layout: SparkLayout,
        name: str,
        owner: str,
        environment: RealEnvironment,
        tallies: Tallies,
    ) -> None:
        """``owner`` tells ends of one name apart that different tasks have."""
        self.part = cast("AnySink", layout.plan.part(name))
        self._layout = layout
        self._environment = environment
        self._tallies = tallies
        self._codec = AutoCodec()
        self._store = layout.places[_home(layout, name)].store()
        self._places = EndPlaces(self._store, f"{layout.plan.name}/{name}/{owner}", environment)
        self._sink: Sink = environment.sink(self.part, {}, self._places)
        self._group_max = (
            self.part.rows_per_file if isinstance(self.part, ParquetSink) else GROUP_MAX
        )
        self._failures = _Failures()

    def take(self, input_: str, rows: Sequence[Row], first: int, last: int) -> None:
        """All that messages ``first`` to ``last`` of an input ('part@life') gave for this end, in order.

        What is in already is passed over. Raises StoreReset when messages before ``first`` never came.
        """
        known = self._places.of(input_)
        if known is not None and first > known[0] + 1:
            raise StoreReset(
                f"{self.part.name} has messages of {input_} up to {known[0]}, and those from {first} on come now: "
                f"{known[0] + 1} to {first - 1} were skipped; start again with another checkpoint folder"
            )
        if known is not None and (last, LAST_PART) <= known:
            return
        waiting = [row for row in rows if known is None or row[:2] > known]
        at = 0
        while at < len(waiting):
            at = self._group(input_, waiting, at)
        if (last, LAST_PART) > (self._places.of(input_) or (0, 0)):
            self._places.move(input_, (last, LAST_PART))

    def close(self) -> None:
        """Let go of what it holds open."""
        self._sink.close()

    # Groups.

    def _group(self, input_: str, rows: Sequence[Row], at: int) -> int:
        """Take some; where to go on."""
        tried = self._stored(input_, rows, at)
        self._tallies.add(self.part.name, "taken", tried.done - at)
        if tried.failure is None:
            return tried.done
        return tried.done + (1 if self._given_up(input_, rows[tried.done], tried.failure) else 0)

    def _stored(self, input_: str, rows: Sequence[Row], at: int) -> _Try:
        with self._transaction(input_) as transaction:
            self._sink.begin(transaction)
            tried = self._put(rows, at, transaction)
            if tried.done == at:
                return tried
            self._sink.seal(transaction)
            place = rows[tried.done - 1][:2]
            if not isinstance(transaction, Sealed):
                transaction.commit(self._places.commit_of(input_, place))
        if isinstance(transaction, Sealed):
            self._places.move(input_, place)
            transaction.done = True
        else:
            _raise_unless_done(self.part.name, transaction)
            self._places.moved(input_, place)
        return tried

    def _transaction(self, input_: str) -> AbstractContextManager[Transaction]:
        part = self._layout.plan.part(_part_of(input_))
        is_committed = isinstance(part, PipePart) and part.boundary == "committed"
        if isinstance(self.part, PythonSink) and is_committed:
            assert isinstance(self._store, TransactionalStore)
            return self._store.transaction()
        return nullcontext(Sealed())

    def _put(self, rows: Sequence[Row], at: int, transaction: Transaction) -> _Try:
        given = None if isinstance(transaction, Sealed) and not self._seals else transaction
        for number in range(at, min(len(rows), at + self._group_max)):
            *_, payload, about = rows[number]
            mark = self._sink.mark()
            try:
                self._sink.put(self._codec.decode(payload), about, given)
            except Exception as error:  # noqa: BLE001 - whatever a function of the user's raises
                self._sink.back_to(mark)
                return _Try(number, error)
        return _Try(min(len(rows), at + self._group_max))

    @property
    def _seals(self) -> bool:
        return not isinstance(self.part, PythonSink)

    # Failures.

    def _given_up(self, input_: str, row: Row, error: Exception) -> bool:
        """Count a failure, and wait; True when the message went to the dead letters instead."""
        if isinstance(error, SurepipeError) and not isinstance(error, StoreUnavailable):
            raise error
        self._tallies.add(self.part.name, "failed")
        if self._failures.row != row[:2]:
            self._failures = _Failures(row[:2], 0, self._now_us())
        self._failures.count += 1
        part = self.part
        if part.retries is not None and self._failures.count >= part.retries:
            self._bury(input_, row, error)
            return True
        waits = BackOff.of_seconds(part.retry_min_s, part.retry_max_s)
        self._environment.clock.sleep(waits.calm(self._failures.count) / 1_000_000)
        return False

    def _bury(self, input_: str, row: Row, error: Exception) -> None:
        written = self.part.dead_letter
        if written is None:
            raise ConfigurationError(f"{self.part.name} gives messages up: give it a dead_letter")
        original, failures = self._original(input_, row), self._failures
        times = {"first_us": failures.since_us, "last_us": self._now_us()}
        letter = letter_of(row[3], original, error, failures.count, **times)
        letters_at(self._layout, written)(letter)
        self._tallies.add(self.part.name, "dead_lettered")
        self._tallies.add(f"{LETTERS}{written}", "stored")

    def _original(self, input_: str, row: Row) -> bytes:
        """The payload as it came, before any stage: a replay sends it through them again."""
        stream = self._layout.input_of(_part_of(input_)).stream
        store = self._layout.places[stream.store].store()
        found = store.read(stream.name, row[0], 1, 1)
        return found.entries[0].payloads[0] if isinstance(found, Batch) else row[2]

    def _now_us(self) -> int:
        return round(self._environment.clock.now() * 1_000_000)


def _part_of(input_: str) -> str:
    """The part that an input belongs to; what is behind the @ tells lives of its stream apart."""
    return input_.rpartition("@")[0]


def _home(layout: SparkLayout, name: str) -> str:
    """The store that keeps the places of an end: that of the first input which feeds it."""
    return next(layout.home_of(one.part) for one in layout.inputs if name in one.targets)


def _raise_unless_done(name: str, transaction: Transaction) -> None:
    if transaction.done:
        return
    for outcome in transaction.outcomes:
        if isinstance(outcome, FencedOutcome):
            raise Fenced(f"{name} belongs to another process now")
        if isinstance(outcome, Unavailable):
            raise StoreUnavailable(f"{name}: {outcome.detail or 'no answer'}")
    raise ConfigurationError(f"{name}: the store refused: {transaction.outcomes}")
