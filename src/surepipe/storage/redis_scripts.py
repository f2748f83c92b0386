"""The Lua scripts of the Redis store, as they are sent: each with the parts that its header says it needs."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

NAMES = (
    "append",
    "claim",
    "commit",
    "create",
    "get",
    "identify",
    "info",
    "open",
    "read",
    "transaction",
    "trim",
)
_NEEDS = re.compile(r"-- needs: (.+)")


@dataclass(frozen=True, slots=True)
class Script:
    """One script and the hash under which a server that has loaded it knows it."""

    name: str
    source: bytes
    sha: bytes


@cache
def script(name: str) -> Script:
    """The script of this name."""
    parts: dict[str, str] = {}
    _gather(name, parts)
    source = "".join(parts.values()).encode()
    sha = hashlib.sha1(source, usedforsecurity=False).hexdigest().encode()
    return Script(name, source, sha)


def _gather(name: str, parts: dict[str, str]) -> None:
    """Add a file to ``parts``, after what it needs."""
    source = (
        resources.files("surepipe.storage").joinpath("scripts", f"{name}.lua").read_text("utf-8")
    )
    needs = _NEEDS.match(source)
    for part in needs[1].split(", ") if needs else []:
        if part not in parts:
            _gather(part, parts)
    parts[name] = source
