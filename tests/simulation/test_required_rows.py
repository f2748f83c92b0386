"""Rows that the simulator must show: replays that don't lie, campaigns that don't pass for nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from surepipe.audit.findings import Violation
from surepipe.audit.trace import Row
from surepipe.simulation.campaign import campaign, catches_canary
from surepipe.simulation.chance.script import dump, parse
from surepipe.simulation.faults import Mode
from surepipe.simulation.hop import replay, run_hop
from surepipe.simulation.options import Options
from surepipe.simulation.promises import Promise
from surepipe.simulation.subjects import HopSubject
from surepipe.simulation.world import judge_rows
from tests.plain.multi_unconfirmed import MULTI_UNCONFIRMED
from tests.plain.resend import RESEND as PLAIN_RESEND
from tests.plain.sequential import SEQUENTIAL
from tests.plain.strict import STRICT
from tests.simulation.kit import COUNTING, RELIABLE, RESEND, lose, of_kind

CALM = Options(messages=12, gap_us=5_000, chaos_us=2_000_000)
LOSSY = replace(
    CALM,
    messages=4,
    confirm_loss_ppm=300_000,
    receiver_crashes=1,
    restart_us=1_000,
    chaos_us=9_000_000,
)
PIPES = (
    RELIABLE,
    RESEND,
    HopSubject("multi-unconfirmed", name="multi-unconfirmed"),
    HopSubject("sequential-confirm", name="sequential-confirm"),
    HopSubject("strict-monotonic", name="strict-monotonic"),
    HopSubject(["continuous-index", "multi-unconfirmed"], name="continuous over multi"),
    HopSubject(["dedupe", "multi-unconfirmed"], name="dedupe over multi"),
    HopSubject("reliable", name="journaled", journaled=True, durable=True),
    *(PLAIN_RESEND, MULTI_UNCONFIRMED, SEQUENTIAL, STRICT),
)


@pytest.mark.parametrize("subject", PIPES, ids=lambda subject: subject.name)
def test_without_faults_every_message_travels_and_comes_out_exactly_once(
    subject: HopSubject,
) -> None:
    """simulation XT-15, X-28: three seeds, answers far below the timer: no re-send, one delivery, at rest."""
    for seed in range(3):
        result = run_hop(subject, replace(CALM, seed=seed))
        assert result.violations == ()
        assert result.limit == ""
        assert all(row.attempt == 1 for row in of_kind(result.rows, "transmit") if row.count)
        delivered = [seq for row in of_kind(result.rows, "delivered") for seq in _seqs(row)]
        assert delivered == sorted(set(delivered))
        assert len(delivered) == CALM.messages


def test_a_script_repeats_a_failure_where_its_seed_no_longer_does() -> None:
    """simulation XT-7: with other draws the seed gives another run; the script gives the same violation."""
    subject = _Boasting({"resend": {"run_max": 1}}, name="boasting")
    failing = next(
        result
        for seed in range(40)
        if (result := run_hop(subject, replace(LOSSY, seed=seed))).violates("P3")
    )
    drawn_anew = run_hop(subject, replace(LOSSY, seed=failing.script.seed, jitter_us=77))
    assert drawn_anew.digest != failing.digest
    again = replay(subject, parse(dump(failing.script)))
    assert again.stale is None
    assert again.violates("P3") == failing.violates("P3")


def test_a_script_of_a_frame_that_no_longer_occurs_is_stale_and_no_pass() -> None:
    """simulation XT-8: the run itself holds, and still the result says what was not found."""
    script = run_hop(COUNTING, CALM, judge=None).script
    missing = lose("pipe/0 data e9 1+1 a1")
    result = replay(COUNTING, replace(script, decisions=(*script.decisions, missing)))
    assert result.violations == ()
    assert result.stale == str(missing)


def test_three_seeds_are_not_enough_and_the_missing_marks_are_named() -> None:
    """simulation XT-10, X-4: not exercised, with each mark that did not fire."""
    found = campaign(RELIABLE, range(1, 4), mode=Mode.CLAIM, messages=6, causal=False)
    assert found.verdict == "not exercised"
    assert all(name in str(found) for name in found.missing)


def test_a_campaign_whose_canary_nobody_reports_fails() -> None:
    """simulation XT-12, X-63: the judge's words about message 7 are suppressed, and everything else is well."""

    def without_loss(rows: Sequence[Row]) -> Sequence[Violation]:
        return [found for found in judge_rows(rows) if found.property != "P2"]

    assert not catches_canary(without_loss)
    found = campaign(RESEND, range(2), mode=Mode.NONE, judge=without_loss, required=(), messages=4)
    assert found.violated == {}
    assert found.verdict != "held"
    assert "the canary was not caught" in str(found)


class _Boasting(HopSubject):
    """Claims that nothing is ever repeated."""

    def promise(self) -> Promise:
        """What it can't keep."""
        return Promise(claim={"no-duplicate": ("route-loss", "receiver-crash", "relay-crash")})


def _seqs(row: Row) -> range:
    return range(row.seq, row.last + 1)
