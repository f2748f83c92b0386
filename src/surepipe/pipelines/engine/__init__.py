"""The engine: a plan, running on actors."""

from surepipe.pipelines.engine.driving import run
from surepipe.pipelines.engine.real import RealEnvironment
from surepipe.pipelines.engine.running import Engine
from surepipe.pipelines.engine.unfinished import Unfinished

__all__ = ["Engine", "RealEnvironment", "Unfinished", "run"]
