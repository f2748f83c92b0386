"""A pipeline for the tests of what is shown of one: fan-in, fan-out, two pipes, another node; and its numbers."""

from __future__ import annotations

from functools import cache

from surepipe.observe.latency import Latencies
from surepipe.observe.status import Counts
from surepipe.observe.watch import Watch
from surepipe.pipelines import Assessment, Plan, assess, loads
from surepipe.pipelines.live import watch

SHOP = """\
version: 1
name: shop
stores: {main: {kind: sqlite, path: shop.db}}
sources:
  web: {kind: jsonl, path: web.jsonl}
  app: {kind: jsonl, path: app.jsonl}
pipes:
  intake: {from: [web, app]}
  second: {from: price, route: {kind: sqlite, store: main}, node: books}
stages:
  price: {from: intake, call: "shop:price"}
  large: {from: second, filter: "shop:is_large"}
sinks:
  log: {from: price, kind: jsonl, path: log.jsonl}
  out: {from: large, kind: stdout}
"""


@cache
def assessed() -> Assessment:
    """What there is to say of the plan, which takes a while to find."""
    return assess(loads(SHOP))


@cache
def wide(beside: bool) -> Assessment:
    """Twelve pipes with the longest names: beside each other, or one behind the other."""
    names = [f"pipe-{number:02}-".ljust(64, "n") for number in range(12)]
    feeders = ["lines", *names[:-1]] if not beside else ["lines"] * 12
    pipes = "".join(
        f"  {name}: {{from: {feeder}}}\n" for name, feeder in zip(names, feeders, strict=True)
    )
    ends = ", ".join(names if beside else names[-1:])
    return assess(
        loads(
            f"version: 1\nname: {'w' * 64}\nsources: {{lines: {{kind: stdin}}}}\npipes:\n{pipes}"
            f"sinks: {{out: {{from: [{ends}], kind: stdout}}}}\n"
        )
    )


class Shop:
    """The node main of the shop, which counts what a test says, in a time that stands still.

    Or another pipeline that was assessed.
    """

    def __init__(self, assessment: Assessment | None = None) -> None:
        self.assessment = assessment or assessed()
        self.plan: Plan = self.assessment.plan
        self.now = 100.0
        self.counts: dict[str, dict[str, int]] = {}
        self.latencies = Latencies()
        self.watch: Watch = watch(
            self.assessment, self._counted, self.latencies, clock=lambda: self.now
        )

    def _counted(self) -> Counts:
        return self.counts

    def run(self, messages: int, seconds: float = 1.0, **intake: int) -> None:
        """So many messages went through since the beginning, and so much time."""
        self.now += seconds
        ends = {"settled": messages, "in_work": 0, "held": 0, "duplicate": 0, "dead_lettered": 0}
        pipe = {"accepted": messages, "in_flight": 0, "backlog": 0, "retransmitted": 0}
        self.counts = {
            "web": {"taken": messages},
            "intake": {**pipe, "confirmed": messages, "oldest_unconfirmed_us": 0, **ends, **intake},
            "price": {"passed": messages},
            "second": {**pipe, "confirmed": messages},
            "log": {"taken": messages},
        }
