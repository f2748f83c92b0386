"""Space-time diagrams of counterexamples: what stands where (``layout``), and how that is written (``svg``)."""

from surepipe.simulation.report.picture.layout import Caption, lay_out
from surepipe.simulation.report.picture.svg import write_svg

__all__ = ["Caption", "lay_out", "write_svg"]
