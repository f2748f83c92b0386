from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal, cast

import pytest

from surepipe.core.claims import PROCESS_CRASH, Atom, Claim, Fault
from surepipe.core.store_requests import Level
from surepipe.guarantees.derivation import evaluate, evaluate_chain
from surepipe.pipelines import Assessment, assess, load, loads
from surepipe.pipelines.assessing import chain_of, hop_of
from surepipe.pipelines.engine_limits import spark_refusals
from surepipe.pipelines.models.sources import AnySource, ReadSource
from surepipe.pipelines.models.stages import AnySink, SinkBase
from tests.pipelines.files import pipe, pipeline, stage

EXAMPLE = Path(__file__).parents[2] / "examples" / "orders.yaml"
DURABLE = "journal: main, state: main, boundary: committed"
STREAM_SINK = "sinks: {out: {from: price, kind: stream, store: %s, stream: prices}}"
TWO_PIPES = "pipes: {intake: {from: lines, %s}, next: {from: price, %s}}"
COMMIT = "use boundary committed with receiver state and sink in one store"
AFTER_NEXT = "sinks: {out: {from: next, kind: stdout}}"


def judged(*more: str, **lines: str) -> Assessment:
    """The assessment of the sound file with lines of it replaced."""
    return assess(loads(pipeline(*more, **lines)))


def tolerated(assessment: Assessment, atom: Atom = Atom.NO_DUPLICATE) -> frozenset[Fault]:
    """What the atom survives on the first way."""
    explanation = assessment.ways[0].explanation
    assert explanation is not None
    line = next(line for line in explanation.atoms if line.atom is atom)
    return line.survives or frozenset()


def codes(assessment: Assessment) -> list[str]:
    """The codes of all that is refused or not met."""
    verdicts = (*assessment.pipes, *assessment.ways)
    return [one.code.value for verdict in verdicts for one in (*verdict.refused, *verdict.unmet)]


def test_the_example_holds_what_it_expects_pipe_by_pipe_and_end_to_end() -> None:
    """Exactly once and in order through crashes and loss of power, on both of its ways."""
    assessment = assess(load(EXAMPLE))
    assert assessment.held
    for verdict in (*assessment.pipes, *assessment.ways):
        assert verdict.explanation is not None
        assert verdict.explanation.headline.lacks() == (Fault.STORE_ROLLBACK,)


def test_an_expectation_that_does_not_hold_names_the_faults_and_the_remedy() -> None:
    """pipes G-8, G-9: a pipe without a journal."""
    expected = "expect: {delivery: exactly-once, tolerates: [sender-crash]}"
    assessment = judged(pipes=pipe(expected))
    lost, repeated = assessment.pipes[0].unmet
    assert (assessment.usable, assessment.held) == (True, False)
    assert frozenset(lost.faults) == PROCESS_CRASH
    assert (
        "do not survive process-crash" in lost.why or "does not survive process-crash" in lost.why
    )
    assert lost.remedies == ("name a journal",)
    assert repeated.remedies == (COMMIT,)


def test_an_end_to_end_expectation_is_asked_of_every_way() -> None:
    """Two sinks, one of which is reached over a weaker pipe."""
    assessment = judged(
        "expect: {order: absolute}",
        pipes="pipes: {intake: {from: lines}, weak: {from: lines, layers: multi-unconfirmed}}",
        sinks="sinks: {out: {from: price, kind: stdout}, other: {from: weak, kind: stdout}}",
    )
    unmet = {verdict.name: bool(verdict.unmet) for verdict in assessment.ways}
    assert unmet == {"lines to out": False, "lines to other": True}


def test_a_claim_that_is_required_beside_the_file_is_judged_too() -> None:
    """What `--require` gives."""
    plan = loads(pipeline())
    assert assess(plan, require=[Claim.parse("exactly-once, absolute; tolerates route")]).held
    assert not assess(plan, require=[Claim.parse("exactly-once; tolerates sender-crash")]).held


def test_a_composition_that_is_refused_is_not_usable() -> None:
    """pipes al12: continuous-index over TCP."""
    options = "layers: continuous-index, route: {kind: tcp, address: 'localhost:1'}"
    assessment = judged(pipes=pipe(options))
    assert not assessment.usable
    assert codes(assessment) == ["unmet-carrier"]
    assert assessment.ways == ()


