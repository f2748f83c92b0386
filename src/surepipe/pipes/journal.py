"""The intake of a sender with a journal (being written)."""

from __future__ import annotations

from surepipe.pipes.intake import Intake


class JournaledIntake(Intake):
    """Accepts by storing a row."""
