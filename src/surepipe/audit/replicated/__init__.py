"""What the stores of a replicated queue's nodes show: ``read_node`` reads one, ``judge_queue`` judges them."""

from __future__ import annotations

from surepipe.audit.replicated.evidence import NodeRows, read_node
from surepipe.audit.replicated.judging import QueueAudit, judge_queue

__all__ = ["NodeRows", "QueueAudit", "judge_queue", "read_node"]
