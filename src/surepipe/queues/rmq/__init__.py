"""The replicated queue: several nodes hold one queue together, and some of them may lie.

``surepipe.actors.clusters`` runs it.
"""

from __future__ import annotations

from surepipe.queues.rmq.catchain import (
    LogMachine,
    LogOptions,
    Voice,
)
from surepipe.queues.rmq.chain import Block, JobVerdict, VoteChain
from surepipe.queues.rmq.client import ClientMachine, Outcome, SignedReceipt, Submitted
from surepipe.queues.rmq.encoding import Ed25519Keys, Malformed, MemberKeys, Quorum, quorum
from surepipe.queues.rmq.entries import EntryReference, ForkProof, LogEntry, Member
from surepipe.queues.rmq.epochs import EpochRecord, Foundation, QueueSettings
from surepipe.queues.rmq.receipts import Receipt
from surepipe.queues.rmq.session import (
    Done,
    Job,
    JobOutcomes,
    Later,
    ProcessJobs,
    Refuse,
    SessionMachine,
)
from surepipe.queues.rmq.stored_log import (
    Release,
    Released,
    StoredLog,
    Withheld,
    open_log,
)

__all__ = [
    "Block",
    "ClientMachine",
    "Done",
    "Ed25519Keys",
    "EntryReference",
    "EpochRecord",
    "ForkProof",
    "Foundation",
    "Job",
    "JobOutcomes",
    "JobVerdict",
    "Later",
    "LogEntry",
    "LogMachine",
    "LogOptions",
    "Malformed",
    "Member",
    "MemberKeys",
    "Outcome",
    "ProcessJobs",
    "QueueSettings",
    "Quorum",
    "Receipt",
    "Refuse",
    "Release",
    "Released",
    "SessionMachine",
    "SignedReceipt",
    "StoredLog",
    "Submitted",
    "Voice",
    "VoteChain",
    "Withheld",
    "open_log",
    "quorum",
]
