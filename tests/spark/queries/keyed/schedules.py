"""Random schedules of what a bad route brings: lost, repeated, out of order, of one life or two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

from surepipe.spark.keyed import Arrival

Schedules = Mapping[str, Sequence[Arrival]]
FIELDS = ("channel", "arrived", "epoch", "seq", "payload", "at")
DDL = "channel string, arrived long, epoch long, seq long, payload binary, at long"


def schedule(rng: Random) -> list[Arrival]:
    """Some numbers of one life, perhaps of a second one; some lost, some twice, some swapped."""
    sent = [(1, seq) for seq in range(1, rng.randint(2, 12))]
    if rng.random() < 0.3:
        sent += [(2, seq) for seq in range(1, rng.randint(2, 6))]
    came = [one for one in sent if rng.random() > 0.1] or sent[:1]
    came += [rng.choice(sent) for _ in range(rng.randint(0, 4))]
    for _ in range(rng.randint(0, 6)):
        one, other = rng.randrange(len(came)), rng.randrange(len(came))
        came[one], came[other] = came[other], came[one]
    return [
        Arrival(epoch, seq, f"{epoch}/{seq}".encode(), 1000 * place)
        for place, (epoch, seq) in enumerate(came)
    ]


def schedules(seed: int, count: int) -> Schedules:
    """As many, each of a channel of its own."""
    rng = Random(seed)
    return {f"channel-{number}": schedule(rng) for number in range(count)}


def write_in_batches(folder: Path, found: Schedules, seed: int, batches: int) -> None:
    """A file for each micro-batch: each channel is cut at random places, and rows lie as a shuffle leaves them."""
    arrow: Any = import_module("pyarrow")
    parquet: Any = import_module("pyarrow.parquet")
    rng = Random(seed)
    rows: list[list[tuple[object, ...]]] = [[] for _ in range(batches)]
    for channel, arrivals in found.items():
        cuts = sorted(rng.randint(0, len(arrivals)) for _ in range(batches - 1))
        for place, one in enumerate(arrivals):
            number = sum(place >= cut for cut in cuts)
            row = (channel, place, one.epoch, one.seq, one.payload, one.at_us)
            rows[number].append(row)
    folder.mkdir(parents=True)
    for number, batch in enumerate(rows):
        rng.shuffle(batch)
        columns = zip(*batch, strict=True)
        named = {name: list(column) for name, column in zip(FIELDS, columns, strict=True)}
        parquet.write_table(arrow.table(named), folder / f"{number}.parquet")
