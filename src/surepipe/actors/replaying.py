"""Replaying dead letters: each goes into a pipe as a new message, from where an earlier replay stopped."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

from surepipe.actors.codecs import CodecChoice, guarded, marked
from surepipe.actors.ends.face import LettersFace, SendingFace, StartingFace
from surepipe.actors.ends.intake import Until
from surepipe.actors.ends.stores import lives_of
from surepipe.core.callables import require
from surepipe.core.store_requests import CommitPosition
from surepipe.errors import NotConfirmed, PipeFull, SurepipeError
from surepipe.storage.journal import Beside, StoreJournal
from surepipe.storage.letters import DeadLetterStream, Replay, StoredLetter

_LETTERS = "a DeadLetterStream, such as pipe.dead_letters where dead_letter is a store"


@dataclass(frozen=True, slots=True)
class Replayed:
    """How many letters were sent, and whether each was, and will have been, sent exactly once. ``readers``: who is
    registered as reading the stream that they went into, and gets each of them. ``left_out``: why the one letter
    that was asked for was not sent; empty when it was, and where none was asked for."""

    count: int
    exactly_once: bool
    readers: tuple[str, ...] = ()
    left_out: str = ""

    def __str__(self) -> str:
        if self.left_out:
            return f"no letter replayed: {self.left_out}"
        how = "exactly once" if self.exactly_once else "at least once"
        letters = "letter" if self.count == 1 else "letters"
        is_shared = self.count and len(self.readers) > 1
        to = f", to each reader of the stream: {', '.join(self.readers)}" if is_shared else ""
        return f"{self.count} {letters} replayed, {how}{to}"


class _Turns:
    """Replays into one pipe take turns: a letter of one is stored or refused before another one takes over.

    1. A replay sends letter 1. 2. Another one begins with letter 1 before that is stored. 3. Both are in one
    write, which is refused, and what else was sent meanwhile with it.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._latest: dict[str, Replay] = {}

    def begin(self, replay: Replay, timeout: float | None) -> None:
        """Let this replay take over. Raises PipeFull when its turn does not come in time, and what beginning
        raises."""
        with self._locked(timeout):
            replay.begin()
            self._latest[replay.name] = replay

    @contextmanager
    def of(self, replay: Replay, timeout: float | None) -> Generator[None]:
        """The turn of this replay. Raises PipeFull when it does not come in time, Fenced when another one has
        begun."""
        with self._locked(timeout):
            latest = self._latest[replay.name]
            if latest is not replay:
                raise replay.taken_over(latest.owner)
            yield

    @contextmanager
    def _locked(self, timeout: float | None) -> Generator[None]:
        if not self._lock.acquire(timeout=-1 if timeout is None else max(0, timeout)):
            raise PipeFull("another replay into this pipe waits for room; no letter was sent")
        try:
            yield
        finally:
            self._lock.release()


class ReplayingFace(SendingFace, StartingFace, LettersFace):
    """Sending dead letters again. Whoever derives from this sets ``sender`` and ``_journal``."""

    _journal: StoreJournal | None

    def __init__(self, name: str, codec: CodecChoice) -> None:
        super().__init__(name, codec)
        self._turns = _Turns()

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
        was sent or deleted before: ``left_out`` of the answer says which.

        Over a stream every reader gets it, also those that had the message already: ``readers`` of the answer. A
        handler of theirs has to know what it has had; or send the letters into a stream of their own.

        Where the pipe has a journal in the store of the letters, a letter enters the journal in the same
        transaction in which the replay moves past it: each is sent exactly once, whatever is interrupted.
        Elsewhere one letter may be sent again after a crash: at least once. The answer says which. Another replay
        by the same reader takes over, and this one ends with an error. ``timeout`` is for each letter. A message
        that fails again has a letter of its own, which tells how often it was replayed.

        Raises what ``send`` raises, StoreUnavailable (call again), ``errors.Fenced`` (another replay took over),
        StoreReset (the letters were made anew) and LookupError (there is no letter of that index).
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
        if index is not None and letters.show(index) is None:
            raise LookupError(f"{letters.stream} has no letter {index}; they count from 1")
        replay = Replay(
            letters,
            letters.store,
            reader=reader,
            number_of_life=lives_of(self.sender.runtime),
        )
        self._turns.begin(replay, timeout)
        count, left_out = 0, ""
        journal = self._journal
        if journal is not None and not journal.can_commit_beside(letters.store):
            journal = None
        is_alone = index is not None
        while letters_max is None or count < letters_max:
            waiting = (
                letters.read(index, 1)
                if index is not None
                else replay.waiting(1 if letters_max else 256)
            )
            for stored in waiting:
                with self._turns.of(replay, timeout):
                    count += self._replay_one(journal, replay, stored, timeout, alone=is_alone)
            if index is not None and not count:
                left_out = replay.why_not(index)
            if is_alone or not waiting:
                break
        readers = self.sender.read_by() if count else ()
        return Replayed(count, journal is not None, readers, left_out)

    def _replay_one(
        self,
        journal: StoreJournal | None,
        replay: Replay,
        stored: StoredLetter,
        timeout: float | None,
        *,
        alone: bool,
    ) -> bool:
        """Send a letter; False when there is nothing to send, as it was deleted meanwhile. ``journal``: where its
        position is stored in one step with it."""
        if not replay.is_waiting(stored):
            return False
        number = None
        if journal is not None:
            position = replay.position_after(stored, alone=alone)
            number = self._send_exactly_once(journal, replay, stored, position, timeout)
        else:
            self._send_at_least_once(stored, timeout)
        replay.done(stored, alone=alone)
        replay.letters.note_sent(stored.index, self.sender.runtime.wall_ms() * 1000, number)
        return True

    def _send_exactly_once(
        self,
        journal: StoreJournal,
        replay: Replay,
        stored: StoredLetter,
        position: CommitPosition,
        timeout: float | None,
    ) -> tuple[int, int] | None:
        """Send it again where it was refused for what a replay before this one had still under way."""
        while True:
            payload = Beside(self._payload_of(stored))
            journal.taken_over.pop(replay.name, None)
            journal.commit_beside([payload], replay.name, lambda _: position)
            try:
                self.sender.intake.offer(payload, Until.ACCEPTED, timeout)
            except NotConfirmed:
                raise  # it is under way, and may yet be stored
            except SurepipeError:
                journal.withdraw_beside([payload])
                owner = journal.taken_over.get(replay.name)
                if owner is None:
                    raise
                if owner != replay.owner:
                    raise replay.taken_over(owner) from None
            else:
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
