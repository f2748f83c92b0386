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

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar, cast

from surepipe.errors import ContractBroken, ContractViolation, StoreUnavailable
from surepipe.pipes.message_queue.contract import (
    Enqueued,
    M,
    MessageForm,
    MessageQueue,
    Run,
    broken_duty,
    require_count,
    require_number,
    require_run,
)
from surepipe.pipes.message_queue.watch import Doubt, Invariants, Watch

__all__ = ["Checked", "Invariants"]

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
        self._watch = Watch(queue, invariants, on_broken)

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
        checked._watch = Watch(queue, invariants, on_broken, adopting=True)
        checked._watch.settle()
        return checked

    def __repr__(self) -> str:
        return f"Checked({self._queue!r})"

    # What the inner queue is.

    @property
    def queue(self) -> MessageQueue[M]:
        """The queue that is checked."""
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
        """What the inner queue says."""
        return self._queue.picks_least

    @property
    def increasing(self) -> bool:
        """What the inner queue says."""
        return self._queue.increasing

    @property
    def dense(self) -> bool:
        """What the inner queue says."""
        return self._queue.dense

    @property
    def capacity(self) -> int | None:
        """What the inner queue says."""
        return self._queue.capacity

    @property
    def capacity_bytes(self) -> int | None:
        """What the inner queue says."""
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
        """``empty`` of the inner queue."""
        self._watch.settle()
        answer = self._watch.ask("empty", None, self._queue.empty)
        if answer is not (self._watch.ghost.count == 0):
            held = f"there are {self._watch.ghost.count} members, and it answered {answer!r}"
            self._watch.broken("empty is true exactly when there is no member", "empty", None, held)
        self._watch.look("empty", None)
        return answer

    def pick_one(self) -> M:
        """``pick_one`` of the inner queue."""
        self._watch.settle()
        if not self._watch.ghost.count:
            raise broken_duty("pick_one", self, "there must be a member")
        message = self._watch.ask("pick_one", None, self._queue.pick_one)
        self._watch.check_picked(message)
        self._watch.look("pick_one", None)
        return message

    def delete_all(self, number: int) -> int:
        """``delete_all`` of the inner queue."""
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
        """``pick_many`` of the inner queue."""
        require_count("pick_many", limit)
        require_number("pick_many", after, least=-1)
        self._watch.settle()
        answer = self._watch.ask("pick_many", after, lambda: self._queue.pick_many(limit, after))
        self._watch.check_view("pick_many", after, answer, self._watch.ghost.members(after, limit))
        return answer

    def pick_runs(self, limit: int, after: int = -1) -> list[Run]:
        """``pick_runs`` of the inner queue."""
        require_count("pick_runs", limit)
        require_number("pick_runs", after, least=-1)
        self._watch.settle()
        answer = self._watch.ask("pick_runs", after, lambda: self._queue.pick_runs(limit, after))
        self._watch.check_view("pick_runs", after, answer, self._watch.ghost.runs(after, limit))
        return answer

    def slice_run(self, first: int, count: int) -> list[bytes]:
        """``slice_run`` of the inner queue."""
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
        """``size_bytes`` of the inner queue."""
        self._watch.settle()
        self._watch.check_sums("size_bytes", None)
        return self._queue.size_bytes

    @property
    def high(self) -> int:
        """``high`` of the inner queue."""
        self._watch.settle()
        self._watch.check_high("high", None)
        return self._queue.high

    def snapshot(self) -> Mapping[int, M]:
        """``snapshot`` of the inner queue."""
        self._watch.settle()
        snapshot = self._watch.ask("snapshot", None, self._queue.snapshot)
        self._watch.compare(snapshot, "snapshot", None)
        return snapshot
