"""What happens to a message behind a pipe: stages, as far as the next pipes and the ends.

A flow is a tree of steps, made once from the plan. A *turn* is one attempt at one message, or at a few where a
stage makes batches. What fails ends the turn; what had been done in it is taken back where there is a transaction,
and remembered elsewhere, so that the next turn passes over it.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from contextvars import copy_context
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import TypeAlias, cast

from surepipe.actors.consuming.coroutines import SETTLED, HandlerKind, keep_settled, kind_of
from surepipe.core.store_requests import Committed, Failed, Stored, Transaction, require_open
from surepipe.errors import MisuseError, PayloadTooLarge
from surepipe.pipelines.assembly import Environment
from surepipe.pipelines.calling import (
    Unwritable,
    WrongAnswer,
    entry_of,
    failing_only,
    require_answer,
)
from surepipe.pipelines.links import Node
from surepipe.pipelines.models.pipes import PipePart
from surepipe.pipelines.models.stages import PythonSink, SinkBase, StagePart, Trying
from surepipe.pipelines.plan import Plan
from surepipe.pipelines.run.tallies import Identity, Tallies, Trial, Trials
from surepipe.pipelines.run.writers import Given, SharedSink
from surepipe.pipelines.stages import About, Context, StageCall
from surepipe.queues.book import Done, Later, Rejected, TooHeavy

logger = logging.getLogger("surepipe")
_NEITHER_RESULT_NOR_FAILURE = (Later, Rejected, TooHeavy)
PARTS_MAX = 1 << 20
"""Messages that one message may become at one stage."""


class OutcomeGiven(Exception):
    """A stage has said what is to become of its message, which is no failure: the turn ends here."""

    def __init__(self, outcome: Later | Rejected | TooHeavy) -> None:
        super().__init__(f"a stage gave {outcome}: only a message of a book can be {outcome}")
        self.outcome = outcome


@dataclass(slots=True)
class _Later:
    """A message for a sink that seals it when the turn is over. ``failed`` notes whose failure it is otherwise."""

    sink: SharedSink
    given: Given
    failed: Callable[[Exception, FlowTurn], None]
    taken: tuple[str, str]


@dataclass(slots=True)
class FlowTurn:
    """One attempt at so many messages, the first of this identity. ``failed_at``: the part that a failure came
    from. ``added``: the parts that had the transaction, and the places of what they added to it.
    """

    identity: Identity
    size: int
    transaction: Transaction | None
    trial: Trial | None
    added: list[tuple[Trying, range]] = field(default_factory=list[tuple[Trying, range]])
    done: set[Hashable] = field(default_factory=set[Hashable])
    failed_at: Trying | None = None
    waiting: dict[str, list[tuple[object, About]]] = field(
        default_factory=dict[str, list[tuple[object, About]]]
    )
    is_plain: bool = False
    """Nothing of it failed before, and functions may be entered directly: see ``Environment.calls_plainly``."""
    counted: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    """By part and what is counted; it is told when the turn is over."""
    came: dict[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])
    """How many messages came to an end of the flow, by its name, of the message with this seq. For an audit."""
    later: list[_Later] | None = None
    """What is to be given to sinks once the turn is over; None where each is given and sealed at once."""
    branches: list[tuple[Hashable, slice]] = field(default_factory=list[tuple[Hashable, slice]])
    """Those of which all that came is in ``later``, and where."""

    @property
    def in_later(self) -> int:
        """How much is to be given when it is over."""
        return 0 if self.later is None else len(self.later)

    def attempt_at(self, part: str) -> int:
        """Which attempt this is at a part."""
        return 1 if self.trial is None else self.trial.failures.get(part, 0) + 1

    def count(self, one: tuple[str, str]) -> None:
        counted = self.counted
        counted[one] = counted.get(one, 0) + 1

    def had_transaction(self, part: Trying, start: int) -> None:
        """A part had the transaction, and was the first to add something behind ``start``."""
        self.added.append((part, range(start, _added_to(self.transaction))))

    def refused_at(self, outcomes: Sequence[object]) -> Trying | None:
        """The part whose writes were refused. Where all are refused for what is no request, it is the first that
        had the transaction."""
        refused = [not isinstance(outcome, Stored | Committed) for outcome in outcomes]
        for part, places in self.added:
            if any(refused[place] for place in places) or isinstance(outcomes[-1], Failed):
                return part
        return None

    def has_passed(self, branch: Hashable) -> bool:
        """True when this branch has the message from an earlier turn."""
        return self.trial is not None and branch in self.trial.done


Step: TypeAlias = Callable[[object, About, FlowTurn], None]
Call: TypeAlias = Callable[[object, About, FlowTurn], object]
OnceStep: TypeAlias = Callable[[Hashable, object, About, FlowTurn], None]
"""The same, told which branch of the turn it is."""
Forward: TypeAlias = Callable[[PipePart, str], Step]
"""Makes the step that hands a message over to a pipe, from the part of this name."""


class StageFlow:
    """Everything behind one pipe (or source), ready to take messages."""

    def __init__(
        self,
        plan: Plan,
        start: str,
        environment: Environment,
        *,
        forward: Forward,
        sinks: Mapping[str, SharedSink],
        tallies: Tallies,
        at_once: Container[str] = (),
        counts: bool = False,
    ) -> None:
        """``at_once``: the sinks that get each message by itself, sealed. ``counts``: somebody wants to know how
        many messages come to each end of one that is taken."""
        self._plan = plan
        self._start = start
        self._environment = environment
        self._forward = forward
        self._sinks = sinks
        self._tallies = tallies
        self._at_once = at_once
        reached = {part.name for part in plan.reach(start)}
        self.ends: Sequence[str] = [
            part.name
            for part in plan.reach(start)
            if counts and isinstance(part, PipePart | SinkBase)
        ]
        self._sealing = [
            shared.sink for name, shared in sinks.items() if name in reached and name not in at_once
        ]
        self._batches: list[tuple[StagePart, Step]] = []
        self.trials = Trials()
        self.awaits = False
        """True when one of its functions is a coroutine function."""
        self.lends = False
        """True when one of its functions may add to the transaction that its message is in."""
        self.entry = _in_own_context(self._takers_of(start))

    @property
    def size(self) -> int:
        """How many messages a turn may take."""
        return max((stage.batch.max for stage, _ in self._batches if stage.batch), default=1)

    def take(
        self,
        messages: Sequence[tuple[object, About]],
        transaction: Transaction | None,
        *,
        defers: bool = False,
    ) -> FlowTurn:
        """One turn. Raises what failed, or GiveUp when that was the last attempt.

        ``defers``: what it has for sinks that seal groups is left to ``give``, and then to ``sealed``.
        """
        identity = identity_of(messages[0][1])
        trial = self.trials.of(identity)
        is_plain = trial is None and self._environment.calls_plainly()
        turn = FlowTurn(identity, len(messages), transaction, trial, is_plain=is_plain)
        if defers:
            turn.later = []
        try:
            for message, about in messages:
                self.entry(message, about, turn)
            for stage, following in reversed(self._batches):
                copy_context().run(self._give_batches, stage, following, turn)
            assert not turn.waiting, (
                f"{', '.join(turn.waiting)} still collects at the end of a turn"
            )
        except Exception as error:
            if len(messages) > 1:  # nobody knows which: the first is tried alone, then the next few
                self.trials.keep(identity, turn.trial or Trial())
            else:
                self._note(identity, turn, error)
            raise
        finally:
            self._tallies.add_all(turn.counted)
        if not turn.later:
            self.trials.passed(identity)
        return turn

    # What a turn has left for sinks that seal groups: whoever took it need not wait for the disk.

    @staticmethod
    def give(turn: FlowTurn, known: Callable[[], object]) -> None:
        """Give the sinks what the turn has for them. When what came of all of it is known that is called, by
        whoever sealed the last of it, and perhaps before this returns."""
        by_sink: dict[SharedSink, list[Given]] = {}
        for later in turn.later or ():
            by_sink.setdefault(later.sink, []).append(later.given)
        then = known if turn.in_later == 1 else _once_all(turn.in_later, known)
        for given in by_sink.values():
            for one in given:
                one.then = then
        for sink, given in by_sink.items():
            sink.give(given)

    def sealed(self, turn: FlowTurn) -> None:
        """All that it gave is sealed, or failed. Raises what failed, or GiveUp when that was the last attempt."""
        later = turn.later or []
        for one in later:
            if one.given.failure is None:
                turn.count(one.taken)
        failed = next((one for one in later if one.given.failure is not None), None)
        if failed is None:
            self._tallies.add_all(turn.counted)
            self.trials.passed(turn.identity)
            return
        for branch, given in turn.branches:
            if all(one.given.failure is None for one in later[given]):
                turn.done.add(branch)
        self._tallies.add_all(turn.counted)
        error = failed.given.failure
        assert error is not None
        if isinstance(error, Exception):
            failed.failed(error, turn)
            self._note(turn.identity, turn, error)
        raise error

    # The same for messages one behind the other, each by itself, none of which failed before: what is made for a
    # turn is made once for all of them.

    def begin(self, about: About, transaction: Transaction | None) -> FlowTurn:
        """A turn whose first message this is, to be given to ``entry``. Only where stages make no batches."""
        assert not self._batches, "batches are collected from all messages of a turn"
        is_plain = self._environment.calls_plainly()
        return FlowTurn(identity_of(about), 0, transaction, None, is_plain=is_plain)

    def failed(self, turn: FlowTurn, about: About, error: BaseException) -> None:
        """The turn has ended at this message. Raises GiveUp when that was the last attempt at it."""
        if isinstance(error, Exception):
            self._note(identity_of(about), turn, error)

    def end(self, turn: FlowTurn, size: int) -> None:
        """So many messages of the turn went through."""
        turn.size = size
        self._tallies.add_all(turn.counted)

    def made(self, turn: FlowTurn, abouts: Iterable[About]) -> Iterator[tuple[str, int, int]]:
        """End, seq, and how many messages came there of that one, where it was not one; -1 where nobody knows,
        because an earlier attempt had come a part of the way. For messages of a turn that went through."""
        is_partly_done = turn.trial is not None and bool(turn.trial.done)
        for about in abouts if self.ends else ():
            for end in self.ends:
                times = -1 if is_partly_done else turn.came.get((end, about.seq), 0)
                if times != 1:
                    yield end, about.seq, times

    def come_again(self, turns: Iterable[FlowTurn]) -> None:
        """Their transaction did nothing: what is known of their messages is as it was before."""
        for turn in turns:
            if turn.trial is not None:
                self.trials.keep(turn.identity, turn.trial)

    def refused(
        self, turns: Sequence[FlowTurn], transaction: Transaction, error: Exception
    ) -> None:
        """The store has refused the transaction of these turns. Raises GiveUp when a part is to blame for the last
        time; where several messages were in it, the first is tried alone."""
        self.come_again(turns)
        first, trial = turns[0], turns[0].trial or Trial()
        is_one = len(turns) == 1 and first.size == 1
        part = first.refused_at(transaction.outcomes) if is_one else None
        if part is not None:
            self._tallies.add(part.name, "failed")
            self.trials.failed(first.identity, trial, part, error)
        elif not is_one:
            self.trials.keep(first.identity, trial)

    def has_failed(self, about: About) -> bool:
        """True when this message failed before: it is tried by itself then."""
        return self.trials.of(identity_of(about)) is not None

    def _note(self, identity: Identity, turn: FlowTurn, error: Exception) -> None:
        trial = turn.trial or Trial()
        if turn.transaction is None:  # else all of it was taken back
            trial.done |= turn.done
        if turn.failed_at is None:
            self.trials.keep(identity, trial)
        else:
            self.trials.failed(identity, trial, turn.failed_at, error)

    # Steps.

    def _takers_of(self, name: str) -> Step:
        takers = self._plan.takers(name)
        if len(takers) == 1:
            return self._behind(takers[0], name)

        each = [
            (taker.name, self._once(_with_its_own(taker, self._behind(taker, name))))
            for taker in takers
        ]

        def give_each(message: object, about: About, turn: FlowTurn) -> None:
            for taker, step in each:
                step((name, taker, about), message, about, turn)

        return give_each

    def _once(self, step: Step) -> OnceStep:
        """The same step for a branch of a turn: one that has the message already is passed over."""

        def run(branch: Hashable, message: object, about: About, turn: FlowTurn) -> None:
            if turn.transaction is not None:  # nothing of a turn that failed is left to pass over
                step(message, about, turn)
                return
            if turn.has_passed(branch):
                return
            held_back, start = self._held_back(turn), turn.in_later
            step(message, about, turn)
            if self._held_back(turn) != held_back:  # a later failure takes it back
                return
            if turn.in_later == start:
                turn.done.add(branch)
            else:
                turn.branches.append((branch, slice(start, turn.in_later)))

        return run

    def _held_back(self, turn: FlowTurn) -> list[int]:
        """How much waits in sinks for their seal, and in stages for their batch: it is gone when the turn fails.

        A branch that ends in a batch has only been collected; passed over in the next turn, its message would be
        in no batch at all, and lost.
        """
        waiting = sum(map(len, turn.waiting.values()))
        return [waiting, *(sink.mark() for sink in self._sealing)]

    def _behind(self, part: Node, name: str) -> Step:
        """The step into a part, from the part of this name.

        1. A message goes two ways, and what came of it on either comes to one sink. 2. That knows each by its
        identity. 3. Were it the same, the second would look like the first once more, and never be written.
        """
        step = self._step(part, name)
        if not is_met_twice(self._plan, self._start, part):
            return step

        def run(message: object, about: About, turn: FlowTurn) -> None:
            step(message, on_branch(about, name), turn)

        return run

    def _step(self, part: Node, name: str) -> Step:
        if isinstance(part, StagePart):
            return self._stage(part)
        if isinstance(part, PipePart):
            step = self._handed_over(part, name)
        else:
            assert isinstance(part, SinkBase)
            step = self._guarded(part, self._into(part), self._plan.part(name))
        if not self.ends:
            return step

        def count(message: object, about: About, turn: FlowTurn) -> None:
            step(message, about, turn)
            end = (part.name, about.seq)
            turn.came[end] = turn.came.get(end, 0) + 1

        return count

    def _handed_over(self, part: PipePart, name: str) -> Step:
        """Into the next pipe. What that can't take is the failure of the stage that gave it."""
        step, giver = self._forward(part, name), self._plan.part(name)
        if not isinstance(giver, StagePart):
            return step

        def hand(message: object, about: About, turn: FlowTurn) -> None:
            try:
                step(message, about, turn)
            except (MisuseError, PayloadTooLarge):
                turn.failed_at = giver
                raise

        return hand

    def _into(self, part: SinkBase) -> Step:
        shared = self._sinks[part.name]
        if isinstance(part, PythonSink):
            function = self._environment.function(part.call)
            called = function.__call__ if inspect.isclass(function) else function
            self.awaits |= kind_of(called) is HandlerKind.COROUTINE
        if part.name in self._at_once:
            return lambda message, about, turn: shared.at_once(
                message, _counted(about, turn.attempt_at(part.name))
            )
        sink = shared.sink

        take = sink.put

        def put(message: object, about: About, turn: FlowTurn) -> None:
            if turn.trial is not None:
                about = _counted(about, turn.attempt_at(part.name))
            take(message, about, turn.transaction)

        self.lends |= isinstance(part, PythonSink)

        def call(message: object, about: About, turn: FlowTurn) -> None:
            start = _added_to(turn.transaction)
            put(message, about, turn)
            if turn.transaction is not None:
                require_open(turn.transaction)
            turn.had_transaction(part, start)

        return call if isinstance(part, PythonSink) else put

    def _guarded(self, part: SinkBase, step: Step, giver: Node) -> Step:
        """Into a sink. What that can't write is the failure of the stage that gave it, unless the sink counts."""
        tallies = self._tallies
        maker = giver if isinstance(giver, StagePart) and part.retries is None else part
        is_told, taken = False, (part.name, "taken")
        shared = self._sinks[part.name]
        may_wait = part.name in self._at_once and shared.groups

        def failed(error: Exception, turn: FlowTurn) -> None:
            nonlocal is_told
            if isinstance(error, Unwritable) and not is_told:
                is_told = True
                logger.warning("sink %s can't write what %s gave: %s", part.name, giver.name, error)
            turn.failed_at = maker if isinstance(error, Unwritable) else part
            tallies.add(part.name, "failed")

        def run(message: object, about: About, turn: FlowTurn) -> None:
            if may_wait and turn.later is not None:
                given = Given(message, _counted(about, turn.attempt_at(part.name)))
                turn.later.append(_Later(shared, given, failed, taken))
                return
            try:
                step(message, about, turn)
            except Exception as error:
                failed(error, turn)
                raise
            counted = turn.counted
            counted[taken] = counted.get(taken, 0) + 1

        return run

    def _stage(self, part: StagePart) -> Step:
        following = self._takers_of(part.name) if self._plan.takers(part.name) else _nowhere
        if part.key_by is not None:
            return following
        if part.batch is not None:
            # What is behind is here already: a batch of what came of batches is given after these.
            if all(part is not known for known, _ in self._batches):
                self._batches.append((part, following))
            return _collecting(part.name)
        call = self._caller(part)
        match part.kind:
            case "filter":
                return _filter(call, following, self._left_out(part))
            case "flat-map":
                return _flat(part, call, self._once(following))
            case _:
                return _single(call, following, self._left_out(part), all_=part.kind != "call")

    def _left_out(self, part: StagePart) -> tuple[str, str] | None:
        """What is counted of a message that goes no further here, though parts follow."""
        return (part.name, "left_out") if self._plan.takers(part.name) else None

    def _caller(self, part: StagePart) -> Call:
        """A call of the part's function, which says so when it fails."""
        does, is_flat = part.does, part.kind == "flat-map"
        entry = entry_of(
            f"stage {part.name}",
            does,
            self._environment.function(does),
            may_yield=is_flat,
            takes_batches=_takes_batches(self._plan, part),
        )
        function, asks, awaits = entry.function, entry.asks, entry.awaits
        self.awaits |= awaits
        environment, tallies, name = self._environment, self._tallies, part.name
        what, is_told = f"stage {name}", False
        start_part = self._plan.part(self._start)
        is_of_book = isinstance(start_part, PipePart) and start_part.book is not None
        passed = (name, "passed")
        self.lends |= asks

        def failed(error: Exception, turn: FlowTurn) -> None:
            nonlocal is_told
            if isinstance(error, WrongAnswer) and not is_told:
                is_told = True
                logger.warning("%s", error)
            turn.failed_at = part
            tallies.add(name, "failed")

        def call_as_asked(message: object, about: About, turn: FlowTurn) -> object:
            attempt = turn.attempt_at(name)
            context = (
                Context(about, name, attempt, environment.clock, turn.transaction) if asks else None
            )
            start = _added_to(turn.transaction) if asks else 0
            one = StageCall(function, context, part.time_limit_s, about, attempt, awaits)
            try:
                result = environment.call(
                    name, one.with_all_it_gives() if is_flat else one, message
                )
                if is_flat:
                    result = _results(part, result, environment)
                else:
                    require_answer(what, does, result)
                if turn.transaction is not None and asks:
                    require_open(turn.transaction)
            except Exception as error:
                failed(error, turn)
                raise
            finally:
                if context is not None:
                    if context.has_lent:
                        turn.had_transaction(part, start)
                    context.close()
            if is_of_book and isinstance(result, _NEITHER_RESULT_NOR_FAILURE):
                raise OutcomeGiven(result)
            turn.count(passed)
            return None if is_of_book and isinstance(result, Done) else result

        is_special = asks or awaits or is_of_book or part.time_limit_s is not None
        return (
            call_as_asked
            if is_special
            else self._plain_caller(part, function, call_as_asked, failed)
        )

    def _plain_caller(
        self,
        part: StagePart,
        function: Callable[..., object],
        call_as_asked: Call,
        failed: Callable[[Exception, FlowTurn], object],
    ) -> Call:
        """The same call for first attempts, where nothing need be between it and the function: of messages that
        are many, that is most of what they cost."""
        does, is_flat, name = part.does, part.kind == "flat-map", part.name
        environment, what, passed = self._environment, f"stage {part.name}", (part.name, "passed")

        def looked_at(given: object, about: About, message: object) -> object:
            """What a function gave that may be to be awaited, or be nothing that a stage may give."""

            def give(_: object) -> object:
                return given

            one = StageCall(give, None, None, about)
            result = environment.call(name, one.with_all_it_gives() if is_flat else one, message)
            if not is_flat:
                require_answer(what, does, result)
                keep_settled(given, result)
            return result

        def call_plainly(message: object, about: About, turn: FlowTurn) -> object:
            if not turn.is_plain:
                return call_as_asked(message, about, turn)
            try:
                result = function(message)
                kind: object = type(result)
                if kind not in SETTLED and not (is_flat and kind is list):
                    result = looked_at(result, about, message)
                if is_flat:
                    result = _results(part, result, environment)
            except BaseException as error:  # noqa: BLE001 - raised as what it is taken for
                try:
                    with failing_only(name):
                        raise error
                except Exception as failure:
                    failed(failure, turn)
                    raise
            counted = turn.counted
            counted[passed] = counted.get(passed, 0) + 1
            return result

        return call_plainly

    @staticmethod
    def _give_batches(stage: StagePart, following: Step, turn: FlowTurn) -> None:
        assert stage.batch is not None
        waiting = turn.waiting.pop(stage.name, [])
        for start in range(0, len(waiting), stage.batch.max):
            piece = waiting[start : start + stage.batch.max]
            company = tuple(about for _, about in piece)
            of_batch = replace(company[0], company=company)
            following([message for message, _ in piece], of_batch, turn)


