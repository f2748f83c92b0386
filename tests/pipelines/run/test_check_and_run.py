"""What ``check`` lets pass starts: tables of small plans, each of which is refused, or started and ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from random import Random

import pytest

from surepipe.cli.output import Exit
from surepipe.errors import ConfigurationError, SurepipeError
from surepipe.pipelines import PipelineErrors, assess, loads
from surepipe.pipelines.run import PlanEngine
from surepipe.testing.servers import NONE_FOUND, RedisServer, local_servers
from tests.cli.kit import Command
from tests.pipelines.run.kit import Bench, write_lines

pytestmark = pytest.mark.usefixtures("folder")

LAYERS = (
    *("", "reliable", "resend", "multi-unconfirmed", "sequential-confirm", "stream", "dedupe"),
    *("strict-monotonic", "continuous-index"),
    "[continuous-index, {multi-unconfirmed: {window: 8}}]",
    "[strict-monotonic, resend]",
    "[continuous-index, stream]",
    "[stream, resend]",
)
ROUTES = (
    "{kind: local}",
    "{kind: tcp, address: '127.0.0.1:0'}",
    "{kind: memory, store: mem}",
    "{kind: sqlite, store: disk}",
    "{kind: redis, store: net}",
)
BOUNDARIES = ("handed", "before", "processed", "committed")
STORES = ("", "mem", "disk", "net")
LANES = ("", "lanes: 2, key: n", "lanes: 2", "key: n")
SINKS = (
    "{kind: jsonl, path: out.jsonl, FROM}",
    "{kind: csv, path: out.csv, FROM}",
    "{kind: parquet, path: rows, FROM}",
    "{kind: stdout, FROM}",
    '{kind: python, call: "test:book", FROM}',
    "{kind: http, url: 'http://127.0.0.1:1/', FROM}",
    "{kind: stream, store: disk, stream: booked, FROM}",
    "{kind: stream, store: net, stream: booked, FROM}",
)
STAGES = (
    "",
    'map: "test:book"',
    "batch: {max: 4}",
    'call: "test:book", retries: 2, dead_letter: disk/dead',
)
HEAD = """\
version: 1
name: shop-{number}
stores:
  mem: {{kind: memory}}
  disk: {{kind: sqlite, path: main.db, durability: process}}
  net: {{kind: redis, url: "{url}", durability: process}}
