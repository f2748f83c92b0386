"""Nodes that lie on the wire: silent towards some, late, altering and repeating what others say, in others' names.

The machine behind each is the honest one, which knows nothing of it. Nodes that run two machines with one key, and
proposals that break a rule each, are in ``test_session``.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from surepipe.queues.rmq.client import Submitted
from surepipe.queues.rmq.encoding import decode
from tests.queues.rmq.log_network import MS, SECOND, Party, check_always, check_proofs
from tests.queues.rmq.queue_network import (
    QueueNetwork,
    check_evidence,
    check_queue,
    check_receipts,
)
from tests.queues.rmq.test_session import QUICK

Send = Callable[[Party, str, bytes], None]


def mute(net: QueueNetwork, draw: Random, send: Send) -> Send:
    """It says nothing of some kinds to some peers, drawn anew again and again."""
    kinds = ("entries", "bodies", "heads", "receipts", "proofs", "pull")
    denied: set[tuple[str, str]] = set()

    def sent(node: Party, peer: str, data: bytes) -> None:
        if draw.random() < 0.02:
            denied.clear()
            denied.update(
                (kind, name) for kind in kinds for name in net.names if draw.random() < 0.4
            )
        value = decode(data)
        if not isinstance(value, tuple) or (str(value[0]), peer) not in denied:
            send(node, peer, data)

    return sent


def late(net: QueueNetwork, draw: Random, send: Send) -> Send:
    """What it says comes up to two seconds later, in any order."""

    def sent(node: Party, peer: str, data: bytes) -> None:
        net.after(draw.randint(0, 2_000) * MS, lambda: send(node, peer, data))

    return sent


def forger(net: QueueNetwork, draw: Random, send: Send) -> Send:
    """It repeats old frames, alters them, and says them to clients and nodes in the names of others."""
    old: list[bytes] = []

    def sent(node: Party, peer: str, data: bytes) -> None:
        old.append(data)
        send(node, peer, data)
        stale = bytearray(draw.choice(old))
        if draw.random() < 0.5:
            stale[draw.randrange(len(stale))] ^= 1 << draw.randrange(8)
        target, name = draw.choice(net.nodes), draw.choice(net.names)
        if target.name not in (name, node.name):
            pretended = next(each for each in net.nodes if each.name == name)
            net.after(
                draw.randint(0, 200) * MS, lambda: arrive(net, pretended, target, bytes(stale))
            )

    return sent


def arrive(net: QueueNetwork, node: Party, target: Party, data: bytes) -> None:
    """A frame comes as if this node had sent it."""
    net._arrive(node, target, data)  # pyright: ignore[reportPrivateUsage] - any party


KINDS = {"mute": mute, "late": late, "forger": forger}


def lie(net: QueueNetwork, liars: list[str], kind: str, draw: Random) -> None:
    """From here on what these send goes this way."""
    honest: Send = net.send
    lying = KINDS[kind](net, draw, honest)

    def sent(node: Party, peer: str, data: bytes) -> None:
        (lying if node.name in liars else honest)(node, peer, data)

    net.send = sent  # type: ignore[method-assign]


@pytest.mark.parametrize("n", [4, 7])
@pytest.mark.parametrize("kind", KINDS)
def test_liars_of_every_kind_change_nothing(kind: str, n: int) -> None:
    """rmq RQ-65, RQ-88, RT-50: as many as may lie, beside a crash and a cut: what must hold does, each message is
    decided once, and nobody is blamed without a proof."""
    for seed in range(2 if n == 4 else 1):
        draw = Random(seed)
        net = QueueNetwork(n, seed, settings=QUICK)
        lie(net, net.names[-((n - 1) // 3) :], kind, draw)
        net.start()
        net.run(2 * SECOND)
        client = net.client("shop-1")
        tickets: list[Submitted] = []
        for at in range(16):
            tickets.append(client.submit(b"%d" % at, dedupe=b"%d" % (at // 2), key=b"k"))
            net.run(draw.randint(10, 300) * MS)
            check_queue(net)
        net.queue_nodes[0].crash()
        net.run(500 * MS)
        net.queue_nodes[0].start()
        net.run(40 * SECOND)
        check_queue(net)
        check_receipts(net)
        check_always(net)
        check_proofs(net)
        check_evidence(net)
        ended = [each.outcome.kind if each.outcome else "open" for each in tickets]
        assert set(ended) <= {"finalized", "duplicate"}, ended
        assert ended.count("finalized") == 8
        assert not any(each.log.blamed for each in net.sessions().values())
