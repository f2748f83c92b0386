"""Requests to the user's function, and its answers."""

from __future__ import annotations

from typing import TypeAlias

from surepipe.core.records import record


@record
class Job:
    """A message that is to be processed, as the user's function gets it."""

    id: bytes
    uid: bytes
    key: bytes
    body: bytes
    submitter: str
    epoch: int
    expires_ms: int


@record
class ProcessJobs:
    """A request: run the user's function on these, with the time of their block. Answered ``Processed``."""

    jobs: tuple[Job, ...]
    time_ms: int


@record
class Done:
    """The message is processed, with this result."""

    result: bytes = b""


@record
class Refuse:
    """Not by this node, for this reason."""

    reason: str


@record
class Later:
    """Not now."""

    after_us: int = 1_000_000


Outcome: TypeAlias = Done | Refuse | Later


@record
class JobOutcomes:
    """An outcome for each job, in their order; what the function raises is ``Later``, and at last ``Refuse``."""

    outcomes: tuple[Outcome, ...]
