"""A replicated queue as users run it: nodes, clients, and several of them in one process.

    with Cluster.local("orders", nodes=4, process=price, path="orders") as cluster:
        client = cluster.client("shop-1")
        ticket = client.submit(b"tea", key=b"customer-7")
        assert ticket.result(timeout_s=10).value == b"4.20"

A node is an actor around a ``NodeMachine`` (``queues/rmq/node/``). It has a clerk for its store and guard,
another actor for the user's function, and decides nothing.
"""

from surepipe.actors.clusters.client import QueueClient, Ticket
from surepipe.actors.clusters.cluster import Cluster, NodeSeen
from surepipe.actors.clusters.node import QueueNode
from surepipe.actors.clusters.worker import Function, ProcessContext, checked_function

__all__ = [
    "Cluster",
    "Function",
    "NodeSeen",
    "ProcessContext",
    "QueueClient",
    "QueueNode",
    "Ticket",
    "checked_function",
]
