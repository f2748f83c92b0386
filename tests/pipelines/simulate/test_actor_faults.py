"""Faults of the catalogue in worlds of actors: trimmed and damaged streams, stale frames, offers at the bounds."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import cast

import pytest

from surepipe.actors.ends.intake import SenderEntry
from surepipe.core.store_requests import Failed, ReadFrom, StoreOutcome, StoreRequest
from surepipe.errors import PipeFull
from surepipe.pipelines.simulate.campaign import run_seeds
from surepipe.pipelines.simulate.simulating import simulation_of
from surepipe.pipelines.simulate.subject import PlanSubject
from surepipe.simulation.faults import chosen
from surepipe.simulation.results import RunResult
from surepipe.simulation.stores.store import SimulatedStore
from tests.pipelines.simulate.kit import MESSAGES, SAMPLE, bank

Answering = Callable[[SimulatedStore, StoreRequest, StoreOutcome], StoreOutcome]
RELIABLE = (
    """\
version: 1
name: shop
stores: {main: {kind: sqlite, path: shop.db}}
sources: {lines: {kind: jsonl, path: lines.jsonl}}
pipes:
  intake: {from: lines, layers: [reliable], journal: main, state: main, boundary: committed}
sinks: {out: {from: intake, kind: jsonl, path: out.jsonl}}
"""
    + SAMPLE
)


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


def test_a_damaged_entry_stops_its_reader_and_is_never_skipped() -> None:
    """F25 at rest: told by name, by each life until the entry is restored from a copy; then all comes out."""
    told: set[str] = set()

    def look(seed: int, result: RunResult) -> None:
        del seed
        notices = (row.detail for row in result.rows if row.kind == "notice")
        told.update(str(json.loads(detail)["notice"]) for detail in notices if "damaged" in detail)

    kinds = chosen(["corruption-at-rest", "store-outage", "receiver-crash"])
    found = run_seeds(
        bank(with_key=True), range(16), kinds=kinds, messages=MESSAGES, has_check=True, each=look
    )
    assert dict(found.violated) == {}
    assert found.marks["mattered-F25r"] >= 1
    assert told == {"Stalled"}


def test_a_damaged_entry_that_is_skipped_in_silence_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """P2, P6: what the test above would say of a store that goes on behind the damage."""
    honest = cast("Answering", vars(SimulatedStore)["_undamaged"])

    def skipping(
        store: SimulatedStore, request: StoreRequest, outcome: StoreOutcome
    ) -> StoreOutcome:
        answer = honest(store, request, outcome)
        if isinstance(answer, Failed) and isinstance(request, ReadFrom):
            return store.read(request.stream, request.index + 1, 1, request.max_bytes)
        return answer

    monkeypatch.setattr(SimulatedStore, "_undamaged", skipping)
    kinds = chosen(["corruption-at-rest"])
    found = run_seeds(bank(with_key=True), range(16), kinds=kinds, messages=MESSAGES)
    assert found.violated.keys() & {"P2", "P6g"}


TIGHT = (
    """\
version: 1
name: shop
stores: {main: {kind: sqlite, path: shop.db}}
sources: {lines: {kind: jsonl, path: lines.jsonl}}
pipes:
  intake: {from: lines, layers: [{LAYER: {window: 4, backlog: 6, run_max: 2}}]}
sinks: {out: {from: intake, kind: jsonl, path: out.jsonl}}
"""
    + SAMPLE
)
AT_THE_BOUND = ["overflow", "too-large", "route-loss", "receiver-crash"]


def tight(tmp_path: Path, layer: str) -> PlanSubject:
    """A pipeline whose pipe holds ten messages."""
    (tmp_path / "shop.yaml").write_text(TIGHT.replace("LAYER", layer))
    return simulation_of(tmp_path / "shop.yaml", messages=MESSAGES).subject


@pytest.mark.parametrize("layer", ["reliable", "multi-unconfirmed"])
def test_bursts_and_large_messages_are_taken_whole_or_refused_without_a_trace(
    tmp_path: Path, layer: str
) -> None:
    """F22, F24, P13: beside a source, somebody offers more than fits, and sizes around the bound, in every run."""
    subject = tight(tmp_path, layer)
    found = run_seeds(subject, range(10), kinds=chosen(AT_THE_BOUND), messages=MESSAGES)
    assert dict(found.violated) == {}
    assert found.marks["mattered-F22"] >= 1
    assert found.marks["mattered-F24"] >= 1


def test_a_burst_that_is_dropped_in_silence_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P13: what the test above would say of a pipe that swallows what it has no room for."""
    offer = SenderEntry.offer_now

    def swallowing(intake: SenderEntry, payload: bytes) -> None:
        with suppress(PipeFull):
            offer(intake, payload)

    monkeypatch.setattr(SenderEntry, "offer_now", swallowing)
    found = run_seeds(
        tight(tmp_path, "reliable"), range(10), kinds=chosen(["overflow"]), messages=MESSAGES
    )
    assert found.violated["P13"] >= 1


@pytest.mark.parametrize("bound", [-1, 1])
def test_a_bound_on_the_size_that_is_one_off_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: int
) -> None:
    """P13: the sizes around the bound are one byte apart."""
    offer = SenderEntry.offer_now

    def misjudging(intake: SenderEntry, payload: bytes) -> None:
        longest = intake.message_max
        intake.message_max = longest + bound
        try:
            offer(intake, payload)
        finally:
            intake.message_max = longest

    monkeypatch.setattr(SenderEntry, "offer_now", misjudging)
    found = run_seeds(
        tight(tmp_path, "reliable"), range(4), kinds=chosen(["too-large"]), messages=MESSAGES
    )
    assert found.violated["P13"] >= 1


def test_pipelines_with_functions_of_the_user_meet_no_strangers() -> None:
    """F22, F24: what they would do with such messages says nothing of pipes."""
    subject = bank(with_key=True)
    found = run_seeds(subject, range(3), kinds=chosen(["overflow", "too-large"]), messages=MESSAGES)
    assert not found.faults
