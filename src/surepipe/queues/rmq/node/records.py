"""The records of epochs: stored in a stream of their own, told to others and asked of them."""

from __future__ import annotations

from surepipe.core.effects import Notice, NoticeKind
from surepipe.core.store_requests import (
    AppendRun,
    FencedOut,
    Gap,
    Stored,
    TrimBefore,
)
from surepipe.queues.rmq.encoding import (
    Malformed,
    Value,
    decode,
    encode,
)
from surepipe.queues.rmq.epochs import (
    ProvenRecord,
)
from surepipe.queues.rmq.node.opening import OpeningNode
from surepipe.queues.rmq.node.state import ASK_US
from surepipe.queues.rmq.stored_log import (
    OpenedLog,
    OpenLog,
)


class RecordKeepingNode(OpeningNode):
    """What a node knows of epochs, through all of its lives."""

    # Told and asked.

    def _ask_epochs(self, peer: str) -> None:
        if self._told_at.get(peer, -ASK_US) + ASK_US <= self._now:
            self._told_at[peer] = self._now
            self._send(peer, "pull-epochs", self.queue, self.record.number)

    def _tell_epochs(self, route: str, known: int) -> None:
        if known < self.record.number:
            items = self.epochs.after(known)
            if items:
                self._send(route, "epochs", self.queue, items)
            if self.caught.fields and route in self.record.keys:
                self._send(route, "caught", self.queue, self.caught.fields)

    # Stored.

    @property
    def _stream(self) -> str:
        return f"{self._place}/epochs"

    def _ask_epochs_stream(self) -> None:
        self._call("epochs", b"", 0, OpenLog(self._stream, self.name, self._life, b"", 0))

    def _epochs_opened(self, outcome: object) -> None:
        match outcome:
            case OpenedLog(stored, _):
                self._index = stored.end
                if stored.rows:
                    self._restore(decode(stored.rows[-1]))
                self._is_read = True
                self._epochs_at = self._now
            case FencedOut():
                self.has_ended = True
                self._out.append(Notice(NoticeKind.FENCED, 0, (), "a later process has this node"))
            case _:
                self._again_at = self._now + ASK_US

    def _restore(self, row: Value) -> None:
        """Begin with what the last life knew: the records, and which sessions were open."""
        match row:
            case (tuple() as records, tuple() as opened, tuple() as closed, tuple() as caught):
                self.caught.restore(caught)
                for each in records:
                    self.epochs.add(ProvenRecord.of(each))
                self._closed.extend(each for each in closed if isinstance(each, bytes))
                for each in opened:
                    match each:
                        case (int() as number, bytes() as lo) if number in self.epochs.known:
                            found = self.epochs.known[number]
                            self._begin(found, found.partition(lo), is_of_last_life=True)
                        case _:
                            pass
            case _:
                raise Malformed("a row that no life of this node has written")

    def _write_epochs(self) -> None:
        """Store what is known, in one row; those before it are forgotten."""
        if self._again_at is not None and self._again_at <= self._now:
            self._again_at = None
        if self._again_at is not None or any(
            kind == "write" for kind, _, _ in self._calls.values()
        ):
            return
        for session, request in self._closing.items():
            if not any(call[:2] == ("close", session) for call in self._calls.values()):
                self._call("close", session, 0, request)
        if self._written is None:
            if not self._is_dirty:
                return
            self._is_dirty = False
            proven = tuple(self.epochs.proven[each].fields for each in sorted(self.epochs.proven))
            opened = tuple((each.epoch, each.partition.lo) for each in self._open.values())
            row = encode((proven, opened, tuple(self._closed), self.caught.fields))
            self._written = AppendRun(self._stream, self.name, self._life, self._seq, (row,))
        self._call("write", b"", 0, self._written)

    def _epochs_written(self, outcome: object) -> None:
        match outcome:
            case Stored():
                self._written = None
                self._seq += 1
                self._call("trim", b"", 0, TrimBefore(self._stream, self._index))
                self._index += 1
            case FencedOut() | Gap():
                self.has_ended = True
                self._out.append(Notice(NoticeKind.FENCED, 0, (), "a later process has this node"))
            case _:
                self._again_at = self._now + ASK_US
