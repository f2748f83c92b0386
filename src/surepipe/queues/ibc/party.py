"""A party: one ledger with its store, its keys and its modules, which executes calls in blocks and signs their
roots.

Each call is executed on an open block, and is stored with it or leaves no trace. A block is stored first, then its
header is signed, then the signed header is stored for relays to find: so nobody ever sees a header whose block
could still be lost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from surepipe.core.store_requests import (
    KEEP_ALL,
    AppendRun,
    Created,
    Exists,
    Level,
    Store,
    Stored,
    StreamInfo,
    Unavailable,
    called,
)
from surepipe.errors import ConfigurationError, MisuseError, StoreReset, StoreUnavailable
from surepipe.queues.ibc.calls import CallOutcome, Item, Submission, SubmissionOutcome
from surepipe.queues.ibc.headers import (
    NAME,
    Client,
    Header,
    HeaderOutcome,
    SignedHeader,
    TrustRoot,
)
from surepipe.queues.ibc.keys import GENESIS_KEY, QueueKey, QueueKind
from surepipe.queues.ibc.ledger import HEADERS, Ledger
from surepipe.queues.ibc.merkle_store import KEEP_BYTES, IbcRefused, MerkleStore, Version
from surepipe.queues.ibc.merkle_store import SPACE as SPACE_NAME
from surepipe.queues.ibc.module import (
    Fail,
    MessageType,
    OnCommit,
    OnRaise,
    OnReceive,
    OnRollback,
    Sending,
    Transaction,
    check_plain,
)
from surepipe.queues.ibc.proof import MerkleProof, ProofError
from surepipe.queues.ibc.queue import SPACE
from surepipe.queues.ibc.signer import RUN_MAX, Signer, signer_of
from surepipe.queues.ibc.transitions import (
    BLOCK_BYTES,
    CALL_BYTES_MAX,
    CONNECTIONS_ROW,
    Connection,
    ConnectionState,
    Evidence,
    OpenBlock,
    PartyLimits,
    TimeoutRule,
    connections_of,
)
from surepipe.storage import MemoryStore, open_store
from surepipe.storage.positions import number_now

T = TypeVar("T")
TRUSTING_PERIOD_S = 14 * 24 * 3600.0
QUEUES: tuple[QueueKind, QueueKind] = ("send", "receipt")
TRIM_EVERY = 64
"""After so many blocks streams are trimmed."""
HEADERS_MAX = 100_000
"""So many headers are kept at the most for a message that waits: about 30 MB. Without its header a message
is taken to be as old as the oldest one."""
_EXECUTING: set[object] = set()
"""Where application code of any party runs now."""


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def _monotonic_us() -> int:
    return time.monotonic_ns() // 1_000


class BlockClock:
    """Times of blocks: the wall clock's, and always above the last.

    A clock that is set back goes on slowly (a tenth of the time that passes) until it is caught up with. One that
    jumps ahead by ``jump_ms`` or more is not believed: other parties would take all headers before for too old.
    """

    def __init__(self, wall_ms: Callable[[], int], monotonic_us: Callable[[], int]) -> None:
        self._wall_ms, self._monotonic_us = wall_ms, monotonic_us
        self._last: tuple[int, int] | None = None
        """Time of the last block, and when this process first saw it."""
        self._accepted = False

    def accept(self) -> None:
        """Believe the wall clock once, whatever it says: an operator has looked at it."""
        self._accepted = True

    def elapsed_ms(self, last_ms: int) -> int:
        """Since this process first saw the last block."""
        now = self._monotonic_us()
        if self._last is None or self._last[0] != last_ms:
            self._last = last_ms, now
        return (now - self._last[1]) // 1_000

    def next_ms(self, last_ms: int, jump_ms: int) -> int:
        """The time of the block after one of this time. Raises IbcRefused ``clock-jump``."""
        wall, elapsed = self._wall_ms(), self.elapsed_ms(last_ms)
        if last_ms and wall - last_ms - elapsed >= jump_ms and not self._accepted:
            raise IbcRefused(
                "clock-jump",
                f"the clock is {(wall - last_ms - elapsed) / 1000:.0f} s ahead of the last block: look at it, "
                "then call accept_time()",
            )
        self._accepted = False
        return wall if wall > last_ms else last_ms + max(1, elapsed // 10)


class Module:
    """What application code may do at a party: holding it is the permission. It owns the space of its name."""

    def __init__(self, party: Party, name: str) -> None:
        self._party = party
        self.name = name

    def handle(
        self,
        type: str,
        *,
        on_receive: OnReceive | None = None,
        on_commit: OnCommit | None = None,
        on_rollback: OnRollback | None = None,
        senders: Sequence[str] = (),
        may_defer: bool = False,
        on_callback_error: OnRaise = "stop",
    ) -> None:
        """Claim a type of messages. ``senders`` are other modules that may send it.

        ``on_receive(tx, data)`` returns bytes, ``Fail(code)`` or, with ``may_defer``, ``DEFER``; what it raises is
        told to the sender as an error. ``on_commit(tx, data, result)`` or ``on_rollback(tx, data, code, result)``
        runs when the result is back. If one of these raises, the queue stands (``"stop"``) or the call is parked
        (``"park"``). All of them may be called again after a crash, so they touch nothing but ``tx``. Raises
        MisuseError.
        """
        known = MessageType(
            type,
            self.name,
            on_receive,
            on_commit,
            on_rollback,
            frozenset(senders),
            may_defer,
            on_callback_error,
        )
        self._party.claim(known)

    def send(
        self,
        connection: str,
        type: str,
        data: bytes,
        *,
        timeout_height: int = 0,
        timeout_ms: int = 0,
        timeout_after_s: float | None = None,
    ) -> int:
        """Send a message, and return its index when it is stored.

        Limits are on the other party's height and time; ``timeout_after_s`` counts from now. Raises IbcRefused,
        and StoreUnavailable when nobody knows whether it was stored.
        """
        sending = Sending(type, data, timeout_height, timeout_ms, timeout_after_s)
        return self.send_many(connection, [sending])[0]

    def send_many(self, connection: str, messages: Sequence[Sending]) -> list[int]:
        """Send several in one block, all or none."""

        def act(tx: Transaction) -> list[int]:
            return [tx.push(connection, each) for each in messages]

        return self._party.execute(self.name, act)

    def execute(self, work: Callable[[Transaction], T]) -> T:
        """Run a function as one call: what it sets and sends is stored together, and nothing when it raises."""
        check_plain(work)
        return self._party.execute(self.name, work)

    def get(self, key: bytes) -> bytes | None:
        """The value in the module's space as of the latest block."""
        return self._party.get(self.name, key)

    def acknowledge(self, connection: str, index: int, result: bytes | Fail) -> None:
        """Answer a message whose handler returned ``DEFER``. Raises IbcRefused."""
        self._party.acknowledge(self.name, connection, index, result)


