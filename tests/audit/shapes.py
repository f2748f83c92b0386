"""Plans of many shapes, runs of them that may be killed, and traces with one error planted into each."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from surepipe.audit.bulk import AuditEngine, BulkAudit, DuckEngine, Question, judge, place_of
from surepipe.audit.trace import Kind, Row
from surepipe.audit.trace_audit import Audit, Judged, Standing, audit
from surepipe.audit.trace_file import TraceFile, TraceRecorder, write_trace
from surepipe.core.claims import Atom
from surepipe.errors import StoreUnavailable
from surepipe.pipelines import Plan, loads
from surepipe.pipelines.accounting import ChannelNumbers, account
from surepipe.pipelines.run import PlanEngine, RealEnvironment
from surepipe.testing.servers import free_port

ROOT = Path(__file__).parents[2]
MESSAGES = 60
KILLED = 9
DONE_S = 240.0
PATIENCE_S = 3.0
STOP = "stop"
KEY = "KEY_OF_SHAPES"
_calls = 0


# The functions of the plans.


def given() -> Iterator[dict[str, int]]:
    """The messages of a source that is a function."""
    return ({"n": n, "k": n % 3} for n in range(MESSAGES))


def some(message: dict[str, int]) -> bool:
    """All but every seventh."""
    return message["n"] % 7 != 3


def twice(message: dict[str, int]) -> list[dict[str, int]]:
    """Two of each fifth, none of each eleventh."""
    if message["n"] % 11 == 4:
        return []
    return [message, {**message, "n": message["n"] + 1000}] if message["n"] % 5 == 1 else [message]


def fussy(message: dict[str, int]) -> dict[str, int]:
    """Refuses one."""
    if message["n"] == 17:
        raise ValueError("not this one")
    return message


def dying(message: dict[str, int]) -> dict[str, int]:
    """Ends the process, or has it stand still, at the call that the environment names."""
    global _calls  # noqa: PLW0603 - of a process that is about to end
    _calls += 1
    if _calls == int(os.environ.get("DIE_AT", "0")):
        os._exit(KILLED)
    if _calls == int(os.environ.get("STAND_STILL_AT", "0")):
        os.kill(os.getpid(), signal.SIGSTOP)
    return message


@dataclass(frozen=True)
class Shape:
    """A plan, at which call each of its first lives ends, and at which one stands still until it was replaced."""

    text: str
    kills: tuple[int, ...]
    stands_still: int = 0
    wakes_after: int = 0
    """How many lines the successor has written then."""

    @property
    def plan(self) -> Plan:
        """As it is read."""
        return loads(self.text)


def drawn(seed: int) -> Shape:
    """One to three pipes, with lanes or not, stages, fan-in, fan-out, dead letters, kills."""
    rng = random.Random(seed)
    here = __name__
    sources = rng.choice((1, 1, 2))
    text = "version: 1\nname: shop\nstores: {main: {kind: sqlite, path: main.db, durability: process}}\nsources:\n"
    text += "".join(
        f"  s{at}: {{kind: jsonl, path: in{at}.jsonl, key: k}}\n" for at in range(sources)
    )
    feed = "[" + ", ".join(f"s{at}" for at in range(sources)) + "]"
    stages, pipes = "", ""
    count = rng.randint(1, 3)
    for at in range(count):
        kind = rng.choice((None, None, "filter", "flat-map"))
        if kind is not None:
            does = "some" if kind == "filter" else "twice"
            stages += f'  stage{at}: {{from: {feed}, {kind}: "{here}:{does}"}}\n'
            feed = f"stage{at}"
        boundary = rng.choice(("committed", "committed", "processed", "processed", "before"))
        carried = rng.choice(("journal: main", "route: {kind: sqlite, store: main}"))
        lanes = ", lanes: 3, key: k" if boundary == "processed" and rng.random() < 0.4 else ""
        pipes += f"  p{at}: {{from: {feed}, {carried}, state: main, boundary: {boundary}{lanes}}}\n"
        feed = f"p{at}"
    does = rng.choice(("fussy", "dying", "dying"))
    letters = ", retries: 1, dead_letter: main/dead" if does == "fussy" else ""
    stages += f'  last: {{from: {feed}, map: "{here}:{does}"{letters}}}\n'
    sinks = "".join(
        f"  out{at}: {{from: last, kind: jsonl, path: out{at}.jsonl}}\n"
        for at in range(rng.choice((1, 1, 2)))
    )
    text += f"pipes:\n{pipes}stages:\n{stages}sinks:\n{sinks}"
    kills = (
        tuple(rng.randint(3, 50) for _ in range(rng.choice((0, 1, 2)))) if does == "dying" else ()
    )
    return Shape(text, kills)


def drawn_apart(seed: int) -> Shape:
    """Two nodes that are joined over TCP. The one that receives has the stages, and may be killed."""
    rng = random.Random(f"apart {seed}")
    here = __name__
    boundary = rng.choice(("committed", "processed"))
    lanes = ", lanes: 3, key: k" if boundary == "processed" and rng.random() < 0.3 else ""
    pipes = (
        "  road: {from: s0, node: away, journal: main, state: far, "
        f"boundary: {boundary}{lanes}, "
        f'route: {{kind: tcp, address: "127.0.0.1:{free_port()}", secret: "${{{KEY}}}"}}}}\n'
    )
    feed, stages = "road", ""
    if rng.random() < 0.5:
        does = rng.choice(("some", "twice"))
        stages += f'  stage: {{from: {feed}, {"filter" if does == "some" else "flat-map"}: "{here}:{does}"}}\n'
        feed = "stage"
    if rng.random() < 0.5:
        boundary = rng.choice(("committed", "processed"))
        carried = rng.choice(("journal: far", "route: {kind: sqlite, store: far}"))
        pipes += (
            f"  onward: {{from: {feed}, node: away, {carried}, state: far, boundary: {boundary}}}\n"
        )
        feed = "onward"
    text = (
        "version: 1\nname: shop\nstores:\n  main: {kind: sqlite, path: main.db, durability: process}\n"
        "  far: {kind: sqlite, path: far.db, durability: process}\n"
        f"sources: {{s0: {{kind: jsonl, path: in0.jsonl, key: k, node: shop}}}}\npipes:\n{pipes}"
        f'stages:\n{stages}  last: {{from: {feed}, map: "{here}:dying"}}\n'
        "sinks: {out0: {from: last, kind: jsonl, path: out0.jsonl}}\n"
    )
    return Shape(text, tuple(rng.randint(3, 50) for _ in range(rng.choice((0, 1, 2)))))


def drawn_replaced(seed: int) -> Shape:
    """One process that stands still and wakes up when another has taken its place."""
    rng = random.Random(f"replaced {seed}")
    shape = next(
        one for number in range(1000) if "dying" in (one := drawn(1000 * seed + number)).text
    )
    return replace(
        shape, kills=(), stands_still=rng.randint(2, 40), wakes_after=rng.choice((1, 10, 20, 1000))
    )


def ran(shape: Shape, folder: Path) -> Path:
    """The trace of all lives; everything else is in the folder, which must be the current one."""
    for at in range(2):
        lines = [{"n": n, "k": n % 3} for n in range(100 * at, 100 * at + MESSAGES)]
        (folder / f"in{at}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "plan.yaml").write_text(shape.text)
    plan = shape.plan
    if len(plan.nodes) > 1:
        _run_apart(shape, folder)
        return folder / "trace.jsonl"
    for kill in shape.kills:
        one = _another(folder, DIE_AT=kill)
        _, said = one.communicate(timeout=120)
        assert one.returncode in (0, KILLED), said.decode()
    if shape.stands_still:
        _run_replaced(shape, folder)
    else:
        live()
    return folder / "trace.jsonl"


def _another(folder: Path, node: str = "main", **environment: int) -> subprocess.Popen[bytes]:
    """A life in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", f"from {__name__} import live; live({node!r})"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **{k: str(v) for k, v in environment.items()}},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def _run_apart(shape: Shape, folder: Path) -> None:
    """The first node runs here, the other in processes of its own, each after the one before was killed."""
    os.environ[KEY] = "k" * 32
    kills = [*shape.kills, 0]
    away = _another(folder, "away", DIE_AT=kills.pop(0))

    def look() -> None:
        nonlocal away
        if away.poll() is not None:
            _, said = away.communicate()
            assert away.returncode == KILLED, said.decode()
            away = _another(folder, "away", DIE_AT=kills.pop(0))

    try:
        live("shop", look)
        (folder / STOP).touch()
        while away.wait(DONE_S) == KILLED:
            look()
        assert away.returncode == 0, away.communicate()[1].decode()
    finally:
        away.kill()
        away.communicate()


