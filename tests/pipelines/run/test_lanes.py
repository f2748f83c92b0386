"""Pipelines whose lanes don't wait for the disk: a message is settled when the group that it is in is sealed."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from surepipe.actors.consuming.consumer import Work
from surepipe.actors.consuming.lanes import LaneQueue
from surepipe.actors.ends.receiver_host import ReceiverHost
from surepipe.errors import StoreUnavailable
from surepipe.pipelines.run import PlanEngine
from surepipe.pipelines.sinks.files import OpenFile, SystemDisk
from tests.pipelines.run.kit import DONE_S, Bench, plan_of, read_lines, run, until, write_lines

pytestmark = pytest.mark.usefixtures("folder")
HEAD = "sources: {lines: {kind: jsonl, path: in.jsonl}}\npipes:\n"
INTAKE = "  intake: {from: lines, key: key, lanes: LANES, journal: main, state: main}\n"
Order = dict[str, object]


def lanes_of(count: int, rest: str) -> str:
    """A pipeline with so many lanes in its only pipe."""
    return HEAD + INTAKE.replace("LANES", str(count)) + rest


def orders(keys: int, count: int) -> list[Order]:
    """So many, over these keys in turn."""
    return [{"key": n % keys, "n": n} for n in range(count)]


def of_keys(lines: list[Order]) -> dict[object, list[object]]:
    """The numbers of each key as they stand there."""
    found: dict[object, list[object]] = {}
    for line in lines:
        found.setdefault(line["key"], []).append(line["n"])
    return found


def same(order: Order) -> Order:
    """As it came."""
    return order


def twice(order: Order) -> list[Order]:
    """It, and it again."""
    return [order, order]


ONE = (
    'stages:\n  last: {from: intake, call: "test:stage"}\n'
    "sinks: {out: {from: last, kind: jsonl, path: out.jsonl}}\n"
)


class Gate:
    """A disk that is not done before it may be."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entered, self.open = threading.Event(), threading.Event()
        self.groups = 0
        real = SystemDisk.sync

        def sync(disk: SystemDisk) -> None:
            self.groups += 1
            self.entered.set()
            assert self.open.wait(DONE_S)
            real(disk)

        monkeypatch.setattr(SystemDisk, "sync", sync)


def test_while_a_group_is_sealed_lanes_go_on_with_other_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two lanes and a disk that stands still: the stage is called for nine keys more, then all are one group."""
    gate, called = Gate(monkeypatch), Counter[int]()

    def stage(order: Order) -> Order:
        called[cast("int", order["key"])] += 1
        if len(called) == 10:
            gate.open.set()
        return order

    write_lines("in.jsonl", orders(10, 40))
    run(plan_of(lanes_of(2, ONE)), stage=stage)
    found = of_keys(read_lines("out.jsonl"))
    assert found == of_keys(orders(10, 40))
    assert gate.groups < 40


def test_a_key_waits_until_its_message_is_sealed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of a key is handled before what stands before it is on the disk; pipes of lanes keep that order."""
    gate, called = Gate(monkeypatch), list[object]()

    def stage(order: Order) -> Order:
        called.append(order["n"])
        if order["key"] == 1 and not gate.open.is_set():
            assert gate.entered.wait(DONE_S)
            assert called.count(0) == 1
            assert 2 not in called
            gate.open.set()
        return order

    write_lines("in.jsonl", orders(2, 6))
    run(plan_of(lanes_of(2, ONE)), stage=stage)
    assert of_keys(read_lines("out.jsonl")) == {0: [0, 2, 4], 1: [1, 3, 5]}


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """Files of these names refuse the next group, once."""
    names: set[str] = set()
    real = OpenFile.write

    def write(file: OpenFile, data: bytes, at: int) -> None:
        if file.path.name in names:
            names.remove(file.path.name)
            raise StoreUnavailable(f"{file.path}: planted")
        real(file, data, at)

    monkeypatch.setattr(OpenFile, "write", write)
    yield names
    assert not names


