"""Pipelines drawn from a seed, each in a folder as a user has it: correct ones, and those with a planted error.

    .venv/bin/python -m tests.pipelines.simulate.generated --plans 300 --seeds 12
    .venv/bin/python -m tests.pipelines.simulate.generated --planted --plans 10 --seeds 40
    .venv/bin/python -m tests.pipelines.simulate.generated --break --plans 100

A correct plan may not be called broken, whatever it consists of, and no planted error may go unseen.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

from surepipe.pipelines.assessing import assess
from surepipe.pipelines.loading import load
from surepipe.pipelines.problems import PipelineErrors
from surepipe.pipelines.simulate.campaign import repeat, used_in
from surepipe.pipelines.simulate.simulating import (
    Simulation,
    SimulationFailed,
    require_expected,
    simulation_of_plan,
)

STORES = """\
  main: {kind: sqlite, path: main.db, durability: power}
  other: {kind: redis, url: "redis://localhost", durability: power}
"""

# What a stage may be, with what stands for it in the file. Each takes a row and gives rows like it.
STEPS = {
    "priced": ("map", "def priced(row):\n    return {**row, 'total': int(row['n']) * 3}\n"),
    "some": ("filter", "def some(row):\n    return int(row['n']) % 3 != 1\n"),
    "slowly": (
        "call",
        (
            "two_at_once = asyncio.Semaphore(2)\n\n"
            "async def slowly(row):\n    async with two_at_once:\n        await asyncio.sleep(0.01)\n"
            "    return {**row, 'slow': True}\n"
        ),
    ),
    "halved": (
        "flat-map",
        "def halved(row):\n    yield {**row, 'half': 1}\n    yield {**row, 'half': 2}\n",
    ),
    "booked": (
        "call",
        (
            "BOOKS = Outside('books')\n\n"
            "def booked(row, context):\n    text = json.dumps(row)\n"
            "    BOOKS.do('book', text, key=f'{context.id.key}/{text}')\n    return row\n"
        ),
    ),
    "cached": (
        "call",
        (
            "class cached:\n    def __init__(self):\n        self.known = {}\n"
            "    def __call__(self, row):\n"
            "        return {**row, 'twice': self.known.setdefault(row['n'], int(row['n']) * 2)}\n"
        ),
    ),
    "hurried": (
        "call",
        "def hurried(row, context):\n    context.sleep(0.001)\n    return {**row, 'tried': context.attempt > 0}\n",
    ),
}
POSTED = (
    "call",
    (
        "POST = Outside('post')\n\n"
        "def posted(row, context):\n    for who in ('ada', 'bo'):\n"
        "        key = f'{context.id.key}/{who}/{json.dumps(row)}'\n"
        "        POST.do('send', [who, {'Key': key}], key=key)\n    return row\n"
    ),
)
"""Several effects of each message, which tell their keys."""
CHOOSY = (
    "call",
    (
        "def choosy(row):\n    if int(row['n']) % 12 == 5:\n        raise ValueError('no row')\n"
        "    return row\n"
    ),
)
"""It can't take one of its messages, in no run."""
IMPORTS = (
    "import asyncio\nimport json\nimport random\nimport uuid\n"
    "from surepipe.simulation import Outside\n\n\n"
)
OPEN = "def opened(rows):\n    return rows\n\n\n"
LAYERS = (
    "",
    "layers: [reliable]",
    "layers: [sequential-confirm]",
    "layers: [resend]",
    "layers: [multi-unconfirmed]",
    "layers: [continuous-index, multi-unconfirmed]",
    "layers: [strict-monotonic, multi-unconfirmed]",
    "layers: [dedupe, multi-unconfirmed]",
    "layers: [continuous-index, resend]",
)


