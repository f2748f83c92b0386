"""dedupe: each payment counts once, and none waits for another."""

from surepipe import FaultyRoute, LocalRoute, Pipe

payments = list(range(1000))
booked: list[int] = []


def book(payment: object) -> None:
    """An effect that must not be repeated."""
    assert isinstance(payment, int)
    booked.append(payment)


lossy = FaultyRoute(LocalRoute(), loss=0.1, duplicate=0.1, delay=0.005, seed=13)
once = {"dedupe": {"run_max": 10}}  # outside: drops what it has seen
again = {"multi-unconfirmed": {"run_max": 1, "rto_initial_s": 0.1}}  # inside: sends again

with Pipe("payments", [once, again], route=lossy) as pipe:
    print("promised:", pipe.guarantee.headline.delivery, "and order", pipe.guarantee.headline.order)
    pipe.receive(book)
    pipe.send_many(payments)
    pipe.flush(timeout=30)

print("each exactly once:", sorted(booked) == payments)
print("in order:", booked == payments)
