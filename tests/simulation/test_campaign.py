"""Many seeds: what held, what broke, and what was never tried."""

from __future__ import annotations

from dataclasses import replace

import pytest

from surepipe.core.claims import Fault
from surepipe.pipes.stack.boundary import Boundary
from surepipe.simulation.campaign import campaign, catches_canary
from surepipe.simulation.chance.script import dump, parse
from surepipe.simulation.faults import Mode, chosen
from surepipe.simulation.hop import replay
from surepipe.simulation.options import Options
from surepipe.simulation.promises import Promise, promise_of
from surepipe.simulation.subjects import HopSubject
from surepipe.simulation.world import judge_rows
from tests.faults.product import BY_NAME
from tests.simulation.kit import RELIABLE, RESEND

STREAM = {"stream": {"start": "earliest"}}
HELD = (
    HopSubject("reliable", name="reliable"),
    HopSubject("resend", name="resend"),
    HopSubject("multi-unconfirmed", name="multi-unconfirmed"),
    HopSubject("sequential-confirm", name="sequential-confirm"),
    HopSubject("strict-monotonic", name="strict-monotonic"),
    HopSubject(["continuous-index", "multi-unconfirmed"], name="continuous over multi"),
    HopSubject(["dedupe", "multi-unconfirmed"], name="dedupe over multi"),
    HopSubject("reliable", name="journaled", journaled=True),
    HopSubject(
        "reliable", name="committed", journaled=True, durable=True, boundary=Boundary.COMMITTED
    ),
    HopSubject(STREAM, name="stream"),
    HopSubject(STREAM, name="stream, journaled", journaled=True),
)


@pytest.mark.parametrize("subject", HELD, ids=lambda subject: subject.name)
def test_a_pipe_keeps_its_claim_under_everything_that_it_tolerates(subject: HopSubject) -> None:
    """simulation X-43, X-38: seeds in claim mode; all marks are wanted in the nightly hunt, not in so few."""
    found = campaign(subject, range(48), mode=Mode.CLAIM, required=())
    assert found.verdict == "held", str(found)


def test_a_campaign_that_never_tried_something_says_so() -> None:
    """simulation X-4: two seeds that are drained by lot can't have seen all four drains."""
    found = campaign(RELIABLE, range(1, 3), mode=Mode.NONE)
    assert found.verdict == "not exercised"
    assert any(name.startswith("drain-") for name in found.missing)
    assert "not exercised" in str(found)


def test_a_broken_claim_is_found_and_its_script_repeats_it() -> None:
    """simulation X-34: resend promises no-duplicate nowhere, so its receiver's crashes are called a breach."""
    subject = _Boasting("resend", name="boasting")
    found = campaign(
        subject, range(40), mode=Mode.BREAK, kinds=chosen(["receiver-crash", "copy"]), required=()
    )
    assert found.verdict == "violated"
    assert found.first is not None
    script = parse(dump(found.failures["P3"].script))
    again = replay(subject, script)
    assert again.stale is None
    assert again.violates("P3") == found.failures["P3"].violation


def test_a_campaign_may_stop_at_the_first_failure() -> None:
    """What follows is not run."""
    subject = _Boasting("resend", name="boasting")
    found = campaign(
        subject, range(1000), mode=Mode.BREAK, kinds=chosen(["copy"]), stop_at_first=True
    )
    assert found.runs < 100
    assert found.violated


def test_the_canary_is_caught_and_a_blind_judge_is_told_of() -> None:
    """simulation X-63: a judge that sees nothing makes no campaign."""
    assert catches_canary(judge_rows)
    found = campaign(RESEND, range(1), mode=Mode.NONE, judge=lambda _rows: (), required=())
    assert found.verdict == "not exercised"
    assert "the canary was not caught" in str(found)


def test_a_run_that_meets_its_limit_is_no_pass() -> None:
    """simulation X-8: three events are too few for anything."""
    found = campaign(RELIABLE, range(1, 2), mode=Mode.NONE, base=Options(events_max=3), required=())
    assert found.limits == {"events": 1}
    assert found.verdict == "violated"


def test_a_reader_that_waits_for_its_store_is_not_at_rest() -> None:
    """simulation P11, F18: a store was down at the end of chaos, and nothing but deadlines was to come."""
    subject = BY_NAME["stream"]
    found = campaign(subject, [7391093], messages=16, required=(), causal=False)
    assert found.verdict == "held", str(found)


def test_a_hundred_seeds_see_all_drains_and_nearly_all_faults() -> None:
    """simulation X-29: marks add up over a campaign, and each result is handed on."""
    seen: list[int] = []
    found = campaign(HELD[7], range(100), messages=16, each=lambda seed, _result: seen.append(seed))
    assert seen == list(range(100))
    assert not [name for name in found.missing if name.startswith("drain-")]
    assert len([name for name in found.marks if name.startswith("fault-")]) >= 20
    assert {"confirm-lost", "crossed", "held-three", "zombie-acted"} <= found.marks.keys()


class _Boasting(HopSubject):
    """Claims that nothing is ever repeated."""

    def promise(self) -> Promise:
        """What it can't keep."""
        every = tuple(fault.value for fault in Fault)
        return replace(promise_of(RESEND), claim={"no-duplicate": every})
