"""Writes docs/fault-table.md: ``python -m tools.fault_table``; with ``--check`` it only compares.

The cells are those that ``tests/faults`` tries; the steps are those of the runs kept in ``tests/golden``.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import cast

from surepipe.core.claims import Atom, Fault, Faults, Guarantee, faults_told
from surepipe.guarantees import derive
from surepipe.simulation.chance.script import load
from surepipe.simulation.subjects import HopSubject
from tests.faults.cautious import CAUTIOUS, NOTES
from tests.faults.product import CELLS, SUBJECTS, Cell
from tools.pattern_hops import BETWEEN_PARTIES, BOOK
from tools.pattern_tables import table

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "fault-table.md"
PLAIN = ROOT / "tests" / "golden" / "explore.toml"

COLUMNS = {
    "RS": "resend",
    "RM": "multi-unconfirmed",
    "ST": "stream",
    "SQ": "sequential-confirm",
    "SM": "strict-monotonic",
    "CI": "continuous-index",
}
INTRODUCTION = """# What each pipe survives, and how the rest breaks

This page is generated (`python -m tools.fault_table`) from what the tests run. It has two parts.

**Pipes as they ship.** Every pipe and common stack is tried under every fault in a simulated world, for every atom
of its guarantee:

- *holds*: the guarantee covers the fault; runs with it, with all other covered faults together and in pairs, broke
  nothing;
- *breaks, n*: the guarantee does not cover it, and a run is kept that shows it, with this fault and none beside it
  that is not covered, and n decisions left after shrinking; each test run repeats it;
- *caution n*: not covered, and no run was found that breaks it; note n says why;
- a dot: the fault can't occur there.

In brackets stands the part of a word of `expect` that was tried, such as `process-crash (sender-crash)`.

**Plain patterns.** The six patterns with nothing added, explored exhaustively: the number of steps of the shortest
schedule that breaks the property (P2 no loss, P3 no duplicates, P4 monotonic, P5 strict, P6g gap-free, P7
absolute). *any*: on a route that may change the order of frames; *later*: counting only what was accepted after
the crash.
"""

OF_BOOKS = """### book, one queue, nothing parked

What handlers do anywhere. What they stage in the book's store happens once under all of these, but not in a store
that went back."""


OF_PARTIES = """### ibc, ordered, with a journal and boundary committed

Of messages without limits, in a pipeline. A relay that forges, repeats or forgets is no fault: it has no rights. A
store that went back stops its party."""


OF_REPLICATED = """### rmq, four nodes of which one may lie, on synced stores

Of messages that are placed and don't expire. `waits`: nothing is decided until enough nodes are back."""


@cache
def steps(path: Path) -> int:
    """How many decisions a kept run has."""
    return len(load(path).decisions)


def text_of(cell: Cell) -> str:
    """What stands in one place of the table."""
    if cell.is_tolerated:
        return "holds"
    if cell.id in CAUTIOUS:
        return f"caution {list(NOTES).index(CAUTIOUS[cell.id]) + 1}"
    return f"breaks, {steps(cell.path)}"


def product_table(subject: HopSubject) -> str:
    """Faults by atoms, for one subject."""
    found = {(cell.fault, cell.atom): text_of(cell) for cell in CELLS if cell.subject == subject}
    atoms = [atom for atom in Atom if any(atom is known for _, known in found)]
    rows = [
        [faults_told(frozenset({fault})), *(found.get((fault, atom), ".") for atom in atoms)]
        for fault in Fault
        if any((fault, atom) in found for atom in atoms)
    ]
    return table(["fault", *(atom.value for atom in atoms)], rows)


