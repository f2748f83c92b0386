"""Rows of sources under simulation: read, checked by the source's model, and put aside, as in a run."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Literal
from uuid import UUID, uuid4

import pytest
from pydantic import AliasChoices, BaseModel, Field

from surepipe.cli.app import run
from surepipe.cli.output import Exit
from surepipe.errors import ConfigurationError
from surepipe.pipelines import loads
from surepipe.pipelines.simulate.simulating import simulation_of
from surepipe.pipelines.simulate.sources_and_sinks import Unreadable, with_unreadable
from surepipe.pipelines.simulate.subject import PlanSubject
from surepipe.simulation.options import Options

HERE = __name__
PLAN = f"""\
version: 1
name: desk
stores: {{main: {{kind: sqlite, path: desk.db}}}}
sources: {{events: {{SOURCE, model: "{HERE}:Event"}}}}
pipes: {{intake: {{from: events, layers: [reliable], journal: main, state: main, boundary: committed}}}}
stages: {{book: {{from: intake, call: "{HERE}:book"}}}}
sinks: {{out: {{from: book, kind: jsonl, path: out.jsonl}}}}
"""
ASIDE = "dead_letter: main/unread"
GOOD = [{"n": 1, "kind": "loan"}, {"n": 2, "kind": "return", "day": "9"}]
AS_THE_MODEL_HAS_THEM = [
    {"n": 1, "kind": "loan", "day": 7},
    {"n": 2, "kind": "return", "day": 9},
]
BAD = {"n": 3, "kind": "steal"}


class Event(BaseModel):
    n: int
    kind: Literal["loan", "return"]
    day: int = 7


class Named(BaseModel):
    """What it gives it does not take: its field has another name in a row."""

    name: str = Field(validation_alias=AliasChoices("Name"))


class Numbered(BaseModel):
    """With a number by chance."""

    n: int
    number: UUID = Field(default_factory=uuid4)


class Dated(BaseModel):
    """With the moment at which it was read."""

    n: int
    read: datetime = Field(default_factory=lambda: datetime.now(UTC))
    day: date = Field(default_factory=lambda: datetime.now(UTC).date())


class Labelled(BaseModel):
    """With sets, whose order is another one in each process."""

    labels: set[str]
    inner: list[dict[str, frozenset[str]]] = Field(default_factory=list[dict[str, frozenset[str]]])


class Clocked(BaseModel):
    """With a clock that nobody can replace."""

    n: int
    read: datetime = Field(default_factory=datetime.now)


class Odd(BaseModel):
    """Of which nobody can make up a value."""

    code: Annotated[str, Field(pattern=r"^[A-Z]{3}-\d+$")]


def book(event: dict[str, int]) -> object:
    """It needs a day, as a number."""
    return {**event, "tomorrow": event["day"] + 1}


def subject_of(
    source: str, rows: Sequence[object] | None = None, model: str = "Event"
) -> PlanSubject:
    """A plan with this source; ``rows``: those given to the simulation."""
    text = PLAN.replace("SOURCE", source).replace(":Event", f":{model}")
    return simulation_of(loads(text), messages=None if rows is None else {"events": rows}).subject


KINDS = [
    "kind: jsonl, path: none.jsonl",
    "kind: csv, path: none.csv",
    "kind: parquet, path: none.parquet",
    "kind: stream, store: main, stream: events",
    "kind: stdin",
    f"kind: python, call: '{HERE}:book'",
    "kind: http, listen: '127.0.0.1:0'",
]


@pytest.mark.parametrize("source", KINDS)
def test_messages_that_are_given_come_as_the_model_of_their_source_has_them(source: str) -> None:
    """Its defaults and numbers: a stage that needs these was called broken."""
    assert subject_of(source, GOOD).messages["events"] == AS_THE_MODEL_HAS_THEM


def test_a_sample_comes_as_the_model_has_it() -> None:
    """Over and over, up to the number of messages."""
    text = PLAN.replace("SOURCE", "kind: jsonl, path: none.jsonl")
    text += f"simulate: {{messages: 3, sample: {{events: {json.dumps(GOOD)}}}}}\n"
    first, second = AS_THE_MODEL_HAS_THEM
    assert simulation_of(loads(text)).subject.messages["events"] == [first, second, first]


def test_a_model_is_asked_once_for_each_row() -> None:
    """What it gives may be nothing that it takes; so for values that are made up, too."""
    source = "kind: stream, store: main, stream: events"
    made = subject_of(source, model="Named").messages["events"]
    assert made[0] == {"name": "m0"} or made[0] == {"name": "m1"}
    given = subject_of(source, [{"Name": "a"}], model="Named").messages["events"]
    assert given == [{"name": "a"}]


def test_time_in_a_model_is_the_same_in_each_process_of_a_campaign() -> None:
    """Its rows differed from process to process, so each campaign was called not deterministic."""
    first, second = (subject_of("kind: stdin", [{"n": 1}], "Dated") for _ in range(2))
    assert first.messages == second.messages
    assert first.messages["events"][0]["day"] == "2023-11-14"  # type: ignore[index]
    assert datetime.now(UTC).year > 2023, "the real clock is the real one again"


def test_sets_in_a_model_have_one_order() -> None:
    """That of the hashes differs from process to process: such a campaign was called not deterministic."""
    letters = list("qwertyuiopasdfghjklzxcvbnm")
    rows = [{"labels": letters, "inner": [{"a": letters}]}]
    (found,) = subject_of("kind: stdin", rows, "Labelled").messages["events"]
    assert found == {"labels": sorted(letters), "inner": [{"a": sorted(letters)}]}


def test_a_clock_that_a_model_has_taken_for_good_is_told_with_what_to_do() -> None:
    """Else a campaign ends as not deterministic, and nobody says why."""
    with pytest.raises(
        ConfigurationError, match=r"read of its model takes datetime.now of.*lambda:"
    ):
        subject_of("kind: stdin", [{"n": 1}], "Clocked")


def test_chance_in_a_model_is_the_same_in_each_process_of_a_campaign() -> None:
    """Else no schedule could be run again: its rows would be others."""
    first, second = (subject_of("kind: stdin", [{"n": 1}, {"n": 2}], "Numbered") for _ in range(2))
    assert first.messages == second.messages
    assert len({row["number"] for row in first.messages["events"]}) == 2  # type: ignore[index]


def test_values_that_a_model_refuses_are_not_made_up() -> None:
    """Nobody wrote them, so nobody is told that they are wrong, but what to do."""
    with pytest.raises(
        ConfigurationError, match=r"events.*no Odd: code.*sample: \{events: \[\.\.\.\]"
    ):
        subject_of("kind: stdin", model="Odd")


def test_a_row_that_the_model_refuses_is_put_aside_and_reaches_no_stage() -> None:
    """It is among the rows that can't be read, each of which must be a dead letter."""
    source = f"kind: jsonl, path: none.jsonl, {ASIDE}"
    subject = subject_of(source, [GOOD[0], BAD, GOOD[1], BAD])
    assert subject.messages["events"] == AS_THE_MODEL_HAS_THEM
    ((content, why),) = subject.aside["events"].items()
    assert json.loads(content) == BAD
    assert why.startswith("source events, message 2: no Event: kind: ")


