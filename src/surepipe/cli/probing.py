"""Asking the Redis servers of a plan what they keep."""

from __future__ import annotations

from surepipe.core.store_requests import Level
from surepipe.errors import ConfigurationError
from surepipe.pipelines.assessing import declared_level
from surepipe.pipelines.models.stores import RedisStorePart
from surepipe.pipelines.plan import Plan
from surepipe.storage.redis.store import RedisStore


def probed_levels(plan: Plan, *, doubting: bool = False) -> dict[str, Level]:
    """The level of each Redis store whose durability is not declared, as its server's settings give it.

    ``doubting``: of a declared one too, where its server tells; the weaker of both counts. Raises StoreUnavailable
    when one does not answer, ConfigurationError when its address can't be used or it would throw messages away.
    """
    levels: dict[str, Level] = {}
    for part in plan.stores:
        if isinstance(part, RedisStorePart) and (doubting or part.durability is None):
            store = RedisStore.from_url(part.url.reveal(), pipeline=part.keys or plan.name)
            try:
                found = store.durability
                if refusal := store.refusal:
                    raise ConfigurationError(f"store {part.name}: {refusal}")
            finally:
                store.close()
            if part.durability is None:
                levels[part.name] = found.level
            elif found.told:
                levels[part.name] = min(found.level, declared_level(part))
    return levels
