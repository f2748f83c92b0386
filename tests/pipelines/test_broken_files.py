from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surepipe.pipelines import PipelineErrors, Plan, loads
from surepipe.pipelines.problems import PROBLEMS_MAX
from tests.pipelines.broken_files import BROKEN
from tests.pipelines.files import pipe, pipeline, stage

SIGNS = st.sampled_from(
    [*"{}[]:,-?&*!|>'\"%@`#~ \n\t$", "a", "1", "from", "kind", "null", "é", "\x00", "<<"]
)


@pytest.mark.parametrize("title", BROKEN)
def test_a_broken_file_is_refused_with_every_problem_at_its_place(title: str) -> None:
    """One row of the table: place and text of each problem, in the order of the file, and no others."""
    data, expected = BROKEN[title]
    with pytest.raises(PipelineErrors) as caught:
        loads(data, "shop.yaml")
    found = [f"{one.place.line}:{one.place.column}: {one.text}" for one in caught.value.problems]
    assert tuple(found) == expected


def test_the_table_is_not_small() -> None:
    """At least sixty ways to get a file wrong."""
    assert len(BROKEN) >= 60


def test_an_error_shows_file_line_column_the_line_and_a_caret_under_the_word() -> None:
    """The whole text of one error."""
    with pytest.raises(PipelineErrors) as caught:
        loads(pipeline(pipes=pipe("layers: [reliabel]")), "shop.yaml")
    assert str(caught.value) == (
        "shop.yaml:5:40: layer 0 of pipe intake is 'reliabel', which is no pipe: did you mean 'reliable'?\n"
        "    5 | pipes: {intake: {from: lines, layers: [reliabel]}}\n"
        "      |                                        ^^^^^^^^"
    )


def test_a_long_line_is_shown_around_the_word() -> None:
    """The caret stands under the word even where the line is cut at both ends."""
    options = ", ".join(f"option_{number}: 1" for number in range(60))
    with pytest.raises(PipelineErrors) as caught:
        loads(pipeline(pipes=pipe(f"layers: [{{reliable: {{{options}}}}}]")))
    _, line, caret = str(caught.value).splitlines()[-3:]
    assert len(line) < 180
    start = caret.index("^")
    assert line[start : start + len(caret.strip("| "))] == "option_59"


def test_what_a_terminal_obeys_is_not_shown() -> None:
    """A sign that turns the writing direction, in the line of an error: a blank stands in its place."""
    with pytest.raises(PipelineErrors) as caught:
        loads(pipeline(name="name: 'sh\u202eop'"))
    assert "'sh op'" in str(caught.value)
    assert "\u202e" not in str(caught.value)


def test_files_of_one_name_on_two_nodes_are_two_files() -> None:
    """Each node may be a machine of its own."""
    text = pipeline(
        pipes="pipes: {intake: {from: lines}, far: {from: intake, node: far, "
        "route: {kind: tcp, address: 'localhost:7400'}}}",
        stages="",
        sinks="sinks: {out: {from: intake, kind: jsonl, path: o}, o2: {from: far, kind: jsonl, path: o}}",
    )
    assert len(loads(text).sinks) == 2


def test_one_fault_may_stand_without_a_list() -> None:
    """As one name may in ``from``."""
    plan = loads(pipeline("expect: {tolerates: route}"))
    assert plan.expect is not None
    assert plan.expect.tolerates == ("route",)


@pytest.mark.parametrize(
    "secret",
    [
        "stores: {main: {kind: redis, url: 'redis://u:hunter2@h', oops: 1}}",
        "stores: {main: {kind: redis, url: 'rediss://:hunter2@h:6/0?a=b', kinds: 5}}",
        "stores: {main: {kind: redis, url: 'redis://h?password=hunter2', durability: no}}",
        "stores: {main: {kind: redis, password: hunter2, url: a}}",
        "stores: {main: {kind: sqlite, path: ['redis://u:hunter2@h']}}",
        "sinks: {out: {from: price, kind: http, url: x, headers: {Authorization: Bearer hunter2}, o: 1}}",
    ],
)
def test_no_error_shows_a_password(secret: str) -> None:
    """Neither in its text nor in the line that it shows."""
    name = secret.partition(":")[0]
    with pytest.raises(PipelineErrors) as caught:
        loads(pipeline(**{name: secret}))
    assert "hunter2" not in str(caught.value)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_plan_or_are_refused(data: bytes) -> None:
    """Never another exception, whatever the file holds."""
    _load_or_refuse(data)


@given(st.data())
def test_a_sound_file_with_any_signs_in_it_is_a_plan_or_is_refused(data: st.DataObject) -> None:
    """A few signs that mean something to YAML are put anywhere into the sound file, or take the place of some."""
    text = pipeline(
        "expect: {delivery: exactly-once}", pipes=pipe("layers: [{reliable: {window: 5}}]")
    )
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        gone = data.draw(st.integers(0, 12))
        text = text[:at] + data.draw(SIGNS) + text[at + gone :]
    _load_or_refuse(text)


