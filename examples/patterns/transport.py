"""transport: a message queue, one timer and cumulative confirms, over a route that loses and repeats frames."""

from surepipe.queues.message_queue import BoundedQueue, Checked, Message, Transport
from surepipe.simulation import Options, run_hop


def queue() -> Checked[Message]:
    """What is sent and not confirmed yet; each call is held to the contract."""
    return Checked(BoundedQueue(capacity=64, increasing=True))


for transport in (
    Transport(queue, resend="lowest", receiver="discard"),
    Transport(queue, resend="window", receiver="reorder"),
):
    lossy = Options(messages=20, loss_ppm=100_000, copy_ppm=200_000, seed=1)
    result = run_hop(transport, lossy)
    rows = [row for row in result.rows if row.kind == "settled"]
    numbers = [number for row in rows for number in range(row.seq, row.last + 1)]
    print(f"{transport.name}: in order {numbers == list(range(1, 21))}, {result.violations}")
    print("  periods of the timer until the last one:", rows[-1].time_us // 1_000_000)
