"""Feeds: actors that move rows from a source, through the stages before the first pipe, into pipes.

A feed keeps, for each pipe, how far the pipe has accepted the source: in the transaction in which the journal
stores the messages, so that a restart neither loses nor repeats a row. Where that can't be, it is stored when the
messages are confirmed (a crash in between repeats some), and where nothing durable takes them, not at all.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import cast

from surepipe.actors.codecs import AutoCodec
from surepipe.actors.consuming.consumer import GiveUp, error_text, traceback_text
from surepipe.actors.ends.face import UntilText
from surepipe.actors.ends.intake import Mark, Until
from surepipe.actors.replaying import ReplayingFace
from surepipe.actors.runtime import Alarm, Running
from surepipe.actors.threads import ThreadRuntime
from surepipe.actors.tracing import FlowTrace
from surepipe.core.effects import Letter
from surepipe.core.timing import BackOff
from surepipe.errors import (
    ConfigurationError,
    MisuseError,
    PayloadTooLarge,
    StoreUnavailable,
    SurepipeError,
)
from surepipe.pipelines.assembly import (
    NOTHING,
    EndsByItself,
    Environment,
    ReadsRuns,
    RowRun,
    Serving,
    Source,
    SourceRow,
)
from surepipe.pipelines.models.pipes import PipePart
from surepipe.pipelines.run.books import BookPipe
from surepipe.pipelines.run.flow import FlowTurn, StageFlow, Step
from surepipe.pipelines.run.tallies import LetterBox, Tallies
from surepipe.pipelines.run.writers import StoreCursor
from surepipe.pipelines.stages import About

ROWS_MAX = 512
OPEN_MAX = 8
"""So many runs of rows are on their way into a pipe at once that says when it has them."""
IDLE = BackOff(1_000, 50_000)
"""The waits of a feed that finds nothing: short right behind a row, since the next one is often near."""
RETRY = BackOff(100_000, 30_000_000)


@dataclass(frozen=True, slots=True)
class FeedPlace:
    """How far a pipe has accepted a source: ``part`` of the ``of`` messages that came of row ``row``.

    ``before`` and ``after``: where the source goes on in front of that row, and behind it.
    """

    row: int = 0
    part: int = 0
    of: int = 0
    before: str = ""
    after: str = ""

    @property
    def text(self) -> str:
        return json.dumps([self.row, self.part, self.of, self.before, self.after])

    @classmethod
    def read(cls, text: str | None) -> FeedPlace:
        """From what was stored."""
        if text is None:
            return cls()
        row, part, of, before, after = cast(
            "tuple[int, int, int, str, str]", tuple(json.loads(text))
        )
        return cls(row, part, of, before, after)

    @property
    def restart(self) -> tuple[int, str]:
        """The last row that is whole, and where the source goes on behind it."""
        return (self.row, self.after) if self.part == self.of else (self.row - 1, self.before)

    def passed(self, row: int) -> int | None:
        """How many messages of this row were accepted; None: all of them."""
        if row < self.row or (row == self.row and self.part == self.of):
            return None
        return self.part if row == self.row else 0


@dataclass(slots=True)
class FeedTarget:
    """A pipe that a feed fills. ``cursor``: where its place is kept. ``beside``: in one step with its journal."""

    sender: ReplayingFace | BookPipe
    cursor: StoreCursor | None
    beside: bool
    place: FeedPlace = FeedPlace()
    _stored: FeedPlace = FeedPlace()
    _open: deque[tuple[Mark, FeedPlace]] = field(default_factory=deque[tuple[Mark, FeedPlace]])
    """What was handed over and is not known to be confirmed, and the place behind it."""

    def load(self) -> None:
        """Read the stored place, and take it over from an older process."""
        if self.cursor is not None:
            self.place = self._stored = FeedPlace.read(self.cursor.load())

    def accept(
        self,
        messages: Sequence[object],
        behind: Callable[[int], FeedPlace],
        texts: Sequence[bytes] | None = None,
        *,
        open_max: int = 0,
    ) -> None:
        """Hand messages over, and the places behind so many of them. Returns when the pipe has accepted them.
        Raises what ``send`` raises.

        What was accepted is not handed over again when the store does not take its place: the next call, with
        messages or without, stores that. ``texts``: the messages as JSON, where the source has that.
        ``open_max``: so many calls may return before what they handed over is confirmed; the place is stored of
        what is, so another run gives the rest again.
        """
        cursor = self.cursor
        if messages and self.beside and cursor is not None:
            self.sender.sender.send_beside(
                cursor.name, messages, lambda count: cursor.request(behind(count).text), texts
            )
            self.place = self._stored = behind(len(messages))
        elif messages:
            is_told = cursor is not None and self.sender.sender.confirms
            is_ahead = is_told and open_max > 0 and not isinstance(self.sender, BookPipe)
            until: UntilText = "confirmed" if is_told and not is_ahead else "accepted"
            if texts is None or not self.sender.sender.send_texts(messages, texts, Until(until)):
                self.sender.send_many(messages, until=until)
            self.place = behind(len(messages))
            if is_ahead and not isinstance(self.sender, BookPipe):
                self._open.append((self.sender.sender.intake.mark(), self.place))
        self.save(open_max)

    def save(self, open_max: int = 0) -> None:
        """Store the place of what is confirmed; what is not may be as much as ``open_max`` calls handed over."""
        place = None
        while self._open and (len(self._open) > open_max or self._open[0][0].resolved):
            mark, place = self._open.popleft()
            assert not isinstance(self.sender, BookPipe), "a book stores at once"
            self.sender.sender.intake.wait_for(mark, None)
        place = place if self._open else self.place
        if self.cursor is not None and place is not None and place != self._stored:
            self.cursor.save(place.text)
            self._stored = place

    def accept_each(self, messages: Sequence[tuple[object, FeedPlace]]) -> None:
        """The same for messages with their places."""
        self.accept([message for message, _ in messages], lambda count: messages[count - 1][1])

    def pass_by(self, place: FeedPlace) -> None:
        """Nothing up to this place is left for the pipe: store that. Raises as ``accept``."""
        if place.row >= self.place.row:
            self.place = place
        self.accept([], lambda _: place)


class _Through:
    """What came of the rows of a run behind the stages, for each of these pipes. ``rows`` and ``before``: how many
    there were before the run, and where the source goes on in front of it."""

    def __init__(self, run: RowRun, rows: int, before: str, pipes: Collection[str]) -> None:
        self.run = run
        self.taken = 0
        self.messages: dict[str, list[object]] = {name: [] for name in pipes}
        self.made: dict[str, list[tuple[int, int]]] = {}
        """Row and count, where not one message came of it."""
        self._rows, self._before = rows, before
        self._parts: dict[str, list[tuple[int, int, int]]] = {name: [] for name in pipes}
        """Of each message: which row of the run it came of, which part of that it is, and of how many."""

    def add(self, outputs: Mapping[str, Sequence[object]]) -> None:
        """What came of the next row."""
        self.taken += 1
        for name, all_of_pipe in self.messages.items():
            found = outputs.get(name, ())
            all_of_pipe.extend(found)
            of = len(found)
            self._parts[name] += [(self.taken, part, of) for part in range(1, of + 1)]
            if of != 1:
                self.made.setdefault(name, []).append((self._rows + self.taken, of))

    def before(self, row: int) -> str:
        """Where the source goes on in front of this row of the run."""
        return self.run.behind(row - 1) if row > 1 else self._before

    def behind(self, name: str) -> Callable[[int], FeedPlace]:
        """Tells the place behind so many messages of a pipe."""
        parts = self._parts[name]

        def place(count: int) -> FeedPlace:
            row, part, of = parts[count - 1]
            before, after = self.before(row), self.run.behind(row)
            return FeedPlace(self._rows + row, part, of, before, after)

        return place


class Feed:
    """An actor.

    With ``once`` it ends when the source has nothing now, and ``may_end`` says that nothing more will come; or,
    where the source ends by itself, when that does.
    """

    def __init__(
        self,
        name: str,
        source: Source,
        environment: Environment,
        targets: Mapping[str, FeedTarget],
        *,
        once: bool = False,
        changed: Callable[[], None],
        tallies: Tallies,
        trace: FlowTrace | None = None,
    ) -> None:
        self._trace = trace
        self.name = name
        self.part = name.partition("/")[2]
        self.is_source = ">" not in self.part
        self._tallies = tallies
        self.source = source
        self._in_runs = source if isinstance(source, ReadsRuns) else None
        self._ends_by_itself = isinstance(source, EndsByItself) and source.ends_by_itself
        self.rows = 0
        """The number of the last row that was taken; those of earlier runs count."""
        self.ended = False
        self.failure: BaseException | None = None
        """What ended it before its time."""
        self.is_stopping = False
        self.once = once
        self.may_end: Callable[[], bool] = _at_once
        self.may_rest: Callable[[], bool] = _at_once
        self.latest: Callable[[], object] = _nothing
        """The mark of what was last put where it reads, if somebody sets one."""
        self._caught_up_with: object = None
        self.flow: StageFlow | None = None
        self.letters: LetterBox | None = None
        self.unreadable: LetterBox | None = None
        """Takes rows that can't be read."""
        self.life = 0
        """Tells this run from others, where a source can't be read again."""
        self._environment = environment
        self._targets = targets
        self._changed = changed
        self._out: dict[str, list[object]] = {}
        self._rest: list[SourceRow] = []
        self._before = ""
        self._failures = self._idle = 0
        self._running: Running | None = None
        self._alarm: Alarm | None = None
        self._in_source = threading.Lock()
        self._is_closing = self._is_closed = False

    @property
    def pipes(self) -> Collection[str]:
        """The names of the pipes that it fills."""
        return self._targets.keys()

    @property
    def held(self) -> int:
        """Rows that were read, and that not all of these pipes have accepted."""
        return len(self._rest)

    @property
    def rests(self) -> bool:
        """True when all that was put where it reads is handed over, though more may come."""
        return self._caught_up_with is not None and self._caught_up_with is self.latest()

    def repeats_into(self, pipe: str) -> bool:
        """True when another run gives this pipe again what it has not confirmed."""
        target = self._targets[pipe]
        return target.cursor is None or (not target.beside and target.sender.sender.confirms)

    def collect(self, pipe: PipePart, taken_from: str) -> Step:
        """The step with which stages before the first pipe hand over to it."""
        del taken_from

        def gather(message: object, about: About, turn: FlowTurn) -> None:
            del about, turn
            self._out.setdefault(pipe.name, []).append(message)

        return gather

    def prepare(self) -> None:
        """Find where to go on, and open the source there. Raises what opening a source raises."""
        for target in self._targets.values():
            target.load()
        self.rows, self._before = min(target.place.restart for target in self._targets.values())
        self.source.begin(self._before)
        if self._trace is not None and self.is_source:
            self._trace.begun(self.part, self.rows)

    def start(self) -> None:
        runtime = self._environment.runtime
        self._running = runtime.start(self, f"{self.name}/feed")
        self._alarm = runtime.alarm(self._ring)
        self._ring()

    def _ring(self) -> None:
        if self._running is not None:
            self._running.tell("go on")

    def stop(self) -> None:
        """Take no more rows; what was handed over stays so."""
        self.is_stopping = True
        if isinstance(self.source, Serving):
            self.source.refuse()
        if self._alarm is not None:
            self._alarm.set(None)
        self._ring()

    def ends_within(self, timeout: float) -> bool:
        """End the actor; False when it is still at work after so many seconds."""
        self.stop()
        if self._running is None:
            return True
        self._running.stop()
        return self._running.join(timeout)

    def close(self, timeout: float) -> None:
        """End the actor and close the source."""
        self.stop()
        if self._alarm is not None:
            self._alarm.close()
        if self._running is not None:
            self._running.stop()
            self._running.join(timeout)
        self._is_closing = True
        self._close_source()

    def _close_source(self) -> None:
        """By whoever comes last: while a function of the user's waits, only the thread in it can close it."""
        if not self._in_source.acquire(blocking=False):
            return
        try:
            if not self._is_closed:
                self._is_closed = True
                self.source.close()
        finally:
            self._in_source.release()

    # As an actor.

    def receive(self, message: object) -> None:
        del message
        if not self.ended:
            self._go_on()
        if self._is_closing:
            self._close_source()

    def _go_on(self) -> None:
        try:
            with self._in_source:
                wait_us = self._take()
        except StoreUnavailable:
            wait_us = self._next_wait()
        except Exception as error:  # noqa: BLE001 - whoever runs the pipeline is told
            if self.is_stopping:
                self._end()
            else:
                self._fail(error)
            return
        if not self.ended:
            self._go_on_after(wait_us)

    def died(self, error: BaseException) -> None:
        """An actor that is killed takes the run with it: its place is stored."""
        self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self.failure = error  # before ``ended``: whoever sees the end sees why
        self.ended = True
        self._environment.stopped(error)

    def _go_on_after(self, wait_us: int) -> None:
        if wait_us and self._alarm is not None:
            self._alarm.set(self._environment.runtime.now() + wait_us)
        else:
            self._ring()

    def _take(self) -> int:
        """One round: how long to wait before the next."""
        rows = self._rest
        if not rows:
            if self.is_stopping:
                self._save_places()
                self._end()
                return 0
            latest = self.latest()  # these three are asked before reading, in this order
            has_all = self.may_rest()
            is_last = self.once and self.may_end()
            if (run := self._read_run()) is not None:
                self._idle = 0
                return self._move_run(run)
            found = self.source.read(ROWS_MAX)
            if found is None or (not found and is_last and not self._ends_by_itself):
                self._save_places()
                self._end()
                return 0
            if not found:
                self._save_places(OPEN_MAX)
                self._caught_up_with = latest if has_all else None
                self._idle += 1
                return IDLE.calm(self._idle)
            rows, self._idle = list(found), 0
        return self._move(rows)

    def _save_places(self, open_max: int = 0) -> None:
        for target in self._targets.values():
            target.save(open_max)

    def _end(self) -> None:
        self.ended = True
        self._changed()

    def _read_run(self) -> RowRun | None:
        """Rows of which no pipe has anything."""
        source = self._in_runs
        if source is None or (self.flow is not None and self.flow.size > 1):
            return None
        if any(target.place.passed(self.rows + 1) != 0 for target in self._targets.values()):
            return None
        return source.read_run(ROWS_MAX)

    def _move_run(self, run: RowRun) -> int:
        """As ``_move``, where nothing can come between: what fails is tried again row by row."""
        if self.flow is not None:
            return self._move_through(run, self.flow)
        first, before = self.rows, self._before
        messages = run.messages
        count = len(messages)

        def behind(count: int) -> FeedPlace:
            in_front = run.behind(count - 1) if count > 1 else before
            return FeedPlace(first + count, 1, 1, in_front, run.behind(count))

        try:
            if self._trace is not None:
                self._trace.made(self.name, 0, {})
            for target in self._targets.values():
                # Behind less than was asked for nothing more may come for a while.
                open_max = OPEN_MAX if count == ROWS_MAX else 0
                target.accept(messages, behind, run.texts, open_max=open_max)
        except (MisuseError, PayloadTooLarge):  # one of them; nothing was accepted
            return self._move(run.rows)
        except BaseException:
            self._rest = run.rows
            raise
        if self.is_source:
            self._tallies.add(self.part, "taken", count)
        self.rows, self._before, self._failures = first + count, run.behind(count), 0
        return 0

    def _move_through(self, run: RowRun, flow: StageFlow) -> int:
        """As ``_move``, for rows that were not tried before: a turn is made once for all of them, and a place only
        where it is stored."""
        through = _Through(run, self.rows, self._before, self._targets)
        try:
            failure = self._take_through(through, flow)
            is_full = failure is None and len(run.messages) == ROWS_MAX
            self._hand_on(through, OPEN_MAX if is_full else 0)
        except BaseException:
            self._rest = run.rows
            raise
        taken = through.taken
        if self.is_source:
            self._tallies.add(self.part, "taken", taken)
        self.rows, self._before = self.rows + taken, through.before(taken + 1)
        if failure is None:
            self._failures = 0
            return 0
        self._rest = run.rows[taken:]
        return self._retry(failure)

    def _take_through(self, through: _Through, flow: StageFlow) -> Exception | None:
        """The rows, one behind the other, up to one that is to be tried again: gives why."""
        turn: FlowTurn | None = None
        try:
            for number, message in enumerate(through.run.messages, self.rows + 1):
                self._out, about = {}, About(self.name, 0, number)
                if turn is None:
                    turn = flow.begin(about, None)
                if turn.done:
                    turn.done.clear()  # by another row
                try:
                    flow.entry(message, about, turn)
                except Exception as error:  # noqa: BLE001 - a stage of the user's
                    failed, turn = turn, None
                    flow.end(failed, through.taken)
                    try:
                        flow.failed(failed, about, error)
                    except GiveUp as end:
                        row = SourceRow(message, through.run.behind(through.taken + 1))
                        self._bury(row, number, end)
                        self._out = {}
                    else:
                        return error
                through.add(self._out)
        finally:
            if turn is not None:
                flow.end(turn, through.taken)
        return None

    def _hand_on(self, through: _Through, open_max: int) -> None:
        if self._trace is not None:
            self._trace.made(self.name, 0, through.made)
        for name, target in self._targets.items():
            messages, behind = through.messages[name], through.behind(name)
            try:
                target.accept(messages, behind, open_max=open_max)
            except (MisuseError, PayloadTooLarge):  # one of them; nothing was accepted
                places = map(behind, range(1, len(messages) + 1))
                self._hand_over_singly(target, list(zip(messages, places, strict=True)))

    def _move(self, rows: list[SourceRow]) -> int:
        """Hand rows over, as far as the stages let them through; a row that fails waits, with those behind it."""
        self._rest = rows
        ready: dict[str, list[tuple[object, FeedPlace]]] = {name: [] for name in self._targets}
        number, before, taken, failure = self.rows, self._before, 0, None
        made: dict[str, list[tuple[int, int]]] = {}
        passed: dict[str, FeedPlace] = {}
        for row in rows:
            try:
                outputs = self._outputs(row, number + 1)
            except Exception as error:  # noqa: BLE001 - a stage of the user's
                failure = error
                break
            if row.message is NOTHING:
                passed = dict.fromkeys(self._targets, FeedPlace(number, 0, 0, before, row.after))
                before, taken = row.after, taken + 1
                continue
            number += 1
            if self._trace is not None:
                for name in self._targets:
                    if (times := len(outputs.get(name, ()))) != 1:
                        made.setdefault(name, []).append((number, times))
            for name, messages in outputs.items():
                ready[name] += self._places(name, messages, number, before, row.after)
                passed.pop(name, None)
            if row.wrong:
                passed = dict.fromkeys(self._targets, FeedPlace(number, 0, 0, before, row.after))
            before, taken = row.after, taken + 1
        if self._trace is not None:
            self._trace.made(self.name, 0, made)
        self._hand_over(ready)
        for name, place in passed.items():
            self._targets[name].pass_by(place)
        self.source.taken(rows[:taken])
        if self.is_source:
            read = sum(row.message is not NOTHING for row in rows[:taken])
            self._tallies.add(self.part, "taken", read)
        self.rows, self._before, self._rest = number, before, rows[taken:]
        if failure is None:
            self._failures = 0
            return 0
        return self._retry(failure)

    def _hand_over(self, ready: Mapping[str, list[tuple[object, FeedPlace]]]) -> None:
        for name, messages in ready.items():
            try:
                self._targets[name].accept_each(messages)
            except (MisuseError, PayloadTooLarge):  # one of them; nothing was accepted
                self._hand_over_singly(self._targets[name], messages)

    def _hand_over_singly(
        self, target: FeedTarget, messages: Sequence[tuple[object, FeedPlace]]
    ) -> None:
        """Those before the wrong one go through. Raises ConfigurationError that says which one it is."""
        for message, place in messages:
            try:
                target.accept_each([(message, place)])
            except (MisuseError, PayloadTooLarge) as error:
                raise ConfigurationError(
                    f"source {self.part}, message {place.row}: {error}"
                ) from error

    def _places(
        self, pipe: str, messages: Sequence[object], row: int, before: str, after: str
    ) -> list[tuple[object, FeedPlace]]:
        """The messages that the pipe has not accepted in an earlier run, each with its place."""
        passed = self._targets[pipe].place.passed(row)
        if passed is None:
            return []
        of = len(messages)
        return [
            (message, FeedPlace(row, part, of, before, after))
            for part, message in enumerate(messages, 1)
            if part > passed
        ]

    def _outputs(self, row: SourceRow, number: int) -> Mapping[str, list[object]]:
        if row.message is NOTHING:
            return {}
        if row.wrong:
            self._put_aside(row, number)
            return {}
        if self.flow is None:
            return {name: [row.message] for name in self._targets}
        self._out = {}
        about = About(self.name, 0, number)
        try:
            self.flow.take([(row.message, about)], None)
        except GiveUp as error:
            self._bury(row, number, error)
            return {}
        return self._out

    def _bury(self, row: SourceRow, number: int, error: GiveUp) -> None:
        assert self.letters is not None, "a limit on retries has a place for letters"
        letter = self._letter(row, number, AutoCodec().encode(row.message), error_text(error))
        if isinstance(self._environment.runtime, ThreadRuntime):
            letter = replace(letter, traceback=traceback_text(error))
        self.letters(replace(letter, place=error.place))

    def _put_aside(self, row: SourceRow, number: int) -> None:
        """Store what can't be read as a letter, before anything behind it goes through."""
        if self.unreadable is None:
            raise ConfigurationError(row.wrong)
        assert isinstance(row.message, bytes), "a row that can't be read is bytes"
        self.unreadable(self._letter(row, number, row.message, ("UnreadableRow", row.wrong)))
        self._tallies.add(self.part, "dead_lettered")

    def _letter(
        self, row: SourceRow, number: int, payload: bytes, error: tuple[str, str]
    ) -> Letter:
        """A letter of this row, which is another one than that of any other row.

        1. The letter is stored, and the process is killed before the place behind the row is.
        2. The next run reads the row again, and stores its letter again.
        3. The letter is named by the row's place and content, so the second one changes nothing. Where a source
        can't be read again there is no second one, and another run has other rows under the same numbers: there
        the letter is named by the run, too.
        """
        name = f"{row.after} {blake2b(payload, digest_size=8).hexdigest()}"
        now_us = round(self._environment.clock.now() * 1_000_000)
        return Letter(*(self.name, 0, self.life, number, payload, 1, now_us, now_us), *error, name)

    def _retry(self, failure: Exception) -> int:
        if isinstance(failure, SurepipeError) and not isinstance(failure, StoreUnavailable):
            raise failure
        return self._next_wait()

    def _next_wait(self) -> int:
        self._failures += 1
        return RETRY.calm(self._failures)


def _at_once() -> bool:
    return True


def _nothing() -> object:
    return None
