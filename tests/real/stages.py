"""All stages, in the order in which they start: the longest first, and those that work beside those that wait."""

from __future__ import annotations

from tests.real import (
    full,
    kills,
    netns,
    nodes,
    points,
    power,
    proxies,
    spark_clusters,
    spark_kills,
    stacks,
    tails,
    threads,
    zombies,
)
from tests.real.stage import Stage

STAGES: tuple[Stage, ...] = (
    spark_kills.STAGE,
    nodes.STAGE,
    kills.STAGE,
    points.STAGE,
    spark_clusters.EXECUTORS,
    zombies.STAGE,
    proxies.STAGE,
    proxies.REPLIES,
    spark_clusters.LOCAL_CLUSTER,
    power.STAGE,
    netns.STAGE,
    nodes.CUT,
    stacks.STAGE,
    tails.STAGE,
    full.STAGE,
    threads.STAGE,
)
