"""The judge as a whole: what it is asked, when it stops, how it counts, and what the oracles say of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import pytest

from surepipe.audit.findings import Violation
from surepipe.audit.predicates import PropertyOutcome
from surepipe.audit.properties import NAMES, ORACLES, HonestGuarantee, Judge, Property, judge
from surepipe.audit.properties.ledger import Look
from surepipe.audit.properties.refinement import PATTERNS, model_of
from surepipe.audit.trace import Kind, Row, cells_of
from surepipe.core.claims import Atom, Fault, Guarantee
from surepipe.errors import ConfigurationError, MisuseError
from tests.audit.properties.kit import PIPE, history, judged, run_row


def seen(rows: list[Row], judging: Judge) -> Judge:
    """The judge after all these rows."""
    for row in rows:
        judging.see(row)
    judging.finish()
    return judging


def test_a_judge_that_stops_at_the_first_violation_looks_at_nothing_more() -> None:
    """Two messages come out twice: one violation, and ``stopped`` (X-62)."""
    rows = history("accept 1-2; settle 1-2; settle 1; settle 2")
    judging = seen(rows, Judge(["P3"], rows[0], stop_at_first=True))
    assert judging.stopped
    assert [violation.position for violation in judging.violations] == [1]


def test_all_violations_are_counted_and_the_first_cases_kept() -> None:
    """Twenty repeats, ten cases: what an audit shows (X-33, X-62)."""
    rows = history("accept 1-20; settle 1-20; settle 1-20")
    judging = seen(rows, Judge(["P3"], rows[0]))
    assert judging.counts["P3", PIPE] == 20
    assert [violation.position for violation in judging.violations] == list(range(1, 11))


def test_by_default_only_what_is_claimed_under_the_faults_of_the_run_is_judged() -> None:
    """No duplicate is claimed without route-loss only: with it, a repeat is nobody's fault."""
    claim = {"no-duplicate": [], "monotonic": ["route-loss"]}
    text = "accept 1-2; settle 2; settle 2; settle 1; end"
    calm = judged(history(text, claim=claim))
    lossy = judged(history(text, claim=claim, faults=["route-loss"]))
    assert {violation.property for violation in calm} == {"P3", "P4"}
    assert {violation.property for violation in lossy} == {"P4"}


def test_each_pipe_of_a_run_is_held_to_its_own_claim() -> None:
    """``claims`` by pipe; a writer of a stream is held to the claim of the stream (X-30)."""
    rows = history(
        "accept 1; settle 1; settle 1",
        claim={},
        claims={"other": {"no-duplicate": []}, "stream": {"no-duplicate": []}},
    )
    for pipe in ("other", "stream@a", "mine"):
        rows += [replace(row, pipe=pipe) for row in rows[1:4]]
    assert [one.pipe for one in judged(rows) if one.property == "P3"] == ["other", "stream@a"]


def test_several_writers_of_one_stream_have_positions_of_their_own() -> None:
    """The same numbers by two producers are different messages (X-30)."""
    rows = history("accept 1-2; settle 2; settle 1")
    for row, writer in zip(rows[1:], "aabb", strict=False):
        row.pipe = f"stream@{writer}"
    assert [one.property for one in judged(rows, "P1", "P4")] == ["P1"]


def test_a_layer_is_judged_by_itself() -> None:
    """Rows of layer 1 speak of other messages than those of the boundary."""
    rows = history("accept 1; settle 1; accept 1; settle 1; settle 1")
    for row in rows[3:]:
        row.layer = "1"
    found = judged(rows, "P3")
    assert [one.step for one in found] == [5]


def test_an_unknown_property_is_refused() -> None:
    """A typo must not be taken for a property that holds."""
    with pytest.raises(MisuseError, match="there is no property P99"):
        Judge(["P99"], run_row())


def test_a_trace_that_does_not_begin_with_its_settings_is_refused() -> None:
    """Without them nobody knows what was promised; an empty trace breaks nothing."""
    with pytest.raises(MisuseError, match="begins with a row 'run'"):
        judge(history("accept 1")[1:])
    assert judge([]) == ()


def test_rows_of_unknown_kinds_mean_nothing() -> None:
    """A newer host may write more (X-31)."""
    rows = history("accept 1; settle 1; confirm 1; end")
    rows[2:2] = [replace(rows[1], kind="dreamt")]
    assert judged(rows) == ()