@pytest.mark.parametrize("sign", ["[", "{", "- ", "? ", "{a: ", "[[a]: ", "!a ", "&a ", "|\n", "'"])
def test_repeating_a_sign_costs_no_stack_and_little_time(sign: str) -> None:
    """Twenty thousand of each: refused or read, without a RecursionError of Python."""
    _load_or_refuse(sign * 20_000)


def _load_or_refuse(data: str | bytes) -> None:
    try:
        outcome: Plan | PipelineErrors = loads(data)
    except PipelineErrors as errors:
        outcome = errors
    assert isinstance(outcome, Plan) or outcome.problems


def many(made: Callable[[int], str], n: int) -> str:
    """So many of one kind, on one line."""
    return ", ".join(made(number) for number in range(n))


LONG_LINES: dict[str, Callable[[int], str]] = {
    "keys of a pipeline": lambda n: f"{{version: 1, name: a, {many(lambda i: f'k{i}: 1', n)}}}",
    "keys of a source": lambda n: pipeline(
        sources=f"sources: {{s: {{kind: jsonl, path: a, {many(lambda i: f'k{i}: 1', n)}}}}}"
    ),
    "feeders that are unknown": lambda n: pipeline(
        pipes=f"pipes: {{p: {{from: [{many(lambda i: f'x{i}', n)}]}}}}"
    ),
    "one feeder many times": lambda n: pipeline(
        pipes=f"pipes: {{p: {{from: [{many(lambda _: 'lines', n)}]}}}}"
    ),
    "layers": lambda n: pipeline(pipes=pipe(f"layers: [{many(lambda i: f'x{i}', n)}]")),
    "one key many times": lambda n: pipeline(sources=f"sources: {{{many(lambda _: 'k: 1', n)}}}"),
    "sources that nothing takes": lambda n: pipeline(
        sources=f"sources: {{{many(lambda i: f's{i}: {{kind: jsonl, path: a}}', n)}}}",
        pipes="pipes: {intake: {from: s0}}",
    ),
    "stages that are fed from nowhere": lambda n: pipeline(
        stages=f"stages: {{{many(lambda i: f'x{i}: {{from: y{i}, map: a:b}}', n)}}}"
    ),
}


def calls_of(text: str) -> int:
    """How many functions are called to refuse a file."""
    calls = count()

    def called(frame: object, event: str, argument: object) -> None:
        del frame, event, argument
        next(calls)

    sys.setprofile(called)
    try:
        with pytest.raises(PipelineErrors):
            loads(text)
    finally:
        sys.setprofile(None)
    return next(calls)


@pytest.mark.parametrize("title", LONG_LINES)
def test_a_file_twice_as_long_is_not_four_times_the_work(title: str) -> None:
    """One long line, wrong all along: it is the calls that are counted, not the time."""
    made = LONG_LINES[title]
    assert calls_of(made(800)) < 2.6 * calls_of(made(400))


@pytest.mark.parametrize("title", LONG_LINES)
def test_so_many_problems_are_told_of_and_that_there_are_more(title: str) -> None:
    """Nobody reads a thousand; the last line says that they are not all."""
    with pytest.raises(PipelineErrors) as caught:
        loads(LONG_LINES[title](PROBLEMS_MAX + 50))
    assert len(caught.value.problems) <= PROBLEMS_MAX
    assert str(caught.value).endswith(
        f"there is more: mend these {len(caught.value.problems)} first"
    )
    assert len(str(caught.value)) < 1000 * PROBLEMS_MAX


def test_a_password_on_a_long_line_is_not_shown() -> None:
    """Many addresses in one word, and the last '@' far behind the first of them."""
    text = pipeline(stores="stores: {main: {kind: redis, url: 'redis://u:hunter2@h', odd: 1}}")
    with pytest.raises(PipelineErrors) as caught:
        loads(text)
    assert "hunter2" not in str(caught.value)
    assert "'odd' is no key" in str(caught.value)


def test_what_cannot_be_is_told_although_another_part_is_not_understood() -> None:
    """All of it at once: nobody mends a word of a source to be told of a boundary that was wrong all the time."""
    sources = "sources: {lines: {kind: jsonl, path: a.jsonl, paht: b}}"
    more = pipe("boundary: committed")
    with pytest.raises(PipelineErrors) as raised:
        loads(pipeline(sources=sources, pipes=more, stages=stage("retries: 5")))
    said = [problem.text for problem in raised.value.problems]
    assert ["paht" in said[0], *(text.partition(":")[0] for text in said[1:])] == [
        True,
        "boundary",
        "no-dead-letter",
    ]
    assert "stage price: after 5 attempts" in said[2]
    assert "Write dead_letter: main/price.dead, or drop retries." in said[2]


def test_nothing_is_told_of_a_pipe_that_touches_what_is_not_understood() -> None:
    """What stands in for it would be judged, and nobody has written that."""
    sinks = "sinks: {out: {from: price, kind: stdout, paht: b}}"
    with pytest.raises(PipelineErrors) as raised:
        loads(pipeline(sinks=sinks, pipes=pipe("boundary: committed")))
    (only,) = raised.value.problems
    assert "paht" in only.text
