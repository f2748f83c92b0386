"""Running the scripts of the Redis store on a server that was looked at first."""

from __future__ import annotations

import hashlib
import logging
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources

from surepipe.core.store_requests import Failed, Level, Unavailable
from surepipe.errors import ConfigurationError, StoreUnavailable
from surepipe.storage.complaints import Complaints
from surepipe.storage.redis.keys import LAYOUT_VERSION, type_of
from surepipe.storage.redis.link import (
    Command,
    RedisLink,
    RefusedForNow,
    Reply,
    code_of,
    meaning_of,
)
from surepipe.storage.redis.probe import Durability, RedisFacts, probe
from surepipe.storage.redis.values import Argument, Replies, damaged, list_of, text_of

# The Lua scripts of the Redis store, as they are sent: each with the parts that its header says it needs.


NAMES = (
    "append",
    "claim",
    "commit",
    "create",
    "drop",
    "get",
    "identify",
    "info",
    "keys",
    "load",
    "open",
    "read",
    "retention",
    "transaction",
    "trim",
)
_NEEDS = re.compile(r"-- needs: (.+)")


@dataclass(frozen=True, slots=True)
class LuaScript:
    """One script and the hash under which a server that has loaded it knows it."""

    name: str
    source: bytes
    sha: bytes


@cache
def script(name: str) -> LuaScript:
    """The script of this name."""
    parts: dict[str, str] = {}
    _gather(name, parts)
    source = "".join(parts.values()).encode()
    sha = hashlib.sha1(source, usedforsecurity=False).hexdigest().encode()
    return LuaScript(name, source, sha)


def _gather(name: str, parts: dict[str, str]) -> None:
    """Add a file to ``parts``, after what it needs."""
    source = (
        resources.files("surepipe.storage.redis").joinpath("lua", f"{name}.lua").read_text("utf-8")
    )
    needs = _NEEDS.match(source)
    for part in needs[1].split(", ") if needs else []:
        if part not in parts:
            _gather(part, parts)
    parts[name] = source


logger = logging.getLogger("surepipe")
PROBE_AGAIN_S = 30.0
"""Settings may be changed while the server runs, and one that throws messages away does so at once."""
WRITING = frozenset(
    {"append", "claim", "commit", "create", "drop", "open", "retention", "transaction", "trim"}
)
READS_APART_FROM = 7
"""The version of Redis from which a script may be called as one that only reads (EVALSHA_RO). The server then asks
for no right to write the keys that the script names, so a user may be let read without being let write."""


