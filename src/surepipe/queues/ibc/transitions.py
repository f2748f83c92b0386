"""What a party does in a block: send, receive, settle, time out, clean up. Each call is done as a whole, or
refused.

The checks of a call stand in their order, and the first that fails decides. They read the open block and nothing
else: no clock, no chance. So whoever executes the same calls on the same block comes to the same root.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import IntEnum
from inspect import isawaitable, isgenerator
from typing import Any, Literal, TypeAlias

from surepipe.errors import ConfigurationError, ContractBroken, SurepipeError
from surepipe.queues.ibc.calls import VALUE_BYTES_MAX, Item, ItemKind, committed_form
from surepipe.queues.ibc.headers import (
    Client,
    ClientStatus,
    HeaderOutcome,
    SignedHeader,
    TrustedHeader,
)
from surepipe.queues.ibc.ics23 import STORE_SPECS, verify_items
from surepipe.queues.ibc.keys import (
    ABANDONED,
    DEFERRED,
    HANDLER_RAISED,
    RESULT_TOO_LARGE,
    TIMED_OUT,
    UNDECODABLE,
    UNSUPPORTED_TYPE,
    QueueKey,
    QueueKind,
    Receipt,
    SendValue,
    UndecodableValue,
    parse_key,
)
from surepipe.queues.ibc.merkle_store import IbcRefused, MerkleStore, Savepoint, Working
from surepipe.queues.ibc.module import Deferral, Fail, MessageType, Sending, Transaction
from surepipe.queues.ibc.proof import MerkleProof
from surepipe.queues.ibc.queue import SPACE, ProvableQueue

TimeoutRule: TypeAlias = Literal["optional", "required", "never"]
CONNECTIONS_ROW = b"connections"


class ConnectionState(IntEnum):
    """``DRAINING`` takes nothing new in either direction, and becomes closed when nothing is left to settle."""

    OPEN = 1
    DRAINING = 2
    CLOSED = 3


@dataclass(frozen=True, slots=True)
class Connection:
    """One end of a connection: to whom, how they call it, and what holds for its messages."""

    name: str
    party: str
    known_as: str
    state: ConnectionState = ConnectionState.OPEN
    is_ordered: bool = True
    is_hashed: bool = False
    timeout: TimeoutRule = "optional"
    timeout_max_s: float | None = None

    def record(self) -> bytes:
        """What the tree has of it, for the other party."""
        return bytes((1, self.state, 1 if self.is_ordered else 2, 2 if self.is_hashed else 1))

    @property
    def record_key(self) -> bytes:
        return QueueKey(self.name, "", "connection").encode()


def connections_of(row: bytes | None) -> dict[str, Connection]:
    """The connections as they are stored."""
    found: dict[str, dict[str, Any]] = json.loads(row) if row else {}
    for each in found.values():
        each["state"] = ConnectionState(each["state"])
    return {name: Connection(name, **each) for name, each in found.items()}


def row_of(connections: dict[str, Connection]) -> bytes:
    """The connections as they are stored."""
    told = {
        name: {
            field: getattr(each, field)
            for field in Connection.__dataclass_fields__
            if field != "name"
        }
        for name, each in sorted(connections.items())
    }
    return json.dumps(told, sort_keys=True).encode()


@dataclass(frozen=True, slots=True)
class PartyLimits:
    """What a party bounds. ``receipts_max`` must be above the other party's ``unresolved_max``; data and results
    have 2 MiB at the most, or no submission could carry them. Raises ConfigurationError."""

    data_bytes_max: int = 262_144
    result_bytes_max: int = 65_536
    unresolved_max: int = 100_000
    receipts_max: int = 200_000
    deferred_max: int = 1_024
    cleanup_max: int = 1_000

    def __post_init__(self) -> None:
        for name in ("data_bytes_max", "result_bytes_max"):
            if (found := getattr(self, name)) > VALUE_BYTES_MAX:
                raise ConfigurationError(
                    f"{name} is {found}: a message and its proof have to fit into a submission, so give "
                    f"{VALUE_BYTES_MAX} at the most"
                )


CALL_BYTES_MAX = 4 << 20
"""So much one call may write; a block is one write to the store."""
RECEIPT_BYTES = 64 << 10
"""Of it is for what a receipt takes beside its result."""
BLOCK_BYTES = 4 << 20
"""When a block has so much, what else was submitted waits for the next one."""


class Evidence:
    """A proof at a height, and everything that it is to show: verified at once, when first asked."""

    def __init__(self, proof: MerkleProof, items: Sequence[Item], connection_key: bytes) -> None:
        self._proof = proof
        wanted = [(item.key, item.shown) for item in items]
        wanted += [
            (connection_key, item.record)
            for item in items
            if item.kind is ItemKind.TIMEOUT_ON_CLOSE
        ]
        self._wanted = list(dict.fromkeys(wanted))
        self._verdicts: dict[bytes, dict[tuple[bytes, bytes | None], bool]] = {}

    def shows(self, root: bytes, key: bytes, value: bytes | None) -> bool:
        """Whether the key has the value under the root; None: whether it isn't there."""
        verdicts = self._verdicts.get(root)
        if verdicts is None:
            found = verify_items(STORE_SPECS, root, self._proof, (SPACE.encode(),), self._wanted)
            verdicts = self._verdicts[root] = dict(zip(self._wanted, found, strict=True))
        return verdicts[key, value]


