"""Breaks a pipeline on purpose, reproducibly: worlds, faults, judges, exploration, shrinking, reports."""

from __future__ import annotations

from surepipe.audit.findings import Violation
from surepipe.simulation.campaign import CampaignResult, Failure, campaign
from surepipe.simulation.chance.script import Decision, Script, dump, load, parse, save
from surepipe.simulation.faults import CATALOGUE, FaultKind, Mode, draw_options
from surepipe.simulation.hop import replay, run_hop
from surepipe.simulation.options import Drain, Options, Tie
from surepipe.simulation.outside import Outside
from surepipe.simulation.promises import Promise, promise_of
from surepipe.simulation.results import RunResult
from surepipe.simulation.subjects import HopSubject, Layout, PipeBetween, Subject

__all__ = [
    "CATALOGUE",
    "CampaignResult",
    "Decision",
    "Drain",
    "Failure",
    "FaultKind",
    "HopSubject",
    "Layout",
    "Mode",
    "Options",
    "Outside",
    "PipeBetween",
    "Promise",
    "RunResult",
    "Script",
    "Subject",
    "Tie",
    "Violation",
    "campaign",
    "draw_options",
    "dump",
    "load",
    "parse",
    "promise_of",
    "replay",
    "run_hop",
    "save",
]
