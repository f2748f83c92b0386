"""`Checked`: a message queue that holds another one to the contract, at every call.

Beside the queue it keeps a ghost: what is in the queue if the contract was kept. Duties of the
caller are looked at before the inner call and raise `ContractViolation`; the inner queue is then
not called at all. What the queue owes is looked at after it, and a difference is `ContractBroken`,
an assertion about the implementation.

The invariants, which hold between any two calls:

====  ==============================================================================================
QI-1  in the snapshot, each message stands under its own number
QI-2  the snapshot holds exactly the members, each equal to what was handed in, byte by byte
QI-3  the snapshot is in increasing order, and begins with what ``pick_one`` gives
QI-4  no member is above ``high``, which is the greatest number ever accepted and never falls
QI-5  ``len`` and ``size_bytes`` are those of the snapshot, and within the bounds
QI-6  after `StoreUnavailable` the contents are those before the call or those after it, exactly
====  ==============================================================================================

Clauses about a single verb, which name that verb, are checked besides. The queue need not have been
built for this: anything with the interface can be checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeAlias, TypeVar, cast

from surepipe.errors import ConfigurationError, ContractBroken, ContractViolation, StoreUnavailable
from surepipe.pipes.message_queue.contract import (
    Enqueued,
    M,
    MessageForm,
    MessageQueue,
    RefusalReason,
    Run,
    broken_duty,
    require_count,
    require_number,
    require_run,
)
from surepipe.pipes.message_queue.queues import CHUNK_MAX, KeyedValues

__all__ = ["Checked", "Invariants"]


# The ghost state of a checked queue: what the contract says is in it, whatever the queue itself says.


Span: TypeAlias = tuple[tuple[M, ...], tuple[bytes, ...]]
"""A single message with its payload, or no message and the payloads of a run."""


class Ghost(Generic[M]):
    """Members as they were handed in, in spans: one per message, or one per run (at most 1,024
    messages).
    """

    __slots__ = ("_form", "_spans", "count", "high", "size_bytes")

    def __init__(self, form: MessageForm[M], messages: Iterable[M] = (), high: int = -1) -> None:
        self._form = form
        self._spans: KeyedValues[Span[M]] = KeyedValues()
        self.count = 0
        self.size_bytes = 0
        self.high = high
        for message in messages:
            self.add(form.number(message), message)

    def add(self, number: int, message: M) -> None:
        payload = self._form.payload(message)
        self._spans.put(number, ((message,), (payload,)))
        self.count += 1
        self.size_bytes += len(payload)
        self.high = max(self.high, number)

    def add_run(self, first: int, payloads: Sequence[bytes]) -> None:
        for begin in range(0, len(payloads), CHUNK_MAX):
            span = tuple(payloads[begin : begin + CHUNK_MAX])
            self._spans.put(first + begin, ((), span))
            self.size_bytes += sum(map(len, span))
        self.count += len(payloads)
        self.high = max(self.high, first + len(payloads) - 1)

    def remove_through(self, number: int) -> int:
        """Everything numbered up to ``number`` was deleted; how many that were."""
        spans = self._spans
        removed = whole = 0
        for place in range(spans.start, len(spans.keys)):
            first, (messages, payloads) = spans.keys[place], spans.values[place]
            gone = payloads[: max(number - first + 1, 0)]
            if not gone:
                break
            removed += len(gone)
            self.size_bytes -= sum(map(len, gone))
            if len(gone) < len(payloads):
                spans.keys[place] = first + len(gone)
                spans.values[place] = (messages, payloads[len(gone) :])
                break
            whole += 1
        spans.cut(whole)
        self.count -= removed
        return removed

    def holds(self, number: int) -> bool:
        """True when a member has this number."""
        spans = self._spans
        place = spans.place_of(number)
        return place >= spans.start and number - spans.keys[place] < len(spans.values[place][1])

    def first_held(self, first: int, last: int) -> int | None:
        """The least member's number in first..last, or None."""
        for run in self.runs(first - 1, 1):
            return run.first if run.first <= last else None
        return None

    def least(self) -> int:
        """The least member's number; there must be a member."""
        return self._spans.keys[self._spans.start]

    def member(self, number: int) -> M:
        """The member with this number; there must be one."""
        place = self._spans.place_of(number)
        messages, payloads = self._spans.values[place]
        if messages:
            return messages[0]
        build = self._form.builder("enqueue_run")
        return build(number, payloads[number - self._spans.keys[place]])

    def members(self, after: int, limit: int) -> list[M]:
        """At most ``limit`` members numbered above ``after``, in order."""
        members = self._members(after)
        return [message for _, (_, message) in zip(range(limit), members, strict=False)]

    def contents(self) -> Mapping[int, M]:
        """All members by number, in order."""
        return dict(self._members(-1))

    def runs(self, after: int, limit: int) -> list[Run]:
        """At most ``limit`` members numbered above ``after``, as runs that can't be made longer."""
        found: list[Run] = []
        for first, _, payloads in self._spans_above(after):
            if limit <= 0:
                break
            part = payloads[:limit]
            limit -= len(part)
            if found and found[-1].last + 1 == first:
                found[-1] = Run(found[-1].first, found[-1].payloads + part)
            else:
                found.append(Run(first, part))
        return found

    def _members(self, after: int) -> Iterator[tuple[int, M]]:
        for first, messages, payloads in self._spans_above(after):
            if messages:
                yield first, messages[0]
            else:
                build = self._form.builder("enqueue_run")
                for number, payload in enumerate(payloads, first):
                    yield number, build(number, payload)

    def _spans_above(self, after: int) -> Iterator[tuple[int, tuple[M, ...], tuple[bytes, ...]]]:
        spans = self._spans
        for place in range(max(spans.place_of(after), spans.start), len(spans.keys)):
            first, (messages, payloads) = spans.keys[place], spans.values[place]
            skip = max(after + 1 - first, 0)
            if skip < len(payloads):
                yield first + skip, messages, payloads[skip:]


