"""What must hold of a run, as functions over its rows: one judge for explored, simulated and real runs."""

from surepipe.simulation.properties.base import NAMES, Property, Report
from surepipe.simulation.properties.books import Book, Books
from surepipe.simulation.properties.honest import HonestGuarantee
from surepipe.simulation.properties.judge import (
    AT_REST,
    ORACLES,
    PROPERTIES,
    Judge,
    Oracle,
    judge,
)
from surepipe.simulation.properties.settings import ALWAYS, ATOMS, ORDERS, Settings, claimed
from surepipe.simulation.properties.totality import gauges_text

__all__ = [
    "ALWAYS",
    "ATOMS",
    "AT_REST",
    "NAMES",
    "ORACLES",
    "ORDERS",
    "PROPERTIES",
    "Book",
    "Books",
    "HonestGuarantee",
    "Judge",
    "Oracle",
    "Property",
    "Report",
    "Settings",
    "claimed",
    "gauges_text",
    "judge",
]
