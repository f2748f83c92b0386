"""continuous-index: order on top of a carrier that loses nothing and delivers as frames arrive."""

from surepipe import FaultyRoute, LocalRoute, Pipe

events = [f"event {number}" for number in range(1000)]
arrived: list[object] = []

lossy = FaultyRoute(
    LocalRoute(), loss=0.1, duplicate=0.1, reorder=0.1, reorder_s=0.01, delay=0.005, seed=11
)
in_turn = {"continuous-index": {"run_max": 10}}  # outside: numbers, holds, orders
again = {"multi-unconfirmed": {"run_max": 1, "rto_initial_s": 0.1}}  # inside: sends again

with Pipe("events", [in_turn, again], route=lossy) as pipe:
    print("promised:", pipe.guarantee.headline.delivery, "and", pipe.guarantee.headline.order)
    pipe.receive(arrived.append)
    pipe.send_many(events)
    pipe.flush(timeout=30)

print("all, once, in order:", arrived == events)
