"""Audits in bulk: what was lost, repeated or out of order between two logs of any size.

    from surepipe.auditing import DuckEngine, Question, judge, place_of

    found = judge(DuckEngine(), Question(place_of("sent.parquet"), place_of("delivered.parquet")))
    print("\\n".join(found.lines()))

The same judgement runs on Spark (``surepipe.spark.auditing``). ``surepipe.simulation.audit`` judges smaller
traces row by row and looks at more: payloads, confirms, identities.
"""

from __future__ import annotations

from surepipe.auditing.duck import DuckEngine
from surepipe.auditing.engine import Engine
from surepipe.auditing.judging import Question, judge
from surepipe.auditing.places import Place, StoredStream, Traces, place_of
from surepipe.auditing.verdict import BulkAudit, Channel, Example, Moment

__all__ = [
    "BulkAudit",
    "Channel",
    "DuckEngine",
    "Engine",
    "Example",
    "Moment",
    "Place",
    "Question",
    "StoredStream",
    "Traces",
    "judge",
    "place_of",
]
