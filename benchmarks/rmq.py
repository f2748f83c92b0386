"""The replicated queue: nodes as processes, where the time goes, what a message costs with 4, 7 and 13 nodes, a
node that was away, and what four nodes hold in a day.

    python -m benchmarks.rmq processes [--messages 3000] [--faults crash]
    python -m benchmarks.rmq where [--messages 2000]
    python -m benchmarks.rmq cost [--messages 1000]
    python -m benchmarks.rmq away [--gaps 500 2000 8000]
    python -m benchmarks.rmq day [--hours 24]

Signatures are on, stores are SQLite files that are synced, and the user's function does nothing. The processor's
time is that of all nodes and the client together: the rate that it allows, and what shares it with other work.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from surepipe.actors.clusters import Cluster, QueueClient
from surepipe.actors.clusters.guard import FileGuard
from surepipe.pipelines.clusters import ClusterFile
from surepipe.queues.rmq import ClientMachine, Done, Job, QueueSettings, encoding
from surepipe.queues.rmq.encoding import Ed25519Keys
from surepipe.queues.rmq.node import NodeMachine
from surepipe.storage import SqliteStore
from tests.queues.rmq.cluster_network import EpochNetwork

BODY = b"x" * 200
WAIT_S = 600.0


def nothing(message: Job, context: object) -> Done:
    """A function without work."""
    del message, context
    return Done(b"done")


def through(client: QueueClient, messages: int) -> tuple[float, float]:
    """Seconds until so many messages are placed, and until they are decided."""
    began = time.perf_counter()
    tickets = [
        client.submit(b"%06d" % at + BODY[6:], key=b"%d" % at, ttl_s=250) for at in range(messages)
    ]
    placed = time.perf_counter() - began
    for ticket in tickets:
        assert ticket.result(timeout_s=WAIT_S).kind == "finalized"
    return placed, time.perf_counter() - began


def processor_s(pids: Sequence[int]) -> float:
    """What processes have had of the processor."""
    ticks = 0
    for pid in pids:
        parts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(parts[11]) + int(parts[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def processes(messages: int, nodes: int, faults: str, port: int) -> None:
    """Nodes that are processes, and a client that is another one."""
    with tempfile.TemporaryDirectory(prefix="surepipe-bench-") as folder, ExitStack() as stack:
        addresses = {f"n{at + 1}": f"127.0.0.1:{port + at}" for at in range(nodes)}
        file = ClusterFile.new(Path(folder) / "cluster.yaml", "bench", addresses, faults=faults)
        running: list[subprocess.Popen[str]] = []
        for name in addresses:
            command = [sys.executable, "-m", "surepipe", "node", str(file.path), "--name", name]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            running.append(process)
            stack.callback(process.wait)
            stack.callback(process.send_signal, signal.SIGKILL)
        for process in running:
            assert process.stdout is not None
            process.stdout.readline()
        cluster = stack.enter_context(file.connect())
        client = cluster.client("bench")
        assert client.submit(BODY).result(timeout_s=WAIT_S).kind == "finalized"
        pids = [os.getpid(), *(process.pid for process in running)]
        began = processor_s(pids)
        placed, decided = through(client, messages)
        spent = (processor_s(pids) - began) / messages
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        sizes = [_memory_mb(process.pid) for process in running]
        print(
            f"{nodes} processes, {messages} messages of {len(BODY)} bytes: {messages / decided:,.0f}/s decided, "
            f"{messages / placed:,.0f}/s submitted, {spent * 1e6:,.0f} us of the processor each; nodes have "
            f"{max(sizes)} MB, the client {memory} MB"
        )


def _memory_mb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(each.split()[1]) // 1024 for each in lines if each.startswith("VmRSS"))


class _Counts:
    """How often keys are used, and for how long."""

    def __init__(self) -> None:
        self.calls = {"sign": 0, "verify": 0}
        self.seconds = {"sign": 0.0, "verify": 0.0}
        for name in self.calls:
            plain = getattr(Ed25519Keys, name)

            def counted(
                keys: Ed25519Keys, *given: bytes, name: str = name, plain: object = plain
            ) -> object:
                began = time.thread_time()
                try:
                    return plain(keys, *given)  # type: ignore[operator]
                finally:
                    self.calls[name] += 1
                    self.seconds[name] += time.thread_time() - began

            setattr(Ed25519Keys, name, counted)


def cost(messages: int) -> None:
    """What a message costs with more nodes, all of them in this process."""
    counts = _Counts()
    for nodes in (4, 7, 13):
        with tempfile.TemporaryDirectory(prefix="surepipe-bench-") as folder:
            cluster = Cluster.local("bench", nodes=nodes, process=nothing, path=folder)
            with cluster:
                client = cluster.client("bench")
                assert client.submit(BODY).result(timeout_s=WAIT_S).kind == "finalized"
                before, used = dict(counts.calls), time.process_time()
                blocks, height = len(cluster.chain("n1")), sum(cluster.heights("n1").values())
                secs = sum(counts.seconds.values())
                _, decided = through(client, messages)
                used = time.process_time() - used
                secs = sum(counts.seconds.values()) - secs
                blocks = len(cluster.chain("n1")) - blocks
                height = sum(cluster.heights("n1").values()) - height
                made = {name: counts.calls[name] - before[name] for name in before}
                stored = sum(file.stat().st_size for file in Path(folder).glob("n1.db*"))
        print(
            f"{nodes:>2} nodes: {used / messages * 1e6:,.0f} us of the processor each ({secs / used:.0%} of it "
            f"signatures), {messages / decided:,.0f}/s; {blocks} blocks of {messages / blocks:.0f}; a block has "
            f"{height / blocks:.1f} entries, {made['sign'] / blocks:.1f} signatures made and "
            f"{made['verify'] / blocks / nodes:.1f} verified at each node; {stored / messages:,.0f} bytes a "
            f"message in each file",
            flush=True,
        )


def where(messages: int) -> None:
    """What of the processor's time goes where, with four nodes in this process."""
    clocks: dict[str, float] = {}
    open_calls = threading.local()

    def timed(about: str, plain: Callable[..., object]) -> Callable[..., object]:
        def called(*given: object, **named: object) -> object:
            inner, open_calls.inner = getattr(open_calls, "inner", 0.0), 0.0
            began = time.thread_time()
            try:
                return plain(*given, **named)
            finally:
                spent = time.thread_time() - began
                clocks[about] = clocks.get(about, 0.0) + spent - open_calls.inner
                open_calls.inner = inner + spent

        return called

    for name in ("encode", "decode"):
        plain = getattr(encoding, name)
        clocked = timed("values written and read", plain)
        for module in list(sys.modules.values()):
            if vars(module).get(name) is plain:
                setattr(module, name, clocked)
    for about, kind, names in (
        ("signatures", Ed25519Keys, ("sign", "verify")),
        ("guards", FileGuard, ("release",)),
        ("stores", SqliteStore, ("ask",)),
        ("nodes' own steps", NodeMachine, ("frames", "answer", "wake")),
        ("the client", ClientMachine, ("frame", "wake", "enter", "ticket")),
    ):
        for name in names:
            setattr(kind, name, timed(about, getattr(kind, name)))
    with (
        tempfile.TemporaryDirectory(prefix="surepipe-bench-") as folder,
        Cluster.local("bench", process=nothing, path=folder) as cluster,
    ):
        client = cluster.client("bench")
        assert client.submit(BODY).result(timeout_s=WAIT_S).kind == "finalized"
        clocks.clear()
        used = time.process_time()
        through(client, messages)
        used = time.process_time() - used
    clocks["actors, threads and the rest"] = used - sum(clocks.values())
    print(
        f"4 nodes in one process: {used / messages * 1e6:,.0f} us of the processor each, clocks included"
    )
    for about, spent in sorted(clocks.items(), key=lambda each: -each[1]):
        print(f"{spent / used:>5.0%} {about}")


