"""Relays: who carries proofs between two parties. A relay has no rights, and nothing that it remembers matters.

Each round looks at both ledgers and says what is to be submitted to whom: that decision is a function of what
the ledgers show (``submission_for``). What was submitted counts as done when the ledger of the receiver shows it,
so a relay may be killed anywhere, started again anywhere, and run as often as one likes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import islice
from types import TracebackType
from typing import Literal, Protocol, Self, TypeAlias

from surepipe.core.store_requests import called
from surepipe.core.timing import BackOff
from surepipe.errors import ConfigurationError, NotConfirmed, StoreReset, StoreUnavailable
from surepipe.queues.ibc.calls import (
    SUBMISSION_LIMITS,
    Item,
    ItemKind,
    Submission,
    SubmissionOutcome,
)
from surepipe.queues.ibc.headers import Client, ClientStatus, SignedHeader
from surepipe.queues.ibc.keys import (
    DEFERRED,
    Part,
    QueueKey,
    Receipt,
    SendValue,
    UndecodableValue,
    parse_key,
)
from surepipe.queues.ibc.ledger import Counters, Ledger
from surepipe.queues.ibc.merkle_store import IbcRefused
from surepipe.queues.ibc.party import Party
from surepipe.queues.ibc.transitions import Connection, ConnectionState

Stage: TypeAlias = Literal["deliver", "settle", "expire"]
PathState: TypeAlias = Literal["live", "stalled", "frozen", "expired", "closed", "unregistered"]
STALLED = BackOff.of_seconds(0.5, 30.0)
"""The waits after an end did not answer."""


_RECEIPTS: tuple[Part, Part] = ("entry", "late")


PASSING = frozenset({"pruned-height", "clock-jump"})
"""Codes of refusals that the next round may not meet: it takes a newer height."""
SUBMITTED_BYTES = SUBMISSION_LIMITS.bytes_max // 8 * 5
"""Of values in a submission; what is left is for steps of proofs. That a receipt isn't there is shown by
neighbours, which may be large and aren't known before."""


@dataclass(frozen=True, slots=True)
class RelayOptions:
    """How a relay carries. ``priority`` n leaves what is new to others for n times ``stagger_s``; types may be
    held back (``deny``), and messages (``skip``, ``size_max``): an ordered queue stops there, and says so."""

    batch_items_max: int = 100
    batch_bytes_max: int = 1 << 20
    cleanup_every: int = 256
    cleanup_idle_s: float = 30.0
    clear_interval_s: float = 60.0
    clear_share: float = 0.5
    resubmit_after_s: float = 5.0
    resubmit_max_s: float = 60.0
    poll_s: float = 0.5
    priority: int = 0
    stagger_s: float = 2.0
    deny: tuple[str, ...] = ()
    skip: frozenset[int] = frozenset()
    size_max: int | None = None
    relayer: bytes = b""


class RelayEnd(Protocol):
    """One party as a relay sees it."""

    @property
    def ledger(self) -> Ledger: ...

    def submit(self, submission: Submission) -> SubmissionOutcome | None:
        """Hand a submission over. None: it is on its way, and the ledger will show what came of it. Raises
        StoreUnavailable."""
        ...


class PartyEnd:
    """A party in this process."""

    def __init__(self, party: Party) -> None:
        self._party = party
        self.ledger = Ledger(party.store)

    def submit(self, submission: Submission) -> SubmissionOutcome | None:
        return self._party.submit(submission)


@dataclass(slots=True)
class _Side:
    """One end of a path, with its name for the connection."""

    end: RelayEnd
    name: str

    @property
    def ledger(self) -> Ledger:
        return self.end.ledger

    @property
    def connection(self) -> Connection:
        return self.ledger.connections[self.name]


