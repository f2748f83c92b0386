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

from surepipe.core.effects import Addressed, Effect, NoticeKind, WakeAt
from surepipe.core.store_requests import (
    FencedOut,
    Gap,
    Stored,
)
from surepipe.core.timing import BackOff, earlier
from surepipe.queues.rmq.catchain.asking import AskingLog
from surepipe.queues.rmq.catchain.options import FRAME_BYTES_MAX, Voice
from surepipe.queues.rmq.catchain.state import EntryPull
from surepipe.queues.rmq.causal import Known
from surepipe.queues.rmq.encoding import (
    Malformed,
    Value,
    decode,
)
from surepipe.queues.rmq.entries import ForkProof, LogEntry
from surepipe.queues.rmq.stored_log import Release, Released, Withheld

_AGAIN = BackOff.of_seconds(0.1, 2.0)


class LogMachine(AskingLog):
    """One member of the log of one session.

    Feed it with ``wake``, ``frame``, ``answer``, ``append`` and ``connected``; perform its effects; take what it
    delivers from ``take_delivered``, in a causal order of its own: nothing may depend on which one.
    """

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
                self._pulls[last] = EntryPull(
                    self.name, now
                )  # others may hold it, waiting for one that is lost
        return self._finish(now)

    def connected(self, peer: str, now: int) -> list[Effect]:
        """A member can be reached again."""
        if peer in self._others:
            self._send_heads(peer)
        return self._finish(now)

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
