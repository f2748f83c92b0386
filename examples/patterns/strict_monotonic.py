"""strict-monotonic: positions over a one-way route; what is lost or late is gone, what arrives is newer."""

import threading
from itertools import count, pairwise

from surepipe import FaultyRoute, LocalRoute, Pipe

shown: list[int] = []
enough = threading.Event()


def show(position: object) -> None:
    """Move the dot on the map."""
    assert isinstance(position, int)
    shown.append(position)
    if position > 300:
        enough.set()


one_way = LocalRoute(one_way=True)
radio = FaultyRoute(one_way, loss=0.2, duplicate=0.1, reorder=0.2, reorder_s=0.02, seed=3)

with Pipe("positions", [{"strict-monotonic": {"run_max": 1}}], route=radio) as pipe:
    print("promised:", pipe.guarantee.headline.delivery, "and", pipe.guarantee.headline.order)
    pipe.receive(show)
    for position in count():  # nothing comes back: the sender never knows what arrived
        pipe.send(position)
        if enough.is_set():
            break
    counted = pipe.counters()

print("never back, never twice:", all(a < b for a, b in pairwise(shown)))
print("some were passed over:", counted["missing"] > 0)