@dataclass(frozen=True)
class Case:
    """A pipeline: the text of its file, the text of its functions, the rows of its sources."""

    seed: int
    document: str
    functions: str
    rows: dict[str, list[dict[str, object]]]
    planted: str = ""

    @property
    def module(self) -> str:
        """The name of the module of its functions."""
        return f"steps_{self.planted.replace('-', '_') or 'of'}_{self.seed}"

    def write(self, folder: Path) -> Path:
        """Put it into a folder, and say which file is the pipeline."""
        (folder / f"{self.module}.py").write_text(IMPORTS + self.functions)
        for name, rows in self.rows.items():
            lines = "".join(f"{json.dumps(row)}\n" for row in rows)
            (folder / f"{name}.jsonl").write_text(lines)
            if rows:
                cells = "".join(",".join(map(str, row.values())) + "\n" for row in rows)
                (folder / f"{name}.csv").write_text(",".join(rows[0]) + "\n" + cells)
        file = folder / "pipeline.yaml"
        file.write_text(self.document.replace("STEPS", self.module))
        return file


class _Draw:
    """What is drawn for one case."""

    def __init__(self, seed: int) -> None:
        self.random = Random(f"plan {seed}")
        self.functions: dict[str, str] = {}
        self.names: Counter[str] = Counter()
        self.pipes: list[str] = []
        self.stages: list[str] = []
        self.sinks: list[str] = []
        self.sources: list[str] = []
        self.rows: dict[str, list[dict[str, object]]] = {}
        # The first 300 are as they were before: tests name them, and seeds that once were wrong of them.
        self.sets_aside = seed >= 300_000 and Random(f"unreadable {seed}").random() < 0.5
        """Whether sources have dead letters for rows that can't be read."""
        self.gives_up_soon = seed >= 2_000_000
        """Whether stages stand in a row, some of them with few retries, and several give more than one row."""
        self.posts = seed >= 3_000_000
        """Whether stages do several things outside for one message."""
        self.refuses = seed >= 4_000_000
        """Whether stages can't take some row, in any run, and try it once or twice."""
        self.has_batch = False
        self.loses = False
        """Whether some row may not come out, or only among the dead letters."""

    def name(self, kind: str) -> str:
        self.names[kind] += 1
        return f"{kind}{self.names[kind]}"

    def source(self, count: int) -> str:
        name = self.name("source")
        start = 100 * len(self.sources)
        kind = self.random.choice(
            ["jsonl"] * 4 + ["csv", "python", "repeatable", "stdin", "stream"]
        )
        rows: list[dict[str, object]] = [
            {"n": start + number, "who": "abc"[number % 3]} for number in range(count)
        ]
        self.rows[name] = rows
        text = {
            "jsonl": f"kind: jsonl, path: {name}.jsonl",
            "csv": f"kind: csv, path: {name}.csv",
            "stdin": "kind: stdin",
            "stream": f"kind: stream, store: main, stream: of.{name}",
            "python": 'kind: python, call: "STEPS:rows"',
            "repeatable": 'kind: python, call: "STEPS:rows", repeatable: true',
        }[kind]
        if self.sets_aside and kind in ("jsonl", "csv", "stdin"):
            text += ", dead_letter: main/unread"
        self.loses |= kind in ("stdin", "python")  # what a crash takes with it nobody gives again
        if "STEPS" in text:
            self.functions["rows"] = "def rows():\n    return ()\n"
        self.sources.append(f"  {name}: {{{text}}}\n")
        return name

    def pipe(self, feeders: Sequence[str], *, place: str = "") -> str:
        draw, name = self.random, self.name("pipe")
        parts = [f"from: [{', '.join(feeders)}]"]
        route = draw.choice(["local", "local", "tcp", "sqlite", "sqlite", "redis"])
        if route == "tcp":
            parts += ['route: {kind: tcp, address: "127.0.0.1:7400"}', "node: away"]
        elif route in ("sqlite", "redis"):
            store = "main" if route == "sqlite" else "other"
            parts.append(f"route: {{kind: {route}, store: {store}}}")
            parts += draw.choice([[], ["node: away"]])
        if route in ("local", "tcp"):
            parts.append(draw.choice(LAYERS))
        parts += draw.choice([[], ["journal: main"], ["journal: main"]])
        boundary = draw.choice(
            ["processed", "processed", "committed", "committed", "before", "handed"]
        )
        parts.append(f"boundary: {boundary}")
        if boundary == "committed" or draw.random() < 0.3:
            parts.append(f"state: {'other' if route == 'redis' else 'main'}")
        if draw.random() < 0.2:
            parts += ["key: who", "lanes: 2"]
        parts += [place] if place else []
        self.pipes.append(f"  {name}: {{{', '.join(filter(None, parts))}}}\n")
        return name

    def stage(self, feeder: str, chosen: str = "") -> str:
        draw = self.random
        steps = [*STEPS, "batch", *(["halved"] * 3 if self.gives_up_soon else [])]
        steps += ["posted"] * 5 if self.posts else []
        steps += ["choosy"] * 8 if self.refuses else []
        step = chosen or draw.choice(steps)
        if self.has_batch and step in ("booked", "posted"):  # their keys would tell of the batch
            step = "cached"
        name = self.name(step)
        retries = (1, 1, 2, 3) if self.gives_up_soon else (5,)
        failing = draw.choice(
            ["", "", *(f", retries: {most}, dead_letter: main/dead" for most in retries)]
        )
        if step == "choosy":
            failing = f", retries: {draw.choice([1, 1, 2])}, dead_letter: main/dead"
        if step == "batch":
            self.has_batch = True
            self.functions["opened"] = OPEN
            self.stages.append(f"  {name}: {{from: {feeder}, batch: {{max: 3}}}}\n")
            self.stages.append(f'  open{name}: {{from: {name}, flat-map: "STEPS:opened"}}\n')
            return f"open{name}"
        self.loses |= step == "some" or bool(failing)
        kind, self.functions[step] = {**STEPS, "posted": POSTED, "choosy": CHOOSY}[step]
        self.stages.append(f'  {name}: {{from: {feeder}, {kind}: "STEPS:{step}"{failing}}}\n')
        return name

    def sink(self, feeders: Sequence[str]) -> str:
        name = self.name("sink")
        kind = self.random.choice(["jsonl", "jsonl", "python", "idempotent", "stream", "http"])
        text = {
            "jsonl": f"kind: jsonl, path: out/{name}.jsonl",
            "stream": f"kind: stream, store: main, stream: to.{name}",
            "http": 'kind: http, url: "http://127.0.0.1:9/in", idempotent: true',
            "python": 'kind: python, call: "STEPS:kept"',
            "idempotent": 'kind: python, call: "STEPS:kept", idempotent: true',
        }[kind]
        if "STEPS" in text:
            self.functions["kept"] = "def kept(row):\n    return None\n"
        self.sinks.append(f"  {name}: {{from: [{', '.join(feeders)}], {text}}}\n")
        return name

    def case(self, seed: int, messages: int) -> Case:
        samples = ", ".join(f"{name}: {json.dumps(rows)}" for name, rows in self.rows.items())
        check = ', check: "STEPS:balanced"' if "balanced" in self.functions else ""
        text = (
            f"version: 1\nname: plan{seed}\nstores:\n{STORES}sources:\n{''.join(self.sources)}"
            f"pipes:\n{''.join(self.pipes)}"
            + (f"stages:\n{''.join(self.stages)}" if self.stages else "")
            + f"sinks:\n{''.join(self.sinks)}"
            + f"simulate: {{messages: {messages}, sample: {{{samples}}}{check}}}\n"
        )
        return Case(seed, text, "\n\n".join(self.functions.values()), self.rows)


