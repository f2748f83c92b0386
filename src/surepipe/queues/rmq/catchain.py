"""The causal log: what one correct node acted upon all correct nodes get to see; who says two things is caught.

Each member has a chain of signed entries, and each entry cites the newest ones of others that its author had seen.
An entry is delivered when all that it cites is delivered. It decides nothing: it has no rounds and no leader.

A ``LogMachine`` is one member of one session. Everything that it must not forget goes through one stream of its
store, in one append at a time; its own entry is stored, then signed, then sent. Whoever signs two entries for one
height is blamed for the rest of the session by everybody who sees both: two signatures convince a third party,
and nothing else is blame. A node that lost what it signed hears from a quorum what it had said before it says
more, so it never becomes such a one itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from heapq import merge
from itertools import islice

from surepipe.core.effects import Addressed, Call, Effect, Notice, NoticeKind, Transmit, WakeAt
from surepipe.core.machine import Randomness
from surepipe.core.records import record
from surepipe.core.store_requests import (
    AppendRun,
    FencedOut,
    Gap,
    Stored,
)
from surepipe.core.timing import BackOff, below, earlier
from surepipe.errors import ConfigurationError
from surepipe.queues.rmq.causal import Causality, Known
from surepipe.queues.rmq.encoding import (
    Malformed,
    MemberKeys,
    Value,
    decode,
    encode,
    signed_bytes,
    taken,
)
from surepipe.queues.rmq.entries import EntryReference, ForkProof, LogEntry, Member
from surepipe.queues.rmq.stored_log import Release, Released, StoredLog, Withheld

FRAME_BYTES_MAX = 1 << 20
"""A frame holds less, or one item."""
PUSHED_TO_ALL = 16
"""Up to so many members get each entry from its author; of more members five, drawn anew each minute."""
_REDRAW_US = 60_000_000
PACED_US = 10_000_000
"""Over so long the pace of own entries is held; within it they may come at once."""
_AGAIN = BackOff.of_seconds(0.1, 2.0)


# What a member is built with.


@record
class LogOptions:
    """Bounds and delays. The first five are agreed between all members, the others each node's own."""

    deps_max: int = 8
    entry_bytes_max: int = 65_536
    height_max: int = 50_000
    height_reserve: int = 2_000
    """The last heights carry no bulk records, so that a session can always be ended."""
    bulk: frozenset[str] = frozenset({"external", "handed_over"})
    """Kinds of records that a full log takes no more of."""
    entry_delay_us: int = 20_000
    ack_delay_us: int = 200_000
    sync_every_us: int = 500_000
    sync_cap: int = 100
    pull_max: int = 16
    pull_timeout_us: int = 2_000_000
    waiting_max: int = 1_000
    waiting_bytes_max: int = 16 << 20
    outbox_max: int = 10_000
    pace_us: int = 0
    """The time for one own entry, over a while, so that heights last as long as the session; 0: no bound."""

    def __post_init__(self) -> None:
        if self.height_reserve * 2 >= self.height_max:
            raise ConfigurationError(
                f"height_reserve {self.height_reserve} is half of height_max {self.height_max} or more"
            )
        if self.deps_max < 1 or self.entry_bytes_max < 4096:
            raise ConfigurationError(
                f"deps_max {self.deps_max} is below 1, or entry_bytes_max {self.entry_bytes_max} below 4096"
            )


class Voice(Enum):
    """Whether a member writes."""

    ASKING = "asking"
    """Not before a quorum has shown what it had written before."""
    SPEAKING = "speaking"
    SILENT = "silent"
    """It observes: it may have forgotten what it signed, or others write under its name."""
    ENDED = "ended"
    """Another process of this node has taken over."""


@dataclass(slots=True)
class _Pull:
    """An entry that somebody cites and that isn't here."""

    cited_by: str
    due: int | None
    """None once everybody was asked: from then on it is asked for with the heads."""
    asked: set[str] = field(default_factory=set[str])


@dataclass(slots=True)
class _Said:
    """A record that waits for the next own entry."""

    item: bytes
    kind: str
    is_urgent: bool
    since: int
    relies_on: tuple[bytes, ...]


