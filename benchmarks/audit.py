"""The audit in bulk: DuckDB in this process and Spark, beside a judgement by hand in Polars; and how they grow.

    python -m benchmarks.audit                             1 and 10 million rows, some minutes
    python -m benchmarks.audit --rows 1 10 50 --rounds 3   millions; 50 need 8 GB of disk
    python -m benchmarks.audit --engines local polars

The rows of both logs are counted: half were accepted, half came out, one message each, over 64 channels, in two
Parquet files; one message in ten thousand is lost, one comes twice, one late. Each engine answers once
unmeasured, then the median of the rounds counts; Polars (``pip install polars``) computes the sums only, and no
examples.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from rich.console import Console
from rich.table import Table

from surepipe.audit.bulk import AuditEngine, BulkAudit, DuckEngine, Question, judge, place_of

CHANNELS = 64
MILLION = 1_000_000
LINEAR = 1.10

_COLUMNS = "run, node, incarnation, step, time_us, kind, pipe, epoch, seq, count, layer, detail"
_HEAD = """SELECT '{side}' AS run, 'run' AS node, 0 AS incarnation, 0 AS step, 0 AS time_us, 'run' AS kind,
  '' AS pipe, 0 AS epoch, 0 AS seq, 0 AS count, '' AS layer, '{{"clock":"wall","format":1}}' AS detail"""
_LIVES = """SELECT '{side}', '{side}-' || c, 1, {step}, {time}, '{kind}', 'channel-' || c, 0, 0, 0, '', '{detail}'
FROM range({channels}) t(c) {join}"""
_MESSAGES = {
    "accepted": "SELECT i, i AS moment FROM range({n}) t(i)",
    # Lost, twice, and five channels' lengths late.
    "settled": """SELECT i, i + CASE WHEN hash(i) % 10000 = 1 THEN 5 * {channels} ELSE 0 END AS moment
      FROM range({n}) t(i)
      WHERE hash(i) % 10000 <> 0
      UNION ALL SELECT i, i + 3 * {channels} FROM range({n}) t(i) WHERE hash(i) % 10000 = 2""",
}


def write_logs(folder: Path, rows: int) -> tuple[Path, Path]:
    """Both logs, with so many rows together."""
    duck = import_module("duckdb").connect(config={"preserve_insertion_order": "true"})
    paths = folder / "sent.parquet", folder / "delivered.parquet"
    for path, side, kind in zip(paths, ("s", "r"), ("accepted", "settled"), strict=True):
        messages = _MESSAGES[kind].format(n=rows // 2, channels=CHANNELS)
        body = f"""SELECT '{side}', '{side}-' || i % {CHANNELS}, 1,
          row_number() OVER (PARTITION BY i % {CHANNELS} ORDER BY moment, i), 10 + moment, '{kind}',
          'channel-' || i % {CHANNELS}, 1, i // {CHANNELS} + 1, 1, '', '' FROM ({messages})"""
        duck.execute(f"CREATE TEMP TABLE body({_COLUMNS}) AS {body} ORDER BY 5")
        ends = f"JOIN (SELECT node, max(step) + 1 AS step FROM body GROUP BY 1) l ON l.node = '{side}-' || c"
        start = _LIVES.format(
            side=side, step=0, time=1, kind="start", detail="", channels=CHANNELS, join=""
        )
        end = _LIVES.format(
            side=side,
            step="l.step",
            time=10 * rows,
            kind="end",
            detail='{"quiescent":true}',
            channels=CHANNELS,
            join=ends,
        )
        duck.execute(
            f"COPY ({_HEAD.format(side=side)} UNION ALL {start} UNION ALL SELECT * FROM body UNION ALL {end}) "
            f"TO '{path}' (FORMAT parquet, COMPRESSION zstd)"
        )
        duck.execute("DROP TABLE body")
    duck.close()
    return paths


def sums(found: BulkAudit) -> tuple[int, ...]:
    """What all engines must agree on."""
    return tuple(found.total(name) for name in ("lost", "repeated", "out_of_order", "gaps"))


