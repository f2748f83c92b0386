"""Stored proofs, verified in bulk: files of millions, on all cores here or on Spark (``surepipe.spark.proofs``).

    chain = encode_chain(store.prove("ibc", [key]))
    write_proofs([StoredProof(version.root, chain, b"ibc", (key,), (value,))], Path("kept.parquet"))
    print(*verify_files([Path("kept.parquet")]).lines(), sep="\n")

A row says: under this root this space has these keys with these values, and here is the chain that shows it.
Whether the root is to be believed is not asked; take it from a header that is.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import reduce
from importlib import import_module
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from surepipe.errors import ConfigurationError
from surepipe.queues.ibc.ics23 import STORE_SPECS, verify_items
from surepipe.queues.ibc.proof import CommitmentProof, ProofError
from surepipe.queues.ibc.wire import decode_chain, parts_of_chain

COLUMNS: tuple[str, ...] = ("root", "proof", "space", "keys", "values")
ROWS_OF_A_GROUP = 4096
EXAMPLES_MAX = 10


@dataclass(frozen=True, slots=True)
class StoredProof:
    """Which values (None: that it has none) keys of a space have under a root, and the chain that shows it. A
    chain over a batch shows many."""

    root: bytes
    proof: bytes
    space: bytes
    keys: tuple[bytes, ...]
    values: tuple[bytes | None, ...]


@dataclass(frozen=True, slots=True)
class ProofAudit:
    """What came of many stored proofs. ``examples``: root, space and key of some that are not shown."""

    rows: int = 0
    shown: int = 0
    not_shown: int = 0
    examples: tuple[tuple[bytes, bytes, bytes], ...] = ()

    def __add__(self, other: ProofAudit) -> ProofAudit:
        examples = (*self.examples, *other.examples)[:EXAMPLES_MAX]
        return ProofAudit(
            self.rows + other.rows,
            self.shown + other.shown,
            self.not_shown + other.not_shown,
            examples,
        )

    def lines(self) -> Iterator[str]:
        """For a person."""
        yield f"{self.rows:,} stored proofs of {self.shown + self.not_shown:,} keys: {self.shown:,} are shown"
        if self.not_shown:
            yield f"broken: {self.not_shown:,} are not shown by their proofs"
        for root, space, key in self.examples:
            name = space.decode("utf-8", "backslashreplace")
            yield f"  not shown: {key.hex()} in {name}, under the root {root.hex()}"


def verify_rows(rows: Iterable[StoredProof]) -> Iterator[list[bool]]:
    """For each row whether each of its keys is shown; false for all where the bytes are no proof."""
    for row in rows:
        chain: tuple[CommitmentProof | bytes, ...] | None = parts_of_chain(row.proof)
        if chain is None:
            try:
                chain = decode_chain(row.proof)
            except ProofError:
                chain = ()
        items = list(zip(row.keys, row.values, strict=False))
        shown = verify_items(STORE_SPECS, row.root, chain, (row.space,), items)
        yield [*shown, *[False] * (max(len(row.keys), len(row.values)) - len(shown))]


def audited(rows: Sequence[StoredProof]) -> ProofAudit:
    """What came of these rows."""
    verdicts = list(verify_rows(rows))
    shown = sum(sum(each) for each in verdicts)
    wrong = (
        (row.root, row.space, key)
        for row, each in zip(rows, verdicts, strict=True)
        for key, holds in zip(row.keys, each, strict=False)
        if not holds
    )
    count = sum(len(each) for each in verdicts)
    return ProofAudit(len(rows), shown, count - shown, tuple(islice(wrong, EXAMPLES_MAX)))


def verify_files(files: Sequence[Path], workers: int | None = None) -> ProofAudit:
    """Verify all proofs of some files, by so many processes; by one for each core when nothing is said.

    Processes are started anew, so a program calls this under ``if __name__ == "__main__"``. Raises
    ConfigurationError for what is no file of proofs, and BrokenProcessPool when a process is killed: nothing is
    said of the proofs then.
    """
    groups = [(file, number) for file in files for number in range(_groups_of(file))]
    count = min(workers or os.cpu_count() or 1, len(groups))
    if count <= 1:
        return reduce(ProofAudit.__add__, map(_audited_group, groups), ProofAudit())
    pool = ProcessPoolExecutor(count - 1, mp_context=get_context("spawn"))
    try:
        return reduce(ProofAudit.__add__, _audited_beside(pool, groups), ProofAudit())
    finally:
        pool.shutdown(cancel_futures=True)


def _audited_beside(
    pool: ProcessPoolExecutor, groups: Sequence[tuple[Path, int]]
) -> list[ProofAudit]:
    """What came of each group. The pool takes them from the front and this process from the end: it need not wait
    until the others have started, which takes as long as the proofs of some groups."""
    others = [pool.submit(_audited_group, group) for group in groups]
    own: list[ProofAudit] = []
    while len(own) < len(groups) and others[-1 - len(own)].cancel():
        own.append(_audited_group(groups[-1 - len(own)]))
    taken = others[: len(groups) - len(own)]
    return [*(each.result() for each in taken), *reversed(own)]


def _audited_group(group: tuple[Path, int]) -> ProofAudit:
    file, number = group
    with _opened(file) as read:
        table = read.read_row_group(number, columns=list(COLUMNS))
    return audited([row_of(row) for row in cast("list[dict[str, Any]]", table.to_pylist())])


def row_of(columns: Mapping[str, Any]) -> StoredProof:
    """A row from its columns, of which each may be missing: what isn't there shows nothing."""
    root, proof, space = (columns[name] or b"" for name in COLUMNS[:3])
    keys = tuple([key or b"" for key in columns["keys"] or ()])
    return StoredProof(root, proof, space, keys, tuple(columns["values"] or ()))


def write_proofs(rows: Iterable[StoredProof], file: Path) -> None:
    """Write a Parquet file of stored proofs. Raises ConfigurationError without pyarrow."""
    arrow, parquet = _pyarrow("pyarrow"), _pyarrow("pyarrow.parquet")
    kinds = [arrow.binary()] * 3 + [arrow.list_(arrow.binary())] * 2
    schema = arrow.schema(list(zip(COLUMNS, kinds, strict=True)))
    left = iter(rows)
    with parquet.ParquetWriter(file, schema) as writer:
        while chunk := list(islice(left, ROWS_OF_A_GROUP)):
            columns = [[getattr(row, name) for row in chunk] for name in COLUMNS]
            writer.write_table(arrow.table(columns, schema=schema))


def _groups_of(file: Path) -> int:
    with _opened(file) as read:
        check_columns(file, read.schema_arrow.names)
        return cast("int", read.num_row_groups)


def check_columns(file: Path, names: Sequence[str]) -> None:
    """Raises ConfigurationError for a table that has no proofs."""
    missing = [name for name in COLUMNS if name not in names]
    if missing:
        raise ConfigurationError(
            f"{file} is no file of stored proofs: column {', '.join(missing)} is missing; write_proofs makes "
            "them all"
        )


def _opened(file: Path) -> Any:
    try:
        return _pyarrow("pyarrow.parquet").ParquetFile(file)
    except (OSError, ValueError) as error:  # pyarrow's own errors are ValueErrors
        raise ConfigurationError(f"{file} can't be read as Parquet: {error}") from error


def _pyarrow(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ImportError:
        raise ConfigurationError(
            "files of proofs need pyarrow: pip install 'surepipe[parquet]'"
        ) from None