class LogMachine:
    """One member of the log of one session.

    Feed it with ``wake``, ``frame``, ``answer``, ``append`` and ``connected``; perform its effects; take what it
    delivers from ``take_delivered``, in a causal order of its own: nothing may depend on which one.
    """

    def __init__(  # noqa: PLR0915 - what a member holds, by subject
        self,
        session: bytes,
        name: str,
        members: Sequence[Member],
        *,
        quorum: int,
        keys: MemberKeys,
        rng: Randomness,
        stored: StoredLog,
        guarded: tuple[int, bytes] | None,
        options: LogOptions | None = None,
        witnesses: Sequence[str] = (),
    ) -> None:
        """``guarded`` is the last own entry that the guard knows of this session, (0, b"") for none. None is for a
        node that can't know what it signed here: it only observes. ``quorum`` of the ``witnesses`` (all members,
        if none are given) tell a new life what it had said."""
        self.session, self.name, self.options = session, name, options or LogOptions()
        self.members = tuple(each.name for each in members)
        self._keys_of = {each.name: each.key for each in members}
        self._quorum, self._keys, self._rng = quorum, keys, rng
        self._others = tuple(each for each in self.members if each != name)
        self._guarded = guarded or (0, b"")
        may_speak = guarded is not None and name in self.members
        self.voice = Voice.ASKING if may_speak else Voice.SILENT
        # What is known and delivered.
        self.causality = Causality(self.members)
        self.blamed = self.causality.blamed
        self.stopped: set[str] = set()
        """Whose next entry nobody delivers, as it is unsound."""
        self._handed_up: list[LogEntry] = []
        self._uncited_since: dict[str, int] = {}
        # What is to be said.
        self._outbox: list[_Said] = []
        self._outbox_bytes = 0
        self._outbox_due: int | None = None
        self._paced = 0
        """When all entries so far are paid for, by their pace."""
        self._own: LogEntry | None = None
        """The own entry that is being stored, or signed."""
        self._witnesses = frozenset(witnesses or self.members)
        self._answered: set[str] = {name} & self._witnesses
        self._asked_again: set[str] = set()
        """Whom it has asked in its replies since it last asked all."""
        self._is_bereft = False
        # What is to be stored.
        self._stored = stored
        self._rows: list[bytes] = []
        self._rows_due: int | None = None
        self._next_seq = 1
        self.kept, self.is_kept = 0, 0
        """How many rows were given to the store in this life, and how many of them are stored."""
        self.upper_rows: list[tuple[Value, ...]] = []
        """What former lives had kept for the layer above."""
        self._write: AppendRun | None = None
        self._release: Release | None = None
        self._has_own_row = False
        self._ticket = 0
        self._asked: int | None = None
        """The ticket of the one request that is open."""
        self._again_at: int | None = None
        self._tries = 0
        # What is asked of others.
        self._pulls: dict[bytes, _Pull] = {}
        self._sync_at: int | None = None
        self._round: list[str] = []
        self._sample: tuple[int, tuple[str, ...]] = (0, ())
        self._armed: int | None = None
        self._out: list[Effect] = []
        self._counters: dict[str, int] = {}
        self._is_begun = False
        self._replay()

    # Looking.

    @property
    def height(self) -> int:
        """Of the own chain."""
        return len(self.causality.chains[self.name]) if self.name in self.causality.chains else 0

    def take_delivered(self) -> list[LogEntry]:
        """What was delivered since this was asked."""
        taken_now, self._handed_up = self._handed_up, []
        return taken_now

    def counters(self) -> Mapping[str, int]:
        return self._counters

    def gauges(self) -> Mapping[str, int]:
        return {
            "waiting": sum(map(len, self.causality.waiting.values())),
            "waiting_bytes": sum(self.causality.waiting_bytes.values()),
            "outbox": len(self._outbox),
            "delivered": self.causality.delivered,
            "height": self.height,
            "blamed": len(self.blamed),
            "pulls": len(self._pulls),
        }

    def export(self) -> object:
        """What it holds, as a plain value."""
        return (
            self.voice.value,
            tuple(tuple(chain) for chain in self.causality.chains.values()),
            tuple(sorted(d for d, known in self.causality.known.items() if not known.order)),
            tuple(sorted(self.blamed)),
            tuple(said.item for said in self._outbox),
            self._own.digest if self._own else b"",
            tuple(self._rows),
        )

    # Inputs.

    def wake(self, now: int) -> list[Effect]:
        """The deadline has passed, or the machine was just built."""
        if not self._is_begun:
            self._is_begun = True
            self._sync_at = now
            self._uncited_since.clear()
            for author in self._others:
                self._note_uncited(author, now)
            height, last = self._guarded
            if height and last not in self.causality.known:
                self._pulls[last] = _Pull(
                    self.name, now
                )  # others may hold it, waiting for one that is lost
        return self._finish(now)

    def connected(self, peer: str, now: int) -> list[Effect]:
        """A member can be reached again."""
        if peer in self._others:
            self._send_heads(peer)
        return self._finish(now)

    def append(
        self,
        item: tuple[Value, ...],
        now: int,
        *,
        is_urgent: bool = False,
        relies_on: Sequence[bytes] = (),
    ) -> bool:
        """Say this in the next own entry; at once when it is urgent. ``relies_on`` are entries to be cited.

        False, and nothing is changed, when this node doesn't write, or when the log is too full for it.
        """
        kind, encoded = str(item[0]), encode(item)
        is_bulk = kind in self.options.bulk
        full = self.options.height_max - self.options.height_reserve
        if (
            self.voice in (Voice.SILENT, Voice.ENDED)
            or len(encoded) > self._room_for_items
            or (is_bulk and (self.height >= full or len(self._outbox) >= self.options.outbox_max))
        ):
            return False
        self._put_out(_Said(encoded, kind, is_urgent, now, tuple(relies_on)))
        return True

    def keep(self, row: tuple[Value, ...], now: int) -> int:
        """Store a row of the layer above with the next append. ``is_kept`` reaches the number given when it is."""
        self._keep(encode(row), now)
        return self.kept

    def frame(self, frame: object, now: int) -> list[Effect]:
        """A frame of a member has come; any bytes may."""
        if (
            isinstance(frame, Addressed)
            and isinstance(frame.frame, bytes)
            and len(frame.frame) <= 2 * FRAME_BYTES_MAX
        ):
            try:
                return self.decoded(frame.route, decode(frame.frame), now)
            except Malformed:
                pass
        self._count("malformed")
        return self._finish(now)

    def decoded(self, peer: str, value: Value, now: int) -> list[Effect]:
        """A frame that was read already."""
        try:
            self._take_frame(peer, value, now)
        except Malformed:
            self._count("malformed")
        return self._finish(now)

    def answer(self, ticket: int, outcome: object, now: int) -> list[Effect]:
        """The store, or the guard, has answered."""
        if ticket != self._asked:
            self._count("late_answer")
            return self._finish(now)
        self._asked = None
        match outcome:
            case Stored():
                self._written()
            case Released(signature):
                if self._release is not None:
                    self._released(signature, now)
            case Withheld(height):
                self._fall_silent(f"the guard knows an own entry at height {height}")
            case FencedOut():
                self.voice, self._write, self._release = Voice.ENDED, None, None
                self._notice(NoticeKind.FENCED, "a later process of this node owns the log")
            case Gap(expected):
                self.voice, self._write = Voice.ENDED, None
                self._notice(
                    NoticeKind.STORE_ROLLBACK, f"row {expected} of this life is gone from the log"
                )
            case _:
                self._tries += 1
                self._again_at = now + _AGAIN.calm(self._tries)
                return self._finish(now)
        self._tries = 0
        return self._finish(now)

    def close(self, now: int) -> list[Effect]:
        """Take nothing new."""
        if self.voice is not Voice.ENDED:
            self.voice = Voice.SILENT
        return self._finish(now)

    def _finish(self, now: int) -> list[Effect]:
        if self._is_begun and self.voice is not Voice.ENDED:
            self._sync(now)
            self._pull(now)
            self._speak(now)
            self._store(now)
        self._arm()
        out, self._out = self._out, []
        return out

    def _arm(self) -> None:
        due = None
        if self._is_begun and self.voice is not Voice.ENDED:
            due = earlier(self._sync_at, self._again_at)
            if self._asked is None and self._again_at is None:
                due = earlier(due, earlier(self._rows_due, self._say_due()))
            for pull in self._pulls.values():
                due = earlier(due, pull.due)
        if due != self._armed:
            self._armed = due
            self._out.append(WakeAt(due))

    def _count(self, name: str) -> None:
        self._counters[name] = self._counters.get(name, 0) + 1

    def _notice(self, kind: NoticeKind, detail: str) -> None:
        self._out.append(Notice(kind, 0, (), detail))

    # Frames.

    def _take_frame(self, peer: str, value: Value, now: int) -> None:  # noqa: PLR0912 - one case a frame
        match value:
            case ("entries", bytes() as session, tuple() as items) if session == self.session:
                for data in items:
                    self._receive(data, peer, now)
            case (
                "heads",
                bytes() as session,
                int() as asks,
                int() as answers,
                int() as yours,
                tuple() as heads,
                tuple() as blamed,
                bytes() as signature,
            ) if session == self.session:
                if self.voice is Voice.ASKING and answers == self._stored.epoch:
                    self._take_answer(peer, yours, signature)
                is_ahead = self._take_heads(peer, heads, blamed, now)
                if asks or (is_ahead and not answers):
                    self._send_heads(peer, asks or -1)
            case ("pull", bytes() as session, tuple() as digests) if session == self.session:
                wanted = [each for each in digests[: self.options.pull_max] if type(each) is bytes]
                known = self.causality.known
                self._send_entries(peer, [known[each] for each in wanted if each in known])
            case ("proofs", bytes() as session, tuple() as proofs) if session == self.session:
                for each in proofs:
                    proof = ForkProof.of(each)
                    if proof.author in self.blamed:
                        continue
                    if self._is_proof(proof):
                        self._blame(proof, now)
                    else:
                        self._count("bad_proof")
            case (_, bytes() as session, *_) if session != self.session:
                self._count("foreign")
            case _:
                raise Malformed("no frame of a log")

    def _send(self, peer: str, *fields: Value) -> None:
        self._out.append(Transmit(Addressed(peer, encode(fields))))

    def _send_entries(self, peer: str, found: Iterable[Known]) -> None:
        """Send entries that are signed, in frames within their bound."""
        frame: list[bytes] = []
        size = 0
        for known in found:
            if not known.entry.signature:
                continue
            data = known.entry.encode()
            if frame and size + len(data) > FRAME_BYTES_MAX - 1024:
                self._send(peer, "entries", self.session, tuple(frame))
                frame, size = [], 0
            frame.append(data)
            size += len(data) + 5
        if frame:
            self._send(peer, "entries", self.session, tuple(frame))

    # Receiving.

    def _receive(self, data: Value, peer: str, now: int) -> None:
        if not isinstance(data, bytes):
            raise Malformed("an entry is bytes")
        if len(data) > self.options.entry_bytes_max:
            self._count("too_large")
            return
        try:
            entry = LogEntry.decode(data)
        except Malformed:
            self._count("malformed")
            return
        why = self._why_not(entry, len(data), now)
        if why:
            self._count(why)
            return
        self._admit(Known(entry, len(data)), peer, now)

    def _why_not(self, entry: LogEntry, size: int, now: int) -> str:  # noqa: PLR0911 - checks in their order
        """The first check that this entry fails; empty when it is to be taken in."""
        options = self.options
        if entry.session != self.session:
            return "foreign"
        if entry.author not in self.causality.places:
            return "unknown_author"
        if not 1 <= entry.height <= options.height_max or (entry.height == 1) != (
            entry.previous == self.session
        ):
            return "bad_height"
        if entry.height > options.height_max - options.height_reserve and any(
            item[0] in options.bulk for item in entry.items
        ):
            return "bad_height"
        authors = [each.author for each in entry.cites]
        if (
            len(authors) > options.deps_max
            or len(set(authors)) < len(authors)
            or any(each not in self.causality.places or each == entry.author for each in authors)
        ):
            return "bad_dependencies"
        if not authors and not entry.items:
            return "empty"
        if entry.digest in self.causality.known or (self._own and entry.digest == self._own.digest):
            return "duplicate"
        if not self._keys.verify(self._keys_of[entry.author], entry.signature, entry.signed):
            return "bad_signature"
        if entry.author == self.name and self.voice is Voice.SPEAKING:
            self._fall_silent(f"it signed an entry at height {entry.height} that it doesn't know")
        self._look_for_fork(entry, now)
        if entry.author in self.blamed and not self.causality.is_needed(entry.digest):
            return "blamed_author"
        share = options.waiting_bytes_max // len(self.members)
        if (
            len(self.causality.waiting[entry.author]) >= options.waiting_max
            or self.causality.waiting_bytes[entry.author] + size > share
        ) and any(not self.causality.is_delivered(each) for each in entry.references):
            return "over_limit"
        return ""

    def _look_for_fork(self, entry: LogEntry, now: int) -> None:
        others = self.causality.at.get((entry.author, entry.height), ())
        if others and entry.author not in self.blamed:
            other = self.causality.known[others[0]].entry
            if other.signature:
                self._blame(ForkProof.between(entry, other), now)
            else:  # an own entry that was stored and never signed; the signed one is from a life that is forgotten
                self._fall_silent(f"it signed another entry at height {entry.height}")

    def _admit(self, known: Known, peer: str, now: int) -> None:
        """Take an entry in: deliver it, or ask for what it cites."""
        entry, causality = known.entry, self.causality
        missing = causality.admit(known)
        self._pulls.pop(entry.digest, None)
        grace = self.options.entry_delay_us if peer == entry.author else 0
        for each in missing:
            if each not in causality.known and each not in self._pulls:
                self._pulls[each] = _Pull(entry.author, now + grace)
        if not missing:
            self._deliver(known, now)

    def _deliver(self, first: Known, now: int) -> None:
        for known, why in self.causality.deliver(first):
            entry = known.entry
            if not why:
                self._delivered(known, now)
                continue
            self._count(why)
            if entry.author not in self.stopped and entry.author not in self.blamed:
                self.stopped.add(entry.author)
                self._notice(NoticeKind.STOPPED, f"{entry.author}: {why} at {entry.height}")

    def _delivered(self, known: Known, now: int) -> None:
        """Hand a delivered entry up, store it, and look at what it proves."""
        entry = known.entry
        self._handed_up.append(entry)
        self._note_uncited(entry.author, now)
        if self._is_begun and entry is not self._own:
            self._rows.append(encode(("entry", entry.encode())))
            self.kept += 1
            due = now if entry.author == self.name else now + self.options.ack_delay_us
            self._rows_due = earlier(self._rows_due, due)
        for item in entry.items:
            if item[0] == "fork":
                self._take_fork_record(known, item[1:], now)

    def _take_fork_record(self, known: Known, fields: tuple[Value, ...], now: int) -> None:
        try:
            proof = ForkProof.of(fields)
        except Malformed:
            self._count("bad_proof")
            return
        if proof.author not in self.causality.places or not self._is_proof(proof):
            self._count("bad_proof")
            return
        known.convicted |= 1 << self.causality.places[proof.author]
        self._blame(proof, now)

    # Blame.

    def _is_proof(self, proof: ForkProof) -> bool:
        if proof == self.blamed.get(proof.author):
            return True
        key = self._keys_of.get(proof.author)
        return key is not None and proof.holds(self.session, key, self._keys)

    def _blame(self, proof: ForkProof, now: int) -> None:
        """Take note of a proof that holds: its author is not cited or waited for any more."""
        author = proof.author
        if author in self.blamed:
            return
        self.blamed[author] = proof
        self._uncited_since.pop(author, None)
        if self._is_begun:
            self._keep(encode(("proof", proof.fields)), now)
        for each in self.causality.drop_unneeded():
            self._pulls.pop(each, None)
        self._notice(NoticeKind.FORKED, f"{author} signed two entries for height {proof.height}")
        if author == self.name:
            self._fall_silent("it signed two entries for one height")

    def _fall_silent(self, why: str) -> None:
        if self.voice in (Voice.SILENT, Voice.ENDED):
            return
        self.voice = Voice.SILENT
        self._outbox, self._outbox_bytes, self._outbox_due = [], 0, None
        self._release = None
        self._notice(NoticeKind.STATE_LOST, why)

    # Speaking.

    @property
    def _room_for_items(self) -> int:
        """Bytes that records may take in one entry, beside its citations and proofs."""
        return self.options.entry_bytes_max - 2048 - 160 * self.options.deps_max

    def _note_uncited(self, author: str, now: int) -> None:
        chain = self.causality.chains[author]
        if chain and author != self.name and author not in self.blamed and self._is_new(author):
            self._uncited_since.setdefault(author, now)

    def _is_new(self, author: str) -> bool:
        """Whether the head of an author lies outside the causal past of the own head."""
        head, place = self.causality.head(self.name), self.causality.places[author]
        return len(self.causality.chains[author]) > (head.vector[place] if head else 0)

    def _news_since(self) -> int | None:
        """Since when an entry with records lies outside the causal past of the own head."""
        head, since = self.causality.head(self.name), None
        for author, noted in self._uncited_since.items():
            seen = head.vector[self.causality.places[author]] if head else 0
            if self.causality.last_said[author] > seen:
                since = earlier(since, noted)
        return since

    def _unsaid_forks(self, cites: Sequence[EntryReference]) -> list[str]:
        """Who is blamed without a proof in the causal past of an entry with these citations."""
        head = self.causality.head(self.name)
        convicted = head.convicted if head else 0
        for each in cites:
            convicted |= self.causality.known[each.digest].convicted
        return [name for name in self.blamed if not convicted >> self.causality.places[name] & 1]

    def _say_due(self) -> int | None:
        """When the next own entry is to be made."""
        if self.voice is not Voice.SPEAKING or self._own is not None:
            return None
        if self.height >= self.options.height_max:
            return None
        due = self._outbox_due
        if self._outbox_bytes > self._room_for_items:
            due = 0
        if self.blamed and self._unsaid_forks(self._citations(())):
            due = 0
        news = self._news_since()
        due = earlier(due, None if news is None else news + self.options.ack_delay_us)
        return due if due is None else max(due, self._paced - PACED_US)

    def _citations(self, relied: Iterable[bytes]) -> tuple[EntryReference, ...]:
        """The heads that the next own entry cites: those that its records rely on, then the longest uncited."""
        first: list[str] = []
        for each in relied:
            known = self.causality.known.get(each)
            if known is not None and known.order:
                first.append(known.entry.author)
        others = sorted(self._uncited_since, key=lambda name: (self._uncited_since[name], name))
        chosen = [
            name
            for name in dict.fromkeys((*first, *others))
            if name != self.name and name not in self.blamed and self._is_new(name)
        ]
        heads = [
            self.causality.known[self.causality.chains[name][-1]]
            for name in chosen[: self.options.deps_max]
        ]
        return tuple(
            EntryReference(each.entry.author, each.entry.height, each.entry.digest)
            for each in heads
        )

    def _speak(self, now: int) -> None:
        """Make the next own entry, if it is time and nothing else is being stored."""
        if self.voice is Voice.ASKING:
            self._try_voice(now)
        if self._asked is not None or self._again_at is not None:
            return
        due = self._say_due()
        if due is None or due > now:
            return
        said = self._take_outbox()
        cites = self._citations([each for one in said for each in one.relies_on])
        items = [decode(each.item) for each in said]
        items += [("fork", *self.blamed[name].fields) for name in self._unsaid_forks(cites)[:4]]
        if not items and not cites:
            return
        self._paced = max(self._paced, now) + self.options.pace_us
        chain = self.causality.chains[self.name]
        self._own = LogEntry(
            self.session,
            self.name,
            len(chain) + 1,
            chain[-1] if chain else self.session,
            cites,
            encode(tuple(items)),
        )
        self._keep(encode(("entry", self._own.encode())), now)

    def _put_out(self, said: _Said) -> None:
        self._outbox.append(said)
        self._outbox_bytes += len(said.item)
        delay = 0 if said.is_urgent else self.options.entry_delay_us
        self._outbox_due = earlier(self._outbox_due, said.since + delay)

    def _take_outbox(self) -> list[_Said]:
        """What fits into one entry: the urgent first, and each kind in its order."""
        full = self.height >= self.options.height_max - self.options.height_reserve
        outbox = [each for each in self._outbox if not (full and each.kind in self.options.bulk)]
        chosen: list[int] = []
        size = 0
        for at in sorted(range(len(outbox)), key=lambda at: not outbox[at].is_urgent):
            if size + len(outbox[at].item) > self._room_for_items:
                break
            chosen.append(at)
            size += len(outbox[at].item)
        said, known = [outbox[at] for at in chosen], frozenset(chosen)
        left = [each for at, each in enumerate(outbox) if at not in known]
        self._outbox, self._outbox_bytes, self._outbox_due = [], 0, None
        for each in left:
            self._put_out(each)
        return said

    def _try_voice(self, now: int) -> None:
        """Speak, once a quorum has shown what this node had said, and the guard's last entry is here."""
        height, entry_digest = self._guarded
        chain = self.causality.chains[self.name]
        if height and len(chain) >= height and chain[height - 1] != entry_digest:
            self._fall_silent(f"the log has another own entry at height {height} than the guard")
        elif len(self._answered) >= self._quorum and self._release is None:
            if len(chain) >= height:
                self._sign_again(now)
                self.voice = Voice.SPEAKING
            elif not self._is_bereft:
                self._is_bereft = True
                self._notice(
                    NoticeKind.STATE_LOST,
                    f"it signed an entry at height {height}, and lost it: it writes again when somebody has it",
                )

    def _sign_again(self, now: int) -> None:
        """Sign own entries whose signatures were not stored, but which had been signed, as the guard's last entry
        or another own one stands behind them. Equal bytes are signed, so nothing new is said."""
        for known in self.causality.above(self.name, 0):
            if not known.entry.signature:
                known.entry = known.entry.with_signature(self._keys.sign(known.entry.signed))
                self._keep_signature(known.entry, now)

    def _keep_signature(self, entry: LogEntry, now: int) -> None:
        self._rows.append(encode(("signature", entry.digest, entry.signature)))
        self.kept += 1
        self._rows_due = earlier(self._rows_due, now + self.options.ack_delay_us)

    # Storing and signing.

    def _keep(self, row: bytes, now: int) -> None:
        self._rows.append(row)
        self.kept += 1
        self._rows_due = now

    def _store(self, now: int) -> None:
        """Ask the store or the guard for what is next; one request is open at a time."""
        if self._asked is not None or (self._again_at is not None and now < self._again_at):
            return
        self._again_at = None
        if self._release is not None:
            self._ask(self._release)
            return
        if self._write is None:
            if self._rows_due is None or self._rows_due > now:
                return
            log = self._stored
            self._write = AppendRun(
                log.stream, log.producer, log.epoch, self._next_seq, tuple(self._rows)
            )
            self._rows, self._rows_due = [], None
            self._has_own_row = self._own is not None
        self._ask(self._write)

    def _ask(self, request: object) -> None:
        self._ticket += 1
        self._asked = self._ticket
        self._out.append(Call(self._ticket, request))

    def _written(self) -> None:
        """All rows of the append are stored, the own entry with them: now it may be signed."""
        assert self._write is not None
        self._next_seq += len(self._write.payloads)
        self.is_kept += len(self._write.payloads)
        self._write = None
        if self._has_own_row and self._own is not None and self.voice is not Voice.SILENT:
            own = self._own
            self._release = Release(self.session, own.height, own.digest, own.signed)

    def _released(self, signature: bytes, now: int) -> None:
        """The signature is noted: deliver the own entry here, and send it to all."""
        release, self._release = self._release, None
        assert release is not None
        own, self._own = self._own, None
        if own is None:  # the last own entry of the life before, which may not have been sent
            known = self.causality.known[release.digest]
            known.entry = known.entry.with_signature(signature)
        else:
            known = Known(own.with_signature(signature), 0)
            known.size = len(known.entry.encode())
            self.causality.known[own.digest] = known
            self.causality.at.setdefault((own.author, own.height), []).append(own.digest)
            self._own = known.entry  # its row is stored: not once more
            self._deliver(known, now)
            self._own = None
            for author in self._others:
                if not self._is_new(author):
                    self._uncited_since.pop(author, None)
                elif author in self._uncited_since:
                    self._uncited_since[author] = now
        self._keep_signature(known.entry, now)
        for peer in self._targets(now):
            self._send_entries(peer, [known])

    def _targets(self, now: int) -> Sequence[str]:
        if len(self.members) <= PUSHED_TO_ALL:
            return self._others
        if now >= self._sample[0]:
            self._sample = now + _REDRAW_US, tuple(self._shuffled()[:5])
        return self._sample[1]

    # Asking others.

    def _shuffled(self) -> list[str]:
        peers = list(self._others)
        for last in range(len(peers) - 1, 0, -1):
            other = below(self._rng, last + 1)
            peers[last], peers[other] = peers[other], peers[last]
        return peers

    def _sync(self, now: int) -> None:
        """Tell one member after the other how far this log is; all of them while it asks what it had said."""
        if self._sync_at is None or now < self._sync_at or not self._others:
            return
        every = self.options.sync_every_us
        self._sync_at = now + every - every // 5 + below(self._rng, 2 * every // 5 + 1)
        if self.voice is Voice.ASKING:
            self._asked_again.clear()
            for peer in self._others:
                self._send_heads(peer)
                self._pull_again(peer)
            return
        self._round = self._round or self._shuffled()
        peer = self._round.pop()
        self._send_heads(peer)
        self._pull_again(peer)

    def _send_heads(self, peer: str, answers: int = 0) -> None:
        """``answers``: the life of the peer that wants to know. It can't be told by a frame of an earlier one."""
        asks = 0
        if self.voice is Voice.ASKING and not (answers and peer in self._asked_again):
            asks = self._stored.epoch  # who answers late was not there when all were asked
            self._asked_again.add(peer)
        heads = tuple((name, len(c), c[-1]) for name, c in self.causality.chains.items() if c)
        blamed = tuple(sorted(self.blamed))
        yours = self.causality.highest(peer)
        signature = b""
        if answers > 0:
            signature = self._keys.sign(self._answer_signed(self.name, peer, answers, yours))
        self._send(peer, "heads", self.session, asks, answers, yours, heads, blamed, signature)

    def _answer_signed(self, member: str, asker: str, life: int, height: int) -> bytes:
        """What a member signs when it tells how much it knows of what another one has said."""
        return signed_bytes("answer", (self.session, member, asker, life, height))

    def _take_answer(self, peer: str, height: int, signature: bytes) -> None:
        """A member tells this life how far it knows its chain. One that can't have written this isn't counted, so
        nobody else can make a node that forgot something speak."""
        key = self._keys_of.get(peer)
        text = self._answer_signed(peer, self.name, self._stored.epoch, height)
        if key is None or not self._keys.verify(key, signature, text):
            self._count("bad_answer")
        elif height <= self.height and peer in self._witnesses:
            self._answered.add(peer)

    def _take_heads(
        self, peer: str, heads: tuple[Value, ...], blamed: tuple[Value, ...], now: int
    ) -> bool:
        """Send a member what it lacks, at most ``sync_cap`` entries. True when it has more than this one."""
        theirs = {name: (height, head) for name, height, head in (_head(each) for each in heads)}
        is_ahead = any(name not in self.blamed for name in blamed)
        missing: list[Iterable[Known]] = []
        for name, chain in self.causality.chains.items():
            if name in self.blamed:
                continue
            height, head = theirs.get(name, (0, b""))
            if height > len(chain):
                is_ahead = True
            elif height and chain[height - 1] != head:
                if head not in self.causality.known and head not in self._pulls:
                    self._pulls[head] = _Pull(peer, now)  # two branches: both sides are to see both
                height -= 1
            missing.append(self.causality.above(name, height))
        in_order = merge(*missing, key=lambda known: known.order)
        self._send_entries(peer, islice(in_order, self.options.sync_cap))
        proofs = tuple(p.fields for name, p in self.blamed.items() if name not in blamed)
        if proofs:
            self._send(peer, "proofs", self.session, proofs)
        return is_ahead

    def _pull(self, now: int) -> None:
        """Ask for entries that others cite: first who cited them, then the others in turn."""
        asked: dict[str, list[bytes]] = {}
        for entry_digest, pull in self._pulls.items():
            if pull.due is None or pull.due > now:
                continue
            peers = [
                each
                for each in (pull.cited_by, *self._others)
                if each not in pull.asked and each != self.name
            ]
            if not peers:
                pull.due = None
                continue
            wanted = asked.setdefault(peers[0], [])
            if len(wanted) < self.options.pull_max:
                wanted.append(entry_digest)
                pull.asked.add(peers[0])
                pull.due = now + self.options.pull_timeout_us
            else:
                pull.due = now + self.options.entry_delay_us
        for peer, digests in asked.items():
            self._send(peer, "pull", self.session, tuple(digests))

    def _pull_again(self, peer: str) -> None:
        """Ask a member for what nobody had when all were asked, each time for others of it."""
        had_none = [each for each, pull in self._pulls.items() if pull.due is None]
        wanted = had_none[: self.options.pull_max]
        for each in wanted:
            self._pulls[each] = self._pulls.pop(each)
        if wanted:
            self._send(peer, "pull", self.session, tuple(wanted))

    # The log of former lives.

    def _replay(self) -> None:
        """Deliver what the former lives had stored, in their order. Nothing is said or sent before that."""
        for row in self._stored.rows:
            match decode(row):
                case ("entry", bytes() as data):
                    entry = LogEntry.decode(data)
                    if entry.digest not in self.causality.known:
                        self._admit(Known(entry, len(data)), entry.author, 0)
                case ("signature", bytes() as entry_digest, bytes() as signature):
                    known = self.causality.known[entry_digest]
                    known.entry = known.entry.with_signature(signature)
                case ("proof", tuple() as fields):
                    self._blame(ForkProof.of(fields), 0)
                case tuple() as fields:
                    self.upper_rows.append(fields)
                case _:
                    raise Malformed("a row of a log is a tuple")
        self._pulls.clear()
        head = self.causality.head(self.name)
        if (
            head is not None
            and self.voice is Voice.ASKING
            and not head.entry.signature
            and head.entry.height >= self._guarded[0]
        ):
            own = head.entry
            self._release = Release(self.session, own.height, own.digest, own.signed)


def _head(value: Value) -> tuple[str, int, bytes]:
    name, height, head = taken(value, str, int, bytes)
    if height < 1:
        raise Malformed("a head is at height 1 or above")
    return name, height, head
