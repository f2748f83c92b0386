"""stream: the sender is gone before the receiver starts; an answer of the store is lost on the way."""

import threading
from typing import cast

from surepipe import LocalRoute
from surepipe.actors import ReceiverEnd, SenderEnd
from surepipe.actors.codecs import BytesCodec
from surepipe.actors.consumer import each
from surepipe.pipes.options import parse_layers
from surepipe.storage.memory import MemoryStore
from surepipe.store_api import (
    KEEP_ALL,
    AppendRun,
    StoreOutcome,
    StoreRequest,
    StreamInfo,
    Unavailable,
    perform,
)


def look_up_often(more: threading.Condition, timeout_us: int) -> None:
    """How the store lets a reader wait for more entries: briefly, so that this script ends soon."""
    more.wait(min(timeout_us, 50_000) / 1_000_000)


LAYERS = parse_layers({"stream": {"start": "earliest", "rto_min_s": 0.02}})
store = MemoryStore(pause=look_up_often)
store.create("orders", 1, KEEP_ALL)
lost: list[StoreOutcome] = []


def call(request: object) -> StoreOutcome:
    """Ask the store; the answer to the first append gets lost."""
    outcome = perform(cast("StoreRequest", request), store, store)
    if isinstance(request, AppendRun) and not lost:
        lost.append(outcome)
        return Unavailable("the answer was lost")
    return outcome


# Nothing travels between the two ends themselves: each has a route of its own that leads nowhere.
sender = SenderEnd("orders", LAYERS, LocalRoute(one_way=True).sender, call=call)
sender.start()
for order in (b"bread", b"milk", b"tea"):
    sender.intake.put(order)
sender.close(timeout=10)  # returns when all are confirmed: the store has them
info = store.info("orders")
assert isinstance(info, StreamInfo)
print("the sender is gone; stored:", info.next - info.earliest, "answers lost:", len(lost))

arrived: list[object] = []
complete = threading.Event()


def handle(order: object) -> None:
    """Take an order."""
    arrived.append(order)
    if len(arrived) == 3:
        complete.set()


receiver = ReceiverEnd("orders", LAYERS, LocalRoute(one_way=True).receiver, call=call)
receiver.start()
receiver.consume(each(handle, BytesCodec()))
complete.wait(10)
receiver.stop(timeout=10)
print("the receiver got:", arrived)
