"""Replaying dead letters: each goes into a pipe as a new message, from where an earlier replay stopped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from surepipe.actors.codecs import guarded, marked
from surepipe.actors.ends.face import SendingFace, StartingFace
from surepipe.actors.ends.intake import Until
from surepipe.actors.ends.stores import lives_of
from surepipe.core.callables import require
from surepipe.core.store_requests import CommitPosition
from surepipe.storage.journal import Beside, StoreJournal
from surepipe.storage.letters import DeadLetterStream, Replay, StoredLetter

_LETTERS = "a DeadLetterStream, such as pipe.dead_letters where dead_letter is a store"


@dataclass(frozen=True, slots=True)
class Replayed:
    """How many letters were sent, and whether each was, and will have been, sent exactly once."""

    count: int
    exactly_once: bool

    def __str__(self) -> str:
        how = "exactly once" if self.exactly_once else "at least once"
        letters = "letter" if self.count == 1 else "letters"
        return f"{self.count} {letters} replayed, {how}"


class ReplayingFace(SendingFace, StartingFace):
    """Sending dead letters again. Whoever derives from this sets ``sender`` and ``_journal``."""

    _journal: StoreJournal | None

    def replay(
        self,
        letters: DeadLetterStream,
        *,
        reader: str = "replay",
        letters_max: int | None = None,
        index: int | None = None,
        timeout: float | None = None,
    ) -> Replayed:
        """Send each letter that no replay by this ``reader`` has sent yet, oldest first, as a new message.

        What was deleted is passed over. With ``index`` only that letter is sent, out of its turn, and none when it
        was sent or deleted before.

        Where the pipe has a journal in the store of the letters, a letter enters the journal in the same
        transaction in which the replay moves past it: each is sent exactly once, whatever is interrupted.
        Elsewhere one letter may be sent again after a crash: at least once. The answer says which. Another replay
        by the same reader takes over, and this one ends with an error. ``timeout`` is for each letter. A message
        that fails again has a letter of its own, which tells how often it was replayed.

        Raises what ``send`` raises, StoreUnavailable (call again), ``errors.Fenced`` (another replay took over)
        and StoreReset (the letters were made anew).
        """
        is_count = letters_max is None or (type(letters_max) is int and letters_max >= 0)
        is_index = index is None or type(index) is int
        for name, is_right, value, wanted in (
            ("letters", isinstance(cast("object", letters), DeadLetterStream), letters, _LETTERS),
            ("reader", isinstance(cast("object", reader), str) and bool(reader), reader, "a name"),
            ("letters_max", is_count, letters_max, "a whole number from 0, or None for all"),
            ("index", is_index, index, "the index of a letter, or None for those that wait"),
        ):
            require(is_right, f"replay into {self.name}: {name}", value, wanted)
        self._require_seconds(timeout)
        self.check_outside("replay")
        replay = Replay(
            letters,
            letters.store,
            reader=reader,
            number_of_life=lives_of(self.sender.runtime),
        )
        replay.begin()
        journal = self._journal
        is_exact = journal is not None and journal.can_commit_beside(letters.store)
        count = 0
        is_alone = index is not None
        while letters_max is None or count < letters_max:
            waiting = (
                letters.read(index, 1)
                if index is not None
                else replay.waiting(1 if letters_max else 256)
            )
            for stored in waiting:
                if not replay.is_waiting(stored):  # deleted meanwhile
                    continue
                number = None
                if is_exact and journal is not None:
                    position = replay.position_after(stored, alone=is_alone)
                    number = self._send_exactly_once(journal, stored, position, timeout)
                else:
                    self._send_at_least_once(stored, timeout)
                replay.done(stored, alone=is_alone)
                letters.note_sent(stored.index, self.sender.runtime.wall_ms() * 1000, number)
                count += 1
            if is_alone or not waiting:
                break
        return Replayed(count, is_exact)

    def _send_exactly_once(
        self,
        journal: StoreJournal,
        stored: StoredLetter,
        position: CommitPosition,
        timeout: float | None,
    ) -> tuple[int, int] | None:
        payload = Beside(self._payload_of(stored))
        reader = f"{position.stream}/{position.reader}"
        journal.commit_beside([payload], reader, lambda _: position)
        self.sender.intake.offer(payload, Until.ACCEPTED, timeout)
        return payload.number

    def _send_at_least_once(self, stored: StoredLetter, timeout: float | None) -> None:
        is_kept = self.sender.has_journal or not self.sender.confirms
        until = Until.ACCEPTED if is_kept else Until.CONFIRMED
        self.sender.intake.offer(self._payload_of(stored), until, timeout)

    def _payload_of(self, stored: StoredLetter) -> bytes:
        """What is sent: the payload, marked with how often it was replayed, where the pipe's bound leaves room."""
        payload = marked(stored.letter.payload, stored.replays + 1)
        if len(payload) <= self.sender.intake.message_max:
            return payload
        return guarded(stored.letter.payload)
