"""A job queue without a single point of failure, in three terminals. Kill one of them, and watch nothing happen.

    surepipe node new prices --nodes 3 --faults crash --process examples.replicated_queue:price
    surepipe node prices/cluster.yaml --name n1              # in a terminal of its own; so n2 and n3

    surepipe submit prices/cluster.yaml tea milk beer        # in a fourth one: what becomes of them, step by step
    surepipe watch prices/cluster.yaml                       # what all are told, from now on

Then end one of the nodes by ``kill -9``, submit again, and start it again: it goes on where it was.

With four nodes and without ``--faults crash`` one of them may even lie.
"""

from __future__ import annotations

import json

from examples.orders import NoPrice
from examples.orders import price as price_of_order
from surepipe.actors.clusters import ProcessContext
from surepipe.queues.rmq import Done, Job, Refuse

PRICES = {b"tea": b"4.20", b"milk": b"1.10"}


def price(message: Job, context: ProcessContext) -> Done | Refuse:
    """What an item costs: computed on every node, so it only computes."""
    del context
    return Done(PRICES[message.body]) if message.body in PRICES else Refuse("unknown item")


def decide(message: Job, context: ProcessContext) -> Done | Refuse:
    """What an order of ``replicated.yaml`` costs."""
    del context
    try:
        return Done(json.dumps(price_of_order(json.loads(message.body))["cents"]).encode())
    except NoPrice as error:
        return Refuse(f"no price for {error}")
