"""Errors of a Redis server, each provoked on a real one, ten times, with the outcome that it must have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from redis import exceptions

from surepipe.core.store_requests import (
    KEEP_ALL,
    AppendRun,
    CommitPosition,
    Committed,
    Created,
    DropValues,
    Empty,
    Failed,
    ProducerOpened,
    PutValues,
    RaiseMark,
    Stored,
    StoreOutcome,
    Unavailable,
)
from surepipe.storage.redis.keys import LAYOUT_VERSION
from surepipe.storage.redis.link import RedisLimits, meaning_of, moved_to
from surepipe.storage.redis.rights import READING, WRITING
from surepipe.storage.redis.store import RedisStore
from surepipe.testing.servers import Binary, RedisServer
from tests.contracts.store_contract import (
    commit,
    make,
    owner_of,
    put,
    read_payloads,
    texts,
)
from tests.kit.redis_bench import Redis, RedisBench
from tests.kit.tcp_proxy import LossyProxy

TIMES = 10


def writes(bench: RedisBench) -> list[Callable[[], object]]:
    """One call of each kind that writes to a stream that exists."""
    return [
        lambda: put(bench, 1, "a", producer="new"),
        lambda: bench.store.open_producer("s", "new", 1, 1),
        lambda: bench.store.claim("s", "new", 1),
        lambda: commit(bench, 1, owner=9, reader="new"),
        lambda: bench.store.create("new", 1, KEEP_ALL),
    ]


def test_no_memory_is_told_and_nothing_is_stored(
    own_bench: RedisBench, caplog: pytest.LogCaptureFixture
) -> None:
    """OOM: with maxmemory and noeviction. It passes, so it is Unavailable; then everything works. The log has the
    reason once: who waits for a pipe that has no room reads nothing of a store's answers (F30)."""
    make(own_bench)
    put(own_bench, 1, "kept")
    own_bench.redis("CONFIG", "SET", "maxmemory", "1")
    for _ in range(TIMES):
        for write in writes(own_bench):
            outcome = write()
            assert isinstance(outcome, Unavailable)
            assert "maxmemory" in outcome.detail
    assert len([said for said in caplog.messages if "(OOM)" in said]) == 1
    assert read_payloads(own_bench) == texts("kept")
    own_bench.redis("CONFIG", "SET", "maxmemory", "0")
    assert put(own_bench, 2, "more") == Stored(2, 1, 2)


def test_a_master_that_became_a_replica_takes_no_writes(local_source: Binary) -> None:
    """READONLY, R-6: Unavailable while it is one, on the old connection and on new ones."""
    with (
        local_source.server(appendonly="yes", appendfsync="always") as first,
        local_source.server(appendonly="yes", appendfsync="always") as second,
    ):
        bench = RedisBench(first.url)
        make(bench)
        put(bench, 1, "a")
        bench.redis("REPLICAOF", "127.0.0.1", second.port)
        for _ in range(TIMES):
            outcome = put(bench, 2, "b")
            assert isinstance(outcome, Unavailable)
            assert "replica" in outcome.detail
        assert isinstance(bench.store.read("s", 1, 9, 9), Unavailable), "what it shows may be old"
        bench.redis("REPLICAOF", "NO", "ONE")
        bench.close()


def test_a_failover_that_lost_writes_is_seen_by_its_reader(local_source: Binary) -> None:
    """R-6, R-7: the replica that takes over lacks the last write. The reader is told to look again."""
    with (
        local_source.server(appendonly="yes", repl_diskless_sync_delay="0") as master,
        local_source.server(appendonly="yes") as replica,
    ):
        at = [master.port]
        bench = RedisBench(master.url)
        follower = Redis(replica.url)
        store = bench.another(
            locate=lambda: ("127.0.0.1", at[0]), replicas=1, limits=RedisLimits(answer_s=1.0)
        )
        follower("REPLICAOF", "127.0.0.1", master.port)
        while follower.info("replication")["master_link_status"] != "up":
            continue
        assert bench.redis("WAIT", 1, 60_000) == 1, "the replica answers its master from here on"
        assert isinstance(store.create("s", 1, KEEP_ALL), Created)
        assert store.append("s", "p", 1, 1, texts("a")) == Stored(1, 1, 1), "on both"
        assert store.read("s", 2, 9, 9) == Empty(2)
        follower("REPLICAOF", "NO", "ONE")
        unsure = store.append("s", "p", 1, 2, texts("b"))
        assert isinstance(unsure, Unavailable)
        assert "0 of 1" in unsure.detail
        master.kill()
        at[0] = replica.port
        assert isinstance(store.append("s", "p", 1, 2, texts("b")), Unavailable)
        told = store.read("s", 2, 9, 9)
        assert isinstance(told, Unavailable)
        assert "look again" in told.detail
        assert store.read("s", 2, 9, 9) == Empty(2)
        follower.close()
        bench.close()


