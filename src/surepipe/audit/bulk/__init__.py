"""Audits in bulk: what was lost, repeated or out of order between two logs of any size.

    from surepipe.audit.bulk import DuckEngine, Question, judge, place_of

    found = judge(DuckEngine(), Question(place_of("sent.parquet"), place_of("delivered.parquet")))
    print("
".join(found.lines()))

The same judgement runs on Spark (``surepipe.spark.audit``). ``surepipe.audit.trace_audit`` judges smaller
traces row by row and looks at more: payloads, confirms, identities.
"""

from __future__ import annotations

from surepipe.audit.bulk.engine import AuditEngine, DuckEngine
from surepipe.audit.bulk.judging import Question, judge
from surepipe.audit.bulk.logs import Place, StoredStream, Traces, place_of
from surepipe.audit.bulk.verdict import AuditMoment, BulkAudit, ChannelFigures, Example

__all__ = [
    "AuditEngine",
    "AuditMoment",
    "BulkAudit",
    "ChannelFigures",
    "DuckEngine",
    "Example",
    "Place",
    "Question",
    "StoredStream",
    "Traces",
    "judge",
    "place_of",
]