def _added_to(transaction: Transaction | None) -> int:
    return 0 if transaction is None else len(transaction.requests)


def is_met_twice(plan: Plan, start: str, part: Node) -> bool:
    """Whether what came of one message behind ``start`` reaches a part on several ways. A pipe numbers anew."""
    if isinstance(part, PipePart):
        return False
    behind = {one.name for one in plan.reach(start) if not isinstance(one, PipePart)}
    return sum(name == start or name in behind for name in plan.feeders(part.name)) > 1


def on_branch(about: About, giver: str) -> About:
    """The same, come by way of this part."""
    return replace(about, branch=f"{about.branch}+{giver}")


def identity_of(about: About) -> Identity:
    """The message itself, whatever came of it."""
    return about.producer, about.epoch, about.seq


def _takes_batches(plan: Plan, part: StagePart) -> bool:
    """True when what comes to a stage are the lists of a batch."""
    feeders = [plan.part(name) for name in plan.feeders(part.name)]
    return any(
        isinstance(one, StagePart)
        and (
            one.batch is not None
            or (one.kind in ("filter", "key-by") and _takes_batches(plan, one))
        )
        for one in feeders
    )


def _once_all(count: int, known: Callable[[], object]) -> Callable[[], object]:
    """To be called so many times, on whatever threads: the last call does it."""
    left = iter(range(count - 1, -1, -1))  # the interpreter takes one step of it at a time

    def one() -> None:
        if not next(left):
            known()

    return one


