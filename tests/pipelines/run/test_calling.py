"""Functions that a pipeline can't call, or whose answers are no messages: one clear error, at the start if it can
be known then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping
from typing import Any

import pytest

from surepipe.errors import ConfigurationError
from surepipe.pipelines.run.running import letters_in
from surepipe.pipelines.stages import Context
from surepipe.storage import SqliteStore
from tests.pipelines.run.kit import plan_of, read_lines, run, write_lines

pytestmark = pytest.mark.usefixtures("folder")

HEAD = "sources: {lines: {kind: jsonl, path: in.jsonl}}\npipes: {intake: {from: lines}}\n"
OUT = "sinks: {out: {from: last, kind: jsonl, path: out.jsonl}}\n"


def nothing() -> None:
    """Takes no message."""


def three(message: object, context: Context, more: object) -> None:
    """Takes more than there is."""


def named(message: object, *, rate: float) -> None:
    """Asks for what nobody gives."""


class Needy:
    """Can't be made without an argument."""

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def __call__(self, message: object) -> object:
        return message


class Short:
    """Its instances take no message."""

    def __call__(self) -> None:
        """Nothing."""


def many(message: object) -> Generator[object]:
    """Gives some."""
    yield message


async def many_later(message: object) -> AsyncGenerator[object]:
    """Gives some, later."""
    yield message


def of_one(order: Mapping[str, int]) -> int:
    """Takes one message."""
    return order["n"]


REFUSED: list[tuple[str, Callable[..., object], str]] = [
    (
        "call",
        nothing,
        "stage last: test:f() can't be called with a message (too many positional arguments)",
    ),
    ("map", three, r"too many positional|missing a required argument: 'more'"),
    ("call", named, "missing a required argument: 'rate'|missing a required keyword"),
    ("call", Needy, "stage last: the class test:f can't be made without arguments"),
    ("call", Short, "write def __call__(message), or def __call__(message, context)"),
    ("map", many, "test:f is a generator, which gives many messages: write it as flat-map"),
    ("filter", many, "is a generator"),
    ("flat-map", many_later, "is an async generator: return a list"),
]


def _plain(text: str) -> str:
    return text if "|" in text else text.replace("(", r"\(").replace(")", r"\)")


@pytest.mark.parametrize(
    ("kind", "function", "said"), REFUSED, ids=[f"{kind} {f.__name__}" for kind, f, _ in REFUSED]
)
def test_a_function_that_no_message_could_be_given_to_is_refused_at_the_start(
    kind: str, function: Callable[..., object], said: str
) -> None:
    """Arity, classes, generators: nothing was read, nothing written."""
    write_lines("in.jsonl", [1])
    plan = plan_of(f'{HEAD}stages: {{last: {{from: intake, {kind}: "test:f"}}}}\n{OUT}')
    with pytest.raises(ConfigurationError, match=_plain(said)):
        run(plan, f=function)
    assert read_lines("out.jsonl") == []


def test_a_function_of_one_message_behind_a_batch_is_refused_at_the_start() -> None:
    """It says so in its types; through a filter too. One without types, or of any sequence, is not judged."""
    write_lines("in.jsonl", [1])
    stages = (
        "stages:\n  few: {from: intake, batch: {max: 2}}\n"
        '  some: {from: few, filter: "test:some"}\n  last: {from: some, call: "test:f"}\n'
    )
    plan = plan_of(HEAD + stages + OUT)
    with pytest.raises(
        ConfigurationError, match="given batches, which are lists, and takes Mapping"
    ):
        run(plan, f=of_one, some=any)
    run(plan, f=len, some=any)
    assert read_lines("out.jsonl") == [1]


