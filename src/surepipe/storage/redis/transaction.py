"""Several writes in one script: the transaction of the Redis store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager

from surepipe.core.store_requests import (
    AllDone,
    AppendRun,
    Changed,
    CommitPosition,
    DropValues,
    Failed,
    JoinedOutcome,
    JoinedRequest,
    NoneDone,
    PutValues,
    RaiseMark,
    Together,
    TogetherOutcome,
    Transaction,
    Unavailable,
    in_time,
    taken_back,
)
from surepipe.errors import MisuseError
from surepipe.storage.pages import size_of
from surepipe.storage.redis.keys import Keys
from surepipe.storage.redis.link import Reply
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
from surepipe.storage.together import answer_of_decision, in_part, not_new, why_not

PARTS_MAX = 512
BYTES_MAX = 1 << 20
"""While its script runs, nobody else is served: so much is enough for one."""
_NOT_ALONE = Failed("not done, because another write of the transaction was not")


class RedisTransaction(Transaction):
    """What a transaction of a Redis store will do when its block ends.

    Redis takes nothing back, so the script looks at everything before it writes anything. A command of the
    caller's own can't be looked at, but a single command fails before it changes anything: therefore there may
    be one, and it goes first. What needs more than one command belongs into one that takes several values
    (MSET, HSET, ZADD ...). Until the script runs nothing is done, so a part is taken back by forgetting it.
    """

    def __init__(self, changes: list[Callable[[], None]] | None = None) -> None:
        """``changes``: of a simulated store alone, as a server calls nothing here."""
        super().__init__(changes, threading.RLock())
        self._expected: dict[int, int] = {}
        """Where a position must be for the commit with this place among the requests."""
        self._own: tuple[Sequence[Argument], Sequence[str]] | None = None
        self._parts = 0
        self._bytes = 0

    def add(self, request: JoinedRequest) -> None:
        super().add(request)
        self._bytes += _size_of(request)

    @contextmanager
    def part(self) -> Generator[None]:
        """When this inner block raises, what was added in it is taken back, and the rest stays."""
        requests, own, added = len(self.requests), self._own, self._bytes
        self._parts += 1
        try:
            with taken_back(self):
                yield
        except BaseException:
            for place in [place for place in self._expected if place >= requests]:
                del self._expected[place]
            self._own, self._bytes = own, added
            raise

    @property
    def is_full(self) -> bool:
        """True behind a part with a command of the caller's own, and when the script has enough to do."""
        is_busy = self._parts >= PARTS_MAX or self._bytes >= BYTES_MAX
        return self._own is not None or is_busy

    def commit(self, request: CommitPosition, expected_next: int | None = None) -> None:
        """Add a commit; with ``expected_next``, only if the stored position is there (0: if there is none)."""
        with in_time(self):
            if expected_next is not None:
                self._expected[len(self.requests)] = expected_next
            self.add(request)

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
        with in_time(self):
            self._own = (command, keys)

    def finish(self, caller: Caller, keys: Keys, now: Argument) -> None:
        """The block has ended: perform it."""
        own = self._own or ((), ())
        request = self.joined()
        self.settle(together(caller, keys, now, request, expected=self._expected, own=own))


def _size_of(request: JoinedRequest) -> int:
    match request:
        case AppendRun():
            return size_of(request.payloads)
        case PutValues(_, pairs):
            return sum(map(len, pairs.values()))
        case _:
            return 0


def together(
    caller: Caller,
    keys: Keys,
    now: Argument,
    request: Together,
    *,
    expected: Mapping[int, int] | None = None,
    own: tuple[Sequence[Argument], Sequence[str]] = ((), ()),
) -> TogetherOutcome:
    """``Store.together``, as one script. ``expected``: see ``RedisTransaction.commit``. ``own``: a command of
    the caller's, and its keys."""
    refused = why_not(request) or _spread_over(keys, request) or _too_long(request)
    if refused is not None:
        return refused
    parts, used = list(request.requests), _Used(request.requests, keys)
    while True:
        arguments: list[Argument] = [
            now,
            *used.counts,
            len(parts),
            "1" if request.is_decided else "",
        ]
        for place, part in enumerate(parts):
            arguments += used.arguments(part, (expected or {}).get(place))
        reply = caller.run("transaction", used.tag, [*used.keys, *own[1]], [*arguments, *own[0]])
        if isinstance(reply, Unavailable | Failed):
            return reply
        if reply[0] == b"own":
            return Failed(f"your own command failed: {text_of(reply[1])}")
        replies = [list_of(each) for each in list_of(reply[1])]
        if request.is_decided or not any(each[0] == b"overlap" for each in replies):
            break
        parts = _without_what_is_stored(parts, replies)
    if _is_new(caller, parts):
        return _AGAIN
    outcomes = tuple(_outcome_of(part, each) for part, each in zip(parts, replies, strict=False))
    if len(outcomes) < len(parts) or reply[0] == b"before":
        return answer_of_decision(request, outcomes[0])
    return AllDone(outcomes) if reply[0] == b"done" else NoneDone(outcomes)


