"""Guarantees as values: atoms, faults, and the claims that people make of them.

A guarantee says, for each of four atoms, which faults the atom survives *together*: it holds in every run
whose faults all lie in its set. An atom that is missing is not provided even when nothing goes wrong. People
write a claim instead: a delivery name, an order name, and the faults that both must tolerate.

Sets print in the order of the enums below, so equal values print equally in every process.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias, TypeVar

from surepipe.errors import ConfigurationError


class Atom(StrEnum):
    """What a delivery trace may promise; ``predicates`` says exactly when each holds."""

    NO_LOSS = "no-loss"
    NO_DUPLICATE = "no-duplicate"
    MONOTONIC = "monotonic"
    GAP_FREE = "gap-free"


class Fault(StrEnum):
    """The closed set of what may go wrong; ``MEANING`` defines each."""

    ROUTE_LOSS = "route-loss"
    ROUTE_DUPLICATION = "route-duplication"
    ROUTE_REORDERING = "route-reordering"
    ROUTE_DELAY = "route-delay"
    ROUTE_OUTAGE = "route-outage"
    ROUTE_CORRUPTION = "route-corruption"
    SENDER_CRASH = "sender-crash"
    RECEIVER_CRASH = "receiver-crash"
    RELAY_CRASH = "relay-crash"
    SENDER_ZOMBIE = "sender-zombie"
    RECEIVER_ZOMBIE = "receiver-zombie"
    HANDLER_FAILURE = "handler-failure"
    STORE_OUTAGE = "store-outage"
    STORE_CRASH = "store-crash"
    POWER_LOSS = "power-loss"
    STORE_ROLLBACK = "store-rollback"
    STORE_TRIM = "store-trim"
    CLOCK_STEP = "clock-step"


MEANING: Mapping[Fault, str] = {
    Fault.ROUTE_LOSS: "frames vanish, in either direction; one that is repeated for ever gets through",
    Fault.ROUTE_DUPLICATION: "a frame arrives once more, at any later time",
    Fault.ROUTE_REORDERING: "later frames overtake a frame",
    Fault.ROUTE_DELAY: "frames keep their order and arrive long after every timeout",
    Fault.ROUTE_OUTAGE: "for a finite time nothing gets through",
    Fault.ROUTE_CORRUPTION: "bytes of a frame change; its checksum makes that a loss",
    Fault.SENDER_CRASH: "the sender's process ends anywhere and restarts from what it persisted",
    Fault.RECEIVER_CRASH: "the receiver's process ends anywhere and restarts from what it persisted",
    Fault.RELAY_CRASH: "the process between two hops of a chain ends anywhere and restarts",
    Fault.SENDER_ZOMBIE: "a replaced sender goes on running for a finite time",
    Fault.RECEIVER_ZOMBIE: "a replaced receiver goes on running for a finite time",
    Fault.HANDLER_FAILURE: "the handler raises, some times or always for one message",
    Fault.STORE_OUTAGE: "store calls fail or stay unanswered for a finite time, done or not",
    Fault.STORE_CRASH: "the store's process ends and returns with what its level keeps",
    Fault.POWER_LOSS: "both ends and all stores end at once; what was not synced is gone",
    Fault.STORE_ROLLBACK: "the store returns with an older state, at worst an empty one",
    Fault.STORE_TRIM: "entries are removed before a reader that has stored a position has read them",
    Fault.CLOCK_STEP: "the wall clock jumps, forwards or back",
}

Faults: TypeAlias = frozenset[Fault]
T = TypeVar("T")

NO_FAULTS: Faults = frozenset()
ALL_FAULTS: Faults = frozenset(Fault)
ROUTE: Faults = frozenset(fault for fault in Fault if fault.startswith("route-"))
LOSSY: Faults = frozenset({Fault.ROUTE_LOSS, Fault.ROUTE_OUTAGE, Fault.ROUTE_CORRUPTION})
"""The route faults under which a frame never arrives."""

_PREFIX = (Atom.NO_DUPLICATE, Atom.GAP_FREE)
"""Together: the trace is a prefix of what was accepted, and so in order."""

STORE_FAULTS: Faults = frozenset(
    {Fault.STORE_OUTAGE, Fault.STORE_CRASH, Fault.STORE_ROLLBACK, Fault.STORE_TRIM}
)
"""What only a store can do: tolerated for certain where there is none."""

PROCESS_CRASH: Faults = frozenset({Fault.SENDER_CRASH, Fault.RECEIVER_CRASH, Fault.RELAY_CRASH})
PROCESS_REPLACED: Faults = frozenset({Fault.SENDER_ZOMBIE, Fault.RECEIVER_ZOMBIE})

WORDS: Mapping[str, Faults] = {
    "network": ROUTE,
    "process-crash": PROCESS_CRASH,
    "process-replaced": PROCESS_REPLACED,
    "bad-stage": frozenset({Fault.HANDLER_FAILURE}),
    "store-outage": frozenset({Fault.STORE_OUTAGE}),
    "store-crash": frozenset({Fault.STORE_CRASH}),
    "host-power-loss": frozenset({Fault.POWER_LOSS}),
    "store-rollback": frozenset({Fault.STORE_ROLLBACK}),
    "store-trim": frozenset({Fault.STORE_TRIM}),
    "clock-step": frozenset({Fault.CLOCK_STEP}),
}
"""What happens to people, in their words, and the faults behind each. Every fault is behind one word.

