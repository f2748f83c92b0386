"""Replicated queues: each of four nodes is killed in turn, and every order is decided once."""

from surepipe.actors.clusters import Cluster, ProcessContext
from surepipe.queues.rmq import Done, Job, Refuse

PRICES = {b"tea": b"4.20", b"milk": b"1.10"}


def price(order: Job, _context: ProcessContext) -> Done | Refuse:
    return Done(PRICES[order.body]) if order.body in PRICES else Refuse("unknown item")


with Cluster.local("orders", nodes=["a", "b", "c", "d"], process=price) as nodes:
    shop = nodes.client("shop-1")

    def told(item: bytes, dedupe: bytes = b"") -> str:
        ended = shop.submit(item, dedupe=dedupe).result(timeout_s=60)
        return f"{item.decode()}: {ended.kind} {ended.value.decode() or ended.reason}"

    print(told(b"tea", b"order-17"))
    for name in nodes.nodes:
        nodes.kill(name)
        print(told(b"milk"), "without", name)
        nodes.start(name)
    print(told(b"tea", b"order-17"), "as the shop asks again")
    print(told(b"beer"))