@dataclass(frozen=True, slots=True)
class BlockSavepoint:
    """What a refused call goes back to."""

    working: Savepoint
    connections: dict[str, Connection]
    items: int
    letters: int


class OpenBlock:
    """A block that is open, and what is done in it."""

    def __init__(
        self,
        working: Working,
        time_ms: int,
        *,
        connections: dict[str, Connection],
        types: dict[str, MessageType],
        limits: PartyLimits,
        store: MerkleStore,
        read_body: Callable[[str, int], bytes],
        check_caller: Callable[[], None],
        executing: Callable[[bool], None],
    ) -> None:
        self.working = working
        self.height = working.base.height + 1
        self.time_ms = time_ms
        self.connections = dict(connections)
        self.items: list[tuple[str, bytes]] = []
        """Of which queue's stream, in order."""
        self.letters: list[tuple[str, str, bytes]] = []
        """Of streams into which others write, too: the stream, whose item it is, and the item."""
        self.settled: list[tuple[str, int, int]] = []
        """What ended at this party: connection, index, code."""
        self.executed: list[tuple[str, int, int]] = []
        """What was answered here: connection, index, code."""
        self.check_caller = check_caller
        self._executing = executing
        self._types = types
        self._limits = limits
        self._store = store
        self._read_body = read_body

    # What it is made of.

    @property
    def is_changed(self) -> bool:
        """Whether there is anything to store."""
        return bool(self.working.operations or self.working.at_end)

    def savepoint(self) -> BlockSavepoint:
        """Where to go back to."""
        told = len(self.items), len(self.letters)
        return BlockSavepoint(self.working.savepoint(), dict(self.connections), *told)

    def undo_to(self, savepoint: BlockSavepoint) -> None:
        """Take back everything since then."""
        self.working.undo_to(savepoint.working)
        self.connections = dict(savepoint.connections)
        del self.items[savepoint.items :], self.letters[savepoint.letters :]

    def size(self, since: int = 0) -> int:
        """Bytes of what it writes, from so many operations on."""
        return sum(len(each.value or b"") for each in self.working.operations[since:])

    @contextmanager
    def call(self, bytes_max: int | None = CALL_BYTES_MAX) -> Generator[None]:
        """A call, which is refused without a trace, also when it writes too much."""
        before = self.savepoint()
        told = len(self.settled), len(self.executed)
        try:
            yield
            size = 0 if bytes_max is None else self.size(before.working.operations)
            if bytes_max is not None and size > bytes_max:
                raise IbcRefused(
                    "too-large",
                    f"one call writes {size} bytes, and {bytes_max} is the most: do less at once",
                )
        except BaseException:
            self.undo_to(before)
            del self.settled[told[0] :], self.executed[told[1] :]
            raise

    def get(self, space: str, key: bytes) -> bytes | None:
        """The value, or None."""
        return self.working.get(space, key)

    def set(self, space: str, key: bytes, value: bytes) -> None:
        """Write in a space."""
        self.working.set(space, key, value)

    def delete(self, space: str, key: bytes) -> None:
        """Remove from a space."""
        self.working.delete(space, key)

    def client_of(self, party: str) -> Client:
        """What is believed of a party; to look at."""
        found = self.working.clients.get(party) or self._store.client(party)
        assert found is not None
        return found

    def queue(self, connection: str, kind: QueueKind) -> ProvableQueue:
        """One of the two queues of a connection."""
        return ProvableQueue(self.working, connection, kind)

    def keep(self, connection: Connection, *, is_new: bool = False) -> None:
        """Store a connection that is new or has changed."""
        self.connections[connection.name] = connection
        self.working.put_row(CONNECTIONS_ROW, row_of(self.connections))
        self.set(SPACE, connection.record_key, connection.record())
        if is_new:
            for kind in ("send", "receipt"):
                self.queue(connection.name, kind).init()

    def close_drained(self) -> None:
        """At the end of the block: what drains and has nothing left to settle is closed."""
        for each in list(self.connections.values()):
            if each.state is ConnectionState.DRAINING:
                queue = self.queue(each.name, "send")
                if queue.head == queue.tail:
                    self.keep(replace(each, state=ConnectionState.CLOSED))

    def _connection(self, name: str, code: str = "unregistered-sender") -> Connection:
        found = self.connections.get(name)
        if found is None:
            raise IbcRefused(code, f"there is no connection {name!r} here")
        return found

    def _status(self, connection: Connection) -> ClientStatus:
        return self.client_of(connection.party).status(self.time_ms)

    # Sending.

    def send(self, module: str, connection: str, sending: Sending) -> int:
        """Push a message to the send queue; its index. Raises IbcRefused."""
        type_name, data = sending.type, sending.data
        to = self._connection(connection, "unregistered-destination")
        known = self._types.get(type_name)
        if known is None:
            raise IbcRefused("unsupported-type", f"no module here handles the type {type_name!r}")
        if module != known.owner and module not in known.senders:
            raise IbcRefused(
                "not-permitted",
                f"module {module!r} may not send {type_name!r}, which is {known.owner!r}'s",
            )
        if to.state is not ConnectionState.OPEN:
            raise IbcRefused("connection-closed", f"connection {connection!r} is closed")
        client = self.client_of(to.party)
        status = client.status(self.time_ms)
        if status is not ClientStatus.ACTIVE:
            raise IbcRefused(
                f"client-{status.value}", f"what is known of {to.party!r} is {status.value}"
            )
        if not data:
            raise IbcRefused("empty-data", "a message has at least one byte")
        if len(data) > self._limits.data_bytes_max:
            raise IbcRefused(
                "too-large", f"{len(data)} bytes are above {self._limits.data_bytes_max}"
            )
        timeout_ms = sending.timeout_ms
        if sending.timeout_after_s is not None:
            since = max(self.time_ms, client.newest.header.time_ms)
            timeout_ms = since + round(sending.timeout_after_s * 1000)
        value = SendValue(type_name, data, sending.timeout_height, timeout_ms)
        self._check_limits(to, client, value)
        queue = self.queue(connection, "send")
        if queue.tail - queue.head >= self._limits.unresolved_max:
            raise IbcRefused(
                "queue-full",
                f"{self._limits.unresolved_max} messages to {connection!r} are unsettled; wait",
            )
        encoded = value.encode()
        index = queue.push(committed_form(encoded) if to.is_hashed else encoded)
        self.items.append((f"ibc/{connection}/send", self.height.to_bytes(8, "big") + encoded))
        return index

    def _check_limits(self, to: Connection, client: Client, value: SendValue) -> None:
        has_limit = value.timeout_height or value.timeout_ms
        if to.timeout == "required" and not has_limit:
            raise IbcRefused("timeout-required", f"messages to {to.name!r} need a limit")
        if to.timeout == "never" and has_limit:
            raise IbcRefused("timeout-too-far", f"messages to {to.name!r} have no limit")
        newest = client.newest.header
        if value.is_over(newest.height, newest.time_ms):
            raise IbcRefused(
                "timeout-elapsed",
                f"{to.party!r} is at height {newest.height} and {newest.time_ms} ms already",
            )
        if to.timeout_max_s is not None and value.timeout_ms > max(
            self.time_ms, newest.time_ms
        ) + round(to.timeout_max_s * 1000):
            raise IbcRefused("timeout-too-far", f"the longest is {to.timeout_max_s} s")

    # What relays bring.

    def bring(
        self, connection: str, height: int, item: Item, evidence: Evidence, relayer: bytes
    ) -> int:
        """One item of a submission; the index that it was about. Raises IbcRefused."""
        match item.kind:
            case ItemKind.RECEIVE:
                return self.receive(connection, height, item, evidence, relayer)
            case ItemKind.RECEIPT:
                return self.receipt(connection, height, item, evidence, relayer)
            case ItemKind.TIMEOUT | ItemKind.TIMEOUT_ON_CLOSE:
                return self.timeout(connection, height, item, evidence, relayer)
            case ItemKind.CLEANUP:
                return self.cleanup(connection, height, item, evidence)

    def _key_of(self, to: Connection, item: Item, kind: QueueKind, code: str) -> QueueKey:
        key = parse_key(item.key)
        if key is None or key.queue != kind:
            raise IbcRefused(code, f"{item.key!r} is no key of a {kind} queue")
        if key.connection != to.known_as:
            raise IbcRefused(
                "wrong-chain", f"it is of connection {key.connection!r}, not of {to.known_as!r}"
            )
        return key

    def _header(self, to: Connection, height: int) -> TrustedHeader:
        found = self.client_of(to.party).header_at(height, self.time_ms)
        if isinstance(found, HeaderOutcome):
            raise IbcRefused(found.code, found.text)
        return found

    def _check_shown(self, header: TrustedHeader, item: Item, evidence: Evidence) -> None:
        if not evidence.shows(header.header.root, item.key, item.shown):
            raise IbcRefused("invalid-proof", f"the proof doesn't show {item.key!r} at this height")

    def receive(
        self, connection: str, height: int, item: Item, evidence: Evidence, relayer: bytes
    ) -> int:
        """A message of the other party: executed and answered, each index once. Raises IbcRefused."""
        to = self._connection(connection)
        key = self._key_of(to, item, "send", "not-a-send")
        if key.part != "entry" or key.index is None:
            raise IbcRefused("not-a-message", "it is a counter of the queue")
        if to.state is not ConnectionState.OPEN:
            raise IbcRefused("connection-closed", f"connection {connection!r} is closed")
        index, queue = key.index, self.queue(connection, "receipt")
        self._check_turn(to, index, queue)
        header = self._header(to, height)
        self._check_shown(header, item, evidence)
        if item.value[:1] == b"\2":
            raise IbcRefused("invalid-proof", "a commitment came without its message")
        if queue.tail - queue.head >= self._limits.receipts_max:
            raise IbcRefused(
                "receipts-full", f"{self._limits.receipts_max} receipts wait for their cleanup"
            )
        receipt = self._answer(to, index, item.value, relayer)
        queue.write(index, receipt.encode())
        self._note_receipt(connection, index, receipt.encode())
        self.executed.append((connection, index, receipt.code))
        return index

    @staticmethod
    def _check_turn(to: Connection, index: int, queue: ProvableQueue) -> None:
        if to.is_ordered:
            is_past, is_early = index < queue.tail, index > queue.tail
        else:
            is_past = index < queue.head or queue.retrieve(index) is not None
            is_early = False
        if is_past:
            raise IbcRefused("already-received", f"message {index} was received before")
        if is_early:
            raise IbcRefused("out-of-order", f"message {queue.tail} comes before {index}")

    def _note_receipt(self, connection: str, index: int, receipt: bytes) -> None:
        numbers = self.height.to_bytes(8, "big") + index.to_bytes(8, "big")
        self.items.append((f"ibc/{connection}/receipt", numbers + receipt))

    def _answer(self, to: Connection, index: int, value: bytes, relayer: bytes) -> Receipt:
        try:
            message = SendValue.decode(value)
        except UndecodableValue:
            return Receipt(UNDECODABLE)
        if message.is_over(self.height, self.time_ms):
            if not to.is_ordered:
                raise IbcRefused("timeout-elapsed", f"message {index} came after its limit")
            return Receipt(TIMED_OUT)
        known = self._types.get(message.type)
        if known is None or known.on_receive is None:
            return Receipt(UNSUPPORTED_TYPE)
        deferred = self.deferred(to.name) if known.may_defer else {}
        if len(deferred) >= self._limits.deferred_max:
            raise IbcRefused("too-many-deferred", f"{len(deferred)} messages wait for answers")
        before = self.savepoint()
        tx = Transaction(self, known.owner, to.name, index, relayer)
        on_receive = known.on_receive
        result = self._run(lambda: on_receive(tx, message.data), tx)
        receipt = self._receipt_of(result, known)
        written = self.size(before.working.operations) + len(receipt.result)
        if written > CALL_BYTES_MAX - RECEIPT_BYTES:
            # Refused, it would come again, be refused again, and hold up what is behind it.
            receipt = Receipt(HANDLER_RAISED)
        if receipt.code not in (0, DEFERRED):
            self.undo_to(before)
        if receipt.code == DEFERRED:
            self._keep_deferred(to.name, {**deferred, index: known.name})
        return receipt

    def _receipt_of(self, result: object, known: MessageType) -> Receipt:
        if isinstance(result, Deferral) and known.may_defer:
            return Receipt(DEFERRED)
        if isinstance(result, Fail):
            code, data = result.code, result.result
        elif isinstance(result, bytes):
            code, data = 0, result
        else:
            return Receipt(HANDLER_RAISED)
        if len(data) > self._limits.result_bytes_max:
            return Receipt(RESULT_TOO_LARGE)
        return Receipt(code, data)

    def _run(self, work: Callable[[], object], tx: Transaction) -> object:
        """What application code returns, or the exception that it raised. What is no fault of the application,
        such as a store that doesn't answer or memory that is used up, ends the block."""
        try:
            self._executing(True)
            result = work()
        except IbcRefused as error:
            return error
        except (SurepipeError, ContractBroken, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the queue goes on
            return error
        finally:
            tx.close()
            self._executing(False)
        if isawaitable(result) or isgenerator(result):
            close = getattr(result, "close", None)
            if callable(close):
                close()
            raise IbcRefused("handler-misuse", "application code returned work that isn't done yet")
        return result

    # What comes back.

    def receipt(
        self, connection: str, height: int, item: Item, evidence: Evidence, relayer: bytes
    ) -> int:
        """What came of a message of ours: it is committed or rolled back, once. Raises IbcRefused."""
        to = self._connection(connection)
        key = self._key_of(to, item, "receipt", "not-a-receipt")
        header = self._header(to, height)
        self._check_shown(header, item, evidence)
        if key.index is None:
            raise IbcRefused("not-a-message", "it is a counter of the queue")
        self._check_unsettled(to, key.index)
        if item.value[:1] > b"\1":
            raise IbcRefused("newer-format", "a receipt of a format that this release can't read")
        try:
            receipt = Receipt.decode(item.value)
        except UndecodableValue:
            receipt = Receipt(UNDECODABLE)
        if receipt.code == DEFERRED and key.part == "entry":
            raise IbcRefused("receipt-deferred", f"message {key.index} will be answered later")
        self._settle(to, key.index, receipt, relayer)
        return key.index

    def _check_unsettled(self, to: Connection, index: int) -> None:
        queue = self.queue(to.name, "send")
        if index < queue.head or (index < queue.tail and queue.retrieve(index) is None):
            raise IbcRefused("already-resolved", f"message {index} was settled before")
        if to.is_ordered and queue.head < index < queue.tail:
            raise IbcRefused("out-of-order", f"message {queue.head} comes before {index}")
        if index >= queue.tail:
            raise IbcRefused("unknown-message", f"message {index} was never sent")

    def _settle(self, to: Connection, index: int, receipt: Receipt, relayer: bytes) -> None:
        """The entry leaves the queue, then the callback of its type runs."""
        value = self.message(to, index)
        self.queue(to.name, "send").settle(index)
        message = SendValue.decode(value)
        self.settled.append((to.name, index, receipt.code))
        known = self._types.get(message.type)
        if known is None:
            return
        before = self.savepoint()
        tx = Transaction(self, known.owner, to.name, index, relayer)
        error = self._call_back(known, tx, message.data, receipt)
        if error is None:
            return
        if known.on_callback_error == "stop":
            raise IbcRefused(
                "callback-failed", f"what is done for {known.name!r} raised {error!r}"
            ) from error
        self.undo_to(before)
        letter = {
            "type": known.name,
            "data": message.data.hex(),
            "code": receipt.code,
            "result": receipt.result.hex(),
        }
        self.working.put_row(parked_row(to.name, index), json.dumps(letter).encode())
        self._keep_parked(to.name, sorted({*self.parked(to.name), index}))

    def _call_back(
        self, known: MessageType, tx: Transaction, data: bytes, receipt: Receipt
    ) -> Exception | None:
        on_commit, on_rollback = known.on_commit, known.on_rollback
        if receipt.code == 0 and on_commit is not None:
            result = self._run(lambda: on_commit(tx, data, receipt.result), tx)
        elif receipt.code != 0 and on_rollback is not None:
            result = self._run(lambda: on_rollback(tx, data, receipt.code, receipt.result), tx)
        else:
            return None
        return result if isinstance(result, Exception) else None

    def message(self, to: Connection, index: int) -> bytes:
        """The bytes of a message that isn't settled."""
        value = self.queue(to.name, "send").retrieve(index)
        assert value is not None
        if value[:1] == b"\1":
            return value
        body = self._body_of(to.name, index)
        if committed_form(body) != value:
            raise ContractBroken(f"message {index} to {to.name!r} isn't what the tree committed to")
        return body

    def _body_of(self, connection: str, index: int) -> bytes:
        """From the stream: of a message whose hash only is in the tree."""
        own = f"ibc/{connection}/send"
        fresh = [item for queue, item in self.items if queue == own]
        tail = self.queue(connection, "send").tail
        if index >= tail - len(fresh):
            return fresh[index - (tail - len(fresh))][8:]
        return self._read_body(own, index)

    def timeout(
        self, connection: str, height: int, item: Item, evidence: Evidence, relayer: bytes
    ) -> int:
        """The other party had not received a message when its limit had passed, or closed: it is rolled back.
        Raises IbcRefused."""
        to = self._connection(connection)
        key = self._key_of(to, item, "receipt", "not-a-receipt")
        header = self._header(to, height)
        self._check_shown(header, item, evidence)
        received = self._received_before(to, key, item)
        self._check_unsettled(to, item.index)
        if to.is_ordered and received > item.index:
            raise IbcRefused("receipt-exists", f"message {item.index} was received: it is answered")
        if item.kind is ItemKind.TIMEOUT_ON_CLOSE:
            self._check_closed(to, header, item, evidence)
        else:
            message = SendValue.decode(self.message(to, item.index))
            if not message.is_over(header.header.height, header.header.time_ms):
                raise IbcRefused(
                    "timeout-not-reached", f"the limit of message {item.index} isn't reached there"
                )
        self._settle(to, item.index, Receipt(TIMED_OUT), relayer)
        return item.index

    @staticmethod
    def _received_before(to: Connection, key: QueueKey, item: Item) -> int:
        """How many messages an ordered party had received; of an unordered one that it had not this one."""
        if to.is_ordered:
            if key.part != "tail":
                raise IbcRefused("not-a-tail", "what is not received yet is shown by the tail")
            if len(item.value) not in (0, 8):
                raise IbcRefused("invalid-proof", "a counter has 8 bytes")
            return int.from_bytes(item.value, "big")
        if key.part != "entry" or key.index != item.index:
            raise IbcRefused("not-a-message", f"it is not the receipt of message {item.index}")
        if item.value:
            raise IbcRefused("invalid-proof", "the message has a receipt")
        return 0

    @staticmethod
    def _check_closed(
        to: Connection, header: TrustedHeader, item: Item, evidence: Evidence
    ) -> None:
        key = QueueKey(to.known_as, "", "connection").encode()
        if not item.record or not evidence.shows(header.header.root, key, item.record):
            raise IbcRefused("invalid-proof", "the proof doesn't show the connection's record")
        if item.record[:1] > b"\1":
            raise IbcRefused("newer-format", "a record of a format that this release can't read")
        if len(item.record) < 2 or item.record[1] == ConnectionState.OPEN:
            raise IbcRefused("not-closed", f"connection {to.known_as!r} is open there")

    def cleanup(self, connection: str, height: int, item: Item, evidence: Evidence) -> int:
        """The other party has settled what is below its head, so those receipts go; the head reached. Raises
        IbcRefused."""
        to = self._connection(connection)
        key = self._key_of(to, item, "send", "not-a-send")
        if key.part != "head":
            raise IbcRefused("not-a-head", "what is settled is shown by the head")
        header = self._header(to, height)
        self._check_shown(header, item, evidence)
        if len(item.value) != 8:
            raise IbcRefused("invalid-proof", "a counter has 8 bytes")
        proven, queue = int.from_bytes(item.value, "big"), self.queue(connection, "receipt")
        if proven <= queue.head:
            raise IbcRefused("must-go-forward", f"receipts below {queue.head} are gone already")
        reached = min(proven, queue.head + self._limits.cleanup_max)
        queue.advance(reached)
        deferred = self.deferred(connection)
        left = {index: name for index, name in deferred.items() if index >= reached}
        if left != deferred:
            self._keep_deferred(connection, left)
        return reached

    # Answers that come later.

    def deferred(self, connection: str) -> dict[int, str]:
        """The types of messages that wait for their answer, by index."""
        row = self.working.row(f"deferred:{connection}".encode())
        return {int(index): name for index, name in json.loads(row).items()} if row else {}

    def _keep_deferred(self, connection: str, deferred: dict[int, str]) -> None:
        row = json.dumps(deferred, sort_keys=True).encode() if deferred else None
        self.working.put_row(f"deferred:{connection}".encode(), row)

    def acknowledge(self, module: str, connection: str, index: int, result: bytes | Fail) -> None:
        """Answer a message whose handler deferred. Raises IbcRefused."""
        to = self._connection(connection, "unregistered-destination")
        queue = self.queue(to.name, "receipt")
        key = queue.key("late", index)
        entry = queue.retrieve(index)
        if entry != Receipt(DEFERRED).encode():
            raise IbcRefused("unknown-message", f"message {index} waits for no answer")
        deferred = self.deferred(connection)
        if index not in deferred:
            raise IbcRefused("already-acknowledged", f"message {index} has its answer")
        if self._types[deferred[index]].owner != module:
            raise IbcRefused("not-permitted", f"message {index} is not {module!r}'s")
        code, data = (result.code, result.result) if isinstance(result, Fail) else (0, result)
        if len(data) > self._limits.result_bytes_max:
            raise IbcRefused(
                "too-large", f"{len(data)} bytes are above {self._limits.result_bytes_max}"
            )
        self.set(SPACE, key, Receipt(code, data).encode())
        self._keep_deferred(connection, {i: n for i, n in deferred.items() if i != index})
        self.executed.append((connection, index, code))

    # What is parked.

    def parked(self, connection: str) -> list[int]:
        """The indexes whose callback raised."""
        row = self.working.row(f"parked:{connection}".encode())
        return json.loads(row) if row else []

    def _keep_parked(self, connection: str, indexes: list[int]) -> None:
        row = json.dumps(indexes).encode() if indexes else None
        self.working.put_row(f"parked:{connection}".encode(), row)

    def retry_parked(self, connection: str, index: int) -> None:
        """Call back again for a message whose callback raised. Raises IbcRefused."""
        row = self.working.row(parked_row(connection, index))
        if row is None:
            raise IbcRefused("unknown-message", f"message {index} of {connection!r} isn't parked")
        letter = json.loads(row)
        known = self._types.get(letter["type"])
        if known is None:
            raise IbcRefused("unsupported-type", f"no module here handles {letter['type']!r}")
        receipt = Receipt(letter["code"], bytes.fromhex(letter["result"]))
        data = bytes.fromhex(letter["data"])
        tx = Transaction(self, known.owner, connection, index)
        error = self._call_back(known, tx, data, receipt)
        if error is not None:
            raise IbcRefused(
                "callback-failed", f"what is done for {known.name!r} raised {error!r}"
            ) from error
        self.working.put_row(parked_row(connection, index), None)
        self._keep_parked(connection, [i for i in self.parked(connection) if i != index])

    def abandon(self, name: str, reason: str) -> int:
        """Give a connection up whose other party is not believed any more: close it, and roll back with code 6
        what isn't settled, so many in a call; how many are left. The other party may have executed them. Raises
        IbcRefused."""
        to = self._connection(name, "unregistered-destination")
        status = self._status(to)
        if status in (ClientStatus.ACTIVE, ClientStatus.CLOSED):
            raise IbcRefused(
                "not-permitted",
                f"{to.party!r} is {status.value}: close the connection, and wait for its receipts",
            )
        self.working.put_row(by_hand_row(name), reason.encode() or b"-")
        if to.state is ConnectionState.OPEN:
            self.keep(replace(to, state=ConnectionState.DRAINING))
        queue = self.queue(name, "send")
        for _ in range(self._limits.cleanup_max):
            if queue.head == queue.tail or self.size() > CALL_BYTES_MAX // 4:
                break
            self._settle(to, queue.head, Receipt(ABANDONED), b"")
        return queue.tail - queue.head

    # Headers.

    def believe(self, party: str, signed: SignedHeader) -> HeaderOutcome:
        """A header of another party. Raises IbcRefused; ``frozen`` is done and no refusal."""
        client = self.client_of(party).copy()
        outcome = client.update(signed, self.time_ms)
        if outcome.kind == "refused":
            raise IbcRefused(outcome.code, outcome.text)
        if outcome.kind == "known":
            raise IbcRefused("header-known", f"height {signed.header.height} is trusted already")
        self.working.put_client(client)
        return outcome


def by_hand_row(connection: str) -> bytes:
    """Where it stands why a person gave a connection up."""
    return f"by-hand:{connection}".encode()


def parked_row(connection: str, index: int) -> bytes:
    """Where a letter that is parked stands."""
    return f"parked:{connection}:{index}".encode()