@pytest.mark.parametrize(
    ("sink", "refused"),
    [
        (STREAM_SINK % "main", []),
        (STREAM_SINK % "other", ["split-store"]),
        ("sinks: {out: {from: price, kind: jsonl, path: c}}", []),
        ("sinks: {out: {from: price, kind: python, call: 'm:f'}}", []),
        ("", []),
        ("sinks: {out: {from: price, kind: stdout}}", ["split-store"]),
        ("sinks: {out: {from: price, kind: parquet, path: c}}", ["split-store"]),
        ("sinks: {out: {from: price, kind: http, url: a}}", ["split-store"]),
    ],
)
def test_committed_is_for_sinks_that_take_part_in_the_transaction(
    sink: str, refused: list[str]
) -> None:
    """pipes K-6: one store has the cursor and the effect."""
    stores = "stores: {main: {kind: sqlite, path: a}, other: {kind: sqlite, path: b}}"
    assessment = judged(stores=stores, pipes=pipe(DURABLE), sinks=sink)
    assert codes(assessment) == refused


def test_one_sink_outside_the_transaction_spoils_committed_for_all() -> None:
    """Fan-out: a message is settled when every branch has it, so one transaction must have every branch."""
    both = "sinks: {out: {from: price, kind: jsonl, path: a}, log: {from: price, kind: stdout}}"
    assert codes(judged(pipes=pipe(DURABLE), sinks=both)) == ["split-store"]


@pytest.mark.parametrize(
    ("first", "second", "survives"),
    [
        ("boundary: handed", "journal: main", False),
        ("journal: main", "journal: main", False),
        (DURABLE, "journal: main", True),
        (DURABLE, "route: {kind: sqlite, store: main}", True),
    ],
)
def test_a_relay_crash_is_survived_when_the_hand_over_is_committed(
    first: str, second: str, *, survives: bool
) -> None:
    """pipes G-7, al20: the boundary of a pipe is how its relay hands over."""
    plan = loads(pipeline(pipes=TWO_PIPES % (first, second), sinks=AFTER_NEXT))
    assert assess(plan).usable
    (way,) = plan.ways()
    survived = evaluate_chain(replace(chain_of(plan, way, {}), linked=())).guarantee.no_duplicate
    assert (Fault.RELAY_CRASH in (survived or ())) == survives


ENDS = (
    "expect: {delivery: exactly-once, tolerates: [sender-crash, receiver-crash, handler-failure]}"
)
KEPT = "sinks: {out: {from: next, kind: jsonl, path: out.jsonl}}"


def test_who_names_the_ends_of_a_process_is_judged_by_its_crash() -> None:
    """The trap: kill -9 ends the relay, too, which nobody had named, and what it had settled comes again."""
    pipes = TWO_PIPES % ("journal: main, state: main", DURABLE)
    assessment = judged(ENDS, pipes=pipes, sinks=KEPT)
    (finding,) = assessment.ways[0].unmet
    assert frozenset(finding.faults) == PROCESS_CRASH
    assert "no-duplicate does not survive process-crash: in pipe intake" in finding.why
    (note,) = (note for note in assessment.notes if "write that" in note)
    assert "names sender-crash, receiver-crash; these ends are in one process" in note
    assert judged(ENDS, pipes=TWO_PIPES % (DURABLE, DURABLE), sinks=KEPT).held


def test_the_word_is_the_same_as_the_faults_behind_it() -> None:
    """Fine names are understood, and a crash of the process is what they are."""
    words = "expect: {delivery: exactly-once, tolerates: [process-crash, bad-stage]}"
    for pipes in (
        TWO_PIPES % ("journal: main, state: main", DURABLE),
        TWO_PIPES % (DURABLE, DURABLE),
    ):
        by_word, by_ends = (
            judged(words, pipes=pipes, sinks=KEPT),
            judged(ENDS, pipes=pipes, sinks=KEPT),
        )
        assert by_word.ways[0].unmet == by_ends.ways[0].unmet
        assert not any("write that" in note for note in by_word.notes)


def test_the_ends_of_two_processes_crash_each_for_itself() -> None:
    """The sender may be another machine's: then a person may mean it alone."""
    route = "route: {kind: tcp, address: 'localhost:1'}, node: there"
    expected = "expect: {delivery: exactly-once, tolerates: [sender-crash]}"
    assert judged(expected, pipes=pipe(f"{route}, journal: main")).held
    assert not judged(expected, pipes=pipe("journal: main")).held


def test_a_hand_over_before_is_refused() -> None:
    """It would move the cursor before the next pipe has the message."""
    options = "state: main, boundary: before"
    assessment = judged(pipes=TWO_PIPES % (options, "boundary: processed"), sinks=AFTER_NEXT)
    assert codes(assessment) == ["boundary"]