def _counted(about: About, attempt: int) -> About:
    return about if attempt == 1 else replace(about, attempt=attempt)


def _in_own_context(step: Step) -> Step:
    """What a stage sets in a context variable is seen behind it, and by no other message."""

    def run(message: object, about: About, turn: FlowTurn) -> None:
        copy_context().run(step, message, about, turn)

    return run


def _with_its_own(taker: Node, step: Step) -> Step:
    """1. A stage changes the message that it is given. 2. What stands beside it is given the same message. So each
    function that stands beside others has a copy."""
    if not isinstance(taker, StagePart | PythonSink):
        return step

    def run(message: object, about: About, turn: FlowTurn) -> None:
        step(deepcopy(message), about, turn)

    return run


def _nowhere(message: object, about: About, turn: FlowTurn) -> None:
    """The end of a way: a stage whose effect is all."""
    del message, about, turn


def _collecting(name: str) -> Step:
    def collect(message: object, about: About, turn: FlowTurn) -> None:
        turn.waiting.setdefault(name, []).append((message, about))

    return collect


def _single(
    call: Call,
    following: Step,
    left_out: tuple[str, str] | None,
    *,
    all_: bool,
) -> Step:
    """``left_out``: counted of None, which goes no further, unless ``all_`` do."""

    def run(message: object, about: About, turn: FlowTurn) -> None:
        result = call(message, about, turn)
        if result is not None or all_:
            following(result, about, turn)
        elif left_out is not None:
            turn.count(left_out)

    return run


