"""Lanes do not change what is tolerated: delivery over all messages, order within each key, tried both ways.

pipes G-10, as in the table without lanes. A few keys share the receiver's lanes, handlers end in a drawn order,
and each key is judged as a pipe of its own by the guarantee that ``of_one_key`` declares.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pytest

from surepipe.audit.predicates import PipeVerdict, PropertyOutcome, judge_trace
from surepipe.core.claims import ROUTE, Atom, Fault, Faults
from surepipe.core.effects import Cause, Deliver, Effect, Key
from surepipe.guarantees import derive
from surepipe.guarantees.hops import Hop
from surepipe.pipes.stack.assembled import ReceiverStack
from surepipe.pipes.stack.boundary import BoundaryOptions
from surepipe.pipes.stack.lanes import LaneDelivery, LaneTicket
from surepipe.simulation.promises import hop_of
from tests.faults.ordeal import INJECTED, Ordeal
from tests.faults.product import BY_NAME
from tests.kit.journal import MemoryJournal
from tests.pipes.lanes_kit import LaneWire

KEYS = 3
SEEDS_THAT_HOLD = 4
SEEDS_TO_BREAK = 200
BEYOND_ROUTE: Faults = frozenset(Fault) - ROUTE
ACROSS = (Atom.NO_LOSS, Atom.NO_DUPLICATE)
NAMES = (
    *(
        "resend",
        "multi-unconfirmed",
        "sequential-confirm",
        "reliable",
        "dedupe over multi-unconfirmed",
    ),
    *("continuous-index over multi-unconfirmed", "strict-monotonic over multi-unconfirmed"),
    "reliable, stored state, journal",
)
LANES: dict[str, Hop] = {name: replace(hop_of(BY_NAME[name]), lanes=KEYS) for name in NAMES}

SHOWN_TO_BREAK = ("resend", "multi-unconfirmed", "sequential-confirm", "reliable")

CAUTIOUS: frozenset[tuple[str, Atom, Fault]] = frozenset(
    {
        # A message that failed stays the first of its key, so what follows in the key can't pass it.
        ("multi-unconfirmed", Atom.GAP_FREE, Fault.HANDLER_FAILURE),
        # It breaks without lanes; here it takes two messages of one key, and few get through at all.
        ("reliable", Atom.MONOTONIC, Fault.SENDER_ZOMBIE),
        # As without lanes: see ``tests.faults.cautious``.
        ("reliable", Atom.MONOTONIC, Fault.POWER_LOSS),
    }
)
"""Declared as not tolerated, as without lanes, and never seen to break."""


def key_of(payload: bytes) -> Key:
    """Messages are numbers."""
    return int(payload) % KEYS


class KeyedWire(LaneWire):
    """A wire with lanes whose messages are numbers. ``delivery``: the class of the receiver's boundary."""

    keys = staticmethod(key_of)
    delivery: type[LaneDelivery] = LaneDelivery

    def _new_receiver(self) -> ReceiverStack:
        stack = super()._new_receiver()
        stack.delivery.__class__ = self.delivery
        return stack


@dataclass
class LaneOrdeal(Ordeal):
    """An ordeal of a hop with lanes."""

    wires: type[KeyedWire] = KeyedWire

    def __post_init__(self) -> None:
        super().__post_init__()
        self.lane_wire = self.wire = self.wires(
            self.hop.layers,
            seed=self.seed,
            boundary=BoundaryOptions(
                lanes=self.hop.lanes, durable=self.hop.receiver_state is not None
            ),
            journal=MemoryJournal() if self.hop.journal is not None else None,
            crashes=self.wire.crashes,
        )

    def _handle(self, *, may_fail: bool) -> None:
        wire, rng = self.lane_wire, self.rng
        ticket = rng.choice(sorted(wire.open))
        payload = wire.open[ticket].payloads[0]
        seq = int(payload)
        fails = may_fail and Fault.HANDLER_FAILURE in self.faults and rng.random() < 0.5
        if fails and self.failures[seq] < 3:
            self.failures[seq] += 1
            wire.poison[payload] = 1
        wire.handle_next(ticket)

    def _handled_by_old(self, old: ReceiverStack, delivery: Deliver) -> list[Effect]:
        known = self.wire.positions
        self.wire.settled += [known[delivery.epoch, seq] for seq in delivery.seqs]
        ranges = tuple((seq, seq) for seq in delivery.seqs)
        return old.settled(delivery.ticket, ranges, self.wire.now)

    def verdicts(self, atom: Atom) -> Iterator[PipeVerdict]:
        """Of all messages, or of each key."""
        self.run()
        accepted, settled = self.wire.accepted, self.wire.settled
        if atom in ACROSS:
            yield judge_trace(settled, len(accepted))
            return
        for key in range(KEYS):
            own = [at for at, payload in enumerate(accepted, 1) if key_of(payload) == key]
            numbers = {at: number for number, at in enumerate(own, 1)}
            yield judge_trace([numbers[at] for at in settled if at in numbers], len(own))