def test_a_server_that_loads_its_data_is_waited_for(local_source: Binary) -> None:
    """LOADING: a restart that has much to read; Unavailable until it is done."""
    with local_source.server(appendonly="yes", appendfsync="no") as server:
        bench = RedisBench(server.url)
        make(bench)
        put(bench, 1, "a")
        key, fill = bench.keys.own("filler"), "for n=1,5000 do redis.call('SET', KEYS[1], n) end"
        for _ in range(80):
            bench.redis("EVAL", fill, 1, key)
        server.kill()
        server.start(wait=False)
        assert loading_replies(bench) >= TIMES
        server.wait_until_ready()
        assert isinstance(put(bench, 2, "b"), Stored)
        assert read_payloads(bench) == texts("a", "b")
        bench.close()


def loading_replies(bench: RedisBench) -> int:
    """Ask while the server loads; counts the answers that say so."""
    seen = 0
    for _ in range(5_000):
        outcome = put(bench, 2, "b")
        if seen >= TIMES or not isinstance(outcome, Unavailable):
            break
        seen += "loading" in outcome.detail
    return seen


@pytest.mark.parametrize("damage", ["layout", "positions", "head", "pages", "producers"])
def test_a_key_of_another_type_is_named_and_nothing_is_written(
    redis_bench: RedisBench, damage: str
) -> None:
    """WRONGTYPE: Failed, with the key, what it holds and what it must hold."""
    make(redis_bench)
    keys = redis_bench.keys
    key = {
        "layout": keys.layout(redis_bench.pipeline),
        "positions": keys.positions(redis_bench.pipeline),
        "head": keys.head("s"),
        "pages": keys.pages("s"),
        "producers": keys.producers("s"),
    }[damage]
    redis_bench.redis("DEL", key)
    redis_bench.redis("SADD", key, "not ours")
    for _ in range(TIMES):
        for outcome in touching(redis_bench, damage):
            assert isinstance(outcome, Failed), outcome
            assert repr(key) in outcome.reason
            assert "set" in outcome.reason
    names = redis_bench.redis("KEYS", f"sp:{{{redis_bench.pipeline}}}:*")
    assert not [
        name for name in names if name.endswith((b":s:s", b":p:s")) and name.decode() != key
    ]


def test_a_wrong_key_of_one_stream_keeps_the_others_of_a_transaction_unwritten(
    redis_bench: RedisBench,
) -> None:
    """S-11, WRONGTYPE: Redis takes nothing back, so every key is looked at before the first write."""
    make(redis_bench)
    make(redis_bench, "t")
    redis_bench.redis("SADD", redis_bench.keys.pages("t"), "not ours")
    with redis_bench.store.transaction() as transaction:
        transaction.append(AppendRun("s", "p", 1, 1, texts("x")))
        transaction.append(AppendRun("t", "p", 1, 1, texts("y")))
    assert not transaction.done
    assert read_payloads(redis_bench) == []


def touching(bench: RedisBench, damage: str) -> Iterator[object]:
    """Calls that use the damaged key."""
    if damage in ("head", "pages", "producers", "layout"):
        yield put(bench, 1, "a")
    if damage in ("positions", "layout", "head"):
        yield commit(bench, 1, owner=1)
    with bench.store.transaction() as transaction:
        transaction.append(AppendRun("s", "p", 1, 1, texts("x")))
        if damage == "positions":
            transaction.commit(CommitPosition("s", "r", 1, 7, 1))
    yield transaction.outcomes[0]


