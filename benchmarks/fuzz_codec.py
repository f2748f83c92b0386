"""Throw bytes at the codec: ``python -m benchmarks.fuzz_codec [inputs] [seed]``.

Inputs are valid frames, valid frames after an accident, bodies with a fresh checksum after an
accident, and random bytes. Whatever comes back must be a frame that encodes to the same bytes, or a
counted refusal; anything raised is a failure. The same seed gives the same inputs.
"""

from __future__ import annotations

import random
import struct
import sys
from dataclasses import dataclass, field
from time import perf_counter
from zlib import crc32

from surepipe.errors import MisuseError
from surepipe.pipes.wire.codec import NotAFrame, decode, encode
from tests.kit.frames import mutated, random_frame


@dataclass
class Report:
    """What a run saw; ``failures`` holds (what happened, the input in hexadecimal)."""

    inputs: int = 0
    frames: int = 0
    malformed: int = 0
    other_version: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def verdict(self) -> str:
        """One line for people."""
        return "no failure" if not self.failures else f"{len(self.failures)} FAILURES"


def resealed(data: bytes) -> bytes:
    """The bytes with a length and a checksum that fit, so that the fields behind them are read."""
    body = data[:4] + struct.pack(">I", max(len(data), 12)) + data[8:-4]
    return body + struct.pack(">I", crc32(body))


def one_input(rng: random.Random) -> bytes:
    """The next input."""
    kind = rng.randrange(8)
    if kind == 0:
        return rng.randbytes(rng.randrange(120))
    if kind == 1:
        return b"SP\1" + rng.randbytes(rng.randrange(120))
    data = encode(random_frame(rng, pipe=1, layers=3))
    if kind == 2:
        return data
    data = mutated(rng, data)
    return resealed(data) if kind >= 5 else data


def judge(data: bytes, report: Report) -> None:
    """Decode one input and hold the outcome against the rules."""
    report.inputs += 1
    try:
        outcome = decode(data)
        if isinstance(outcome, NotAFrame):
            report.malformed += outcome.counter == "malformed"
            report.other_version += outcome.counter == "version"
        else:
            report.frames += 1
            if encode(outcome) != data:
                report.failures.append(("encodes to other bytes", data.hex()))
    except MisuseError as error:
        report.failures.append((f"decoded but can't be encoded: {error}", data.hex()))
    except Exception as error:  # noqa: BLE001 - anything at all that is raised is what we look for
        report.failures.append((f"raised {error!r}", data.hex()))


def fuzz(inputs: int, seed: int) -> Report:
    """A run of this many inputs."""
    rng = random.Random(seed)
    report = Report()
    for _ in range(inputs):
        judge(one_input(rng), report)
    return report


def main() -> int:
    """The command: prints what was seen, the rate and the verdict."""
    inputs = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    began = perf_counter()
    report = fuzz(inputs, seed)
    rate = inputs / (perf_counter() - began)
    print(
        f"{inputs:,} inputs, seed {seed}: {report.frames:,} frames, {report.malformed:,} malformed, "
        f"{report.other_version:,} of another version; {rate:,.0f} inputs/s; {report.verdict()}"
    )
    for what, data in report.failures[:10]:
        print(f"  {what}: {data}")
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
