"""A store on a Redis server (6.2 or newer): streams of pages, positions, and both in one atomic step.

The keys are listed in ``redis_keys``; each script in ``scripts/`` lists what it touches. Commands of newer
versions are not used, so there is nothing to fall back from. How a server is set up (durability, users, TLS,
Sentinel, Cluster) is told in docs/redis.md.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile
from typing import Any, Self, cast

from redis.sentinel import Sentinel

from surepipe.core.store_requests import (
    AppendOutcome,
    AppendRun,
    ChangeRetention,
    ClaimReader,
    CommitOutcome,
    CommitPosition,
    CreateOutcome,
    CreateStream,
    DescribeStream,
    DropOutcome,
    DropStream,
    Empty,
    Failed,
    GetPosition,
    Hint,
    IdentifyEntry,
    InfoOutcome,
    JoinedOutcome,
    Level,
    LoadOutcome,
    LoadTable,
    Marked,
    MarkOutcome,
    OpenProducer,
    ReadFrom,
    ReadKeys,
    RetentionOutcome,
    Store,
    StoreOutcome,
    StoreRequest,
    TableRows,
    Together,
    TrimBefore,
    Unavailable,
    WaitForMark,
    WaitForMore,
    lent_for_block,
    missing,
    one_of_several,
    partition_of,
)
from surepipe.errors import ConfigurationError, StoreUnavailable
from surepipe.storage.pages import PagesOutcome, RawBatch, RawPage
from surepipe.storage.redis.keys import LAYOUT_VERSION, Keys, Spread, field_of, prefix_of
from surepipe.storage.redis.link import (
    Address,
    Command,
    Locator,
    RedisLimits,
    RedisLink,
    Reply,
    meaning_of,
    settings_of,
)
from surepipe.storage.redis.pages import PAGE_MAX_BYTES
from surepipe.storage.redis.probe import Durability
from surepipe.storage.redis.scripts import Caller
from surepipe.storage.redis.transaction import RedisTransaction, together
from surepipe.storage.redis.values import (
    SIMPLE,
    Argument,
    Replies,
    append_outcome,
    batch_of,
    bytes_of,
    commit_arguments,
    commit_outcome,
    create_outcome,
    list_of,
    number_of,
    pairs_of,
    raw_batch_of,
    raw_page_of,
    rest_of,
    retention_arguments,
    run_arguments,
    stream_info,
    too_long,
    trimmed_outcome,
)
from surepipe.storage.together import why_not

# Reading whole pages past the scripts: for readers in bulk, whose pages are large.
#
# A script copies each page into Lua and out again, which costs the server two to four times as much as XRANGE
# by itself (seen with 7.0.15). So a reader that knows the stream's incarnation, and stands where a page begins,
# sends XRANGE and looks at the stream's head behind it, in one go. The order makes it safe without a
# transaction:
#
# 1. The pages are read. 2. A trim, or another life of the stream, may come in between. 3. The head is read: it
# shows either one, and then the pages are not used.
#
# Whatever is not plain (a trim, another incarnation, the end, an error) is left to ``read.lua``, which says
# what.


@dataclass(frozen=True, slots=True)
class _Found:
    """What one exchange gave: pages without a hole before them, and the stream's next index."""

    pages: list[RawPage]
    end: int


def direct_pages(caller: Caller, keys: Keys, request: ReadFrom) -> RawBatch | None:
    """Pages from the request's index on, until a bound is reached; None when a script must look.

    The bounds are goals: where pages are longer than ``PAGE_MAX_BYTES``, because their only message is, up to
    ``max_bytes / PAGE_MAX_BYTES`` of them come at once.
    """
    if request.incarnation is None:
        return None
    pages: list[RawPage] = []
    end, index, left = 0, request.index, request.max_bytes
    stop = request.index + request.max_messages
    while left > 0 and index < stop:
        found = _exchange(caller, keys, request, (index, stop, left))
        if found is None:
            break
        pages += found.pages
        end, index = found.end, pages[-1].stop
        left -= sum(page.payload_bytes for page in found.pages)
        if index >= end:
            break
    return RawBatch(tuple(pages), end) if pages else None


