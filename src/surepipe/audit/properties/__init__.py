"""What must hold of a run, as functions over its rows: one judge for explored, simulated and real runs."""

from __future__ import annotations

from surepipe.audit.properties.base import NAMES, Property, Report
from surepipe.audit.properties.judge import (
    AT_REST,
    ORACLES,
    PROPERTIES,
    HonestGuarantee,
    Judge,
    Oracle,
    judge,
)
from surepipe.audit.properties.ledger import PipeHistories, PipeHistory
from surepipe.audit.properties.totality import gauges_text
from surepipe.audit.settings import ALWAYS, ATOMS, ORDERS, Settings, claimed

__all__ = [
    "ALWAYS",
    "ATOMS",
    "AT_REST",
    "NAMES",
    "ORACLES",
    "ORDERS",
    "PROPERTIES",
    "HonestGuarantee",
    "Judge",
    "Oracle",
    "PipeHistories",
    "PipeHistory",
    "Property",
    "Report",
    "Settings",
    "claimed",
    "gauges_text",
    "judge",
]
