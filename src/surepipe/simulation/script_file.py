"""Scripts as files: JSON that people can read, change and keep, one decision on a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

from surepipe.errors import ConfigurationError
from surepipe.simulation.script import SCRIPT_FORMAT, Decision, Plain, Script


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
    except ValueError as error:
        raise ConfigurationError(f"this is no script of a simulated run: {error}") from error
    if not isinstance(found, dict):
        raise ConfigurationError("this is no script of a simulated run: it is no JSON object")
    known = cast("dict[str, object]", found)
    version = known.get("format")
    if not isinstance(version, int) or version > SCRIPT_FORMAT:
        raise ConfigurationError(
            f"this script has format {version!r}, and this version reads up to {SCRIPT_FORMAT}: "
            "use the version that wrote it, or a newer one"
        )
    try:
        return Script(
            str(known["subject"]),
            cast("dict[str, Plain]", known["options"]),
            tuple(_decision(item) for item in cast("list[list[object]]", known["decisions"])),
            cast("int", known["seed"]),
            str(known.get("code", "")),
            version,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigurationError(f"this script is damaged: {error!r}") from error


def _decision(item: list[object]) -> Decision:
    authority, at, verb, value, fault = item
    return Decision(
        str(authority), str(at), str(verb), tuple(cast("list[Plain]", value)), str(fault)
    )


def save(script: Script, path: Path) -> None:
    """Write a script to a file."""
    path.write_text(dump(script))


def load(path: Path) -> Script:
    """Read a script from a file. Raises ConfigurationError when it is none."""
    return parse(path.read_text())
