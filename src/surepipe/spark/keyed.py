"""Receivers as keyed operators: where channels were merged, or got other keys, and have to be put in order again.

A stream that is read by its index is in order and once, and needs none of this. Where messages of many channels
come mixed, late or twice (out of files, out of a queue of somebody else's), ``receive_by_channel`` gives each
channel a receiver: strict-monotonic or continuous-index, the same machines that actors run. Their states are kept
in Spark's state store, so they are part of its checkpoints.

After a shuffle Spark promises no order of the rows inside a key, so each group is sorted by ``arrived`` first.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from surepipe.core.effects import Deliver, Effect, Notice, WakeAt
from surepipe.errors import ConfigurationError
from surepipe.pipes.catalogue import LayerText, parse_layers
from surepipe.pipes.kinds.continuous_index import ContinuousIndex
from surepipe.pipes.options import LayerOptions
from surepipe.pipes.stack.assembled import ReceiverStack
from surepipe.pipes.wire.frames import Numbered, tag_of

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.state import GroupState


# A receiver machine between two micro-batches: a text of its state, from which the next batch goes on.
#
# These are the machines of ``surepipe.pipes``, not others like them: what a channel delivers on Spark is what
# it delivers to an actor. Nothing here knows Spark.


@dataclass(frozen=True, slots=True)
class Arrival:
    """One message as a route brought it: its number in an epoch of its channel, and when, in microseconds."""

    epoch: int
    seq: int
    payload: bytes
    at_us: int


@dataclass(frozen=True, slots=True)
class KeyedMessage:
    """What a receiver delivers."""

    epoch: int
    seq: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Remark:
    """A receiver's message to the people who run it, such as a hole that stays open."""

    kind: str
    epoch: int
    text: str


Said = KeyedMessage | Remark


class KeyedReceiver:
    """The receiver of one channel. ``deadline_us``: when it wants to be woken, None for not at all."""

    def __init__(self, channel: str, layer: LayerText, state: str | None = None) -> None:
        """Fresh, or as it was when ``state`` was taken: with the same channel and layer."""
        self.deadline_us: int | None = None
        self._tag = tag_of(channel)
        # Chance would be drawn anew in each batch, and a batch that is done again must end in the same state.
        self.machine = ReceiverStack(
            channel, [without_chance(layer)], rng=Random(channel), reverse=False
        )
        if state is not None:
            deadline, exported = cast("tuple[int | None, object]", from_text(state))
            self.deadline_us = deadline
            self.machine.restore(exported)

    @property
    def state(self) -> str:
        """All that there is to know about it. Equal states have equal texts."""
        return to_text([self.deadline_us, self.machine.export()])

    def take(self, arrivals: Iterable[Arrival]) -> list[Said]:
        """Take what arrived, in the order of arrival."""
        said: list[Said] = []
        for one in arrivals:
            now = self._start(one.at_us, said)
            if self.deadline_us is not None and now >= self.deadline_us:
                self._perform(self.machine.wake(now), now, said)
            frame = Numbered(self._tag, 0, one.epoch, one.seq, [one.payload])
            self._perform(self.machine.frame(frame, now), now, said)
        return said

    def wake(self, at_us: int) -> list[Said]:
        said: list[Said] = []
        now = self._start(at_us, said)
        self._perform(self.machine.wake(now), now, said)
        return said

    def _start(self, at_us: int, said: list[Said]) -> int:
        """The time as the machine may be told: it never goes back, whatever the clocks of hosts say."""
        now = max(at_us, self.machine.now)
        if not self.machine.started:
            self._perform(self.machine.wake(now), now, said)
        return now

    def _perform(self, effects: Iterable[Effect], now: int, said: list[Said]) -> None:
        todo = deque(effects)
        while todo:
            match todo.popleft():
                case Deliver(ticket, epoch, first, payloads):
                    said += [
                        KeyedMessage(epoch, seq, one) for seq, one in enumerate(payloads, first)
                    ]
                    last = first + len(payloads) - 1
                    todo.extend(self.machine.settled(ticket, ((first, last),), now))
                case Notice(kind, epoch, ranges, detail):
                    said.append(Remark(str(kind), epoch, _told(ranges, detail)))
                case WakeAt(deadline):
                    self.deadline_us = deadline
                case other:
                    raise AssertionError(f"a receiver without a way back and a store said {other}")


def _told(ranges: Iterable[tuple[int, int]], detail: str) -> str:
    spans = ", ".join(str(a) if a == b else f"{a}..{b}" for a, b in ranges)
    return ": ".join(part for part in (detail, spans) if part)


def without_chance(layer: LayerText) -> LayerOptions:
    """The layer, without the random part of its deadlines."""
    (options,) = parse_layers([layer])
    if isinstance(options, ContinuousIndex):
        return options.model_copy(update={"jitter": 0.0})
    return options


@dataclass(frozen=True, slots=True)
class ReceiverStanding:
    """How a receiver stands: messages that it holds and can't deliver yet, what it counted, a digest of it all."""

    channel: str
    held: int
    counters: Mapping[str, int]
    digest: str


def standing_of(channel: str, layer: LayerText, state: str) -> ReceiverStanding:
    """How the receiver of a channel stands that left this state."""
    machine = KeyedReceiver(channel, layer, state).machine
    counted = {name: count for name, count in machine.counters().items() if count}
    return ReceiverStanding(channel, machine.gauges()["held"], counted, digest_of(state))


def digest_of(state: str) -> str:
    """A short text that differs where states differ."""
    return hashlib.blake2b(state.encode(), digest_size=8).hexdigest()


# Exported states hold lists, numbers, texts and bytes, and no mapping: so a mapping may stand for bytes.


def to_text(value: object) -> str:
    """JSON of an exported state."""
    return json.dumps(value, separators=(",", ":"), default=_bytes_as_mapping)


def from_text(text: str) -> object:
    """The exported state in a text."""
    return json.loads(text, object_hook=_mapping_as_bytes)


def _bytes_as_mapping(value: object) -> object:
    if isinstance(value, bytes):
        return {"b": base64.b64encode(value).decode()}
    raise TypeError(f"{type(value).__name__} in the state of a machine")


def _mapping_as_bytes(mapping: dict[str, str]) -> bytes:
    return base64.b64decode(mapping["b"])


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
        if isinstance(one, KeyedMessage)
        else (channel, one.epoch, 0, b"", one.kind, one.text)
        for one in said
    ]
    return pd.DataFrame(rows, columns=[column.split()[0] for column in OUTPUT.split(", ")])


def left_standing(
    spark: SparkSession, checkpoint: str | Path, layer: LayerText = "continuous-index"
) -> Mapping[str, ReceiverStanding]:
    """How the receivers stand in the checkpoint of a query that has ended, by channel.

    ``held`` counts messages that wait for one that never came: a run to the end reports them with this.
    """
    found: dict[str, ReceiverStanding] = {}
    rows: DataFrame = spark.read.format("statestore").load(str(checkpoint))
    for row in rows.selectExpr("key.channel", "value.groupState.receiver AS state").collect():
        channel, state = cast("tuple[str, str]", tuple(row))
        found[channel] = standing_of(channel, layer, state)
    return dict(sorted(found.items()))
