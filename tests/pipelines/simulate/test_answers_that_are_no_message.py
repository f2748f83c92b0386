"""Stages that give what no sink can write: told by what it is, and not by what differs in it from run to run."""

from __future__ import annotations

from pathlib import Path

import pytest

from surepipe.cli.output import Exit
from surepipe.pipelines.simulate.ends import as_text, canonical
from tests.pipelines.simulate.kit import SHOP, simulated

pytestmark = pytest.mark.long
GIVEN = {
    "Thing()": "<shop_stages.Thing object>: Unwritable: a Thing that is no JSON",
    "{'n': 1, 'thing': Thing()}": "{'n': 1, 'thing': <shop_stages.Thing object>}",
    "{'n': (each for each in order)}": "{'n': <generator object price.<locals>.<genexpr>>}",
    "{'milk', 'bread', 'tea', 'salt'}": "{'bread', 'milk', 'salt', 'tea'}",
    "{'n': float('nan')}": "{'n': nan}",
}
WITH_LETTERS = SHOP.replace('price"}', 'price", retries: 2, dead_letter: main/dead}')
REASONS = ("TypeError: Object of type", "ValueError: Out of range float values", "Unwritable")


@pytest.mark.long
@pytest.mark.parametrize("given", GIVEN)
def test_an_answer_that_no_sink_can_write_is_shown(tmp_path: Path, given: str) -> None:
    """With the reason; the other hash seed finds the same, so it is not exercised (simulation X-22, X-24)."""
    stages = f"class Thing:\n    pass\ndef price(order):\n    return {given}\n"
    done = simulated(tmp_path, stages, pipeline=WITH_LETTERS)
    assert done.returncode == Exit.NOT_EXERCISED, done.stdout + done.stderr
    assert "sink out fails for 4 of 4 messages (it is given " in done.stdout
    assert GIVEN[given].partition(": Unw")[0] in done.stdout
    assert any(reason in done.stdout for reason in REASONS)


@pytest.mark.long
def test_a_pipeline_that_stands_still_for_such_an_answer_is_not_surepipes_defect(
    tmp_path: Path,
) -> None:
    """Without dead letters it is tried for ever, which is violated, and whose defect that is (simulation X-22)."""
    done = simulated(tmp_path, "def price(order):\n    return {'n': float('nan')}\n")
    assert done.returncode == Exit.VIOLATED
    assert "a defect of surepipe" not in done.stdout
    assert "A stage's defect: even without faults sink out fails for 1 of 1 messages" in done.stdout


@pytest.mark.long
@pytest.mark.parametrize(
    ("given", "sink", "reason"),
    [
        (
            "{'n': order['n'], 'at': datetime.now()}",
            "kind: jsonl, path: out.jsonl",
            "Object of type datetime is not JSON serializable. Give what JSON has: isoformat() of a time",
        ),
        (
            "{'totl': 1}",
            "kind: csv, path: out.csv, columns: [n, total]",
            "a row of the columns n, total lacks n, total. Give a mapping with just these fields",
        ),
        (
            "{'n': 1, 'total': 2, 'more': 3}",
            "kind: csv, path: out.csv, columns: [n, total]",
            "a row of the columns n, total has more besides. Give a mapping with just these fields",
        ),
    ],
)
def test_who_gave_what_no_sink_takes_and_for_which_message_is_told_with_what_to_do(
    tmp_path: Path, given: str, sink: str, reason: str
) -> None:
    """With the line of the stage, though a filter stands behind it; types have the names that users know, and no
    row of the source would help (simulation X-22)."""
    stages = (
        "from datetime import datetime\n\ndef kept(order):\n    return True\n\n"
        f"def price(order):\n    return {given}\n"
    )
    filtered = WITH_LETTERS.replace(
        "from: price, kind: jsonl, path: out.jsonl", f"from: kept, {sink}"
    )
    kept = 'kept: {from: price, filter: "shop_stages:kept", retries: 2, dead_letter: main/dead}'
    filtered = filtered.replace("stages: {", f"stages: {{{kept}, ")
    done = simulated(tmp_path, stages, pipeline=filtered)
    assert done.returncode == Exit.NOT_EXERCISED, done.stdout + done.stderr
    said = " ".join(done.stdout.split())
    assert 'by stage price (shop_stages.py:6) for {"n":0}, which it can\'t take: ' in said
    assert reason in said
    assert "_Datetime" not in said
    assert "may_be_empty" not in said


class _Thing:
    """Has no text of its own."""


def test_a_text_of_a_value_is_the_same_in_every_process() -> None:
    """Without addresses, and sets in order; of all else it is what repr says (simulation X-24)."""
    thing, name = _Thing(), f"<{__name__}._Thing object>"
    assert as_text({"a": [thing, {3, 1, 2}], "b": frozenset({2, 1})}) == (
        f"{{'a': [{name}, {{1, 2, 3}}], 'b': frozenset({{1, 2}})}}"
    )
    values: list[object] = [{}, [], set[int](), frozenset[int](), (1,), "a", b"a", None]
    for plain in (values, {1: values}):
        assert as_text(plain) == repr(plain)
    assert canonical({"b": {2, 1}, "a": thing}) == f'{{"a":"{name}","b":"{{1, 2}}"}}'
    endless: list[object] = []
    endless.append(endless)
    assert as_text(endless) == "[[...]]"
