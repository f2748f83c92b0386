"""What must agree: an audit in bulk, the audit row by row, and the predicates of the pipes."""

from __future__ import annotations

from collections.abc import Sequence

from surepipe.audit.bulk import BulkAudit, ChannelFigures
from surepipe.audit.predicates import PropertyOutcome, judge_trace
from surepipe.audit.settings import ATOMS
from surepipe.audit.trace import Row
from surepipe.audit.trace_audit import PipeAudit, audit
from surepipe.core.claims import Atom
from tests.audit.planted import Planted

NUMBERS = (
    *("settled", "dead", "waiting", "lost", "unknown", "repeated", "out_of_order"),
    *("gaps", "passed_over", "widest"),
)
ORDER = (Atom.NO_DUPLICATE, Atom.MONOTONIC, Atom.GAP_FREE)


def assert_as_row_by_row(found: BulkAudit, rows: Sequence[Row]) -> None:
    """Every channel has the numbers, outcomes and promises of the audit that reads each row."""
    exact = audit(rows)
    assert [one.channel for one in found.channels] == [one.pipe for one in exact.pipes]
    for one, wanted in zip(found.channels, exact.pipes, strict=True):
        _assert_same(one, wanted)


def _assert_same(one: ChannelFigures, wanted: PipeAudit) -> None:
    told = {name: getattr(one, name) for name in NUMBERS}
    assert told == {name: getattr(wanted, name) for name in NUMBERS}, one.channel
    assert one.sent == wanted.sent
    assert one.sum == wanted.sum
    outcomes = {ATOMS[atom]: known for atom, known in one.outcomes.items()}
    assert outcomes == {name: wanted.finding(name).outcome for name in outcomes}, one.channel
    assert {ATOMS[atom] for atom in one.promised} == wanted.promised & set(outcomes)
    assert (one.foreign > 0) == (wanted.finding("P1").outcome is PropertyOutcome.VIOLATED)


def assert_as_predicates(found: BulkAudit, channels: Sequence[Planted]) -> None:
    """Every channel has the outcomes of ``judge_trace`` over its positions, and no example of a loss came out."""
    for planted in channels:
        one = found.channel(planted.channel)
        sent = len(planted.positions())
        verdict = judge_trace(planted.trace(), sent)
        # What a killed sender may have accepted can't be told from a repeat.
        open_if_held = {PropertyOutcome.HELD: PropertyOutcome.UNDECIDED} if one.untold else {}
        wanted = {a: open_if_held.get(verdict.of(a), verdict.of(a)) for a in ORDER}
        assert {a: one.outcomes[a] for a in ORDER} == wanted, one.channel
        assert (one.lost + one.waiting > 0) is (
            verdict.of(Atom.NO_LOSS) is PropertyOutcome.VIOLATED
        )
        came = set(planted.trace())
        lost = [case for case in one.examples if case.what == "lost"]
        assert not any(at in came for case in lost for at in range(case.low, case.high + 1))
