"""What Spark tells of its query becomes numbers of parts: lag by input, rate, state (spark SP-17)."""

from __future__ import annotations

import json

from surepipe.observe.status import GAUGES
from surepipe.spark.running.layout import Input, StreamInStore
from surepipe.spark.running.query import counted_of, lags_of

NORTH = Input("north", StreamInStore("a", "shop/north"), "earliest", ())
SOUTH = Input("south", StreamInStore("a", "shop/south"), "earliest", ())
LATE = Input("late", StreamInStore("a", "shop/late"), "latest", ())
INPUTS = (SOUTH, LATE, NORTH)


def source(done: dict[str, int], there: dict[str, int]) -> dict[str, str | None]:
    """A source in Spark's words."""

    def text(nexts: dict[str, int]) -> str:
        return json.dumps({key: {"next": value} for key, value in nexts.items()})

    return {"endOffset": text(done), "latestOffset": text(there)}


def test_each_input_has_the_lag_of_its_own_stream() -> None:
    """spark SP-17: sources sorted as the query has them; partitions added; a stream not begun counts whole."""
    told = {
        "sources": [
            source(
                {"shop/north/0": 5, "shop/north/1": 2},
                {"shop/north/0": 9, "shop/north/1": 2, "shop/south/0": 4},
            ),
            source({"shop/late/0": 7}, {"shop/late/0": 7}),
        ]
    }
    assert lags_of(told, INPUTS) == {"north": 4, "south": 3, "late": 0}


def test_what_spark_does_not_tell_is_left_out() -> None:
    """spark SP-17: nothing before the first batch, and no guess when the sources are not those of the plan."""
    assert counted_of({}, 0) == {}
    assert lags_of({}, INPUTS) == {}
    assert lags_of({"sources": [source({}, {})]}, INPUTS) == {}
    assert lags_of({"sources": [{"endOffset": None}, {"latestOffset": None}]}, INPUTS) == {}


def test_rate_duration_and_state_are_gauges_in_whole_numbers() -> None:
    """spark SP-17: messages, not the pages that Spark counts; the sum over all operators with state."""
    told = {
        "numInputRows": 3,
        "batchDuration": 250,
        "stateOperators": [
            {"numRowsTotal": 3, "memoryUsedBytes": 1000},
            {"numRowsTotal": 4, "memoryUsedBytes": 24},
        ],
    }
    counted = counted_of(told, 50)
    assert counted == {"rows_per_s": 200, "batch_us": 250_000, "state_rows": 7, "state_bytes": 1024}
    assert set(counted) <= GAUGES
    assert counted_of({**told, "numInputRows": 0}, 50)["rows_per_s"] == 0
    assert counted_of({**told, "batchDuration": float("nan")}, 50)["rows_per_s"] == 0