def away(gaps: Sequence[int]) -> None:
    """A node that was away while others decided so many messages."""
    for gap in gaps:
        with (
            tempfile.TemporaryDirectory(prefix="surepipe-bench-") as folder,
            Cluster.local("bench", process=nothing, path=folder) as cluster,
        ):
            client = cluster.client("bench")
            assert client.submit(BODY).result(timeout_s=WAIT_S).kind == "finalized"
            cluster.kill("n4")
            before = sum(cluster.heights("n1").values())
            through(client, gap)
            blocks = len(cluster.chain("n1"))
            entries = sum(cluster.heights("n1").values()) - before
            size = _memory_mb(os.getpid())
            began, used = time.perf_counter(), time.process_time()
            cluster.start("n4")
            _until_it_has(cluster, blocks)
            caught_up, used = time.perf_counter() - began, time.process_time() - used
            more = _memory_mb(os.getpid()) - size
            cluster.kill("n4")
            began = time.perf_counter()
            cluster.start("n4")
            _until_it_has(cluster, blocks)
            again = time.perf_counter() - began
        print(
            f"away for {gap} messages ({blocks} blocks, {entries} entries): has them after {caught_up:.1f} s, "
            f"{entries / caught_up:,.0f} entries and {gap / caught_up:,.0f} messages a second; {used:.1f} s of "
            f"the processor, {more} MB more; with them in its file it begins in {again:.1f} s",
            flush=True,
        )