class Party:
    """One ledger of messages. Any number of threads may call; one process at a time owns it, the one that opened
    it last, and the one before gets Fenced at its next call.

    ``store`` is a store or its address; without one it is in memory. ``keys`` is the file of its private keys,
    made at the first start: keep it, and the guard beside it, where only this process reads. What raises
    StoreUnavailable is done or not, and the next call finds out.
    """

    def __init__(
        self,
        name: str,
        *,
        store: Store | str | None = None,
        keys: str | Path | Sequence[bytes] | Signer | None = None,
        trusting_period_s: float = TRUSTING_PERIOD_S,
        limits: PartyLimits | None = None,
        idle_block_s: float = 5.0,
        keep_heights: int | None = 256,
        keep_bytes: int = KEEP_BYTES,
        check: bool = False,
        adopt: bool = False,
        clock: Callable[[], int] = _wall_ms,
        monotonic: Callable[[], int] = _monotonic_us,
        lock: AbstractContextManager[object] | None = None,
        here: Callable[[], object] = threading.get_ident,
        number_of_life: Callable[[], int] = number_now,
    ) -> None:
        """Open the ledger, which is made at its first use. ``check`` executes each call twice and refuses it when
        the second time differs. ``keep_heights`` versions, blocks of the log and what proves them are kept, and
        those of the last ten minutes, as far as their trees take ``keep_bytes`` (None: all, for audits). ``adopt``
        goes on with a store whose guard file is lost. ``clock`` gives milliseconds since 1970, ``monotonic``
        microseconds. Raises ConfigurationError, IbcRefused, StoreUnavailable, Fenced."""
        if not NAME.fullmatch(name):
            raise MisuseError(
                f"{name!r} is no name of a party: give 2 to 64 of A-Z a-z 0-9 . _ + - # [ ] < >"
            )
        self.name = name
        self.limits = limits or PartyLimits()
        self._owned = open_store(store, name) if isinstance(store, str) else None
        self.store: Store = self._owned or (MemoryStore() if store is None else store)  # type: ignore[assignment]
        if keys is None and self.store.level > Level.NONE:
            raise ConfigurationError(
                f"party {name!r} is kept in a store that outlives it, so its keys have to as well: give keys=PATH"
            )
        self.signer = signer_of(keys)
        self._period_ms = round(trusting_period_s * 1000)
        self._idle_ms = round(idle_block_s * 1000)
        self._checks = check
        self._clock = BlockClock(clock, monotonic)
        self._lock = lock or threading.RLock()
        self._here = here
        self._modules: dict[str, Module] = {}
        self._types: dict[str, MessageType] = {}
        self._connections: dict[str, Connection] | None = None
        self._positions: dict[str, int] = {}
        self._signed = 0
        self._is_closed = False
        self._trims = keep_heights is not None
        self.merkle = MerkleStore(
            self.store,
            number_of_life=number_of_life,
            keep_heights=keep_heights,
            keep_bytes=keep_bytes,
        )
        self.view = Ledger(self.store)
        """What others see of it."""
        self.on_block: Callable[[Version, OpenBlock], None] | None = None
        """Told of each block of this process, after it was stored."""
        self._begin(adopt=adopt)

    # Opening.

    def _begin(self, *, adopt: bool) -> None:
        version = self.merkle.open()
        made = self.store.create(HEADERS, 1, KEEP_ALL)
        if not isinstance(made, Created | Exists):
            raise StoreUnavailable(f"{called(self.store)}: could not make {HEADERS!r}: {made}")
        if version.height == 0:
            if self.signer.newest:
                raise IbcRefused(
                    "signer-guard",
                    f"{self.name!r} has signed height {self.signer.newest}, and its store is empty",
                )
            self._call(lambda block: block.set(SPACE, GENESIS_KEY, b"\1" + self.name.encode()))
            return
        found = self.merkle.get(SPACE, GENESIS_KEY)
        if found != b"\1" + self.name.encode():
            raise IbcRefused(
                "wrong-party", f"the store is of party {(found or b'?')[1:].decode()!r}"
            )
        info = self.store.info(HEADERS)
        if not isinstance(info, StreamInfo):
            raise StoreUnavailable(f"{called(self.store)}: could not read {HEADERS!r}: {info}")
        self._signed = info.next - 1
        if self.signer.newest > version.height or (
            self.signer.is_guarded and self._signed and not self.signer.newest and not adopt
        ):
            raise IbcRefused(
                "signer-guard",
                f"{self.name!r} remembers that it signed height {self.signer.newest}, and its store has "
                f"{version.height} blocks and {self._signed} headers: one of them was lost",
            )
        self.sign()

    # Blocks.

    @contextmanager
    def _entered(self) -> Generator[None]:
        if self._here() in _EXECUTING:
            raise IbcRefused(
                "reentrant-call", "a handler changes its party by its transaction only"
            )
        with self._lock:
            if self._is_closed:
                raise MisuseError(f"party {self.name!r} is closed")
            yield

    def _executing(self, begins: bool) -> None:
        (_EXECUTING.add if begins else _EXECUTING.discard)(self._here())
        self._handler_at = self._here() if begins else None

    _handler_at: object = None

    def _check_caller(self) -> None:
        if self._handler_at is not None and self._here() != self._handler_at:
            raise IbcRefused("reentrant-call", "a transaction belongs to the thread of its handler")

    def _known(self) -> dict[str, Connection]:
        if self._connections is None:
            self._connections = connections_of(self.merkle.row(CONNECTIONS_ROW))
        return self._connections

    def _open(self, time_ms: int | None = None) -> OpenBlock:
        working = self.merkle.begin()
        return OpenBlock(
            working,
            self._next_ms() if time_ms is None else time_ms,
            connections=self._known(),
            types=self._types,
            limits=self.limits,
            store=self.merkle,
            read_body=self.view.item_body,
            check_caller=self._check_caller,
            executing=self._executing,
        )

    def _next_ms(self) -> int:
        periods = [self._period_ms]
        for each in self._known().values():
            client = self.merkle.client(each.party)
            periods += [client.root.trusting_period_ms] if client else []
        return self._clock.next_ms(self.merkle.latest.time_ms, min(periods) // 4)

    def _call(
        self,
        act: Callable[[OpenBlock], T],
        *,
        forced: bool = False,
        bytes_max: int | None = CALL_BYTES_MAX,
    ) -> T:
        """One block with what this does; none when it changes nothing, or is refused."""
        with self._entered():
            try:
                block = self._open()
                with block.call(bytes_max):
                    result = act(block)
                if self._checks:
                    block, result = self._again(block, act)
                if block.is_changed or forced:
                    self._commit(block)
                elif self._signed < self.merkle.latest.height:
                    # 1. A block is stored, and its header isn't: no answer. 2. Relays don't see the block, and
                    # bring what is in it again. 3. That is redundant and makes no block, which would sign both.
                    self.sign()
            except IbcRefused as refusal:
                if refusal.code.startswith("unregistered"):
                    self._check_log()
                raise
            except BaseException:
                self._connections = None
                self._positions.clear()
                raise
            return result

    def _check_log(self) -> None:
        """A store that was emptied knows no connection either, and a refusal would be taken for an answer. Raises
        StoreReset."""
        info = self.store.info(self.merkle.log)
        is_there = isinstance(info, StreamInfo) and info.next > self.merkle.latest.height
        if not is_there and not isinstance(info, Unavailable):
            raise StoreReset(f"{called(self.store)} lost the log of {self.name!r}: {info}")

    def _again(self, first: OpenBlock, act: Callable[[OpenBlock], T]) -> tuple[OpenBlock, T]:
        """Execute once more. Raises IbcRefused ``impure-handler`` when something else comes of it."""
        second = self._open(first.time_ms)
        with second.call(None):
            result = act(second)
        for each in (first, second):
            each.working.finish()
        if _done(first) != _done(second):
            raise IbcRefused(
                "impure-handler",
                "executed again on the same block, a function did something else: it may not look at clocks, "
                "chance or anything outside of its transaction",
            )
        return second, result

    def _commit(self, block: OpenBlock) -> None:
        block.close_drained()
        self._close_clients(block)
        by_stream: dict[str, list[bytes]] = {}
        for stream, item in block.items:
            by_stream.setdefault(stream, []).append(item)
        for stream, items in sorted(by_stream.items()):
            block.working.append(stream, self._position(stream), items)
        for stream, producer, item in block.letters:
            block.working.append(stream, 0, [item], producer)
        version = self.merkle.commit(block.working, block.time_ms)
        self._connections = block.connections
        self._clock.elapsed_ms(version.time_ms)
        for stream, items in by_stream.items():
            self._positions[stream] += len(items)
        self.sign()
        if self._trims and version.height % TRIM_EVERY == 0:
            with suppress(StoreUnavailable):  # the next time does it, too
                self._trim(version.height)
        if self.on_block is not None:
            self.on_block(version, block)

    def _trim(self, height: int) -> None:
        """Let go of what nobody asks for any more: of streams what is settled, and headers of heights that are
        gone, but not those that tell how old a message is."""
        first = self.merkle.lowest
        for name in self._known():
            sent, answered = (
                int.from_bytes(self.merkle.get(SPACE, head) or b"", "big")
                for head in (QueueKey(name, queue, "head").encode() for queue in QUEUES)
            )
            stream = f"ibc/{name}/send"
            self.store.trim(stream, sent + 1)
            first = min(first, next(self._heights(stream, sent), first))
            stream = f"ibc/{name}/receipt"
            info = self.store.info(stream)
            if isinstance(info, StreamInfo) and info.earliest < info.next:
                found = self.view.items(stream, info.earliest - 1, info.next - info.earliest)
                gone = takewhile(lambda item: int.from_bytes(item[8:16], "big") < answered, found)  # noqa: B023
                self.store.trim(stream, info.earliest + sum(1 for _ in gone))
        self.store.trim(HEADERS, max(first, height - HEADERS_MAX))

    def _heights(self, stream: str, position: int) -> Iterator[int]:
        """At which height a queue's stream got its items, from a position on."""
        info = self.store.info(stream)
        if isinstance(info, StreamInfo) and position + 1 < info.next:
            yield from (
                int.from_bytes(item[:8], "big") for item in self.view.items(stream, position, 1)
            )

    def _position(self, stream: str) -> int:
        if stream not in self._positions:
            info = self.store.info(stream)
            self._positions[stream] = info.next - 1 if isinstance(info, StreamInfo) else 0
        return self._positions[stream]

    @staticmethod
    def _close_clients(block: OpenBlock) -> None:
        """A client all of whose connections are closed hears of nothing more."""
        open_ = {
            each.party
            for each in block.connections.values()
            if each.state is not ConnectionState.CLOSED
        }
        for party in sorted({each.party for each in block.connections.values()} - open_):
            client = block.client_of(party)
            if not client.is_closed:
                block.working.put_client(replace(client, is_closed=True))

    def sign(self) -> None:
        """Sign the blocks that are stored and not signed, and store the headers. When the store doesn't answer the
        next call does it."""
        latest = self.merkle.latest.height
        own = self.signer.validators.hash
        while self._signed < latest:
            heights = range(self._signed + 1, min(latest, self._signed + RUN_MAX) + 1)
            versions = [self.merkle.version(height) for height in heights]
            headers = [
                Header(self.name, each.height, each.time_ms, each.root, own, own)
                for each in versions
            ]
            signed = self.signer.sign(headers)
            run = AppendRun(HEADERS, "signer", 1, heights[0], [each.encode() for each in signed])
            outcome = self.store.ask(run)
            if not isinstance(outcome, Stored):
                return
            if outcome.first_index not in (None, heights[0]):
                raise StoreReset(f"{called(self.store)}: {HEADERS!r} lost or gained entries")
            self._signed = heights[-1]

    # Connections.

    def identity(self) -> TrustRoot:
        """What another party begins to trust this one with. Between organisations a human compares it."""
        with self._entered():
            self.sign()
            self.view.refresh()
            return TrustRoot(self.view.header(self.view.height), self._period_ms)

    def register(
        self,
        name: str,
        trust: TrustRoot,
        *,
        known_as: str | None = None,
        order: str = "ordered",
        form: str = "inline",
        timeout: TimeoutRule = "optional",
        timeout_max_s: float | None = None,
    ) -> None:
        """Make a connection, which a human decided on. ``known_as`` is its name at the other party; without one,
        this party's own name. Raises IbcRefused ``already-registered``, MisuseError."""
        given = known_as or self.name
        if not NAME.fullmatch(name) or not NAME.fullmatch(given):
            raise IbcRefused("bad-name", f"{name!r} or {given!r} is no name of a connection")
        for what, word, words in (
            ("order", order, ("ordered", "unordered")),
            ("form", form, ("inline", "hash")),
            ("timeout", timeout, ("optional", "required", "never")),
        ):
            if word not in words:
                raise MisuseError(f"{what} is {word!r}; give one of {', '.join(words)}")
        party = trust.signed.header.party

        def act(block: OpenBlock) -> None:
            for each in block.connections.values():
                if each.name == name or (each.party, each.known_as) == (party, given):
                    raise IbcRefused("already-registered", f"connection {each.name!r} is there")
            if self.merkle.client(party) is None:
                block.working.put_client(Client(trust))
            connection = Connection(
                name,
                party,
                given,
                is_ordered=order == "ordered",
                is_hashed=form == "hash",
                timeout=timeout,
                timeout_max_s=timeout_max_s,
            )
            block.keep(connection, is_new=True)

        self._call(act)

    def close_connection(self, name: str) -> None:
        """Take and send nothing more by this connection; what is under way is settled. There is no way back."""

        def act(block: OpenBlock) -> None:
            found = block.connections.get(name)
            if found is None:
                raise IbcRefused("unregistered-destination", f"there is no connection {name!r}")
            if found.state is ConnectionState.OPEN:
                block.keep(replace(found, state=ConnectionState.DRAINING))

        self._call(act)

    def abandon(self, name: str, reason: str) -> int:
        """Give up a connection with a party that is lost for good, which is frozen or expired here: it closes, and
        what isn't settled is rolled back with code 6. How many messages are left for another call.

        An operator decides, as the other party may have executed them: only here a rollback is no proof of that.
        """
        return self._call(lambda block: block.abandon(name, reason))

    def recover(self, party: str, trust: TrustRoot) -> None:
        """Begin again to trust a party that is frozen or expired here. An operator decides. Raises MisuseError."""

        def act(block: OpenBlock) -> None:
            client = block.working.client(party)
            if client is None:
                raise IbcRefused("unregistered-sender", f"nothing is known of {party!r}")
            client.recover(trust)
            block.working.put_client(client)

        self._call(act)

    def accept_time(self) -> None:
        """Go on although the clock has jumped ahead; somebody has looked at it."""
        self._clock.accept()

    # Modules.

    def module(self, name: str) -> Module:
        """The module of a name, whose space is its own."""
        if not SPACE_NAME.fullmatch(name) or name == SPACE:
            raise MisuseError(
                f"{name!r} is no name of a module: give up to 32 of a-z 0-9 _, a letter first, and not 'ibc'"
            )
        return self._modules.setdefault(name, Module(self, name))

    def claim(self, known: MessageType) -> None:
        """Give a type to a module. Raises MisuseError when it has another owner."""
        owner = self._types.get(known.name)
        if owner is not None:
            raise MisuseError(f"the type {known.name!r} belongs to module {owner.owner!r} already")
        self._types[known.name] = known

    def execute(self, module: str, work: Callable[[Transaction], T]) -> T:
        """Run a function of a module as one call."""

        def act(block: OpenBlock) -> T:
            tx = Transaction(block, module)
            self._executing(True)
            try:
                result = work(tx)
            finally:
                tx.close()
                self._executing(False)
            return result

        return self._call(act)

    def acknowledge(self, module: str, connection: str, index: int, result: bytes | Fail) -> None:
        """See ``Module.acknowledge``."""
        self._call(lambda block: block.acknowledge(module, connection, index, result))

    # What relays bring.

    def submit(self, submission: Submission | bytes) -> SubmissionOutcome:
        """Do what a relay submits, in one block: headers first, then items, each for itself. One that is refused
        stops no other. A submission of nothing asks for a block (``tick``)."""
        if isinstance(submission, bytes):
            submission = Submission.decode(submission)
        if not submission.headers and not submission.items:
            return SubmissionOutcome([self.tick()], [])
        return self._call(lambda block: self._bring(block, submission), bytes_max=None)

    def _bring(self, block: OpenBlock, submission: Submission) -> SubmissionOutcome:
        name = submission.connection
        connection = block.connections.get(name)
        known_as = "" if connection is None else connection.known_as
        party = None if connection is None else connection.party
        evidence = Evidence(
            submission.proof, submission.items, QueueKey(known_as, "", "connection").encode()
        )

        def believe(signed: SignedHeader) -> int:
            if party is None:
                raise IbcRefused("unregistered-sender", f"there is no connection {name!r} here")
            block.believe(party, signed)
            return signed.header.height

        def bring(item: Item) -> int:
            if block.size() > BLOCK_BYTES:
                raise IbcRefused("too-large", "the block is full: submit it again")
            return block.bring(name, submission.height, item, evidence, submission.relayer)

        headers = [self._outcome(block, partial(believe, each)) for each in submission.headers]
        items = [self._outcome(block, partial(bring, each)) for each in submission.items]
        return SubmissionOutcome(headers, items)

    @staticmethod
    def _outcome(block: OpenBlock, act: Callable[[], int]) -> CallOutcome:
        try:
            with block.call():
                return CallOutcome("done", index=act())
        except IbcRefused as refusal:
            return CallOutcome.of(refusal)

    def _bring_one(self, connection: str, item: Item, proof: MerkleProof, height: int) -> int:
        """Raises IbcRefused."""
        found = self.submit(Submission(connection, (), height, proof, (item,))).items[0]
        if found.kind != "done" or found.index is None:
            raise IbcRefused(found.code, found.text.removeprefix(f"{found.code}: "))
        return found.index

    receive = receipt = timeout = timeout_on_close = cleanup = _bring_one

    def update_header(self, connection: str, signed: SignedHeader) -> CallOutcome:
        """Believe a header of the other party of a connection, if it shows enough."""
        return self.submit(Submission(connection, (signed,))).headers[0]

    def submit_evidence(
        self, party: str, first: SignedHeader, second: SignedHeader
    ) -> HeaderOutcome:
        """Freeze what is believed of a party that signed two histories."""

        def act(block: OpenBlock) -> HeaderOutcome:
            client = block.working.client(party)
            if client is None:
                raise IbcRefused("unregistered-sender", f"nothing is known of {party!r}")
            outcome = client.submit_evidence(first, second, block.time_ms)
            if outcome.kind == "refused":
                raise IbcRefused(outcome.code, outcome.text)
            block.working.put_client(client)
            return outcome

        return self._call(act)

    def tick(self) -> CallOutcome:
        """Make an empty block when the last is old enough, so that other parties can see that time has passed."""
        try:
            self._call(self._check_idle, forced=True)
        except IbcRefused as refusal:
            return CallOutcome.of(refusal)
        return CallOutcome("done", index=self.merkle.latest.height)

    def _check_idle(self, _: OpenBlock) -> None:
        if self._clock.elapsed_ms(self.merkle.latest.time_ms) < self._idle_ms:
            raise IbcRefused("too-early", "the latest block is too young for an empty one")

    # Looking.

    def get(self, space: str, key: bytes) -> bytes | None:
        """A value as of the latest block."""
        with self._entered():
            return self.merkle.get(space, key)

    @property
    def connections(self) -> dict[str, Connection]:
        """By name."""
        with self._entered():
            return dict(self._known())

    def client(self, party: str) -> Client | None:
        """What is believed of another party."""
        with self._entered():
            return self.merkle.client(party)

    def parked(self, connection: str) -> list[int]:
        """The indexes whose callback raised and waits for ``retry_parked``."""
        with self._entered():
            return self._open().parked(connection)

    def retry_parked(self, connection: str, index: int) -> None:
        """Call back again. Raises IbcRefused ``callback-failed`` when it raises again."""
        self._call(lambda block: block.retry_parked(connection, index))

    def close(self) -> None:
        """Do nothing more. A store that was opened here is closed."""
        with self._lock:
            self._is_closed = True
            close = getattr(self._owned, "close", None)
            if callable(close):
                close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _done(block: OpenBlock) -> object:
    return block.working.operations, block.items, block.letters


def save_trust(path: str | Path, trust: TrustRoot) -> None:
    """Write a root of trust to a file, to be compared and registered elsewhere."""
    Path(path).write_text(trust.encode().hex() + "\n")


def load_trust(path: str | Path) -> TrustRoot:
    """A root of trust from a file. Raises ConfigurationError for one that has none, or can't be read."""
    try:
        return TrustRoot.decode(bytes.fromhex(Path(path).read_text().strip()))
    except (OSError, ValueError, ProofError) as error:
        raise ConfigurationError(
            f"{path} doesn't say what a party is trusted with ({error}): the other side writes such a file by "
            "`surepipe relay trust STORE`, or save_trust"
        ) from error


__all__ = ["Module", "Party", "Sending", "load_trust", "save_trust"]