BOOK_TRIED: Mapping[Fault, str] = {
    Fault.SENDER_CRASH: "tests/simulation/test_book.py::test_processes_end_between_any_two_writes",
    Fault.SENDER_ZOMBIE: "tests/queues/book/test_book_processes.py::test_messages_of_a_producer_are_stored_once",
    Fault.RECEIVER_CRASH: "tests/queues/book/test_book_processes.py::"
    "test_a_dead_worker_repeats_calls_and_no_effects",
    Fault.RECEIVER_ZOMBIE: "tests/queues/book/test_book_processes.py::test_a_frozen_worker_is_fenced",
    Fault.HANDLER_FAILURE: "tests/actors/test_books.py::test_a_handler_that_exits_has_failed_at_its_message",
    Fault.STORE_OUTAGE: "tests/queues/book/test_book_crashes.py::test_answers_may_be_lost_at_any_write",
    Fault.STORE_ROLLBACK: "tests/queues/book/test_book_edges.py::"
    "test_a_store_that_went_back_is_told_and_old_addresses_find_nothing_else",
    Fault.CLOCK_STEP: "tests/queues/book/test_book_edges.py::"
    "test_wall_clocks_that_jump_end_no_claim_and_hold_up_nobody",
}
"""Which test does this to a book. They look at effects that are stored with the end of their message, which happen
once; the cells are about handlers, which may be called again."""


IBC_TRIED: Mapping[Fault, str] = {
    Fault.SENDER_CRASH: "tests/queues/ibc/test_party_crashes.py::test_a_party_is_killed_at_each_of_its_writes",
    Fault.SENDER_ZOMBIE: "tests/queues/ibc/test_signer.py::test_the_older_of_two_processes_is_fenced",
    Fault.RECEIVER_CRASH: "tests/pipelines/run/test_parties.py::"
    "test_processes_that_end_anywhere_lose_and_repeat_nothing",
    Fault.RECEIVER_ZOMBIE: "tests/simulation/test_ibc.py::test_processes_end_between_any_two_writes",
    Fault.RELAY_CRASH: "tests/simulation/test_ibc.py::test_processes_end_between_any_two_writes",
    Fault.HANDLER_FAILURE: "tests/queues/ibc/test_party.py::"
    "test_results_of_handlers_become_receipts_and_the_queue_goes_on",
    Fault.STORE_OUTAGE: "tests/queues/ibc/test_relay.py::"
    "test_an_end_that_does_not_answer_stalls_its_own_path_only",
    Fault.STORE_ROLLBACK: "tests/queues/ibc/test_signer.py::test_a_store_that_went_back_stops_the_party",
    Fault.CLOCK_STEP: "tests/queues/ibc/test_party.py::test_a_clock_that_is_set_back_goes_on_slowly",
}
"""Which test does this to two parties."""


RMQ_TRIED: Mapping[str, tuple[str, str]] = {
    "frames lost, repeated, overtaken, delayed": (
        "holds",
        "tests/simulation/test_rmq.py::test_every_message_is_decided_once_whatever_befalls_its_nodes",
    ),
    "a partition": (
        "holds, and waits",
        "tests/queues/rmq/test_session.py::test_a_minority_decides_nothing_and_loses_nothing",
    ),
    "client-crash": (
        "holds",
        "tests/actors/test_clusters.py::test_a_cluster_that_is_opened_again_goes_on",
    ),
    "one node crashes, anywhere": (
        "holds",
        "tests/queues/rmq/test_session.py::test_a_node_that_crashes_at_any_moment_votes_as_before",
    ),
    "all nodes crash": (
        "holds, and waits",
        "tests/actors/test_clusters.py::test_a_cluster_that_is_opened_again_goes_on",
    ),
    "a node is replaced, and goes on": (
        "holds",
        "tests/queues/rmq/test_log.py::test_a_later_process_of_a_node_ends_the_one_before",
    ),
    "handler-failure": (
        "holds",
        "tests/actors/test_clusters.py::test_a_function_that_always_raises_ends_refused",
    ),
    "store-outage at one node": (
        "holds",
        "tests/simulation/test_rmq.py::test_every_message_is_decided_once_whatever_befalls_its_nodes",
    ),
    "one store is lost, its guard is kept": (
        "holds",
        "tests/actors/test_clusters.py::test_a_node_that_lost_its_store_is_as_good_as_before",
    ),
    "one store and its guard go back": (
        "holds",
        "tests/queues/rmq/test_log.py::test_a_node_whose_store_and_guard_both_went_back_finds_its_height",
    ),
    "one node lies": (
        "holds",
        "tests/queues/rmq/test_session.py::test_a_queue_agrees_after_any_troubles",
    ),
    "clock-step": (
        "holds",
        "tests/queues/rmq/test_session.py::test_a_clock_that_is_wrong_stops_nothing",
    ),
}
"""What befalls a replicated queue, and which test does it."""


