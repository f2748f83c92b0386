"""A run as a list of decisions: what is recorded while chance decides, and what decides when a run is repeated.

Whatever could go differently in a run is asked under a name that says what it is about (the frame, the event,
the store call), never by its place in a queue. A run that is drawn from a seed writes down each answer that
differs from the plain one (no fault, shortest delay, first come first served). The list of those answers,
with the options, is the script: it repeats the run without the generators, survives changes of them, and is
what shrinking makes shorter.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias, cast

from surepipe.errors import ConfigurationError

Plain: TypeAlias = int | str

SCRIPT_FORMAT = 1
_NO_SCRIPT = "this is no script of a simulated run"
_HEAD = frozenset({"format", "subject", "options", "decisions"})


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


# Scripts as files: JSON that people can read, change and keep, one decision on a line.


def dump(script: Script) -> str:
    """A script as text."""
    head = {
        "format": script.format,
        "subject": script.subject,
        "seed": script.seed,
        "code": script.code,
        "options": dict(script.options),
    }
    lines = [json.dumps(_plain(decision)) for decision in script.decisions]
    body = ",\n  ".join(lines)
    decisions = f"[\n  {body}\n ]" if lines else "[]"
    text = json.dumps(head, indent=1, sort_keys=True)
    return f'{text[:-2]},\n "decisions": {decisions}\n}}\n'


def _plain(decision: Decision) -> list[object]:
    return [decision.authority, decision.at, decision.verb, list(decision.value), decision.fault]


def parse(text: str) -> Script:
    """A script from its text. Raises ConfigurationError for anything else, and for a newer format."""
    try:
        found = cast("object", json.loads(text))
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{_NO_SCRIPT}: it is no JSON ({error})") from error
    if not isinstance(found, dict):
        raise ConfigurationError(f"{_NO_SCRIPT}: it is no JSON object")
    known = cast("dict[str, object]", found)
    if not _HEAD & known.keys():
        raise ConfigurationError(f"{_NO_SCRIPT}: it has none of {', '.join(sorted(_HEAD))}")
    version = known.get("format")
    if not isinstance(version, int) or version > SCRIPT_FORMAT:
        raise ConfigurationError(
            f"this script has format {version!r}, and this version reads up to {SCRIPT_FORMAT}: "
            "use the version that wrote it, or a newer one"
        )
    try:
        return Script(
            str(known["subject"]),
            dict(cast("dict[str, Plain]", _is_a(dict, known["options"]))),
            tuple(map(_decision, cast("list[object]", _is_a(list, known["decisions"])))),
            int(cast("int", known["seed"])),
            str(known.get("code", "")),
            version,
        )
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        raise ConfigurationError(
            f"this script is damaged ({type(error).__name__}: {error}): simulate again for a new one"
        ) from error


def _is_a(kind: type, value: object) -> object:
    """The value, where it is one of this kind: an empty one of another would go for a script without decisions."""
    if not isinstance(value, kind):
        raise TypeError(f"{value!r:.40} is no {kind.__name__}")
    return value


def _decision(item: object) -> Decision:
    authority, at, verb, value, fault = cast("list[object]", _is_a(list, item))
    values = cast("list[Plain]", _is_a(list, value))
    return Decision(str(authority), str(at), str(verb), tuple(values), str(fault))


def save(script: Script, path: Path) -> None:
    """Write a script to a file."""
    path.write_text(dump(script), encoding="utf-8")


def load(path: Path) -> Script:
    """Read a script from a file. Raises ConfigurationError, with the file, when it is none."""
    try:
        return parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise ConfigurationError(f"{path}: can't be read: {why}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path}: {_NO_SCRIPT}: it is no text") from None
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}") from error