This is the one vocabulary: of `expect`, `check`, `simulate --faults`, the schema and the tables. The names of
the faults themselves are understood wherever a word is.
"""

WORD_MEANING: Mapping[str, str] = {
    "network": "frames are lost, repeated, delayed, damaged or overtaken, and for a while none gets through",
    "process-crash": "a process ends anywhere, as by kill -9, and is started again",
    "process-replaced": "a process is taken for dead and replaced, and goes on running beside its successor",
    "bad-stage": "a stage, a handler or a sink raises, some times or always for one message",
    "store-outage": "a store does not answer, or answers late, and nobody knows whether the call was done",
    "store-crash": "a store's server ends and comes back with what it has kept",
    "host-power-loss": "the machine loses power: all processes and stores end, and what was not synced is gone",
    "store-rollback": "a store comes back older than it was, as from a backup, or empty",
    "store-trim": "a stream is cut ahead of a reader",
    "clock-step": "the wall clock jumps, forwards or back",
}

EVERYDAY = ("network", "process-crash", "bad-stage", "store-outage", "host-power-loss")
"""The words for what happens to everybody."""

FAULTS_OF: Mapping[str, Faults] = {
    **WORDS,
    **{fault.value: frozenset({fault}) for fault in Fault},
    "route": ROUTE,
}
"""Everything that may be written: words, then the faults behind them, and an earlier word for network."""


def in_order(faults: Faults) -> tuple[Fault, ...]:
    """The faults of a set in the one order that everything prints them in."""
    return tuple(fault for fault in Fault if fault in faults)


def faults_text(faults: Faults) -> str:
    """The faults, comma separated: a word where all faults behind it are meant, else these by name."""
    texts: list[str] = []
    for word, members in WORDS.items():
        texts += [word] if members <= faults else in_order(members & faults)
    return ", ".join(texts)


def faults_told(faults: Faults) -> str:
    """The same for people: what is meant of a word in part stands behind it."""
    texts: list[str] = []
    for word, members in WORDS.items():
        if members <= faults:
            texts.append(word)
        elif part := in_order(members & faults):
            texts.append(f"{word} ({', '.join(part)})")
    return ", ".join(texts)


def delivers_told(claim: Claim, per_key: Claim | None = None, delivery: str = "") -> str:
    """``exactly-once, absolute order``, for people. ``per_key``: what holds among the messages of each key, where
    that is said by itself; ``delivery``: where an engine has another word for it."""
    order = _order_told(claim)
    if per_key is not None:
        order = f"{_order_told(per_key)} per key, {order} across keys"
    return f"{delivery or claim.delivery}, {order}"


def promise_told(claim: Claim, per_key: Claim | None = None) -> str:
    """The same, and through which faults it holds."""
    through = f"; through {faults_told(claim.tolerates)}" if claim.tolerates else ""
    return f"{delivers_told(claim, per_key)}{through}"


def _order_told(claim: Claim) -> str:
    return "no order" if claim.order == "none" else f"{claim.order} order"


def word_of(fault: Fault) -> str:
    """The word that a fault is behind."""
    return next(word for word, members in WORDS.items() if fault in members)


def together(faults: Faults, linked: Iterable[Faults]) -> Faults:
    """These faults, and all that can't strike without them: the two ends of one process crash at once."""
    return faults.union(*(one for one in linked if one & faults))


