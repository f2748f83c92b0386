"""Many troubled runs of replicated queues.

``python -m tests.queues.rmq.sweep 0 200``: each seed runs three times, with no liar, with one of four and with two
of seven, through about twelve epochs with splits, merges, changes of members, crashes, cuts, loss, wrong clocks
and clients that end. What fails is printed with its seed.

``--crashes``: each of three nodes ends at every single event of a change of epochs, and begins again.

``--losses``: each single frame of a change of epochs is lost.

``--epochs 288``: as many epochs as a day has, and what nodes hold in some of them.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections import Counter
from collections.abc import Sequence
from time import monotonic

from surepipe.core.store_requests import Batch
from surepipe.queues.rmq.session import SessionMachine
from tests.queues.rmq.cluster_network import EpochNode
from tests.queues.rmq.log_network import MS
from tests.queues.rmq.test_epochs import kinds, network, run_change, run_epochs


def through_epochs(epochs: int) -> None:
    """Four nodes under a steady load; what they hold is told eight times."""
    net = network()
    client = net.client("shop-1")
    number = 0
    for told in range(1, 9):
        while max(net.records) < epochs * told // 8:
            for _ in range(10):
                number += 1
                client.submit(b"%d" % number, dedupe=b"%d" % (number // 2), key=b"k")
            net.run(500 * MS)
        net.check_clients()
        held = Counter[str]()
        for host in net.epoch_nodes:
            assert host.node is not None
            for session in host.node.sessions():
                held["entries"] += len(session.log.causality.known)
                held["messages"] += len(session.messages)
            held["sessions"] += len(host.node.sessions())
            held["receipts"] += sum(map(len, host.node.receipts.by_submitter().values()))
            held["records"] += len(host.node.epochs.known)
            held["guarded"] += len(host.memory.signed)
            held["bytes stored"] += sum(
                len(payload)
                for each in host.node.sessions()
                for run in streams(host, each)
                for payload in run
            )
        of_client = len(client.machine.tickets)
        text = ", ".join(f"{count} {kind}" for kind, count in sorted(held.items()))
        sys.stdout.write(
            f"epoch {max(net.records)}, {number} messages: {text}, {of_client} tickets\n"
        )
        sys.stdout.flush()


def streams(host: EpochNode, session: SessionMachine) -> list[Sequence[bytes]]:
    """What the store of a node holds of a session."""
    stream = f"rmq/orders/{host.name}/{session.epoch}-{session.partition.lo.hex()}"
    found = host.store.read(stream, 1, 1_000_000, 1 << 30)
    return [run.payloads for run in found.entries] if isinstance(found, Batch) else []


def main() -> int:
    """Run the seeds; 1 when something didn't hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first", type=int, nargs="?", default=0)
    parser.add_argument("last", type=int, nargs="?", default=0)
    parser.add_argument("--epochs", type=int, default=0)
    parser.add_argument("--crashes", action="store_true")
    parser.add_argument("--losses", action="store_true")
    asked = parser.parse_args()
    if asked.epochs:
        through_epochs(asked.epochs)
        return 0
    if asked.crashes:
        events, _ = run_change("", 0)
        for name in ("n1", "n2", "n3"):
            for at in range(events):
                run_change(name, at)
        sys.stdout.write(f"{3 * events} runs: each of 3 nodes ended at each of {events} events\n")
        return 0
    if asked.losses:
        _, frames = run_change("", 0)
        for lost in range(frames):
            run_change("", 0, lost=lost)
        sys.stdout.write(f"{frames} runs: each of {frames} frames was lost\n")
        return 0
    ended: Counter[str] = Counter()
    runs = failed = epochs = 0
    begin = monotonic()
    for seed in range(asked.first, asked.last):
        for twins in (0, 1, 2):
            runs += 1
            try:
                net = run_epochs(seed, twins)
            except Exception:  # noqa: BLE001 - whatever it is, it is told with its seed
                failed += 1
                sys.stdout.write(
                    f"seed {seed} with {twins} liars:\n{traceback.format_exc(limit=-2)}\n"
                )
                continue
            epochs += max(net.records)
            for client in net.clients:
                found = {**client.machine.tickets, **client.ended}
                ended += kinds(list(found.values()))
        sys.stdout.flush()
    told = ", ".join(f"{count} {kind}" for kind, count in sorted(ended.items()))
    sys.stdout.write(
        f"{runs} runs, {epochs} epochs, {failed} failed; {told}; {monotonic() - begin:.0f} s\n"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
