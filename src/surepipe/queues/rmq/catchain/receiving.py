"""Entries of others: checked, delivered in causal order, and what two of them for one height prove."""

from __future__ import annotations

from surepipe.core.effects import NoticeKind
from surepipe.core.timing import earlier
from surepipe.queues.rmq.catchain.options import Voice
from surepipe.queues.rmq.catchain.state import EntryPull
from surepipe.queues.rmq.catchain.storing import StoringLog
from surepipe.queues.rmq.causal import Known
from surepipe.queues.rmq.encoding import (
    Malformed,
    Value,
    encode,
)
from surepipe.queues.rmq.entries import ForkProof, LogEntry


class ReceivingLog(StoringLog):
    """Takes in entries of others, and blames whoever signed two."""

    # Receiving.

    def _receive(self, data: Value, peer: str, now: int) -> None:
        if not isinstance(data, bytes):
            raise Malformed("an entry is bytes")
        if len(data) > self.options.entry_bytes_max:
            self._count("too_large")
            return
        try:
            entry = LogEntry.opened(data)
            if self._has(
                entry.digest
            ):  # most are: several members send what another one has asked for
                self._count("duplicate")
                return
            _ = entry.items
        except Malformed:
            self._count("malformed")
            return
        why = self._why_not(entry, len(data), now)
        if why:
            self._count(why)
            return
        self._admit(Known(entry, len(data)), peer, now)

    def _has(self, entry_digest: bytes) -> bool:
        own = self._own
        return entry_digest in self.causality.known or (
            own is not None and entry_digest == own.digest
        )

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
        # Whoever gives an entry has what it cites; its author may be a liar that has another one.
        has_it = peer if peer in self._others else entry.author
        for each in missing:
            if each not in causality.known and each not in self._pulls:
                self._pulls[each] = EntryPull(has_it, now + grace)
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

    def _note_uncited(self, author: str, now: int) -> None:
        chain = self.causality.chains[author]
        if chain and author != self.name and author not in self.blamed and self._is_new(author):
            self._uncited_since.setdefault(author, now)

    def _is_new(self, author: str) -> bool:
        """Whether the head of an author lies outside the causal past of the own head."""
        head, place = self.causality.head(self.name), self.causality.places[author]
        return len(self.causality.chains[author]) > (head.vector[place] if head else 0)

    # Blame.

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