@dataclass(frozen=True, slots=True)
class Guarantee:
    """The faults that each provided atom tolerates. Ordered by inclusion; ``&`` is what both provide."""

    no_loss: Faults | None = None
    no_duplicate: Faults | None = None
    monotonic: Faults | None = None
    gap_free: Faults | None = None

    @classmethod
    def of(cls, atoms: Mapping[Atom, Faults | None]) -> Guarantee:
        """Build one from a mapping; atoms that are not in it are not provided."""
        return cls(*(atoms.get(atom) for atom in Atom))

    def tolerated(self, atom: Atom) -> Faults | None:
        """What ``atom`` survives, or None when it isn't provided."""
        return self._row()[tuple(Atom).index(atom)]

    def items(self) -> Iterator[tuple[Atom, Faults]]:
        """The provided atoms in order."""
        for atom, faults in zip(Atom, self._row(), strict=True):
            if faults is not None:
                yield atom, faults

    def holds(self, atom: Atom, faults: Faults) -> bool:
        """True when ``atom`` is provided under all of ``faults`` together.

        Gap-free without repeats is a prefix, so monotonic follows wherever those two hold.
        """
        tolerated = self.tolerated(atom)
        if tolerated is not None and faults <= tolerated:
            return True
        return atom is Atom.MONOTONIC and all(self.holds(a, faults) for a in _PREFIX)

    def meets(self, claim: Claim) -> bool:
        """True when every atom of the claim holds under everything it tolerates."""
        return all(self.holds(atom, claim.tolerates) for atom in claim.atoms)

    def headline(self, exhibits: Faults) -> Claim:
        """The strongest names that hold over a route that exhibits these faults, and all they tolerate."""
        atoms = frozenset(atom for atom in Atom if self.holds(atom, exhibits))
        tolerates = ALL_FAULTS
        for atom in Atom:
            follows = atom is Atom.MONOTONIC and atoms.issuperset(_PREFIX)
            if atom in atoms and not follows:
                tolerates &= self.tolerated(atom) or NO_FAULTS
        return Claim(atoms, tolerates)

    def bound(self, linked: Sequence[Faults]) -> Guarantee:
        """The same where faults strike together: what is survived in part only is not survived."""
        return Guarantee(
            *(
                None
                if faults is None
                else frozenset(f for f in faults if together(frozenset({f}), linked) <= faults)
                for faults in self._row()
            )
        )

    def __le__(self, other: Guarantee) -> bool:
        return all(other.holds(atom, faults) for atom, faults in self.items())

    def __and__(self, other: Guarantee) -> Guarantee:
        pairs = zip(self._row(), other._row(), strict=True)
        return Guarantee(*(None if a is None or b is None else a & b for a, b in pairs))

    def __str__(self) -> str:
        lines = [f"{atom}: {faults_text(faults) or 'no fault'}" for atom, faults in self.items()]
        return "\n".join(lines) or "nothing"

    def _row(self) -> tuple[Faults | None, ...]:
        return (self.no_loss, self.no_duplicate, self.monotonic, self.gap_free)