def _run_replaced(shape: Shape, folder: Path) -> None:
    """One stands still, its successor runs here, and it wakes up: when so much was done, or where the successor
    waits for it, because it stands in the middle of a transaction."""
    old = _another(folder, STAND_STILL_AT=shape.stands_still)
    _, status = os.waitpid(old.pid, os.WUNTRACED)
    if not os.WIFSTOPPED(status):  # so many calls there were not
        old.returncode = os.waitstatus_to_exitcode(status)
        assert old.returncode == 0, old.communicate()[1].decode()
        live()
        return
    began, lines = time.monotonic(), _lines_of(folder)

    def look() -> None:
        is_due = _lines_of(folder) - lines >= shape.wakes_after
        if is_due or time.monotonic() > began + PATIENCE_S:
            os.kill(old.pid, signal.SIGCONT)

    try:
        try:
            live("main", look)
        except StoreUnavailable:  # the one that stands still has the file, as long as it does
            os.kill(old.pid, signal.SIGCONT)
            live()
        os.kill(old.pid, signal.SIGCONT)
        _, said = old.communicate(timeout=DONE_S)
        is_told = b"PipeStopped" in said or b"Fenced" in said
        assert old.returncode == 0 or is_told, said.decode()
    finally:
        old.kill()
        old.communicate()


