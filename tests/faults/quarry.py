"""What hunts are after: the subjects of the product's cells, and stacks and bounds that ask for trouble.

Left out are pipes that send again on top of another one, most of which the algebra calls redundant: everything
arrives there, but an upper window that is faster than its carrier fills that with repeats, nobody knows how long.
"""

from __future__ import annotations

from collections.abc import Sequence

from surepipe.core.store_requests import Level, Retention
from surepipe.pipes.stack.boundary import BoundaryOptions
from surepipe.simulation.subjects import HopSubject
from tests.faults.product import (
    COMMITTED,
    CONTINUOUS,
    DEDUPE,
    MULTI,
    RELIABLE,
    RESEND,
    SEQUENTIAL,
    STRICT,
    SUBJECTS,
    hop,
    layer,
)

NARROW = {"window": 3, "backlog": 4, "run_max": 1}
LETTERS = BoundaryOptions(retries=2, dead_letters=True)
AT_ONCE = BoundaryOptions(retries=1, dead_letters=True)

STACKS: Sequence[HopSubject] = (
    hop("continuous-index over sequential-confirm", CONTINUOUS, SEQUENTIAL),
    hop("strict-monotonic over reliable", STRICT, RELIABLE),
    hop("dedupe over resend", DEDUPE, RESEND),
    hop("continuous-index over dedupe over multi-unconfirmed", CONTINUOUS, DEDUPE, MULTI),
    hop("multi-unconfirmed over strict-monotonic", MULTI, STRICT),
)
BOUNDS: Sequence[HopSubject] = (
    hop("reliable, narrow", layer("reliable", **NARROW)),
    hop("multi-unconfirmed, narrow", layer("multi-unconfirmed", **NARROW)),
    hop("resend, narrow", layer("resend", window=1, backlog=2, run_max=1)),
    hop("reliable, receives less", layer("reliable", receive_window=4)),
    hop(
        "continuous-index over multi-unconfirmed, few held",
        *(layer("continuous-index", receive_window=3), MULTI),
    ),
    hop(
        "dedupe over multi-unconfirmed, short memory",
        *(layer("dedupe", dedupe_window=32), layer("multi-unconfirmed", window=8)),
    ),
    # Outages last up to ten timeouts: here that is longer than the longest pause between two attempts.
    hop("reliable, short patience", layer("reliable", rto_max_s=0.4)),
    hop("multi-unconfirmed, short patience", layer("multi-unconfirmed", rto_max_s=0.4)),
    hop("stream, short patience", layer("stream", rto_max_s=0.4)),
    hop(
        "strict-monotonic over multi-unconfirmed, receives less",
        *(layer("strict-monotonic", receive_window=3), MULTI),
    ),
    # A stream brings more at once than the order pipe over it takes, so that what is refused is read again.
    *(
        hop(f"{kind} over stream, receives less", layer(kind, receive_window=3), layer("stream"))
        for kind in ("continuous-index", "strict-monotonic", "dedupe")
    ),
    *(
        hop(
            f"{kind} over stream, committed, journal",
            *(layer(kind), layer("stream")),
            journaled=True,
            **COMMITTED,
        )
        for kind in ("continuous-index", "strict-monotonic", "dedupe")
    ),
    # Holes outlast the alarm: it must be told, and asked about.
    hop("reliable, alarms soon", layer("reliable", gap_alarm_s=0.1)),
    hop(
        "continuous-index over multi-unconfirmed, alarms soon",
        *(layer("continuous-index", gap_alarm_s=0.1), MULTI),
    ),
    hop("stream, reads one, commits each", layer("stream", read_max=1, commit="message")),
    hop("stream, commits now and then", layer("stream", commit=0.5)),
)
FORCED = Retention(force=True)
LOUD: Sequence[HopSubject] = (
    # What they lose they must tell: entries go before they are read, by retention and by somebody else. A store
    # that has the positions too, and no other, knows its readers.
    hop(
        "stream, trimmed before it is read",
        layer("stream", on_trimmed="skip"),
        retention=FORCED,
        one_store=True,
        asks=("F29", "F29r"),
    ),
    hop(
        "stream, trimmed before it is read, stops there",
        layer("stream"),
        retention=FORCED,
        one_store=True,
        asks=("F29", "F29r"),
    ),
    # A reader falls behind at every burst: the bound must hold the sender up, or the reader tell what is gone.
    hop(
        "stream, holds few bytes",
        layer("stream", read_max=1),
        retention=Retention(max_bytes=24),
        one_store=True,
    ),
    hop(
        "stream, holds few bytes, by force",
        layer("stream", on_trimmed="skip", read_max=1),
        retention=Retention(max_bytes=24, force=True),
        one_store=True,
    ),
    hop(
        "stream, store goes back",
        layer("stream", on_diverged="earliest"),
        asks=("F14", "F13"),
        level=Level.INTERVAL,
    ),
    hop(
        "stream, journal, store goes back",
        layer("stream", on_diverged="earliest"),
        journaled=True,
        asks=("F14", "F13"),
        level=Level.INTERVAL,
    ),
)
BOUNDARIES: Sequence[HopSubject] = (
    hop("reliable, letters", RELIABLE, options=LETTERS),
    hop("multi-unconfirmed, letters", MULTI, options=LETTERS),
    hop(
        "reliable, committed, letters, journal",
        RELIABLE,
        options=LETTERS,
        journaled=True,
        **COMMITTED,
    ),
    # Each failure is a letter, so letters are many, and their store is away while some are written.
    hop(
        "reliable, committed, letters at once, journal",
        RELIABLE,
        options=AT_ONCE,
        journaled=True,
        **COMMITTED,
    ),
    hop(
        "stream, committed, letters at once, journal",
        layer("stream"),
        options=AT_ONCE,
        journaled=True,
        **COMMITTED,
    ),
    # Its letters wait for each other, and other messages come meanwhile.
    hop(
        "dedupe over multi-unconfirmed, committed, letters at once, journal",
        *(DEDUPE, MULTI),
        options=AT_ONCE,
        journaled=True,
        **COMMITTED,
    ),
    hop(
        "stream, committed, letters, journal",
        layer("stream"),
        options=LETTERS,
        journaled=True,
        **COMMITTED,
    ),
    hop("reliable, one delivery a time", RELIABLE, options=BoundaryOptions(deliver_max=1)),
    hop("multi-unconfirmed, journal", MULTI, journaled=True),
    hop("resend, journal", RESEND, journaled=True),
    hop(
        "dedupe over multi-unconfirmed, committed, journal",
        DEDUPE,
        MULTI,
        journaled=True,
        **COMMITTED,
    ),
    hop(
        "strict-monotonic over resend, committed, journal",
        STRICT,
        RESEND,
        journaled=True,
        **COMMITTED,
    ),
    hop("continuous-index over resend, journal", CONTINUOUS, RESEND, journaled=True),
)
NAMED = layer("stream", producer="p", reader="r")
SHARED: Sequence[HopSubject] = (
    # Processes that share a store must not take what belongs to each other, nor hold each other up.
    hop(
        "stream, two producers",
        layer("stream"),
        beside=[
            hop("stream, the other", layer("stream", stream="pipe"), pipe="other", only_sends=True)
        ],
    ),
    hop(
        "stream, two producers, journals, all in one store",
        layer("stream"),
        journaled=True,
        one_store=True,
        beside=[
            hop(
                "stream, journal, the other",
                layer("stream", stream="pipe"),
                pipe="other",
                only_sends=True,
                journaled=True,
                one_store=True,
            )
        ],
    ),
    hop(
        "stream, two in one store, journals, all of one name",
        NAMED,
        journaled=True,
        one_store=True,
        beside=[hop("stream, the other", NAMED, pipe="other", journaled=True, one_store=True)],
    ),
    hop(
        "reliable, committed, journal, two in one store",
        RELIABLE,
        journaled=True,
        one_store=True,
        beside=[
            hop(
                "reliable, the other",
                RELIABLE,
                pipe="other",
                journaled=True,
                one_store=True,
                **COMMITTED,
            )
        ],
        **COMMITTED,
    ),
)
LATE = ("F18l",)
LATE_STORES: Sequence[HopSubject] = (
    # Answers come after the patience for them, when the call was made again and perhaps answered.
    hop("stream, late answers", layer("stream"), asks=LATE),
    hop("stream, journal, late answers", layer("stream"), journaled=True, asks=LATE),
    hop(
        "stream, store goes back and answers late",
        layer("stream", on_diverged="earliest"),
        asks=("F14", *LATE),
    ),
    hop("reliable, journal, late answers", RELIABLE, journaled=True, asks=LATE),
    # A replaced receiver hears late that it was, and answers beside its successor.
    hop(
        "reliable, stored state, journal, late answers",
        RELIABLE,
        journaled=True,
        durable=True,
        asks=LATE,
    ),
)
QUARRY: Sequence[HopSubject] = (
    *(*SUBJECTS, *STACKS, *BOUNDS, *LOUD, *SHARED, *LATE_STORES, *BOUNDARIES),
)
