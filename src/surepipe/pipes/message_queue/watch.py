"""The watch over a checked queue: the ghost, what is in doubt, and the judgement after each call.

`surepipe.pipes.message_queue.checked` names the clauses. Here they are decided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeAlias, TypeVar

from surepipe.errors import ConfigurationError, ContractBroken, ContractViolation, StoreUnavailable
from surepipe.pipes.message_queue.contract import Enqueued, M, MessageQueue, Reason, broken_duty
from surepipe.pipes.message_queue.ghost import Ghost

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


class Watch(Generic[M]):
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
        elif reason is Reason.STALE and not (self._queue.increasing and number <= high):
            self.broken("STALE only at or below high", "enqueue", number, f"high is {high}")
        elif reason is Reason.GAP and not (self._queue.dense and -1 < high < number - 1):
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
        """What was picked must be a member: the least where that is promised, or the same again."""
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
