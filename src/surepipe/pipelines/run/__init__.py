"""The engine: a plan, running on actors."""

from __future__ import annotations

from surepipe.pipelines.run.real import RealEnvironment
from surepipe.pipelines.run.running import PlanEngine, run
from surepipe.pipelines.run.unfinished import Unfinished

__all__ = ["PlanEngine", "RealEnvironment", "Unfinished", "run"]