def test_without_a_dead_letter_it_is_said_that_a_run_stops_there() -> None:
    """Before anything is simulated: what follows from a row that never comes is no defect of a stage."""
    said = r"source events, message 2: no Event: kind: .*a run stops there.*dead_letter"
    with pytest.raises(ConfigurationError, match=said):
        subject_of("kind: stdin", [GOOD[0], BAD])


def test_what_a_model_refuses_is_no_message_of_a_client_that_posts_it() -> None:
    """It is answered with 422, and the source goes on."""
    subject = subject_of("kind: http, listen: '127.0.0.1:0'", [*GOOD, BAD])
    assert subject.messages["events"] == AS_THE_MODEL_HAS_THEM
    with pytest.raises(ConfigurationError, match="nothing to simulate with"):
        subject_of("kind: http, listen: '127.0.0.1:0'", [BAD])


LINES = [
    *(json.dumps(row) for row in GOOD),
    '{"n": 3, "kind": "steal"}',
    "{nope",
    "{nope",
    '{"n": 4, "kind": "loan", "day": 4}',
]


Simulate = Callable[[str, str], tuple[int, str]]


@pytest.fixture
def simulated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Simulate:
    """Simulate a source with this content; the exit code and what was said."""

    def simulate(source: str, content: str) -> tuple[int, str]:
        (tmp_path / "rows.txt").write_text(content)
        (tmp_path / "desk.yaml").write_text(PLAN.replace("SOURCE", source))
        named = ["simulate", str(tmp_path / "desk.yaml"), "--seeds", "40", "--jobs", "1"]
        code = run(named)
        said = capsys.readouterr()
        return code, said.out + said.err

    return simulate


def test_lines_that_are_no_message_are_put_aside_as_a_run_does(simulated: Simulate) -> None:
    """The same line twice is two letters in a run; here it comes once."""
    source = f"kind: jsonl, path: rows.txt, {ASIDE}"
    code, said = simulated(source, "\n".join(LINES) + "\n")
    assert code == Exit.HELD, said
    assert "events puts aside" in said
    assert "line 3" in said


def test_a_line_that_is_no_json_is_named_with_its_place_and_what_to_do(simulated: Simulate) -> None:
    """The reason alone tells of a place in the line, which was taken for one in the file."""
    good = [json.dumps(row) for row in GOOD]
    code, said = simulated("kind: jsonl, path: rows.txt", "\n".join([*good, "", "{nope"]) + "\n")
    assert code == Exit.UNUSABLE
    assert "rows.txt, line 4, byte " in said
    assert "no JSON" in said
    assert "dead_letter: STORE/STREAM" in said


def test_rows_of_csv_are_read_as_a_run_reads_them(simulated: Simulate) -> None:
    """One that is too short is put aside, or stops it; numbers are those of the model."""
    rows = "n,kind,day\n1,loan,3\n2\n3,return,4\n"
    assert simulated(f"kind: csv, path: rows.txt, {ASIDE}", rows)[0] == Exit.HELD
    code, said = simulated("kind: csv, path: rows.txt", rows)
    assert code == Exit.UNUSABLE
    assert "rows.txt, line 3: not as many fields as the header has" in said


def test_each_row_that_is_put_aside_comes_in_some_run() -> None:
    """In front of those that are made up."""
    rows = [*GOOD, *({"n": number, "kind": "steal"} for number in range(5))]
    subject = subject_of(f"kind: stdin, {ASIDE}", rows)
    (source,), seen = subject.plan.sources, set[bytes]()
    for seed in range(20):
        found = with_unreadable(
            source, [], subject.aside["events"], Options(seed=seed, unreadable=3)
        )
        seen |= {row.content for row in found if isinstance(row, Unreadable)}
    assert seen == {*subject.aside["events"]}