def _drawn(seed: int) -> Case:
    draw = _Draw(seed)
    random = draw.random
    messages = random.choice([3, 6, 6, 12, 24])
    feeders = [draw.source(messages) for _ in range(random.choice([1, 1, 1, 2]))]
    ends: list[str] = []
    shape = random.choice(["line", "line", "line", "two pipes", "fan out", "fan in", "aside"])
    if len(feeders) == 2 and shape != "fan in" and random.random() < 0.5:
        first, second = draw.pipe(feeders[:1]), draw.pipe(feeders[1:])
        ends = [first, second]
    else:
        ends = [draw.pipe(feeders)]
    if shape == "fan out":
        ends = [draw.stage(ends[0]), draw.stage(ends[0]), *ends[1:]]
    elif shape == "two pipes":
        ends = [draw.pipe([draw.stage(ends[0]) if random.random() < 0.5 else ends[0]]), *ends[1:]]
    elif shape == "aside":
        draw.sink([ends[0]])
    for _ in range(random.choice([1, 2, 3] if draw.gives_up_soon else [0, 1, 1, 2])):
        ends = [draw.stage(ends[0]), *ends[1:]]
    if random.random() < 0.5:
        draw.sink(ends)
    else:
        for end in ends:
            draw.sink([end])
    keeps_all = shape == "line" and len(feeders) == 1 and len(draw.sinks) == 1
    if keeps_all and not draw.loses and random.random() < 0.5:
        # It speaks of all messages: what it says of fewer is about their number.
        draw.functions["balanced"] = (
            "def balanced(run):\n    found = {int(row['n']) for row in run.delivered['sink1']}\n"
            f"    return found == set(range({messages}))\n"
        )
    return draw.case(seed, messages)


