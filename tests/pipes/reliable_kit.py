"""What the tests of ``reliable``, of lives and of journals share."""

from __future__ import annotations

import random
from collections.abc import Callable

from surepipe.audit.predicates import judge_trace
from surepipe.core.claims import Atom
from surepipe.core.effects import Effect, NoticeKind, Ranges, Transmit
from surepipe.core.machine import Machine
from surepipe.pipes.catalogue import parse_layers
from surepipe.pipes.kinds.reliable import Reliable
from surepipe.pipes.stack.assembled import ReceiverStack, SenderStack
from surepipe.pipes.stack.boundary import Boundary, BoundaryOptions
from surepipe.pipes.wire.frames import Confirm, Data, Frame, Open, Opened
from tests.kit.wire import MS, Faults, Side, Wire

COMMITTED = BoundaryOptions(boundary=Boundary.COMMITTED, durable=True)
DURABLE = BoundaryOptions(durable=True)
BEFORE = BoundaryOptions(boundary=Boundary.BEFORE, durable=True)

EVERYTHING = Faults(
    loss=0.2,
    duplication=0.2,
    delay_us=(1 * MS, 60 * MS),
    copy_delay_us=(0, 5_000 * MS),
    fifo=False,
)
"""All route faults together; an outage is loss for a while, corruption is loss by its checksum."""

ALL_ATOMS = frozenset(Atom)


def atoms_of(wire: Wire) -> frozenset[Atom]:
    """The atoms that the settled messages have, now that the run is over."""
    verdict = judge_trace(wire.settled, accepted=len(wire.accepted))
    return frozenset(atom for atom in Atom if verdict.held(atom))


def assert_all_confirmed(wire: Wire) -> None:
    """C = S, exactly once and in order, and both ends at rest (pipes V-4)."""
    everything = list(range(1, len(wire.accepted) + 1))
    assert wire.settled == everything
    assert wire.confirmed == set(everything)
    assert wire.sender.idle
    assert wire.receiver.idle


def bounds_of(wire: Wire) -> Callable[[], None]:
    """Bounds, conservation and soundness of confirms, for each step (pipes V-2, V-5, O-2)."""
    options = parse_layers(wire.layers)[0]
    assert isinstance(options, Reliable)

    def check() -> None:
        sender, receiver = wire.sender.gauges(), wire.receiver.gauges()
        assert 0 <= sender["in_flight"] <= options.window
        assert receiver["held"] + receiver["in_work"] <= options.held_max
        assert receiver["held_bytes"] <= options.held_max_bytes
        assert_conserved(wire)

    return check


def assert_conserved(wire: Wire) -> None:
    """Loaded and accepted are confirmed, in flight, in the backlog, or given up (pipes O-2, V-2)."""
    gauges, counts = wire.sender.gauges(), wire.sender.counters()
    left = gauges["in_flight"] + gauges["backlog"]
    assert gauges["loaded"] + counts["accepted"] == counts["confirmed"] + left + counts["given_up"]
    if wire.boundary.boundary is not Boundary.BEFORE:
        assert wire.confirmed <= set(wire.settled)


def linked(
    options: dict[str, object] | None = None, boundary: BoundaryOptions | None = None
) -> Wire:
    """A wire with an established link; deliveries wait to be settled by hand."""
    wire = Wire(
        {"reliable": options or {}}, boundary=boundary or BoundaryOptions(), auto_settle=False
    )
    wire.exchange()
    return wire


def frames(wire: Wire, kind: type[Frame]) -> list[Frame]:
    """All frames of one kind that were ever sent, forward and back."""
    return [frame for frame in (*wire.sent, *wire.sent_back) if isinstance(frame, kind)]


def opens(wire: Wire) -> list[Open]:
    """Each Open ever sent."""
    return [frame for frame in wire.sent if isinstance(frame, Open)]


def openeds(wire: Wire) -> list[Opened]:
    """Each Opened ever sent."""
    return [frame for frame in wire.sent_back if isinstance(frame, Opened)]


def data(wire: Wire) -> list[Data]:
    """Each Data ever sent."""
    return [frame for frame in wire.sent if isinstance(frame, Data)]


def confirms(wire: Wire) -> list[Confirm]:
    """Each Confirm ever sent."""
    return [frame for frame in wire.sent_back if isinstance(frame, Confirm)]


def noticed(wire: Wire, kind: NoticeKind) -> list[tuple[int, Ranges]]:
    """(epoch, ranges) of each notice of a kind."""
    return [(n.epoch, n.ranges) for _, n in wire.notices if n.kind is kind]


def counted(machine: Machine) -> dict[str, int]:
    """The counters of a machine that are not zero."""
    counters = machine.counters()
    return {name: count for name, count in counters.items() if count}


def transmitted(effects: list[Effect]) -> list[Frame]:
    """The frames among the effects of a machine that the wire does not host (a zombie)."""
    return [e.frame for e in effects if isinstance(e, Transmit) and not isinstance(e.frame, bytes)]  # type: ignore[misc]


def talk(wire: Wire, zombie: SenderStack, effects: list[Effect]) -> list[Effect]:
    """Let a former sender, still running, talk with the receiver until nothing more is said.

    Returns everything that it did. Frames for the sender that the wire hosts stay on the wire.
    """
    everything = list(effects)
    going = transmitted(effects)
    for _ in range(1000):
        if not going:
            return everything
        here = len(wire.to_sender)
        wire.arrive(going.pop(0))
        answers = wire.to_sender[here:]
        del wire.to_sender[here:]
        for answer in answers:
            more = zombie.frame(answer, wire.now)
            everything += more
            going += transmitted(more)
    raise AssertionError("the two senders never stop talking")


class TwinWire(Wire):
    """Before each input the machine is exported; a twin that goes on from that takes the same input."""

    compared: int = 0

    def _step(self, side: Side, give: Callable[[], list[Effect]]) -> None:
        super()._step(side, lambda: self._twice(side, give))

    def _twice(self, side: Side, give: Callable[[], list[Effect]]) -> list[Effect]:
        machine = self.sender if side == "sender" else self.receiver
        state, chance = machine.export(), self._chance(machine).getstate()
        effects = give()
        twin = self._twin(side, state)
        self._chance(twin).setstate(chance)
        self._put_in_place(twin)
        assert give() == effects
        assert twin.export() == machine.export()
        self._put_in_place(machine)
        self.compared += 1
        return effects

    @staticmethod
    def _chance(machine: SenderStack | ReceiverStack) -> random.Random:
        assert isinstance(machine.rng, random.Random)
        return machine.rng

    def _twin(self, side: Side, state: object) -> SenderStack | ReceiverStack:
        layers, rng = parse_layers(self.layers), random.Random(0)
        twin = (
            SenderStack(
                self.pipe,
                layers,
                rng=rng,
                life_hint=1,
                journal=self.journal.contents() if self.journal else None,
            )
            if side == "sender"
            else ReceiverStack(self.pipe, layers, rng=rng, boundary=self.boundary)
        )
        twin.restore(state)
        return twin

    def _put_in_place(self, machine: SenderStack | ReceiverStack) -> None:
        if isinstance(machine, SenderStack):
            self.sender = machine
        else:
            self.receiver = machine
