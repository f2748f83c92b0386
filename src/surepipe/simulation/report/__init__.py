"""Shows a counterexample to people: as text, as a page, and as a picture of time and space.

All are made from rows alone, so explored, simulated and real runs look the same.
"""

from __future__ import annotations

from surepipe.simulation.report.page import page, picture
from surepipe.simulation.report.text import text_report

__all__ = ["page", "picture", "text_report"]
