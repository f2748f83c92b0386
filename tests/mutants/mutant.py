"""What a mutant is: a small named change, the subject that it changes, and the properties that must notice it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, fields, replace
from typing import Any

from surepipe.core.effects import Deliver, Effect, JournalContents
from surepipe.core.machine import Randomness, ReceiverMachine, SenderMachine
from surepipe.pipes.stack.assembled import ReceiverStack, SenderStack
from surepipe.pipes.stack.boundary import Boundary
from surepipe.simulation.options import Options
from surepipe.simulation.promises import Promise, promise_of
from surepipe.simulation.subjects import HopSubject, Subject
from tests.plain import resend as plain_resend
from tests.plain.base import Data, PlainSubject

Around = Callable[[], AbstractContextManager[None]]

WATCHED = Options(gauges=True, events_max=20_000)
"""Runs of mutants tell the gauges, for what must be told by them."""


@dataclass(frozen=True)
class Mutant:
    """``subject`` with the error in it, or ``around``, which makes it in a store or a host for a while.

    ``sound`` is the same subject without the error. ``change`` says in words what is wrong. ``within`` is a
    ceiling on the seeds until the first kill, well above what was measured. ``replays``: how often its script is
    run to make it shorter; a run that never comes to rest takes seconds.
    """

    id: str
    change: str
    killed_by: tuple[str, ...]
    subject: Subject
    sound: Subject
    around: Around = nullcontext
    base: Options = WATCHED
    within: int = 50
    replays: int = 60

    def __str__(self) -> str:
        return self.id


@dataclass(frozen=True)
class MutatedHop(HopSubject):
    """A hop of machines that ship, some parts of which are of a derived class with an error in it.

    Its machines don't assert their own invariants: they would raise, and what is tested here is the judge.
    """

    changes: tuple[type[object], ...] = ()
    claim: Mapping[str, tuple[str, ...]] | None = None
    """where it is held to something else than the algebra derives"""

    def promise(self) -> Promise:
        """What the hop promises without the error."""
        hop = HopSubject(**parts_of(self))
        promised = promise_of(hop)
        return promised if self.claim is None else replace(promised, claim=self.claim)

    def sender(
        self, *, life_hint: int, rng: Randomness, journal: JournalContents | None
    ) -> SenderStack:
        """A new life of the sender, changed."""
        stack = super().sender(life_hint=life_hint, rng=rng, journal=journal)
        stack.asserts = False
        self._change([stack.intake, *stack.layers])
        return stack

    def receiver(self, *, life: int, rng: Randomness, state: bytes | None) -> ReceiverStack:
        """A new incarnation of the receiver, changed."""
        stack = super().receiver(life=life, rng=rng, state=state)
        stack.asserts = False
        self._change([stack.delivery, *stack.layers])
        return stack

    def _change(self, parts: Sequence[object]) -> None:
        for part in parts:
            for change in self.changes:
                if type(part) is change.__bases__[0]:
                    part.__class__ = change


def parts_of(hop: HopSubject) -> dict[str, Any]:
    """What a hop was made of."""
    return {part.name: getattr(hop, part.name) for part in fields(HopSubject) if part.init}


def mutated(hop: HopSubject, *changes: type[object]) -> MutatedHop:
    """This hop with parts of other classes."""
    parts: dict[str, Any] = {**parts_of(hop), "name": f"{hop.name}, changed"}
    return MutatedHop(
        **parts,
        changes=changes,
        claim=hop.claim if isinstance(hop, MutatedHop) else None,
    )


@dataclass(frozen=True)
class ClaimedPlain(PlainSubject):
    """A plain pattern with what its source claims for it."""

    claim: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    def promise(self) -> Promise:
        """What the judge holds it to."""
        return Promise(claim=self.claim, rounds=1000)


class TicketedReceiver(plain_resend.Receiver):
    """The plain receiver, with tickets that tell deliveries apart: here a handler may take its time."""

    def __init__(self) -> None:
        super().__init__()
        self.tickets = 0

    def hand_over(self, data: Data) -> list[Effect]:
        """Deliver a message under the next ticket."""
        self.handed = (*self.handed, data)
        self.tickets += 1
        return [Deliver(self.tickets, data.epoch, data.number, data.payloads, 1)]


def claimed(plain: PlainSubject, *faults: str, atoms: Sequence[str]) -> ClaimedPlain:
    """The plain pattern, said to keep these atoms under these faults."""
    return ClaimedPlain(
        plain.name, plain.make_sender, plain.make_receiver, claim=dict.fromkeys(atoms, faults)
    )


@dataclass(frozen=True)
class Believed:
    """A subject that is held to what another one promises, as a loader without checks would believe."""

    inside: HopSubject
    model: HopSubject

    @property
    def name(self) -> str:
        """That of the subject inside."""
        return f"{self.inside.name}, believed"

    @property
    def boundary(self) -> Boundary:
        """That of the subject inside."""
        return self.inside.boundary

    @property
    def journaled(self) -> bool:
        """As the subject inside."""
        return self.inside.journaled

    @property
    def durable(self) -> bool:
        """As the subject inside."""
        return self.inside.durable

    def sender(
        self, *, life_hint: int, rng: Randomness, journal: JournalContents | None
    ) -> SenderMachine:
        """That of the subject inside."""
        return self.inside.sender(life_hint=life_hint, rng=rng, journal=journal)

    def receiver(self, *, life: int, rng: Randomness, state: bytes | None) -> ReceiverMachine:
        """That of the subject inside."""
        return self.inside.receiver(life=life, rng=rng, state=state)

    def promise(self) -> Promise:
        """What is believed."""
        return replace(promise_of(self.model), patterns={})


def swapped(owner: object, name: str, new: object) -> Around:
    """While it is on, this name of a module or class means something else."""

    @contextmanager
    def swap() -> Generator[None]:
        found = vars(owner)  # as it stands there: a static method is one, and no function
        old = found[name] if name in found else getattr(owner, name)
        setattr(owner, name, new)
        try:
            yield
        finally:
            setattr(owner, name, old)

    return swap