_DELIVERY: Mapping[str, tuple[Atom, ...]] = {
    "best-effort": (),
    "at-most-once": (Atom.NO_DUPLICATE,),
    "at-least-once": (Atom.NO_LOSS,),
    "exactly-once": (Atom.NO_LOSS, Atom.NO_DUPLICATE),
}
_ORDER: Mapping[str, tuple[Atom, ...]] = {
    "none": (),
    "monotonic": (Atom.MONOTONIC,),
    "strict": (Atom.MONOTONIC, Atom.NO_DUPLICATE),
    "gap-free": (Atom.GAP_FREE,),
    "continuous": (Atom.GAP_FREE, Atom.MONOTONIC),
    "absolute": (Atom.GAP_FREE, Atom.NO_DUPLICATE, Atom.MONOTONIC),
}
DELIVERY_NAMES: tuple[str, ...] = tuple(_DELIVERY)
ORDER_NAMES: tuple[str, ...] = tuple(_ORDER)


@dataclass(frozen=True, slots=True)
class Claim:
    """What somebody expects: these atoms, under all of these faults together.

    Names are sets of atoms and nothing else, so claims that mean the same are equal and print the same:
    at-least-once with absolute *is* exactly-once with absolute.
    """

    atoms: frozenset[Atom]
    tolerates: Faults = NO_FAULTS

    def __post_init__(self) -> None:
        if self.atoms.issuperset(_PREFIX):
            object.__setattr__(self, "atoms", self.atoms | {Atom.MONOTONIC})

    @classmethod
    def named(
        cls, delivery: str = "best-effort", order: str = "none", tolerates: Sequence[str] = ()
    ) -> Claim:
        """Read the names of a claim; ConfigurationError names a word that means nothing."""
        atoms = (
            *_look_up("delivery", delivery, _DELIVERY),
            *_look_up("order", order, _ORDER),
        )
        return cls(frozenset(atoms), parse_faults(tolerates))

    @classmethod
    def parse(cls, text: str) -> Claim:
        """Read ``delivery, order; tolerates fault, fault``, every part optional, as ``str`` writes it."""
        names, _, faults = text.partition(";")
        faults = faults.strip().removeprefix("tolerates")
        chosen = {"delivery": "best-effort", "order": "none"}
        for word in _words(names):
            chosen["delivery" if word in _DELIVERY else "order"] = word
            _look_up("delivery or order", word, {**_DELIVERY, **_ORDER})
        return cls.named(chosen["delivery"], chosen["order"], _words(faults))

    @property
    def delivery(self) -> str:
        """The strongest delivery name that these atoms make."""
        return _strongest(self.atoms, _DELIVERY)

    @property
    def order(self) -> str:
        """The strongest order name that these atoms make."""
        return _strongest(self.atoms, _ORDER)

    def bound(self, linked: Sequence[Faults]) -> Claim:
        """The same where faults strike together: who names one of them means all."""
        return Claim(self.atoms, together(self.tolerates, linked))

    def lacks(self) -> tuple[Fault, ...]:
        """The faults that are not tolerated."""
        return in_order(ALL_FAULTS - self.tolerates)

    def __le__(self, other: Claim) -> bool:
        return self.atoms <= other.atoms and self.tolerates <= other.tolerates

    def __str__(self) -> str:
        names = f"{self.delivery}, {self.order}"
        return f"{names}; tolerates {faults_text(self.tolerates)}" if self.tolerates else names


def atoms_text(atoms: Iterable[Atom]) -> str:
    """The atoms in order, as a person lists them."""
    chosen = frozenset(atoms)
    words = [atom.value for atom in Atom if atom in chosen]
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def parse_faults(words: Sequence[str]) -> Faults:
    """Read words and names of faults; ConfigurationError names what is neither."""
    return NO_FAULTS.union(*(_look_up("fault", word, FAULTS_OF, WORDS) for word in words))


def _words(text: str) -> list[str]:
    return text.replace(",", " ").split()


def _strongest(atoms: frozenset[Atom], names: Mapping[str, tuple[Atom, ...]]) -> str:
    fitting = [name for name, needs in names.items() if atoms.issuperset(needs)]
    return max(fitting, key=lambda name: len(names[name]))


def _look_up(what: str, word: str, known: Mapping[str, T], named: Iterable[str] | None = None) -> T:
    if word in known:
        return known[word]
    close = difflib.get_close_matches(word, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else "known are " + ", ".join(named or known)
    raise ConfigurationError(f"{word!r} is no {what}: {hint}")
