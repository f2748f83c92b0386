"""The nodes of a replicated queue as processes: killed one after the other under load, and cut in two halves."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from surepipe.actors.clusters import Cluster, Ticket
from surepipe.cli.cluster_audit import audit_cluster
from surepipe.pipelines.clusters import ClusterFile, accept
from surepipe.queues.rmq import QueueSettings
from tests.real import netns
from tests.real.ground import nothing
from tests.real.stage import Stage, Tally

ROOT = Path(__file__).parents[2]
NAMES = ("n1", "n2", "n3", "n4")
WAIT_S = 120.0
KILLS, CUTS = 20, 2
PORT = 7101
QUICK = QueueSettings(slot_timeout_us=500_000)


class Nodes:
    """Processes of ``surepipe node``."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._running: dict[str, subprocess.Popen[str]] = {}

    def start(self, name: str, within: Sequence[str] = ()) -> None:
        """Begin, without waiting for it; ``within``: the command that runs it."""
        command = [sys.executable, "-m", "surepipe", "node", str(self.file), "--name", name]
        self._running[name] = subprocess.Popen(
            [*within, *command],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def wait(self, name: str) -> None:
        """Until it says that it runs."""
        output = self._running[name].stdout
        assert output is not None
        assert output.readline().startswith(f"{name} of ")

    def end(self, name: str, by: signal.Signals) -> int:
        """Wait until it has ended."""
        process = self._running.pop(name)
        process.send_signal(by)
        process.communicate(timeout=WAIT_S)
        return process.returncode

    def end_all(self) -> None:
        """By force."""
        for name in list(self._running):
            self.end(name, signal.SIGKILL)


@contextmanager
def started(
    addresses: Mapping[str, str], within: Mapping[str, tuple[str, ...]] | None = None
) -> Generator[Nodes]:
    """Nodes of a new queue."""
    with TemporaryDirectory(prefix="surepipe-nodes-") as folder, ExitStack() as stack:
        file = ClusterFile.new(Path(folder) / "cluster.yaml", "shop", addresses, settings=QUICK)
        nodes = Nodes(file.path)
        stack.callback(nodes.end_all)
        for name in addresses:
            nodes.start(name, (within or {}).get(name, ()))
        for name in addresses:
            nodes.wait(name)
        yield nodes


def free_port(many: int = 4) -> int:
    """The first of some that are free."""
    while True:
        with ExitStack() as sockets:
            first = sockets.enter_context(socket.create_server(("127.0.0.1", 0)))
            port = int(first.getsockname()[1])
            try:
                for at in range(1, many):
                    sockets.enter_context(socket.create_server(("127.0.0.1", port + at)))
            except OSError:
                continue
            return port


def require_one_chain(cluster: Cluster, ids: Sequence[bytes]) -> None:
    """All nodes hold the same blocks as far as they have them; each message is done once; nobody is blamed."""
    chains = [[block.digest for block in cluster.chain(name)] for name in NAMES]
    longest = max(chains, key=len)
    assert all(chain == longest[: len(chain)] for chain in chains), chains
    most = max((cluster.chain(name) for name in NAMES), key=len)
    done = [verdict.id for block in most for verdict in block.verdicts]
    assert sorted(done) == sorted(ids), (len(done), len(ids))
    assert not any(cluster.blamed(name) for name in NAMES)


def kill_one_after_the_other(rng: Random, tally: Tally) -> None:
    """rmq RQ-29, RQ-40: kill -9 under load; what was accepted is decided once, and stays decided."""
    port = free_port()
    addresses = {name: f"127.0.0.1:{port + at}" for at, name in enumerate(NAMES)}
    with started(addresses) as nodes:
        file = ClusterFile.read(nodes.file)
        tickets: list[Ticket] = []
        with file.connect() as cluster:
            client = cluster.client("shop-1")
            for cycle in range(KILLS):
                name = NAMES[cycle % 4]
                with tally.timed(f"cycle {cycle}"):
                    tickets += [client.submit(b"tea") for _ in range(rng.randint(1, 20))]
                    if cycle % 3 == 0:  # in work at all of them, or at none yet
                        tickets[-1].wait(WAIT_S, more_than=0)
                    nodes.end(name, signal.SIGKILL)
                    tickets += [client.submit(b"milk") for _ in range(2)]
                    nodes.start(name)
                    assert tickets[-1].result(timeout_s=WAIT_S).kind == "finalized"
                    nodes.wait(name)
                tally.add("kills")
            for ticket in tickets:
                assert ticket.result(timeout_s=WAIT_S).kind == "finalized"
                tally.add("messages")
        assert nodes.end("n1", signal.SIGTERM) == 0
        nodes.end_all()
        found = audit_cluster([str(nodes.file)], at_rest=False)
        assert found.judged, "nothing was judged"
        assert not found.broken, found.broken
        with file.open(*NAMES, process=accept) as cluster:
            require_one_chain(cluster, [ticket.id for ticket in tickets])


def cut_in_two(rng: Random, tally: Tally) -> None:
    """rmq RT-23: two nodes on each side of a cable; while it is cut both keep messages and decide nothing."""
    del rng
    with netns.cable() as line, ExitStack() as stack:
        sides = {name: line.near if name in NAMES[:2] else line.far for name in NAMES}
        hosts = {line.near: f"{line.subnet}.1", line.far: line.far_address}
        addresses = {name: f"{hosts[sides[name]]}:{PORT + at}" for at, name in enumerate(NAMES)}
        within = {name: ("ip", "netns", "exec", space) for name, space in sides.items()}
        nodes = stack.enter_context(started(addresses, within))
        netns.load_chains(line)
        for cut in range(CUTS):
            with tally.timed(f"cut {cut}"):
                for space in hosts:
                    require(submitted(nodes, space, f"whole-{cut}-{space}"), 0)
                netns.drop_all(line)
                for space in hosts:
                    require(submitted(nodes, space, f"cut-{cut}-{space}", "--no-wait"), 0)
                require(submitted(nodes, line.near, f"wait-{cut}", "--timeout-s", "3"), 3)
                netns.heal(line)
                for body in (*(f"cut-{cut}-{space}" for space in hosts), f"wait-{cut}"):
                    require(submitted(nodes, line.far, body), 0)
                    tally.add("decided after the cut")
            tally.add("cuts")


def submitted(nodes: Nodes, space: str, body: str, *more: str) -> subprocess.CompletedProcess[str]:
    """What ``surepipe submit`` answers on one side: the same body is the same work."""
    command = [sys.executable, "-m", "surepipe", "submit", str(nodes.file), body, "--dedupe", body]
    return subprocess.run(
        ["ip", "netns", "exec", space, *command, "--ttl-s", "240", *more],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=WAIT_S + 240,
        check=False,
    )


def require(answer: subprocess.CompletedProcess[str], code: int) -> None:
    """Raises AssertionError with what was said."""
    assert answer.returncode == code, (code, answer.returncode, answer.stdout, answer.stderr)


STAGE = Stage("nodes", "nodes", kill_one_after_the_other, {"kills": KILLS}, nothing)
CUT = Stage("cut-nodes", "netns", cut_in_two, {"cuts": CUTS}, netns.needs)
