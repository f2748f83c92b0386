from __future__ import annotations

import json
import random
from typing import Any

import pytest

from surepipe.guarantees.problems import Finding
from surepipe.pipelines import Assessment, Plan, assess, loads
from tests.pipelines.remedies import File, followed

STEPS_MAX = 12
BLOCKS, SEEDS = 5, 10
LAYERS: tuple[Any, ...] = (
    "resend",
    {"resend": {"give_up_after_s": 5}},
    "multi-unconfirmed",
    {"multi-unconfirmed": {"window": 2_000}},
    {"multi-unconfirmed": {"give_up_after_s": 5}},
    {"multi-unconfirmed": {"receive_window_bytes": 65_536}},
    "sequential-confirm",
    {"sequential-confirm": {"retry": "carrier"}},
    "strict-monotonic",
    "continuous-index",
    "dedupe",
    {"dedupe": {"dedupe_window": 16}},
    "reliable",
)
STORES = {
    "main": {"kind": "sqlite", "path": "a.db"},
    "other": {"kind": "sqlite", "path": "b.db", "durability": "process"},
    "mem": {"kind": "memory"},
    "far": {"kind": "redis", "url": "redis://localhost"},
}
EXPECTED = (
    {"delivery": "exactly-once", "tolerates": ["process-crash", "bad-stage"]},
    {"delivery": "at-least-once", "tolerates": ["sender-crash", "receiver-crash"]},
    {"delivery": "exactly-once", "order": "absolute", "tolerates": ["network", "host-power-loss"]},
    {"order": "gap-free", "tolerates": ["network", "process-replaced"]},
)


def drawn(draw: random.Random) -> File:
    """A file that can be read, and hardly ever adds up."""
    pipes = {"first": _pipe(draw, "lines")}
    if draw.random() < 0.4:
        pipes["second"] = _pipe(draw, "work")
    last = list(pipes)[-1]
    sink: File = draw.choice(
        [{"kind": "stdout"}, {"kind": "jsonl", "path": "o"}, {"kind": "stream", "store": "main", "stream": "s"}]
    )  # fmt: skip
    work: File = {"from": "first", "call": "shop:work"}
    for part in (sink, work):
        if draw.random() < 0.3:
            part["retries"] = draw.randint(1, 5)
    ends = {"from": last if last == "second" else "work", **sink}
    file = {
        "version": 1,
        "name": "drawn",
        "stores": dict(STORES),
        "sources": {"lines": {"kind": "jsonl", "path": "i", "key": "customer"}},
        "pipes": pipes,
        "stages": {"work": work},
        "sinks": {"out": ends},
    }
    return file | ({"expect": draw.choice(EXPECTED)} if draw.random() < 0.7 else {})


def _pipe(draw: random.Random, feeder: str) -> File:
    part: File = {
        "from": feeder,
        "boundary": draw.choice(["processed", "committed", "before", "handed"]),
    }
    for role in ("journal", "state"):
        if draw.random() < 0.5:
            part[role] = draw.choice(list(STORES))
    if draw.random() < 0.2:
        part["lanes"] = 4
    route = draw.choice(["local", "local", "tcp", "stream"])
    if route == "tcp":
        part["route"] = {"kind": "tcp", "address": "localhost:7400"}
    if route == "stream":
        store = draw.choice(list(STORES))
        retention = {"max_bytes": 1_000, "force": True} if draw.random() < 0.3 else {}
        part["route"] = {"kind": STORES[store]["kind"], "store": store} | (
            {"retention": retention} if retention else {}
        )
        part.pop("journal", None)
    elif draw.random() < 0.8:
        part["layers"] = draw.sample(LAYERS, draw.randint(1, 3))
    return part


def plan_of(file: File) -> Plan:
    """As `check` reads it: JSON is YAML, too."""
    return loads(json.dumps(file))


def refused_in(found: Assessment) -> list[Finding]:
    """Why it can't start."""
    return list(dict.fromkeys(one for v in (*found.pipes, *found.ways) for one in v.refused))


def unmet_in(found: Assessment) -> list[Finding]:
    """What of the expectations does not hold."""
    return list(dict.fromkeys(one for v in (*found.pipes, *found.ways) for one in v.unmet))


def subjects(findings: list[Finding]) -> set[tuple[object, ...]]:
    """What findings are about, whatever numbers their layers have now."""
    return {(one.code, one.pipe, one.part, one.kind) for one in findings}


@pytest.mark.parametrize("block", range(BLOCKS))
def test_whoever_follows_the_remedies_comes_to_a_pipeline_that_is_held(block: int) -> None:
    """Plans that don't add up; one remedy after the other is done to the file, as it is written.

    No file comes up twice, each remedy ends its own finding, and none of them is refused in turn.
    """
    for seed in range(block * SEEDS, (block + 1) * SEEDS):
        _follow(seed)


def _follow(seed: int) -> None:
    draw = random.Random(seed)
    file = drawn(draw)
    seen: list[str] = []
    for _ in range(STEPS_MAX):
        written = json.dumps(file)
        assert written not in seen, f"seed {seed}: the remedies go round: {seen}"
        seen.append(written)
        plan = plan_of(file)
        found = assess(plan)
        refused = refused_in(found)
        open_ = refused or unmet_in(found)
        finding = next((one for one in open_ if one.remedies), None)
        if refused:
            assert all(one.remedies for one in refused), (
                f"seed {seed}: no remedy: {refused}\n{written}"
            )
        if finding is None:
            return
        file = _changed(file, plan, finding, draw.choice(finding.remedies))
        after = refused_in(assess(plan_of(file)))
        said = f"seed {seed}: {finding}\n{written}\n{json.dumps(file)}\n" + "\n".join(
            map(str, after)
        )
        assert finding not in after, said
        assert subjects(after) <= subjects(refused), said
    raise AssertionError(f"seed {seed}: {STEPS_MAX} remedies, and no end: {seen}")


def _changed(file: File, plan: Plan, finding: Finding, remedy: str) -> File:
    if finding.part is not None:
        return followed(file, "/".join(finding.part), remedy, [])
    name = finding.pipe if finding.pipe in file["pipes"] else list(file["pipes"])[-1]
    layers = file["pipes"][name].get("layers")
    stack: list[Any] = layers or [{one.kind: {}} for one in plan.pipe(name).stack]
    return followed(file, name, remedy, stack)
