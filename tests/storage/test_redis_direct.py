"""Pages read past the scripts: the same as through ``read.lua``, and never when something is amiss."""

from __future__ import annotations

import pytest

from surepipe.core.store_requests import Ahead, Empty, Failed, Reset, StreamInfo, Trimmed
from surepipe.storage.pages import PagesOutcome, RawBatch
from surepipe.storage.redis.keys import LAYOUT_VERSION
from surepipe.storage.redis.pages import PAGE_MAX_BYTES
from tests.contracts.store_contract import make, put
from tests.kit.redis_bench import RedisBench

EVERYTHING = 1 << 30


@pytest.fixture(name="filled")
def filled_bench(redis_bench: RedisBench) -> RedisBench:
    """Ten pages of three messages: they begin at 1, 4 ... 28, and the next index is 31."""
    make(redis_bench)
    for first in range(1, 31, 3):
        put(redis_bench, first, first, first + 1, "x" * first)
    return redis_bench


def incarnation_of(bench: RedisBench) -> int:
    """Of the stream, now."""
    info = bench.store.info("s")
    assert isinstance(info, StreamInfo)
    return info.incarnation


def read(
    bench: RedisBench,
    index: int,
    most: int = 1000,
    size: int = EVERYTHING,
    known: int | None = None,
) -> PagesOutcome:
    """Read directly, if nothing is amiss."""
    return bench.store.read_pages("s", index, most, size, known or incarnation_of(bench))


def begins(outcome: PagesOutcome) -> list[int]:
    """Where the pages begin."""
    assert isinstance(outcome, RawBatch), outcome
    return [page.index for page in outcome.pages]


def scripts_run(bench: RedisBench) -> int:
    """How many scripts the server has run."""
    return bench.redis.calls().get("evalsha", 0)


def test_pages_are_those_of_the_script_and_cost_no_script(filled: RedisBench) -> None:
    """From each page on; without an incarnation the script reads."""
    known = incarnation_of(filled)
    for index in range(1, 31, 3):
        through_script = filled.store.read_pages("s", index, 1000, EVERYTHING)
        before = scripts_run(filled)
        assert read(filled, index, known=known) == through_script
        assert scripts_run(filled) == before


def test_a_reader_inside_a_page_gets_the_page_that_holds_its_index(filled: RedisBench) -> None:
    """Index 5 lies in the page that begins at 4."""
    assert begins(read(filled, 5)) == list(range(4, 31, 3))


def test_reading_ends_with_the_page_that_reaches_the_number_of_messages(filled: RedisBench) -> None:
    """Entries 4 to 10 lie in the pages from 4, 7 and 10."""
    assert begins(read(filled, 4, most=7)) == [4, 7, 10]
    assert begins(read(filled, 4, most=1)) == [4]


def test_a_read_that_has_what_it_wants_asks_no_more(filled: RedisBench) -> None:
    """Entries 4 to 12 end with a page: one question is enough."""
    known, before = incarnation_of(filled), filled.redis.calls().get("xrange", 0)
    assert begins(read(filled, 4, most=9, known=known)) == [4, 7, 10]
    assert filled.redis.calls()["xrange"] == before + 1


def test_bytes_bound_what_comes_in_one_read(redis_bench: RedisBench) -> None:
    """Pages of 64 KiB: two and a bit are three."""
    make(redis_bench)
    put(redis_bench, 1, *("x" * PAGE_MAX_BYTES for _ in range(6)))
    assert begins(read(redis_bench, 1, size=1)) == [1]
    assert begins(read(redis_bench, 1, size=2 * PAGE_MAX_BYTES + 1)) == [1, 2, 3]


def test_the_end_is_that_of_the_stream(filled: RedisBench) -> None:
    """The next index, not where the pages end."""
    outcome = read(filled, 1, most=3)
    assert isinstance(outcome, RawBatch)
    assert outcome.end == 31


def test_what_is_amiss_is_said_as_by_the_script(filled: RedisBench) -> None:
    """The end, beyond it, another incarnation, a trim, another layout; storage S-7, S-12."""
    known = incarnation_of(filled)
    assert read(filled, 31) == Empty(31)
    assert read(filled, 99) == Ahead(31)
    assert read(filled, 1, known=known + 1) == Reset(known)
    filled.store.trim("s", 8)
    assert read(filled, 1) == Trimmed(7)
    layout = filled.keys.layout(filled.pipeline)
    filled.redis("SET", layout, "999")
    assert isinstance(read(filled, 7, known=known), Failed)
    filled.redis("SET", layout, LAYOUT_VERSION)
    assert begins(read(filled, 7))[0] == 7


def test_pages_that_a_trim_overtook_are_not_used(filled: RedisBench) -> None:
    """The head is looked at behind the pages: here it says that they are gone while they are still there."""
    filled.redis("HSET", filled.keys.head("s"), "earliest", 4)
    assert read(filled, 1) == Trimmed(4)


def test_a_page_that_somebody_damaged_is_refused(filled: RedisBench) -> None:
    """Its body is no page: the script's reply is refused in the same way."""
    fields = ["p", "m", "e", 1, "f", 31, "n", 3, "t", 0, "c", 0, "b", b"\x09"]
    filled.redis("XADD", filled.keys.pages("s"), "31-0", *fields)
    filled.redis("HSET", filled.keys.head("s"), "next", 34)
    outcome = read(filled, 31)
    assert isinstance(outcome, Failed)
    assert "damaged" in outcome.reason
