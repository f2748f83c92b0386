"""reliable: the default. Every message once, in order, over a route that does everything wrong."""

from surepipe import FaultyRoute, LocalRoute, Pipe

orders = [{"order": number} for number in range(1000)]
handled: list[object] = []

lossy = FaultyRoute(
    LocalRoute(), loss=0.1, duplicate=0.1, reorder=0.1, reorder_s=0.01, delay=0.005, seed=17
)

with Pipe("orders", [{"reliable": {"run_max": 10, "rto_initial_s": 0.1}}], route=lossy) as pipe:
    promised = pipe.guarantee.headline
    print("promised:", promised.delivery, "and", promised.order)
    print("not without storing more:", ", ".join(promised.lacks()))
    pipe.receive(handled.append)
    pipe.send_many(orders)
    pipe.flush(timeout=30)

print("all, once, in order:", handled == orders)
