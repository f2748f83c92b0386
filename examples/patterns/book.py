"""book: one tenant floods, another one has a single message, a third one's can never be paid."""

from surepipe.queues.book import BookConfig, BookMessage, BookQueue, Budget, Context, Cost
from surepipe.storage import MemoryStore

store = MemoryStore()


def call(message: BookMessage, context: Context) -> None:
    """What is staged is stored with the end of the message, or not at all."""
    context.append("calls", f"{message.origin} {message.payload.decode()}".encode())


def cost(payload: bytes) -> Cost:
    """One unit for each ten bytes."""
    return Cost(units=1 + len(payload) // 10)


config = BookConfig(quantum=2, max_message_cost=Budget(units=5))

with BookQueue.inline("api", store=store, processor=call, cost=cost, config=config) as book:
    book.enqueue_many("loud", [b"get /items"] * 1_000)
    book.enqueue("quiet", b"get /me")
    book.enqueue("giant", b"x" * 500)
    first = book.service(Budget(units=5))
    left = book.footprint("quiet").messages
    print(f"handled with five units: {first.ran}; of quiet there wait {left}")
    (parked,) = book.parked()
    print(parked.origin, "is parked:", parked.reason.value)

# Another process goes on where this one stopped.
with BookQueue.inline("api", store=store, processor=call, cost=cost, config=config) as book:
    while book.ring():
        book.service(Budget(units=100))
    print("by hand:", book.execute(parked.address).why.value)
    totals = book.totals()
    print("enqueued:", totals["enqueued"], "done:", totals["done"])