def case_of(seed: int) -> Case:
    """The correct pipeline of a seed: one that ``surepipe check`` has nothing against."""
    for number in range(1000):
        case = _drawn(1000 * seed + number)
        with suppress(PipelineErrors), _simulation(case, "none") as simulation:
            promised = simulation.subject.promise.claim
            is_fair = "balanced" not in case.functions or "no-loss" in promised
            if assess(simulation.subject.plan).usable and is_fair:
                return case
    raise AssertionError(f"seed {seed} draws no plan that can be used")


@contextmanager
def _simulation(case: Case, faults: str) -> Generator[Simulation]:
    """The simulation of a case, in a folder that is gone when the block ends."""
    path = list(sys.path)
    with tempfile.TemporaryDirectory() as folder:
        file = case.write(Path(folder))
        try:
            importlib.invalidate_caches()
            yield simulation_of_plan(load(file), faults=faults)
        finally:
            sys.path[:] = path
            sys.modules.pop(case.module, None)


MODES = ("none", "claim")
SETTING_ASIDE = (*MODES, "bad-stage")
"""Of plans whose stages give messages up: in so few runs of all faults that hardly happens."""


def alarms(case: Case, seeds: range) -> Iterator[str]:
    """What a simulation says against a correct pipeline, under each choice of faults."""
    for mode in SETTING_ASIDE if "retries" in case.document else MODES:
        with _simulation(case, mode) as simulation:
            found = simulation.campaign(seeds)
            for failure in found.failures.values():
                yield f"{mode}, seed {failure.seed}: {failure.violation}"
            yield from (f"{mode}: {text}" for text in (*found.unreached, *found.retold))
            yield from (f"{mode}: {text}" for text in simulation.notes() if _is_alarm(text))
            try:
                simulation.check_twice(seeds[:2], found.digests)
            except SimulationFailed as error:
                yield f"{mode}: {error}"


def _is_alarm(note: str) -> bool:
    """A batch has other company in each run, and lanes may meet again, and this is said; the rest would be wrong
    of a correct plan."""
    return "not compared" not in note and "judged pipe by pipe alone" not in note


# The same with one error in it.

