"""What can be put into a world: a pair of machines, and what of them survives a crash; or several pairs.

The same subject runs in the explorer and in the simulator. ``HopSubject`` builds the stacks that ship; tests bring
subjects of their own, for plain patterns and for mutants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from surepipe.core.effects import JournalContents
from surepipe.core.machine import Randomness, ReceiverMachine, SenderMachine
from surepipe.core.store_requests import KEEP_ALL, Level, Retention
from surepipe.errors import ConfigurationError
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


# Several pairs in one world.


@dataclass(frozen=True)
class PipeBetween:
    """A pipe of a layout, and the nodes that have its ends."""

    subject: Subject
    sender: str
    receiver: str

    @property
    def pipe(self) -> str:
        """Its name, which rows give."""
        return str(getattr(self.subject, "pipe", "pipe"))


@dataclass(frozen=True)
class Layout:
    """Nodes by name, with the pipes between them; a node lives, crashes and sleeps with all its ends.

        Layout(
            "relay",
            [
                PipeBetween(HopSubject("reliable", pipe="first"), "alice", "relay"),
                PipeBetween(HopSubject("reliable", pipe="second"), "relay", "bob"),
            ],
            relays={"first": "second"},
        )

    ``relays``: what comes out of one pipe is sent into another one that begins on the same node. ``hand_over``
    says when the former counts as handled: ``HANDED`` when the next sender has accepted it, ``PROCESSED`` when it
    is safe, in the journal of that sender or confirmed by the next receiver. Into the other pipes applications
    offer as many messages each as the options say. Stores are shared: an outage of ``journal`` is one of every
    journal.

    Raises ConfigurationError for a layout without pipes, for two pipes of one name, and for a relay that can't be.
    """

    name: str
    pipes: Sequence[PipeBetween]
    relays: Mapping[str, str] = field(default_factory=dict[str, str])
    hand_over: Boundary = Boundary.PROCESSED

    def __post_init__(self) -> None:
        by_name = {one.pipe: one for one in self.pipes}
        if not by_name or len(by_name) < len(self.pipes):
            raise ConfigurationError(
                f"{self.name} has the pipes {[one.pipe for one in self.pipes]}: "
                "a layout has at least one, and each has a name of its own"
            )
        if len(set(self.relays.values())) < len(self.relays):
            raise ConfigurationError(f"{self.name}: a pipe is fed by one other pipe at the most")
        for fed_by, pipe in self.relays.items():
            first, second = by_name.get(fed_by), by_name.get(pipe)
            if first is None or second is None or first.receiver != second.sender:
                raise ConfigurationError(
                    f"{self.name} can't relay from {fed_by!r} to {pipe!r}: "
                    "both must be its pipes, and the second begins on the node where the first ends"
                )
        if not self.chains or sum(map(len, self.chains)) < len(self.pipes):
            raise ConfigurationError(f"{self.name} has relays that go round in a circle")

    @property
    def chains(self) -> Sequence[Sequence[PipeBetween]]:
        """The pipes as their messages go through them: each from where an application offers to the last end."""
        by_name = {one.pipe: one for one in self.pipes}
        fed = set(self.relays.values())
        found: list[list[PipeBetween]] = []
        for one in self.pipes:
            if one.pipe in fed:
                continue
            chain = [one]
            while chain[-1].pipe in self.relays:
                chain.append(by_name[self.relays[chain[-1].pipe]])
            found.append(chain)
        return found
