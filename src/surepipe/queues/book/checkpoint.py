"""What the log of a book came to, in tables: so the log stays short, and a process that begins reads little.

``<book>/books`` has a row for each queue, ``<book>/pages`` one for each page, ``<book>/heaps`` the bytes of pages
in pieces, ``<book>/producers`` the watermarks, ``<book>/head`` the rest. A checkpoint writes what has changed
since the one before, in one step with its entry of the log. A page that still grows is stored piece by piece; one
that is left is stored once more as a whole, and its pieces go.

Two processes may make one at the same time. The position ``<book>/checkpoint`` decides: the first one is stored,
and the other, which does not know of it, is not.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from operator import attrgetter
from typing import cast

from surepipe.core.store_requests import (
    CommitPosition,
    DropValues,
    FoundValues,
    JoinedRequest,
    LoadTable,
    PutValues,
    ReadKeys,
    Store,
    TableRows,
    Unavailable,
)
from surepipe.errors import StoreReset, StoreUnavailable
from surepipe.queues.book.changes import Checkpoint, Facts
from surepipe.queues.book.config import NOTHING, Vector
from surepipe.queues.book.ledger import Book, Lease, Ledger
from surepipe.queues.book.page import Page, PageCorrupt

HEAD = b"head"
ROWS = 1_000
KEYS_AT_ONCE = 4_096
"""Keys in one request of a checkpoint; there are as many requests as it takes."""
CACHE_BYTES = 64 << 20
"""How much of the pages that are stored stays in memory as well."""
_PLAIN = (
    "generation", "begin", "end", "messages", "bytes", "waiting", "weight", "paused", "suspended", "deficit",
    "turn_open", "attempts", "wake", "careful", "sweeping", "next_number", "idle_since",
)  # fmt: skip
_CURSOR = ("page_bytes", "number", "size", "slots", "first", "first_index", "pieces")


def _page_key(generation: int, number: int) -> bytes:
    return b"%d.%d" % (generation, number)


def _piece_key(generation: int, number: int, offset: int) -> bytes:
    return b"%d.%d.%d" % (generation, number, offset)


_ENCODER = json.JSONEncoder(separators=(",", ":"), check_circular=False)
_plain_of = attrgetter(*_PLAIN)
_cursor_of = attrgetter(*_CURSOR[:-1])


def _dumped(row: object) -> bytes:
    return _ENCODER.encode(row).encode()


class Checkpoints:
    """The checkpoints of one book."""

    def __init__(self, store: Store, book: str) -> None:
        self._store = store
        self._book = book

    # Saving.

    def written(self, ledger: Ledger, wall: int) -> tuple[Checkpoint, tuple[JoinedRequest, ...]]:
        """A checkpoint of the ledger: its entry, and what is stored with it unless another process was first.

        1. Two processes make one of different entries. 2. The earlier one stores the row of a page. 3. The later
        one, for which that page is gone and was never stored, lets the row stand, and who loads it finds a page
        that has been handled. So each says over which it is made, and the second one is refused.
        """
        through = ledger.index
        self._load_whole(ledger)
        pieces = list(self._pieces(ledger))
        entry = Checkpoint(wall, through, tuple(piece[:4] for piece in pieces))
        guard = CommitPosition(
            f"{self._book}/checkpoint", "checkpoint", 1, through, through,
            previous_tag=ledger.checkpoint,
        )  # fmt: skip
        return entry, (guard, *self._rows(ledger, pieces))

    def _load_whole(self, ledger: Ledger) -> None:
        """A page that is left is stored as one piece, so all of it has to be here."""
        for origin, number in ledger.dirty_pages:
            book = ledger.books[origin]
            page = book.pages[number]
            if number + 1 != book.end and len(page.pieces) > 1 and not page.is_loaded:
                with contextlib.suppress(StoreReset):  # its queue waits, and is stored as it is
                    self.load_page(book.generation, number, page)

    def _pieces(self, ledger: Ledger) -> Iterator[tuple[int, int, int, int, bytes]]:
        for origin, number in ledger.dirty_pages:
            book = ledger.books[origin]
            page = book.pages[number]
            start = page.saved
            is_cut = bool(page.pieces) and (start < page.size or len(page.pieces) > 1)
            if number + 1 != book.end and is_cut and page.is_loaded:
                start = 0
            if start < page.size:
                yield (
                    book.generation,
                    number,
                    start,
                    page.size,
                    bytes(page.heap[start - page.base :]),
                )

    def _rows(
        self, ledger: Ledger, pieces: list[tuple[int, int, int, int, bytes]]
    ) -> list[JoinedRequest]:
        ends: dict[tuple[int, int], tuple[int, int]] = {
            (generation, number): (start, end) for generation, number, start, end, _ in pieces
        }
        books: dict[bytes, bytes] = {}
        pages: dict[bytes, bytes] = {}
        gone = [_piece_key(*place) for place in ledger.gone_pages]
        gone_pages = list(dict.fromkeys(_page_key(*place[:2]) for place in ledger.gone_pages))
        for origin in ledger.dirty:
            if origin in ledger.books:
                books[origin.encode()] = self._book_row(ledger, ledger.books[origin])
        for origin, number in ledger.dirty_pages:
            book = ledger.books[origin]
            page = book.pages[number]
            stored = list(page.pieces)
            if (book.generation, number) in ends:
                start, end = ends[book.generation, number]
                gone += [
                    _piece_key(book.generation, number, offset)
                    for offset in page.offsets_stored()
                    if offset > start
                ]
                stored = [each for each in stored if each <= start] + [end]
            pages[_page_key(book.generation, number)] = self._page_row(book, number, page, stored)
        alive = [key for key in gone_pages if key not in pages]
        heaps = {_piece_key(*piece[:3]): piece[4] for piece in pieces}
        producers = {
            name.encode(): _dumped(ledger.producers[name]) for name in ledger.dirty_producers
        }
        head = {HEAD: self._head_row(ledger)}
        found: list[JoinedRequest] = []
        for table, rows in (
            ("books", books), ("pages", pages), ("heaps", heaps), ("producers", producers), ("head", head),
        ):  # fmt: skip
            names = list(rows)
            for start in range(0, len(names), KEYS_AT_ONCE):
                part = {name: rows[name] for name in names[start : start + KEYS_AT_ONCE]}
                found.append(PutValues(f"{self._book}/{table}", part))
        for table, keys in (
            ("books", [origin.encode() for origin in ledger.gone_books]),
            ("pages", alive),
            ("heaps", [key for key in dict.fromkeys(gone) if key not in heaps]),
        ):
            for start in range(0, len(keys), KEYS_AT_ONCE):
                part_of_keys = keys[start : start + KEYS_AT_ONCE]
                found.append(DropValues(f"{self._book}/{table}", part_of_keys))
        return found

    def _book_row(self, ledger: Ledger, book: Book) -> bytes:
        lease = book.lease
        return _dumped(
            [
                *_plain_of(book),
                book.blocked.row if book.blocked else None,
                [lease.worker, lease.token, lease.upto, lease.counted, lease.spent]
                if lease
                else None,
                ledger.ring.after(book.origin),
            ]
        )

    def _page_row(self, book: Book, number: int, page: Page, pieces: list[int]) -> bytes:
        cursor = _cursor_of(page)
        parked = [[slot, book.parked[number, slot].row] for slot in page.parked]
        return _dumped([book.origin, *cursor, pieces, parked, list(page.done.items())])

    def _head_row(self, ledger: Ledger) -> bytes:
        return _dumped(
            {
                "index": ledger.index,
                "head": ledger.ring.head,
                "generation": ledger.last_generation,
                "totals": ledger.totals,
                "founded": ledger.founded,
                "taken": [[*place, worker] for place, worker in ledger.taken.items()],
                "idle": list(ledger.idle.items()),
                "period": ledger.period,
            }
        )

    def forget_bytes(self, ledger: Ledger) -> None:
        """Pages that are stored leave the memory when there are too many of them."""
        pages = [page for book in ledger.books.values() for page in book.pages.values()]
        if sum(len(page.heap) for page in pages) > CACHE_BYTES:
            for page in pages:
                page.unload()

    # Loading.

    def is_ahead(self, ledger: Ledger) -> bool:
        """Whether there is a checkpoint of later entries than those that were applied."""
        head = self._head()
        return head is not None and cast("int", head["index"]) > ledger.index

    def load(self, ledger: Ledger) -> None:
        """Let an empty ledger be what the last checkpoint says; nothing, when there is none."""
        while True:
            head = self._head()
            if head is None:
                return
            books, pages, producers = (
                dict(self._table(name)) for name in ("books", "pages", "producers")
            )
            if self._head() == head:
                break  # nobody has made another one meanwhile
        self._restore(ledger, head, books, pages)
        for name, row in producers.items():
            epoch, last = json.loads(row)
            ledger.producers[name.decode()] = (epoch, last)

    def _head(self) -> dict[str, object] | None:
        found = self._store.ask(ReadKeys(f"{self._book}/head", (HEAD,)))
        if not isinstance(found, FoundValues):
            raise _unavailable(self._book, found)
        return None if found.values[0] is None else json.loads(found.values[0])

    def _table(self, table: str) -> Iterator[tuple[bytes, bytes]]:
        after = b""
        while True:
            rows = self._store.ask(LoadTable(f"{self._book}/{table}", after, ROWS))
            if not isinstance(rows, TableRows):
                raise _unavailable(self._book, rows)
            yield from rows.pairs
            if rows.after is None:
                return
            after = rows.after

    def _restore(
        self,
        ledger: Ledger,
        head: dict[str, object],
        books: dict[bytes, bytes],
        pages: dict[bytes, bytes],
    ) -> None:
        ledger.index = ledger.checkpoint = cast("int", head["index"])
        ledger.last_generation = cast("int", head["generation"])
        ledger.totals.update(cast("dict[str, int]", head["totals"]))
        ledger.founded = cast("dict[str, int | None] | None", head["founded"])
        for generation, page, slot, worker in cast(
            "list[tuple[int, int, int, str]]", head["taken"]
        ):
            ledger.taken[generation, page, slot] = worker
        following: dict[str, str] = {}
        for key, row in books.items():
            book, behind = self._book_of(key.decode(), json.loads(row))
            ledger.books[book.origin] = book
            ledger.generations[book.generation] = book.origin
            if behind is not None:
                following[book.origin] = behind
            if book.lease is not None:
                ledger.leased.setdefault(book.lease.worker, set()).add(book.origin)
        ledger.ring.restore(following, cast("str | None", head["head"]))
        for key, row in pages.items():
            number = int(key.decode().split(".")[1])
            self._page_of(ledger, number, json.loads(row))
        ledger.idle = dict(cast("list[tuple[str, int]]", head["idle"]))
        period, spent = cast("tuple[int, list[int]]", head.get("period", (0, NOTHING)))
        ledger.period = (period, cast("Vector", tuple(spent)))

    def _book_of(self, origin: str, row: list[object]) -> tuple[Book, str | None]:
        *plain, blocked, lease, behind = row
        book = Book(origin, 0)
        for name, value in zip(_PLAIN, plain, strict=True):
            setattr(
                book, name, tuple(cast("list[int]", value)) if isinstance(value, list) else value
            )
        book.blocked = Facts.of(cast("list[object]", blocked)) if blocked else None
        if lease:
            worker, token, upto, counted, spent = cast("list[object]", lease)
            page, slot = cast("list[int]", upto)
            book.lease = Lease(
                cast("str", worker), cast("int", token), (page, slot), bool(counted), bool(spent)
            )
        return book, cast("str | None", behind)

    def _page_of(self, ledger: Ledger, number: int, row: list[object]) -> None:
        origin, *cursor, parked, done = row
        book = ledger.books[cast("str", origin)]
        page = Page(0)
        for name, value in zip(_CURSOR, cursor, strict=True):
            setattr(page, name, value)
        page.base = page.size
        for slot, facts in cast("list[tuple[int, list[object]]]", parked):
            known = Facts.of(facts)
            page.park(slot, known.bytes)
            book.parked[number, slot] = known
        for slot, length in cast("list[tuple[int, int]]", done):
            page.settle(slot, length)
        book.pages[number] = page

    def load_page(self, generation: int, number: int, page: Page) -> None:
        """Bring back the bytes of a page. Raises StoreUnavailable, and StoreReset when they are gone."""
        keys = [_piece_key(generation, number, offset) for offset in page.offsets_stored()]
        found = self._store.ask(ReadKeys(f"{self._book}/heaps", keys))
        if not isinstance(found, FoundValues):
            raise _unavailable(self._book, found)
        try:
            page.load(b"".join(value or b"" for value in found.values))
        except PageCorrupt as error:
            raise StoreReset(
                f"book {self._book!r}: page {number} of generation {generation} is gone from its store, or is "
                f"another one ({error}), with messages {page.number + page.first_index}.."
                f"{page.number + page.slots - 1}; its queue waits"
            ) from error


def _unavailable(book: str, outcome: object) -> Exception:
    detail = outcome.detail if isinstance(outcome, Unavailable) else str(outcome)
    return StoreUnavailable(f"book {book!r}: a read was not answered ({detail}); try again")