# The watch over a checked queue: the ghost, what is in doubt, and the judgement after each call.
#
# `surepipe.pipes.message_queue.checked` names the clauses. Here they are decided.


R = TypeVar("R")

Invariants: TypeAlias = Literal["each", "sampled", "off"]

EACH_UP_TO = 256
SAMPLE_EVERY = 64
_SHOWN_MAX = 5


@dataclass(frozen=True, slots=True)
class Doubt(Generic[M]):
    """A call that raised `StoreUnavailable`.

    All of ``added`` may be in the queue, or a beginning of it, or none; what is numbered up to
    ``through`` may be gone, or not.
    """

    verb: str
    argument: object
    added: tuple[M, ...] = ()
    through: int = -1


class QueueWatch(Generic[M]):
    """What one `Checked` knows of its queue. The ghost changes only after the queue answered."""

    __slots__ = (
        "_doubt",
        "_form",
        "_invariants",
        "_on_broken",
        "_queue",
        "_until_look",
        "ghost",
        "picked",
        "unanswered",
        "unsettled",
    )

    def __init__(
        self,
        queue: MessageQueue[M],
        invariants: Invariants | None,
        on_broken: Callable[[ContractBroken], None] | None,
        *,
        adopting: bool = False,
    ) -> None:
        if invariants not in {None, "each", "sampled", "off"}:
            raise ConfigurationError(f"invariants={invariants!r}: say 'each', 'sampled' or 'off'")
        self._queue = queue
        self._form = queue.form
        self._invariants = invariants
        self._on_broken = on_broken
        self.ghost = Ghost(queue.form)
        self._doubt: Doubt[M] | None = None
        self.unsettled = adopting
        self.unanswered: dict[int, M] = {}
        self.picked: int | None = None
        self._until_look = 1

    # The caller's duties that depend on what is in the queue.

    def is_repeat(self, verb: str, number: int, message: M) -> bool:
        """True when an unanswered message comes again, false for a number not in use."""
        if not self.ghost.holds(number):
            return False
        if number in self.unanswered and self._same(self.unanswered[number], message):
            return True
        raise broken_duty(verb, number, "no member may have the number already")

    def repeats_in_run(self, first: int, payloads: Sequence[bytes]) -> list[bool]:
        """``is_repeat`` of each message of a run; empty when none of its numbers is in use."""
        if self.ghost.first_held(first, first + len(payloads) - 1) is None:
            return []
        build = self._form.builder("enqueue_run")
        return [
            self.is_repeat("enqueue_run", number, build(number, payload))
            for number, payload in enumerate(payloads, first)
        ]

    # The inner call, and what is known after it failed.

    def ask(self, verb: str, argument: object, act: Callable[[], R]) -> R:
        """Call a verb of the inner queue that changes nothing."""
        try:
            return act()
        except ContractViolation as blame:
            self.blamed(verb, argument, blame)
            raise

    def failed(self, error: StoreUnavailable | ContractViolation, doubt: Doubt[M]) -> None:
        """A verb that changes something raised: keep in mind what it may have done."""
        if isinstance(error, StoreUnavailable):
            self._doubt = doubt
            self.unsettled = True
        else:
            self.blamed(doubt.verb, doubt.argument, error)

    def blamed(self, verb: str, argument: object, blame: ContractViolation) -> None:
        """The queue found fault with a caller who had none."""
        clause = "the caller kept its duties, and the queue blames it"
        self.broken(clause, verb, argument, str(blame))

    def settle(self) -> None:
        """Find out which of the two possible contents there are, before anything else is done.

        Raises `StoreUnavailable` when the queue can't be looked at: both stay possible, nothing was
        called.
        """
        while self.unsettled:
            snapshot = self._queue.snapshot()
            doubt, self._doubt, self.unsettled = self._doubt, None, False
            if doubt is None:
                self.unanswered.clear()
                self.ghost = Ghost(self._form, snapshot.values(), self._queue.high)
            else:
                self._decide(doubt, snapshot)

    def _decide(self, doubt: Doubt[M], snapshot: Mapping[int, M]) -> None:
        """Take what the snapshot tells for true, if it is one of the possibilities."""
        self.picked = None
        if doubt.through >= 0 and self._difference(snapshot):
            self.delete(doubt.through)
        for message in doubt.added:
            number = self._form.number(message)
            if not self.ghost.holds(number):
                if number not in snapshot:
                    break
                self.ghost.add(number, message)
            self.unanswered[number] = message
        difference = self._difference(snapshot)
        if difference:
            clause = "QI-6 contents before or after the failed call"
            self.broken(clause, doubt.verb, doubt.argument, difference)

    # What the queue owes after a call.

    def check_answer(self, number: int, answer: Enqueued, repeated: bool) -> None:
        """An answer and its reason must be true of the queue's profile."""
        high = self.ghost.high
        reason = answer.reason
        if answer.ok is not (reason is None):
            self.broken("a refusal has a reason", "enqueue", number, repr(answer))
        elif repeated:
            if not answer:
                clause = "a repeat after StoreUnavailable of what was stored is accepted"
                self.broken(clause, "enqueue", number, f"refused: {reason}")
        elif answer:
            self.check_profile("enqueue", number)
        elif reason is RefusalReason.STALE and not (self._queue.increasing and number <= high):
            self.broken("STALE only at or below high", "enqueue", number, f"high is {high}")
        elif reason is RefusalReason.GAP and not (self._queue.dense and -1 < high < number - 1):
            self.broken("GAP only beyond high + 1", "enqueue", number, f"high is {high}")

    def check_profile(self, verb: str, number: int) -> None:
        """What was accepted must have been acceptable."""
        high = self.ghost.high
        if self._queue.increasing and number <= high:
            clause = "an increasing queue takes only numbers above high"
            self.broken(clause, verb, number, f"taken, and high is {high}")
        elif self._queue.dense and high >= 0 and number != high + 1:
            clause = "a dense queue takes only the next number"
            self.broken(clause, verb, number, f"taken, and high is {high}")

    def check_count(self, verb: str, argument: object, accepted: object, offered: int) -> bool:
        """True when this can be a number of messages accepted."""
        if type(accepted) is int and 0 <= accepted <= offered:
            return True
        clause = f"{verb} says how many it accepted"
        self.broken(clause, verb, argument, f"{offered} were offered, and it answered {accepted!r}")
        return False

    def add_accepted(
        self,
        verb: str,
        numbered: Sequence[tuple[int, M]],
        accepted: int,
        repeated: Sequence[bool],
    ) -> None:
        """The beginning of a batch was accepted; what was there already is not added again."""
        for place, (number, message) in enumerate(numbered):
            if repeated[place]:
                self.unanswered.pop(number)
                if place >= accepted:
                    clause = "a repeat after StoreUnavailable of what was stored is accepted"
                    self.broken(
                        clause, verb, number, f"{accepted} accepted, and this is not among them"
                    )
            elif place < accepted:
                self.check_profile(verb, number)
                self.ghost.add(number, message)
                self.picked = None

    def delete(self, number: int) -> int:
        """The queue deleted; how many members that must have been."""
        removed = self.ghost.remove_through(number)
        if removed:
            self.picked = None
        if self.unanswered:
            self.unanswered = {n: m for n, m in self.unanswered.items() if n > number}
        return removed

    def check_picked(self, message: M) -> None:
        """The picked message must be a member: the least where that is promised, or the same as before."""
        ghost = self.ghost
        number = self._number_in(message)
        if number is None or not ghost.holds(number):
            self.broken("pick_one gives a member", "pick_one", None, f"gave number {number}")
        elif not self._same(message, ghost.member(number)):
            self.broken("pick_one gives a member", "pick_one", None, f"gave {number}, altered")
        elif self._queue.picks_least and number != ghost.least():
            clause = "QI-3 pick_one gives the first of the snapshot"
            self.broken(clause, "pick_one", None, f"gave {number}, the least is {ghost.least()}")
        elif self.picked not in {None, number}:
            clause = "pick_one gives the same message until a change"
            self.broken(clause, "pick_one", None, f"gave {number}, and {self.picked} before")
        self.picked = number

    def check_view(self, verb: str, argument: object, answer: object, members: object) -> None:
        """A view must show the members."""
        if answer != members:
            self.broken(
                f"{verb} gives what the members are", verb, argument, "it gave something else"
            )
        self.look(verb, argument)

    def _number_in(self, message: M) -> int | None:
        try:
            return self._form.number_of("pick_one", message)
        except ContractViolation:
            return None

    # Invariants.

    def look(self, verb: str, argument: object) -> None:
        """Check the invariants that are due; a store that isn't there is looked at next time."""
        self._until_look -= 1
        if self._until_look > 0 and not self._looks_each_time():
            return
        if self._invariants == "off" or self.unsettled:
            return
        self._until_look = max(SAMPLE_EVERY, 4 * self.ghost.count)
        try:
            self.compare(self._queue.snapshot(), verb, argument)
            self.check_high(verb, argument)
            self.check_sums(verb, argument)
        except StoreUnavailable:
            self._until_look = 0

    def _looks_each_time(self) -> bool:
        if self._invariants is None:
            return self.ghost.count <= EACH_UP_TO
        return self._invariants == "each"

    def compare(self, snapshot: Mapping[int, M], verb: str, argument: object) -> None:
        """Compare a whole snapshot with the ghost."""
        numbers = list(snapshot)
        for key, number in zip(numbers, map(self._form.number, snapshot.values()), strict=True):
            if key != number:
                clause = "QI-1 each message stands under its number"
                self.broken(clause, verb, argument, f"{number} under {key}")
        if numbers != sorted(numbers):
            self.broken("QI-3 the snapshot is in order", verb, argument, f"it begins {numbers[:5]}")
        difference = self._difference(snapshot)
        if difference:
            self.broken("QI-2 the snapshot holds exactly the members", verb, argument, difference)
        if self.ghost.count and self._queue.picks_least and not self.unsettled:
            self.check_picked(self._queue.pick_one())

    def _difference(self, snapshot: Mapping[int, M]) -> str:
        """How a snapshot differs from the ghost, in numbers, never payloads; or nothing."""
        ghost = self.ghost.contents()
        altered: list[int] = []
        missing: list[int] = []
        for number, message in ghost.items():
            found = snapshot.get(number)
            if found is None:
                missing.append(number)
            elif found is not message and not self._same(found, message):
                altered.append(number)
        extra = len(snapshot) - len(ghost) + len(missing)
        too_many = [number for number in snapshot if number not in ghost] if extra else []
        parts = {"missing": missing, "too many": too_many, "altered": altered}
        return "; ".join(f"{name} {_some(numbers)}" for name, numbers in parts.items() if numbers)

    def _same(self, one: M, other: M) -> bool:
        return one == other and self._form.payload(one) == self._form.payload(other)

    def check_high(self, verb: str, argument: object) -> None:
        """The greatest number accepted is known exactly."""
        if self._queue.high != self.ghost.high:
            clause = "QI-4 high is the greatest number ever accepted"
            answer = f"it says {self._queue.high}, and it is {self.ghost.high}"
            self.broken(clause, verb, argument, answer)

    def check_sums(self, verb: str, argument: object) -> None:
        """Sums must be true, and within the bounds."""
        queue, ghost = self._queue, self.ghost
        sums = (len(queue), queue.size_bytes)
        if sums != (ghost.count, ghost.size_bytes):
            answer = f"it says {sums} messages and bytes, and has {(ghost.count, ghost.size_bytes)}"
            self.broken("QI-5 len and size_bytes are the sums", verb, argument, answer)
        for bound, value in ((queue.capacity, sums[0]), (queue.capacity_bytes, sums[1])):
            if bound is not None and value > bound:
                clause = "QI-5 len and size_bytes are within the bounds"
                self.broken(clause, verb, argument, f"{value} of {bound}")

    def broken(self, clause: str, verb: str, argument: object, difference: str) -> None:
        """Raise, or report once per call and start again from what the queue holds."""
        if self.unsettled:
            return
        call = f"{verb}()" if argument is None else f"{verb}({argument})"
        error = ContractBroken(f"{clause}: after {call} of {self._queue!r}: {difference}")
        if self._on_broken is None:
            raise error
        self._doubt, self.unsettled = None, True
        self._on_broken(error)