def test_a_user_without_a_right_is_told_which_page_lists_them(own_bench: RedisBench) -> None:
    """NOPERM: Failed, ten times, from a script's own commands and from the call of the script."""
    make(own_bench)
    for number, rights in enumerate(("-evalsha", "-xadd")):
        user = f"weak{number}"
        own_bench.redis("ACL", "SETUSER", user, "on", ">secret", "~*", "+@all", rights)
        store = own_bench.another(url=own_bench.url.replace("//", f"//{user}:secret@"))
        for _ in range(TIMES):
            outcome = store.append("s", "p", 1, 1, texts("a"))
            assert isinstance(outcome, Failed)
            assert "docs/redis.md" in outcome.reason
    assert read_payloads(own_bench) == []


def test_a_user_with_the_documented_rights_can_do_everything(own_bench: RedisBench) -> None:
    """The line of docs/redis.md, as it stands there."""
    rights = documented_rights().format(pipeline=own_bench.pipeline)
    own_bench.redis("ACL", "SETUSER", *rights.split(" "))
    user, password = rights.split(" ")[0], rights.split(">")[1].split(" ")[0]
    store = own_bench.another(url=own_bench.url.replace("//", f"//{user}:{password}@"))
    assert isinstance(store.create("s", 1, KEEP_ALL), Created)
    assert isinstance(store.open_producer("s", "p", 1, 1), ProducerOpened)
    assert store.append("s", "p", 1, 1, texts("a")) == Stored(1, 1, 1)
    own_bench.store = store
    assert read_payloads(own_bench) == texts("a")
    owner = owner_of(own_bench, 1)
    with store.transaction() as transaction:
        transaction.append(AppendRun("s", "p", 1, 2, texts("b")))
    assert transaction.done
    assert commit(own_bench, 2, owner=owner) == Committed()
    for outcome in (
        store.identify("s", 1),
        store.trim("s", 1),
        store.wait("s", 1, 1),
        store.info("s"),
        store.get("s", "r"),
        store.wait("s", 9, 1),
        store.together(
            AppendRun("s", "p", 1, 3, texts("c")),
            PutValues("t", {b"a": b"1"}),
            DropValues("t", [b"b"]),
            RaiseMark("m"),
            is_decided=True,
        ),
        store.read_keys("t", [b"a"]),
        store.load_table("t"),
        store.wait_for_mark("m", 1, 1),
        store.drop_stream("s", 1),
    ):
        assert not isinstance(outcome, Failed | Unavailable), outcome
    assert store.level.name == "POWER"


def test_the_documented_rights_are_those_that_are_known() -> None:
    """IB-120: what is printed for a relay and what the page lists for a pipeline are of one list."""
    listed = {word[1:] for word in documented_rights().split() if word.startswith("+")}
    assert listed == {*READING, *WRITING} - {"evalsha_ro"}


def documented_rights() -> str:
    """The ACL line that the page gives."""
    page = Path(__file__).parents[2] / "docs" / "redis.md"
    (line,) = [line for line in page.read_text().splitlines() if line.startswith("ACL SETUSER ")]
    return line.removeprefix("ACL SETUSER ").replace("{orders}", "{{{pipeline}}}")


@pytest.mark.parametrize("url_part", ["", "user:wrong@", ":wrong@"])
def test_a_refused_password_says_where_to_give_it(own_bench: RedisBench, url_part: str) -> None:
    """NOAUTH, WRONGPASS: Failed, and the password is not in the text."""
    own_bench.redis("CONFIG", "SET", "requirepass", "right")
    store = own_bench.another(url=own_bench.url.replace("//", f"//{url_part}"))
    for _ in range(TIMES):
        outcome = store.create("s", 1, KEEP_ALL)
        assert isinstance(outcome, Failed)
        assert "user:password@host" in outcome.reason
        assert "wrong@" not in outcome.reason
    own_bench.redis("CONFIG", "SET", "requirepass", "")


