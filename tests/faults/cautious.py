"""Cells that are declared as not tolerated and that no run was found to break, each under a note that says why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product

from surepipe.core.claims import Atom, Fault
from tests.faults.product import BY_NAME, Cell


def cells(names: Iterable[str], atoms: Iterable[Atom], *faults: Fault) -> list[str]:
    """Each of these subjects with each of these atoms and faults."""
    return [
        Cell(BY_NAME[name], atom, fault, is_tolerated=False).id
        for name, atom, fault in product(names, atoms, faults)
    ]


RESTRAINING = (Atom.NO_DUPLICATE, Atom.MONOTONIC)
HAND_OVER = (Atom.NO_LOSS, Atom.GAP_FREE)
STREAMS = ("stream", "stream, store syncs now and then", "stream, letters")

NOTES: Mapping[str, list[str]] = {
    "sender-zombie without a journal: a replaced sender numbers anew only what it still keeps and was never "
    "answered for; index pipes on a bare route keep nothing, reliable and stream send nothing before they were "
    "answered, resend hears of one message before it sends the next, and a window hears of what it sent before it "
    "hears that it is replaced, where frames are neither lost nor overtaken, so nothing comes again": [
        *cells(
            [
                *("reliable", "reliable, committed"),
                *("strict-monotonic", "strict-monotonic, before"),
                *("continuous-index over resend", "strict-monotonic over resend", *STREAMS),
            ],
            [Atom.NO_DUPLICATE],
            Fault.SENDER_ZOMBIE,
        ),
        *cells(["dedupe", "continuous-index, local route"], RESTRAINING, Fault.SENDER_ZOMBIE),
        *cells(["dedupe over multi-unconfirmed"], [Atom.MONOTONIC], Fault.SENDER_ZOMBIE),
    ],
    "store-rollback and store-crash, order and repeats, stream without a journal: what went back is read by an "
    "end that starts; a reader that runs keeps its place and stops where the stream has become shorter, and one "
    "that starts again repeats without that": [
        *cells(STREAMS, RESTRAINING, Fault.STORE_ROLLBACK),
        *cells(["stream, store syncs now and then"], RESTRAINING, Fault.STORE_CRASH),
    ],
    "handler-failure and store-rollback, no-loss and gap-free, without a journal: what is judged is that a "
    "message was handed over, and that is not undone; lost is what its handler did, when it fails with boundary "
    "before, or when the store that has it goes back": [
        *cells(
            ["strict-monotonic, before"],
            HAND_OVER,
            *(Fault.HANDLER_FAILURE, Fault.STORE_ROLLBACK),
        ),
        *cells(["reliable, committed"], HAND_OVER, Fault.STORE_ROLLBACK),
    ],
}

CAUTIOUS: Mapping[str, str] = {id_: note for note, ids in NOTES.items() for id_ in ids}
"""Each such cell with its note."""
