"""The ways to a Redis server: TLS, Unix sockets, Sentinel and Cluster, each with real servers."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from surepipe.core.store_requests import KEEP_ALL, AppendRun, Created, Failed, Stored, Unavailable
from surepipe.storage.redis.keys import Keys
from surepipe.storage.redis.store import RedisStore
from surepipe.testing.servers import Binary, RedisServer, ServerFailed
from tests.contracts.store_contract import texts
from tests.kit.redis_bench import SHORT, Pauses, Redis, RedisBench

GIVES_UP_AFTER_S = 60


def until(condition: Callable[[], bool]) -> None:
    """Ask again and again until it holds; fails loudly when it never does."""
    end = time.monotonic() + GIVES_UP_AFTER_S
    while not condition():
        assert time.monotonic() < end, "it does not happen"


def works(store: RedisStore) -> None:
    """A stream can be made, written and read."""
    assert isinstance(store.create("s", 1, KEEP_ALL), Created)
    assert store.append("s", "p", 1, 1, texts("a")) == Stored(1, 1, 1)
    assert not isinstance(store.read("s", 1, 9, 9), Failed | Unavailable)
    store.close()


def test_a_unix_socket_is_enough(local_source: Binary, tmp_path: Path) -> None:
    """unix://: the server listens on no port that the store knows."""
    path = tmp_path / "redis.sock"
    with local_source.server(unixsocket=str(path)):
        works(RedisStore.from_url(f"unix://{path}?db=2", pipeline="p"))