_AGAIN = Unavailable("the server was restarted or replaced since the last call: look again")


def _spread_over(keys: Keys, request: Together) -> Failed | None:
    tags = sorted({keys.tag(_name_of(part)) for part in request.requests})
    if len(tags) < 2:
        return None
    names = " and ".join(tags)
    return Failed(f"a transaction can't span {names}: with spread='stream' each stream is alone")


def _name_of(part: JoinedRequest) -> str:
    match part:
        case AppendRun() | CommitPosition():
            return part.stream
        case PutValues() | DropValues():
            return part.table
        case RaiseMark():
            return part.mark


def _too_long(request: Together) -> NoneDone | None:
    reasons = [
        too_long(part) if isinstance(part, CommitPosition) else None for part in request.requests
    ]
    if not any(reasons):
        return None
    return NoneDone(tuple(reason or _NOT_ALONE for reason in reasons))


class _Used:
    """The streams, tables and marks that some requests need, and their keys in the order that the script takes."""

    def __init__(self, parts: Sequence[JoinedRequest], keys: Keys) -> None:
        self.streams = _names(parts, AppendRun, CommitPosition)
        self.tables = _names(parts, PutValues, DropValues)
        self.marks = _names(parts, RaiseMark)
        self.tag = keys.tag(_name_of(parts[0]) if parts else "")
        self.keys = [keys.layout(self.tag), keys.positions(self.tag)]
        self.keys += [key for stream in self.streams for key in keys.of_stream(stream)]
        self.keys += [*map(keys.table, self.tables), *map(keys.mark, self.marks)]

    @property
    def counts(self) -> list[Argument]:
        """How many of each."""
        return [len(self.streams), len(self.tables), len(self.marks)]

    def arguments(self, part: JoinedRequest, expected: int | None) -> list[Argument]:
        """A request as the script takes it."""
        match part:
            case AppendRun(stream):
                return ["append", self.streams.index(stream), *run_arguments(part)]
            case CommitPosition(stream):
                return ["commit", self.streams.index(stream), *commit_arguments(part, expected)]
            case PutValues(table, pairs):
                flat = [each for pair in pairs.items() for each in pair]
                return ["put", self.tables.index(table), len(flat), *flat]
            case DropValues(table, gone):
                return ["drop", self.tables.index(table), len(gone), *gone]
            case RaiseMark(mark):
                return ["raise", self.marks.index(mark)]


def _names(parts: Sequence[JoinedRequest], *kinds: type[JoinedRequest]) -> list[str]:
    return list(dict.fromkeys(_name_of(part) for part in parts if isinstance(part, kinds)))


def _outcome_of(part: JoinedRequest, reply: Sequence[Reply]) -> JoinedOutcome:
    if isinstance(part, CommitPosition):
        return commit_outcome(reply)
    if not isinstance(part, AppendRun):
        return Changed()
    if reply[0] == b"overlap":
        return in_part(part, number_of(reply[1]))
    return not_new(part) if reply[0] == b"twice" else append_outcome(reply, part.stream)


def _is_new(caller: Caller, parts: Sequence[JoinedRequest]) -> bool:
    readers = [part for part in parts if isinstance(part, CommitPosition)]
    told = [caller.is_new_to("commit", reader.stream, reader.reader) for reader in readers]
    return any(told)


def _without_what_is_stored(
    parts: Sequence[JoinedRequest], replies: Sequence[Sequence[Reply]]
) -> list[JoinedRequest]:
    """Cut the runs of which a part is stored."""
    return [
        rest_of(part, number_of(reply[1]))
        if isinstance(part, AppendRun) and reply[0] == b"overlap"
        else part
        for part, reply in zip(parts, replies, strict=True)
    ]