def _lines_of(folder: Path) -> int:
    out = folder / "out0.jsonl"
    return out.read_bytes().count(b"\n") if out.exists() else 0


def live(node: str = "main", watch: Callable[[], None] = lambda: None) -> None:
    """One life: run a node of the plan of the current folder to its end. One to which others send ends when it is
    told to and has nothing more in work."""
    plan = loads(Path("plan.yaml").read_text())
    with TraceRecorder("trace.jsonl") as trace:
        environment = RealEnvironment(plan, trace=trace)
        engine = PlanEngine(plan, node, environment, once=True, until_idle=node == "away")
        engine.start()
        try:
            end = environment.clock.monotonic() + DONE_S
            while not (engine.look() and (node != "away" or Path(STOP).exists())):
                assert environment.clock.monotonic() < end, engine.counters()
                watch()
                engine.wait(0.01)
        finally:
            engine.close(10.0)


# Judging.


def by_rows(rows: Sequence[Row], plan: Plan, path: Path) -> tuple[Audit, list[Judged]]:
    """By the audit that reads each row."""
    found = audit(rows)
    numbers = [
        ChannelNumbers(one.pipe, one.sent, one.settled, one.dead + one.parked, one.is_whole)
        for one in found.pipes
    ]
    del path
    return found, [
        *found.judged(),
        *account(plan, numbers, rows, is_torn=bool(found.broken)).judged,
    ]


def figures_in_bulk(
    rows: Sequence[Row],
    path: Path,
    expect: frozenset[Atom] | None = None,
    engine: AuditEngine | None = None,
) -> BulkAudit:
    """By SQL, without a look at the plan."""
    write_trace(rows, path)
    local = DuckEngine(threads=1)
    question = Question(place_of(str(path)), place_of(str(path)), expect=expect)
    found = judge(engine or local, question)
    local.close()
    return found


def in_bulk(
    rows: Sequence[Row],
    plan: Plan,
    path: Path,
    expect: frozenset[Atom] | None = None,
    engine: AuditEngine | None = None,
) -> tuple[BulkAudit, list[Judged]]:
    """By SQL."""
    found = figures_in_bulk(rows, path, expect, engine)
    numbers = [
        ChannelNumbers(
            one.channel, one.sent, one.settled, one.dead + one.parked, not one.is_unreadable
        )
        for one in found.channels
    ]
    torn = bool(found.broken)
    ways = account(plan, numbers, found.facts, expect, is_torn=torn).judged
    return found, [*found.judged(), *ways]


def standings(judged: Sequence[Judged]) -> dict[tuple[str, str], Standing]:
    """What is said of each promise that both judges know."""
    alone = ("identity",)
    return {(one.part, one.promise): one.standing for one in judged if one.promise not in alone}


def rows_of(trace: Path) -> list[Row]:
    """All rows of a trace."""
    return list(TraceFile(trace))


# Planting.

Planter = Callable[[list[Row], random.Random], list[Row] | None]


def _singles(rows: Sequence[Row], kind: str) -> list[int]:
    """Places of rows of a kind of which one message can be cut out."""
    return [at for at, row in enumerate(rows) if row.kind == kind and row.count and not row.layer]


def _cut(row: Row, seq: int) -> list[Row]:
    """A row as three: before this message, it, behind it; without the empty ones."""
    parts = [(row.seq, seq - 1), (seq, seq), (seq + 1, row.last)]
    return [replace(row, seq=low, count=high - low + 1) for low, high in parts if low <= high]


