"""A relay whose account of a party's Redis reads the party's keys and writes one inbox: it carries, and whatever
else it tries is refused by the server. The account is what ``surepipe relay acl`` prints."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import redis
from redis.exceptions import NoPermissionError, ResponseError

from surepipe.actors.parties import ServedParty, ServedRelay, StoreEnd
from surepipe.actors.threads import THREADS
from surepipe.cli.relaying import rights_of
from surepipe.queues.ibc import Relay, RelayOptions, Transaction
from surepipe.storage.redis.store import RedisStore
from surepipe.testing.servers import NONE_FOUND, Binary, RedisServer, local_servers
from tests.kit.redis_bench import SHORT, Redis

PARTIES = ("east", "west")
WAIT_S = 60.0


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """A server that can tell reading from writing."""
    found = [each for each in local_servers() if "server 6" not in each.name]
    if not found:
        pytest.fail(f"{NONE_FOUND} (Redis 7 or newer)")
    binary: Binary = found[0]
    with binary.server(appendonly="yes", appendfsync="no") as running:
        yield running


@dataclass
class Bench:
    """Two parties on the server, a relay with an account of its own, and what came of messages."""

    server: RedisServer
    folder: Path
    stack: ExitStack
    done: list[bytes] = field(default_factory=list[bytes])
    relayers: tuple[str, ...] = ("relay",)

    def __post_init__(self) -> None:
        self.root = Redis(self.server.url)
        self.stack.callback(self.root.close)
        self.root("FLUSHALL")
        self.signal = THREADS.signal()
        self.open()
        east, west = self.parties.values()
        east.register("west", west.identity())
        west.register("east", east.identity())

    def open(self) -> None:
        """The processes of the parties."""
        self.parties = {name: self.party(name) for name in PARTIES}

    def party(self, name: str) -> ServedParty:
        store = RedisStore.from_url(self.server.url, pipeline=name, limits=SHORT)
        self.stack.callback(store.close)
        party = ServedParty(
            name, store=store, keys=self.folder / f"{name}.keys", relayers=self.relayers
        )
        self.stack.enter_context(party)
        party.module("app").handle("note", on_receive=_greet, on_commit=self._commit)
        return party

    def _commit(self, tx: Transaction, data: bytes, result: bytes) -> None:
        del tx, data
        self.done.append(result)
        self.signal.notify()

    def account(self, name: str = "relay") -> str:
        """The URL of the account that the command's line makes for a relay of this name."""
        file = self.folder / f"{name}.yaml"
        url = self.server.url.replace("//", f"//{name}:SECRET@")
        file.write_text(
            f"""version: 1
parties: {{east: "{url}", west: "{url}"}}
paths: [{{ends: [east, west]}}]
relay: {{name: {name}}}
"""
        )
        (line,) = [each for each in rights_of(file) if each.startswith("ACL SETUSER")]
        self.root(*line.split(" "))
        return url

    def relay(self, name: str = "relay") -> ServedRelay:
        """Over that account alone."""
        ends: list[StoreEnd] = []
        for party in PARTIES:
            store = RedisStore.from_url(self.account(name), pipeline=party, limits=SHORT)
            self.stack.callback(store.close)
            ends.append(StoreEnd(store, name))
            self.stack.callback(ends[-1].close)
        options = RelayOptions(poll_s=0.02, relayer=name.encode())
        served = ServedRelay(Relay([(ends[0], ends[1])], options=options))
        self.stack.callback(served.close)
        return served

    def exchange(self, count: int = 3) -> None:
        """Messages both ways, until each is answered."""
        before = len(self.done)
        for number in range(count):
            self.parties["east"].module("app").send("west", "note", b"to west %d" % number)
            self.parties["west"].module("app").send("east", "note", b"to east %d" % number)
        assert self.signal.wait(lambda: len(self.done) == before + 2 * count, WAIT_S)

    def state(self) -> dict[bytes, bytes]:
        """All keys but those of inboxes, as they are."""
        keys = sorted(key for key in self.root("KEYS", "*") if b"inbox" not in key)
        return {key: self.root("DUMP", key) for key in keys}


def _greet(_: Transaction, data: bytes) -> bytes:
    return b"hello " + data


@pytest.fixture
def bench(server: RedisServer, tmp_path: Path) -> Iterator[Bench]:
    """Two parties, and nobody who carries yet."""
    with ExitStack() as stack:
        yield Bench(server, tmp_path, stack)


def test_a_relay_that_may_only_read_and_fill_its_inbox_carries_both_ways(bench: Bench) -> None:
    """IB-120: messages go both ways and their receipts come back, over the account that the command prints."""
    for party in bench.parties.values():
        party.serve()
    relay = bench.relay()
    bench.exchange()
    assert relay.failure is None
    wanted = [
        b"hello to %s %d" % (name, number) for name in (b"east", b"west") for number in range(3)
    ]
    assert sorted(bench.done) == wanted


