"""multi-unconfirmed: a hundred frames on the way at once, nothing is lost, and the order is gone."""

from surepipe import FaultyRoute, LocalRoute, Pipe

readings = list(range(1000))
arrived: list[int] = []


def store(reading: object) -> None:
    """An effect that can be repeated without harm."""
    assert isinstance(reading, int)
    arrived.append(reading)


lossy = FaultyRoute(LocalRoute(), loss=0.1, duplicate=0.05, delay=0.005, seed=7)
many = {"multi-unconfirmed": {"run_max": 10, "rto_initial_s": 0.1}}

with Pipe("readings", [many], route=lossy) as pipe:
    print("promised:", pipe.guarantee.headline.delivery)
    pipe.receive(store)
    pipe.send_many(readings)
    pipe.flush(timeout=30)

print("lost:", sorted(set(readings) - set(arrived)))
print("in order:", arrived == sorted(arrived))
