"""P9 in worlds of actors: whatever is done again has a reason, also where much goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from surepipe.actors.ends.receiver_host import ReceiverHost
from surepipe.actors.tracing import ReceiverTrace
from surepipe.audit.settings import facts_of
from surepipe.audit.trace import Kind
from surepipe.core.effects import Deliver
from surepipe.pipelines.run.flow import FlowTurn, StageFlow
from surepipe.pipelines.simulate.campaign import run_seeds
from surepipe.pipelines.simulate.simulating import SimulationFailed, simulation_of
from surepipe.pipelines.simulate.subject import PlanSubject
from surepipe.pipelines.stages import About
from surepipe.simulation import Outside
from surepipe.simulation.faults import Mode, chosen
from surepipe.simulation.results import RunResult
from tests.pipelines.simulate.kit import MESSAGES, SAMPLE, bank

EXAMPLES = Path(__file__).parents[3] / "examples"
SEEDS = range(1, 13)
FAULTS = ["copy", "confirm-loss", "receiver-crash", "poison", "store-outage"]
COPYING = (
    """\
version: 1
name: shop
sources: {lines: {kind: jsonl, path: lines.jsonl}}
pipes:
  intake: {from: lines, layers: [{multi-unconfirmed: {run_max: 2}}]}
sinks: {out: {from: intake, kind: jsonl, path: out.jsonl}}
"""
    + SAMPLE
)
JOINED = (
    """\
version: 1
name: shop
stores: {main: {kind: sqlite, path: shop.db}}
sources: {lines: {kind: jsonl, path: lines.jsonl}}
pipes:
  intake: {from: lines, layers: [reliable], journal: main, state: main}
  second: {from: both, layers: [multi-unconfirmed]}
  third: {from: both, route: {kind: sqlite, store: main}}
stages:
  left: {from: intake, call: "tests.pipelines.simulate.kit:same"}
  right: {from: intake, call: "tests.pipelines.simulate.kit:same"}
  both: {from: [left, right], call: "tests.pipelines.simulate.kit:same"}
sinks: {out: {from: [second, third], kind: jsonl, path: out.jsonl}}
"""
    + SAMPLE
)
STORED = (
    """\
version: 1
name: shop
stores: {main: {kind: sqlite, path: shop.db}}
sources: {lines: {kind: jsonl, path: lines.jsonl}}
pipes:
  intake: {from: lines, route: {kind: sqlite, store: main}}
sinks: {out: {from: intake, kind: jsonl, path: out.jsonl}}
"""
    + SAMPLE
)
HALF = (
    """\
version: 1
name: shop
stores: {main: {kind: sqlite, path: shop.db}}
sources: {lines: {kind: jsonl, path: lines.jsonl}}
pipes:
  intake: {from: lines, layers: [reliable], journal: main, state: main}
  third: {from: intake, route: {kind: sqlite, store: main}}