def _until_it_has(cluster: Cluster, blocks: int) -> None:
    while True:
        try:
            if len(cluster.chain("n4")) >= blocks:
                return
        except LookupError:
            pass
        time.sleep(0.02)


def day(hours: int) -> None:
    """Four nodes in virtual time with the settings that nodes have, a message every ten seconds: what they hold,
    each eighth of the time. The process holds the records of the test network, too, which only grow."""
    net = EpochNetwork(4, 1, settings=QueueSettings())
    net.start()
    net.run(1_000_000)
    client = net.client("bench")
    used, messages = time.process_time(), 0
    for eighth in range(1, 9):
        for _ in range(hours * 360 // 8):
            messages += 1
            client.submit(b"%06d" % messages + BODY[6:], ttl_ms=60_000)
            net.run(10_000_000)
        nodes = list(net.all_nodes().values())
        sessions = [session for node in nodes for session in node.sessions()]
        entries = sum(len(each.log.causality.known) for each in sessions)
        held = sum(len(each.messages) for each in sessions)
        receipts = sum(
            len(each) for node in nodes for each in node.receipts.by_submitter().values()
        )
        print(
            f"{hours * eighth / 8:g} h, epoch {max(node.record.number for node in nodes)}, {messages} messages: "
            f"{len(sessions)} sessions, {entries} entries, {held} messages, {receipts} receipts held; "
            f"{_memory_mb(os.getpid())} MB, {time.process_time() - used:.0f} s of the processor",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="The replicated queue.")
    parser.add_argument("what", choices=("processes", "where", "cost", "away", "day"))
    parser.add_argument("--messages", type=int, default=2000)
    parser.add_argument("--gaps", type=int, nargs="+", default=(500, 2000, 8000))
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--faults", default="byzantine")
    parser.add_argument("--port", type=int, default=17_101)
    given = parser.parse_args()
    if given.what == "processes":
        processes(given.messages, given.nodes, given.faults, given.port)
    elif given.what == "cost":
        cost(given.messages)
    elif given.what == "where":
        where(given.messages)
    elif given.what == "away":
        away(given.gaps)
    else:
        day(given.hours)


if __name__ == "__main__":
    main()
