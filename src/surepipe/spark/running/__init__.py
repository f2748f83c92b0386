"""A pipeline's plan, run on Spark: ``SparkRun(plan)``; what ``surepipe run --engine spark`` does."""

from __future__ import annotations

from surepipe.spark.running.run import SparkRun, run

__all__ = ["SparkRun", "run"]
