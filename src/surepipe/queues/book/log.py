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
from contextlib import AbstractContextManager

from surepipe.core.effects import Letter
from surepipe.core.store_requests import (
    KEEP_ALL,
    Ahead,
    AllDone,
    AppendRun,
    Batch,
    Changed,
    CommitPosition,
    Committed,
    Created,
    Empty,
    Entries,
    Exists,
    Failed,
    FencedOut,
    FoundValues,
    Gap,
    JoinedRequest,
    NoneDone,
    NoStream,
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
    Spend,
    decode,
    encode,
)
from surepipe.queues.book.checkpoint import Checkpoints
from surepipe.queues.book.config import BookConfig
from surepipe.queues.book.ledger import SHARED, Ledger
from surepipe.queues.book.page import Page
from surepipe.queues.book.service import Append, DeadMessage, Effect, Put
from surepipe.storage.letters import encode as encode_letter
from surepipe.storage.letters import name_of
from surepipe.storage.positions import Claims, number_now

READ_ENTRIES, READ_BYTES = 1_000, 4 << 20
ROWS_AT_ONCE, AT_MOST = 512, 64
"""Rows of a checkpoint for which ``checkpoint_bytes`` of log are enough. Where each message is for another queue a
checkpoint writes more than the log that it replaces, so one with more rows waits for as much more, up to so many
times as much."""
TRIES = 3
"""How often a request without an answer is repeated before the caller is told."""
_FINE = (Stored, Changed, Committed, Untouched)


class BookWrite:
    """One entry on its way into the log, with what goes with it; ``done`` is what it did, once that is known."""

    __slots__ = ("done", "entry", "failure", "others", "run")

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.run: AppendRun | None = None
        """None: nothing of it was asked of the store yet."""
        self.others: tuple[JoinedRequest, ...] = ()
        self.done: object = None
        self.failure: Exception | None = None
        """Why it is not stored and never will be, or why what it did can't be told."""


