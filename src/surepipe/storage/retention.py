"""What a stream keeps, for whoever looks after it."""

from __future__ import annotations

from typing import cast

from surepipe.core.store_requests import (
    Changed,
    Failed,
    NoStream,
    Retention,
    Store,
    called,
    said_of,
)
from surepipe.errors import ConfigurationError, StoreUnavailable


def change_retention(store: Store, stream: str, retention: Retention) -> None:
    """Let a stream keep entries in another way than it was made with, from the next append on. Nothing goes by the
    change itself. A stream of several partitions is named as it was created; all of them change.

    Ends that are at work go on; those that are made from now on, also again, must name the new retention. A repeat
    changes nothing; so after a crash call it again.

    Raises LookupError where there is no such stream, ConfigurationError, StoreUnavailable.
    """
    if not isinstance(cast("object", retention), Retention):
        raise ConfigurationError(
            f"stream {stream!r}: retention is {retention!r}: give Retention(max_bytes=...), "
            "Retention(max_age_us=...) or KEEP_ALL"
        )
    done = store.change_retention(stream, retention)
    if isinstance(done, NoStream):
        raise LookupError(f"{called(store)}: {done}")
    if not isinstance(done, Changed):
        kind = ConfigurationError if isinstance(done, Failed) else StoreUnavailable
        raise kind(said_of("the retention was not changed of stream", stream, done))
