"""What can be put between two ends of a world: a pair of machines, and what of them survives a crash.

The same subject runs in the explorer and in the simulator. ``HopSubject`` builds the stacks that ship; tests bring
subjects of their own, for plain patterns and for mutants.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from surepipe.core.effects import JournalContents
from surepipe.core.machine import Randomness, ReceiverMachine, SenderMachine
from surepipe.core.store_requests import KEEP_ALL, Level, Retention
from surepipe.pipes.catalogue import LayerText, parse_layers
from surepipe.pipes.options import LayerOptions
from surepipe.pipes.stack.assembled import ReceiverStack, SenderStack
from surepipe.pipes.stack.boundary import Boundary, BoundaryOptions


class Subject(Protocol):
    """Builds machines, anew for each life and each incarnation.

    ``journaled``: the sender's journal survives its crash. ``durable``: the receiver's stored state does.
    """

    @property
    def name(self) -> str:
        """How reports call it."""
        ...

    @property
    def boundary(self) -> Boundary:
        """When a message counts as settled."""
        ...

    @property
    def journaled(self) -> bool:
        """Whether the host keeps a journal for the sender."""
        ...

    @property
    def durable(self) -> bool:
        """Whether the host keeps the receiver's state."""
        ...

    def sender(
        self, *, life_hint: int, rng: Randomness, journal: JournalContents | None
    ) -> SenderMachine:
        """A new life of the sender, with what its journal holds."""
        ...

    def receiver(self, *, life: int, rng: Randomness, state: bytes | None) -> ReceiverMachine:
        """A new incarnation of the receiver, with the state that was stored last. ``life`` counts them."""
        ...


@dataclass(frozen=True)
class HopSubject:
    """A stack of layers between one sender and one receiver: the machines that ship.

    A stack that ends in a stream has a store between its ends. ``level`` is what its stores declare to survive,
    ``retention`` how long the stream keeps entries. ``asks`` names kinds of faults that befall only who asks for
    them, in every run that has any fault.

    ``beside`` are other hops of the same world, whose processes are their own and whose stores are the same;
    ``one_store``: journals, states, streams and positions too are in one. One that ``only_sends`` is a further
    producer of a stream that another one reads.
    """

    layers: LayerText | Sequence[LayerText]
    boundary: Boundary = Boundary.PROCESSED
    journaled: bool = False
    durable: bool = False
    pipe: str = "pipe"
    reverse: bool = True
    options: BoundaryOptions = field(default_factory=BoundaryOptions)
    name: str = ""
    level: Level = Level.POWER
    retention: Retention = KEEP_ALL
    asks: tuple[str, ...] = ()
    beside: Sequence[HopSubject] = ()
    one_store: bool = False
    only_sends: bool = False
    parsed: Sequence[LayerOptions] = field(default=(), init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parsed", parse_layers(self.layers))
        if not self.name:
            text = [self.layers] if not isinstance(self.layers, list | tuple) else list(self.layers)
            object.__setattr__(self, "name", " over ".join(str(layer) for layer in text))

    @property
    def stream(self) -> str:
        """The name of the stream, where one carries it."""
        return getattr(self.parsed[-1], "stream", None) or self.pipe

    @property
    def reader(self) -> str:
        """The name of the reader of that stream."""
        return getattr(self.parsed[-1], "reader", None) or self.pipe

    @property
    def told_pipe(self) -> str:
        """The pipe as rows name it: with the producer where several write into one stream."""
        producer = getattr(self.parsed[-1], "producer", None) or self.pipe
        return (
            f"{self.stream}@{producer}" if self.streamed and producer != self.stream else self.pipe
        )

    @property
    def streamed(self) -> bool:
        """Whether a stream in a store is what carries it."""
        return self.parsed[-1].kind == "stream"

    def sender(
        self, *, life_hint: int, rng: Randomness, journal: JournalContents | None
    ) -> SenderStack:
        """A new life of the sender."""
        stack = SenderStack(
            self.pipe,
            self.parsed,
            rng=rng,
            life_hint=life_hint,
            journal=journal,
            reverse=self.reverse and not self.streamed,
        )
        stack.asserts = True
        return stack

    def receiver(self, *, life: int, rng: Randomness, state: bytes | None) -> ReceiverStack:
        """A new incarnation of the receiver."""
        stack = ReceiverStack(
            self.pipe,
            self.parsed,
            rng=rng,
            boundary=replace(self.options, boundary=self.boundary, durable=self.durable),
            state=state,
            reverse=self.reverse and not self.streamed,
            life=life,
        )
        stack.asserts = True
        return stack
