"""Findings of a judge: the broken property, the message, and the step."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Violation:
    """One property, broken. ``position`` is the message by its place among all accepted ones of its pipe, 0 for
    none.

    ``step`` is the row at which the property is first false; at the end of a run the row ``end``.
    ``sentence`` says it to a person, with the message's number.
    """

    property: str
    name: str
    step: int
    sentence: str
    pipe: str = ""
    epoch: int = 0
    seq: int = 0
    position: int = 0
    end: str = ""
    """the end of a pipeline at which it was found, at the end of a run"""
    content: str = ""
    """what did not come there, or too often, as text"""
    why: str = ""
    """why its step decides, in words, where a run shows that"""

    def __str__(self) -> str:
        return f"{self.property} {self.name} violated at step {self.step}: {self.sentence}"
