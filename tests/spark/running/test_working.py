"""What a task does with messages between a stream and the writers, without Spark (spark SP-2, SP-17)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import pytest

from surepipe.actors.codecs import AutoCodec, marked
from surepipe.core.store_requests import KEEP_ALL
from surepipe.errors import ConfigurationError
from surepipe.pipelines import loads
from surepipe.spark.columns import (
    STRING,
    RangeFacts,
    RecordBatch,
    array,
    batch_of_columns,
    cut_of,
    page_batch,
)
from surepipe.spark.running.layout import lay_out
from surepipe.spark.running.query import rows_of
from surepipe.spark.running.rows import COUNTS, counts_of, part_of
from surepipe.spark.running.working import TaskStages
from surepipe.spark.source import PAGE_STRUCT, arrow_schema
from surepipe.spark.stores import OpenStore
from surepipe.storage import SqliteStore
from surepipe.storage.letters import DeadLetterStream
from tests.spark.running.functions import NoPrice

HEAD = """
version: 1
name: shop
stores: {{main: {{kind: sqlite, path: "{folder}/main.db", durability: process}}}}
sources: {{orders: {{kind: stream, store: main, stream: orders}}}}
"""
BEHIND_A_PIPE = """
pipes: {{intake: {{from: orders, route: {{kind: sqlite, store: main}}}}}}
stages:
  {stages}
sinks: {{out: {{from: total, kind: stream, store: main, stream: out}}}}
"""
TRIES = "retries: 2, retry_min_s: 0.001, dead_letter: main/dead"
SINGLY = f'total: {{from: intake, call: "{__name__}:counted", {TRIES}}}'
TOGETHER = f"""both: {{from: intake, batch: {{max: 2}}}}
  total: {{from: both, flat-map: "{__name__}:counted_together", {TRIES}}}"""
BARE = """
pipes: {intake: {from: orders, route: {kind: sqlite, store: main}}}
sinks: {out: {from: intake, kind: stream, store: main, stream: out}}
"""
encode = AutoCodec().encode
Given: TypeAlias = Callable[[str, str, Sequence[bytes]], list[bytes]]


def counted(order: dict[str, int]) -> dict[str, int]:
    """Changes its message, and fails at the first attempt at each, at 3 always."""
    order["seen"] = order.get("seen", 0) + 1
    if order["n"] == 3 or order["n"] not in _tried:
        _tried.add(order["n"])
        raise NoPrice(f"{order['n']}")
    return order


_tried: set[int] = set()


def counted_together(orders: list[dict[str, int]]) -> list[dict[str, int]]:
    """The same of a batch."""
    return [counted(one) for one in orders]


@pytest.fixture(autouse=True)
def nothing_is_tried_yet() -> None:
    """Each test begins anew."""
    _tried.clear()


@pytest.fixture
def given(tmp_path: Path) -> Given:
    """Runs what is behind a part of a pipeline over payloads: what is for its target."""

    def run(text: str, part: str, payloads: Sequence[bytes]) -> list[bytes]:
        layout = lay_out(loads(HEAD.format(folder=tmp_path) + text))
        stream, store = layout.input_of(part).stream.name, layout.places["main"].store()
        store.create(stream, 1, KEEP_ALL)
        store.append(stream, "maker", 1, 1, payloads)
        task = TaskStages(layout)
        task.take(pages_of(store, stream, len(payloads)))
        found = [*rows_of([task.rows.take()])]
        (counts,) = [counts_of(row) for row in found if row[0] == COUNTS]
        assert counts[part]["settled"] == len(payloads)
        return [one for row in found if row[0] != COUNTS for one in part_of(row).outputs.payloads]

    return run


def pages_of(store: OpenStore, stream: str, count: int) -> RecordBatch:
    """What Spark's source gives of a stream."""
    found = store.read_pages(stream, 1, 1_000, 1 << 20, None)
    cuts = [cut_of(page, 1, count + 1) for page in getattr(found, "pages", ())]
    batch = page_batch(cuts, RangeFacts(stream, 0, 1), arrow_schema(PAGE_STRUCT, "pages"))
    columns = {name: batch.column(name) for name in batch.schema.names}
    return batch_of_columns({**columns, "store": array(["main"] * batch.num_rows, type=STRING)})


@pytest.mark.parametrize("stages", [SINGLY, TOGETHER], ids=["singly", "together"])
def test_each_attempt_is_given_the_message_as_it_was_sent(
    given: Given, tmp_path: Path, stages: str
) -> None:
    """spark SP-2: as on actors, where a payload is read anew; and the dead letter has what was sent."""
    sent = [encode({"n": number}) for number in range(1, 5)]
    made = given(BEHIND_A_PIPE.format(stages=stages), "intake", sent)
    assert made == [encode({"n": number, "seen": 1}) for number in (1, 2, 4)]
    letters = DeadLetterStream(SqliteStore(tmp_path / "main.db"), "dead").all()
    assert [(one.letter.payload, one.letter.attempts) for one in letters] == [(sent[2], 2)]


def test_what_no_function_touches_goes_on_as_it_lies_there(
    given: Given,
) -> None:
    """spark SP-17: blanks and all; but nothing stays of how often a letter was replayed."""
    spaced, raw = b'\x1e{"n":  1 }', b"no JSON"
    replayed = marked(encode({"n": 2}), 3)
    assert given(BARE, "orders", [spaced, replayed, raw]) == [spaced, encode({"n": 2}), raw]


def test_what_no_function_touches_and_nobody_can_read_is_told(
    given: Given,
) -> None:
    """spark SP-17: it goes no further."""
    with pytest.raises(ConfigurationError, match="no place for it"):
        given(BARE, "orders", [encode(1), b"\x1e{", encode(2)])
