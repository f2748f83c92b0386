"""Several writes in one script: the transaction of the Redis store."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from surepipe.core.store_requests import (
    AppendOutcome,
    AppendRun,
    CommitOutcome,
    CommitPosition,
    Failed,
    Unavailable,
)
from surepipe.errors import MisuseError
from surepipe.storage.pages import size_of
from surepipe.storage.redis.keys import Keys
from surepipe.storage.redis.scripts import Caller
from surepipe.storage.redis.values import (
    Argument,
    append_outcome,
    commit_arguments,
    commit_outcome,
    list_of,
    number_of,
    rest_of,
    run_arguments,
    text_of,
    too_long,
)

PARTS_MAX = 512
BYTES_MAX = 1 << 20
"""While its script runs, nobody else is served: so much is enough for one."""
_NOT_ALONE = Failed("not done, because another write of the transaction was not")


class RedisTransaction:
    """What a transaction of a Redis store will do when its block ends.

    Redis takes nothing back, so the script looks at everything before it writes anything. A command of the
    caller's own can't be looked at, but a single command fails before it changes anything: therefore there may
    be one, and it goes first. What needs more than one command belongs into one that takes several values
    (MSET, HSET, ZADD ...). Until the script runs nothing is done, so a part is taken back by forgetting it.
    """

    def __init__(self) -> None:
        self.done = False
        self.outcomes: tuple[AppendOutcome | CommitOutcome, ...] = ()
        self.requests: list[tuple[AppendRun | CommitPosition, int | None]] = []
        self._own: tuple[Sequence[Argument], Sequence[str]] | None = None
        self._parts = 0
        self._bytes = 0

    def append(self, request: AppendRun) -> None:
        """Add an append."""
        self.requests.append((request, None))
        self._bytes += size_of(request.payloads)

    @contextmanager
    def part(self) -> Generator[None]:
        """When this inner block raises, what was added in it is taken back, and the rest stays."""
        requests, own, added = len(self.requests), self._own, self._bytes
        self._parts += 1
        try:
            yield
        except BaseException:
            del self.requests[requests:]
            self._own, self._bytes = own, added
            raise

    @property
    def is_full(self) -> bool:
        """True behind a part with a command of the caller's own, and when the script has enough to do."""
        is_busy = self._parts >= PARTS_MAX or self._bytes >= BYTES_MAX
        return self._own is not None or is_busy

    def commit(self, request: CommitPosition, expected_next: int | None = None) -> None:
        """Add a commit; with ``expected_next``, only if the stored position is there (0: if there is none)."""
        self.requests.append((request, expected_next))

    def also(self, *command: Argument, keys: Sequence[str]) -> None:
        """Add one command of the caller's own, with the keys that it touches (``RedisStore.keys.own`` makes such).

        It is done with the transaction or not at all. When it fails, ``outcomes`` are Failed with its error.
        Raises MisuseError for a second one.
        """
        if self._own:
            raise MisuseError(
                "a Redis transaction takes one command of your own: Redis could not take the first back if the"
                " second failed; use one command with several values, such as MSET or HSET"
            )
        self._own = (command, keys)

    # When the block ends.

    def finish(self, caller: Caller, keys: Keys, now: Argument) -> None:
        """Perform it; sets ``done`` and ``outcomes``."""
        self.outcomes = self._refused_at_once(keys) or self._perform(caller, keys, now)

    def _refused_at_once(self, keys: Keys) -> tuple[Failed, ...]:
        tags = {keys.tag(request.stream) for request, _ in self.requests}
        if len(tags) > 1:
            names = " and ".join(sorted(tags))
            reason = f"a transaction can't span {names}: with spread='stream' each stream is alone"
            return (Failed(reason),) * len(self.requests)
        reasons = [
            too_long(request) if isinstance(request, CommitPosition) else None
            for request, _ in self.requests
        ]
        return tuple(reason or _NOT_ALONE for reason in reasons) if any(reasons) else ()

    def _perform(
        self, caller: Caller, keys: Keys, now: Argument
    ) -> tuple[AppendOutcome | CommitOutcome, ...]:
        requests = list(self.requests)
        streams = list(dict.fromkeys(request.stream for request, _ in requests))
        tag = keys.tag(streams[0] if streams else "")
        own_command, own_keys = self._own or ((), ())
        all_keys = [keys.layout(tag), keys.positions(tag)]
        all_keys += [key for stream in streams for key in keys.of_stream(stream)]
        while True:
            arguments: list[Argument] = [now, len(streams), len(requests)]
            for request, expected in requests:
                arguments += _arguments(request, expected, streams)
            reply = caller.run(
                "transaction", tag, [*all_keys, *own_keys], [*arguments, *own_command]
            )
            if isinstance(reply, Unavailable | Failed):
                return (reply,) * len(requests)
            if reply[0] == b"own":
                return (Failed(f"your own command failed: {text_of(reply[1])}"),) * len(requests)
            replies = [list_of(part) for part in list_of(reply[1])]
            if not any(part[0] == b"overlap" for part in replies):
                break
            requests = _without_what_is_stored(requests, replies)
        if self._is_new(caller):
            return (_again(),) * len(requests)
        self.done = reply[0] == b"done"
        return tuple(
            append_outcome(part, request.stream)
            if isinstance(request, AppendRun)
            else commit_outcome(part)
            for (request, _), part in zip(requests, replies, strict=True)
        )

    def _is_new(self, caller: Caller) -> bool:
        readers = [request for request, _ in self.requests if isinstance(request, CommitPosition)]
        told = [caller.is_new_to("commit", reader.stream, reader.reader) for reader in readers]
        return any(told)


def _again() -> Unavailable:
    return Unavailable("the server was restarted or replaced since the last call: look again")


def _arguments(
    request: AppendRun | CommitPosition, expected: int | None, streams: Sequence[str]
) -> list[Argument]:
    stream = streams.index(request.stream)
    if isinstance(request, AppendRun):
        return ["append", stream, *run_arguments(request)]
    return ["commit", stream, *commit_arguments(request, expected)]


def _without_what_is_stored(
    requests: Sequence[tuple[AppendRun | CommitPosition, int | None]],
    replies: Sequence[Sequence[object]],
) -> list[tuple[AppendRun | CommitPosition, int | None]]:
    """Cut the runs of which a part is stored."""
    return [
        (rest_of(request, number_of(part[1])), expected)
        if isinstance(request, AppendRun) and part[0] == b"overlap"
        else (request, expected)
        for (request, expected), part in zip(requests, replies, strict=True)
    ]
