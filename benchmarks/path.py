"""What one message costs on its way: calls, functions, files and frames, and how long ``send`` takes.

    python -m benchmarks.path [--times 300] [--beside ../other/src]
    python -m benchmarks.path --show                         every call, indented

Calls are counted in virtual time, so that the same tree gives the same figures: ``send``, the handler, ``flush``
of one message through ``reliable``, after some others; the scheduler of the virtual time is left out. Times are
those of ``send(..., until="confirmed")`` of one message at a time on threads, in process, over TCP and over Redis
(a stream): medians of runs that take turns. ``--beside`` runs another tree of this package in the same turns.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from types import FrameType
from typing import cast

import surepipe
from surepipe import Pipe, PipeReceiver, PipeSender, SharedKey, StreamSender, TcpRoute
from surepipe.actors import StepRuntime
from surepipe.storage.redis.store import RedisStore
from surepipe.testing.servers import NONE_FOUND, local_servers

SCHEDULER = os.path.join("actors", "steps.py")
SOURCE = str(Path(surepipe.__file__).parent) + os.sep
KEY = SharedKey("a key for the benchmark, long enough")
WARM = 20


@dataclass
class Counted:
    """The calls of functions of this package, in the order in which they began."""

    calls: list[tuple[int, str, str]] = field(default_factory=list[tuple[int, str, str]])

    def profile(self, frame: FrameType, event: str, argument: object) -> None:
        """For ``sys.setprofile``."""
        del argument
        code, outer, root = frame.f_code, frame.f_back, frame
        if event == "call" and _is_ours(frame) and not code.co_filename.endswith(SCHEDULER):
            depth = 1
            while outer is not None and not outer.f_code.co_filename.endswith(SCHEDULER):
                if _is_ours(outer):
                    depth, root = depth + 1, outer
                outer = outer.f_back
            if outer is not None and _is_scheduling(root):
                return
            name = getattr(code, "co_qualname", code.co_name)
            self.calls.append((depth, code.co_filename.removeprefix(SOURCE), name))

    @property
    def figures(self) -> dict[str, int]:
        """Calls, functions, files, and the deepest stack."""
        return {
            "calls": len(self.calls),
            "functions": len({call[1:] for call in self.calls}),
            "files": len({call[1] for call in self.calls}),
            "depth": max(call[0] for call in self.calls),
        }


def _is_ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(SOURCE)


def _is_scheduling(frame: FrameType) -> bool:
    """What the scheduler does for itself, between turns: it stands for the threads of a real run."""
    code = frame.f_code
    return code.co_filename.endswith("timing.py") or code.co_name == "<lambda>"


def one_message() -> Counted:
    """Count the calls of one message."""
    counted, handled = Counted(), list[object]()
    runtime = StepRuntime(1)
    with Pipe("orders", "reliable", runtime=runtime, seed=1) as pipe:
        pipe.receive(handled.append)
        for number in range(WARM):
            pipe.send({"n": number})
            pipe.flush()
        runtime.run_until_idle()
        before = sys.getprofile()
        sys.setprofile(counted.profile)
        try:
            pipe.send({"n": WARM})
            pipe.flush()
            runtime.run_until_idle()
        finally:
            sys.setprofile(before)
    assert len(handled) == WARM + 1
    return counted


def _times(send: Callable[[object], None], times: int) -> float:
    for number in range(WARM):
        send({"n": number})
    found: list[float] = []
    for number in range(times):
        begin = time.perf_counter()
        send({"n": number})
        found.append(time.perf_counter() - begin)
    return median(found) * 1e6


def _nothing(message: object) -> None:
    del message


def in_process(times: int) -> float:
    """Microseconds of one confirmed ``send`` within a process."""
    with Pipe("orders") as pipe:
        pipe.receive(_nothing)
        return _times(lambda message: pipe.send(message, until="confirmed"), times)


def over_tcp(times: int) -> float:
    """The same over a sealed link on this machine."""
    listening = TcpRoute.listen("127.0.0.1:0", security=KEY)
    with PipeReceiver("orders", route=listening) as receiver:
        receiver.receive(_nothing)
        route = TcpRoute.connect(f"127.0.0.1:{listening.port}", security=KEY)
        with PipeSender("orders", route=route) as sender:
            return _times(lambda message: sender.send(message, until="confirmed"), times)


def over_redis(times: int) -> float:
    """The same into a stream in Redis, which confirms when it has the message."""
    if not (sources := local_servers()):
        raise SystemExit(NONE_FOUND)
    with sources[0].server() as server:
        store = RedisStore.from_url(server.url, pipeline="path")
        with StreamSender("orders", store=store) as sender:
            found = _times(lambda message: sender.send(message, until="confirmed"), times)
        store.close()
    return found


WAYS = {"in process": in_process, "TCP, shared key": over_tcp, "Redis": over_redis}


def _of_tree(tree: str, way: str, times: int) -> float:
    """The time of one way, measured by the code of this tree in a process of its own."""
    command = [sys.executable, __file__, "--way", way, "--times", str(times)]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": tree}, check=True, capture_output=True, text=True
    )
    return float(done.stdout)


def _count_of(tree: str) -> dict[str, int]:
    done = subprocess.run(
        [sys.executable, __file__, "--way", "count"],
        env={**os.environ, "PYTHONPATH": tree},
        check=True,
        capture_output=True,
        text=True,
    )
    return cast("dict[str, int]", json.loads(done.stdout))


def main() -> None:
    """Print the figures of this tree, or of two in turns."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--times", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--beside", metavar="SRC", help="another tree, measured in the same turns")
    parser.add_argument("--show", action="store_true", help="print every call")
    parser.add_argument("--way", choices=[*WAYS, "count"], help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.show:
        for depth, file, name in one_message().calls:
            print(f"{'  ' * depth}{file} {name}")
    elif chosen.way == "count":
        print(json.dumps(one_message().figures))
    elif chosen.way:
        print(WAYS[chosen.way](chosen.times))
    else:
        trees = [str(Path(SOURCE).parent)]
        if chosen.beside:
            trees.insert(0, str(Path(chosen.beside).resolve()))
        _table(trees, chosen.times, chosen.rounds)


def _table(trees: list[str], times: int, rounds: int) -> None:
    counts = [_count_of(tree) for tree in trees]
    found: dict[str, list[list[float]]] = {way: [[] for _ in trees] for way in WAYS}
    for _ in range(rounds):
        for way in WAYS:
            for tree, runs in zip(trees, found[way], strict=True):
                runs.append(_of_tree(tree, way, times))
    heads = ["before", "after"] if len(trees) > 1 else ["here"]
    print(f"| one message | {' | '.join(heads)} |\n| --- |{' ---: |' * len(heads)}")
    for name in counts[0]:
        print(f"| {name} | {' | '.join(str(count[name]) for count in counts)} |")
    for way, of_trees in found.items():
        print(f"| {way}, us | {' | '.join(f'{median(each):,.0f}' for each in of_trees)} |")


if __name__ == "__main__":
    main()
