"""Makes a failing script as short as it gets: fewer decisions, fewer messages, earlier crashes, no delays.

Leaving a decision out means the plain answer in its place (no fault, shortest delay, first come first served), so
every part of a script is a script. A candidate is kept when its run still breaks *the same property* and is
plainer than the best so far; what is kept is the script of decisions that took effect in it. The passes go from
coarse to fine and are repeated until none helps, or the replays are used up. Nothing here draws or reads a clock:
the same script and replayer give the same result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, takewhile

from surepipe.audit.findings import Violation
from surepipe.errors import MisuseError
from surepipe.simulation.chance.script import Decision, Plain, Script
from surepipe.simulation.options import DRAINS, Options
from surepipe.simulation.results import Replayer, RunResult

REPLAYS_MAX = 2_000
FEW = 8
"""Of so few decisions the nearest run that holds is looked for even when the replays are used up."""
PAIRS_MAX = 40
"""Pairs are tried when there are at most so many decisions; 40 make 780 pairs."""

DRAIN_ORDER: tuple[Plain, ...] = tuple(drain.value for drain in DRAINS)
"""The drains, the fastest first; the first is the default."""
KEPT = frozenset({"seed", "messages", "drain"})
"""Options that are not simply left out: the seed names the run, the others are made smaller step by step."""

_DEFAULT_MESSAGES = Options().messages


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The shortest script that was found, and the run that it gives.

    ``minimal`` says that no decision can go: the run without any one of them keeps the property. It is False only
    when the replays ended first. ``nearest`` is the run, among those with one decision fewer, that stays longest
    with the failing one; ``without`` is the decision that it lacks.
    """

    script: Script
    result: RunResult
    violation: Violation
    replays: int
    minimal: bool
    nearest: RunResult | None = None
    without: Decision | None = None


def shrink(
    script: Script, replay: Replayer, property_id: str, *, replays_max: int = REPLAYS_MAX
) -> Shrunk:
    """Find a script that breaks the same property and from which nothing can be taken.

    Uses at most ``replays_max`` runs, one or two of them to repeat the script as it is, and then one for each
    decision that is left, to find ``nearest``. Raises ``MisuseError`` when the script does not break the property.
    What comes out replays to the digest of its ``result``.
    """
    search = _Search(replay, property_id, replays_max)
    search.begin(script)
    finished = search.descend()
    few = len(search.best.script.decisions) <= FEW
    nearest, without = _nearest(search) if finished or few else (None, None)
    violation = search.best.violates(property_id)
    assert violation is not None, "what was kept breaks the property"
    return Shrunk(
        search.best.script, search.best, violation, search.replays, finished, nearest, without
    )


class _Search:
    """The best run so far, and all scripts that were tried."""

    best: RunResult

    def __init__(self, replay: Replayer, property_id: str, replays_max: int) -> None:
        self.property = property_id
        self.replays = 0
        self._replay = replay
        self._replays_max = replays_max
        self._refused: set[tuple[str, tuple[Decision, ...]]] = set()

    def begin(self, script: Script) -> None:
        """Repeat the script as it is."""
        settled = self._settled(script, self.run(script))
        if settled is None:
            raise MisuseError(
                f"the script can't be shrunk: its run does not violate {self.property};"
                " was it written by another version of the code?"
            )
        self.best = settled

    def descend(self) -> bool:
        """Repeat all passes until none helps; False when the replays ended first."""
        while not self.exhausted:
            helped = [search_pass(self) for search_pass in _PASSES]
            if not any(helped):
                break
        return not self.exhausted

    @property
    def exhausted(self) -> bool:
        """Whether no run is left."""
        return self.replays >= self._replays_max

    def run(self, script: Script) -> RunResult:
        """What this script does."""
        self.replays += 1
        return self._replay(script)

    def take(self, candidate: Script) -> bool:
        """Keep the candidate if it breaks the same property and is plainer.

        One that was refused is refused for ever, without a run: the best only gets plainer.
        """
        if self.exhausted:
            return False
        key = repr(sorted(candidate.options.items())), candidate.decisions
        if key in self._refused:
            return False
        settled = self._settled(candidate, self.run(candidate))
        if settled is None or self._weight(settled) >= self._weight(self.best):
            self._refused.add(key)
            return False
        self.best = settled
        return True

    def take_decisions(self, decisions: Sequence[Decision]) -> bool:
        """The same, for the best script with other decisions."""
        return self.take(replace(self.best.script, decisions=tuple(decisions)))

    def _settled(self, candidate: Script, result: RunResult) -> RunResult | None:
        """The run of the decisions that took effect, if it breaks the property: none stale, and the same run."""
        if result.violates(self.property) is None:
            return None
        if result.stale is not None or result.script.decisions != candidate.decisions:
            again = self.run(result.script)
            return again if again.stale is None and again.digest == result.digest else None
        return result

    def _weight(self, result: RunResult) -> tuple[int, ...]:
        """What is to become less, the weightiest first. All are natural numbers, so shrinking ends."""
        violation = result.violates(self.property)
        script = result.script
        numbers = [n for item in script.decisions for n in item.value if isinstance(n, int)]
        places = {name: place for place, name in reversed([*enumerate(result.asked)])}
        return (
            len(script.decisions),
            sum(_lateness(item.at, places) for item in script.decisions),
            _messages(script),
            _drain(script),
            len(script.options),
            sum(map(abs, numbers)),
            violation.step if violation else 0,
        )


