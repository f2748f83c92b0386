"""The own chain: when the next entry is made, what it says and cites, and who gets it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from surepipe.core.effects import NoticeKind
from surepipe.core.timing import earlier
from surepipe.queues.rmq.catchain.options import Voice
from surepipe.queues.rmq.catchain.receiving import ReceivingLog
from surepipe.queues.rmq.catchain.state import SaidRecord
from surepipe.queues.rmq.causal import Known
from surepipe.queues.rmq.encoding import (
    Value,
    encode,
    encoded_tuple,
)
from surepipe.queues.rmq.entries import EntryReference, LogEntry

PUSHED_TO_ALL = 16
"""Up to so many members get each entry from its author; of more members five, drawn anew each minute."""
_REDRAW_US = 60_000_000
PACED_US = 10_000_000
"""Over so long the pace of own entries is held; within it they may come at once."""


class SpeakingLog(ReceivingLog):
    """What a member says."""

    # What is to be said.

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
        self._put_out(SaidRecord(item, encoded, kind, is_urgent, now, tuple(relies_on)))
        return True

    @property
    def _room_for_items(self) -> int:
        """Bytes that records may take in one entry, beside its citations and proofs."""
        return self.options.entry_bytes_max - 2048 - 160 * self.options.deps_max

    def _put_out(self, said: SaidRecord) -> None:
        self._outbox.append(said)
        self._outbox_bytes += len(said.item)
        delay = 0 if said.is_urgent else self.options.entry_delay_us
        self._outbox_due = earlier(self._outbox_due, said.since + delay)

    def _take_outbox(self) -> list[SaidRecord]:
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

    # When, and with which citations.

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
        forks: list[tuple[Value, ...]] = [
            ("fork", *self.blamed[name].fields) for name in self._unsaid_forks(cites)[:4]
        ]
        items = (*(each.value for each in said), *forks)
        if not items and not cites:
            return
        records = bytes(encoded_tuple([*(each.item for each in said), *map(encode, forks)]))
        self._paced = max(self._paced, now) + self.options.pace_us
        chain = self.causality.chains[self.name]
        self._own = LogEntry(
            self.session,
            self.name,
            len(chain) + 1,
            chain[-1] if chain else self.session,
            cites,
            records,
        ).with_items(items)
        self._keep(encode(("entry", self._own.encode())), now)

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

    # A new life.

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