# TLS.


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    """A certificate that the server made for itself."""
    openssl = shutil.which("openssl")
    assert openssl, "openssl is needed to make a certificate"
    subprocess.run(
        [
            openssl,
            *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", "key.pem", "-out", "cert.pem"),
        ],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    return tmp_path


def speaks_tls(source: Binary) -> bool:
    """Whether the binary was built with TLS: ask it."""
    linked = subprocess.run(["ldd", source.path], capture_output=True, text=True, check=False)
    return "libssl" in linked.stdout


def test_tls_is_spoken_with_a_certificate_that_is_checked(
    local_source: Binary, certificates: Path
) -> None:
    """rediss://: works with the right authority, Failed without. A server built without TLS does not start."""
    server = local_source.server(
        port="0",
        tls_cert_file=str(certificates / "cert.pem"),
        tls_key_file=str(certificates / "key.pem"),
        tls_auth_clients="no",
    )
    if not speaks_tls(local_source):
        server.settings.pop("port")
        with pytest.raises(ServerFailed, match="tls-cert-file"):
            server.start()
        server.close()
        return
    with server:
        url = server.url.replace("redis://", "rediss://")
        works(RedisStore.from_url(f"{url}?ssl_ca_certs={certificates / 'cert.pem'}", pipeline="p"))
        outcome = RedisStore.from_url(url, pipeline="p").create("t", 1, KEEP_ALL)
        assert isinstance(outcome, Failed)
        assert "certificate" in outcome.reason


# Sentinel.


@pytest.mark.long
def test_sentinel_leads_to_the_new_master(local_source: Binary) -> None:
    """R-6: the master is killed, the Sentinel promotes its replica, and the store finds it by itself."""
    with (
        local_source.server(appendonly="yes") as master,
        local_source.server(appendonly="yes", replicaof=f"127.0.0.1 {master.port}") as replica,
        sentinel_for(local_source, master) as sentinel,
    ):
        pauses = Pauses()
        store = RedisStore.from_sentinel(
            [("127.0.0.1", sentinel.port)],
            "mine",
            pipeline="p",
            limits=SHORT,
            pause=pauses,
            replicas=1,
        )
        follower, watch = Redis(replica.url), Redis(sentinel.url)
        until(lambda: follower.info("replication")["master_link_status"] == "up")
        until(lambda: b"127.0.0.1" in str(watch("SENTINEL", "REPLICAS", "mine")).encode())
        assert isinstance(store.create("s", 1, KEEP_ALL), Created)
        assert store.append("s", "p", 1, 1, texts("a")) == Stored(1, 1, 1)
        store.close()
        store = RedisStore.from_sentinel(
            [("127.0.0.1", sentinel.port)], "mine", pipeline="p", limits=SHORT, pause=pauses
        )
        assert store.append("s", "p", 1, 2, texts("b")) == Stored(2, 1, 2)
        until(lambda: follower.info("replication")["slave_repl_offset"] == master_offset(master))
        master.kill()
        until(lambda: isinstance(store.append("s", "p", 1, 3, texts("c")), Stored))
        assert store.append("s", "p", 1, 3, texts("c")) == Stored(3, 0, None)
        assert follower.info("replication")["role"] == "master"
        for client in (follower, watch):
            client.close()
        store.close()


def master_offset(master: RedisServer) -> str:
    """How much the master has written to its replicas."""
    client = Redis(master.url)
    offset = client.info("replication")["master_repl_offset"]
    client.close()
    return offset


def sentinel_for(source: Binary, master: RedisServer) -> RedisServer:
    """One Sentinel that decides alone and soon."""
    sentinel = source.server()
    path = sentinel.directory / "sentinel.conf"
    path.write_text(
        f"sentinel monitor mine 127.0.0.1 {master.port} 1\n"
        "sentinel down-after-milliseconds mine 300\nsentinel failover-timeout mine 3000\n"
    )
    sentinel.configuration = path
    return sentinel


# Cluster.


@pytest.fixture
def cluster(local_source: Binary) -> Iterator[tuple[RedisServer, RedisServer]]:
    """Two nodes, each with half of the slots."""
    settings = {"cluster_enabled": "yes", "cluster_node_timeout": "2000", "appendonly": "yes"}
    with local_source.server(**settings) as one, local_source.server(**settings) as two:
        clients = [Redis(one.url), Redis(two.url)]
        clients[0]("CLUSTER", "ADDSLOTS", *range(8192))
        clients[1]("CLUSTER", "ADDSLOTS", *range(8192, 16384))
        clients[0]("CLUSTER", "SET-CONFIG-EPOCH", 1)
        clients[1]("CLUSTER", "SET-CONFIG-EPOCH", 2)
        clients[0]("CLUSTER", "MEET", "127.0.0.1", two.port)
        for client in clients:
            until(partial(is_in_service, client))
        yield one, two
        for client in clients:
            client.close()


def is_in_service(node: Redis) -> bool:
    """Whether the node sees the whole cluster."""
    return b"cluster_state:ok" in node("CLUSTER", "INFO")


def create_at_last(store: RedisStore, stream: str, partitions: int) -> None:
    """Create it, following MOVED."""
    until(lambda: not isinstance(store.create(stream, partitions, KEEP_ALL), Unavailable))


def test_a_cluster_serves_a_pipeline_from_one_node(
    cluster: tuple[RedisServer, RedisServer],
) -> None:
    """R-2, R-6: the slot is found from either node (MOVED is Unavailable, then followed), two dozen times."""
    for number in range(24):
        store = RedisStore.from_url(cluster[number % 2].url, pipeline=f"p{number}")
        create_at_last(store, "s", 2)
        assert store.append("s#1", "p", 1, 1, texts("a")) == Stored(1, 1, 1)
        with store.transaction() as transaction:
            transaction.append(AppendRun("s#0", "p", 1, 1, texts("b")))
            transaction.append(AppendRun("s#1", "p", 1, 2, texts("c")))
        assert transaction.done
        store.close()


def test_a_cluster_serves_spread_streams_from_all_nodes(
    cluster: tuple[RedisServer, RedisServer],
) -> None:
    """R-2: ten streams of one pipeline, on both nodes, through one store."""
    store = RedisStore.from_url(cluster[0].url, pipeline="p", spread="stream")
    for number in range(10):
        name = f"s{number}"
        create_at_last(store, name, 1)
        assert store.append(name, "p", 1, 1, texts("a")) == Stored(1, 1, 1)
    keys = Keys("p", "stream")
    for node in cluster:
        client = Redis(node.url)
        held = {bytes(key).decode() for key in client("KEYS", "*:h:*")}
        assert held
        assert held < {keys.head(f"s{number}") for number in range(10)}
        client.close()
    store.close()


def test_a_cluster_that_lacks_slots_is_waited_for(local_source: Binary) -> None:
    """CLUSTERDOWN: Unavailable, ten times, with the command to look at."""
    with local_source.server(cluster_enabled="yes") as node:
        bench = RedisBench(node.url)
        for _ in range(10):
            outcome = bench.store.create("s", 1, KEEP_ALL)
            assert isinstance(outcome, Unavailable)
            assert "CLUSTER INFO" in outcome.detail
        bench.close()