def test_committed_into_a_pipe_needs_its_journal_in_the_same_store() -> None:
    """Without one, the next pipe keeps what it has accepted in no store."""
    assessment = judged(pipes=TWO_PIPES % (DURABLE, "boundary: processed"), sinks=AFTER_NEXT)
    assert codes(assessment) == ["split-store"]


def test_retries_without_a_place_for_dead_letters_are_refused() -> None:
    """pipes al19, asked of every stage and sink that a pipe's receiver runs."""
    assert codes(judged(stages=stage("retries: 5"))) == ["no-dead-letter"]
    assert codes(judged(stages=stage("retries: 5, dead_letter: main/dead"))) == []
    sinks = "sinks: {out: {from: price, kind: stdout, retries: 2}}"
    assert codes(judged(stages=stage("retries: 5, dead_letter: main/dead"), sinks=sinks)) == [
        "no-dead-letter"
    ]


def test_a_redis_of_which_nothing_is_known_is_taken_for_one_that_keeps_nothing() -> None:
    """pipes al18: until somebody asks it, or declares it; and a note says so."""
    stores = "stores: {main: {kind: redis, url: 'redis://h'%s}}"
    options = pipe("route: {kind: redis, store: main}")
    unknown = judged(stores=stores % "", pipes=options)
    declared = judged(stores=stores % ", durability: power", pipes=options)
    assert Fault.STORE_CRASH not in tolerated(unknown)
    assert Fault.STORE_CRASH in tolerated(declared)
    assert "was not asked what it keeps" in " ".join(unknown.notes)
    plan = loads(pipeline(stores=stores % "", pipes=options))
    probed = assess(plan, levels={"main": Level.POWER})
    assert Fault.STORE_CRASH in tolerated(probed)
    assert probed.notes == ()


def test_a_store_in_memory_is_no_journal() -> None:
    """pipes G-6."""
    assessment = judged(stores="stores: {main: {kind: memory}}", pipes=pipe("journal: main"))
    assert codes(assessment) == ["volatile-store"]


def test_with_lanes_the_order_holds_per_key_only() -> None:
    """A claim of order across keys is refused with a remedy, and one per key is met."""
    plan = pipeline("%s", pipes=pipe("lanes: 4, key: customer"))
    across = assess(loads(plan % "expect: {order: absolute}"))
    per_key = assess(loads(plan % "expect: {order: absolute, per: key}"))
    assert per_key.held
    assert per_key.ways[0].per_key is not None
    assert per_key.ways[0].per_key.order == "absolute"
    assert {finding.remedies[0] for finding in across.ways[0].unmet} == {
        "expect the order per: key"
    }


def test_what_survives_more_with_lanes_keeps_its_order_per_key() -> None:
    """Through the end of the process messages come again, and those of a key in their order all the same."""
    verdict = judged(
        pipes=pipe("lanes: 4, key: customer, journal: main, boundary: processed")
    ).ways[0]
    told = [verdict.promised(claim.tolerates, claim) for claim in verdict.claims()]
    assert any("gap-free order per key" in one and "at-least-once" in one for one in told), told


def test_what_a_claim_per_key_lacks_has_remedies_for_a_pipe_with_lanes() -> None:
    """Boundary committed alone would be refused there, so it is not what helps."""
    plan = pipeline(
        "expect: {order: absolute, per: key, tolerates: [process-crash]}",
        pipes=pipe("lanes: 4, key: customer, journal: main"),
        stores="stores: {main: {kind: sqlite, path: a.db}}",
    )
    remedies = [text for each in assess(loads(plan)).ways[0].unmet for text in each.remedies]
    assert remedies
    assert all(text.startswith("drop lanes and ") for text in remedies), remedies


def test_a_forced_retention_may_lose_what_was_not_read() -> None:
    """storage S-8: the guarantee says so."""
    route = "route: {kind: sqlite, store: main, retention: {max_bytes: 5, force: true}}"
    assert Fault.STORE_TRIM not in tolerated(judged(pipes=pipe(route)), Atom.NO_LOSS)