def polars_sums(sent: Path, delivered: Path) -> tuple[int, ...]:
    """The same by hand: two sorts of what came out, and counts."""
    pl: Any = import_module("polars")
    accepted = pl.scan_parquet(sent).filter(pl.col("kind") == "accepted")
    counts = accepted.group_by("pipe").agg(sent=pl.len(), top=pl.col("seq").max())
    out = (
        pl.scan_parquet(delivered)
        .filter(pl.col("kind") == "settled")
        .select("pipe", "time_us", "step", "seq")
        .with_columns(pl.col("pipe").cast(pl.Categorical))
        .sort("pipe", "time_us", "step")
        .with_columns(before=pl.col("seq").cum_max().shift(1).over("pipe").fill_null(0))
        .sort("pipe", "seq", "step")
        .with_columns(known=(pl.col("seq") == pl.col("seq").shift(1).over("pipe")).fill_null(False))
        .group_by("pipe")
        .agg(
            came=(~pl.col("known")).sum(),
            repeated=pl.col("known").sum(),
            late=((pl.col("seq") < pl.col("before")) & ~pl.col("known")).sum(),
            gaps=(pl.col("seq") > pl.col("before") + 1).sum(),
        )
    )
    both = counts.select(pl.col("sent").sum()).collect().item()
    total = out.select("came", "repeated", "late", "gaps").sum().collect().row(0)
    return (both - total[0], *total[1:])


def measured(
    name: str, rounds: int, run: Callable[[], tuple[int, ...]]
) -> tuple[float, tuple[int, ...]]:
    """The median of the rounds, in seconds, and what was found."""
    found = run()
    times: list[float] = []
    for _ in range(rounds):
        begun = time.perf_counter()
        assert run() == found, f"{name} says one thing and then another"
        times.append(time.perf_counter() - begun)
    return statistics.median(times), found


def runs(
    engines: Sequence[str], session: Any
) -> dict[str, Callable[[Path, Path], tuple[int, ...]]]:
    """Each engine as a function of the two logs."""

    def bulk(make: Callable[[], AuditEngine]) -> Callable[[Path, Path], tuple[int, ...]]:
        def run(sent: Path, delivered: Path) -> tuple[int, ...]:
            engine = make()
            try:
                return sums(judge(engine, Question(place_of(str(sent)), place_of(str(delivered)))))
            finally:
                engine.close()

        return run

    def on_spark() -> AuditEngine:
        return cast("AuditEngine", import_module("surepipe.spark.audit").SparkEngine(session))

    known = {"local": bulk(DuckEngine), "polars": polars_sums, "spark": bulk(on_spark)}
    return {name: known[name] for name in engines}


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rows", type=float, nargs="+", default=[1, 10], help="millions")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--engines", nargs="+", default=["local", "polars", "spark"])
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--memory", default="4g")
    options = parser.parse_args(arguments)
    table = Table("engine", "rows", "seconds", "M rows/s", "growth / rows", title="audit in bulk")
    session: Any = None
    with tempfile.TemporaryDirectory() as folder:
        if "spark" in options.engines:
            module = import_module("surepipe.spark.session")
            state = Path(folder) / "spark"
            session = module.open_session(
                module.SparkOptions(master=options.master, memory=options.memory, state_dir=state)
            )
        first: dict[str, tuple[int, float]] = {}
        for size in options.rows:
            rows = int(size * MILLION)
            sent, delivered = write_logs(Path(folder), rows)
            agreed: set[tuple[int, ...]] = set()
            for name, run in runs(options.engines, session).items():
                with suppress(ModuleNotFoundError):
                    seconds, found = measured(name, options.rounds, lambda: run(sent, delivered))  # noqa: B023
                    agreed.add(found)
                    rows_then, seconds_then = first.setdefault(name, (rows, seconds))
                    growth = (seconds / seconds_then) / (rows / rows_then)
                    told = f"{growth:.2f}" + ("" if growth <= LINEAR else " (wanted: 1.10)")
                    print(f"{name}, {rows:,} rows: {seconds:.2f} s", file=sys.stderr, flush=True)
                    table.add_row(
                        name, f"{rows:,}", f"{seconds:.2f}", f"{rows / seconds / 1e6:.2f}", told
                    )
            assert len(agreed) == 1, f"the engines do not agree: {agreed}"
        if session is not None:
            session.stop()
    Console().print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
