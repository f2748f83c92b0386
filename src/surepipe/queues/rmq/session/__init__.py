"""One session of a replicated queue at one node.

In layers, each of which knows those below it: ``state.py``, ``messages.py``, ``sealing.py``, ``voting.py``,
``proposing.py``, ``judging.py``, and ``machine.py``, which is what a host sees.
"""

from __future__ import annotations

from surepipe.queues.rmq.session.jobs import (
    Done,
    Job,
    JobOutcomes,
    Later,
    Outcome,
    ProcessJobs,
    Refuse,
)
from surepipe.queues.rmq.session.machine import SessionMachine
from surepipe.queues.rmq.session.state import Beginning, Ending

__all__ = [
    "Beginning",
    "Done",
    "Ending",
    "Job",
    "JobOutcomes",
    "Later",
    "Outcome",
    "ProcessJobs",
    "Refuse",
    "SessionMachine",
]
