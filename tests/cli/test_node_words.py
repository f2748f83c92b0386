"""What a node of a replicated queue says of itself in its terminal."""

from __future__ import annotations

from pathlib import Path

from surepipe.actors.clusters import Cluster, ProcessContext
from surepipe.cli.commands import node
from surepipe.cli.output import Line
from surepipe.queues.rmq import Done, Job, QueueSettings

QUICK = QueueSettings(slot_timeout_us=300_000)


def echo(message: Job, context: ProcessContext) -> Done:
    """Its body."""
    del context
    return Done(message.body)


def words(lines: list[Line]) -> list[str]:
    """Without colours."""
    return [str(each) for each in lines]


def test_a_node_that_stands_still_says_who_is_missing(tmp_path: Path) -> None:
    """rmq RQ-98: with how many answer, how many are needed, and who is silent; and that it goes on."""
    with Cluster.local("orders", process=echo, path=tmp_path, settings=QUICK) as cluster:
        client = cluster.client("shop-1")
        assert client.submit(b"one").result(timeout_s=60).kind == "finalized"
        watch = node._Watch(cluster, "n1")  # pyright: ignore[reportPrivateUsage] - what the command shows
        began: list[str] = []
        while not any("takes part in epoch 1" in each for each in began):
            began += words(watch.look(0.0))
        for name in ("n3", "n4"):
            cluster.kill(name)
        ticket = client.submit(b"two")
        while not cluster.seen("n1").undecided:
            ticket.wait(0.05, more_than=len(ticket.history()))
        watch.look(1.0)
        said = words(watch.look(13.0))
        assert [each for each in said if "no block for" in each] == [
            "n1 no block for 13 s: 2 of 4 answer, 3 are needed; silent: n3, n4"
        ]
        for name in ("n3", "n4"):
            cluster.start(name)
        assert ticket.result(timeout_s=60).kind == "finalized"
        while not any("goes on" in each for each in said):
            said += words(watch.look(14.0))
