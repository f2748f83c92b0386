"""strict-monotonic: positions over a one-way route; what is lost or late is gone, what arrives is newer."""

from itertools import pairwise

from surepipe import FaultyRoute, LocalRoute, Pipe

shown: list[int] = []


def show(position: object) -> None:
    """Move the dot on the map."""
    assert isinstance(position, int)
    shown.append(position)


one_way = LocalRoute(one_way=True)
radio = FaultyRoute(one_way, loss=0.2, duplicate=0.1, reorder=0.2, reorder_s=0.02, seed=3)

with Pipe("positions", [{"strict-monotonic": {"run_max": 1}}], route=radio) as pipe:
    print("promised:", pipe.guarantee.headline.delivery, "and", pipe.guarantee.headline.order)
    pipe.receive(show)
    pipe.send_many(range(500))
    pipe.flush(timeout=5)  # nothing comes back: all is handed to the route, and no more is known
    counted = pipe.counters()

print("never back, never twice:", all(a < b for a, b in pairwise(shown)))
print("some were passed over:", counted["missing"] > 0)