def _exchange(
    caller: Caller, keys: Keys, request: ReadFrom, bounds: tuple[int, int, int]
) -> _Found | None:
    index, stop, left = bounds
    tag, name = keys.tag(request.stream), request.stream
    count = max(1, left // PAGE_MAX_BYTES)
    commands: list[Command] = [
        ("XRANGE", keys.pages(name), f"{index}-0", f"({stop}-0", "COUNT", count),
        ("HMGET", keys.head(name), "incarnation", "next", "earliest"),
        ("GET", keys.layout(tag)),
    ]
    replies = caller.look(tag, commands)
    if replies is None or replies[2] != LAYOUT_VERSION.encode():
        return None
    end = _end_of(list_of(replies[1]), request.incarnation, index)
    return None if end is None else _checked(list_of(replies[0]), index, end)


def _end_of(head: list[Reply], incarnation: int | None, index: int) -> int | None:
    """The stream's next index, if it is still the same stream and has the index."""
    if any(value is None for value in head) or number_of(head[0]) != incarnation:
        return None
    return number_of(head[1]) if number_of(head[2]) <= index else None


def _checked(entries: list[Reply], index: int, end: int) -> _Found | None:
    try:
        pages = [raw_page_of(entry) for entry in entries]
    except ValueError:  # damaged: the script's reply tells where
        return None
    if not pages or pages[0].index != index:
        return None
    # Where somebody has removed pages it ends, and read.lua says what is gone.
    whole = takewhile(lambda two: two[0].stop == two[1].index, pairwise(pages))
    return _Found([pages[0], *(page for _, page in whole)], end)


_NEW_SERVER = Unavailable(
    "the server was restarted or replaced since the last call, and its data may have gone back: look again"
)


class RedisStore(Store):
    """A store on Redis, with transactions. Threads may share it.

    Build one by URL, and close it in the end, or use it in a ``with`` block::

        with RedisStore.from_url("redis://localhost:6379/0", pipeline="orders") as store: ...
        store = RedisStore.from_url("rediss://user:secret@host:6380?ssl_ca_certs=ca.pem", pipeline="orders")
        store = RedisStore.from_url("unix:///run/redis.sock", pipeline="orders")
        store = RedisStore.from_sentinel([("host", 26379)], "mymaster", pipeline="orders")
        store.close()

    Nothing is asked of the server before the first call. Every call takes finite time, and answers ``Unavailable``
    when the server does not; the next call makes a new connection, after a pause that grows with each failure.

    A server that would throw messages away (``maxmemory-policy`` other than noeviction) gives ``Failed`` to every
    call until that is changed. What survives is asked of the server (``level``, ``durability``).
    """

    kind = "redis"

    def __init__(
        self,
        keys: Keys,
        link: RedisLink | None = None,
        waiting: RedisLink | None = None,
        *,
        level: Level | None = None,
        replicas: int = 0,
        limits: RedisLimits | None = None,
        clock: Callable[[], int] | None = None,
    ) -> None:
        """See ``from_url``. ``waiting`` is a link of its own for reads that block.

        Raises ConfigurationError for what is not made of these.
        """
        if not isinstance(cast("object", keys), Keys) or link is None or waiting is None:
            raise ConfigurationError(
                f"a Redis store can't be made of {keys!r}: write RedisStore.from_url('redis://localhost:6379/0', "
                "pipeline='orders'), or RedisStore.from_sentinel(...)"
            )
        limits = limits or RedisLimits()
        self.keys = keys
        self._waiting = waiting
        self._limits = limits
        self._clock = clock
        self._ends: dict[str, int] = {}
        self._is_closed = False
        self._nonce = secrets.token_hex(4)
        """Tells what this object gave as ``after`` from what another one did."""
        self._caller = Caller(
            link,
            keys.tag(""),
            declared=level,
            replicas=replicas,
            replicas_within_s=limits.answer_s / 2,
        )

    @classmethod
    def from_url(
        cls,
        url: str,
        *,
        pipeline: str,
        spread: Spread = "pipeline",
        level: Level | None = None,
        replicas: int = 0,
        limits: RedisLimits | None = None,
        clock: Callable[[], int] | None = None,
        pause: Callable[[float], object] | None = None,
        rng: random.Random | None = None,
        locate: Locator | None = None,
    ) -> RedisStore:
        """A store on the server at the URL.

        ``pipeline`` names the keys (``redis_keys``), and ``spread`` says whether one node holds all of them.
        ``level`` declares what the server keeps, in place of what its settings say; ``durability`` shows that it
        is declared. With ``replicas`` a write is confirmed only when so many replicas have it, which makes it rare
        (not impossible) that a failover loses it. ``clock`` gives wall-clock microseconds for retention by age;
        without it the server's clock counts. ``pause`` and ``rng`` are how it waits, and by how much, before a new
        connection. ``locate`` finds the master's address before each new connection, in place of the URL's.
        Raises ConfigurationError for a URL or a name that can't be used.
        """
        limits = limits or RedisLimits()
        keys = Keys(pipeline, spread)

        def link(bounds: RedisLimits) -> RedisLink:
            return RedisLink(
                settings_of(url, bounds), limits=bounds, locate=locate, pause=pause, rng=rng
            )

        # A read that blocks must end before its socket gives up.
        patient = replace(limits, answer_s=limits.answer_s + limits.block_s)
        return cls(
            keys,
            link(limits),
            link(patient),
            level=level,
            replicas=replicas,
            limits=limits,
            clock=clock,
        )

    @classmethod
    def from_sentinel(
        cls,
        sentinels: Sequence[Address],
        master: str,
        *,
        pipeline: str,
        url: str = "redis://",
        limits: RedisLimits | None = None,
        **options: Any,
    ) -> RedisStore:
        """A store on the master that the Sentinels name, asked before each new connection.

        ``url`` gives all but the address: user, password, database, TLS. ``options`` as in ``from_url``.
        """
        within = (limits or RedisLimits()).connect_s
        watch = Sentinel(  # type: ignore[no-untyped-call]  # pyright: ignore[reportUnknownMemberType]
            list(sentinels), socket_timeout=within, socket_connect_timeout=within
        )

        def locate() -> Address:
            return cast("Address", watch.discover_master(master))  # type: ignore[no-untyped-call]  # pyright: ignore[reportUnknownMemberType]

        return cls.from_url(url, pipeline=pipeline, limits=limits, locate=locate, **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections. Calls under way, waits too, answer Unavailable; later ones Failed."""
        self._is_closed = True
        self._caller.link.close()
        self._waiting.close()

    @property
    def closed(self) -> bool:
        """True after ``close``."""
        return self._is_closed

    def beside(self, name: str) -> RedisStore:
        """See ``Store.beside``: keys of its own, ``sp:{PIPELINE/NAME}:*``, over the connections of this store."""
        return RedisStore(
            Keys(f"{self.keys.pipeline}/{name}", self.keys.spread),
            self._caller.link,
            self._waiting,
            level=self._caller.declared,
            replicas=self._caller.replicas,
            limits=self._limits,
            clock=self._clock,
        )

    @property
    def level(self) -> Level:
        """What survives: as declared, else as the server's settings say.

        Raises StoreUnavailable when the server was never reached, ConfigurationError when it refuses us.
        """
        return self.durability.level

    @property
    def declared_level(self) -> Level | None:
        """The level that was stated; asks nobody."""
        return self._caller.declared

    @property
    def name(self) -> str:
        """The name in findings: its pipeline and its address."""
        return f"{self.keys.pipeline} on {self._caller.link.where()}"

    @property
    def one_slot(self) -> bool:
        """True when one transaction may write to everything that the pipeline has here."""
        return self.keys.spread == "pipeline"

    @property
    def level_is_declared(self) -> bool:
        """True when the level was stated, not asked of the server."""
        return self.durability.declared

    @property
    def refusal(self) -> str:
        """Why nothing may be stored on this server (it would throw messages away); empty when it may. Raises as
        ``level`` does."""
        found = self._caller.server()
        if isinstance(found, Unavailable):
            raise StoreUnavailable(found.detail)
        return found.reason if isinstance(found, Failed) else found.refusal

    @property
    def durability(self) -> Durability:
        """The level, whether it is declared, and what the server's settings give. Raises as ``level`` does."""
        return self._caller.durability()

    def ask(self, request: StoreRequest) -> StoreOutcome:  # noqa: PLR0911, PLR0912 - a line per kind
        """See ``Store.ask``. Trims whole pages. What looks at a reader's place (reading entries, keys or a table,
        and commits) is Unavailable once after the server was restarted or replaced. A wait blocks for
        ``limits.block_s`` at most, on a connection of its own."""
        match request:
            case AppendRun():
                return self._append(request)
            case ReadFrom():
                return self._read_entries(request)
            case CommitPosition():
                return self._commit(request)
            case WaitForMore():
                return self._wait(request)
            case CreateStream():
                return self._create(request)
            case ChangeRetention():
                return self._change_retention(request)
            case OpenProducer(stream, producer, epoch, base):
                return self._simple(
                    "open", stream, self.keys.of_stream(stream), producer, epoch, base
                )
            case IdentifyEntry(stream, index):
                return self._simple("identify", stream, self.keys.of_stream(stream)[:2], index)
            case TrimBefore(stream, before):
                return self._simple("trim", stream, self.keys.of_stream(stream), before)
            case DescribeStream():
                return self._describe(request)
            case ClaimReader(stream, reader, claimant):
                keys = [self.keys.positions(self.keys.tag(stream))]
                return self._simple("claim", stream, keys, field_of(stream, reader), claimant)
            case GetPosition(stream, reader):
                keys = [self.keys.positions(self.keys.tag(stream))]
                return self._simple("get", stream, keys, field_of(stream, reader))
            case Together():
                return together(self._caller, self.keys, self._now(), request)
            case WaitForMark():
                return self._wait_for_mark(request)
            case DropStream():
                return self._drop(request)
            case ReadKeys(table, names):
                outcome = why_not(request) or self._simple(
                    "keys", table, [self.keys.table(table)], *names
                )
                return _NEW_SERVER if self._caller.is_new_to("keys", table) else outcome
            case LoadTable(table):
                outcome = why_not(request) or self._load(request)
                return _NEW_SERVER if self._caller.is_new_to("load", table) else outcome

    # Streams.

    def _create(self, request: CreateStream) -> CreateOutcome:
        stream, partitions, retention = request.stream, request.partitions, request.retention
        names = (
            [stream] if partitions == 1 else [partition_of(stream, n) for n in range(partitions)]
        )
        keys = [
            self.keys.positions(self.keys.tag(stream)),
            self.keys.head(stream),
            self.keys.head(partition_of(stream, 0)),
            *(key for name in names for key in self.keys.of_stream(name)),
        ]
        arguments: list[Argument] = [secrets.randbits(62) + 1, partitions]
        arguments += [*retention_arguments(retention), *map(prefix_of, names)]
        reply = self._run("create", stream, keys, arguments)
        if isinstance(reply, Unavailable | Failed):
            return reply
        return create_outcome(reply, partitions, retention)

    def _change_retention(self, request: ChangeRetention) -> RetentionOutcome:
        stream = request.stream
        while True:
            found = self._partitions_of(stream)
            if isinstance(found, Unavailable | Failed):
                return found
            partitions, names = found
            if partitions != len(names):
                return one_of_several(stream)
            arguments: list[Argument] = [partitions, *retention_arguments(request.retention)]
            reply = self._run("retention", stream, list(map(self.keys.head, names)), arguments)
            if isinstance(reply, Unavailable | Failed):
                return reply
            if reply[0] != b"again":
                return cast("RetentionOutcome", _simple_outcome(reply, stream))

    def _append(self, run: AppendRun) -> AppendOutcome:
        """One command for the run, one stream entry for each 64 KiB of it."""
        stream = run.stream
        keys = self.keys.of_stream(stream)
        while True:
            reply = self._run("append", stream, keys, [self._now(), *run_arguments(run)])
            if isinstance(reply, Unavailable | Failed):
                return reply
            if reply[0] != b"overlap":
                return append_outcome(reply, stream)
            # Part of it is stored already. What is stored never shrinks, so this ends.
            run = rest_of(run, number_of(reply[1]))

    def _now(self) -> Argument:
        return self._clock() if self._clock else ""

    def _read_entries(self, request: ReadFrom) -> StoreOutcome:
        reply = self._read(request)
        if isinstance(reply, Unavailable | Failed):
            return reply
        if reply[0] == b"batch":
            return batch_of(reply, request)
        outcome = _simple_outcome(reply, request.stream)
        if isinstance(outcome, Empty):
            self._ends[request.stream] = outcome.next
        return outcome

    def read_pages(
        self,
        stream: str,
        index: int,
        max_messages: int,
        max_bytes: int,
        incarnation: int | None = None,
    ) -> PagesOutcome:
        """As ``read``, in whole pages that are not taken apart: for readers in bulk."""
        request = ReadFrom(stream, index, max_messages, max_bytes, incarnation)
        if direct := direct_pages(self._caller, self.keys, request):
            return _NEW_SERVER if self._caller.is_new_to("read", stream) else direct
        reply = self._read(request)
        if isinstance(reply, Unavailable | Failed):
            return reply
        if reply[0] == b"batch":
            return raw_batch_of(reply, stream)
        return cast("PagesOutcome", _simple_outcome(reply, stream))

    def _read(self, request: ReadFrom) -> Replies | Unavailable | Failed:
        known = "" if request.incarnation is None else request.incarnation
        keys = self.keys.of_stream(request.stream)[:2]
        bounds: list[Argument] = [request.index, request.max_messages, request.max_bytes, known]
        if (anchor := request.anchor) is not None:
            bounds += [anchor.producer, anchor.epoch, anchor.seq]
        reply = self._run("read", request.stream, keys, bounds)
        return _NEW_SERVER if self._caller.is_new_to("read", request.stream) else reply

    def _wait(self, request: WaitForMore) -> Hint | Failed | Unavailable:
        stream, index, timeout_us = request.stream, request.index, request.timeout_us
        if timeout_us > 0 and self._ends.pop(stream, None) == index:
            # A read has just found the end here; an entry that came since then ends the blocking at once.
            return self._block(stream, index, timeout_us)
        tag = self.keys.tag(stream)
        replies = self._caller.link.call(tag, [("HGET", self.keys.head(stream), "next")])
        if isinstance(replies, Unavailable | Failed):
            return replies
        if isinstance(replies[0], Exception):
            return meaning_of(replies[0], self._caller.link.where(tag))
        if replies[0] is None:
            return missing(stream)
        end = number_of(replies[0])
        if end != index or timeout_us <= 0:
            return Hint()
        return self._block(stream, end, timeout_us)

    def _block(self, stream: str, end: int, timeout_us: int) -> Hint | Failed | Unavailable:
        """Wait for the page that will begin at ``end``."""
        tag = self.keys.tag(stream)
        streams = ("STREAMS", self.keys.pages(stream), f"{end - 1}-0")
        block_ms = self._block_ms(timeout_us)
        replies = self._waiting.call(tag, [("XREAD", "BLOCK", block_ms, "COUNT", 1, *streams)])
        if isinstance(replies, Unavailable | Failed):
            return replies
        if isinstance(replies[0], Exception):
            return meaning_of(replies[0], self._waiting.where(tag))
        return Hint()

    def _block_ms(self, timeout_us: int) -> int:
        micros = min(timeout_us, round(self._limits.block_s * 1_000_000))
        return max(1, micros // 1000)  # 0 would mean for ever

    def stop_waiting(self) -> None:
        """Every wait that is under way answers Unavailable now; later ones connect anew."""
        self._waiting.interrupt()

    def _describe(self, request: DescribeStream) -> InfoOutcome:
        stream = request.stream
        head, _, producers = self.keys.of_stream(stream)
        reply = self._run("info", stream, [head, producers], [])
        if isinstance(reply, Unavailable | Failed):
            return reply
        return stream_info(reply) if reply[0] == b"info" else missing(stream)

    # Positions.

    def _commit(self, request: CommitPosition) -> CommitOutcome:
        if failed := too_long(request):
            return failed
        keys = [self.keys.positions(self.keys.tag(request.stream)), self.keys.head(request.stream)]
        reply = self._run("commit", request.stream, keys, commit_arguments(request))
        if self._caller.is_new_to("commit", request.stream, request.reader):
            return _NEW_SERVER
        return reply if isinstance(reply, Unavailable | Failed) else commit_outcome(reply)

    # Both in one step.

    @contextmanager
    def transaction(self) -> Generator[RedisTransaction]:
        """See ``surepipe.core.store_requests.Transaction``: one script, so all streams in it must share a tag.

        One command of the caller's own may take part (``also``).
        """
        transaction = RedisTransaction()
        with lent_for_block(transaction):
            yield transaction
        transaction.finish(self._caller, self.keys, self._now())

    def hop(
        self, source: CommitPosition, expected_next: int, outputs: AppendRun
    ) -> tuple[JoinedOutcome, ...]:
        """Append what was made of a batch, and move the reader past it, in one step (R-5).

        Done only when the reader's position is at ``expected_next`` (0: it has none yet), still the owner's,
        and the outputs append without a refusal; otherwise nothing changes and the outcomes (of the append, of
        the commit) say why. A repeat is Stored with ``new`` 0, and Committed.
        """
        with self.transaction() as transaction:
            transaction.append(outputs)
            transaction.commit(source, expected_next)
        return transaction.outcomes

    # Tables and marks.

    def _load(self, request: LoadTable) -> LoadOutcome:
        """A cursor goes on only where it came from: after a failover loading begins anew, and rows come again."""
        generation = self._caller.link.generation
        life, _, cursor = request.after.partition(b":")
        cursor = cursor if life == self._life_of(generation) else b"0"
        keys = [self.keys.table(request.table)]
        reply = self._run("load", request.table, keys, [cursor, request.limit])
        if isinstance(reply, Unavailable | Failed):
            return reply
        if generation != self._caller.link.generation:
            return _NEW_SERVER
        following = bytes_of(reply[1])
        pairs = list(pairs_of(reply[2]).items())
        after = None if following == b"0" else self._life_of(generation) + b":" + following
        return TableRows(pairs, after)

    def _life_of(self, generation: int) -> bytes:
        return f"{self._nonce}-{generation}".encode()

    def _partitions_of(self, name: str) -> tuple[int, list[str]] | Unavailable | Failed:
        """How many partitions a stream was made with, and the names of those that go by this name; itself, where
        there is none."""
        tag = self.keys.tag(name)
        heads = [self.keys.head(name), self.keys.head(partition_of(name, 0))]
        found = self._caller.link.call(tag, [("HGET", head, "partitions") for head in heads])
        if isinstance(found, Unavailable | Failed):
            return found
        for reply in found:
            if isinstance(reply, Exception):
                return meaning_of(reply, self._caller.link.where(tag))
        partitions = number_of(found[0] or found[1] or 1)
        is_one = found[1] is None
        return partitions, [name] if is_one else [partition_of(name, n) for n in range(partitions)]

    def _drop(self, request: DropStream) -> DropOutcome:
        name = request.stream
        tag = self.keys.tag(name)
        while True:
            found = self._partitions_of(name)
            if isinstance(found, Unavailable | Failed):
                return found
            partitions, names = found
            keys = [
                self.keys.positions(tag),
                *(key for each in names for key in self.keys.of_stream(each)),
            ]
            arguments: list[Argument] = [request.epoch, partitions, *map(prefix_of, names)]
            answered = self._run("drop", name, keys, arguments)
            if isinstance(answered, Unavailable | Failed) or answered[0] != b"again":
                break
        if isinstance(answered, Unavailable | Failed):
            return answered
        return cast("DropOutcome", _simple_outcome(answered, name))

    def _wait_for_mark(self, request: WaitForMark) -> MarkOutcome:
        tag, key = self.keys.tag(request.mark), self.keys.mark(request.mark)
        found = self._mark(self._caller.link, tag, ("XREVRANGE", key, "+", "-", "COUNT", 1))
        if not isinstance(found, Marked) or found.number != request.seen or request.timeout_us <= 0:
            return found
        wait = ("XREAD", "BLOCK", self._block_ms(request.timeout_us), "COUNT", 1, "STREAMS", key)
        return self._mark(self._waiting, tag, (*wait, f"{request.seen}-0"), request.seen)

    def _mark(self, link: RedisLink, tag: str, command: Command, seen: int = 0) -> MarkOutcome:
        """Where a mark stands, by the last entry in a reply; without one at ``seen``."""
        replies = link.call(tag, [command])
        if isinstance(replies, Unavailable | Failed):
            return replies
        if isinstance(replies[0], Exception):
            return meaning_of(replies[0], link.where(tag))
        entries = list_of(replies[0] or [])
        if entries and command[0] == "XREAD":
            entries = list_of(list_of(entries[0])[1])
        if not entries:
            return Marked(seen)
        return Marked(int(bytes_of(list_of(entries[0])[0]).partition(b"-")[0]))

    # Calling.

    def _simple(
        self, name: str, stream: str, keys: Sequence[str], *arguments: Argument
    ) -> StoreOutcome:
        """For scripts whose replies say all by themselves."""
        reply = self._run(name, stream, keys, arguments)
        if isinstance(reply, Unavailable | Failed):
            return reply
        return _simple_outcome(reply, stream)

    def _run(
        self, name: str, stream: str, keys: Sequence[str], arguments: Sequence[Argument]
    ) -> Replies | Unavailable | Failed:
        tag = self.keys.tag(stream)
        return self._caller.run(name, tag, [self.keys.layout(tag), *keys], arguments)


def _simple_outcome(reply: Replies, stream: str) -> StoreOutcome:
    word = reply[0]
    assert isinstance(word, bytes), word
    if word == b"trimmed":
        return trimmed_outcome(reply if len(reply) > 2 else [*reply, []])
    return SIMPLE[word](reply) if word in SIMPLE else missing(stream)