@dataclass(slots=True)
class PathStatus:
    """What waits on a path, in both directions together."""

    path: str
    state: PathState = "live"
    pending: dict[Stage, int] = field(
        default_factory=lambda: {"deliver": 0, "settle": 0, "expire": 0}
    )
    oldest: dict[Stage, tuple[str, int, float]] = field(
        default_factory=dict[Stage, tuple[str, int, float]]
    )
    """Of each stage: whose message, its index, and for how many seconds it waits."""
    trust_left_s: float = 0.0
    parked: Sequence[int] = ()
    held: str = ""
    """What is held back by the relay's own options."""
    why: str = ""
    """Of a stalled path: which store doesn't answer, or has no party."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits."""
        return not any(self.pending.values())


@dataclass(slots=True)
class _Direction:
    """What is remembered of one direction: advice only."""

    awaited: object = None
    """How the receiver stood when something was submitted to it."""
    until_ms: int = 0
    tries: int = 0
    backlog: int | None = None
    """The tail at the last clearing: what is below it is backlog."""
    cleared_ms: int = 0
    parked: set[int] = field(default_factory=set[int])
    skip: set[int] = field(default_factory=set[int])
    only: int | None = None
    """The one message that is to be delivered."""
    held: str = ""
    limits: tuple[int, list[int]] | None = None
    """A height of the receiver, and the limits of its messages that aren't settled then."""


@dataclass(frozen=True, slots=True)
class _Look:
    """One look at both ledgers: what the source has for the target, by the source's state at a height."""

    source: _Side
    target: _Side
    memory: _Direction
    height: int
    now_ms: int

    @property
    def is_ordered(self) -> bool:
        return self.target.connection.is_ordered

    @property
    def sent(self) -> Counters:
        """Of the source's send queue."""
        return self.source.ledger.counters(self.source.name, "send", self.height)

    @property
    def taken(self) -> Counters:
        """Of the target's receipts for it."""
        ledger = self.target.ledger
        return ledger.counters(self.target.name, "receipt", ledger.height)

    @property
    def unsettled(self) -> Counters:
        """Of the target's own messages."""
        ledger = self.target.ledger
        return ledger.counters(self.target.name, "send", ledger.height)

    def waiting(self, first: int, end: int) -> Iterator[dict[int, bytes]]:
        """The target's messages that aren't settled, page by page."""
        ledger = self.target.ledger
        return ledger.pages(self.target.name, "send", first, end, ledger.height)

    def unreceived(self, first: int, end: int) -> Iterator[tuple[int, bytes]]:
        """The source's messages that the target hasn't received."""
        source, target = self.source, self.target
        for page in source.ledger.pages(source.name, "send", first, end, self.height):
            taken: Mapping[int, bytes] = {}
            if not self.is_ordered:
                taken = target.ledger.beside(target.name, "receipt", page, target.ledger.height)
            yield from ((index, page[index]) for index in page if index not in taken)


def pair_names(a: Ledger, b: Ledger) -> tuple[str, str]:
    """The names of the one connection between two parties. Raises ConfigurationError."""
    found = [
        (one.name, other.name)
        for one in a.connections.values()
        for other in b.connections.values()
        if (one.party, other.party) == (b.party, a.party)
        and (one.known_as, other.known_as) == (other.name, one.name)
    ]
    if len(found) != 1:
        raise ConfigurationError(
            f"{a.party!r} and {b.party!r} have {len(found)} connections that name each other; both register one, "
            "and with several say which: (east, west, 'name at east', 'name at west')"
        )
    return found[0]