def test_what_shows_only_at_rest_is_undecided_without_an_end() -> None:
    """No loss can't be told in the middle of a run; a repeat can (X-33)."""
    rows = history("accept 1-2; settle 1")
    judging = seen(rows, Judge(None, rows[0]))
    assert judging.outcome("P2", PIPE) is PropertyOutcome.UNDECIDED
    assert judging.outcome("P3", PIPE) is PropertyOutcome.HELD
    done = history("accept 1-2; settle 1; end")
    assert seen(done, Judge(None, done[0])).outcome("P2", PIPE) is PropertyOutcome.VIOLATED


class NoSevens(Property):
    """A property of a user's own."""

    id: ClassVar[str] = "user"
    name: ClassVar[str] = "no sevens"

    def looks(self) -> Mapping[str, Look]:
        """Whatever comes out."""
        return {Kind.SETTLED: self._look}

    def _look(self, row: Row) -> None:
        for _, position, count in self.books.parts:
            if position <= 7 < position + count:
                self.fail("A seven came out.", row, position=7)


def test_a_property_of_ones_own_is_judged_beside_the_others() -> None:
    """It is told positions like every other, and named in the violation (X-26)."""
    rows = history("accept 1-9; settle 1-9")
    found = seen(rows, Judge([], rows[0], more=[NoSevens])).violations
    assert [(one.property, one.name, one.position) for one in found] == [("user", "no sevens", 7)]


def test_a_property_can_be_asked_alone() -> None:
    """``see`` and ``end`` of one property, after the books have seen the row (X-1)."""
    rows = history("accept 1-7; settle 7")
    told: list[Violation] = []
    books = Judge([], rows[0]).books
    alone = NoSevens(books, told.append)
    for row in rows[1:]:
        before = books.before().get(row.kind)
        if before is not None:
            before(cells_of(row))
        alone.see(row)
    alone.end()
    assert [one.sentence for one in told] == ["A seven came out."]


@pytest.mark.parametrize(
    ("drain", "answers"),
    [
        ("drain", {"O1": "not exercised", "O2": "not exercised", "O3": "violated", "O4": "held"}),
        ("drain slow", {"O1": "violated", "O2": "not exercised", "O3": "violated", "O4": "held"}),
        ("drain load", {"O1": "not exercised", "O2": "held", "O3": "violated", "O4": "held"}),
    ],
)
def test_the_oracles_answer_only_for_the_drains_that_a_run_had(
    drain: str, answers: dict[str, str]
) -> None:
    """A message that is never confirmed, after each kind of drain (X-38)."""
    rows = history(f"accept 1; settle 1; phase {drain}; end")
    judging = seen(rows, Judge(None, rows[0]))
    assert judging.oracles() == answers
    assert {one for oracle in ORACLES for one in oracle.properties} <= NAMES.keys()


def test_a_guarantee_that_a_run_contradicts_is_a_lie_and_one_never_broken_is_cautious() -> None:
    """P15 in both directions, from what runs under known faults have shown."""
    claim = Guarantee.of({Atom.NO_LOSS: frozenset({Fault.ROUTE_LOSS}), Atom.NO_DUPLICATE: None})
    honest = HonestGuarantee(claim, "orders")
    lost = Violation("P2", "no loss", 9, "Message #1 was accepted and never came out.", position=1)
    repeated = Violation("P3", "no duplicates", 3, "Message #1 came out again.", position=1)
    honest.ran([Fault.SENDER_CRASH], [lost])
    honest.ran([Fault.ROUTE_DUPLICATION], [repeated])
    honest.ran([Fault.RECEIVER_CRASH], [])
    assert honest.lies() == ()
    cautious = honest.cautious()
    assert cautious[Atom.NO_LOSS] == (Fault.ROUTE_DUPLICATION, Fault.RECEIVER_CRASH)
    honest.ran([Fault.ROUTE_LOSS], [lost])
    (lie,) = honest.lies()
    assert str(lie) == (
        "P15 honest guarantee violated at step 9: no-loss is said to survive route-loss, and did not: "
        "Message #1 was accepted and never came out."
    )


def test_every_pattern_but_the_stream_has_a_reference_model() -> None:
    """What a stream gives is its log, which is judged by its indexes (P10, P16)."""
    assert len(PATTERNS) == 7
    with pytest.raises(ConfigurationError, match="no reference model of 'stream'"):
        model_of("stream")