def test_functions_of_sources_keys_and_sinks_are_looked_at_too() -> None:
    """A sink of wrong arity, a source with an argument too many, a key that is async."""

    async def later(message: object) -> object:
        return message

    write_lines("in.jsonl", [1])
    sink = 'sinks: {out: {from: intake, kind: python, call: "test:f"}}\n'
    with pytest.raises(ConfigurationError, match=r"sink out: test:f\(\) can't be called"):
        run(plan_of(HEAD + sink), f=nothing)
    source = HEAD.replace(
        "kind: jsonl, path: in.jsonl", 'kind: python, call: "test:rows", arguments: {size: 3}'
    )
    with pytest.raises(ConfigurationError, match="with the arguments size: got an unexpected"):
        run(plan_of(source + sink), f=abs, rows=list_of_two)
    lanes = HEAD.replace("from: lines", 'from: lines, lanes: 2, key: "test:later"')
    with pytest.raises(ConfigurationError, match="key of pipe intake: test:later is async"):
        run(plan_of(lanes + sink), f=abs, later=later)


def list_of_two() -> list[int]:
    """A source."""
    return [1, 2]


def _answers() -> dict[str, tuple[Callable[[object], object], str]]:
    async def later(message: object) -> object:
        return message

    return {
        "a generator": (lambda message: (n for n in [message]), "gave a generator: write it as"),
        "a map": (lambda message: map(str, [message]), "gave a map: nobody runs that"),
        "calls": (_calls_of(later), "nobody waits for that: write async def"),
    }


def _calls_of(
    later: Callable[[object], Coroutine[object, object, object]],
) -> Callable[[object], object]:
    """Gives calls that nobody awaits. Python would warn of each."""

    def calls(message: object) -> object:
        call = later(message)
        call.close()
        return [call]

    return calls


