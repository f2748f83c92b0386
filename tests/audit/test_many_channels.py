"""A trace of very many channels, as forwarded messages make them (each has a producer of its own): the work of
both judges follows the channels, and does not go through all of them for each."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import surepipe.audit
import surepipe.pipelines
from surepipe.audit.bulk import DuckEngine, Question, judge, place_of
from surepipe.audit.trace import Kind, Row
from surepipe.audit.trace_audit import audit
from surepipe.audit.trace_file import write_trace
from surepipe.core import ranges
from surepipe.core.claims import Atom
from surepipe.pipelines import loads
from surepipe.pipelines.accounting import ChannelNumbers, account
from tests.audit.planted import AT_REST, CLAIM, Told

MANY = 40
"""So many channels, then twice, then three times as many."""
PLACES = (str(Path(surepipe.audit.__file__).parent), str(Path(surepipe.pipelines.__file__).parent))


def lines_run(work: Callable[[], object]) -> int:
    """How many lines of the judges it takes: each turn of a loop is one at least."""
    count = 0

    def see(frame: FrameType, event: str, found: Any) -> Any:
        nonlocal count
        del found
        count += event == "line"
        name = frame.f_code.co_filename
        return see if name.startswith(PLACES) or name == ranges.__file__ else None

    former = sys.gettrace()
    sys.settrace(see)
    try:
        work()
    finally:
        sys.settrace(former)
    return count


def assert_linear(work: Callable[[int], Callable[[], object]]) -> None:
    """As much for the third piece as for the second. A loop over all channels for each takes two more turns for
    each pair of channels of a piece."""
    work(MANY)()  # what is done once is done here
    once, twice, thrice = (lines_run(work(times * MANY)) for times in (1, 2, 3))
    assert (thrice - twice) - (twice - once) < MANY * MANY


def begun(node: str, pipe: str, told: Told, life: int = 1, **facts: object) -> None:
    """A row ``start``."""
    claim = json.loads(CLAIM) | {"confirms": "stored"}
    told.tell(node, Kind.START, pipe, detail=json.dumps(claim | facts), life=life)


def forwarded(count: int) -> list[Row]:
    """Messages of which nobody told that they were sent, one of each producer."""
    told = Told()
    begun("out/receiver", "out", told)
    for at in range(count):
        for kind in (Kind.DELIVERED, Kind.SETTLED):
            told.tell("out/receiver", kind, f"out@m{at}", (1, 1, 1))
    told.tell("out/receiver", Kind.END, "out", detail=AT_REST)
    return told.rows


def sent(count: int, readers: Sequence[str] = ("out",)) -> list[Row]:
    """One sender for each message, and all is well."""
    told = Told()
    for reader in readers:
        begun(f"{reader}/receiver", "out", told, reader=reader)
    for at in range(count):
        sender, pipe = f"out{at}/sender", f"out@m{at}"
        begun(sender, pipe, told)
        told.tell(sender, Kind.ACCEPTED, pipe, (1, 1, 2))
        for reader in readers:
            told.tell(f"{reader}/receiver", Kind.DELIVERED, pipe, (1, 1, 2))
            told.tell(f"{reader}/receiver", Kind.SETTLED, pipe, (1, 1, 2))
        told.tell(sender, Kind.CONFIRMED, pipe, (1, 1, 2))
        told.tell(sender, Kind.END, pipe, detail=AT_REST)
    for reader in readers:
        told.tell(f"{reader}/receiver", Kind.END, "out", detail=AT_REST)
    return told.rows


def sent_to_two(count: int) -> list[Row]:
    """The same with two readers of the stream, and one that begins late."""
    return sent(count, ("mail", "stats"))


def of_one_key_each(count: int) -> list[Row]:
    """Lanes: each message of one channel has a key of its own."""
    told = Told()
    begun("out/sender", "out", told)
    begun("out/receiver", "out", told)
    told.tell("out/sender", Kind.ACCEPTED, "out", (1, 1, count))
    for seq in range(1, count + 1):
        key = json.dumps({"key": f"k{seq}"}, separators=(",", ":"))
        told.tell("out/receiver", Kind.DELIVERED, "out", (1, seq, seq), detail=key)
        told.tell("out/receiver", Kind.SETTLED, "out", (1, seq, seq))
    for side in ("sender", "receiver"):
        told.tell(f"out/{side}", Kind.END, "out", detail=AT_REST)
    return told.rows


def gone_wrong(count: int) -> list[Row]:
    """Of each channel one is lost, one comes twice, one was told late by a life that was replaced, one has another
    number later, and of one submit nobody knows the outcome."""
    told, pipes = Told(), [f"out@m{at}" for at in range(count)]
    begun("out/receiver", "out", told)
    for at, pipe in enumerate(pipes):
        begun(f"out{at}/sender", pipe, told)
        told.tell(f"out{at}/sender", Kind.ACCEPTED, pipe, (1, 1, 5))
        told.tell(f"out{at}/sender", Kind.UNKNOWN, pipe)
        moved = json.dumps({"epoch": 2, "seq": 1})
        told.tell(f"out{at}/sender", Kind.RENUMBERED, pipe, (1, 5, 5), detail=moved)
        told.tell("out/receiver", Kind.DELIVERED, pipe, (1, 1, 4))
        told.tell("out/receiver", Kind.SETTLED, pipe, (1, 1, 1))
    begun("out/receiver", "out", told, life=2)
    for pipe in pipes:
        told.tell("out/receiver", Kind.PASSED, pipe, (1, 3, 2), life=2)
    for at, pipe in enumerate(pipes):
        told.tell("out/receiver", Kind.DELIVERED, pipe, (1, 4, 4), life=2)
        told.tell("out/receiver", Kind.SETTLED, pipe, (1, 4, 4), life=2)
        told.tell("out/receiver", Kind.SETTLED, pipe, (1, 3, 3))
        told.tell("out/receiver", Kind.SETTLED, pipe, (1, 4, 4), life=2)
        told.tell("out/receiver", Kind.SETTLED, pipe, (7, 1, 1), life=2)
        told.tell(f"out{at}/sender", Kind.END, pipe, detail=AT_REST)
    told.tell("out/receiver", Kind.END, "out", detail=AT_REST, life=2)
    return told.rows


TRACES = (forwarded, sent, sent_to_two, of_one_key_each, gone_wrong)


@pytest.mark.parametrize("trace", TRACES)
def test_row_by_row_the_work_follows_the_channels(trace: Callable[[int], list[Row]]) -> None:
    """No loop over all channels for each: also of those that are broken, and those of their own nodes."""

    def work(count: int) -> Callable[[], object]:
        rows = trace(count)
        return lambda: [*(found := audit(rows)).lines(), *found.judged()]

    assert_linear(work)


@pytest.mark.parametrize("trace", TRACES)
def test_in_bulk_the_work_follows_the_channels(
    trace: Callable[[int], list[Row]], tmp_path: Path
) -> None:
    """The same of what is done around the statements."""

    def work(count: int) -> Callable[[], object]:
        file = tmp_path / f"{count}.jsonl"
        write_trace(trace(count), file)
        place = place_of(str(file))
        question = Question(place, place)
        return lambda: [*(found := judge(DuckEngine(), question)).lines(), *found.judged()]

    assert_linear(work)


PLAN = """
version: 1
name: shop
sources: {orders: {kind: jsonl, path: orders.jsonl}}
pipes: {mail: {from: orders}}
sinks: {sent: {kind: jsonl, path: sent.jsonl, from: mail}}
"""


def test_an_account_of_a_plan_follows_the_channels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What each message of a pipe made is looked up, not looked for."""
    plan = loads(PLAN)
    monkeypatch.chdir(tmp_path)
    Path("sent.jsonl").write_text("{}\n")

    def work(count: int) -> Callable[[], object]:
        told = Told()
        begun("shop/mail/receiver", "shop/mail", told)
        opened = json.dumps({"sink": "sent", "bytes": 0})
        told.tell("shop/mail/receiver", Kind.OPENED, detail=opened)
        numbers: list[ChannelNumbers] = []
        for at in range(count):
            pipe = f"shop/mail@m{at}"
            made = json.dumps({"made": {"sent": [[1, 1, 2]]}})
            told.tell("shop/mail/receiver", Kind.MADE, pipe, (1, 1, 1), detail=made)
            numbers.append(ChannelNumbers(pipe, 1, 1, 0, is_whole=True))
        return lambda: account(plan, numbers, told.rows, frozenset({Atom.NO_LOSS}))

    assert_linear(work)
