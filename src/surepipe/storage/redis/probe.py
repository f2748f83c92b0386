"""What a Redis server keeps, by its own configuration, and whether a store may live on it."""

from __future__ import annotations

from dataclasses import dataclass

from surepipe.core.store_requests import Failed, Level, Unavailable
from surepipe.storage.redis.link import RedisLink, Reply

_SETTINGS = ("appendonly", "appendfsync", "no-appendfsync-on-rewrite", "maxmemory-policy")


@dataclass(frozen=True, slots=True)
class RedisFacts:
    """A server as it described itself."""

    version: str
    level: Level
    why: str
    """The settings that the level follows from."""
    refusal: str = ""
    """Why no store may live there; empty when one may."""
    tells: bool = True
    """Its settings could be asked for; otherwise the level is the weakest that is possible."""
    was_fine: bool = False
    """A store lived there before the refusal."""


@dataclass(frozen=True, slots=True)
class Durability:
    """The level of a store, and where it comes from."""

    level: Level
    declared: bool
    probed: Level
    why: str
    told: bool = True
    """The server told its settings; otherwise ``probed`` is the weakest that is possible."""

    def __str__(self) -> str:
        if not self.declared:
            return f"{self.level} ({self.why})"
        return f"{self.level} (declared; the server's settings give {self.probed}: {self.why})"


def probe(link: RedisLink, tag: str) -> RedisFacts | Unavailable | Failed:
    """Ask the server: by CONFIG GET, and by INFO for what INFO tells where CONFIG is not allowed."""
    commands = [("INFO", part) for part in ("server", "memory", "persistence")]
    replies = link.call(tag, [*(("CONFIG", "GET", name) for name in _SETTINGS), *commands])
    if isinstance(replies, Unavailable | Failed):
        return replies
    settings = {
        name: found
        for name, reply in zip(_SETTINGS, replies, strict=False)
        if (found := _setting(reply)) is not None
    }
    facts = {**_facts(replies[-3]), **_facts(replies[-2]), **_facts(replies[-1])}
    level, why = _level(settings, facts)
    policy = settings.get("maxmemory-policy", facts.get("maxmemory_policy", ""))
    tells = {"appendonly", "appendfsync"} <= settings.keys()
    return RedisFacts(
        facts.get("redis_version", "?"), level, why, _refusal(policy, link.where(tag)), tells
    )


def _refusal(policy: str, where: str) -> str:
    if policy == "noeviction":
        return ""
    if not policy:
        return (
            f"Redis at {where} tells its maxmemory-policy neither by CONFIG GET nor by INFO memory, and only"
            " noeviction loses no messages: allow one of the two"
        )
    return (
        f"Redis at {where} has maxmemory-policy {policy}, so it would throw messages away when memory is short:"
        " set it to noeviction"
    )


def _level(settings: dict[str, str], facts: dict[str, str]) -> tuple[Level, str]:
    """R-7. What is not known counts as the weaker."""
    if "appendonly" not in settings:
        if facts.get("aof_enabled") == "1":
            return Level.INTERVAL, "AOF is on, CONFIG GET appendfsync is not allowed"
        return Level.NONE, "no AOF that the server tells of; CONFIG GET is not allowed"
    if settings["appendonly"] != "yes":
        return Level.NONE, "appendonly no"
    fsync = settings.get("appendfsync", "unknown")
    if fsync == "always" and settings.get("no-appendfsync-on-rewrite") == "yes":
        return Level.INTERVAL, "appendfsync always, but no-appendfsync-on-rewrite yes"
    why = f"appendonly yes, appendfsync {fsync}"
    return (Level.POWER if fsync == "always" else Level.INTERVAL), why


def _setting(reply: Reply) -> str | None:
    """The value that CONFIG GET gave for one name."""
    if isinstance(reply, list) and len(reply) == 2 and isinstance(reply[1], bytes):
        return reply[1].decode()
    return None


def _facts(reply: Reply) -> dict[str, str]:
    """INFO as a dictionary; empty when it is not allowed."""
    if not isinstance(reply, bytes):
        return {}
    lines = reply.decode(errors="replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)
