"""What an exploration covers: how many messages, which links, and how often each fault may strike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from surepipe.errors import ConfigurationError

LinkOrder: TypeAlias = Literal["fifo", "any"]

EXPLORED_FAULTS: Mapping[str, str] = {
    "F1": "a frame that carries messages is lost",
    "F2": "a control frame is lost",
    "F3": "a frame is copied; the copy travels behind what is on the way",
    "F4": "frames overtake each other: the link order is 'any'",
    "F5": "a deadline passes while frames are on the way",
    "F6": "all links are cut for a while",
    "F7a": "nothing reaches the receiver any more",
    "F7b": "nothing reaches the sender any more",
    "F8": "the sender crashes, its memory is lost",
    "F9": "the sender crashes, its journal is kept",
    "F10": "the receiver crashes before it processes what arrives",
    "F11": "the receiver crashes while or after it processes what arrives",
    "F13": "the stream store crashes and keeps its data",
    "F14": "the stream store loses its last write",
    "F15": "the stream store confirms, and loses what was not yet durable",
    "F16": "the index store loses everything",
    "F17": "the index store falls back to an older value",
    "F18": "the index store can't be reached for a while",
    "F26": "everything that waits for a node is lost",
    "F28": "a node is replaced, and the old one goes on beside the new one",
    "F29": "the stream store trims its oldest entry",
}
"""The faults of the catalogue that have a transition here, and what that is."""

ON_LINKS = ("F1", "F2", "F3", "F4", "F5", "F6", "F7a", "F7b", "F26")
"""Those that befall frames and deadlines; all others befall parts of what is explored."""

WAKE = "wake"
"""In a budget: a deadline that passes in time."""

FOR_GOOD = ("F7a", "F7b")
"""Faults that no drain heals."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The bounds of one exploration. Everything within them is tried.

    ``faults`` says how often each fault may strike, by its id in the catalogue; ``F4`` is the link order ``any``.
    ``properties`` are judged, by id: those that look at the end of a run (``P2``, ``P11``, ``P12``) by draining
    every reachable state. ``batch`` messages are submitted at once. ``crash_inside`` names the events within
    which the sender may crash after some effects (``arrive submit wake answer``), beside crashes between events.
    With ``apart``, answers of stores and the end of each delivery are transitions of their own; otherwise they
    come at once. A deadline at most ``prompt_us`` away may pass at any time; one further away passes only when
    nothing is on the way, or costs one ``F5``; ``wakes`` bounds how often that may be (a sender that is never
    answered repeats for ever, and a store that takes each repetition grows for ever). ``after_crash`` judges
    ``P2`` for those messages only that were accepted after the last crash. ``exact`` keeps whole states instead
    of their digests. ``reduced`` leaves out states that can't do more than others, which is faster and can say
    that everything holds, but never how short a counterexample is.
    """

    messages: int = 3
    order: LinkOrder = "fifo"
    faults: Mapping[str, int] = field(default_factory=dict[str, int])
    properties: tuple[str, ...] = ("P1", "P2")
    batch: int = 1
    crash_inside: tuple[str, ...] = ("arrive",)
    apart: bool = False
    prompt_us: int = 50_000
    wakes: int | None = None
    states_max: int = 1_000_000
    drain_steps_max: int = 2_000
    after_crash: bool = False
    exact: bool = False
    reduced: bool = False

    def __post_init__(self) -> None:
        """Refuse what can't be meant. Raises ConfigurationError."""
        for fault, times in self.faults.items():
            if fault not in EXPLORED_FAULTS:
                known = ", ".join(EXPLORED_FAULTS)
                raise ConfigurationError(f"exploration has no fault {fault!r}; it has {known}")
            if times < 0:
                raise ConfigurationError(f"fault {fault} can't strike {times} times")
        cuts = [fault for fault in ("F6", "F18", *FOR_GOOD) if self.faults.get(fault)]
        if len(cuts) > 1 and any(fault in FOR_GOOD for fault in cuts):
            raise ConfigurationError("a cut that heals and one that stays can't be in one scope")
        if self.messages < 1 or self.batch < 1 or self.states_max < 1:
            raise ConfigurationError("messages, batch and states_max are whole numbers from 1")

    @property
    def budget(self) -> Mapping[str, int]:
        """How often each thing that is limited may happen."""
        limited = {fault: times for fault, times in self.faults.items() if times}
        return limited if self.wakes is None else {**limited, WAKE: self.wakes}

    @property
    def keeps_order(self) -> bool:
        """True when a frame never overtakes another."""
        return self.order == "fifo" and not self.faults.get("F4")

    def __str__(self) -> str:
        faults = " ".join(f"{fault}:{times}" for fault, times in self.faults.items() if times)
        order = "fifo" if self.keeps_order else "any"
        wakes = "" if self.wakes is None else f", at most {self.wakes} wakes in time"
        reduced = ", reduced" if self.reduced else ""
        return f"{self.messages} messages, links {order}, {faults or 'no faults'}{wakes}{reduced}"
