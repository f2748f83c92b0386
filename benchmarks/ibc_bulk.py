"""Files of stored proofs, verified by one process and by one for each core, in turns: the clock on the wall, and
what each process takes of the processor. Processes are started anew and import this file, so it imports little.

python -m benchmarks.ibc_bulk 1000000     so many proofs, of a tree of ten thousand keys
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from surepipe.audit.proofs import ProofAudit, StoredProof, verify_files, write_proofs

KEYS = 10_000
TURNS = 3


def write(count: int, file: Path) -> None:
    """A file of so many proofs."""
    from benchmarks.ibc import VALUE, key_of  # noqa: PLC0415 - not in each process
    from surepipe.queues.ibc import MerkleStore, encode_chain  # noqa: PLC0415 - as above
    from surepipe.storage import MemoryStore  # noqa: PLC0415 - as above

    merkle = MerkleStore(MemoryStore())
    merkle.open()
    block = merkle.begin()
    for number in range(KEYS):
        block.set("ibc", key_of(number), VALUE)
    version = merkle.commit(block, 1)
    keys = [key_of(number) for number in range(KEYS)]
    rows = [
        StoredProof(
            version.root, encode_chain(merkle.prove("ibc", [key])), b"ibc", (key,), (VALUE,)
        )
        for key in keys
    ]
    write_proofs((rows[number % KEYS] for number in range(count)), file)


def processor() -> tuple[float, float]:
    """Seconds of this process, and of those that it has started and that have ended."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    own, others = (each.ru_utime + each.ru_stime for each in both)
    return own, others


def main(arguments: Sequence[str]) -> int:
    """Print a table."""
    count, cores = int(arguments[0]), os.cpu_count() or 1
    print(
        "| processes | by the clock | processor: this process | each other | at the best, with idle cores |"
    )
    print("| ---: | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "proofs.parquet"
        write(count, file)
        for workers in (1, cores) * TURNS:
            begin, before = time.perf_counter(), processor()
            assert verify_files([file], workers) == ProofAudit(count, count)
            took = time.perf_counter() - begin
            own, others = (a - b for a, b in zip(processor(), before, strict=True))
            each = others / max(1, workers - 1)
            print(
                f"| {workers} | {took:.1f} s | {own:.1f} s | {each:.1f} s | {max(own, each):.1f} s |",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