def rmq_table() -> str:
    """Of four nodes: each message decided once, the same at all of them."""
    rows = [
        [what, said, f"`{test.rpartition('::')[2]}`"] for what, (said, test) in RMQ_TRIED.items()
    ]
    return table(["what happens", "each message decided once, at all the same", "tried by"], rows)


def tried_table(guarantee: Guarantee, exhibits: Faults, tried: Mapping[Fault, str]) -> str:
    """Faults by atoms, and the test that tries each."""
    rows = [
        [
            faults_told(frozenset({fault})),
            *("holds" if guarantee.holds(atom, exhibits | {fault}) else "breaks" for atom in Atom),
            f"`{test.rpartition('::')[2]}`",
        ]
        for fault, test in tried.items()
    ]
    return table(["fault", *(atom.value for atom in Atom), "tried by"], rows)


def book_table() -> str:
    """Of one queue of a book."""
    one = derive(BOOK).of_one_key
    return tried_table(one.guarantee, one.exhibits, BOOK_TRIED)


def ibc_table() -> str:
    """Of an ordered pipe between two parties, without limits."""
    derived = derive(BETWEEN_PARTIES)
    return tried_table(derived.guarantee, derived.exhibits, IBC_TRIED)


def plain_cells() -> Iterator[tuple[str, str, str, int]]:
    """Fault, pattern, property and length of each schedule that exploration keeps."""
    for name, value in tomllib.loads(PLAIN.read_text(encoding="utf-8")).items():
        parts = name.split("-")
        entry = cast("dict[str, object]", value)
        length = entry.get("length")
        if len(parts) >= 3 and parts[1] in COLUMNS and isinstance(length, int):
            yield parts[0], parts[1], "-".join(parts[2:]), length


def plain_table() -> str:
    """Faults by patterns."""
    found: dict[tuple[str, str], list[str]] = {}
    for fault, pattern, broken, length in plain_cells():
        found.setdefault((fault, pattern), []).append(f"{broken} {length}")
    faults = list(dict.fromkeys(fault for fault, _ in found))
    rows = [
        [fault, *(", ".join(found.get((fault, pattern), ["."])) for pattern in COLUMNS)]
        for fault in sorted(faults, key=_by_number)
    ]
    return table(["fault", *COLUMNS.values()], rows)


def _by_number(fault: str) -> tuple[int, str]:
    digits = "".join(c for c in fault.partition("+")[0] if c.isdigit())
    return (int(digits or 0), fault)


def measured(kind: str) -> str:
    """What the tests measured of one pipe: the pattern with nothing added, then the pipe as it ships."""
    shortest = [
        f"{broken} by {fault} in {length} steps"
        for fault, pattern, broken, length in plain_cells()
        if COLUMNS[pattern] == kind
    ]
    lines = [f"With nothing added, the pattern breaks like this: {'; '.join(shortest)}.\n"] * bool(
        shortest
    )
    subject = next(one for one in SUBJECTS if one.name.partition(",")[0] == kind)
    return "\n".join([*lines, product_table(subject)])


def page() -> str:
    """The whole page."""
    parts = [
        *(INTRODUCTION, "## Pipes as they ship\n"),
        *(f"### {subject.name}\n\n{product_table(subject)}\n" for subject in SUBJECTS),
        f"{OF_BOOKS}\n\n{book_table()}\n",
        f"{OF_PARTIES}\n\n{ibc_table()}\n",
        f"{OF_REPLICATED}\n\n{rmq_table()}\n",
        "### Notes\n\n" + "\n".join(_notes()) + "\n",
        f"## Plain patterns\n\n{plain_table()}\n",
    ]
    return "\n".join(parts)


def _notes() -> Sequence[str]:
    return [f"{number}. {note}." for number, note in enumerate(NOTES, 1)]


def main() -> int:
    """1 when the page is not what it should be."""
    if "--check" in sys.argv[1:]:
        return int(PAGE.read_text(encoding="utf-8") != page())
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