@pytest.mark.parametrize("name", _answers())
def test_an_answer_that_is_no_message_is_named_the_first_time(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A function without types can't be judged before: the log says at once what it gave, and once only."""
    function, said = _answers()[name]
    write_lines("in.jsonl", [1, 2])
    last = '{from: intake, call: "test:f", retries: 2, retry_min_s: 0.001, dead_letter: main/dead}'
    counted = run(plan_of(f"{HEAD}stages: {{last: {last}}}\n{OUT}"), f=function)
    assert counted["last"] == {"failed": 4}
    warned = [record.message for record in caplog.records if "test:f gave" in record.message]
    assert [said in one for one in warned if one.startswith("stage last: ")] == [True]


def test_what_the_next_pipe_cannot_carry_is_the_failure_of_the_stage_that_gave_it() -> None:
    """A set is no JSON: the stage's own retries count, and its letter tells why."""

    def wrong(message: object) -> Any:
        return {1, 2} if message == 1 else message

    write_lines("in.jsonl", [1, 2])
    text = (
        "sources: {lines: {kind: jsonl, path: in.jsonl}}\n"
        "pipes: {intake: {from: lines}, next: {from: last}}\n"
        'stages: {last: {from: intake, call: "test:f", retries: 2, retry_min_s: 0.001, '
        "dead_letter: main/dead}}\n" + OUT.replace("last", "next")
    )
    run(plan_of(text), f=wrong)
    assert read_lines("out.jsonl") == [2]
    with SqliteStore("main.db") as store:
        (letter,) = letters_in({"main": store}, "main/dead").all()
    assert "set" in letter.letter.error_text


def leaves(message: object) -> object:
    """Wants to end more than its message."""
    raise SystemExit(message)


async def leaves_later(message: object) -> object:
    """The same where only an event loop would hear it."""
    raise KeyboardInterrupt(message)


def leaves_between(message: object) -> Generator[object]:
    """The same, half way."""
    yield message
    raise SystemExit(3)


async def leaves_its_loop(message: object) -> object:
    """What asyncio ends a coroutine with that nobody awaits any more."""
    raise GeneratorExit(message)


async def cancels_itself(message: object) -> object:
    """The same with its own task, and it returns before it meets that."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    return message


@pytest.mark.parametrize("more", ["", ", time_limit_s: 60"])
@pytest.mark.parametrize("lanes", ["", ", key: k, lanes: 3"])
@pytest.mark.parametrize(
    ("function", "said"),
    [
        (leaves_later, "last raised KeyboardInterrupt: {'k': 1}"),
        (leaves_its_loop, "last raised GeneratorExit: {'k': 1}"),
        (cancels_itself, "last was cancelled"),
    ],
)
def test_an_async_stage_that_would_end_more_than_its_call_ends_its_attempt_only(
    caplog: pytest.LogCaptureFixture,
    function: Callable[[object], object],
    said: str,
    lanes: str,
    more: str,
) -> None:
    """With lanes and without, within a time limit and without: the loop of all stages hears nothing of it."""
    write_lines("in.jsonl", [{"k": 1}])
    call = f'call: "test:f", retries: 2, retry_min_s: 0.001, dead_letter: main/dead{more}'
    head = HEAD.replace("{from: lines}", f"{{from: lines{lanes}}}")
    assert (head != HEAD) == bool(lanes)
    counted = run(plan_of(f"{head}stages: {{last: {{from: intake, {call}}}}}\n{OUT}"), f=function)
    assert counted["intake"]["dead_lettered"] == 1
    assert letter_text() == said
    assert "died of" not in caplog.text
    assert "wanted to end the process" not in caplog.text


@pytest.mark.parametrize(
    ("kind", "function", "said"),
    [
        ("call", leaves, "last raised SystemExit: 1"),
        ("call", leaves_later, "last raised KeyboardInterrupt: 1"),
        ("flat-map", leaves_between, "last raised SystemExit: 3"),
    ],
)
def test_a_stage_that_would_end_the_process_fails_its_message(
    kind: str, function: Callable[[object], object], said: str
) -> None:
    """It counts as an attempt, so that the message comes to the dead letters, and the run to its end."""
    write_lines("in.jsonl", [1])
    last = f'{{from: intake, {kind}: "test:f", retries: 2, retry_min_s: 0.001, dead_letter: main/dead}}'
    counted = run(plan_of(f"{HEAD}stages: {{last: {last}}}\n{OUT}"), f=function)
    assert counted["intake"]["dead_lettered"] == 1
    assert letter_text() == said


def letter_text() -> str:
    """Why the one letter was buried."""
    with SqliteStore("main.db") as store:
        (found,) = letters_in({"main": store}, "main/dead").all()
    return found.letter.error_text


@pytest.mark.parametrize("answer", [{1, 2}, float("nan"), "\ud800"])
def test_what_a_sink_cannot_write_is_the_failure_of_the_stage_that_gave_it(
    answer: object, caplog: pytest.LogCaptureFixture
) -> None:
    """A set, a number that JSON has not, half a sign: the stage's retries count, and the log names both once."""

    def wrong(message: object) -> object:
        return answer if message == 1 else message

    write_lines("in.jsonl", [1, 2])
    last = '{from: intake, call: "test:f", retries: 2, retry_min_s: 0.001, dead_letter: main/dead}'
    counted = run(plan_of(f"{HEAD}stages: {{last: {last}}}\n{OUT}"), f=wrong)
    assert counted["intake"]["dead_lettered"] == 1
    assert read_lines("out.jsonl") == [2]
    assert caplog.text.count("sink out can't write what last gave: a ") == 1


class Leaver:
    """Can't be made."""

    def __init__(self) -> None:
        raise SystemExit(3)

    def __call__(self, message: object) -> object:
        return message


def test_a_class_that_fails_when_it_is_made_is_one_clear_line() -> None:
    """Even where it would end the process."""
    write_lines("in.jsonl", [1])
    last = 'stages: {last: {from: intake, call: "test:f"}}\n'
    with pytest.raises(ConfigurationError, match="test:f can't be made: it raised SystemExit: 3"):
        run(plan_of(HEAD + last + OUT), f=Leaver)


def forgets(message: object) -> None:
    """Makes something of it, and keeps it for itself."""
    str(message)


def test_messages_that_go_no_further_are_counted() -> None:
    """A forgotten ``return`` shows in the numbers."""
    write_lines("in.jsonl", [1, 2, 3])
    last = 'stages: {last: {from: intake, call: "test:f"}}\n'
    counted = run(plan_of(HEAD + last + OUT), f=forgets)
    assert counted["last"] == {"passed": 3, "left_out": 3}