def _filter(
    call: Call,
    following: Step,
    left_out: tuple[str, str] | None,
) -> Step:
    def run(message: object, about: About, turn: FlowTurn) -> None:
        if call(message, about, turn):
            following(message, about, turn)
        elif left_out is not None:
            turn.count(left_out)

    return run


def _flat(part: StagePart, call: Call, once: OnceStep) -> Step:
    """``once``: the step behind it, which passes over what an earlier turn has done."""

    def run(message: object, about: About, turn: FlowTurn) -> None:
        given = cast("list[object]", call(message, about, turn))
        first = about.part * PARTS_MAX + 1
        pipe, epoch, seq, producer = about.pipe, about.epoch, about.seq, about.producer
        for number, result in enumerate(given, first):
            one = About(pipe, epoch, seq, producer, number, about.branch, about.attempt)
            once((part.name, one), result, one, turn)

    return run


def _results(part: StagePart, given: object, environment: Environment) -> list[object]:
    """What a flat-map gives, all of it before any goes on: a generator may fail in the middle."""
    if given is None:
        return []
    kind = type(given).__name__
    if isinstance(given, str | bytes | dict) or not isinstance(given, Iterable):
        raise TypeError(f"{part.does} gave {kind}: a flat-map gives a list")
    with failing_only(part.name):  # an iterable of the user's runs here
        results = cast("Iterable[object]", given)
        found = environment.blocking(lambda: list(results))
    require_answer(f"stage {part.name}", part.does, found)
    return found
