"""All stages, in the order in which they run."""

from __future__ import annotations

from tests.real import (
    full,
    kills,
    netns,
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
    kills.STAGE,
    points.STAGE,
    zombies.STAGE,
    proxies.STAGE,
    proxies.REPLIES,
    tails.STAGE,
    stacks.STAGE,
    power.STAGE,
    full.STAGE,
    netns.STAGE,
    threads.STAGE,
    spark_kills.STAGE,
    spark_clusters.EXECUTORS,
    spark_clusters.LOCAL_CLUSTER,
)
