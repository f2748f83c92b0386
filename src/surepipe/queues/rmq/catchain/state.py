"""What a member of a log holds, by subject."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from surepipe.core.effects import Addressed, Effect, Notice, NoticeKind, Transmit
from surepipe.core.machine import Randomness
from surepipe.core.store_requests import (
    AppendRun,
)
from surepipe.core.timing import below
from surepipe.queues.rmq.catchain.options import FRAME_BYTES_MAX, LogOptions, Voice
from surepipe.queues.rmq.causal import Causality, Known
from surepipe.queues.rmq.encoding import (
    MemberKeys,
    Value,
    encode,
)
from surepipe.queues.rmq.entries import LogEntry, Member
from surepipe.queues.rmq.stored_log import Release, StoredLog


@dataclass(slots=True)
class EntryPull:
    """An entry that somebody cites and that isn't here."""

    cited_by: str
    due: int | None
    """None once everybody was asked: from then on it is asked for with the heads."""
    asked: set[str] = field(default_factory=set[str])


@dataclass(slots=True)
class SaidRecord:
    """A record that waits for the next own entry."""

    value: tuple[Value, ...]
    item: bytes
    """The value, encoded."""
    kind: str
    is_urgent: bool
    since: int
    relies_on: tuple[bytes, ...]


class LogState:
    """The state of a member. What changes it lies in the layers above, one subject each."""

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
        self._outbox: list[SaidRecord] = []
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
        self._next_seq: int = 1
        self.kept: int = 0
        self.is_kept: int = 0
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
        self._pulls: dict[bytes, EntryPull] = {}
        self._sync_at: int | None = None
        self._round: list[str] = []
        self._sample: tuple[int, tuple[str, ...]] = (0, ())
        self._armed: int | None = None
        self._out: list[Effect] = []
        self._counters: dict[str, int] = {}
        self._is_begun = False
        self._replay()

    def _replay(self) -> None:
        """Begin where former lives had ended. The machine does it, as this is the last step of building it."""
        raise NotImplementedError

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

    # Effects.

    def _count(self, name: str) -> None:
        self._counters[name] = self._counters.get(name, 0) + 1

    def _notice(self, kind: NoticeKind, detail: str) -> None:
        self._out.append(Notice(kind, 0, (), detail))

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

    def _shuffled(self) -> list[str]:
        peers = list(self._others)
        for last in range(len(peers) - 1, 0, -1):
            other = below(self._rng, last + 1)
            peers[last], peers[other] = peers[other], peers[last]
        return peers
