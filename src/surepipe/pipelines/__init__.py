"""Pipelines: a YAML file, or Python, becomes a plan, which is checked, drawn, simulated and run.

``load`` reads a file into a ``Plan`` (``read`` keeps its places too); ``assess`` says what the plan guarantees,
pipe by pipe and end to end.
"""

from __future__ import annotations

from surepipe.pipelines.assessing import Assessment, Verdict, assess
from surepipe.pipelines.loading import Document, load, loads, read
from surepipe.pipelines.plan import Plan, Way
from surepipe.pipelines.problems import PipelineErrors, Problem
from surepipe.pipelines.settings import Setting

__all__ = [
    "Assessment",
    "Document",
    "PipelineErrors",
    "Plan",
    "Problem",
    "Setting",
    "Verdict",
    "Way",
    "assess",
    "load",
    "loads",
    "read",
]