class Caller:
    """Runs scripts: loads those that the server does not know, refuses a server that would lose messages, and logs
    now and then why a server takes nothing."""

    def __init__(
        self,
        link: RedisLink,
        home: str,
        *,
        declared: Level | None,
        replicas: int,
        replicas_within_s: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``home`` is the tag whose node is looked at. ``replicas``: see ``RedisStore``. ``monotonic``: seconds,
        for asking again what its settings are."""
        self.link = link
        self._home = home
        self._declared = declared
        self.replicas = replicas
        self._replicas_within_ms = max(1, round(replicas_within_s * 1000))
        self._probing = threading.Lock()
        self._server: RedisFacts | None = None
        self._probed_generation = -1
        self._monotonic = monotonic
        self._probe_at = 0.0
        self._seen: dict[tuple[str, ...], int] = {}
        self._complaints = Complaints()
        self._reads_apart = True
        """Scripts that only read are called as such, where the server has that and lets this user."""

    # The server.

    def server(self) -> RedisFacts | Unavailable | Failed:
        """What the server said about itself; asked anew after each restart or failover, after a refusal, and every
        ``PROBE_AGAIN_S``. Unavailable when it was fine and would throw messages away now: that can be put right.
        """
        with self._probing:
            known, now = self._server, self._monotonic()
            is_same = self._probed_generation == self.link.generation
            if known and not known.refusal and is_same and now < self._probe_at:
                return known
            found = probe(self.link, self._home)
            if not isinstance(found, RedisFacts):
                return found
            if known and found.refusal:
                self._probed_generation = self.link.generation
                if not known.refusal:
                    logger.warning("%s. Nothing is stored until then", found.refusal)
                self._server = replace(found, was_fine=known.was_fine or not known.refusal)
                return Unavailable(found.refusal) if self._server.was_fine else found
            self._probed_generation = self.link.generation
            self._probe_at = now + PROBE_AGAIN_S
            self._note(found)
            return found

    def _note(self, found: RedisFacts) -> None:
        if (
            self._declared is not None
            and found.level < self._declared
            and found.level != (self._server.level if self._server else None)
        ):
            logger.warning(
                "Redis at %s: level %s is declared, and its settings give %s (%s)",
                self.link.where(),
                self._declared,
                found.level,
                found.why,
            )
        self._server = found
        major = found.version.partition(".")[0]
        if major.isdecimal() and int(major) < READS_APART_FROM:
            self._reads_apart = False

    @property
    def declared(self) -> Level | None:
        """The level that was stated."""
        return self._declared

    def durability(self) -> Durability:
        """See ``RedisStore.durability``."""
        found = self._server or self.server()
        if isinstance(found, Unavailable):
            raise StoreUnavailable(
                f"what the store keeps can't be asked: {found.detail}; start the server, or correct its url. "
                "A sender with a journal in another store begins without it when the level is stated (level=..., "
                "in a plan durability: ...)"
            )
        if isinstance(found, Failed):
            raise ConfigurationError(f"the level of a store is not known: {found.reason}")
        level = found.level if self._declared is None else self._declared
        return Durability(level, self._declared is not None, found.level, found.why, found.tells)

    # Scripts.

    def run(
        self, name: str, tag: str, keys: Sequence[str], arguments: Sequence[Argument]
    ) -> Replies | Unavailable | Failed:
        """Run a script. Its reply is a list that begins with a word; some words mean Failed."""
        found = self.server()
        if isinstance(found, Unavailable | Failed):
            return found
        if found.refusal:
            return Failed(found.refusal)
        reply = self._evaluate(script(name), tag, keys, [LAYOUT_VERSION, *arguments])
        if isinstance(reply, RefusedForNow):
            self._complaints.hear(reply.detail)
        if isinstance(reply, Unavailable | Failed):
            return reply
        match reply[0]:
            case b"layout":
                return Failed(_other_layout(self.link.where(tag), text_of(reply[1])))
            case b"damaged":
                return damaged(reply[1])
            case _:
                return reply

    def look(self, tag: str, commands: Sequence[Command]) -> list[Reply] | None:
        """The replies of reading commands; None when the server does not answer all of them as it should.

        It is for who has a script to fall back on, which then says what is wrong.
        """
        found = self.server()
        if not isinstance(found, RedisFacts) or found.refusal:
            return None
        replies = self.link.call(tag, commands)
        if not isinstance(replies, list) or any(isinstance(each, Exception) for each in replies):
            return None
        return replies

    def _evaluate(
        self, wanted: LuaScript, tag: str, keys: Sequence[str], arguments: Sequence[Argument]
    ) -> Replies | Unavailable | Failed:
        is_writing = wanted.name in WRITING
        is_apart = self._reads_apart and not is_writing
        verb = "EVALSHA_RO" if is_apart else "EVALSHA"
        commands: list[Command] = [(verb, wanted.sha, len(keys), *keys, *arguments)]
        if self.replicas and is_writing:
            commands.append(("WAIT", self.replicas, self._replicas_within_ms))
        replies = self.link.call(tag, commands)
        if _is_unknown_script(replies):
            replies = self.link.call(tag, [("SCRIPT", "LOAD", wanted.source), *commands])
            replies = replies[1:] if isinstance(replies, list) else replies
        if isinstance(replies, Unavailable | Failed):
            return replies
        if is_apart and _is_about_the_command(replies[0], verb):
            # A user whose rights were listed for an older version of surepipe, or a server that hides its version.
            self._reads_apart = False
            return self._evaluate(wanted, tag, keys, arguments)
        if isinstance(error := replies[0], Exception):
            return self._refused(error, tag, keys)
        return self._replicated(replies) or list_of(replies[0])

    def _refused(self, error: Exception, tag: str, keys: Sequence[str]) -> Unavailable | Failed:
        meaning = meaning_of(error, self.link.where(tag))
        if code_of(error) != "WRONGTYPE":
            return meaning
        return self._wrong_keys(tag, keys) or meaning

    def _wrong_keys(self, tag: str, keys: Sequence[str]) -> Failed | None:
        """The server does not say which key has the wrong type, so look."""
        replies = self.link.call(tag, [("TYPE", key) for key in keys])
        for key, reply in zip(keys, replies if isinstance(replies, list) else [], strict=False):
            wanted = type_of(key)
            if wanted and reply not in (wanted.encode(), b"none", wanted, "none"):
                found = reply.decode() if isinstance(reply, bytes) else str(reply)
                return Failed(
                    f"key {key!r} holds a {found}, not a {wanted}: something else wrote it;"
                    " remove it, or choose another pipeline name (WRONGTYPE)"
                )
        return None

    def _replicated(self, replies: Sequence[Reply]) -> RefusedForNow | None:
        if len(replies) < 2:
            return None
        heard = replies[1]
        if isinstance(heard, int) and heard >= self.replicas:
            return None
        return RefusedForNow(
            f"stored, but only {heard!r} of {self.replicas} replicas said in time that they have it"
        )

    # Another server than before.

    def is_new_to(self, *who: str) -> bool:
        """True once for each asker after the server was restarted or replaced; not on the asker's first call.

        Data may have gone back, and a reader must look at its anchor again (R-6). A producer need not be told: it
        meets a Gap.
        """
        generation = self.link.generation
        before = self._seen.get(who, generation)
        self._seen[who] = generation
        return before != generation


def _is_unknown_script(replies: object) -> bool:
    return (
        isinstance(replies, list)
        and isinstance(error := replies[0], Exception)  # pyright: ignore[reportUnknownVariableType]
        and code_of(error) == "NOSCRIPT"
    )


def _is_about_the_command(reply: Reply, verb: str) -> bool:
    """Whether the server doesn't know this command, or doesn't let this user call it with any key."""
    return isinstance(reply, Exception) and f"'{verb}'" in str(reply).upper()


def _other_layout(where: str, version: str) -> str:
    return (
        f"Redis at {where} holds this pipeline in layout {version}, and this version of surepipe writes layout"
        f" {LAYOUT_VERSION}: use the version that wrote it until everything is delivered and the dead letters are"
        " replayed, then begin under another pipeline name"
    )
