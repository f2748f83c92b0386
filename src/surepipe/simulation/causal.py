"""Scripts that strike exactly what one delivery depends on: its frames, its writes, the steps of its processes.

From a run in which nothing went wrong the path of one message is read off: the frames that carried it and its
confirm, the events that took it further, the writes that were waited for. Then each is lost, or crashes its
process, alone and in pairs. That breaks a wrong pipe sooner than chance does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations

from surepipe.simulation.causal_strikes import Seen, store_of
from surepipe.simulation.causes import path_to
from surepipe.simulation.chooser import fault_of
from surepipe.simulation.findings import RunResult
from surepipe.simulation.hop import run_hop
from surepipe.simulation.options import Options
from surepipe.simulation.promises import promise_of
from surepipe.simulation.script import Decision, Script
from surepipe.simulation.scripted import ScriptChooser
from surepipe.simulation.subjects import Subject
from surepipe.simulation.trace import Kind, Row

POINTS = (0, 1, 2, 3)
"""Effects of an event that are done before its process ends."""
PAIRS_MAX = 48
MESSAGES = 3
_ASKING = ("read", "wait", "letter")


def plain_run(subject: Subject, *, messages: int = MESSAGES) -> RunResult:
    """A run of few messages in which nothing goes wrong, with the names of its events; nobody judges it."""
    promise = promise_of(subject)
    timer = promise.timer_us
    options = Options(
        messages=messages, timer_us=timer, delay_us=max(1, timer // 1000), chaos_us=8 * timer
    )
    return run_hop(subject, options, ScriptChooser(()), judge=None)


def causal_scripts(
    result: RunResult, *, message: int = 0, pairs_max: int = PAIRS_MAX
) -> tuple[Script, ...]:
    """Scripts against one delivery of a fault-free run: each single decision first, then pairs of them.

    ``result`` is a run by a script without faults (``plain_run``). ``message`` is the how-many-th delivery, from
    1; 0 takes the one in the middle. Of the pairs at most ``pairs_max`` are built, evenly spread over all of them.
    """
    singles = [(one,) for one in causal_decisions(result, message=message)]
    pairs = [
        (one, other)
        for (one,), (other,) in combinations(singles, 2)
        if (one.authority, one.at) != (other.authority, other.at)
    ]
    step = max(1, -(-len(pairs) // pairs_max)) if pairs_max else len(pairs) + 1
    chosen = [*singles, *(pairs[::step] if pairs_max else ())]
    return tuple(replace(result.script, decisions=decisions) for decisions in chosen)


def causal_decisions(result: RunResult, *, message: int = 0) -> tuple[Decision, ...]:
    """Everything on the path of one delivery that may be lost or end its process, in the order of its events."""
    rows = result.rows
    settled = [row for row in rows if row.kind == Kind.SETTLED]
    if not settled:
        return ()
    chosen = settled[(message - 1) if message else len(settled) // 2]
    steps = sorted({row.step for end in _ends(rows, chosen) for row in path_to(rows, end.step)})
    names = _names(result)
    found = [
        *_frames(rows, steps, names),
        *_crashes(rows, steps, names),
        *_lost_writes(rows, chosen, Seen.of(result).stores),
    ]
    return tuple(dict.fromkeys(found))


def _ends(rows: Sequence[Row], settled: Row) -> Iterator[Row]:
    """Where the path of a message ends: it came out, and its sender heard of it."""
    yield settled
    for row in rows:
        is_it = row.epoch == settled.epoch and row.seq <= settled.seq <= row.last
        if is_it and row.kind in (Kind.CONFIRMED, Kind.ACCEPTED):
            yield row


def _names(result: RunResult) -> dict[int, str]:
    """How the events are called that the rows begin with, by their steps."""
    begins = {
        "arrive": Kind.ARRIVED,
        "submit": Kind.SUBMIT,
        "settled": Kind.SETTLED,
        "wake": Kind.WAKE,
        "answer": "answer",
    }
    found: dict[int, str] = {}
    for word, kind in begins.items():
        asked = [name for name in result.asked if name.partition(": ")[2].startswith(word)]
        steps = [row.step for row in result.rows if row.kind == kind]
        found |= dict(zip(steps, asked, strict=False))
    return found


def _frames(rows: Sequence[Row], steps: Sequence[int], names: dict[int, str]) -> Iterator[Decision]:
    for step in steps:
        row = rows[step]
        if row.kind == Kind.ARRIVED and step in names:
            fault = "F1" if '"data"' in row.detail else "F2"
            frame = names[step].partition(": arrive ")[2]
            yield Decision(f"network/{row.link}", frame, "lose", (), fault)


def _crashes(
    rows: Sequence[Row], steps: Sequence[int], names: dict[int, str]
) -> Iterator[Decision]:
    for step in steps:
        if step in names:
            node = rows[step].node
            for point in POINTS:
                yield Decision(
                    f"faults/{node}", names[step], "crash", (point, 0), fault_of("crash", node)
                )


def _lost_writes(rows: Sequence[Row], settled: Row, stores: Sequence[str]) -> Iterator[Decision]:
    """Writes that were answered after the message was offered: done without an answer, or never done."""
    for row in rows:
        if row.kind != "answer":
            continue
        call = row.detail.partition('"call":"')[2].partition('"')[0]
        verb = call.split(" ")[1] if " " in call else ""
        speaks_of = f"e{settled.epoch} {settled.seq}+" in call or verb in ("save-state", "commit")
        if speaks_of and not verb.startswith(_ASKING):
            for how in ("unknown", "lost"):
                yield Decision(f"disk/{store_of(verb, stores)}", call, how, (0,), "F18")
