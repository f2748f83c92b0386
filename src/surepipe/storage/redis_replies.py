"""What an error of a Redis server, or of the way to it, means: ask again, or change something first.

A server answers an error with a code word. Inside a script the word stands somewhere in the text, in another place
in each version, so the words are looked for.
"""

from __future__ import annotations

import re
from typing import Final

from redis import exceptions

from surepipe.store_api import Failed, Unavailable

_CLASSES: Final[tuple[tuple[type[Exception], str], ...]] = (
    (exceptions.NoScriptError, "NOSCRIPT"),
    (exceptions.BusyLoadingError, "LOADING"),
    (exceptions.ReadOnlyError, "READONLY"),
    (exceptions.OutOfMemoryError, "OOM"),
    (exceptions.NoPermissionError, "NOPERM"),
    (exceptions.AuthenticationError, "NOAUTH"),
    (exceptions.MovedError, "MOVED"),
    (exceptions.AskError, "ASK"),
    (exceptions.TryAgainError, "TRYAGAIN"),
    (exceptions.MasterDownError, "MASTERDOWN"),
    (exceptions.ClusterDownError, "CLUSTERDOWN"),
    (exceptions.ClusterCrossSlotError, "CROSSSLOT"),
)

# What will do once the server has changed: the caller asks again, and the text says what it waits for.
_PASSING: Final[dict[str, str]] = {
    "LOADING": "the server is still loading its data from disk",
    "READONLY": "this server is a replica now and takes no writes; the next connection looks for the master",
    "OOM": "the server has no memory left (maxmemory): nothing was stored; raise maxmemory, trim streams, or let"
    " readers catch up",
    "MISCONF": "the server can't write to its disk and refuses writes: free or repair the disk",
    "NOREPLICAS": "the server has fewer replicas than min-replicas-to-write and refuses writes",
    "MASTERDOWN": "this replica has lost its master and refuses to answer",
    "CLUSTERDOWN": "the cluster does not serve this slot now: look at CLUSTER INFO",
    "MOVED": "the slot is on another node now; the next call goes there",
    "ASK": "the slot is being moved to another node",
    "TRYAGAIN": "the slot is being moved to another node",
    "BUSY": "the server is busy with a script that somebody runs for too long",
    "UNBLOCKED": "the server ended the wait, as it does when its role changes",
    "MAXCLIENTS": "the server has as many clients as maxclients allows: raise it, or close other clients",
}

# What stays as it is until somebody acts.
_LASTING: Final[dict[str, str]] = {
    "NOAUTH": "the server refused the user name or the password: give both in the URL,"
    " redis://user:password@host (no user name: the default user)",
    "WRONGPASS": "the server refused the user name or the password: give both in the URL,"
    " redis://user:password@host (no user name: the default user)",
    "NOPERM": "the user lacks a right; docs/redis.md lists the rights that it needs",
    "CROSSSLOT": "the keys of one call lie in different slots of the cluster:"
    " use spread='pipeline', or transactions on one stream only",
    "WRONGTYPE": "a key holds something else than surepipe put there",
}

_WORDS = re.compile(rf"(?:^|[^A-Z])({'|'.join([*_PASSING, *_LASTING, 'NOSCRIPT'])})(?![A-Z])")

# After these replies the connection leads to the wrong place, or to a server that is not ready.
DISCARDING: Final = frozenset(
    {
        "LOADING",
        "READONLY",
        "MASTERDOWN",
        "CLUSTERDOWN",
        "NOAUTH",
        "WRONGPASS",
        "UNBLOCKED",
        "MAXCLIENTS",
    }
)


def code_of(error: Exception) -> str:
    """The code word of a server's error; "LOST" for a connection that broke or answered too late."""
    for kind, code in _CLASSES:
        if isinstance(error, kind):
            return code
    if "max number of clients" in str(error):
        return "MAXCLIENTS"
    if "The user executing the script" in str(error):
        return "NOPERM"  # for a command that the script calls; the word itself is not there
    if isinstance(error, exceptions.ResponseError):
        found = _WORDS.search(str(error))
        return found[1] if found else "ERR"
    return "LOST"


def meaning_of(error: Exception, where: str) -> Unavailable | Failed:
    """The outcome of a call that met this error. ``where`` names the server."""
    code = code_of(error)
    if code in _PASSING:
        return Unavailable(f"Redis at {where}: {_PASSING[code]} ({code})")
    if code in _LASTING:
        return Failed(f"Redis at {where}: {_LASTING[code]} ({error})")
    if code == "ERR":
        return Failed(f"Redis at {where} refused the command: {error}")
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return Failed(
            f"Redis at {where} showed a certificate that is not trusted; give ssl_ca_certs=... in the URL"
            f" ({error})"
        )
    return Unavailable(
        f"Redis at {where} does not answer, so the call was done or it was not ({error})"
    )


def moved_to(error: Exception) -> tuple[str, int] | None:
    """The address that a MOVED names; the host is empty for: the same host."""
    found = re.search(r"(\d+) (\S*):(\d+)$", str(error))
    return (found[2], int(found[3])) if found and code_of(error) == "MOVED" else None
