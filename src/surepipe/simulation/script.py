"""A run as a list of decisions: what is recorded while chance decides, and what decides when a run is repeated.

Whatever could go differently in a run is asked under a name that says what it is about (the frame, the event,
the store call), never by its place in a queue. A run that is drawn from a seed writes down each answer that
differs from the plain one (no fault, shortest delay, first come first served). The list of those answers,
with the options, is the script: it repeats the run without the generators, survives changes of them, and is
what shrinking makes shorter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

Plain: TypeAlias = int | str

SCRIPT_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Decision:
    """At ``at`` (the cause, by name), do ``verb`` with ``value``.

    ``authority`` is who decides: ``schedule``, ``network/<link>``, ``disk/<store>``, ``clock/<node>``,
    ``faults``, ``workload``, ``stage/<name>``. ``fault`` is the catalogue id of the fault that this is
    (``F1``), empty for what is none: delays within the timer, order of simultaneous events, the workload.
    """

    authority: str
    at: str
    verb: str
    value: tuple[Plain, ...] = ()
    fault: str = ""

    def __str__(self) -> str:
        words = " ".join(str(item) for item in self.value)
        text = f"{self.at}: {self.verb}{' ' + words if words else ''}"
        return f"{text} ({self.fault})" if self.fault else text


@dataclass(frozen=True, slots=True)
class Script:
    """Everything that a run depends on: the subject by name, the options as plain values, the decisions.

    ``code`` is a digest of the code and of the plan that wrote it: a seed repeats a run only under the same
    one, a script under any in which the named causes still occur.
    """

    subject: str
    options: Mapping[str, Plain]
    decisions: tuple[Decision, ...] = ()
    seed: int = 0
    code: str = ""
    format: int = field(default=SCRIPT_FORMAT)
