"""Receivers as keyed operators: where channels were merged, or got other keys, and have to be put in order again.

A stream that is read by its index is in order and once, and needs none of this. Where messages of many channels
come mixed, late or twice (out of files, out of a queue of somebody else's), ``receive_by_channel`` gives each
channel a receiver: strict-monotonic or continuous-index, the same machines that actors run. Their states are kept
in Spark's state store, so they are part of its checkpoints.

After a shuffle Spark promises no order of the rows inside a key, so each group is sorted by ``arrived`` first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from surepipe.errors import ConfigurationError
from surepipe.pipes.options import LayerText, parse_layers
from surepipe.spark.receiving import (
    Arrival,
    KeyedReceiver,
    Message,
    Said,
    Standing,
    standing_of,
)

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.state import GroupState

Clock: TypeAlias = Literal["rows", "processing"]

KINDS = ("strict-monotonic", "continuous-index")
WANTED = ("channel", "arrived", "epoch", "seq", "payload")
OUTPUT = "channel string, epoch long, seq long, payload binary, notice string, told string"
"""A message has ``seq`` and ``payload``; a notice its kind in ``notice``, and ``told`` says what about."""
STATE = "receiver string"


def receive_by_channel(
    rows: DataFrame,
    layer: LayerText = "continuous-index",
    *,
    clock: Clock = "rows",
) -> DataFrame:
    """The messages of each channel as its receiver delivers them, with notices between.

    ``rows`` has the columns ``channel`` (text), ``arrived`` (the place in the order of arrival: a number),
    ``epoch``, ``seq`` and ``payload`` (bytes). ``layer`` is strict-monotonic or continuous-index, with options as
    in a pipeline's file.

    ``clock``: "rows": time is what the column ``at`` says (microseconds; without the column it stands still), and
    a repeat of a batch gives the same. "processing": the time of Spark, so that a hole which stays open is noticed
    after ``gap_alarm_s`` even when nothing arrives. A run to the end (AvailableNow) then ends only with
    ``spark.sql.streaming.noDataMicroBatches.enabled`` off; ``left_standing`` tells what it left in the buffers.

    For a streaming query; output mode append. Done again after a crash it gives the same rows, as far as time does
    not matter. Raises ConfigurationError for another layer, or when a column is missing.
    """
    _check(rows, layer)
    timeout = "ProcessingTimeTimeout" if clock == "processing" else "NoTimeout"
    columns = [*WANTED, *(["at"] if "at" in rows.columns else [])]
    return (
        rows.select(*columns)
        .groupBy("channel")
        .applyInPandasWithState(_operator(layer, clock), OUTPUT, STATE, "append", timeout)
    )


def _check(rows: DataFrame, layer: LayerText) -> None:
    (options,) = parse_layers([layer])
    if options.kind not in KINDS:
        raise ConfigurationError(
            f"{options.kind} is no keyed operator: use {' or '.join(KINDS)}; pipes that send again need a way back"
        )
    missing = [name for name in WANTED if name not in rows.columns]
    if missing:
        raise ConfigurationError(
            f"receivers need the columns {', '.join(WANTED)}, and {', '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not there: select them"
        )


Operator: TypeAlias = (
    "Callable[[tuple[str], Iterable[pd.DataFrame], GroupState], Iterator[pd.DataFrame]]"
)


def _operator(layer: LayerText, clock: Clock) -> Operator:
    """The function of one group. Spark calls it by place, and in another process."""

    def receive(
        key: tuple[str], pieces: Iterable[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        kept: Any = state
        known = cast("tuple[str]", kept.get)[0] if state.exists else None
        receiver = KeyedReceiver(key[0], layer, known)
        now_us = state.getCurrentProcessingTimeMs() * 1000 if clock == "processing" else None
        timed_out = state.hasTimedOut
        said = receiver.wake(now_us or 0) if timed_out else receiver.take(_arrivals(pieces, now_us))
        kept.update((receiver.state,))
        if now_us is not None and receiver.deadline_us is not None:
            state.setTimeoutDuration(max(1, -((now_us - receiver.deadline_us) // 1000)))
        if said:
            yield _frame(key[0], said)

    return receive


def _arrivals(pieces: Iterable[pd.DataFrame], now_us: int | None) -> Iterator[Arrival]:
    rows: list[tuple[int, int, int, bytes, int]] = []
    for piece in pieces:
        columns = {name: cast("list[object]", piece[name].tolist()) for name in piece.columns}
        at = columns.get("at") if now_us is None else [now_us] * len(piece)
        wanted = (columns[name] for name in WANTED[1:])
        rows += cast(
            "list[tuple[int, int, int, bytes, int]]",
            list(zip(*wanted, at or [0] * len(piece), strict=True)),
        )
    rows.sort(key=lambda row: row[0])
    for _, epoch, seq, payload, at_us in rows:
        yield Arrival(epoch, seq, payload, at_us)


def _frame(channel: str, said: Iterable[Said]) -> pd.DataFrame:
    import pandas as pd  # noqa: PLC0415 - part of the extra

    rows = [
        (channel, one.epoch, one.seq, one.payload, "", "")
        if isinstance(one, Message)
        else (channel, one.epoch, 0, b"", one.kind, one.text)
        for one in said
    ]
    return pd.DataFrame(rows, columns=[column.split()[0] for column in OUTPUT.split(", ")])


def left_standing(
    spark: SparkSession, checkpoint: str | Path, layer: LayerText = "continuous-index"
) -> Mapping[str, Standing]:
    """How the receivers stand in the checkpoint of a query that has ended, by channel.

    ``held`` counts messages that wait for one that never came: a run to the end reports them with this.
    """
    found: dict[str, Standing] = {}
    rows: DataFrame = spark.read.format("statestore").load(str(checkpoint))
    for row in rows.selectExpr("key.channel", "value.groupState.receiver AS state").collect():
        channel, state = cast("tuple[str, str]", tuple(row))
        found[channel] = standing_of(channel, layer, state)
    return dict(sorted(found.items()))
