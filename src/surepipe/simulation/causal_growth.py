"""Scripts that grow: each decision strikes something that was seen to happen in the run of those before it.

A schedule that breaks a pipe often needs what only happens because something went wrong already: a frame that was
sent again, the first step of a second life, a write that is done twice. So a run is repeated with one more
decision against one of its own events, and that run with one more, and so on. Chance picks which run grows and
what strikes it, under a seed, so a search can be repeated.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from surepipe.simulation.causal_strikes import Seen, Strike
from surepipe.simulation.findings import Replayer, RunResult
from surepipe.simulation.options import Options
from surepipe.simulation.promises import promise_of
from surepipe.simulation.randomness import draws
from surepipe.simulation.script import Script
from surepipe.simulation.subjects import Subject

MESSAGES = 5
CROWD = 24
"""More than a window takes at once."""
CHAOS_TIMERS = 40
"""For so long things may happen before a run heals, in timeouts of the subject."""
EVENTS_MAX = 4_000
POWER_TAKES = 3
"""Writes that a cut of the power takes, where the store lets any go."""


@dataclass(frozen=True)
class Growth:
    """What may strike: the kinds ``must``, which are looked for, and the kinds ``may`` beside them, by their ids.

    At most ``runs`` runs, by scripts of at most ``strikes_max`` strikes.
    """

    must: Collection[str]
    may: Collection[str] = ()
    runs: int = 2_000
    strikes_max: int = 4
    seed: int = 0


def calm_worlds(subject: Subject) -> Iterator[Options]:
    """Worlds without a fault that differ in what takes its time: handlers, stores, frames, the application."""
    timer = promise_of(subject).timer_us
    plain = Options(
        messages=MESSAGES,
        timer_us=timer,
        delay_us=max(1, timer // 100),
        chaos_us=CHAOS_TIMERS * timer,
        events_max=EVENTS_MAX,
        store_rollback_writes=POWER_TAKES,
        perturb=True,
    )
    yield plain
    yield replace(plain, handler_us=timer // 2, gap_us=timer // 20)
    yield replace(plain, gap_us=timer * 2)
    yield replace(plain, store_us=timer // 20, gap_us=timer // 20, handler_us=timer // 10)
    yield replace(plain, handler_us=timer * 3)
    yield replace(plain, delay_us=timer // 3, gap_us=timer // 4)
    yield replace(plain, delay_us=timer // 3, messages=CROWD)


def grown_runs(subject: Subject, replay: Replayer, growth: Growth) -> Iterator[RunResult]:
    """Every run by a grown script in which something was found, until ``growth.runs`` are used up.

    ``replay`` runs a script and judges it. Whoever has what he looks for takes no more.
    """
    return _Search(replay, growth).runs(subject)


@dataclass(frozen=True)
class _Grown:
    """A script of so many strikes, and what was seen in its run."""

    script: Script
    strikes: int
    seen: Seen

    def with_(self, strike: Strike) -> Script:
        """The script with one strike more."""
        return replace(self.script, decisions=(*self.script.decisions, *strike))


class _Search:
    """All runs so far, by the number of their strikes: any of them may grow."""

    def __init__(self, replay: Replayer, growth: Growth) -> None:
        self.replay = replay
        self.growth = growth
        self.source = draws(growth.seed, "growth")
        self.left = growth.runs
        self.levels: list[list[_Grown]] = [[] for _ in range(growth.strikes_max)]

    def runs(self, subject: Subject) -> Iterator[RunResult]:
        """Those in which something was found."""
        for strikes, script in self._scripts(subject):
            self.left -= 1
            result = self.replay(script)
            if result.stale is not None:
                continue
            if strikes < self.growth.strikes_max:
                self.levels[strikes].append(_Grown(script, strikes, Seen.of(result)))
            if result.violations:
                yield result

    def _scripts(self, subject: Subject) -> Iterator[tuple[int, Script]]:
        """Half of the runs for single strikes in each of the calm worlds; after them whatever grows."""
        for options in calm_worlds(subject):
            yield 0, Script(subject.name, options.plain())
        for script in self.source.shuffled(self._singles())[: self.growth.runs // 2]:
            yield 1, script
        while self.left > 0 and any(self.levels):
            yield from self._grown()

    def _singles(self) -> list[Script]:
        return [
            calm.with_(strike)
            for calm in self.levels[0]
            for strikes in calm.seen.strikes(self.growth.must).values()
            for strike in strikes
        ]

    def _grown(self) -> Iterator[tuple[int, Script]]:
        levels = [number for number, runs in enumerate(self.levels) if runs]
        parent = self.source.pick(self.levels[self.source.pick(levels)])
        strikes = self._strikes(parent)
        if strikes:
            yield parent.strikes + 1, parent.with_(self.source.pick(strikes))
        else:
            self.left -= 1

    def _strikes(self, parent: _Grown) -> Sequence[Strike]:
        """Kinds are as likely as each other, however many events each could strike."""
        is_other = bool(self.growth.may) and self.source.getrandbits(1)
        ids = self.growth.may if is_other else self.growth.must
        found = parent.seen.strikes(ids, parent.script.decisions)
        return self.source.pick(list(found.values())) if found else ()
