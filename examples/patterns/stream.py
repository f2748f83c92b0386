"""stream: the sender is gone before the receiver starts; an answer of the store is lost on the way."""

from surepipe import StreamReceiver, StreamSender
from surepipe.core.store_requests import AppendRun
from surepipe.storage import MemoryStore
from surepipe.storage.faulty import FaultyStore, Misfortune

LAYERS = {"stream": {"start": "earliest", "rto_min_s": 0.02}}
store = FaultyStore(MemoryStore())
store.script(Misfortune.UNKNOWN, on=AppendRun)  # stored, and the answer does not arrive

with StreamSender("orders", LAYERS, store=store) as sender:
    sender.send_many(["bread", "milk", "tea"])
print("the sender is gone; the store has what it was given")

with StreamReceiver("orders", LAYERS, store=store) as receiver:
    receiver.finish()  # ends the loop at what is there now; without it the loop waits for more
    print("the receiver got:", list(receiver))