class Path:
    """A connection between two ends, relayed in both directions."""

    def __init__(
        self, a: RelayEnd, b: RelayEnd, names: tuple[str, str] | None, options: RelayOptions
    ) -> None:
        self._ends = a, b
        self._names = names
        self.options = options
        self.sides: tuple[_Side, _Side] | None = None
        self.submitted: dict[tuple[str, str], int] = {}
        """How often an item of a kind had an outcome."""
        self.headers = 0
        self.submissions = 0
        self.evidence = 0
        self._memory = _Direction(), _Direction()
        self._status: PathStatus | None = None
        self.name = "?"
        """As metrics and reports have it, also of a path whose stores don't answer: none is asked for it."""

    # A round.

    def refresh(self) -> None:
        """Look at both ledgers. Raises ConfigurationError, StoreUnavailable."""
        for end in self._ends:
            end.ledger.refresh()
        if self.sides is None:
            a, b = self._ends
            if not a.ledger.height or not b.ledger.height:
                empty = b.ledger if a.ledger.height else a.ledger
                raise StoreUnavailable(f"{called(empty.store)} has no party yet: {empty.missing}")
            names = self._names or pair_names(a.ledger, b.ledger)
            one, other = a.ledger.connections.get(names[0]), b.ledger.connections.get(names[1])
            if one is not None and other is not None and one.is_ordered != other.is_ordered:
                raise ConfigurationError(
                    f"{names[0]!r} is {'' if one.is_ordered else 'un'}ordered and its other end isn't: register "
                    "both alike"
                )
            self.name = f"{a.ledger.party}/{names[0]}-{b.ledger.party}/{names[1]}"
            self.sides = _Side(a, names[0]), _Side(b, names[1])

    def round(self, now_ms: int) -> bool:
        """Submit what is due in both directions; whether anything was."""
        done = [self._carry(*direction, now_ms) for direction in self._directions()]
        return any(done)

    def _carry(self, source: _Side, target: _Side, memory: _Direction, now_ms: int) -> bool:
        if target.name not in target.ledger.connections:
            return False
        client = target.ledger.client(source.ledger.party)
        if client is None or client.status(now_ms) is not ClientStatus.ACTIVE:
            return False
        self._look_again(source, target, client)
        if (
            memory.backlog is None
            or now_ms - memory.cleared_ms >= self.options.clear_interval_s * 1000
        ):
            self._clear(source, memory, now_ms)
        standing = _standing(source, target, client)
        if memory.awaited is not None and standing == memory.awaited and now_ms < memory.until_ms:
            return False
        if standing != memory.awaited:
            memory.tries = 0
        submission = self.submission_for(source, target, client, memory, now_ms)
        if submission is None:
            memory.awaited = None
            return False
        self._submit(source, target, submission, memory)
        wait = min(self.options.resubmit_after_s * 2**memory.tries, self.options.resubmit_max_s)
        memory.awaited, memory.until_ms = standing, now_ms + round(wait * 1000)
        memory.tries += 1
        return True

    @staticmethod
    def _look_again(source: _Side, target: _Side, client: Client) -> None:
        """Look at the source once more if it is behind what the target has seen of it.

        1. This relay looks at the source. 2. The source makes a block, and another relay brings its header. 3.
        This one looks at the target. If the source is behind even then, its store lost blocks, or is somebody
        else's.
        """
        seen = client.newest.header.height
        if seen > source.ledger.height:
            source.ledger.refresh()
        if seen > source.ledger.height:
            ledger = source.ledger
            raise StoreUnavailable(
                f"{called(ledger.store)} has {ledger.height} signed blocks of {ledger.party}, "
                f"and {target.ledger.party} has seen its header {seen}: the store lost some, or is another one's"
            )

    def planned(self, now_ms: int) -> Iterator[tuple[str, Submission]]:
        """The next submissions, each with its party. Changes nothing. Raises as ``refresh``."""
        for source, target, memory in self._directions():
            client = target.ledger.client(source.ledger.party)
            if client is None or client.status(now_ms) is not ClientStatus.ACTIVE:
                continue
            self._look_again(source, target, client)
            submission = self.submission_for(source, target, client, memory, now_ms)
            if submission is not None:
                to = target if submission.headers or submission.items else source
                yield to.ledger.party, submission

    def _directions(self) -> Iterator[tuple[_Side, _Side, _Direction]]:
        self.refresh()
        assert self.sides is not None
        a, b = self.sides
        yield from ((a, b, self._memory[0]), (b, a, self._memory[1]))

    def direction(self, sender: str) -> _Direction | None:
        """Of messages by a connection of a party, written PARTY/CONNECTION; None when the path hasn't that. Raises
        as ``refresh``."""
        found = {f"{one.ledger.party}/{one.name}": each for one, _, each in self._directions()}
        return found.get(sender)

    def is_settled(self, sender: str, index: int) -> bool:
        """Whether the sender of a message has its answer. Raises as ``refresh``."""
        for one, _, _ in self._directions():
            if f"{one.ledger.party}/{one.name}" == sender:
                ledger = one.ledger
                sent = ledger.counters(one.name, "send", ledger.height)
                entries = ledger.entries(one.name, "send", index, index + 1, ledger.height)
                return index < sent.tail and not entries
        return False

    def _clear(self, source: _Side, memory: _Direction, now_ms: int) -> None:
        """All that waits now is backlog, and what was parked gets another chance."""
        memory.cleared_ms = now_ms
        memory.parked.clear()
        if source.name in source.ledger.connections:
            tail = source.ledger.counters(source.name, "send", source.ledger.height).tail
            memory.backlog = tail

    def _submit(
        self, source: _Side, target: _Side, submission: Submission, memory: _Direction
    ) -> None:
        self.submissions += 1
        self.headers += len(submission.headers)
        if not submission.headers and not submission.items:
            source.end.submit(submission)  # a tick, which the source itself makes
            return
        outcome = target.end.submit(submission)
        if outcome is None:
            for item in submission.items:
                self._count(item, "submitted")
            return
        for item, each in zip(submission.items, outcome.items, strict=True):
            self._count(item, each.kind if each.kind != "refused" else each.code)
            if each.kind == "refused" and not target.connection.is_ordered:
                index = _parsed(item.key).index
                if index is not None:
                    memory.parked.add(index)

    def _count(self, item: Item, outcome: str) -> None:
        key = item.kind.name.lower().replace("_", "-"), outcome
        self.submitted[key] = self.submitted.get(key, 0) + 1

    # The decision.

    def submission_for(
        self, source: _Side, target: _Side, client: Client, memory: _Direction, now_ms: int
    ) -> Submission | None:
        """What is to be submitted to the target, if anything: headers and items that the source's ledger proves. A
        tick is for the source."""
        newest = client.newest.header
        if newest.height <= source.ledger.height and newest.height >= source.ledger.merkle.lowest:
            own = source.ledger.header(newest.height)
            if own.header.hash != client.newest.hash:
                self.evidence += 1
                return Submission(target.name, (own,))
        height = source.ledger.height
        height = max(newest.height, height)
        items = self._items(_Look(source, target, memory, height, now_ms))
        if items and height > newest.height and self._same_at(source, items, newest.height):
            height = newest.height  # the receiver knows a header that shows it all
        if not items:
            return self._refresh(source, target, client, memory, now_ms)
        headers = _headers_to(client, height, source.ledger.header, now_ms)
        submission = self._proven(source, target, items, height, headers)
        while submission.value_bytes > SUBMITTED_BYTES and len(items) > 1:
            items = items[: len(items) // 2]
            submission = self._proven(source, target, items, height, headers)
        return submission

    def _proven(
        self,
        source: _Side,
        target: _Side,
        items: Sequence[Item],
        height: int,
        headers: tuple[SignedHeader, ...],
    ) -> Submission:
        """These items, and the proof that shows them at this height."""
        keys = [_parsed(item.key) for item in items]
        keys += [
            QueueKey(target.connection.known_as, "", "connection")
            for item in items
            if item.kind is ItemKind.TIMEOUT_ON_CLOSE
        ]
        proof = source.ledger.prove(list(dict.fromkeys(keys)), height)
        return Submission(target.name, headers, height, proof, tuple(items), self.options.relayer)

    @staticmethod
    def _same_at(source: _Side, items: Sequence[Item], height: int) -> bool:
        """Whether an older height shows the same. Limits and closings are shown by new ones only."""
        ledger = source.ledger
        if height < ledger.merkle.lowest or any(
            item.kind in (ItemKind.TIMEOUT, ItemKind.TIMEOUT_ON_CLOSE) for item in items
        ):
            return False
        try:
            found = ledger.merkle.get_many("ibc", [item.key for item in items], height)
        except IbcRefused:  # it was pruned meanwhile
            return False
        return found == [item.shown for item in items]

    def _refresh(
        self, source: _Side, target: _Side, client: Client, memory: _Direction, now_ms: int
    ) -> Submission | None:
        """Keep the trust alive: with a newer header, or with a tick where there is none; and let time pass at a
        party whose silence keeps a limit from being seen."""
        age = now_ms - client.newest.header.time_ms
        is_due = 3 * age > client.root.trusting_period_ms
        if is_due and source.ledger.height > client.newest.header.height:
            headers = _headers_to(client, source.ledger.height, source.ledger.header, now_ms)
            return Submission(target.name, headers, relayer=self.options.relayer)
        if is_due or self._has_quiet_limit(source, target, memory, now_ms):
            return Submission(source.name, relayer=self.options.relayer)
        return None

    @staticmethod
    def _has_quiet_limit(source: _Side, target: _Side, memory: _Direction, now_ms: int) -> bool:
        """Whether a message of the target has passed its limit by our clock, and no header of the source shows
        it."""
        ledger = target.ledger
        if memory.limits is None or memory.limits[0] != ledger.height:
            sent = ledger.counters(target.name, "send", ledger.height)
            limits = [
                message.timeout_ms
                for page in ledger.pages(target.name, "send", sent.head, sent.tail, ledger.height)
                for index, value in page.items()
                if (message := _message(ledger, target, index, value)) and message.timeout_ms
            ]
            memory.limits = ledger.height, sorted(limits)
        shown = source.ledger.time_ms(source.ledger.height)
        return any(shown < limit <= now_ms for limit in memory.limits[1])

    def _items(self, look: _Look) -> list[Item]:
        """What is to be submitted, as much as fits into one submission."""
        size, items = 0, list[Item]()
        most = self.options.batch_items_max
        if not look.is_ordered:
            most = max(1, most >> max(0, look.memory.tries - 1))
        for item in self._all_items(look):
            proven = 0 if item.is_hashed else len(item.value)
            size += len(item.value) + proven + len(item.key) + 1_500
            if items and (len(items) >= most or size > self.options.batch_bytes_max):
                break
            items.append(item)
        return items

    def _all_items(self, look: _Look) -> Iterator[Item]:
        source = look.source
        has_end = source.name in source.ledger.connections
        if has_end and self._is_cleanup_due(look):
            key = QueueKey(source.name, "send", "head").encode()
            yield Item(ItemKind.CLEANUP, key, look.sent.head.to_bytes(8, "big"))
        yield from self._settled(look)
        yield from self._expired(look)
        if has_end and look.target.connection.state is ConnectionState.OPEN:
            yield from self._delivered(look)

    def _is_cleanup_due(self, look: _Look) -> bool:
        sent, taken, ledger = look.sent, look.taken, look.source.ledger
        if sent.head > taken.tail or sent.head - taken.head >= self.options.cleanup_every:
            return True
        idle = look.now_ms - ledger.time_ms(ledger.height)
        return sent.head > taken.head and idle >= self.options.cleanup_idle_s * 1000

    def _delivered(self, look: _Look) -> Iterator[Item]:
        """Messages that the target hasn't received: in order; unordered, new ones have their share before old
        ones."""
        sent = look.sent
        look.memory.held = ""
        if look.is_ordered:
            yield from self._deliverable(look, max(look.taken.tail, sent.head), sent.tail)
            return
        border = min(max(look.memory.backlog or 0, sent.head), sent.tail)
        live = self._deliverable(look, border, sent.tail)
        old = self._deliverable(look, sent.head, border)
        most = self.options.batch_items_max
        share = max(1, round(most * self.options.clear_share))
        yield from islice(live, most - share)
        yield from islice(old, share)
        yield from live
        yield from old

    def _deliverable(self, look: _Look, first: int, end: int) -> Iterator[Item]:
        source, memory = look.source, look.memory
        for index, value in look.unreceived(first, end):
            if index in memory.parked or (not look.is_ordered and memory.only not in (None, index)):
                continue
            is_hashed = value[:1] == b"\2"
            body = source.ledger.body(source.name, index) if is_hashed else value
            why = self._why_held(look, index, body)
            if why:
                memory.held = why
                if look.is_ordered:
                    return
                continue
            key = QueueKey(source.name, "send", "entry", index).encode()
            yield Item(ItemKind.RECEIVE, key, body, is_hashed=is_hashed)

    def _why_held(self, look: _Look, index: int, body: bytes) -> str:
        """Why a message isn't delivered now; empty when it is."""
        options, source, ledger = self.options, look.source, look.target.ledger
        why = ""
        if index in options.skip or index in look.memory.skip:
            why = "is to be skipped"
        elif options.size_max is not None and len(body) > options.size_max:
            why = f"has {len(body)} bytes"
        elif (message := _decoded(body)) is not None:
            pause = options.priority * options.stagger_s * 1000
            if any(fnmatchcase(message.type, pattern) for pattern in options.deny):
                why = f"is of type {message.type!r}"
            elif message.is_over(ledger.height, ledger.time_ms(ledger.height)):
                why = "has passed its limit"
            elif pause and look.now_ms - source.ledger.pushed_at_ms(source.name, index) < pause:
                why = "is left to another relay for a while"
        return why and f"message {index} {why}"

    def _settled(self, look: _Look) -> Iterator[Item]:
        """Receipts of the source for messages that the target hasn't settled."""
        source, unsettled, height = look.source, look.unsettled, look.height
        if source.name not in source.ledger.connections:
            return
        answered = source.ledger.counters(source.name, "receipt", height)
        first, end = max(unsettled.head, answered.head), min(unsettled.tail, answered.tail)
        for waiting in look.waiting(first, end):
            found, late = (
                source.ledger.beside(source.name, "receipt", waiting, height, part)
                for part in _RECEIPTS
            )
            for index in waiting:
                value = found.get(index)
                if value is None:
                    continue
                key = QueueKey(source.name, "receipt", "entry", index)
                if value == Receipt(DEFERRED).encode():
                    if index not in late:
                        if look.is_ordered:
                            return
                        continue
                    key, value = QueueKey(source.name, "receipt", "late", index), late[index]
                yield Item(ItemKind.RECEIPT, key.encode(), value)

    def _expired(self, look: _Look) -> Iterator[Item]:
        """Messages of the target that the source had not received when their limit had passed, or when it
        closed."""
        ours, theirs, height = look.source.ledger, look.target.ledger, look.height
        target, unsettled, is_ordered = look.target, look.unsettled, look.is_ordered
        known_as = target.connection.known_as
        tail_key = QueueKey(known_as, "receipt", "tail")
        shown_tail = ours.get(tail_key, height)
        received = int.from_bytes(shown_tail or b"", "big")
        record = ours.get(QueueKey(known_as, "", "connection"), height) or b""
        is_closed = len(record) > 1 and record[1] != ConnectionState.OPEN
        time_ms = ours.time_ms(height)
        first = max(unsettled.head, received) if is_ordered else unsettled.head
        for waiting in look.waiting(first, unsettled.tail):
            answered: Mapping[int, bytes] = {}
            if not is_ordered:
                answered = ours.beside(known_as, "receipt", waiting, height)
            for index, value in waiting.items():
                if index in answered:
                    continue
                message = _message(theirs, target, index, value)
                is_over = message is not None and message.is_over(height, time_ms)
                if not is_over and not is_closed:
                    if is_ordered:
                        return
                    continue
                key = tail_key if is_ordered else QueueKey(known_as, "receipt", "entry", index)
                kind = ItemKind.TIMEOUT if is_over else ItemKind.TIMEOUT_ON_CLOSE
                yield Item(
                    kind,
                    key.encode(),
                    (shown_tail or b"") if is_ordered else b"",
                    index=index,
                    record=b"" if is_over else record,
                )

    # Looking.

    def status(self, now_ms: int) -> PathStatus:
        """What waits now. Raises as ``refresh``."""
        directions = list(self._directions())
        found = PathStatus(self.name)
        lefts: list[float] = []
        for source, target, memory in directions:
            self._count_pending(found, source, target, now_ms)
            client = target.ledger.client(source.ledger.party)
            if client is None or target.name not in target.ledger.connections:
                found.state = "unregistered"
                continue
            left = client.root.trusting_period_ms - (now_ms - client.newest.header.time_ms)
            lefts.append(left / 1000)
            status = client.status(now_ms)
            if status is ClientStatus.ACTIVE:
                self._look_again(source, target, client)
            else:
                found.state = status.value
            found.parked = sorted({*found.parked, *memory.parked})
            found.held = found.held or memory.held
        found.trust_left_s = min(lefts, default=0.0)
        return found

    @staticmethod
    def _count_pending(found: PathStatus, source: _Side, target: _Side, now_ms: int) -> None:
        """Of the messages that the source sent."""
        ours, theirs = source.ledger, target.ledger
        if source.name not in ours.connections:
            return
        sent = ours.counters(source.name, "send", ours.height)
        taken = theirs.counters(target.name, "receipt", theirs.height)
        time_ms = theirs.time_ms(theirs.height)
        is_ordered = source.connection.is_ordered
        for waiting in ours.pages(source.name, "send", sent.head, sent.tail, ours.height):
            answered = theirs.beside(target.name, "receipt", waiting, theirs.height)
            for index, value in waiting.items():
                message = _message(ours, source, index, value)
                stage: Stage = "deliver"
                if index in answered or (is_ordered and index < taken.tail):
                    stage = "settle"
                elif message is not None and message.is_over(theirs.height, time_ms):
                    stage = "expire"
                found.pending[stage] += 1
                if stage not in found.oldest:
                    age = (now_ms - ours.pushed_at_ms(source.name, index)) / 1000
                    found.oldest[stage] = ours.party, index, age


def _parsed(key: bytes) -> QueueKey:
    found = parse_key(key)
    assert found is not None
    return found


def _standing(source: _Side, target: _Side, client: Client) -> object:
    """How the target stands, as far as a submission would move it."""
    ledger = target.ledger
    at = ledger.height
    return (
        ledger.counters(target.name, "send", at),
        ledger.counters(target.name, "receipt", at),
        client.newest.header.height,
        source.ledger.height,
        at if not target.connection.is_ordered else 0,
    )


def _message(ledger: Ledger, side: _Side, index: int, value: bytes) -> SendValue | None:
    return _decoded(ledger.body(side.name, index) if value[:1] == b"\2" else value)


def _decoded(body: bytes) -> SendValue | None:
    try:
        return SendValue.decode(body)
    except UndecodableValue:
        return None


def _headers_to(
    client: Client, height: int, header_at: Callable[[int], SignedHeader], now_ms: int
) -> tuple[SignedHeader, ...]:
    """The headers by which the client comes to trust a height: one, or several where validators changed too
    much."""
    if height in client.trusted:
        return ()
    known, wanted, found = client.copy(), [height], list[SignedHeader]()
    while wanted:
        signed = header_at(wanted[-1])
        outcome = known.update(signed, max(now_ms, signed.header.time_ms))
        if outcome.gap is not None:
            wanted.append(sum(outcome.gap) // 2)
            continue
        found.append(signed)
        wanted.pop()
        if outcome.kind == "refused":
            break  # the receiver will say why
    return tuple(found)


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


End: TypeAlias = Party | RelayEnd
Ends: TypeAlias = tuple[End, End] | tuple[End, End, str, str]


class Relay:
    """Carries messages, receipts and headers between parties, which need not trust it.

    ``paths`` are pairs of parties (or of ends), with the names of their connection where they have several.
    Nothing runs in the background: ``run_once`` is one round over all paths, ``settle`` goes on until nothing
    waits.
    """

    def __init__(
        self,
        paths: Sequence[Ends],
        *,
        options: RelayOptions | None = None,
        clock: Callable[[], int] = _wall_ms,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.options = options or RelayOptions()
        self._clock, self._sleep = clock, sleep
        self.paths = [self._path(each) for each in paths]
        self._stalled: dict[int, tuple[int, int, str]] = {}
        """Of a path whose end didn't answer: how often, when it is tried again, and what was said."""

    def _path(self, ends: Ends) -> Path:
        a, b = (PartyEnd(end) if isinstance(end, Party) else end for end in ends[:2])
        names = (ends[2], ends[3]) if len(ends) == 4 else None
        return Path(a, b, names, self.options)

    def run_once(self) -> bool:
        """One round; whether anything was submitted. An end that doesn't answer, or lost something, stalls
        its own paths only."""
        done = False
        for number, path in enumerate(self.paths):
            now = self._clock()
            times, until, _ = self._stalled.get(number, (0, 0, ""))
            if now < until:
                continue
            try:
                done |= path.round(now)
                self._stalled.pop(number, None)
            except (StoreUnavailable, StoreReset, IbcRefused) as error:
                if isinstance(error, IbcRefused) and error.code in PASSING:
                    continue
                wait = STALLED.calm(times + 1) // 1_000
                self._stalled[number] = times + 1, now + wait, str(error)
        return done

    def settle(self, timeout_s: float) -> None:
        """Go on until nothing waits. Raises NotConfirmed, which lists what does."""
        end = self._clock() + round(timeout_s * 1000)
        while True:
            is_busy = self.run_once()
            found = [] if is_busy else self.status()
            if not is_busy and all(each.is_idle and each.state != "stalled" for each in found):
                return
            if self._clock() >= end:
                told = [
                    f"{each.path} ({each.state}): {each.pending} {each.oldest} {each.held}{each.why}"
                    for each in found or self.status()
                ]
                raise NotConfirmed(f"after {timeout_s} s there is still: " + "; ".join(told))
            if not is_busy:
                self._sleep(0.02)

    def skip(self, sender: str, index: int) -> None:
        """Leave a message of PARTY/CONNECTION to others; an ordered connection stops there. Raises
        ConfigurationError, StoreUnavailable."""
        _, direction = self._found(sender)
        assert direction is not None
        direction.skip.add(index)

    def clear(self, name: str, index: int | None = None, timeout_s: float = 60.0) -> None:
        """Carry one path alone, by its name or PARTY/CONNECTION of an end, until nothing waits there; with an
        index until that message of PARTY/CONNECTION has its answer, without others where order lets it. Raises
        NotConfirmed, ConfigurationError, StoreUnavailable."""
        path, direction = self._found(name)
        self.paths = [path]
        self._stalled.clear()
        if index is None:
            self.settle(timeout_s)
            return
        if direction is None:
            raise ConfigurationError(
                f"{name}: of which party is message {index}? Write PARTY/CONNECTION:{index}"
            )
        direction.only, end = index, self._clock() + round(timeout_s * 1000)
        while not path.is_settled(name, index):
            if not self.run_once():
                if self._clock() >= end:
                    raise NotConfirmed(
                        f"after {timeout_s} s message {index} of {name} has no answer"
                    )
                self._sleep(0.02)

    def planned(self) -> Iterator[tuple[str, str, Submission]]:
        """The next submissions, each with its path and party. Raises StoreUnavailable."""
        for path in self.paths:
            for party, submission in path.planned(self._clock()):
                yield path.name, party, submission

    def _found(self, name: str) -> tuple[Path, _Direction | None]:
        for path in self.paths:
            direction = path.direction(name)
            if direction is not None or path.name == name:
                return path, direction
        known = ", ".join(path.name for path in self.paths)
        raise ConfigurationError(
            f"there is no path {name!r}: there are {known}; one end of it is PARTY/CONNECTION"
        )

    def status(self) -> list[PathStatus]:
        """What waits on each path."""
        found: list[PathStatus] = []
        for number, path in enumerate(self.paths):
            if number in self._stalled:
                found.append(PathStatus(path.name, "stalled", why=self._stalled[number][2]))
                continue
            try:
                found.append(path.status(self._clock()))
            except (StoreUnavailable, StoreReset, IbcRefused) as error:
                found.append(PathStatus(path.name, "stalled", why=str(error)))
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Nothing is to be closed: a relay has nothing."""