WRITES = (
    ("SET", "{key}", "x"),
    ("DEL", "{key}"),
    ("HSET", "{key}", "next", "1"),
    ("HDEL", "{key}", "next"),
    ("XADD", "{key}", "*", "a", "b"),
    ("XTRIM", "{key}", "MAXLEN", "0"),
    ("UNLINK", "{key}"),
    ("RENAME", "{key}", "sp:{{east/ibc/inbox/relay}}:gone"),
    ("EXPIRE", "{key}", "1"),
)
SCRIPTS = (
    "return redis.call('DEL', KEYS[1])",
    "return redis.call('SET', KEYS[1], 'x')",
    "return redis.call('HSET', KEYS[1], 'next', '1')",
    "return redis.call('XTRIM', KEYS[1], 'MAXLEN', '0')",
)


def test_the_same_account_changes_nothing_of_a_party(bench: Bench) -> None:
    """IB-120: every write of every key of a party, by commands and by scripts of its own, named or hidden, is
    NOPERM; nothing has moved, and the relay still carries."""
    for party in bench.parties.values():
        party.serve()
    relay = bench.relay()
    bench.exchange(1)
    relay.close()
    for party in bench.parties.values():
        party.close()
    hostile = redis.Redis.from_url(bench.account(), protocol=2)  # pyright: ignore[reportUnknownMemberType]
    bench.stack.callback(hostile.close)

    def refused(*command: object) -> None:
        with pytest.raises((NoPermissionError, ResponseError)) as caught:
            hostile.execute_command(*command)  # type: ignore[no-untyped-call]  # pyright: ignore[reportUnknownMemberType]
        assert isinstance(caught.value, NoPermissionError) or any(
            word in str(caught.value)
            for word in ("can't access at least one of the keys", "Write commands are not allowed")
        ), (command, caught.value)

    before = bench.state()
    keys = [key.decode() for key in before]
    assert any(":k:" in key for key in keys)
    assert any(":s:ibc/headers" in key for key in keys)
    loaded = [hostile.script_load(source) for source in SCRIPTS]
    hidden = [hostile.script_load(source.replace("KEYS[1]", "ARGV[1]")) for source in SCRIPTS]
    for key in keys:
        for words in WRITES:
            refused(*(word.format(key=key) for word in words))
        for sha in loaded:
            refused("EVALSHA", sha, 1, key)
            refused("EVALSHA_RO", sha, 1, key)
        for sha in hidden:
            refused("EVALSHA", sha, 0, key)
            refused("EVALSHA_RO", sha, 0, key)
    others: tuple[tuple[object, ...], ...] = (
        ("FLUSHALL",),
        ("EVAL", SCRIPTS[0], 1, keys[0]),
        ("FUNCTION", "LOAD", "#!lua name=x\nredis.register_function('x', function() end)"),
        ("CONFIG", "SET", "maxmemory", "1mb"),
        ("ACL", "SETUSER", "relay", "~*"),
        ("SET", "sp:{east/ibc/inbox/other}:layout", "2"),
        ("SET", "anything", "x"),
    )
    for other in others:
        refused(*other)
    assert bench.state() == before
    bench.open()
    for party in bench.parties.values():
        party.serve()
    relay = bench.relay()
    bench.exchange(1)
    assert relay.failure is None


SPOILED = (
    ("SET", "sp:{%s}:layout", "99"),
    ("DEL", "sp:{%s}:s:ibc/inbox/one"),
    ("HSET", "sp:{%s}:h:ibc/inbox/one", "next", "1000000"),
    ("DEL", "sp:{%s}:h:ibc/inbox/one"),
    ("SET", "sp:{%s}:h:ibc/inbox/one", "no hash"),
    ("SET", "sp:{%s}:i", "no hash"),
    ("XADD", "sp:{%s}:s:ibc/inbox/one", "999999-0", "x", "y"),
)


@pytest.mark.parametrize("harm", SPOILED, ids=lambda words: " ".join(words[:2]))
@pytest.mark.parametrize("when", ["before it serves", "while it serves"])
def test_a_relay_that_spoils_its_own_inbox_harms_nobody_else(
    harm: tuple[str, ...], when: str, server: RedisServer, tmp_path: Path
) -> None:
    """IB-120: what it may write is its own, so another relay goes on, and the party starts."""
    with ExitStack() as stack:
        bench = Bench(server, tmp_path, stack, relayers=("one", "two"))
        first = bench.relay("one")
        if when == "while it serves":
            for party in bench.parties.values():
                party.serve()
            bench.exchange(1)
            first.close()
        hostile = redis.Redis.from_url(bench.account("one"), protocol=2)  # pyright: ignore[reportUnknownMemberType]
        stack.callback(hostile.close)
        for name in PARTIES:
            words = [word.replace("%s", f"{name}/ibc/inbox/one") for word in harm]
            if words[0] == "SET":
                hostile.delete(words[1])
            hostile.execute_command(*words)  # type: ignore[no-untyped-call]  # pyright: ignore[reportUnknownMemberType]
        for each in bench.parties.values():
            each.serve()
        bench.relay("two")
        bench.exchange(2)
        assert all(each.failure is None for each in bench.parties.values())