sources: {{lines: {{kind: jsonl, path: in.jsonl}}}}
"""


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    """A server. None at all is a failure, never a skip."""
    found = local_servers()
    if not found:
        pytest.fail(NONE_FOUND)
    with found[0].server() as server:
        yield server


def _pipe(name: str, feeder: str, options: Mapping[str, str]) -> str:
    said = [
        f"from: {feeder}",
        *(f"{key}: {value}" for key, value in options.items() if key and value),
    ]
    more = options.get("", "")
    return f"  {name}: {{{', '.join([*said, more] if more else said)}}}\n"


def _text(
    pipes: list[Mapping[str, str]], stage: str, sinks: Sequence[str], *, side: bool = False
) -> str:
    """Lines, then these pipes one behind the other, or side by side, then a stage where there is one, then the
    sinks."""
    text, feeder = "pipes:\n", "lines"
    for number, options in enumerate(pipes):
        text += _pipe(f"pipe{number}", feeder, options)
        feeder = "lines" if side else f"pipe{number}"
    if side:
        feeder = f"[{', '.join(f'pipe{number}' for number in range(len(pipes)))}]"
    if stage:
        text += f"stages: {{work: {{from: {feeder}, {stage}}}}}\n"
        feeder = "work"
    text += "sinks:\n"
    for number, sink in enumerate(sinks):
        text += f"  out{number}: {sink.replace('FROM', f'from: {feeder}')}\n"
    return text


def _options(
    layers: str, route: str, boundary: str, *, journal: str, state: str, lanes: str
) -> Mapping[str, str]:
    return {
        "layers": layers,
        "route": route,
        "boundary": boundary,
        "journal": journal,
        "state": state,
        "": lanes,
    }


def _every_layer_over_every_route() -> Iterator[str]:
    for layers, route, boundary in product(LAYERS, ROUTES, ("processed",)):
        options = _options(layers, route, boundary, journal="", state="disk", lanes="")
        yield _text([options], "", [SINKS[0]])


def _plans_by_chance(count: int) -> Iterator[str]:
    rng = Random(7)
    for _ in range(count):
        pipes = [_drawn(rng) for _ in range(rng.choice((1, 1, 2)))]
        sinks = rng.sample(SINKS, rng.choice((1, 1, 2)))
        yield _text(pipes, rng.choice(STAGES), sinks, side=rng.random() < 0.5)


def _drawn(rng: Random) -> Mapping[str, str]:
    """Options of a pipe. Most of what has nothing to do with each other would be refused, so some of it is not
    drawn."""
    route = rng.choice(ROUTES)
    layers = rng.choice(("", "stream") if "store" in route else LAYERS[:-2])
    boundary = rng.choice(BOUNDARIES)
    state = rng.choice(STORES if boundary != "committed" else ("disk", "net"))
    return _options(
        layers,
        route,
        boundary,
        journal=rng.choice(("", "", "disk", "net")),
        state=state,
        lanes=rng.choice(LANES),
    )


def _same(message: object) -> object:
    return message


def _is_started(text: str) -> bool:
    """False when it is refused by ``check``. Raises what a start raises."""
    try:
        plan = loads(text)
    except PipelineErrors:
        return False
    if not assess(plan).usable:
        return False
    engine = PlanEngine(plan, "main", Bench(plan, book=_same), once=True)
    engine.start()
    engine.close(0.0)
    return True


@pytest.mark.parametrize(
    ("texts", "least"),
    [(list(_every_layer_over_every_route()), 15), (list(_plans_by_chance(120)), 20)],
    ids=["every layer over every route", "by chance"],
)
def test_what_check_lets_pass_is_started(redis: RedisServer, texts: list[str], least: int) -> None:
    """All layers, routes, boundaries, stores, lanes and kinds of sinks; enough of them are not refused."""
    write_lines("in.jsonl", [])
    wrong: list[str] = []
    started = 0
    for number, text in enumerate(texts):
        head = HEAD.format(number=number, url=redis.url)
        try:
            started += _is_started(head + text)
        except SurepipeError as error:
            wrong.append(f"{text}{type(error).__name__}: {error}")
    assert not wrong, f"{len(wrong)} of {started + len(wrong)}, such as\n" + "\n".join(wrong[:3])
    assert started >= least


def test_other_layers_over_redis_are_refused_with_what_to_write() -> None:
    """A redis route carries messages of a stream and no frames, so ``check`` says so."""
    text = _text(
        [_options("reliable", ROUTES[-1], "processed", journal="", state="", lanes="")],
        "",
        [SINKS[3]],
    )
    with pytest.raises(PipelineErrors) as refused:
        loads(HEAD.format(number=0, url="redis://h") + text)
    assert "a route through a redis store needs a stream layer" in str(refused.value)
    assert "other layers go over tcp" in str(refused.value)


MIXED = """\
version: 1
name: shop
stores: {disk: {kind: sqlite, path: main.db}}
sources: {a: {kind: jsonl, path: a, key: x}, b: {kind: jsonl, path: b, key: y}}
pipes:
  first: {from: [a, b], lanes: 2}
  second: {from: a, state: disk, boundary: committed}
sinks: {out: {from: [first, second], kind: jsonl, path: out.jsonl}}
"""


def test_what_only_the_engine_would_refuse_is_refused_by_check_at_its_place(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A sink with two homes, and lanes with two keys; the engine says the same of an unchecked plan."""
    Path("shop.yaml").write_text(MIXED)
    answer = Command(capsys)("check", "shop.yaml")
    assert answer.code == Exit.UNUSABLE
    assert "shop.yaml:6:25: pipe first: what feeds it has different keys (x, y)" in answer.err
    assert "shop.yaml:8:15: sink out is fed by pipes that commit to different stores" in answer.err
    plan = loads(MIXED)
    with pytest.raises(ConfigurationError, match="different stores"):
        PlanEngine(plan, "main", Bench(plan))
