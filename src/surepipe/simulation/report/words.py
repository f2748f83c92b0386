"""Words of reports for faults, and for the details of rows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeAlias

from surepipe.audit.settings import facts_of
from surepipe.audit.trace import Kind, Row

Facts: TypeAlias = Mapping[str, object]

IDEMPOTENCY_KEY = "idempotency key"
EFFECT_LOST = "effect lost"
EFFECT_REPEATED = "effect repeated"
"""What stages do wrong with what they act on outside; names of violations."""

FAULTS: Mapping[str, str] = {
    "F1": "data lost on the way",
    "F2": "confirm lost on the way",
    "F3": "frame copied",
    "F4": "frame overtaken",
    "F5": "delay beyond the timer",
    "F6": "partition",
    "F7": "one-way cut for good",
    "F7a": "one-way cut for good",
    "F7b": "one-way cut for good",
    "F8": "sender crash, memory lost",
    "F9": "sender crash, journal kept",
    "F10": "receiver crash before processing",
    "F11": "receiver crash after processing",
    "F12": "receiver crash after the confirm",
    "F13": "store crash, data kept",
    "F14": "store lost its last writes",
    "F15": "store lost what it had confirmed",
    "F16": "store empty, all that it had is lost",
    "F17": "store went back to an older state",
    "F18": "store slow or down",
    "F18l": "store answers late",
    "F19": "wall clock stepped",
    "F20": "stage fails on a message",
    "F21": "slow handler",
    "F22": "overflow",
    "F23": "identities collide",
    "F24": "message too large",
    "F25": "bytes changed",
    "F25r": "stored entry damaged",
    "F26": "mailbox lost",
    "F27": "stale answer",
    "F28": "replaced process goes on",
    "F28s": "replaced sender goes on",
    "F28r": "replaced receiver goes on",
    "F29": "trimmed before it was read",
    "F29r": "taken out by somebody else",
    "F30": "store refuses",
    "F31": "power cut",
}
"""Each fault of the catalogue in a few words for people."""


def fault_words(fault: str) -> str:
    """``sender crash, memory lost``; an unknown id stands for itself."""
    return FAULTS.get(fault, fault)


def in_words(text: str) -> str:
    """A text that names faults by their ids, as scripts and marks do, with their words instead."""
    return _NAMED.sub(lambda found: fault_words(found[1]), text)


def facts(row: Row) -> Facts:
    """The details of a row; words that are no JSON object are under ``text``."""
    return facts_of(row) or ({"text": row.detail} if row.detail else {})


def fact(row: Row, name: str) -> str:
    """One detail as text, empty when it isn't there."""
    value = facts(row).get(name, "")
    return value if isinstance(value, str) else str(value)


_NAMED = re.compile(r"\b(?:fault-)?(F\d+[a-z]?)\b")
_FAULT = re.compile(r"\bF\d+[ab]?\b")


def fault_in(text: str) -> str:
    """The first id of a fault in a text, empty for none."""
    found = _FAULT.search(text)
    return found[0] if found else ""


def fault_of(row: Row) -> str:
    """The fault that a row tells of, by its id."""
    return fact(row, "fault") or fault_in(fact(row, "text"))


def place_of(row: Row) -> str:
    """The node whose line in the picture the row belongs to: faults name the part of the store that they hit."""
    return "store" if row.kind == Kind.FAULT and row.node in ("stream", "index") else row.node


_LONG, _BEFORE = 60, 20


def brief(text: str) -> str:
    """The beginning of what is long."""
    return text if len(text) <= _LONG else f"{text[: _LONG - 3]}..."


_NOTHING = frozenset({"None", "[]", "()", "False"})


def differ(one: str, other: str, *, varies: bool = False) -> bool:
    """Whether two answers of a stage are to be told apart. One that ``varies`` from run to run, as it holds the
    time, say, is only another one where it is none."""
    return (one in _NOTHING) != (other in _NOTHING) if varies else one != other


def brief_apart(one: str, other: str) -> tuple[str, str]:
    """Two texts that are not equal, each brief, so that one sees where they differ."""
    pairs = zip(one, other, strict=False)
    differ = next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
    if max(len(one), len(other)) <= _LONG or differ < _LONG - _BEFORE:
        return brief(one), brief(other)
    first = differ - _BEFORE
    return f"...{brief(one[first:])}", f"...{brief(other[first:])}"


def node_words(node: str) -> str:
    """``intake/sender``: one end of a pipe without the name of its pipeline."""
    return node.partition("/")[2] if node.count("/") == 2 else node


def listing(parts: list[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1]))) if parts else ""
