"""Breaks a pipeline on purpose, reproducibly: worlds, faults, judges, exploration, shrinking, reports."""

from surepipe.simulation.campaign import CampaignResult, Failure, campaign
from surepipe.simulation.drawing import draw_options
from surepipe.simulation.faults import CATALOGUE, FaultKind, Mode
from surepipe.simulation.findings import RunResult, Violation
from surepipe.simulation.hop import replay, run_hop
from surepipe.simulation.options import Drain, Options, Tie
from surepipe.simulation.outside import Outside
from surepipe.simulation.promises import Promise, promise_of
from surepipe.simulation.script import Decision, Script
from surepipe.simulation.script_file import dump, load, parse, save
from surepipe.simulation.subjects import HopSubject, Subject

__all__ = [
    "CATALOGUE",
    "CampaignResult",
    "Decision",
    "Drain",
    "Failure",
    "FaultKind",
    "HopSubject",
    "Mode",
    "Options",
    "Outside",
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