def _some(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:_SHOWN_MAX]))
    return shown if len(numbers) <= _SHOWN_MAX else f"{shown} and {len(numbers) - _SHOWN_MAX} more"


N = TypeVar("N")


class Checked(Generic[M]):
    """The queue given to it, with its contract checked; the interface is the same.

    ``invariants`` says when whole snapshots are compared: at ``"each"`` call, ``"sampled"`` (every
    64th call, and less often above 16 members, so that the cost of a call stays the same),
    or ``"off"``. Without it, each call while there are at most 256 members, sampled above. What a
    verb promises is always checked.

    ``on_broken`` is called with the `ContractBroken` instead of raising it, for production: the
    call then returns what the queue returned, and the ghost starts again from the queue's contents,
    so that one fault is reported once. Messages must compare equal by value.

    The queue must be new; `Checked.adopt` takes one that isn't. `ContractViolation` otherwise.
    """

    __slots__ = ("_form", "_queue", "_watch")

    def __init__(
        self,
        queue: MessageQueue[M],
        invariants: Invariants | None = None,
        on_broken: Callable[[ContractBroken], None] | None = None,
    ) -> None:
        if not queue.empty() or queue.high != -1:
            raise broken_duty("Checked", queue, "the queue must be new; take this one by adopt()")
        self._queue = queue
        self._form = queue.form
        self._watch = QueueWatch(queue, invariants, on_broken)

    @staticmethod
    def adopt(
        queue: MessageQueue[N],
        invariants: Invariants | None = None,
        on_broken: Callable[[ContractBroken], None] | None = None,
    ) -> Checked[N]:
        """Check a queue that has been used before, such as a stored one that was opened again."""
        checked = cast("Checked[N]", object.__new__(Checked))
        checked._queue = queue
        checked._form = queue.form
        checked._watch = QueueWatch(queue, invariants, on_broken, adopting=True)
        checked._watch.settle()
        return checked

    def __repr__(self) -> str:
        return f"Checked({self._queue!r})"

    # What the inner queue is.

    @property
    def queue(self) -> MessageQueue[M]:
        return self._queue

    @property
    def contents(self) -> Mapping[int, M]:
        """The ghost: what the contract says is in the queue, by number, in order."""
        return self._watch.ghost.contents()

    @property
    def form(self) -> MessageForm[M]:
        """How messages are read and made."""
        return self._form

    @property
    def picks_least(self) -> bool:
        return self._queue.picks_least

    @property
    def increasing(self) -> bool:
        return self._queue.increasing

    @property
    def dense(self) -> bool:
        return self._queue.dense

    @property
    def capacity(self) -> int | None:
        return self._queue.capacity

    @property
    def capacity_bytes(self) -> int | None:
        return self._queue.capacity_bytes

    # The four verbs.

    def enqueue(self, message: M) -> Enqueued:
        """``enqueue`` of the inner queue.

        After `StoreUnavailable`, the same message may be enqueued again: it must be stored once and
        accepted.
        """
        watch = self._watch
        number = self._form.number_of("enqueue", message)
        if watch.unsettled:
            watch.settle()
        stale = number <= watch.ghost.high
        repeated = stale and watch.is_repeat("enqueue", number, message)
        try:
            answer = self._queue.enqueue(message)
        except (StoreUnavailable, ContractViolation) as error:
            watch.failed(error, Doubt("enqueue", number, (message,)))
            raise
        watch.check_answer(number, answer, repeated)
        if repeated:
            watch.unanswered.pop(number)
        elif answer.ok:
            watch.ghost.add(number, message)
            watch.picked = None
        watch.look("enqueue", number)
        return answer

    def empty(self) -> bool:
        self._watch.settle()
        answer = self._watch.ask("empty", None, self._queue.empty)
        if answer is not (self._watch.ghost.count == 0):
            held = f"there are {self._watch.ghost.count} members, and it answered {answer!r}"
            self._watch.broken("empty is true exactly when there is no member", "empty", None, held)
        self._watch.look("empty", None)
        return answer

    def pick_one(self) -> M:
        self._watch.settle()
        if not self._watch.ghost.count:
            raise broken_duty("pick_one", self, "there must be a member")
        message = self._watch.ask("pick_one", None, self._queue.pick_one)
        self._watch.check_picked(message)
        self._watch.look("pick_one", None)
        return message

    def delete_all(self, number: int) -> int:
        require_number("delete_all", number)
        self._watch.settle()
        try:
            removed = self._queue.delete_all(number)
        except (StoreUnavailable, ContractViolation) as error:
            self._watch.failed(error, Doubt("delete_all", number, through=number))
            raise
        expected = self._watch.delete(number)
        if removed != expected:
            counts = f"{expected} members had such numbers, and it answered {removed!r}"
            self._watch.broken("delete_all says how many it removed", "delete_all", number, counts)
        self._watch.look("delete_all", number)
        return removed

    # Batches and runs.

    def enqueue_many(self, messages: Sequence[M]) -> int:
        """``enqueue_many`` of the inner queue; after `StoreUnavailable` it may be repeated."""
        number_of = self._form.number_of
        numbered = [(number_of("enqueue_many", message), message) for message in messages]
        if len(dict(numbered)) < len(numbered):
            raise broken_duty("enqueue_many", len(messages), "no number may come twice in a batch")
        self._watch.settle()
        repeated = [self._watch.is_repeat("enqueue_many", *each) for each in numbered]
        span = (numbered[0][0], numbered[-1][0]) if numbered else ()
        try:
            accepted = self._queue.enqueue_many(messages)
        except (StoreUnavailable, ContractViolation) as error:
            self._watch.failed(error, Doubt("enqueue_many", span, tuple(messages)))
            raise
        if self._watch.check_count("enqueue_many", span, accepted, len(messages)):
            self._watch.add_accepted("enqueue_many", numbered, accepted, repeated)
        self._watch.look("enqueue_many", span)
        return accepted

    def enqueue_run(self, first: int, payloads: Sequence[bytes]) -> int:
        """``enqueue_run`` of the inner queue; after `StoreUnavailable` it may be repeated."""
        require_run("enqueue_run", first, len(payloads))
        build = self._form.builder("enqueue_run")
        self._watch.settle()
        stale = first <= self._watch.ghost.high
        repeated = self._watch.repeats_in_run(first, payloads) if stale else []
        try:
            accepted = self._queue.enqueue_run(first, payloads)
        except (StoreUnavailable, ContractViolation) as error:
            offered = tuple(build(n, payload) for n, payload in enumerate(payloads, first))
            self._watch.failed(error, Doubt("enqueue_run", first, offered))
            raise
        if self._watch.check_count("enqueue_run", first, accepted, len(payloads)):
            if any(repeated):
                numbered = [(n, build(n, payload)) for n, payload in enumerate(payloads, first)]
                self._watch.add_accepted("enqueue_run", numbered, accepted, repeated)
            elif accepted:
                self._watch.check_profile("enqueue_run", first)
                self._watch.ghost.add_run(first, payloads[:accepted])
                self._watch.picked = None
        self._watch.look("enqueue_run", first)
        return accepted

    def pick_many(self, limit: int, after: int = -1) -> list[M]:
        require_count("pick_many", limit)
        require_number("pick_many", after, least=-1)
        self._watch.settle()
        answer = self._watch.ask("pick_many", after, lambda: self._queue.pick_many(limit, after))
        self._watch.check_view("pick_many", after, answer, self._watch.ghost.members(after, limit))
        return answer

    def pick_runs(self, limit: int, after: int = -1) -> list[Run]:
        require_count("pick_runs", limit)
        require_number("pick_runs", after, least=-1)
        self._watch.settle()
        answer = self._watch.ask("pick_runs", after, lambda: self._queue.pick_runs(limit, after))
        self._watch.check_view("pick_runs", after, answer, self._watch.ghost.runs(after, limit))
        return answer

    def slice_run(self, first: int, count: int) -> list[bytes]:
        require_number("slice_run", first)
        require_count("slice_run", count)
        self._watch.settle()
        runs = self._watch.ghost.runs(first - 1, count)
        members = list(runs[0].payloads) if runs and runs[0].first == first else []
        if len(members) < count:
            clause = f"there must be {count} members from here, and {first + len(members)} is none"
            raise broken_duty("slice_run", first, clause)
        answer = self._watch.ask("slice_run", first, lambda: self._queue.slice_run(first, count))
        self._watch.check_view("slice_run", first, answer, members)
        return answer

    # Views.

    def __len__(self) -> int:
        self._watch.settle()
        self._watch.check_sums("len", None)
        return len(self._queue)

    @property
    def size_bytes(self) -> int:
        self._watch.settle()
        self._watch.check_sums("size_bytes", None)
        return self._queue.size_bytes

    @property
    def high(self) -> int:
        self._watch.settle()
        self._watch.check_high("high", None)
        return self._queue.high

    def snapshot(self) -> Mapping[int, M]:
        self._watch.settle()
        snapshot = self._watch.ask("snapshot", None, self._queue.snapshot)
        self._watch.compare(snapshot, "snapshot", None)
        return snapshot