sinks: {out: {from: third, kind: jsonl, path: out.jsonl}}
"""
    + SAMPLE
)


def subject_of(text: str, folder: Path) -> PlanSubject:
    """A pipeline without functions of a user."""
    (folder / "shop.yaml").write_text(text)
    return simulation_of(folder / "shop.yaml", messages=MESSAGES).subject


class Seen:
    """Which runs with faults have broken P9, and what such runs did again."""

    def __init__(self) -> None:
        self.broken: list[int] = []
        self.kinds: set[str] = set()

    def __call__(self, seed: int, result: RunResult) -> None:
        """One more run."""
        self.kinds |= {row.kind for row in result.rows}
        if result.violates("P9") and facts_of(result.rows[0])["fault_free"] is False:
            self.broken.append(seed)


@pytest.mark.parametrize("mode", [Mode.CLAIM, Mode.BREAK])
def test_repeats_that_have_a_reason_are_left_alone(tmp_path: Path, mode: Mode) -> None:
    """P9, X-28: several ways to one stage, attempts that fail behind it, all faults; no false alarm."""
    seen = Seen()
    subject = subject_of(JOINED, tmp_path)
    found = run_seeds(subject, SEEDS, mode=mode, messages=MESSAGES, each=seen)
    assert found.violated["P9"] == 0, found.failures
    assert {Kind.WAKE, Kind.FAILED, Kind.COPIED, Kind.CALLED} <= seen.kinds


def test_messages_of_a_transaction_that_a_store_refused_are_taken_again() -> None:
    """P9, F30: several together, then one by one, without a new delivery; in seed 281 both call stages."""
    seen = Seen()
    subject = simulation_of(EXAMPLES / "orders.yaml", messages=MESSAGES).subject
    run_seeds(subject, range(278, 284), mode=Mode.BREAK, messages=12, each=seen)
    assert not seen.broken
    assert {Kind.REFUSED, Kind.CALLED} <= seen.kinds


def test_a_store_that_was_emptied_has_lost_its_streams_too(tmp_path: Path) -> None:
    """P10, F16: positions and streams are in one store here, and indexes begin anew."""
    kinds = chosen(["store-rollback"])
    found = run_seeds(subject_of(STORED, tmp_path), SEEDS, kinds=kinds, messages=MESSAGES)
    assert not found.violated, found.failures
    assert found.faults["F16"] >= 1


def test_a_journal_that_went_back_sends_again_though_another_pipe_has_none(tmp_path: Path) -> None:
    """P9, F14: each pipe is judged by what it has; in seed 22 a confirm was forgotten, so a message came again."""
    kinds = chosen(["store-rollback"])
    found = run_seeds(subject_of(HALF, tmp_path), [22], kinds=kinds, messages=MESSAGES)
    assert not found.violated, found.failures
    assert found.faults["F14"] >= 1


def test_a_stage_that_is_called_twice_for_no_reason_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """P9, X-28: planted is a loop that takes each message through the stages a second time."""
    build: Callable[..., None] = StageFlow.__init__

    def built(flow: StageFlow, *given: object, **named: object) -> None:
        build(flow, *given, **named)
        once = flow.entry

        def twice(message: object, about: About, turn: FlowTurn) -> None:
            once(message, about, turn)
            once(message, about, turn)

        flow.entry = twice

    kinds, seen = chosen(FAULTS), Seen()
    found = run_seeds(bank(with_key=True), SEEDS, kinds=kinds, messages=MESSAGES)
    assert found.violated["P9"] == 0, found.failures
    monkeypatch.setattr(StageFlow, "__init__", built)
    run_seeds(bank(with_key=True), SEEDS, kinds=kinds, messages=MESSAGES, each=seen)
    assert len(seen.broken) >= len(SEEDS) // 2


def test_a_receiver_that_hands_over_a_copy_twice_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P9: planted is one that does so with all that it has handed over before, where copies come out by right."""
    subject, kinds = subject_of(COPYING, tmp_path), chosen(["copy"])
    assert not run_seeds(subject, SEEDS, kinds=kinds, messages=MESSAGES).violated
    honest = ReceiverHost.traced_by

    def traced_by(actor: ReceiverHost, trace: ReceiverTrace) -> None:
        honest(actor, trace)
        hand_over = actor.perform_by_type[Deliver]
        known: set[tuple[int, int]] = set()

        def hand_over_repeats_twice(delivery: Deliver) -> None:
            message = (delivery.epoch, delivery.first)
            for _ in range(1 + (message in known)):
                hand_over(delivery)
            known.add(message)

        actor.perform_by_type[Deliver] = hand_over_repeats_twice

    monkeypatch.setattr(ReceiverHost, "traced_by", traced_by)
    seen = Seen()
    run_seeds(subject, SEEDS, kinds=kinds, messages=MESSAGES, each=seen)
    assert seen.broken


LATE = range(34, 40)


class _PaysLate:
    """Pays for the last messages alone, and has a note of what it has paid: in its memory, or outside."""

    def __init__(self, *, keeps_outside: bool) -> None:
        self.bank, self.notes = Outside("bank"), Outside("notes")
        self.seen = set[int]()
        self.keeps_outside = keeps_outside

    def pay(self, number: int) -> None:
        if number in LATE and not self._has_paid(number):
            self.bank.do("pay", number)
            self._note(number)

    def _has_paid(self, number: int) -> bool:
        return number in (self.notes.count("paid") if self.keeps_outside else self.seen)

    def _note(self, number: int) -> None:
        self.seen.add(number)
        if self.keeps_outside:
            self.notes.do("paid", number, key=number)

    def check(self, run: object) -> bool:
        del run
        return self.bank.count("pay") == dict.fromkeys(LATE, 1)


@pytest.mark.long
@pytest.mark.parametrize("faults", ["claim", "process-crash"])
@pytest.mark.parametrize("keeps_outside", [False, True])
def test_a_crash_between_an_effect_and_its_note_is_found_at_the_last_messages_too(
    faults: str, *, keeps_outside: bool
) -> None:
    """Within the usual number of schedules: with each of the first messages it was found, and here never was."""

    def build() -> object:
        stage = _PaysLate(keeps_outside=keeps_outside)
        return stage.pay, stage.check

    with pytest.raises(SimulationFailed, match=r"pay (3[4-9]), for the second time"):
        simulation_of(build, messages=range(40), faults=faults).run(range(100))
