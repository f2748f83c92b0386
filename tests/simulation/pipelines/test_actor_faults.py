"""Faults of the catalogue in worlds of actors: trimmed streams, and control frames of long ago."""

from __future__ import annotations

from pathlib import Path

from surepipe.pipelines.simulated.campaign import run_seeds
from surepipe.pipelines.simulated.simulate import simulation_of
from surepipe.simulation.faults import chosen
from tests.simulation.pipelines.kit import MESSAGES, bank

RELIABLE = """\
version: 1
name: shop
stores: {main: {kind: sqlite, path: shop.db}}
sources: {lines: {kind: jsonl, path: lines.jsonl}}
pipes:
  intake: {from: lines, layers: [reliable], journal: main, state: main, boundary: committed}
sinks: {out: {from: intake, kind: jsonl, path: out.jsonl}}
"""


def test_a_stream_that_is_trimmed_behind_its_reader_loses_nothing() -> None:
    """Trimmed in nearly every seed, with crashes of the reader; its retention protects what is unread (F29)."""
    kinds = chosen(["trim", "receiver-crash"])
    found = run_seeds(
        bank(with_key=True), range(12), kinds=kinds, messages=MESSAGES, has_check=True
    )
    assert dict(found.violated) == {}
    assert found.faults["F29"] >= 6


def test_stale_control_frames_and_slow_answers_harm_no_pipe(tmp_path: Path) -> None:
    """Confirms of long ago come once more (F27); where answers are slow, repeats are nobody's fault (P9)."""
    (tmp_path / "shop.yaml").write_text(RELIABLE)
    subject = simulation_of(tmp_path / "shop.yaml", messages=MESSAGES).subject
    found = run_seeds(subject, range(16, 30), kinds=chosen(["stale"]), messages=MESSAGES)
    assert dict(found.violated) == {}
    assert found.faults["F27"] >= 1