def _without(rows: list[Row], kinds: frozenset[str], pipe: str, epoch: int, seq: int) -> list[Row]:
    found: list[Row] = []
    for row in rows:
        is_it = row.kind in kinds and (row.pipe, row.epoch) == (pipe, epoch)
        if is_it and row.count and row.seq <= seq <= row.last:
            found += [part for part in _cut(row, seq) if part.seq != seq or part.count != 1]
        else:
            found.append(row)
    return found


def _chosen(rows: list[Row], rng: random.Random, kind: str) -> tuple[int, Row, int] | None:
    places = _singles(rows, kind)
    if not places:
        return None
    at = rng.choice(places)
    return at, rows[at], rng.randint(rows[at].seq, rows[at].last)


def settled_removed(rows: list[Row], rng: random.Random) -> list[Row] | None:
    """All that tells that one message was settled. (Of a life that no other followed: of one before, the next may
    say that it was stored, and where no order is judged that is as good as the row.)"""
    last = {row.node: at for at, row in enumerate(rows) if row.kind == Kind.START}
    places = [at for at in _singles(rows, Kind.SETTLED) if at > last.get(rows[at].node, -1)]
    if not places:
        return None
    row = rows[rng.choice(places)]
    seq = rng.randint(row.seq, row.last)
    return _without(rows, frozenset((Kind.SETTLED,)), row.pipe, row.epoch, seq)


def settled_doubled(rows: list[Row], rng: random.Random) -> list[Row] | None:
    """One message is settled twice."""
    found = _chosen(rows, rng, Kind.SETTLED)
    if found is None:
        return None
    at, row, seq = found
    return [*rows[: at + 1], replace(row, seq=seq, count=1), *rows[at + 1 :]]


def settled_swapped(rows: list[Row], rng: random.Random) -> list[Row] | None:
    """Two neighbours change places."""
    places = [at for at in _singles(rows, Kind.SETTLED) if rows[at].count > 1]
    if not places:
        return None
    at = rng.choice(places)
    seq = rng.randint(rows[at].seq, rows[at].last - 1)
    row = rows[at]
    pieces = [(row.seq, seq - 1), (seq + 1, seq + 1), (seq, seq), (seq + 2, row.last)]
    cut = [replace(row, seq=low, count=high - low + 1) for low, high in pieces if low <= high]
    return [*rows[:at], *cut, *rows[at + 1 :]]


def seq_removed(rows: list[Row], rng: random.Random) -> list[Row] | None:
    """All rows of one message, of all kinds."""
    found = _chosen(rows, rng, Kind.ACCEPTED)
    if found is None:
        return None
    _, row, seq = found
    return _without(rows, frozenset(Kind), row.pipe, row.epoch, seq)


def hole_made(rows: list[Row], pipe: str) -> list[Row]:
    """No row of one message of this pipe, though rows speak of the one behind it. (Of the last message of a life
    that is gone without a row, only the next part of the plan can tell.)"""
    last, epoch = max(
        (row.last, row.epoch) for row in rows if row.pipe == pipe and row.kind == Kind.ACCEPTED
    )
    assert last > 1, "every life has told of one message at most"
    return _without(rows, frozenset(Kind), pipe, epoch, last - 1)


def accepted_removed(rows: list[Row], rng: random.Random) -> list[Row] | None:
    """All that tells that one message was accepted."""
    found = _chosen(rows, rng, Kind.ACCEPTED)
    if found is None:
        return None
    _, row, seq = found
    return _without(rows, frozenset((Kind.ACCEPTED, Kind.UNKNOWN)), row.pipe, row.epoch, seq)


def delivered_removed(rows: list[Row], rng: random.Random) -> list[Row] | None:
    """Settled without delivered."""
    found = _chosen(rows, rng, Kind.SETTLED)
    if found is None:
        return None
    _, row, seq = found
    return _without(rows, frozenset((Kind.DELIVERED,)), row.pipe, row.epoch, seq)


def key_changed(rows: list[Row], rng: random.Random) -> list[Row] | None:
    """With lanes: two deliveries of one key, of which the later came out first."""
    handed = Counter(
        (row.pipe, row.epoch, seq)
        for row in rows
        if row.kind == Kind.DELIVERED
        for seq in range(row.seq, row.last + 1)
    )
    places = [  # what was handed over again has its own key there
        at
        for at in _singles(rows, Kind.DELIVERED)
        if '"key"' in rows[at].detail and handed[rows[at].pipe, rows[at].epoch, rows[at].seq] == 1
    ]
    pairs = [
        (one, other)
        for one in places
        for other in places
        if (rows[one].pipe, rows[one].epoch) == (rows[other].pipe, rows[other].epoch)
        and rows[one].seq < rows[other].seq
        and rows[one].detail != rows[other].detail
        and _settled_before(rows, rows[other], rows[one])
    ]
    if not pairs:
        return None
    one, other = rng.choice(pairs)
    found = list(rows)
    found[other] = replace(rows[other], detail=rows[one].detail)
    return found


