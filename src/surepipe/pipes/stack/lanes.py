"""The boundary of a receiver with lanes: messages of one key in order, different keys side by side.

Every message stands in the line of its key, in the order in which the outermost layer handed it up. Of each line
one delivery is open at the most, so nothing of a key passes anything else of it; lines whose turn has come are
served in the order in which they became ready. A message that fails goes back to the head of its line and is
tried again after the usual wait, alone, and before what other lines have waiting: it has waited for its turn
already. At most one in each lane is, so lines that fail don't keep others from theirs. When the attempts of a
message are used up it becomes a dead letter, and its line goes on when that is stored. The other lines take no
notice.

What is answered is settled at once, whatever is still in work before it. The layers below keep what is settled
above an unsettled message as ranges; what they confirm or commit as a position never passes it. They also bound
how far that goes: at the bound nothing more comes in, and a notice names the message that holds everything up.

A receiver that ends in good order leaves nothing settled behind what is not: those below would let nobody know
what is done above them. So at its end (``fill_gaps``) what is older than the newest settled message is handed out,
and nothing else.

A message whose key can't be told goes into no line: it becomes a dead letter at once. Where there is no place for
those it stays unsettled until the receiver starts again, for instance with a key function that knows it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NoReturn, TypeAlias

from surepipe.core.effects import NOBODY, Cause, Deliver, Key, Letter, NoticeKind, Ranges, Speaker
from surepipe.core.machine import Randomness
from surepipe.core.payloads import size_of
from surepipe.core.ranges import RangeSet
from surepipe.core.snapshot import stateful
from surepipe.core.timing import earlier
from surepipe.errors import MisuseError, named, so_often, words_of
from surepipe.pipes.stack.boundary import BoundaryOptions
from surepipe.pipes.stack.delivery import ERROR_SHOWN, DeliveryBase, DeliveryPort, FailedMessage

# What a delivery with lanes keeps: messages, deliveries of one key, and the window that bounds both.


@dataclass(frozen=True, slots=True)
class Window:
    """How much may be received before the oldest message that is not settled is: the bounds of the layer below.

    ``spans``: it counts everything from there on, and not only what is not settled. ``in_turn``: by places in a
    stream, whoever numbered what stands there.
    """

    count: int
    size_bytes: int
    spans: bool
    in_turn: bool = False


Identity: TypeAlias = tuple[str, int, int]
"""A message: its producer, epoch and number."""


@stateful
@dataclass(slots=True)
class LaneMessage:
    """One message that waits or is in work."""

    epoch: int
    seq: int
    payload: bytes
    producer: str

    @property
    def speaker(self) -> Speaker:
        """Who numbered it."""
        return self.producer, self.epoch

    @property
    def identity(self) -> Identity:
        """What names it."""
        return self.producer, self.epoch, self.seq


@stateful
@dataclass(slots=True)
class LaneTicket:
    """One delivery: messages of one key, in order; ``open`` are the numbers that have no answer yet."""

    key: Key
    messages: list[LaneMessage]
    open: list[int]
    attempt: int = 1

    @property
    def speaker(self) -> Speaker:
        """Who numbered all its messages."""
        return self.messages[0].speaker

    def places(self, first: int, last: int) -> tuple[int, int]:
        """Where first..last begins and ends in what is open."""
        return bisect_left(self.open, first), bisect_right(self.open, last)


def total_bytes(messages: Iterable[LaneMessage]) -> int:
    """Payload bytes of these messages."""
    return sum(len(message.payload) for message in messages)


KeyOf: TypeAlias = Callable[[bytes], Key]
"""Tells the key of a payload, always the same for the same payload. If it raises, the message is a dead letter."""

RUN_MAX = 32
"""Messages of one key in one delivery at the most: then other keys that wait get their turn."""

AHEAD = 2
"""Deliveries for each lane, so that the next one lies ready when a lane has done with one."""

AHEAD_MIN = 128
"""A lane may leave what is not sealed yet, and sinks seal what many lanes have left as one."""


@stateful
class LaneDelivery(DeliveryBase):
    """The boundary of one receiver, with a line for each key that has something in it."""

    TRANSIENT: ClassVar[tuple[str, ...]] = (*DeliveryBase.TRANSIENT, "key_of", "window", "ahead")

    def __init__(
        self,
        port: DeliveryPort,
        options: BoundaryOptions,
        rng: Randomness,
        pipe: str,
        *,
        key_of: KeyOf,
        window: Window,
    ) -> None:
        super().__init__(port, options, rng, pipe)
        self.key_of = key_of
        self.window = window
        self.ahead = max(AHEAD_MIN, AHEAD * options.lanes)
        self.lines: dict[Key, deque[LaneMessage]] = {}
        """Each key that has something in work, delayed, on its way to the dead letters, or waiting: what waits."""
        self.ready: deque[Key] = deque()
        self.due: deque[Key] = deque()
        """Those whose first message is to be tried again now."""
        self.tickets: dict[int, LaneTicket] = {}
        self.delayed: dict[Key, int] = {}
        self.next_due: int | None = None
        self.failing: dict[Identity, FailedMessage] = {}
        self.letter_keys: dict[int, Key] = {}
        self.keyless: list[LaneMessage] = []
        self.answered: list[tuple[Speaker, int]] = []
        self.unsettled: dict[Speaker, RangeSet] = {}
        self.highest: dict[Speaker, int] = {}
        self.count = 0
        self.size_bytes = 0
        self.runs: deque[tuple[Speaker, int, int, int]] = deque()
        """What was taken, from the oldest that is not settled on: who spoke, first and last number, bytes."""
        self.run_count = 0
        self.run_bytes = 0
        self.stalled_for: dict[Speaker, int] = {}
        """Of each who speaks, the message that was told of as holding everything up."""
        self.places: dict[Identity, int] = {}
        """While gaps are filled: the order in which messages were taken."""
        self.newest_settled = 0
        """The highest of these places that is settled; nothing above it is handed out then."""
        self.filling = False

    # From the outermost layer.

    def take(self, epoch: int, first: int, payloads: Sequence[bytes], producer: str = "") -> None:
        """Consecutive messages that the outermost layer hands over."""
        speaker, last = (producer, epoch), first + len(payloads) - 1
        if self.stopped or self.closed or self.filling:
            self.port.refuse_outermost(speaker, first, last)
            return
        self.unsettled.setdefault(speaker, RangeSet()).add(first, last)
        self.highest[speaker] = max(last, self.highest.get(speaker, 0))
        size = size_of(payloads)
        self.count += len(payloads)
        self.size_bytes += size
        self.runs.append((speaker, first, last, size))
        self.run_count += len(payloads)
        self.run_bytes += size
        for seq, payload in enumerate(payloads, first):
            self._put_in_line(LaneMessage(epoch, seq, payload, producer))

    def _put_in_line(self, message: LaneMessage) -> None:
        try:
            key = self.key_of(message.payload)
        except Exception as error:  # noqa: BLE001 - whatever it raises, there is no line for the message
            self._without_key(message, (type(error).__name__, words_of(error)[:ERROR_SHOWN]))
            return
        line = self.lines.get(key)
        if line is None:
            line = self.lines[key] = deque()
            self.ready.append(key)
        line.append(message)

    def _without_key(self, message: LaneMessage, error: tuple[str, str]) -> None:
        history = self._failed_again(None, error)
        if self.options.dead_letters:
            self._count_out([message])
            self._post_message(message, history)
            return
        self.keyless.append(message)
        self.failing[message.identity] = history
        kind, text = error
        detail = (
            f"its key can't be told ({named(kind, text)}), and there is no place for dead letters"
        )
        where = ((message.seq, message.seq),)
        self._notice(NoticeKind.POISON, message.speaker, where, detail)

    def _count_in(self, messages: Collection[LaneMessage]) -> None:
        self.count += len(messages)
        self.size_bytes += total_bytes(messages)

    def _count_out(self, messages: Collection[LaneMessage]) -> None:
        self.count -= len(messages)
        self.size_bytes -= total_bytes(messages)

    def finish_step(self) -> None:
        """Settle what was answered in this step, and deliver what may be delivered now."""
        self._settle_answered()
        held = self._hold_what_is_newer() if self.filling else ()
        while self.due and self._retrying < self.options.lanes:
            self._hand_out(self.due.popleft())
        while self.ready and len(self.tickets) < self.ahead:
            self._hand_out(self.ready.popleft())
        for waiting, keys in held:
            waiting.extend(keys)
        self._tell_who_holds_up()
        self._save_next()

    @property
    def _retrying(self) -> int:
        """How many deliveries are further attempts. They have places of their own beside ``ahead``."""
        return sum(ticket.attempt > 1 for ticket in self.tickets.values())

    def _hand_out(self, key: Key) -> None:
        messages = self._next_of(self.lines[key])
        number = self.port.ticket()
        head = messages[0]
        known = self.failing.get(head.identity) if self.failing else None
        attempt = known.attempts + 1 if known else 1
        seqs = [message.seq for message in messages]
        payloads = [message.payload for message in messages]
        self.tickets[number] = LaneTicket(key, messages, seqs[:], attempt)
        self.port.emit(
            Deliver(number, head.epoch, head.seq, payloads, attempt, head.producer, key, seqs)
        )

    def _next_of(self, waiting: deque[LaneMessage]) -> list[LaneMessage]:
        """What may go out in one delivery: numbers that grow, of one epoch; what failed before goes alone."""
        head = waiting.popleft()
        taken = [head]
        if not waiting or head.identity in self.failing:
            return taken
        while waiting and len(taken) < min(RUN_MAX, self.options.deliver_max):
            last, following = taken[-1], waiting[0]
            is_apart = following.speaker != last.speaker
            if is_apart or following.seq <= last.seq:  # a repeat that its layer lets through
                break
            if self.filling and self._is_newer(following):
                break
            taken.append(waiting.popleft())
        return taken

    # From the host.

    def settled(self, number: int, ranges: Ranges, *, by_host: bool = True) -> None:
        """These messages of a ticket have crossed the boundary."""
        del by_host  # with this boundary the host commits nothing
        ticket = self._ticket(number)
        if ticket is None:
            return
        if not self._close_parts(ticket, ranges):
            self.port.count("late_answer")
        if not ticket.open:
            self._end_ticket(number, ticket)
            self._go_on(ticket.key)

    def _close_parts(self, ticket: LaneTicket, ranges: Ranges) -> int:
        """Take these out of what is open, to be settled in this step; says how many that were."""
        before, speaker = len(ticket.open), ticket.speaker
        if before == 1:  # most have one message
            seq = ticket.open[0]
            if any(first <= seq <= last for first, last in ranges):
                self.answered.append((speaker, seq))
                ticket.open.clear()
            return before - len(ticket.open)
        for first, last in ranges:
            start, end = ticket.places(first, last)
            self.answered += [(speaker, seq) for seq in ticket.open[start:end]]
            del ticket.open[start:end]
        return before - len(ticket.open)

    def _end_ticket(self, number: int, ticket: LaneTicket) -> None:
        del self.tickets[number]
        self._count_out(ticket.messages)

    def _go_on(self, key: Key) -> None:
        """Nothing of this key is in work any more."""
        if self.lines[key]:
            self.ready.append(key)
        else:
            del self.lines[key]

    def failed(self, number: int, seq: int, error: Cause, *, final: bool = False) -> None:
        """The handler raised for ``seq``: it stays the first of its key, and is tried again later."""
        ticket = self._ticket(number)
        if ticket is None:
            return
        if seq not in ticket.open:
            self.port.count("late_answer")
            return
        self._close_parts(ticket, ((ticket.messages[0].seq, seq - 1),))
        self._take_back(number, ticket)
        if self.closed or self.stopped:
            return
        head = self.lines[ticket.key][0]
        former = self.failing.pop(head.identity, None)
        history = self._failed_again(former, error)
        if self._is_poison(history) or (final and self.options.dead_letters):
            self._count_out([self.lines[ticket.key].popleft()])
            self.letter_keys[self._post_message(head, history)] = ticket.key
        else:
            self.failing[head.identity] = history
            self._warn_of_poison(head.speaker, head.seq, history)
            self._delay(ticket.key, self._backoff(history.attempts))

    def refused(self, number: int, ranges: Ranges) -> None:
        """Some messages of a ticket were not taken: all of it that has no answer comes again, in its order."""
        ticket = self._ticket(number)
        if ticket is None:
            return
        places = [ticket.places(first, last) for first, last in ranges]
        if not any(start < end for start, end in places):
            self.port.count("late_answer")
            return
        self._take_back(number, ticket)
        if not (self.closed or self.stopped):
            self._delay(ticket.key, self._backoff(1))

    def _take_back(self, number: int, ticket: LaneTicket) -> None:
        """What has no answer goes back to the head of its line; at the end it is dropped instead."""
        self._end_ticket(number, ticket)
        if self.closed or self.stopped:
            del self.lines[ticket.key]
            return
        rest = [message for message in ticket.messages if message.seq in ticket.open]
        self.lines[ticket.key].extendleft(reversed(rest))
        self._count_in(rest)

    def state_after(self, number: int, through: int) -> NoReturn:
        """Raises MisuseError: no host commits effects of several lanes together with one state."""
        raise MisuseError(
            f"ticket {number} (up to {through}) is in a lane: there is no state to commit with it"
        )

    def _ticket(self, number: int) -> LaneTicket | None:
        ticket = self.tickets.get(number)
        if ticket is None:
            self.port.count("late_answer")
        return ticket

    # Settling.

    def _settle_answered(self) -> None:
        """What was answered in this step, neighbours together. Two copies of a message are two answers."""
        if not self.answered:
            return
        joined: list[tuple[Speaker, int, int]] = []
        speaker, first, last = NOBODY, 0, 0
        for part in sorted(self.answered):
            if part != (speaker, last + 1) and last:
                joined.append((speaker, first, last))
            if part != (speaker, last + 1):
                speaker, first = part
            last = part[1]
        joined.append((speaker, first, last))
        self.answered.clear()
        for settled in joined:
            self._settle(*settled)
            self._forget(*settled)

    def _forget(self, speaker: Speaker, first: int, last: int) -> None:
        if self.filling:
            producer, epoch = speaker
            places = [self.places.get((producer, epoch, seq), 0) for seq in range(first, last + 1)]
            self.newest_settled = max(self.newest_settled, *places)
        if self.failing:
            for producer, epoch, seq in [*self.failing]:
                if (producer, epoch) == speaker and first <= seq <= last:
                    del self.failing[producer, epoch, seq]
        if speaker in self.unsettled:
            self.unsettled[speaker].discard(first, last)
            if not self.unsettled[speaker]:
                del self.unsettled[speaker], self.highest[speaker]
                self.stalled_for.pop(speaker, None)
        while self.runs and self._is_settled_through(self.runs[0][0], self.runs[0][2]):
            _, start, end, size = self.runs.popleft()
            self.run_count -= end - start + 1
            self.run_bytes -= size

    def _is_settled_through(self, speaker: Speaker, last: int) -> bool:
        return speaker not in self.unsettled or self._oldest(speaker) > last

    def _oldest(self, speaker: Speaker) -> int:
        """The lowest number that is taken and not settled."""
        return self.unsettled[speaker].lowest(1)[0][0]

    @property
    def _span(self) -> int:
        """How many messages there are from the oldest that is not settled on, epoch by epoch, or in turn."""
        by_number = sum(last - self._oldest(one) + 1 for one, last in self.highest.items())
        if not (self.window.in_turn and self.runs):
            return by_number
        speaker, first = self.runs[0][:2]
        return max(by_number, self.run_count - max(0, self._oldest(speaker) - first))

    def _post_message(self, message: LaneMessage, history: FailedMessage) -> int:
        return self._post(message.speaker, message.seq, message.payload, history)

    def _letter_stored(self, number: int, letter: Letter) -> None:
        self._forget(letter.speaker, letter.seq, letter.seq)
        if number in self.letter_keys:
            self._go_on(self.letter_keys.pop(number))

    # Waiting.

    def _delay(self, key: Key, wait: int) -> None:
        due = self.port.now + wait
        self.delayed[key] = due
        self.next_due = earlier(self.next_due, due)

    @property
    def deadline(self) -> int | None:
        """When something is to be tried again."""
        return earlier(self.next_due, super().deadline)

    def wake(self) -> None:
        now = self.port.now
        if self.next_due is not None and self.next_due <= now:
            for key in [key for key, due in self.delayed.items() if due <= now]:
                del self.delayed[key]
                self.due.append(key)
            self.next_due = min(self.delayed.values(), default=None)
        super().wake()

    def _tell_who_holds_up(self) -> None:
        """Once for each message: it keeps failing, and what was received behind it fills the window."""
        if not self.failing or not self._is_window_full():
            return
        speakers = [self.runs[0][0]] if self.window.in_turn else self.unsettled
        for speaker in speakers:
            oldest = self._oldest(speaker)
            known = self.failing.get((*speaker, oldest))
            if known is None or self.stalled_for.get(speaker) == oldest:
                continue
            self.stalled_for[speaker] = oldest
            detail = (
                f"it failed {so_often(known.attempts)}, and what was received behind it fills the window: "
                "nothing more comes in before it is settled"
            )
            self._notice(NoticeKind.STALLED, speaker, ((oldest, oldest),), detail)

    def _is_window_full(self) -> bool:
        taken = self._span if self.window.spans else self.count
        return taken >= self.window.count or self.run_bytes >= self.window.size_bytes

    # The end of a receiver.

    def fill_gaps(self) -> None:
        self.filling, place = True, 0
        for (producer, epoch), first, last, _ in self.runs:
            unsettled = self.unsettled.get((producer, epoch), RangeSet())
            for seq in range(first, last + 1):
                place += 1
                self.places[producer, epoch, seq] = place
                if seq not in unsettled:
                    self.newest_settled = place

    def _is_newer(self, message: LaneMessage) -> bool:
        """Newer than all that is settled."""
        return self.places.get(message.identity, 0) > self.newest_settled

    def _hold_what_is_newer(self) -> list[tuple[deque[Key], list[Key]]]:
        """Take out keys whose turn has come, and whose next message is none to hand out now."""
        held: list[tuple[deque[Key], list[Key]]] = []
        for waiting in (self.due, self.ready):
            newer = [key for key in waiting if self._is_newer(self.lines[key][0])]
            for key in newer:
                waiting.remove(key)
            held.append((waiting, newer))
        return held

    def given_back(self, number: int) -> None:
        ticket = self._ticket(number)
        if ticket is not None:
            self._take_back(number, ticket)
            if not (self.closed or self.stopped):
                self.ready.append(ticket.key)

    @property
    def has_gaps(self) -> bool:
        if self.closed or self.stopped:
            return False
        waiting = (line[0] for line in self.lines.values() if line)
        is_open = bool(self.tickets or self.postings)
        return is_open or not all(self._is_newer(message) for message in waiting)

    @property
    def settled_ahead(self) -> int:
        if not self.runs:
            return 0
        speaker, first, *_ = self.runs[0]
        span = self.run_count - max(0, self._oldest(speaker) - first)
        return max(0, span - sum(ranges.count() for ranges in self.unsettled.values()))

    @property
    def keyless_for(self) -> str:
        """Why the key of a message can't be told that has no place to go; empty while there is none."""
        for message in self.keyless[:1]:
            kind, text = self.failing[message.identity].error[:2]
            return named(kind, text)
        return ""

    @property
    def idle(self) -> bool:
        """True when nothing is in work."""
        return super().idle and not (self.lines or self.keyless)

    @property
    def in_work(self) -> tuple[int, int]:
        """Messages from the oldest that is not settled on, and the bytes of their runs: settled ones among them
        take the place of others as long as the layer below counts from there."""
        return max(self.count + len(self.postings), self._span), max(
            self.size_bytes, self.run_bytes
        )

    def close(self) -> None:
        """Deliver nothing more; what is in work may still be answered. What waits is not answered: a step back
        to its first message would take back what is settled above it."""
        self.closed = True
        self._drop_waiting()

    def _drop_waiting(self) -> None:
        in_work = [ticket.key for ticket in self.tickets.values()] + list(self.letter_keys.values())
        for waiting in (*self.lines.values(), self.keyless):
            self._count_out(waiting)
        self.lines = {key: deque() for key in in_work}
        self.keyless.clear()
        self.ready.clear()
        self.due.clear()
        self.delayed.clear()
        self.next_due = None