NOTES: list[tuple[dict[str, str], str]] = [
    ({"sources": "sources: {lines: {kind: stdin}}"}, "source lines can't be read again"),
    ({"sources": "sources: {lines: {kind: python, call: 'm:f'}}"}, "source lines can't be read again"),
    ({"sources": "sources: {lines: {kind: http, listen: 'h:1'}}"}, "a client is answered when"),
    ({}, "store main is used by nothing"),
    ({"stages": stage("time_limit_s: 5")}, "counts as failed and is repeated"),
    (
        {"sinks": "sinks: {out: {from: [price, intake], kind: stdout}}"},
        "out gets each message of lines 2 times",
    ),
    (
        {"sources": "sources: {lines: {kind: stdin}, b: {kind: stdin}}",
         "pipes": "pipes: {intake: {from: [lines, b]}}"},
        "intake is fed by lines and b: the order of each is kept",
    ),
    (
        {"stages": "stages: {price: {from: intake, filter: 'm:f'}}"},
        "what it leaves out is no loss and no gap",
    ),
    (
        {"sinks": "sinks: {out: {from: price, kind: python, call: 'm:f', idempotent: true}}"},
        "sink out is declared idempotent",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("lines", "said"), NOTES, ids=[said for _, said in NOTES])
def test_what_a_guarantee_does_not_say_stands_in_a_note(lines: dict[str, str], said: str) -> None:
    """Where it begins, what is declared and not known, what mixes."""
    assert said in "\n".join(judged(**lines).notes)


def test_a_source_that_can_be_read_again_needs_no_note() -> None:
    """A generator that declares itself repeatable is one."""
    source = "sources: {lines: {kind: python, call: 'm:f', repeatable: true}}"
    assert judged(stores="", sources=source).notes == ()


SPARK: list[tuple[dict[str, str], str]] = [
    ({"sources": "sources: {lines: {kind: stdin}}"}, "source lines: Spark reads what can be read again"),
    ({"pipes": pipe("layers: reliable")}, "pipe intake: a local route is within one process"),
    ({"pipes": pipe("route: {kind: tcp, address: 'localhost:1'}")}, "pipe intake: Spark has no TCP route"),
    ({"stores": "stores: {main: {kind: memory}}", "pipes": pipe("route: {kind: memory, store: main}")},
     "pipe intake: store main is in memory"),
    ({"pipes": pipe("route: {kind: sqlite, store: main}, boundary: handed")}, "boundary handed can't be kept"),
    ({"pipes": pipe("route: {kind: sqlite, store: main}, layers: [resend, {stream: {start: latest}}]")},
     "layer 0 (resend) has nothing to do here"),
    ({"stages": stage("time_limit_s: 1")}, "stage price: a time limit for one message"),
    ({}, "sink out: tasks of Spark are tried again"),
]  # fmt: skip


@pytest.mark.parametrize(("lines", "said"), SPARK, ids=[said for _, said in SPARK])
def test_what_spark_can_not_do_is_refused_before_it_starts(
    lines: dict[str, str], said: str
) -> None:
    """spark SP-2: each with its reason; the same file is fine on actors where it was."""
    plan = loads(pipeline(**lines))
    on_spark = assess(plan, engine="spark")
    assert not on_spark.usable
    assert said in "\n".join(on_spark.engine_refusals)
    assert assess(plan).engine_refusals == ()


class CountSource(ReadSource):
    """A kind of source that Spark has never heard of."""

    kind: Literal["count"] = "count"


class SumSink(SinkBase):
    """A kind of sink that Spark has never heard of."""

    kind: Literal["sum"] = "sum"


def test_kinds_of_sources_and_sinks_that_spark_does_not_know_are_refused() -> None:
    """spark SP-2: a new kind is on actors first, and Spark takes it only once it is named there."""
    sink = SumSink.model_validate({"name": "out", "from": "price"})
    plan = replace(
        loads(pipeline(pipes=pipe("route: {kind: sqlite, store: main}"))),
        sources=cast("tuple[AnySource, ...]", (CountSource(name="lines"),)),
        sinks=cast("tuple[AnySink, ...]", (sink,)),
    )
    refusals = list(spark_refusals(plan))
    assert [one.partition(":")[0] for one in refusals] == ["source lines", "sink out"]


def test_a_pipeline_through_a_store_runs_on_spark() -> None:
    """A stream on SQLite to a stream; the engine of the file counts when none is asked for."""
    sink = STREAM_SINK % "main"
    route = pipe("route: {kind: sqlite, store: main}, boundary: committed")
    judgement = judged("engine: spark", pipes=route, sinks=sink)
    assert judgement.usable
    assert any("sink out: effectively once, by index" in note for note in judgement.notes)
    short = judged("engine: {kind: spark, trigger_s: 0.05}", pipes=route, sinks=sink)
    assert "shorter than a micro-batch" in short.engine_refusals[0]


def test_a_long_chain_of_pipes_is_assessed_with_remedies() -> None:
    """Eight pipes in a row: the number of changes that are tried grows with their number, not with its square."""
    rest = ", ".join(f"p{n}: {{from: {'price' if n == 1 else f'p{n - 1}'}}}" for n in range(1, 8))
    pipes = f"pipes: {{intake: {{from: lines}}, {rest}}}"
    assessment = judged(pipes=pipes, sinks="sinks: {out: {from: p7, kind: stdout}}")
    explanation = assessment.ways[0].explanation
    assert explanation is not None
    remedies = {lack.fault: lack.remedy for lack in explanation.lacks}
    everywhere = "pipes intake and p1 and p2 and p3 and p4 and p5 and p6 and p7"
    assert (
        remedies[Fault.SENDER_CRASH]
        == f"in {everywhere}, name a journal and in {everywhere}, {COMMIT}"
    )


BOOK = "key: k, %s route: {kind: book, store: main, budget: {units: 9} %s}"
WHOLE = ", on_overweight: dead_letter, on_poison: block"
PARTS = (Atom.NO_LOSS, Atom.NO_DUPLICATE, Atom.MONOTONIC, Atom.GAP_FREE)


def test_a_book_that_parks_promises_no_message_and_says_what_would() -> None:
    """B-71, B-106: what waits for a person is lost until somebody looks; the settings that park are named."""
    asked = "expect: {delivery: at-least-once},"
    parking = judged(pipes=pipe(BOOK % (asked, "")))
    (unmet,) = parking.pipes[0].unmet
    assert "with on_overweight: park and on_poison: park" in unmet.why
    (remedy,) = unmet.remedies
    assert "write on_overweight: dead_letter and on_poison: dead_letter in its route" in remedy
    assert "(or on_overweight: block and on_poison: block)" in remedy
    assert judged(pipes=pipe(BOOK % (asked, WHOLE))).held


def test_a_book_keeps_the_order_of_each_key_and_repeats_what_a_crash_interrupts() -> None:
    """B-106: monotonic per key and none across; no-loss and gap-free survive crashes, the other two do not."""
    found = judged(pipes=pipe(BOOK % ("lanes: 3,", WHOLE)))
    verdict = found.pipes[0]
    assert verdict.per_key is not None
    assert verdict.per_key.order == "absolute"
    assert verdict.explanation is not None
    assert verdict.explanation.headline.order == "none"
    by_key = evaluate(replace(hop_of(found.plan, found.plan.pipe("intake"), {}), lanes=0)).guarantee
    crash = {Fault.SENDER_CRASH, Fault.RECEIVER_CRASH, Fault.STORE_OUTAGE}
    lost, twice, late, gaps = (by_key.tolerated(atom) or frozenset[Fault]() for atom in PARTS)
    assert crash <= lost & gaps
    assert not (crash - {Fault.SENDER_CRASH}) & (twice | late)
    assert Fault.STORE_ROLLBACK not in lost | twice | late | gaps
    assert Fault.CLOCK_STEP in lost & twice & late & gaps


def test_check_says_what_bounds_the_wait_of_a_key() -> None:
    """The formula of the policy with the figures of the file; without a budget in that measure, nothing."""
    drr = judged(pipes=pipe(BOOK % ("", ", quantum: 3, max_message_cost: {units: 4}")))
    assert "k x (quantum 3 + 2 x 4) / 9 units x 1 s + 1 s" in "\n".join(drr.notes)
    rotate = judged(pipes=pipe(BOOK % ("", ", policy: rotate")))
    assert "k + 1 periods" in "\n".join(rotate.notes)
    other = judged(pipes=pipe(BOOK % ("", ", fair_by: bytes")))
    assert "the budget does not bound bytes" in "\n".join(other.notes)
    free = judged(pipes=pipe("key: k, route: {kind: book, store: main}"))
    assert "nothing limits the rate" in "\n".join(free.notes)


REDIS = "stores: {main: {kind: redis, url: 'redis://localhost', spread: stream}}"
MEMORY = "stores: {main: {kind: memory}}"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ({"stores": REDIS}, "spreads its keys (spread: stream)"),
        (
            {"stores": MEMORY, "pipes": pipe(BOOK % ("node: away,", ""))},
            "is in the memory of one process",
        ),
        (
            {"stages": stage("retries: 3")},
            "counts attempts and keeps what failed: write retries and on_poison",
        ),
        (
            {"stages": "stages: {price: {from: intake, batch: {max: 5}}}"},
            "put another pipe between",
        ),
    ],
)
def test_what_a_book_can_not_be_is_said_before_it_runs(lines: dict[str, str], said: str) -> None:
    """By the engine, with what to do instead."""
    found = judged(**{"pipes": pipe(BOOK % ("", "")), **lines})
    assert not found.usable
    assert said in "\n".join(issue.text for issue in found.actor_refusals)
