"""IBC queues: a relay that repeats and forges does no harm, and a message that comes too late is taken back."""

from dataclasses import replace

from surepipe.queues.ibc import Party, Relay, Submission, Transaction
from surepipe.queues.ibc.relay import PartyEnd

ended: list[str] = []


class Liar(PartyEnd):
    """Submits everything three times: once changed, twice as it is."""

    def submit(self, submission: Submission) -> None:
        forged = tuple(replace(item, value=item.value[:-1] + b"!") for item in submission.items)
        for given in (replace(submission, items=forged), submission, submission):
            for outcome in self._party.submit(given).items:
                if outcome.kind != "done":
                    print(outcome.kind, outcome.code)


def deliver(_: Transaction, order: bytes) -> bytes:
    return b"will bring " + order


def confirmed(_: Transaction, order: bytes, answer: bytes) -> None:
    ended.append(f"{order.decode()}: {answer.decode()}")


def rolled_back(_: Transaction, order: bytes, code: int, __: bytes) -> None:
    ended.append(f"{order.decode()}: taken back, code {code}")


with Party("shop") as shop, Party("bakery") as bakery:
    orders = shop.module("orders")
    orders.handle("order", on_commit=confirmed, on_rollback=rolled_back)
    bakery.module("orders").handle("order", on_receive=deliver)
    shop.register("bakery", bakery.identity())
    bakery.register("shop", shop.identity())

    orders.send("bakery", "order", b"bread")
    Relay([(Liar(shop), Liar(bakery))]).settle(timeout_s=10)

    height = bakery.merkle.latest.height
    orders.send("bakery", "order", b"milk", timeout_height=height + 1)
    for _ in range(2):  # the bakery is busy with something else meanwhile
        bakery.module("oven").execute(lambda tx: tx.set(b"bake", b"%d" % tx.height))
    Relay([(shop, bakery)]).settle(timeout_s=10)
print(*ended, sep="\n")
