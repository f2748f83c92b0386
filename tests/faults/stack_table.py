"""What must come out when one plain pattern is put over another, as data (simulation X-44).

``reference`` is the length of a shortest schedule on models that others wrote. One lost message and one lost
confirm are two losses. Everything is tried with 3 messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from surepipe.simulation.explore.scope import LinkOrder, Scope
from tests.plain.stacked import STACKS, PlainStack

ONE_OF_EACH: Mapping[str, int] = {"F1": 1, "F2": 1, "F3": 1, "F5": 1}
TWO_LOSSES: Mapping[str, int] = {"F1": 1, "F2": 1, "F3": 1, "F5": 2}


@dataclass(frozen=True)
class StackCell:
    """Properties of one stack under some faults: all are kept, or the one must be shown to break.

    ``drain_steps_max``: a stack that sends for ever without getting anywhere never comes back to a state it was
    in, so the drain is stopped earlier there.
    """

    column: str
    properties: tuple[str, ...]
    is_kept: bool
    faults: Mapping[str, int]
    reference: int | None = None
    order: LinkOrder = "fifo"
    messages: int = 3
    drain_steps_max: int = 2_000

    @property
    def id(self) -> str:
        """The name of the cell in test ids and in the golden file."""
        faults = "+".join(
            name if times == 1 else f"{name}x{times}" for name, times in self.faults.items()
        )
        return f"{faults}-{self.column}-{'+'.join(self.properties)}-{self.order}"

    @property
    def subject(self) -> PlainStack:
        """The stack."""
        return STACKS[self.column]

    def scope(self) -> Scope:
        """The scope in which it is tried."""
        return Scope(
            messages=self.messages,
            order=self.order,
            faults=self.faults,
            properties=("P1", *self.properties),
            drain_steps_max=self.drain_steps_max,
        )


def holds(column: str, *properties: str, faults: Mapping[str, int]) -> Iterator[StackCell]:
    """These properties survive these faults together, on links of both kinds."""
    orders: tuple[LinkOrder, ...] = ("any",) if "F4" in faults else ("fifo", "any")
    for order in orders:
        yield StackCell(column, properties, is_kept=True, faults=faults, order=order)


def breaks(
    column: str, name: str, fault: str, reference: int | None = None, *, order: LinkOrder = "fifo"
) -> StackCell:
    """This property must be shown to break by one such fault."""
    return StackCell(
        column,
        (name,),
        is_kept=False,
        faults={fault: 1},
        reference=reference,
        order="any" if fault == "F4" else order,
        drain_steps_max=100 if column == "RS over CI" else 2_000,
    )


KEPT: tuple[StackCell, ...] = (
    *holds("CI over RS", "P2", "P7", faults=TWO_LOSSES),
    *holds("CI over RM", "P2", "P7", faults=TWO_LOSSES),
    *holds("SM over RS", "P2", "P5", faults=ONE_OF_EACH),
    *holds("SM over RM", "P5", faults=ONE_OF_EACH),
    *holds("RS over SM", "P2", "P6", faults=ONE_OF_EACH),
    # Each fault alone, for the one stack that a second judge looks at too.
    *holds("CI over RM", "P2", "P7", faults={"F1": 1}),
    *holds("CI over RM", "P2", "P7", faults={"F2": 1}),
    *holds("CI over RM", "P2", "P7", faults={"F3": 1}),
    *holds("CI over RM", "P2", "P7", faults={"F4": 1}),
    *holds("CI over RM", "P2", "P7", faults={"F5": 1}),
    *holds("CI over RM", "P7", faults={"F10": 1}),
)

BROKEN: tuple[StackCell, ...] = (
    breaks("SM over RM", "P2", "F4", 3),
    breaks("SM over RM", "P2", "F1", 2),
    breaks("RS over SM", "P3", "F5", 4),
    breaks("RS over SM", "P3", "F2", 5),
    breaks("RS over CI", "P2", "F1", 2),
    breaks("RS over CI", "P3", "F5", 4),
    breaks("CI over RM", "P2", "F8"),
    breaks("CI over RM", "P7", "F8"),
    breaks("CI over RM", "P7", "F8", order="any"),
    breaks("CI over RM", "P2", "F10"),
    breaks("CI over RM", "P2", "F11"),
    breaks("CI over RM", "P7", "F11"),
)
