from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surepipe.errors import StoreReset
from surepipe.spark import columns as arrow
from surepipe.spark.columns import COLUMNS, PageCut, RangeFacts, cut_of, record_batch
from surepipe.spark.source import STRUCT, arrow_schema
from surepipe.storage.pages import RawPage
from surepipe.storage.redis.pages import measures_of, paged
from surepipe.storage.sqlite.streams import pages_of

PAYLOADS = st.lists(st.binary(max_size=300), min_size=1, max_size=20)
RUNS = st.lists(
    st.tuples(PAYLOADS, st.text(max_size=4), st.integers(0, 2**53)), min_size=1, max_size=4
)
Make = Callable[[list[bytes], int, str, int], RawPage]
NAMED = RangeFacts("orders", 3, 99)


def redis_page(payloads: list[bytes], index: int, producer: str, first: int) -> RawPage:
    """A page as a Redis server keeps it."""
    (page,) = paged(first, payloads)
    width, lengths, start = measures_of(page.body, page.count)
    return RawPage(
        index, producer, 5, first, page.count, 1_000_000, width, lengths, page.body, start
    )


def sqlite_page(payloads: list[bytes], index: int, producer: str, first: int) -> RawPage:
    """A page as a SQLite file keeps it."""
    (page,) = pages_of(payloads)
    width, lengths = (0, b"") if page.lengths is None else (4, page.lengths)
    sizes = memoryview(lengths)
    return RawPage(index, producer, 5, first, page.count, 1_000_000, width, sizes, page.body, 0)


@pytest.mark.parametrize("make", [redis_page, sqlite_page])
@given(runs=RUNS, front=st.integers(0, 30), back=st.integers(0, 30))
def test_pages_become_the_rows_that_were_appended(
    make: Make, runs: list[tuple[list[bytes], str, int]], front: int, back: int
) -> None:
    """Payloads of any lengths, and any cut at both ends; every column against plain Python; spark SP-5."""
    pages: list[RawPage] = []
    expected: list[tuple[int, str, int, bytes]] = []
    index = 11
    for payloads, producer, first in runs:
        pages.append(make(payloads, index, producer, first + 1))
        expected += [(index + n, producer, first + 1 + n, p) for n, p in enumerate(payloads)]
        index += len(payloads)
    start, stop = 11 + front, index - back
    cuts = [cut for page in pages if (cut := cut_of(page, start, stop)).count > 0]
    if not cuts:
        return
    batch = record_batch(cuts, NAMED, arrow_schema(STRUCT))
    batch.validate(full=True)
    rows = batch.to_pylist()
    wanted = [row for row in expected if start <= row[0] < stop]
    assert [(row["index"], row["producer"], row["seq"], row["payload"]) for row in rows] == wanted
    shared = {
        (row["stream"], row["partition"], row["epoch"], row["key"], row["life"]) for row in rows
    }
    assert shared == {("orders", 3, 5, None, 99)}
    assert {row["at"].timestamp() for row in rows} == {1.0}


def test_columns_come_in_the_order_that_is_asked_for() -> None:
    """Each column alone gives the same values as among all."""
    cuts = [cut_of(redis_page([b"a", b"bb"], 1, "p", 1), 1, 3)]
    full = arrow_schema(STRUCT)
    whole = record_batch(cuts, NAMED, full)
    for name in COLUMNS:
        alone = record_batch(cuts, NAMED, arrow.schema_of([full.field(name)]))
        assert alone.column(0).equals(whole.column(name))


def test_a_page_whose_lengths_do_not_fit_its_body_is_refused() -> None:
    """The body lost its last byte."""
    page = redis_page([b"a", b"bb"], 1, "p", 1)
    short = RawPage(1, "p", 1, 1, 2, 0, page.width, page.lengths, page.body[:-1], page.start)
    with pytest.raises(StoreReset, match="says 3 bytes of payload and holds 2: it is damaged"):
        record_batch([PageCut(short, 0, 2)], NAMED, arrow_schema(STRUCT))
