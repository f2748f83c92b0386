"""A run as a story: who did what, step by step, and what each step did to one message.

A step is one event of one node with everything that it caused at once: *accepts #1, transmits it*. Frames are
arrows between steps. Text, page and picture are all made from a story, so they agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from surepipe.simulation.trace import Row

NETWORK = "network"
"""Where losses and copies happen."""


class Fate(Enum):
    """How a frame ends."""

    ARRIVED = "arrived"
    LOST = "lost"
    FLYING = "flying"


@dataclass(frozen=True, slots=True)
class Arrow:
    """A frame from the step that sent it to the step at which it ends; indexes into the steps.

    ``fork`` is the index of the step in which the network copied it, -1 for an original. ``end`` is the last step
    when the frame is still on its way.
    """

    text: str
    source: str
    target: str
    begin: int
    end: int
    fate: Fate
    is_focus: bool
    is_control: bool
    fork: int = -1


@dataclass(frozen=True, slots=True)
class Held:
    """A node has the message from step to step, by index; ``stays``: it has it at the end of the story."""

    node: str
    begin: int
    end: int
    stays: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """One event of one node. ``does`` says what happened, ``effect`` what that did to the message of the story.

    ``rows`` is empty for a folded step, which stands for ``folded`` others with the rows ``hidden``.
    """

    node: str
    rows: tuple[Row, ...]
    does: str
    effect: str = ""
    fault: str = ""
    is_focus: bool = False
    violates: bool = False
    drains: bool = False
    folded: int = 0
    hidden: tuple[Row, ...] = ()
    number: int = 0
    """what it is called where a story was folded twice, 0 where its place says it"""
    repeats: bool = False
    """says and does what a step before it did"""
    verdict: str = ""
    """of the step that decides, why"""

    @property
    def kind(self) -> str:
        """The kind of its event."""
        return self.rows[0].kind if self.rows else ""


@dataclass(frozen=True, slots=True)
class Story:
    """A run, told about one message. ``nodes`` are in the order of the picture, from left to right."""

    nodes: tuple[str, ...]
    steps: tuple[Step, ...]
    arrows: tuple[Arrow, ...]
    focus: str
    """the message, ``#2``; empty when the story is about none"""
    held: tuple[Held, ...] = ()
    is_staged: bool = False
    """functions of users were called"""
