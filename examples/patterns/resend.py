"""resend: everything arrives over a route that loses a quarter of its frames, some of it twice."""

from surepipe import FaultyRoute, LocalRoute, Pipe

orders = list(range(1, 13))
arrived: list[object] = []

# The confirms meet the same losses. One message a frame, and quick to try again.
lossy = FaultyRoute(LocalRoute(), loss=0.25, seed=4)
resend = {"resend": {"run_max": 1, "rto_initial_s": 0.02, "rto_min_s": 0.02, "rto_max_s": 0.05}}

with Pipe("orders", [resend], route=lossy) as pipe:
    print("promised:", pipe.guarantee.headline.delivery, "and", pipe.guarantee.headline.order)
    pipe.receive(arrived.append)
    pipe.send_many(orders)
    pipe.flush(timeout=30)

first_time = list(dict.fromkeys(arrived))
print("lost:", sorted(set(orders) - set(first_time)))
print("first arrivals in order:", first_time == orders)
print("some arrived again:", len(arrived) > len(orders))