def _settled_before(rows: Sequence[Row], late: Row, early: Row) -> bool:
    """The message of the later number was settled first."""
    places: dict[int, int] = {}
    for at, row in enumerate(rows):
        if row.kind == Kind.SETTLED and (row.pipe, row.epoch) == (late.pipe, late.epoch):
            for seq in (late.seq, early.seq):
                if row.seq <= seq <= row.last:
                    places.setdefault(seq, at)
    return late.seq in places and early.seq in places and places[late.seq] < places[early.seq]


def raw_row_removed(rows: list[Row], rng: random.Random) -> list[Row] | None:
    """A row is gone from the file, and the steps of its node tell. (Without its last row a life is one that was
    killed a moment earlier.)"""
    last = {(row.run, row.node, row.incarnation): at for at, row in enumerate(rows)}
    places = [at for at, row in enumerate(rows) if row.kind == Kind.SETTLED]
    at = rng.choice([at for at in places if at not in last.values()] or [-1])
    return None if at < 0 else [*rows[:at], *rows[at + 1 :]]


def raw_row_doubled(rows: list[Row], rng: random.Random) -> list[Row] | None:
    """A row is twice in the file, with its step."""
    at = rng.choice([at for at, row in enumerate(rows) if row.kind == Kind.SETTLED] or [-1])
    return None if at < 0 else [*rows[: at + 1], rows[at], *rows[at + 1 :]]


def told_late(rows: list[Row], rng: random.Random) -> list[Row] | None:
    """No error: what a receiver settled last is told by a process that stood still behind its commit, and woke up
    when its successor had gone on."""
    starts = [at for at, row in enumerate(rows) if row.kind == Kind.START]
    told = [(at, rows[at]) for at in _singles(rows, Kind.SETTLED)]
    found: list[tuple[int, int]] = []
    for start in starts:
        former = [at for at, row in told if row.node == rows[start].node and at < start]
        later = [at for at, row in told if row.node == rows[start].node and at > start]
        if any(_ends_late(rows, start, rows[at]) for at in later):
            continue  # it tells more itself, and in its order
        if former and later and not _comes_again(rows[start:], rows[former[-1]]):
            found.append((former[-1], rng.choice(later)))
    if not found:
        return None
    at, behind = rng.choice(found)
    late = replace(rows[at], time_us=rows[behind].time_us)
    return [*rows[:at], *rows[at + 1 : behind + 1], late, *rows[behind + 1 :]]


def _ends_late(rows: Sequence[Row], start: int, settled: Row) -> bool:
    """Whether who began this before a successor started has told its end behind that."""
    return _comes_again(rows[:start], settled) and not _comes_again(rows[start:], settled)


def _comes_again(rows: Sequence[Row], of: Row) -> bool:
    return any(
        (row.kind, row.pipe, row.epoch) == (Kind.DELIVERED, of.pipe, of.epoch)
        and row.seq <= of.last
        and row.last >= of.seq
        for row in rows
    )


PLANTED: dict[Planter, frozenset[Atom]] = {
    settled_removed: frozenset((Atom.NO_LOSS,)),
    settled_doubled: frozenset((Atom.NO_DUPLICATE,)),
    settled_swapped: frozenset((Atom.MONOTONIC,)),
    seq_removed: frozenset((Atom.NO_LOSS,)),
    accepted_removed: frozenset((Atom.NO_LOSS,)),
    delivered_removed: frozenset((Atom.NO_LOSS,)),
    raw_row_removed: frozenset((Atom.NO_LOSS,)),
    raw_row_doubled: frozenset((Atom.NO_DUPLICATE,)),
}
"""Each error, and the promise that it concerns."""
RAW = (raw_row_removed, raw_row_doubled)


def renumbered(rows: Sequence[Row]) -> list[Row]:
    """As if the rows had been written so: dense steps, in order of time."""
    steps: dict[tuple[str, str, int], int] = {}
    found: list[Row] = []
    for row in rows:
        key = (row.run, row.node, row.incarnation)
        steps[key] = steps.get(key, -1) + 1
        found.append(replace(row, step=steps[key]))
    return found
