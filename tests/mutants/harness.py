"""Errors of the harness itself, and for each the test of the harness that must notice it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import cast

from surepipe.audit.properties.judge import Judge
from surepipe.audit.properties.ledger import PipeHistories, SwiftLooks
from surepipe.audit.trace import KIND, Cells, Kind
from surepipe.simulation.chance.chooser import Trouble
from surepipe.simulation.chance.randomness import Draws, draws
from surepipe.simulation.chance.seeded import SeededChooser
from surepipe.simulation.events import Event
from surepipe.simulation.explore.search import Search
from surepipe.simulation.explore.transitions import ExploredStep, Space, State
from surepipe.simulation.options import Drain
from surepipe.simulation.world import World
from tests.audit.properties import test_audit, test_judge
from tests.mutants.mutant import Around, swapped
from tests.simulation import test_crashes, test_network, test_replay
from tests.simulation.explore import test_explore


@dataclass(frozen=True)
class HarnessMutant:
    """``test`` holds as it stands, and fails while ``around`` is on."""

    name: str
    around: Around
    test: Callable[[], None]

    def __str__(self) -> str:
        return self.name


def _end_of_chaos(world: World) -> None:
    world.is_draining = True


def _not_slow(drain: Drain) -> bool:
    del drain
    return False


def _forgets_unknown(books: PipeHistories) -> SwiftLooks:
    return {kind: look for kind, look in _LOOKS(books).items() if kind != Kind.UNKNOWN}


def _no_tie(chooser: SeededChooser, target: str, event: Event) -> int:
    del chooser, target, event
    return 0


def _between_handlers(
    chooser: SeededChooser, node: str, event: Event, points: int
) -> Trouble | None:
    del points
    return _TROUBLE(chooser, node, event, -1)


def _until_an_output(judge: Judge, rows: Iterable[Cells]) -> None:
    for row in rows:
        _SEE_CELLS(judge, (row,))
        judge.stopped |= row[KIND] in (Kind.DELIVERED, Kind.SETTLED)


def _one_for_all(chooser: SeededChooser, label: str) -> Draws:
    del label
    sources = cast("dict[str, Draws]", vars(chooser)["_sources"])
    if "all" not in sources:
        sources["all"] = draws(chooser.options.seed, "all")
    return sources["all"]


class _WithoutFrames(dict[State, "tuple[State, ExploredStep] | None"]):
    """States that were seen, without what was on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[tuple[object, ...], None] = {}

    def __setitem__(self, state: State, parent: tuple[State, ExploredStep] | None) -> None:
        super().__setitem__(state, parent)
        self.seen[state[0], *state[2:]] = None

    def __contains__(self, state: object) -> bool:
        return isinstance(state, tuple) and (state[0], *state[2:]) in self.seen


def _blind_search(search: Search, space: Space) -> None:
    _SEARCH(search, space)
    vars(search)["_parents"] = _WithoutFrames()


_LOOKS = PipeHistories.before
_SEE_CELLS = Judge.see_cells
_SEARCH = Search.__init__
_TROUBLE = SeededChooser.trouble


HARNESS: tuple[HarnessMutant, ...] = (
    HarnessMutant(
        "the drain is skipped",
        swapped(World, "_drain", _end_of_chaos),
        test_network.test_a_slow_drain_takes_longer_than_the_first_timeout,
    ),
    HarnessMutant(
        "every drain is on the fast network",
        swapped(Drain, "is_slow", property(_not_slow)),
        test_network.test_a_slow_drain_takes_longer_than_the_first_timeout,
    ),
    HarnessMutant(
        "the history forgets unknown outcomes",
        swapped(PipeHistories, "before", _forgets_unknown),
        test_audit.test_a_submit_with_an_unknown_outcome_is_neither_loss_nor_surplus,
    ),
    HarnessMutant(
        "what is simultaneous never changes places",
        swapped(SeededChooser, "tie", _no_tie),
        test_replay.test_ties_that_were_drawn_are_decisions_too,
    ),
    HarnessMutant(
        "processes crash between handlers only",
        swapped(SeededChooser, "trouble", _between_handlers),
        test_crashes.test_drawn_crashes_fall_between_events_and_inside_of_them,
    ),
    HarnessMutant(
        "the judge stops at the first output",
        swapped(Judge, "see_cells", _until_an_output),
        test_judge.test_all_violations_are_counted_and_the_first_cases_kept,
    ),
    HarnessMutant(
        "one generator for workload and faults",
        swapped(SeededChooser, "source", _one_for_all),
        test_replay.test_the_workload_of_a_seed_is_the_same_under_other_faults,
    ),
    HarnessMutant(
        "states that differ in frames on the way count as one",
        swapped(Search, "__init__", _blind_search),
        test_explore.test_states_that_differ_only_in_frames_on_the_way_are_two,
    ),
)