ERRORS: dict[str, tuple[str, str]] = {
    "drop": (
        "call",
        "def wrong(row, context):\n    return row if context.attempt == 1 else None\n",
    ),
    "repeat": (
        "flat-map",
        "def wrong(row, context):\n    return [row] * min(context.attempt, 2)\n",
    ),
    "reorder": (
        "flat-map",
        (
            "class wrong:\n    def __init__(self):\n        self.held = []\n"
            "    def __call__(self, row):\n        self.held.append(row)\n"
            "        if len(self.held) < 2:\n            return []\n"
            "        pair, self.held = self.held[::-1], []\n        return pair\n"
        ),
    ),
    "swallow": (
        "call",
        (
            "def wrong(row):\n    try:\n        return {**row, 'n': int(row['n'])}\n"
            "    except Exception:\n        return None\n"
        ),
    ),
    "wrong-key": (
        "call",
        (
            "def wrong(row, context):\n"
            "    BOOKS.do('book', json.dumps(row), key=f'{context.id.key}#{context.attempt}')\n    return row\n"
        ),
    ),
    "key-in-value": (
        "call",
        (
            "def wrong(row):\n    key = str(uuid.uuid4())\n"
            "    BOOKS.do('book', [json.dumps(row), {'Key': key}], key=key)\n    return row\n"
        ),
    ),
    "two-of-a-key": (
        "call",
        (
            "def wrong(row, context):\n    for side in ('debit', 'credit'):\n"
            "        BOOKS.do('book', [side, json.dumps(row)], key=context.id.key)\n    return row\n"
        ),
    ),
    "one-key": (
        "call",
        "def wrong(row, context):\n    BOOKS.do('book', json.dumps(row), key=row['who'])\n    return row\n",
    ),
    "running-total": (
        "call",
        (
            "TOTAL = 0\n\n\ndef wrong(row):\n    global TOTAL\n    TOTAL += int(row['n'])\n"
            "    return {**row, 'total': TOTAL}\n"
        ),
    ),
    "dedupe-in-memory": (
        "call",
        (
            "SEEN = set()\n\n\ndef wrong(row):\n    if row['n'] in SEEN:\n        return None\n"
            "    SEEN.add(row['n'])\n    return row\n"
        ),
    ),
    "raise": (
        "map",
        "def wrong(row):\n    return {**row, 'left': 1 / (int(row['n']) - 1)}\n",
    ),
    "chance": (
        "map",
        "CHANCE = random.Random()\n\n\ndef wrong(row):\n    return {**row, 'by': CHANCE.random()}\n",
    ),
    "early": (
        "call",
        (
            "HELD = []\n\n\ndef wrong(row):\n    HELD.append(json.dumps(row))\n    if len(HELD) == 3:\n"
            "        while HELD:\n            BOOKS.do('book', HELD[0], key=HELD[0])\n            del HELD[0]\n"
            "    return row\n"
        ),
    ),
    "attempt": (
        "call",
        "def wrong(row, context):\n    return {**row, 'attempt': context.attempt}\n",
    ),
    "total-across-keys": (
        "call",
        (
            "def wrong(row):\n    BOOKS.do('book', int(row['n']), key=row['n'])\n"
            "    return {**row, 'of all': sum(BOOKS.count('book'))}\n"
        ),
    ),
    "done-at-first": (
        "call",
        (
            "def wrong(row, context):\n    if context.attempt == 1:\n"
            "        BOOKS.do('book', json.dumps(row), key=context.id.key)\n    return row\n"
        ),
    ),
    "boundary": ("", ""),
}
BLAMED = {"attempt": "A stage's defect: wrong "}
"""What has to be said of who is to blame, wherever the stage stands."""
BEHIND = {"attempt": ("halved",), "done-at-first": ("choosy",)}
"""What stands before it."""
SETS_ASIDE = {"choosy": ", retries: 5, dead_letter: main/dead"}
PLANTED = """\
version: 1
name: planted
stores:
{stores}sources:
  source1: {{kind: jsonl, path: source1.jsonl}}
pipes:
  pipe1: {{from: source1, {route}journal: main, state: main, boundary: {boundary}{expect}{lanes}}}
stages:
{stages}sinks:
  sink1: {{from: {last}, kind: jsonl, path: out.jsonl}}
simulate: {{messages: {messages}}}
"""


