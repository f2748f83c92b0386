"""A queue in a space: the slice from head to tail of an endless array, every part of which can be proven."""

from __future__ import annotations

from surepipe.errors import ContractBroken
from surepipe.queues.ibc.keys import MAX_INDEX, Part, QueueKey, QueueKind
from surepipe.queues.ibc.merkle_store import IbcRefused, Working

SPACE = "ibc"


class ProvableQueue:
    """One queue of a connection, in a block that is open.

    Entries have dense indexes from 0, are never changed, and leave only at the head, or (``settle``) out of turn.
    What was removed is not written again, as the tail never goes back.
    """

    def __init__(self, block: Working, connection: str, queue: QueueKind) -> None:
        self._block = block
        self._connection = connection
        self._queue: QueueKind = queue
        self._head_key, self._tail_key = self.key("head"), self.key("tail")

    def key(self, part: Part, index: int | None = None) -> bytes:
        """Under which a part stands in the space."""
        return QueueKey(self._connection, self._queue, part, index).encode()

    @property
    def exists(self) -> bool:
        """Whether it was made; an empty one exists."""
        return self._block.get(SPACE, self._head_key) is not None

    @property
    def head(self) -> int:
        """The index of the oldest entry; the tail when there is none."""
        return self._counter(self._head_key)

    @property
    def tail(self) -> int:
        """The index that the next entry gets."""
        return self._counter(self._tail_key)

    def _counter(self, key: bytes) -> int:
        value = self._block.get(SPACE, key)
        if value is None:
            raise ContractBroken(f"queue {self._connection}:{self._queue} was never made")
        return int.from_bytes(value, "big")

    def _count(self, key: bytes, index: int) -> None:
        self._block.set_at_end(SPACE, key, index.to_bytes(8, "big"))

    def init(self) -> None:
        """Make it, empty. Both counters are stored as 0, so that even nothing can be proven."""
        if self.exists:
            raise ContractBroken(f"queue {self._connection}:{self._queue} is there already")
        self._count(self._head_key, 0)
        self._count(self._tail_key, 0)

    def peek(self) -> bytes | None:
        """The entry at the head, or None. Changes nothing."""
        return self.retrieve(self.head)

    def retrieve(self, index: int) -> bytes | None:
        """The entry at an index; None outside the queue, and where one was settled out of turn."""
        if not 0 <= index <= MAX_INDEX:
            return None
        return self._block.get(SPACE, self.key("entry", index))

    def push(self, value: bytes) -> int:
        """Add an entry at the tail and return its index. Raises IbcRefused ``queue-full`` after the last index."""
        index = self.tail
        if index > MAX_INDEX:
            raise IbcRefused(
                "queue-full", f"queue {self._connection}:{self._queue} has given out every index"
            )
        self._add(index, value)
        return index

    def _add(self, index: int, value: bytes) -> None:
        """At the tail or beyond it nothing was ever written, as the tail never goes back."""
        self._block.set(SPACE, self.key("entry", index), value)
        self._count(self._tail_key, index + 1)

    def write(self, index: int, value: bytes) -> None:
        """Let there be an entry at an index at which there never was one; the tail is behind it afterwards."""
        if index >= self.tail:
            self._add(index, value)
        elif self.retrieve(index) is None and index >= self.head:
            self._block.set(SPACE, self.key("entry", index), value)
        else:
            raise ContractBroken(
                f"entry {index} of {self._connection}:{self._queue} was written before"
            )

    def pop(self) -> bytes | None:
        """Remove the entry at the head and return it; None when there is none, and nothing changes."""
        return self.settle(self.head)

    def settle(self, index: int) -> bytes | None:
        """Remove an entry out of turn and return it, or None. The head moves on to the lowest that is left."""
        value = self.retrieve(index)
        if value is None:
            return None
        self._block.delete(SPACE, self.key("entry", index))
        if index == self.head:
            tail, lowest = self.tail, index + 1
            if lowest < tail and self.retrieve(lowest) is None:  # some were settled before
                rest = self._block.scan(SPACE, self.key("entry", lowest), self._tail_key)
                lowest = next((int.from_bytes(key[-8:], "big") for key, _ in rest), tail)
            self._count(self._head_key, lowest)
        return value

    def advance(self, index: int) -> None:
        """Remove all entries, and late ones, below an index; the head is there then, and the tail not before it.
        What is from there on stays, byte for byte."""
        head, tail = self.head, self.tail
        if index < head:
            raise ContractBroken(
                f"queue {self._connection}:{self._queue} never goes back from {head} to {index}"
            )
        if index == head:
            return
        parts: tuple[Part, ...] = ("entry", "late") if self._queue == "receipt" else ("entry",)
        for part in parts:
            span = self._block.scan(SPACE, self.key(part, head), self.key(part, index))
            for key in [key for key, _ in span]:
                self._block.delete(SPACE, key)
        self._count(self._head_key, index)
        if index > tail:
            self._count(self._tail_key, index)
