"""The log of a book in a store: how changes are added to it, and how a process keeps up with it.

``<book>/log`` is a stream, and each process of the book is a producer of it, so an entry whose answer was lost is
repeated under its number and stored once. The producer's epoch is the life of the process: whoever declares a
process dead opens its next epoch, and from then on the store refuses whatever the dead one may still write. What
a handler has staged is written together with the entry that ends its message, all or nothing.

An entry counts where it stands in the stream. Mostly nobody else has written meanwhile, and the answer to the
append shows it; else what came in between is read and applied first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from surepipe.core.effects import Letter
from surepipe.core.store_requests import (
    KEEP_ALL,
    Ahead,
    AllDone,
    AppendRun,
    Batch,
    Changed,
    Committed,
    Created,
    Empty,
    Exists,
    Failed,
    FencedOut,
    FoundValues,
    Gap,
    JoinedRequest,
    NoneDone,
    Owner,
    ProducerOpened,
    PutValues,
    ReadKeys,
    Reset,
    Store,
    Stored,
    Together,
    Trimmed,
    Unavailable,
    Untouched,
    called,
)
from surepipe.errors import ConfigurationError, Fenced, StoreReset, StoreUnavailable
from surepipe.queues.book.changes import (
    Beat,
    Checkpoint,
    Entry,
    EntryCorrupt,
    Founded,
    Gone,
    decode,
    encode,
)
from surepipe.queues.book.checkpoint import Checkpoints
from surepipe.queues.book.config import BookConfig
from surepipe.queues.book.ledger import SHARED, Ledger
from surepipe.queues.book.service import Append, DeadMessage, Effect, Put
from surepipe.storage.letters import encode as encode_letter
from surepipe.storage.letters import name_of
from surepipe.storage.positions import Claims, number_now

READ_ENTRIES, READ_BYTES = 1_000, 4 << 20
ROWS_AT_ONCE = 2_048
"""Rows of a checkpoint for which ``checkpoint_bytes`` of log are enough. Where each message is for another queue a
checkpoint writes more than the log that it replaces, so one with more rows waits for as much more."""
TRIES = 3
"""How often a request without an answer is repeated before the caller is told."""
_Pending: TypeAlias = tuple[Entry, AppendRun, tuple[JoinedRequest, ...]]


_FINE = (Stored, Changed, Committed, Untouched)


class BookLog:
    """One process's hand in a book: its ledger, and the only way to change it."""

    def __init__(
        self,
        store: Store,
        book: str,
        worker: str,
        config: BookConfig,
        *,
        number_of_life: Callable[[], int] = number_now,
    ) -> None:
        self.store = store
        self.book = book
        self.worker = worker
        self.config = config
        self.ledger = Ledger(config)
        self.stream = f"{book}/log"
        self.incarnation = 0
        self.epoch = 0
        self.heard: dict[str, int] = {}
        """Entries that were read of each worker, so that a silent one can be told."""
        self.lives: dict[str, int] = {}
        self._seq = 0
        self._staged: dict[str, int] = {}
        """How many messages this life has appended to each stream."""
        self._pending: _Pending | None = None
        self._producer = f"{book}@{worker}"
        """Of what handlers append to streams."""
        self._claims = Claims(store, number_of_life)
        self._checkpoints = Checkpoints(store, book)
        self._since_checkpoint = 0
        self.requests = 0

    # Opening.

    def open(self, wall: int) -> None:
        """Take the worker's name for this life and read the book.

        Raises StoreUnavailable, Fenced (a life that began later has the name) and ConfigurationError (other
        processes of the book have other settings).
        """
        made = self.store.create(self.stream, 1, KEEP_ALL)
        if not isinstance(made, Created | Exists):
            raise self._error("make the log", made)
        self.incarnation = made.incarnation
        claimed = self._claims.claim(f"{self.book}/workers", self.worker, 1)
        if not isinstance(claimed, Owner):
            raise self._error(f"take the name {self.worker!r}", claimed)
        self.epoch = 2 * claimed.number  # the odd ones are for those who declare it dead
        opened = self.store.open_producer(self.stream, self.worker, self.epoch, 1)
        if not isinstance(opened, ProducerOpened):
            raise self._error("open the log", opened)
        self._seq = opened.last
        self._load()
        self.follow()
        if self.ledger.founded is None:
            settings = tuple((name, getattr(self.config, name)) for name in SHARED)
            self.write(Founded(wall, settings), ())
        self._check_settings()
        if self.ledger.leased.get(self.worker) or self.worker in self.ledger.taken.values():
            self.write(
                Gone(wall, self.worker, self.epoch - 1), ()
            )  # what an earlier life had claimed

    def _check_settings(self) -> None:
        founded = self.ledger.founded or {}
        differ = [
            f"{name} is {founded[name]} there and {getattr(self.config, name)} here"
            for name in SHARED
            if name in founded and founded[name] != getattr(self.config, name)
        ]
        if differ:
            raise ConfigurationError(
                f"book {self.book!r} in {called(self.store)} was made with other settings: {'; '.join(differ)}; "
                "all processes of a book need the same"
            )

    def _load(self) -> None:
        self.ledger.reset()
        self._checkpoints.load(self.ledger)

    # Reading.

    def follow(self) -> None:
        """Apply what others have written. Raises StoreUnavailable, StoreReset and Fenced."""
        self.settle()
        self._follow(None)

    def _follow(self, wanted: tuple[Entry, int] | None) -> object:
        """Apply entries up to the end; of our own entry with this number, what it did."""
        found: object = None
        while True:
            self.requests += 1
            batch = self.store.read(
                self.stream, self.ledger.index + 1, READ_ENTRIES, READ_BYTES, self.incarnation
            )
            match batch:
                case Batch(entries):
                    for run in entries:
                        for number, payload in enumerate(run.payloads):
                            mine = run.producer == self.worker and run.epoch == self.epoch
                            is_wanted = (
                                mine and wanted is not None and run.first + number == wanted[1]
                            )
                            entry = wanted[0] if is_wanted and wanted else self._entry(payload)
                            self.ledger.listening, listening = (
                                self.ledger.listening and is_wanted,
                                self.ledger.listening,
                            )
                            done = self._apply(run.producer, run.epoch, entry, len(payload))
                            self.ledger.listening = listening
                            found = done if is_wanted else found
                    if batch.next >= batch.end:
                        return found
                case Empty():
                    return found
                case Trimmed() if self._checkpoints.is_ahead(self.ledger):
                    self._load()
                case _:
                    raise self._error("read the log", batch)

    def _entry(self, payload: bytes) -> Entry:
        try:
            return decode(payload)
        except EntryCorrupt as error:
            raise StoreReset(
                f"book {self.book!r}: entry {self.ledger.index + 1} of its log can't be read ({error}); "
                "nothing behind it is served"
            ) from error

    def _apply(self, writer: str, epoch: int, entry: Entry, size: int) -> object:
        self.heard[writer] = self.heard.get(writer, 0) + 1
        self.lives[writer] = max(epoch, self.lives.get(writer, 0))
        self._since_checkpoint += size
        return self.ledger.apply(writer, self.ledger.index + 1, entry)

    # Writing.

    def write(self, entry: Entry, effects: Iterable[Effect]) -> object:
        """Add an entry with what belongs to it, and return what it did.

        Raises StoreUnavailable: it is stored or not, and the next write settles that first. Raises Fenced: this
        process was declared dead, and nothing of it is stored.
        """
        self.settle()
        payload = encode(entry)
        run = AppendRun(self.stream, self.worker, self.epoch, self._seq + 1, (payload,))
        self._pending = (entry, run, self._requests(effects))
        return self.settle()

    def write_guarded(self, entry: Entry, guards: Iterable[JoinedRequest]) -> bool:
        """Add an entry with writes that may be refused; False when they were, and nothing is changed."""
        self.settle()
        run = AppendRun(self.stream, self.worker, self.epoch, self._seq + 1, (encode(entry),))
        self._pending = (entry, run, tuple(guards))
        return self.settle() is not None

    def settle(self) -> object:
        """Repeat the write whose answer was lost, if there is one, and return what it did."""
        if self._pending is None:
            return None
        entry, run, others = self._pending
        outcome: object = None
        for _ in range(TRIES):
            self.requests += 1
            if others:
                joined = self.store.ask(Together((run, *others), is_decided=True))
                outcome = joined.outcomes[0] if isinstance(joined, AllDone) else joined
                if isinstance(joined, NoneDone):
                    outcome = joined.outcomes[0]
                    if isinstance(outcome, Stored):
                        self._pending = None
                        if isinstance(entry, Checkpoint):
                            return None  # another process has made a later one
                        refused = [each for each in joined.outcomes if not isinstance(each, _FINE)]
                        raise ConfigurationError(
                            f"book {self.book!r}: the store refused what a handler has staged, so its message "
                            f"is not done: {refused}"
                        )
            else:
                outcome = self.store.append(
                    run.stream, run.producer, run.epoch, run.first, run.payloads
                )
            if isinstance(outcome, Stored):
                return self._stored(entry, run, others, outcome)
            if isinstance(outcome, FencedOut | Failed | Gap):
                self._pending = None
                break
        raise self._error("add to the log", outcome)

    def _stored(
        self, entry: Entry, run: AppendRun, others: tuple[JoinedRequest, ...], outcome: Stored
    ) -> object:
        self._pending = None
        self._seq = run.first
        for other in others:
            if isinstance(other, AppendRun) and other.producer == self._producer:
                self._staged[other.stream] = other.last
        if outcome.new and outcome.first_index == self.ledger.index + 1:
            return self._apply(self.worker, self.epoch, entry, len(run.payloads[0]))
        done = self._follow((entry, run.first))
        if done is None:
            # 1. The entry is stored. 2. Another process applies it, makes a checkpoint and trims the log. 3. This
            # one, which was slow, finds the checkpoint in place of its entry, and can't say what it did.
            raise StoreUnavailable(
                f"book {self.book!r}: a change is stored, and what it did can't be told any more; look before you "
                "repeat it"
            )
        return done

    def _requests(self, effects: Iterable[Effect]) -> tuple[JoinedRequest, ...]:
        values: dict[bytes, bytes] = {}
        appends: dict[str, list[bytes]] = {}
        letters: list[JoinedRequest] = []
        for effect in effects:
            match effect:
                case Put(key, value):
                    values[key.encode()] = value
                case Append(stream, payload):
                    appends.setdefault(stream, []).append(payload)
                case DeadMessage():
                    letters.append(self._letter(effect))
        found: list[JoinedRequest] = []
        for stream, payloads in appends.items():
            first = self._staged.get(stream, 0) + 1
            found.append(AppendRun(stream, self._producer, self.epoch, first, tuple(payloads)))
        found += letters
        if values:
            found.append(PutValues(f"{self.book}/values", values))
        return tuple(found)

    def _letter(self, dead: DeadMessage) -> AppendRun:
        """The letter of a message; its identity is (origin, generation, number), whoever writes it."""
        stream = f"{self.book}/dead"
        self.make_stream(stream)
        letter = Letter(
            *(
                f"{self.book}@{dead.origin}",
                0,
                dead.generation,
                dead.number,
                dead.payload,
                dead.attempts,
            ),
            *(dead.at, dead.at, dead.kind, dead.text),
            producer=dead.address,
            traceback=dead.traceback,
        )
        return AppendRun(stream, name_of(letter), 1, 1, (encode_letter(letter),))

    def make_stream(self, stream: str) -> None:
        """Let there be a stream that handlers append to."""
        if stream in self._staged:
            return
        made = self.store.create(stream, 1, KEEP_ALL)
        if isinstance(made, Failed | Unavailable):
            raise self._error(f"make the stream {stream!r}", made)
        self._staged[stream] = 0

    def value(self, key: str) -> bytes | None:
        """What a handler has put under the key and committed."""
        found = self.store.ask(ReadKeys(f"{self.book}/values", (key.encode(),)))
        if not isinstance(found, FoundValues):
            raise self._error("read a value", found)
        return found.values[0]

    # Others.

    def declare_dead(self, worker: str, wall: int) -> None:
        """End the claims of a process that was silent for too long: first the store refuses it, then all know."""
        epoch = self.lives.get(worker, 0) | 1
        opened = self.store.open_producer(self.stream, worker, epoch, 1)
        if isinstance(opened, FencedOut):
            self.follow()  # it has begun a new life already
            return
        if not isinstance(opened, ProducerOpened):
            raise self._error(f"end the claims of {worker!r}", opened)
        self.write(Gone(wall, worker, epoch), ())

    def beat(self, wall: int) -> None:
        """Let the others hear of this process."""
        self.write(Beat(wall), ())

    # Checkpoints.

    def checkpoint_if_due(self, wall: int) -> bool:
        """Write down what the log came to and remove it, when it has grown enough since the last time."""
        rows = len(self.ledger.dirty) + len(self.ledger.dirty_pages)
        if self._since_checkpoint < self.config.checkpoint_bytes * max(1, rows // ROWS_AT_ONCE):
            return False
        self._since_checkpoint = 0
        try:
            entry, requests = self._checkpoints.written(self.ledger, wall)
            if self.write_guarded(entry, requests):
                self.store.trim(self.stream, entry.through + 1)
                self._checkpoints.forget_bytes(self.ledger)
        except StoreUnavailable:
            return False  # what the caller did is stored; the next write settles this one
        return True

    def load_pages(self, origin: str, numbers: tuple[int, ...]) -> None:
        """Bring back the bytes of these pages."""
        book = self.ledger.books[origin]
        for number in numbers:
            self._checkpoints.load_page(book.generation, number, book.pages[number])

    def _error(self, what: str, outcome: object) -> Exception:
        text = f"book {self.book!r} in {called(self.store)}: could not {what}"
        match outcome:
            case FencedOut(by):
                return Fenced(
                    f"{text}: {self.worker!r} was declared dead or began a later life ({by}); start it anew, "
                    "what it had claimed is served by others"
                )
            case Reset() | Ahead() | Gap() | Trimmed():
                return StoreReset(f"{text}: the store lost what it had acknowledged ({outcome})")
            case Failed(reason) if "does not exist" in reason:
                return StoreReset(f"{text}: the book is gone ({reason})")
            case Failed(reason):
                return ConfigurationError(f"{text}: {reason}")
            case _:
                return StoreUnavailable(
                    f"{text}: no answer ({outcome}); it is done or not, try again"
                )
