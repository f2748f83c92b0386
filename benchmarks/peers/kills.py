"""The kill table: the worker is killed at the same moment of each system, and the effects are counted.

All 2,000 messages have been sent when the worker starts, so each system has taken as many ahead as it is set up
to. The moments are those of its 737th message, in the middle of a batch of 100 or 500: in the handler before the
effect, in the handler after it, and running on right after it. Effects are lines of a file that the worker appends
to, one write each, so whatever was written before the kill is there.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from benchmarks.peers.catalogue import System
from benchmarks.peers.handling import LINE, put
from benchmarks.peers.processes import Bench, RunFailed, bench, end, kill, wait_for

MESSAGES = 2000
KILLED_AT = 737
MOMENTS = ("before", "after", "running")
STARTS_WITHIN_S = 120.0
LONGEST_S = 240.0


@dataclass(frozen=True, slots=True)
class Kill:
    """What one kill did. ``recovered_s`` is from the start of the next worker to the last effect."""

    system: str
    moment: str
    lost: int
    repeated: int
    reordered: int
    recovered_s: float


def judge(numbers: Sequence[int], sent: int) -> tuple[int, int, int]:
    """Lost; effects beyond the first of a message; messages whose first effect came after that of a later one."""
    seen: set[int] = set()
    reordered = highest = 0
    for number in numbers:
        if number in seen:
            continue
        seen.add(number)
        reordered += number < highest
        highest = max(highest, number)
    return sent - len(seen), len(numbers) - len(seen), reordered


def effects(place: Bench) -> list[int]:
    """The numbers in the order of their effects."""
    return [int(line) for line in (place.folder / "effects").read_bytes().split()]


def one_kill(system: System, url: str, moment: str) -> Kill:
    """Send, kill at the moment, start again, wait until nothing more comes, and judge."""
    with bench(system, url, "record") as place:
        try:
            send_everything(place)
            first = place.worker(f"{moment}:{KILLED_AT}")
            wait_for((place.folder / "reached").exists, STARTS_WITHIN_S, "the moment of the kill")
            kill(first)
            begun = time.monotonic()
            place.worker()
            last = wait_until_quiet(place, system.settles_s)
        except RunFailed as failed:
            raise RunFailed(f"{system.name}: {failed}\n{place.log()}") from None
        lost, repeated, reordered = judge(effects(place), MESSAGES)
        return Kill(system.name, moment, lost, repeated, reordered, max(0.0, last - begun))


def send_everything(place: Bench) -> None:
    """With no worker there, but one was: some systems keep messages only for those that came before them."""
    place.producer(str(MESSAGES))
    early = place.worker()
    wait_for((place.folder / "warm").exists, STARTS_WITHIN_S, "a first message handled")
    end(early)
    put(place.folder / "go", "")
    wait_for((place.folder / "sent").exists, STARTS_WITHIN_S, "everything sent")


def wait_until_quiet(place: Bench, settles_s: float) -> float:
    """When the last effect came; nothing came after it for so long."""
    path = place.folder / "effects"
    until = time.monotonic() + LONGEST_S
    before, last, grown = path.stat().st_size, time.monotonic(), False
    while time.monotonic() < until:
        size = path.stat().st_size
        if size != before:
            before, last, grown = size, time.monotonic(), True
        # A worker that has not come up yet is not quiet, unless there is nothing left to do.
        waits_s = settles_s if grown or size >= MESSAGES * LINE else settles_s + 30
        if time.monotonic() - last > waits_s:
            return last
        time.sleep(0.02)
    raise RunFailed("effects go on for ever")


def table(systems: Sequence[System], urls: Sequence[str]) -> list[Kill]:
    """All kills. Those of one system run side by side, each in a database of its own."""
    found: list[Kill] = []
    with ThreadPoolExecutor(len(MOMENTS)) as pool:
        for system in systems:
            kills = list(pool.map(partial(one_kill, system), urls, MOMENTS))
            for one in kills:
                print(
                    f"  {one.system:18} {one.moment:8} lost {one.lost}, repeated {one.repeated},"
                    f" reordered {one.reordered}",
                    flush=True,
                )
            found += kills
    return found