def claims(name: str) -> Iterator[tuple[Atom, Faults]]:
    """What is declared across keys, and what within each."""
    derived = derive(LANES[name])
    for atom in Atom:
        guarantee = derived.guarantee if atom in ACROSS else derived.of_one_key.guarantee
        faults = guarantee.tolerated(atom)
        if faults is not None:
            yield atom, faults & INJECTED & (LANES[name].route.forward | BEYOND_ROUTE)


@pytest.mark.parametrize("name", LANES)
def test_with_lanes_what_is_tolerated_holds_under_all_of_it_together(name: str) -> None:
    """pipes G-1, G-10: across keys or within each key, as declared."""
    for atom, faults in claims(name):
        for seed in range(SEEDS_THAT_HOLD):
            ordeal = LaneOrdeal(LANES[name], faults, seed)
            for verdict in ordeal.verdicts(atom):
                assert verdict.of(atom) is PropertyOutcome.HELD, f"{ordeal}: {verdict.where(atom)}"
            assert ordeal.is_quiescent or atom is not Atom.NO_LOSS, f"{ordeal}: never quiet"


def lacking(name: str) -> list[tuple[Atom, Fault, Faults]]:
    """Each declared atom with each fault that it does not tolerate, beside those that it does."""
    derived = derive(LANES[name])
    found: list[tuple[Atom, Fault, Faults]] = []
    for atom, faults in claims(name):
        guarantee = derived.guarantee if atom in ACROSS else derived.of_one_key.guarantee
        found += [
            (atom, fault, faults)
            for fault in Fault
            if fault in INJECTED and not guarantee.holds(atom, frozenset({fault}))
            if (name, atom, fault) not in CAUTIOUS
        ]
    return found


def breaks(name: str, atom: Atom, fault: Fault, faults: Faults) -> bool:
    """Whether some seed breaks the atom, across keys or within one."""
    return any(
        verdict.of(atom) is PropertyOutcome.VIOLATED
        for seed in range(SEEDS_TO_BREAK)
        for verdict in LaneOrdeal(LANES[name], faults | {fault}, seed, focus=fault).verdicts(atom)
    )


@pytest.mark.parametrize("name", SHOWN_TO_BREAK)
def test_with_lanes_the_order_within_a_key_breaks_where_it_is_not_promised(name: str) -> None:
    """pipes G-10: one fault more than a key's order tolerates, and some run breaks it. What breaks delivery is no
    matter of lanes, and stands in the table without them."""
    unbroken = {
        (name, atom, fault)
        for atom, fault, faults in lacking(name)
        if atom not in ACROSS and not breaks(name, atom, fault, faults)
    }
    assert unbroken == set()


# Errors that the table must notice.


class FailedGoesLast(LaneDelivery):
    """What failed is tried again behind what waits."""

    def _take_back(self, number: int, ticket: LaneTicket) -> None:
        self._end_ticket(number, ticket)
        rest = [message for message in ticket.messages if message.seq in ticket.open]
        self.lines[ticket.key].extend(rest)
        self._count_in(rest)


class SettlesWhatIsBefore(LaneDelivery):
    """An answer settles everything below it: what other lanes are still at."""

    def _settle_answered(self) -> None:
        for epoch, seq in tuple(self.answered):
            oldest = self._oldest(epoch) if epoch in self.unsettled else seq
            self.answered += [(epoch, before) for before in range(oldest, seq)]
        self.answered = sorted(set(self.answered))
        super()._settle_answered()


class FailedIsDone(LaneDelivery):
    """A message that failed is never tried again, and is settled."""

    def failed(self, number: int, seq: int, error: Cause, *, final: bool = False) -> None:
        del error, final
        self.settled(number, ((seq, seq),))


class KeysAreIgnored(LaneDelivery):
    """Each message has a line of its own."""

    def take(self, epoch: int, first: int, payloads: Sequence[bytes], producer: str = "") -> None:
        self.key_of = _each_its_own
        super().take(epoch, first, payloads, producer)


def _each_its_own(payload: bytes) -> Key:
    return payload


@pytest.mark.parametrize(
    ("delivery", "atom"),
    [
        (FailedGoesLast, Atom.MONOTONIC),
        (SettlesWhatIsBefore, Atom.NO_LOSS),
        (FailedIsDone, Atom.NO_LOSS),
        (KeysAreIgnored, Atom.MONOTONIC),
    ],
)
def test_errors_of_lanes_are_noticed(delivery: type[LaneDelivery], atom: Atom) -> None:
    """X-1: within sixty seeds of what ``reliable`` tolerates, the atom that the error breaks is seen to break."""

    class Wrong(KeyedWire):
        """With the error in it."""

    Wrong.delivery = delivery
    faults = dict(claims("reliable"))[atom]
    ordeals = (LaneOrdeal(LANES["reliable"], faults, seed, wires=Wrong) for seed in range(60))
    assert any(
        verdict.of(atom) is PropertyOutcome.VIOLATED
        for ordeal in ordeals
        for verdict in ordeal.verdicts(atom)
    )
