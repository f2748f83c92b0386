"""One plain pattern over another: what must hold and what must break, tried by exploration."""

from __future__ import annotations

import pytest

from surepipe.core.effects import Effect
from surepipe.errors import CompositionError
from surepipe.guarantees import derive
from surepipe.guarantees.hops import LOSSY_ROUTE, Hop
from surepipe.pipes.catalogue import parse_layers
from surepipe.simulation.explore import explore
from surepipe.simulation.explore.result import Explored
from surepipe.simulation.explore.scope import Scope
from tests.faults.plain_golden import figures, golden
from tests.faults.stack_table import BROKEN, KEPT, StackCell
from tests.plain.base import PlainSubject
from tests.plain.continuous import CONTINUOUS, Receiver
from tests.plain.multi_unconfirmed import MULTI_UNCONFIRMED
from tests.plain.resend import RESEND
from tests.plain.stacked import PlainStack
from tests.plain.strict import Sender


def ids(listed: tuple[StackCell, ...]) -> list[str]:
    """The names of cells."""
    return [cell.id for cell in listed]


@pytest.mark.parametrize("cell", KEPT, ids=ids(KEPT))
def test_a_stack_keeps_what_nesting_gives_it(cell: StackCell) -> None:
    """simulation X-44: 3 messages, explored to the end, with a golden number of states."""
    explored = explore(cell.subject, cell.scope())
    assert explored.verdict is Explored.HOLDS, explored.counterexample
    assert figures(cell, explored) == golden()[cell.id]


@pytest.mark.parametrize("cell", BROKEN, ids=ids(BROKEN))
def test_a_stack_is_shown_to_break_what_nesting_takes_from_it(cell: StackCell) -> None:
    """simulation X-44: the property named breaks, in the golden number of steps, which is the reference."""
    explored = explore(cell.subject, cell.scope())
    assert explored.verdict is Explored.VIOLATED
    found = explored.counterexample
    assert found is not None
    assert (found.property,) == cell.properties
    assert found.length == (cell.reference or found.length)
    assert figures(cell, explored) == golden()[cell.id]


class DropsEarly(Receiver):
    """Planted: what comes before its turn is dropped, and the carrier will not bring it again."""

    def frame(self, frame: object, now: int) -> list[Effect]:
        """Only the next one goes on."""
        effects = super().frame(frame, now)
        self.queue = ()
        return effects


def test_a_queue_that_forgets_is_found_over_a_carrier_that_confirms() -> None:
    """simulation PL-19: over plain multi-unconfirmed one overtaking is enough, where the sound pattern holds."""
    scope = Scope(messages=3, faults={"F4": 1}, properties=("P2",))
    planted = PlainStack(PlainSubject("planted", Sender, DropsEarly), MULTI_UNCONFIRMED)
    explored = explore(planted, scope)
    assert explored.counterexample is not None
    assert explored.counterexample.length == 3
    assert explore(PlainStack(CONTINUOUS, MULTI_UNCONFIRMED), scope).holds


def test_two_plain_layers_that_both_confirm_are_refused() -> None:
    """What comes back could be meant for either."""
    with pytest.raises(ValueError, match="confirm"):
        PlainStack(RESEND, MULTI_UNCONFIRMED)


def test_numbering_inside_the_retry_is_refused_where_it_is_not_plain() -> None:
    """simulation X-44, RS over CI: the stack that ships can't be built, so nobody meets what is shown above."""
    layers = tuple(parse_layers(["resend", "continuous-index"]))
    with pytest.raises(CompositionError, match="continuous-index"):
        derive(Hop("inside out", layers, LOSSY_ROUTE))
