"""Fan-out and fan-in with keys: two branches of one pipe, each customer in order, together in one file.

Every payment goes to the ledger and to the check for fraud, which is slow: it handles four customers at once,
and the payments of each customer one after the other. Both branches end in one file. The pipeline is run twice
over the same store, as after a restart: the second run finds nothing to do.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from surepipe.pipelines import loads
from surepipe.pipelines.run import run

PIPELINE = """
version: 1
name: payments
stores: {main: {kind: sqlite, path: payments.db}}
sources: {payments: {kind: jsonl, path: payments.jsonl, key: customer}}
pipes:
  intake: {from: payments, journal: main, state: main}
  suspects: {from: intake, lanes: 4, journal: main, state: main, expect: {order: absolute, per: key}}
stages:
  booked: {from: intake, map: "fan_out_in:booked"}
  judged: {from: suspects, map: "fan_out_in:judged", retries: 3, dead_letter: main/unjudged}
sinks:
  out: {from: [booked, judged], kind: jsonl, path: out.jsonl}
"""
CUSTOMERS, PAYMENTS = 8, 160


def booked(payment: Mapping[str, object]) -> dict[str, object]:
    """The ledger's line."""
    return {**payment, "line": "booked"}


def judged(payment: Mapping[str, object]) -> dict[str, object]:
    """A slow question to somebody else."""
    time.sleep(0.002)
    return {**payment, "line": "judged"}


def main() -> None:
    """Run it twice, and look at what is in the file."""
    sys.path.insert(0, str(Path(__file__).parent))  # where fan_out_in is, for the pipeline
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        payments = [{"customer": f"c{n % CUSTOMERS}", "number": n} for n in range(PAYMENTS)]
        Path("payments.jsonl").write_text("".join(json.dumps(one) + "\n" for one in payments))
        for _ in range(2):
            run(loads(PIPELINE))
        lines = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
        os.chdir("/")
    for kind in ("booked", "judged"):
        for customer in range(CUSTOMERS):
            numbers = [
                one["number"]
                for one in lines
                if (one["line"], one["customer"]) == (kind, f"c{customer}")
            ]
            assert numbers == list(range(customer, PAYMENTS, CUSTOMERS)), (kind, customer, numbers)
    print(f"{len(lines)} lines: each payment booked once and judged once, each customer in order")


if __name__ == "__main__":
    main()
