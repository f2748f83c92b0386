"""Where two stories part."""

from __future__ import annotations

from surepipe.simulation.report.story import Step, Story


def first_difference(one: Story, other: Story) -> int:
    """The index of the first step that the two do not share; the length of the shorter when one continues."""
    shared = 0
    for left, right in zip(one.steps, other.steps, strict=False):
        if _told(left) != _told(right):
            break
        shared += 1
    return shared


def _told(step: Step) -> tuple[str, str, str]:
    return step.node, step.does, step.effect