def test_a_killed_connection_is_unavailable_once(own_bench: RedisBench) -> None:
    """R-6: CLIENT KILL; the call that meets it does not know its outcome, the repeat stores once."""
    make(own_bench)
    for seq in range(1, TIMES + 1):
        own_bench.redis("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        assert isinstance(put(own_bench, seq, seq), Unavailable)
        assert put(own_bench, seq, seq) == Stored(seq, 1, seq)
    assert read_payloads(own_bench) == texts(*range(1, TIMES + 1))
    assert own_bench.redis.clients() <= 2


def test_a_lost_reply_and_a_repeat_store_once(own_bench: RedisBench) -> None:
    """so1, S-2: the command was done, its reply is lost; repeated, it is there once."""
    make(own_bench)
    with LossyProxy(int(own_bench.url.rpartition(":")[2])) as proxy:
        store = own_bench.another(url=proxy.url)
        assert store.append("s", "p", 1, 1, texts(1)) == Stored(1, 1, 1)
        for seq in range(2, 2 + TIMES):
            proxy.lose_reply_to(b"EVALSHA")
            assert isinstance(store.append("s", "p", 1, seq, texts(seq)), Unavailable)
            assert store.append("s", "p", 1, seq, texts(seq)) == Stored(seq, 0, None)
        assert proxy.lost == TIMES
        proxy.lose_reply_to(b"EVALSHA")
        assert isinstance(store.claim("s", "r", 7), Unavailable)
        assert store.claim("s", "r", 7) == store.claim("s", "r", 7)
        proxy.lose_reply_to(b"EVALSHA")
        assert isinstance(store.create("t", 1, KEEP_ALL), Unavailable)
        assert not isinstance(store.create("t", 1, KEEP_ALL), Failed | Unavailable | Created)
    assert read_payloads(own_bench) == texts(*range(1, 2 + TIMES))


def test_a_server_that_stands_still_is_unavailable_in_finite_time(own_redis: RedisServer) -> None:
    """R-6: SIGSTOP; every call ends by its timeout, and what it sent may be done later, once."""
    bench = RedisBench(own_redis.url, limits=RedisLimits(connect_s=0.05, answer_s=0.05))
    patient = RedisBench(own_redis.url, pipeline=bench.pipeline)
    make(patient)
    put(bench, 1, "a")
    own_redis.pause()
    for _ in range(TIMES):
        assert isinstance(put(bench, 2, "b"), Unavailable)
    own_redis.resume()
    assert isinstance(put(patient, 2, "b"), Stored)
    assert read_payloads(patient) == texts("a", "b")
    patient.close()
    bench.close()


def test_pauses_before_new_connections_grow_to_a_bound(own_redis: RedisServer) -> None:
    """R-6: doubling with jitter, and from the start again once the server has answered."""
    bench = RedisBench(own_redis.url, limits=RedisLimits(pause_min_s=0.1, pause_max_s=1.0))
    make(bench)
    own_redis.kill()
    for _ in range(TIMES):
        outcome = put(bench, 1, "a")
        assert isinstance(outcome, Unavailable)
        assert f":{own_redis.port}" in outcome.detail
    longest = [min(0.1 * 2**n, 1.0) for n in range(TIMES)]
    assert len(bench.pauses.seconds) == TIMES - 1
    for pause, most in zip(bench.pauses.seconds, longest, strict=False):
        assert most / 2 <= pause <= most
    own_redis.start()
    assert put(bench, 1, "a") == Stored(1, 1, 1)
    own_redis.kill()
    bench.pauses.seconds.clear()
    for _ in range(2):
        put(bench, 2, "b")
    assert bench.pauses.seconds[0] <= 0.1
    own_redis.start()
    bench.close()


def test_every_reader_is_told_once_that_the_server_is_another(own_redis: RedisServer) -> None:
    """R-6: a restart that one caller met is told to the others, too; commits of each reader as well."""
    bench = RedisBench(own_redis.url)
    tag = make(bench)
    make(bench, "other")
    owner = owner_of(bench, 1)
    commit(bench, 1, owner=owner, tag=tag)
    for stream in ("s", "other"):
        assert bench.store.read(stream, 1, 9, 9) == Empty(1)
    for _ in range(TIMES):
        own_redis.restart()
        assert isinstance(put(bench, 1, "a", stream="third"), Unavailable), "meets the restart"
        put(bench, 1, "a", stream="third")
        outcomes: list[StoreOutcome] = [bench.store.read(name, 1, 9, 9) for name in ("s", "other")]
        assert all(isinstance(outcome, Unavailable) for outcome in outcomes)
        assert isinstance(commit(bench, 1, owner=owner, tag=tag), Unavailable)
        assert bench.store.read("s", 1, 9, 9) == Empty(1)
        assert commit(bench, 1, owner=owner, tag=tag) == Committed()
    bench.close()


def test_the_layout_is_there_from_the_first_write_on(own_bench: RedisBench) -> None:
    """R-2: reads leave no key behind, the first claim or creation does."""
    own_bench.store.get("s", "r")
    own_bench.store.read("s", 1, 9, 9)
    assert own_bench.redis("KEYS", "*") == []
    own_bench.store.claim("s", "r", 1)
    layout = own_bench.redis("GET", own_bench.keys.layout(own_bench.pipeline))
    assert layout == LAYOUT_VERSION.encode()


def test_too_many_clients_pass(own_bench: RedisBench) -> None:
    """MAXCLIENTS: Unavailable with the setting's name, until there is room."""
    make(own_bench)
    store = own_bench.another()
    own_bench.redis("CONFIG", "SET", "maxclients", "1")
    for _ in range(TIMES):
        outcome = store.append("s", "p", 1, 1, texts("a"))
        assert isinstance(outcome, Unavailable)
        assert "maxclients" in outcome.detail
    own_bench.redis("CONFIG", "SET", "maxclients", "100")
    assert store.append("s", "p", 1, 1, texts("a")) == Stored(1, 1, 1)


def test_too_few_replicas_pass(own_bench: RedisBench) -> None:
    """NOREPLICAS: Unavailable with the setting's name, and nothing is stored."""
    make(own_bench)
    own_bench.redis("CONFIG", "SET", "min-replicas-to-write", "1")
    for _ in range(TIMES):
        outcome = put(own_bench, 1, "a")
        assert isinstance(outcome, Unavailable)
        assert "min-replicas-to-write" in outcome.detail
    own_bench.redis("CONFIG", "SET", "min-replicas-to-write", "0")
    assert read_payloads(own_bench) == []
    assert put(own_bench, 1, "a") == Stored(1, 1, 1)


def test_a_replica_that_does_not_answer_in_time_is_told_of(redis_bench: RedisBench) -> None:
    """R-6: stored on the master alone: Unavailable, as it may be lost with it."""
    make(redis_bench)
    store = redis_bench.another(replicas=1, limits=RedisLimits(answer_s=1.0))
    outcome = store.append("s", "p", 1, 1, texts("a"))
    assert isinstance(outcome, Unavailable)
    assert "0 of 1 replicas" in outcome.detail
    assert read_payloads(redis_bench) == texts("a")


def test_the_address_of_a_slot_that_moved_is_read_from_the_error() -> None:
    """MOVED names it; an empty host means the same host, and no other error has an address."""
    assert moved_to(exceptions.MovedError("3999 127.0.0.1:6381")) == ("127.0.0.1", 6381)
    assert moved_to(exceptions.MovedError("3999 :6381")) == ("", 6381)
    assert moved_to(exceptions.AskError("3999 127.0.0.1:6381")) is None
    assert moved_to(exceptions.ResponseError("ERR 3999 is no port")) is None


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (exceptions.ResponseError("MISCONF Errors writing to the AOF file"), Unavailable),
        (exceptions.ResponseError("BUSY Redis is busy running a script"), Unavailable),
        (exceptions.ResponseError("UNBLOCKED force unblock from blocking operation"), Unavailable),
        (exceptions.MasterDownError("Link with MASTER is down"), Unavailable),
        (exceptions.TryAgainError("Multiple keys request during rehashing of slot"), Unavailable),
        (exceptions.AskError("3999 127.0.0.1:6381"), Unavailable),
        (exceptions.ClusterCrossSlotError("Keys in request don't hash to one slot"), Failed),
        (exceptions.ResponseError("ERR syntax error"), Failed),
    ],
    ids=lambda value: str(value).split(" ")[0] if isinstance(value, Exception) else "",
)
def test_errors_that_are_hard_to_provoke_have_their_outcome_too(
    error: Exception, outcome: type[Unavailable | Failed]
) -> None:
    """By the texts that servers send; all others in this file come from a server."""
    meaning = meaning_of(error, "host:6379")
    assert isinstance(meaning, outcome)
    assert "host:6379" in str(meaning)


def test_a_store_is_built_without_a_server() -> None:
    """Nothing is asked before the first call, and then the answer is Unavailable."""
    store = RedisStore.from_url("redis://127.0.0.1:1", pipeline="p", pause=lambda _: None)
    assert isinstance(store.create("s", 1, KEEP_ALL), Unavailable)
    store.close()
