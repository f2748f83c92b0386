"""Layers as values: an editor completes their options, a type checker reads them, and a slip is told at once."""

from surepipe import ConfigurationError, ContinuousIndex, MultiUnconfirmed, Pipe

layers = [ContinuousIndex(), MultiUnconfirmed(window=512, run_max=64)]
seen: list[object] = []
with Pipe("orders", layers) as pipe:
    pipe.receive(seen.append)
    pipe.send_many(range(1000), until="confirmed")
    print(pipe)
print("in order, each once:", seen == list(range(1000)))

try:
    MultiUnconfirmed(window=0)
except ConfigurationError as error:
    print(error)