def planted(error: str, seed: int) -> Case:
    """A pipeline that is correct but for this error, among stages that are drawn."""
    random = Random(f"{error} {seed}")
    rows: list[dict[str, object]] = [{"n": n, "who": "abc"[n % 3]} for n in range(12)]
    stages: list[str] = []
    functions: dict[str, str] = {}
    last = "pipe1"
    drawn = random.sample(["priced", "slowly", "hurried"], random.choice([0, 1, 2]))
    steps = [(step, *STEPS[step]) for step in drawn]
    if error != "boundary":
        steps.insert(random.randint(0, len(steps)), ("wrong", *ERRORS[error]))
        known: dict[str, tuple[str, str]] = {**STEPS, "choosy": CHOOSY}
        steps[:0] = [(step, *known[step]) for step in BEHIND.get(error, ())]
        functions["books"] = "BOOKS = Outside('books')\n"
    for name, kind, text in steps:
        functions[name] = text
        failing = SETS_ASIDE.get(name, "")
        stages.append(f'  {name}: {{from: {last}, {kind}: "STEPS:{name}"{failing}}}\n')
        last = name
    if not steps:
        stages.append("  same: {from: pipe1, key-by: who}\n")
        last = "same"
    is_wrong_boundary = error == "boundary"
    boundary = random.choice(
        ["before", "handed"] if is_wrong_boundary else ["processed", "committed"]
    )
    has_lanes = error == "total-across-keys"
    boundary = "processed" if has_lanes else boundary
    expect = ", expect: {delivery: at-least-once, tolerates: [receiver-crash]}"
    text = PLANTED.format(
        stores=STORES,
        route=random.choice(["", "route: {kind: sqlite, store: main}, "]),
        boundary=boundary,
        expect=expect if is_wrong_boundary else "",
        lanes=", key: who, lanes: 2" if has_lanes else "",
        stages="".join(stages),
        last=last,
        messages=len(rows),
    )
    return Case(seed, text, "\n\n".join(functions.values()), {"source1": rows}, error)


def seen(case: Case, seeds: range) -> str:
    """What the first run that breaks shows of an error; else what is not judged, or noted."""
    with _simulation(case, "claim") as simulation:
        try:
            require_expected(simulation.subject.plan)
            found = simulation.campaign(seeds, stop_at_first=True)
        except SimulationFailed as error:
            return str(error)
        if found.first is not None and case.planted in BLAMED:
            return _blaming(simulation, seeds, BLAMED[case.planted])
        if found.first is not None:
            return str(found.first.violation)
        said = "\n".join(
            (*found.unreached, *found.retold, *dict(simulation.unjudged()), *simulation.notes())
        )
    with _simulation(case, "claim") as simulation:  # imported anew, as in another process
        again = simulation.campaign(seeds[:2]).digests
    differ = any(found.digests[seed] != digest for seed, digest in again.items())
    return f"{said}\nnot deterministic" if differ else said


def _blaming(simulation: Simulation, seeds: range, blame: str) -> str:
    """All that is said of what breaks; nothing, where that does not name who is to blame."""
    try:
        simulation.run(seeds)
    except SimulationFailed as error:
        return str(error) if blame in str(error) else ""
    return ""


def broken_alarms(case: Case, seeds: range) -> Iterator[str]:
    """What breaking a correct pipeline shows beside what its faults explain: runs that differ, or need none."""
    with _simulation(case, "break") as simulation:
        found = simulation.campaign(seeds)
        for failure in found.failures.values():
            again = simulation.subject
            result = repeat(again, failure.script)
            if result.stale is not None or result.violates(failure.violation.property) is None:
                yield f"break, seed {failure.seed}: its script does not repeat {failure.violation}"
            if not used_in(again, failure.script.decisions) and not failure.script.options.get(
                "flood"
            ):
                yield f"break, seed {failure.seed}, without a fault: {failure.violation}"


def main() -> None:
    """Run what the command line asks for, and count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plans", type=int, default=300, help="of each planted error: so many")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--planted", action="store_true")
    parser.add_argument("--break", action="store_true", dest="breaks")
    asked = parser.parse_args()
    started, bad, seeds = time.monotonic(), 0, range(asked.seeds)
    plans = range(asked.first, asked.first + asked.plans)
    cases = [(f"{error} {seed}", planted(error, seed)) for error in ERRORS for seed in plans]
    for name, case in cases if asked.planted else ((f"plan {n}", case_of(n)) for n in plans):
        if asked.planted:
            found = [] if seen(case, seeds) else ["nothing is said of it"]
        else:
            found = list((broken_alarms if asked.breaks else alarms)(case, seeds))
        bad += bool(found)
        for text in found:
            sys.stdout.write(f"{name}: {text}\n")
            sys.stdout.flush()
    took, count = time.monotonic() - started, len(cases) if asked.planted else asked.plans
    what = "misses" if asked.planted else "false alarms"
    sys.stdout.write(f"{count} plans, {asked.seeds} seeds each, {bad} {what}, {took:.0f} s\n")


if __name__ == "__main__":
    main()
