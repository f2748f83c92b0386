"""Scopes that take too long for a run of CI: two of each tolerated fault together, and four messages (X-51).

They are searched with reduction, which says that everything holds or that something was found. Those that are
larger than ``STATES_MAX`` end as bounded, which is no verdict.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from surepipe.simulation.explore.scope import Scope
from tests.faults.plain_table import PATTERNS, Explored, cells
from tests.simulation.explore.scopes import STACKS, STRICT, Tried, left_for_the_night

TIMES = 2
MESSAGES = 4
STATES_MAX = 200_000
"""About a minute of a stack that ships."""
TO_ITS_END = 1_000_000
"""More than any scope has that each run of CI leaves for the night."""
NOT_TOGETHER = frozenset({"F7a", "F7b", "F27", "F28"})
"""What stays for good, what is a copy by another name, and what needs a bound on wakes."""


@dataclass(frozen=True)
class Night:
    """A subject in a scope."""

    id: str
    subject: Explored
    scope: Scope


def nightly() -> Iterator[Night]:
    """The plain patterns under all that a property survives, and the stacks that ship."""
    yield from _plain()
    for tried in left_for_the_night():
        scope = replace(tried.scope, states_max=TO_ITS_END)
        yield Night(tried.id, tried.stack.subject(), scope)
    for tried in _stacks():
        scope = replace(tried.scope, reduced=True, states_max=STATES_MAX)
        yield Night(tried.id, tried.stack.subject(), scope)


def _plain() -> Iterator[Night]:
    survived = defaultdict[tuple[str, str], dict[str, int]](dict)
    for cell in cells(kept=True):
        if not cell.claim.alone and cell.row not in NOT_TOGETHER:
            survived[cell.column, cell.claim.property] |= dict.fromkeys(cell.faults, TIMES)
    for (column, name), faults in survived.items():
        scope = Scope(
            messages=MESSAGES,
            faults=faults,
            properties=("P1", name),
            wakes=4 if column == "ST" else None,
            states_max=STATES_MAX,
            reduced=True,
        )
        yield Night(f"{column}-{name}", PATTERNS[column], scope)


def _stacks() -> Iterator[Tried]:
    def twice(*faults: str) -> Mapping[str, int]:
        return dict.fromkeys(faults, TIMES)

    for stack in STACKS:
        yield Tried(stack, twice("F1", "F2", "F3", "F5"), messages=MESSAGES)
        yield Tried(stack, twice("F1", "F3", "F4", "F5"), messages=MESSAGES, order="any")
        if stack is not STRICT:
            yield Tried(stack, twice("F1", "F10", "F11"), messages=MESSAGES, crashes=True)


BY_ID: Mapping[str, Night] = {one.id: one for one in nightly()}
