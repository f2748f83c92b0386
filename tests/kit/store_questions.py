"""Questions to stores, drawn at random: asked of two stores in the same order, they must be answered the same."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from surepipe.core.store_requests import (
    AppendRun,
    CommitPosition,
    DropValues,
    Identity,
    JoinedRequest,
    LoadTable,
    PutValues,
    RaiseMark,
    ReadKeys,
    Retention,
    Store,
    TableRows,
    Together,
    TransactionalStore,
    WaitForMark,
)
from surepipe.storage.positions import note_read

RETENTIONS = (
    (1, Retention()),
    (4, Retention()),
    (4, Retention(force=True)),
    (1, Retention(max_bytes=40)),
    (1, Retention(max_bytes=40, force=True)),
    (1, Retention(max_age_us=5_000)),
)
"""The longest run, and the retention, that are asked together."""


Question = Callable[[Store], object]


class Questions:
    """Draws what to ask.

    Where the stores may differ it does not ask: runs have one message where there are trims, as one store trims to
    the page; and streams with a bound have no reader, as an append that is refused in the end lets old entries
    go in one store and not in the other. But somebody may say at any time that he reads it from elsewhere.
    """

    def __init__(
        self, rng: random.Random, longest: int, retention: Retention, *, stream: str = "s"
    ) -> None:
        """``longest`` is the longest run; ``stream`` has this retention."""
        self.stream = stream
        self._rng = rng
        self._longest = longest
        bound = retention.max_bytes is not None or retention.max_age_us is not None
        self._readers = retention.force or not bound
        self._seqs: dict[tuple[str, int], int] = {}

    def draw(self) -> Question:
        """One question."""
        kinds = [self._append] * 6 + [self._read] * 3
        kinds += [self._open, self._identify, self._trim, self._claim, self._ask]
        kinds += [*[self._together] * 2, self._keys]
        kinds += [*[self._commit] * 3, self._transaction] if self._readers else [self._leave_word]
        return self._rng.choice(kinds)()

    def _run(self) -> AppendRun:
        """Mostly the next of a producer's epoch, sometimes a repeat or a gap."""
        rng = self._rng
        producer, epoch = rng.choice("ab"), rng.choice([1, 1, 1, 2, 10, 2**63 - 1])
        expected = self._seqs.get((producer, epoch), 0) + 1
        first = max(1, expected + rng.choice([0, 0, 0, 0, -1, -2, 1]))
        count = rng.randint(1, self._longest)
        if first <= expected:
            self._seqs[producer, epoch] = max(expected - 1, first + count - 1)
        payloads = [rng.randbytes(rng.randint(0, 12)) for _ in range(count)]
        return AppendRun(self.stream, producer, epoch, first, payloads)

    def _position(self) -> CommitPosition:
        rng = self._rng
        anchor = Identity("a", 1, rng.randint(1, 9)) if rng.random() < 0.5 else None
        tag, previous = rng.choice([7, 7, 8]), rng.choice([None, 7, 8])
        revision = rng.choice([0, 1, 2, 3])
        index, owner = rng.randint(1, 40), rng.randint(1, 3)
        return CommitPosition(
            self.stream,
            rng.choice("rq"),
            owner,
            tag,
            index,
            anchor,
            rng.randbytes(3),
            previous,
            revision,
        )

    def _append(self) -> Question:
        run = self._run()
        return lambda store: store.append(
            run.stream, run.producer, run.epoch, run.first, run.payloads
        )

    def _commit(self) -> Question:
        position = self._position()
        return lambda store: store.commit(position)

    def _leave_word(self) -> Question:
        return lambda store: note_read(store, self.stream)

    def _read(self) -> Question:
        index, messages, size = (self._rng.randint(1, most) for most in (60, 9, 50))
        return lambda store: store.read(self.stream, index, messages, size)

    def _open(self) -> Question:
        producer, epoch, base = (
            self._rng.choice("ab"),
            self._rng.randint(1, 3),
            self._rng.randint(1, 9),
        )
        return lambda store: store.open_producer(self.stream, producer, epoch, base)

    def _identify(self) -> Question:
        index = self._rng.randint(0, 60)
        return lambda store: store.identify(self.stream, index)

    def _trim(self) -> Question:
        before = self._rng.randint(1, 60) if self._longest == 1 else 1
        return lambda store: store.trim(self.stream, before)

    def _claim(self) -> Question:
        reader, claimant = self._rng.choice("rq"), self._rng.randint(1, 4)
        return lambda store: store.claim(self.stream, reader, claimant)

    def _ask(self) -> Question:
        reader = self._rng.choice("rq")
        return lambda store: (
            store.info(self.stream),
            store.get(self.stream, reader),
            store.get("other", reader),
        )

    def _key(self) -> bytes:
        return self._rng.choice([b"a", b"b", b"\x00", b"c" * 9])

    def _part(self) -> JoinedRequest:
        rng = self._rng
        put = PutValues(self.stream, {self._key(): rng.randbytes(2) for _ in range(2)})
        parts: list[JoinedRequest] = [put, put, DropValues(self.stream, [self._key()])]
        parts += [RaiseMark(self.stream), self._run()]
        return rng.choice([*parts, self._position()] if self._readers else parts)

    def _together(self) -> Question:
        rng = self._rng
        first = self._run()
        rest = [self._part() for _ in range(rng.randint(0, 3))]
        request = Together([first, *rest], rng.random() < 0.7)
        return lambda store: store.ask(request)

    def _keys(self) -> Question:
        asked = ReadKeys(self.stream, [self._key(), self._key()])
        mark = WaitForMark(self.stream, 1, 0)
        return lambda store: (store.ask(asked), store.ask(mark), whole(store, self.stream))

    def _request(self) -> AppendRun | CommitPosition:
        return self._run() if self._rng.random() < 0.5 else self._position()

    def _transaction(self) -> Question:
        requests = [self._request() for _ in range(self._rng.randint(1, 3))]
        return lambda store: transact(store, requests)


def whole(store: Store, table: str) -> object:
    """All rows of a table, which come in no order."""
    rows = store.ask(LoadTable(table, b"", 100))
    return sorted(rows.pairs) if isinstance(rows, TableRows) else rows


def transact(store: Store, requests: Sequence[AppendRun | CommitPosition]) -> object:
    """All requests in one transaction: whether it was done, and the outcomes."""
    assert isinstance(store, TransactionalStore)
    with store.transaction() as transaction:
        for request in requests:
            if isinstance(request, AppendRun):
                transaction.append(request)
            else:
                transaction.commit(request)
    return transaction.done, transaction.outcomes


def comparable(outcome: object) -> str:
    """Sequences of payloads compare by their contents, whether tuple or list."""
    return str(outcome).replace("(", "[").replace(")", "]").replace(",]", "]")