class BookLog:
    """One process's hand in a book: its ledger, and the only way to change it."""

    def __init__(
        self,
        store: Store,
        book: str,
        worker: str,
        config: BookConfig,
        *,
        monotonic: Callable[[], int],
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
        self._pending: BookWrite | None = None
        self._producer = f"{book}@{worker}"
        """Of what handlers append to streams."""
        self._claims = Claims(store, number_of_life)
        self._checkpoints = Checkpoints(store, book)
        self._since_checkpoint = 0
        self._monotonic = monotonic
        self.renewed = monotonic()
        """When the last entry that was answered had been sent: until then at least, all know that we are alive."""
        self._deaf_us = 0
        self._deaf_since: int | None = None
        self.requests = 0
        self.news = 0
        """Counts what came into the ledger while somebody looked and may give work: entries of others, and own
        ones whose answer had been lost. (Two processes that rang each other for what they spend would never rest.)
        """

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
        if self._pending is not None:
            self.news += 1
            self.settle()
        self._follow(None)

    def look(self, lock: AbstractContextManager[object]) -> None:
        """The same for who only looks. The store is asked outside of the lock; if it hangs, no others wait."""
        while True:
            with lock:
                if self._pending is not None:
                    self.follow()
                    return
                index = self.ledger.index
            self.requests += 1
            batch = self.store.read(
                self.stream, index + 1, READ_ENTRIES, READ_BYTES, self.incarnation
            )
            with lock:
                if self.ledger.index != index or isinstance(batch, Empty):
                    return  # or somebody else has heard of more meanwhile
                if not isinstance(batch, Batch):
                    self._follow(None)
                    return
                self._apply_batch(batch, None)
                if batch.next >= batch.end:
                    return

    def _follow(self, wanted: BookWrite | None) -> None:
        """Apply entries up to the end; of our own one that is wanted, note what it did."""
        while True:
            self.requests += 1
            began = self._monotonic()
            batch = self.store.read(
                self.stream, self.ledger.index + 1, READ_ENTRIES, READ_BYTES, self.incarnation
            )
            self._answered(began, batch)
            match batch:
                case Batch():
                    self._apply_batch(batch, wanted)
                    if batch.next >= batch.end:
                        return
                case Empty():
                    return
                case Trimmed() if self._checkpoints.is_ahead(self.ledger):
                    self._load()
                case _:
                    raise self._error("read the log", batch)

    def _apply_batch(self, batch: Batch, wanted: BookWrite | None) -> None:
        for run in batch.entries:
            for number, payload in enumerate(run.payloads):
                self._apply_read(run, run.first + number, payload, wanted)

    def _apply_read(
        self, run: Entries, number: int, payload: bytes, wanted: BookWrite | None
    ) -> None:
        listening = self.ledger.listening
        if (
            wanted is not None
            and wanted.run is not None
            and (run.producer, run.epoch, number) == (self.worker, self.epoch, wanted.run.first)
        ):
            wanted.done = self._apply(run.producer, run.epoch, wanted.entry, len(payload))
            return
        entry = self._entry(payload)
        is_ours = (run.producer, run.epoch) == (self.worker, self.epoch)
        self.news += not (is_ours or isinstance(entry, Beat | Checkpoint | Spend))
        self.ledger.listening = False  # events are told where the change was made
        try:
            self._apply(run.producer, run.epoch, entry, len(payload))
        finally:
            self.ledger.listening = listening

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

    def write(self, entry: Entry, effects: Iterable[Effect | CommitPosition]) -> object:
        """Add an entry with what belongs to it, and return what it did.

        Raises StoreUnavailable: it is stored or not, and the next write settles that first. Raises Fenced: this
        process was declared dead, and nothing of it is stored.
        """
        return self.finish(BookWrite(entry), effects)

    def finish(self, write: BookWrite, effects: Iterable[Effect | CommitPosition] = ()) -> object:
        """Do a write, or repeat it under its number when nobody answered; what it did."""
        if write.run is None:
            self.settle()
            run = AppendRun(
                self.stream, self.worker, self.epoch, self._seq + 1, (encode(write.entry),)
            )
            write.others = self._requests(effects)
            write.run = run
            self._pending = write
        if self._pending is write:
            self.settle()
        if write.failure is not None:
            raise write.failure
        return write.done

    def write_guarded(self, entry: Entry, guards: Iterable[JoinedRequest]) -> bool:
        """Add an entry with writes that may be refused; False when they were, and nothing is changed."""
        self.settle()
        write = self._pending = BookWrite(entry)
        write.run = AppendRun(self.stream, self.worker, self.epoch, self._seq + 1, (encode(entry),))
        write.others = tuple(guards)
        self.settle()
        return write.done is not None

    def settle(self) -> None:
        """Repeat the write whose answer was lost, if there is one."""
        write = self._pending
        if write is None or write.run is None:
            return
        run, others = write.run, write.others
        outcome: object = None
        began = self._monotonic()
        for _ in range(TRIES):
            self.requests += 1
            asked = self._monotonic()
            if others:
                joined = self.store.ask(Together((run, *others), is_decided=True))
                self._answered(asked, joined)
                outcome = joined.outcomes[0] if isinstance(joined, AllDone) else joined
                if isinstance(joined, NoneDone):
                    outcome = joined.outcomes[0]
                    if isinstance(outcome, Stored):
                        self._pending = None
                        if isinstance(write.entry, Checkpoint):
                            return  # another process has made a later one
                        lost = [each for each in joined.outcomes if isinstance(each, FencedOut)]
                        if lost:
                            raise self._failed(
                                write,
                                Fenced(
                                    f"book {self.book!r}: a place that belongs to this change has another owner "
                                    f"now, {lost[0].by}; nothing is changed"
                                ),
                            )
                        refused = [each for each in joined.outcomes if not isinstance(each, _FINE)]
                        raise self._failed(
                            write,
                            ConfigurationError(
                                f"book {self.book!r}: the store refused what a handler has staged, so its "
                                f"message is not done: {refused}"
                            ),
                        )
            else:
                outcome = self.store.append(
                    run.stream, run.producer, run.epoch, run.first, run.payloads
                )
                self._answered(asked, outcome)
            if isinstance(outcome, Stored):
                self.renewed = began
                self._stored(write, run, outcome)
                self._pending = None
                return
            if isinstance(outcome, FencedOut | Failed | Gap):
                self._pending = None
                raise self._failed(write, self._error("add to the log", outcome))
        raise self._error("add to the log", outcome)

    @staticmethod
    def _failed(write: BookWrite, error: Exception) -> Exception:
        write.failure = error
        return error

    def _stored(self, write: BookWrite, run: AppendRun, outcome: Stored) -> None:
        self._seq = run.first
        for other in write.others:
            if isinstance(other, AppendRun) and other.producer == self._producer:
                self._staged[other.stream] = other.last
        if outcome.new and outcome.first_index == self.ledger.index + 1:
            write.done = self._apply(self.worker, self.epoch, write.entry, len(run.payloads[0]))
        elif write.done is None:
            self._follow(write)
        if write.done is None:
            # 1. The entry is stored. 2. Another process applies it, makes a checkpoint and trims the log. 3. This
            # one, which was slow, finds the checkpoint in place of its entry, and can't say what it did.
            self._pending = None
            raise self._failed(
                write,
                StoreUnavailable(
                    f"book {self.book!r}: a change is stored, and what it did can't be told any more; look before "
                    "you repeat it"
                ),
            )

    def _requests(self, effects: Iterable[Effect | CommitPosition]) -> tuple[JoinedRequest, ...]:
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
                case CommitPosition():
                    letters.append(effect)
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
        """What a handler has put under the key and committed. A commit that nobody answered is settled first."""
        if self._pending is not None:
            self.news += 1
            self.settle()
        found = self.store.ask(ReadKeys(f"{self.book}/values", (key.encode(),)))
        if not isinstance(found, FoundValues):
            raise self._error("read a value", found)
        return found.values[0]

    # Others.

    @property
    def hearing(self) -> int:
        """Microseconds for which this process could have heard of others. While its store didn't answer, nobody's
        silence says that he is dead: each would end the others' claims after every outage."""
        return self._monotonic() - self._deaf_us

    def _answered(self, began: int, outcome: object) -> None:
        """Take note of how long an answer took, or of one that didn't come."""
        since = began if self._deaf_since is None else self._deaf_since
        if isinstance(outcome, Unavailable):
            self._deaf_since = since
        else:
            self._deaf_us += self._monotonic() - since
            self._deaf_since = None

    def declare_dead(self, worker: str, wall: int) -> None:
        """End the claims of a process that was silent for too long: first the store refuses it, then all know."""
        epoch = self.lives.get(worker, 0) | 1
        opened = self.store.open_producer(self.stream, worker, epoch, 1)
        if isinstance(opened, FencedOut):
            # It has begun a new life; or its entries were trimmed before this process began, which does not know
            # the number of its life. If it is silent for another lease, that one ends.
            self.lives[worker] = max(opened.by, self.lives.get(worker, 0))
            self.follow()
            return
        if not isinstance(opened, ProducerOpened):
            raise self._error(f"end the claims of {worker!r}", opened)
        self.follow()  # the life that is over adds nothing more, so all of it is known now
        if self.lives.get(worker, 0) <= epoch:  # else a later one has ended the claims itself
            self.write(Gone(wall, worker, epoch, self.ledger.index), ())

    def beat(self, wall: int) -> None:
        """Let the others hear of this process."""
        self.write(Beat(wall), ())

    # Checkpoints.

    def checkpoint_if_due(self, wall: int) -> bool:
        """Write down what the log came to and remove it, when it has grown enough since the last time."""
        rows = len(self.ledger.dirty) + len(self.ledger.dirty_pages)
        if self._since_checkpoint < self.config.checkpoint_bytes * min(
            AT_MOST, max(1, rows // ROWS_AT_ONCE)
        ):
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

    def load_page(self, generation: int, number: int, page: Page) -> None:
        """Bring back the bytes of one page, or of its copy."""
        self._checkpoints.load_page(generation, number, page)

    def _error(self, what: str, outcome: object) -> Exception:
        text = f"book {self.book!r} in {called(self.store)}: could not {what}"
        match outcome:
            case FencedOut(by):
                return Fenced(
                    f"{text}: {self.worker!r} was declared dead (another process has not heard of it for "
                    f"its lease_s) or began a later life ({by}); start it anew, what it had claimed is "
                    "served by others"
                )
            case Reset() | Ahead() | Gap() | Trimmed():
                return StoreReset(f"{text}: the store lost what it had acknowledged ({outcome})")
            case NoStream(reason):
                return StoreReset(f"{text}: the book is gone ({reason})")
            case Failed(reason):
                return ConfigurationError(f"{text}: {reason}")
            case _:
                return StoreUnavailable(
                    f"{text}: no answer ({outcome}); it is done or not, try again"
                )