def _lateness(at: str, places: Mapping[str, int]) -> int:
    """When something is decided: by the place of its event, else by the numbers in its name."""
    if at in places:
        return places[at]
    return sum(int(number) for number in re.findall(r"\d+", at))


def _drain(script: Script) -> int:
    drain = script.options.get("drain", DRAIN_ORDER[0])
    return DRAIN_ORDER.index(drain) if drain in DRAIN_ORDER else len(DRAIN_ORDER)


def _messages(script: Script) -> int:
    count = script.options.get("messages", _DEFAULT_MESSAGES)
    return count if isinstance(count, int) else 0


# --- passes: each changes the best run until it finds nothing more, and says whether it found anything


def _drop_groups(group: Callable[[Decision], str]) -> Callable[[_Search], bool]:
    """A pass that leaves out all decisions which have something in common."""

    def search_pass(search: _Search) -> bool:
        helped = False
        for name in dict.fromkeys(map(group, search.best.script.decisions)):
            rest = [item for item in search.best.script.decisions if group(item) != name]
            if len(rest) < len(search.best.script.decisions):
                helped |= search.take_decisions(rest)
        return helped

    return search_pass


def _drop_ranges(search: _Search) -> bool:
    """Halves, quarters, and so on down to single decisions; the last round is what 1-minimal means."""
    helped = False
    size = max(1, len(search.best.script.decisions) // 2)
    while size:
        start = 0
        while start < len(search.best.script.decisions):
            decisions = search.best.script.decisions
            if search.take_decisions(decisions[:start] + decisions[start + size :]):
                helped = True
            else:
                start += size
        size //= 2
    return helped


def _drop_pairs(search: _Search) -> bool:
    """Two at once: a fault and the one that made it harmless again, say a cut and its heal."""
    return _first_that_helps(search, _without_pairs)


def _without_pairs(best: RunResult) -> Iterator[Script]:
    decisions = best.script.decisions
    if len(decisions) > PAIRS_MAX:
        return
    for left, right in combinations(range(len(decisions)), 2):
        rest = tuple(d for place, d in enumerate(decisions) if place not in (left, right))
        yield replace(best.script, decisions=rest)


def _fewer_messages(search: _Search) -> bool:
    return _first_that_helps(search, _with_fewer_messages)


def _with_fewer_messages(best: RunResult) -> Iterator[Script]:
    count = _messages(best.script)
    for fewer in dict.fromkeys((1, count // 4, count // 2, count - 1)):
        if 0 < fewer < count:
            yield _with_option(best.script, "messages", fewer)


def _plainer_options(search: _Search) -> bool:
    """Link order to fifo, batches to single messages, rates to none: every option has the plainest default."""
    return _first_that_helps(search, _with_plainer_options)


def _with_plainer_options(best: RunResult) -> Iterator[Script]:
    options = best.script.options
    for name in options:
        if name not in KEPT:
            rest = {key: value for key, value in options.items() if key != name}
            yield replace(best.script, options=rest)
    for drain in DRAIN_ORDER[: _drain(best.script)]:
        yield _with_option(best.script, "drain", drain)


def _with_option(script: Script, key: str, value: Plain) -> Script:
    return replace(script, options={**script.options, key: value})


def _smaller_values(search: _Search) -> bool:
    """Delays to zero, bursts to one, crashes after fewer effects."""
    return _first_that_helps(search, _with_smaller_values)


def _with_smaller_values(best: RunResult) -> Iterator[Script]:
    for place, item in enumerate(best.script.decisions):
        for part, value in enumerate(item.value):
            if isinstance(value, int):
                for smaller in dict.fromkeys((0, 1, value // 2, value - 1)):
                    if 0 <= smaller < value:
                        values = (*item.value[:part], smaller, *item.value[part + 1 :])
                        yield _with_decision(best.script, place, replace(item, value=values))


def _earlier(search: _Search) -> bool:
    """Ask for the same at an earlier event of the node, or for an earlier frame of its sort."""
    return _first_that_helps(search, _with_earlier_causes)


def _with_earlier_causes(best: RunResult) -> Iterator[Script]:
    frames = [name.partition(": arrive ")[2] for name in best.asked]
    for place, item in enumerate(best.script.decisions):
        if item.at in best.asked:
            names = [
                name
                for name in best.asked[: best.asked.index(item.at)]
                if _sort(name, ":") == _sort(item.at, ":")
            ]
        else:
            names = [
                name
                for name in dict.fromkeys(frames)
                if name and _sort(name, " e") == _sort(item.at, " e")
            ]
        for name in names:
            if name != item.at:
                yield _with_decision(best.script, place, replace(item, at=name))


def _sort(name: str, end: str) -> str:
    """The node of an event, or the pipe and kind of a frame."""
    return name.partition(end)[0]


def _with_decision(script: Script, place: int, decision: Decision) -> Script:
    decisions = script.decisions
    return replace(script, decisions=(*decisions[:place], decision, *decisions[place + 1 :]))


def _first_that_helps(search: _Search, candidates: Callable[[RunResult], Iterator[Script]]) -> bool:
    """Take the first candidate that is kept, then look from the new best; until none is.

    A run that never comes to rest has millions of candidates: without a replay left, none is even made.
    """
    helped = False
    while any(map(search.take, takewhile(lambda _: not search.exhausted, candidates(search.best)))):
        helped = True
    return helped


_PASSES: tuple[Callable[[_Search], bool], ...] = (
    _drop_groups(lambda item: item.fault),
    _drop_groups(lambda item: item.authority),
    _fewer_messages,
    _drop_groups(lambda item: item.at),
    _drop_ranges,
    _drop_pairs,
    _earlier,
    _smaller_values,
    _plainer_options,
)


def _nearest(search: _Search) -> tuple[RunResult | None, Decision | None]:
    """The run with one decision fewer that parts from the failing one last; one that breaks nothing first."""
    best = search.best
    found: tuple[tuple[bool, int], RunResult, Decision] | None = None
    for place, item in enumerate(best.script.decisions):
        rest = best.script.decisions[:place] + best.script.decisions[place + 1 :]
        result = search.run(replace(best.script, decisions=rest))
        if result.violates(search.property) is not None:
            continue
        merit = (not result.violations, _common(best, result))
        if found is None or merit > found[0]:
            found = (merit, result, item)
    return (found[1], found[2]) if found else (None, None)


def _common(left: RunResult, right: RunResult) -> int:
    """How many rows two runs share from the start."""
    pairs = zip(left.rows, right.rows, strict=False)
    return next(
        (number for number, (a, b) in enumerate(pairs) if replace(a, run=b.run) != b),
        min(len(left.rows), len(right.rows)),
    )