def test_what_a_refused_group_held_comes_again_in_the_order_of_its_key(refusing: set[str]) -> None:
    """Each message once: nothing of the group was written."""
    write_lines("in.jsonl", orders(5, 60))
    refusing.add("out.jsonl")
    run(plan_of(lanes_of(3, ONE)), stage=same)
    assert of_keys(read_lines("out.jsonl")) == of_keys(orders(5, 60))


def test_a_look_at_progress_leaves_a_failure_to_the_lane_that_is_still_at_it(
    refusing: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The receiver looks how far a lane is between the refusal of its message and the lane's own look: the lane
    went on with the next message of the key, and then all of them came again."""
    looked, leave = threading.Event(), LaneQueue.leave
    look = ReceiverHost._look_at_slow_work  # pyright: ignore[reportPrivateUsage]

    def looks(host: ReceiverHost) -> None:
        look(host)
        looked.set()

    def leaves_after_a_look(queue: LaneQueue, work: Work) -> bool:
        if work.failure is not None:
            looked.clear()
            assert looked.wait(DONE_S)
        return leave(queue, work)

    monkeypatch.setattr(ReceiverHost, "_look_at_slow_work", looks)
    monkeypatch.setattr(LaneQueue, "leave", leaves_after_a_look)
    write_lines("in.jsonl", orders(1, 12))
    refusing.add("out.jsonl")
    run(plan_of(lanes_of(1, ONE)), stage=same)
    assert of_keys(read_lines("out.jsonl")) == of_keys(orders(1, 12))


def test_a_branch_that_is_sealed_is_passed_over_when_another_was_refused(
    refusing: set[str],
) -> None:
    """A message goes to two files, and one refuses: the other has it once."""
    write_lines("in.jsonl", orders(4, 20))
    refusing.add("right.jsonl")
    text = lanes_of(
        2,
        'stages:\n  last: {from: intake, flat-map: "test:stage"}\n'
        "sinks:\n  left: {from: last, kind: jsonl, path: left.jsonl}\n"
        "  right: {from: last, kind: jsonl, path: right.jsonl}\n",
    )
    counters = run(plan_of(text), stage=twice)
    for name in ("left.jsonl", "right.jsonl"):
        assert Counter(line["n"] for line in read_lines(name)) == dict.fromkeys(range(20), 2)
    assert counters["left"]["taken"] == counters["right"]["taken"] == 40


def test_what_can_not_be_written_is_a_letter_and_its_neighbours_are_not() -> None:
    """The stage gives a line that is no JSON, three times: it has failed, and its group has not."""
    write_lines("in.jsonl", orders(3, 30))

    def stage(order: Order) -> object:
        return object() if order["n"] == 7 else order

    text = ONE.replace(
        '"test:stage"', '"test:stage", retries: 3, retry_min_s: 0.001, dead_letter: main/dead'
    )
    counters = run(plan_of(lanes_of(2, text)), stage=stage)
    found = of_keys(read_lines("out.jsonl"))
    assert found == of_keys([one for one in orders(3, 30) if one["n"] != 7])
    assert counters["out"]["failed"] == 3


def test_a_run_that_stops_settles_what_is_sealed_and_the_next_one_has_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stop while many works wait for a disk that stands still: nothing is lost, and each key keeps its order."""
    gate = Gate(monkeypatch)
    write_lines("in.jsonl", orders(8, 80))
    plan = plan_of(lanes_of(2, ONE))
    bench = Bench(plan, stage=same)
    engine = PlanEngine(plan, "main", bench)
    engine.start()
    until(engine, gate.entered.is_set)
    stopping = threading.Thread(target=engine.close, args=(DONE_S,))
    stopping.start()
    gate.open.set()
    stopping.join(DONE_S)
    assert not stopping.is_alive()
    run(plan, stage=same)
    for key, numbers in of_keys(read_lines("out.jsonl")).items():
        firsts = list(dict.fromkeys(numbers))
        assert firsts == [n for n in range(80) if n % 8 == key]
    assert Path("out.jsonl").read_bytes().endswith(b"\n")
