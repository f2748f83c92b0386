"""Messages a second over TCP on this machine, beside the same pipe over the local route.

    python -m benchmarks.tcp [--messages 200000] [--rounds 3]

One process has both ends, 100-byte messages, sent with send_many and handled with receive_many; medians. The
ratios say what sockets, sealing and the coding of frames cost.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

from surepipe import LocalRoute, PipeReceiver, PipeSender, SharedKey, TcpRoute
from surepipe.actors import Route

PAYLOAD = b"x" * 100
KEY = SharedKey("a key for the benchmark, long enough")
Ends = Callable[[], tuple[Route, Callable[[], Route]]]


def _local() -> tuple[Route, Callable[[], Route]]:
    route = LocalRoute()
    return route, lambda: route


def _tcp(security: SharedKey | None) -> tuple[Route, Callable[[], Route]]:
    listening = TcpRoute.listen("127.0.0.1:0", security=security)
    return listening, lambda: TcpRoute.connect(f"127.0.0.1:{listening.port}", security=security)


def _rate(make: Ends, messages: int) -> float:
    listening, connect = make()
    with PipeReceiver("bench", route=listening) as receiver:
        receiver.receive_many(len)
        with PipeSender("bench", route=connect()) as sender:  # the port is known only now
            sender.send(PAYLOAD, until="confirmed")
            begin = time.perf_counter()
            sender.send_many([PAYLOAD] * messages)
            sender.flush(60)
            return messages / (time.perf_counter() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    kinds: dict[str, Ends] = {
        "local route": _local,
        "tcp, no key": lambda: _tcp(None),
        "tcp, shared key": lambda: _tcp(KEY),
    }
    found: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(chosen.rounds):
        for name, make in kinds.items():
            found[name].append(_rate(make, chosen.messages))
    base = median(found["local route"])
    print("| route | messages/s | of the local route |\n| --- | ---: | ---: |")
    for name, rates in found.items():
        print(f"| {name} | {median(rates):,.0f} | {median(rates) / base:.2f} |")


if __name__ == "__main__":
    main()
