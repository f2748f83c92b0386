"""A replicated queue on threads, with files and real signatures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from socket import create_server
from threading import Event
from urllib.request import urlopen

import pytest

from surepipe.actors import host
from surepipe.actors.clusters import Cluster, ProcessContext, QueueClient, worker
from surepipe.actors.clusters import client as clients
from surepipe.actors.clusters.guard import SLOT_BYTES, FileGuard, guarded
from surepipe.actors.clusters.links import Hub
from surepipe.actors.host import EndOptions
from surepipe.actors.supervision import RestartPolicy
from surepipe.core.store_requests import StoreOutcome, StoreRequest, Unavailable
from surepipe.errors import ConfigurationError, MisuseError
from surepipe.observe.metrics import ClusterCollector, MetricsServer
from surepipe.pipelines.clusters import ClusterFile
from surepipe.queues.rmq import Ed25519Keys, Release, Released, Withheld
from surepipe.queues.rmq.epochs import QueueSettings
from surepipe.queues.rmq.session import Done, Job, Later, Outcome, Refuse
from surepipe.storage import MemoryStore
from surepipe.testing.clusters import MakeCluster
from surepipe.testing.servers import NONE_FOUND, local_servers

PAGE = (Path(__file__).parents[2] / "docs" / "rmq.md").read_text()
PRICES = {b"tea": b"4.20", b"milk": b"1.10"}
QUICK = QueueSettings(slot_timeout_us=300_000, retries=2)
WAIT_S = 60.0


def price(message: Job, context: ProcessContext) -> Outcome:
    """What an item costs."""
    del context
    if message.body == b"broken":
        raise SystemExit("no way")
    if message.body not in PRICES:
        return Refuse("unknown item")
    return Done(PRICES[message.body])


def never(message: Job, context: ProcessContext) -> Outcome:
    """Every message is put off."""
    del message, context
    return Later()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Four nodes in a folder."""
    with Cluster.local("orders", process=price, path=tmp_path, settings=QUICK) as found:
        yield found


def test_messages_are_decided_while_nodes_are_killed_and_started(cluster: Cluster) -> None:
    """rmq RQ-18, RQ-40, RQ-50: the outcome of each is believed, and all nodes come to hold the same chain."""
    client = cluster.client("shop-1")
    first = client.submit(b"tea", key=b"customer-7", dedupe=b"order-17")
    kinds = [told.receipt.kind for told in first.receipts(timeout_s=WAIT_S)]
    assert kinds[0] == "placed"
    assert "finalized" in kinds
    for name in cluster.nodes:
        cluster.kill(name)
        assert client.submit(b"milk").result(timeout_s=WAIT_S).value == b"1.10"
        cluster.start(name)
    again = client.submit(b"tea", key=b"customer-7", dedupe=b"order-17")
    outcome = again.result(timeout_s=WAIT_S)
    assert (outcome.kind, outcome.value) == ("duplicate", b"4.20")
    refused = client.submit(b"beer").result(timeout_s=WAIT_S)
    assert refused.reason == "; ".join(f"{name}: unknown item" for name in cluster.nodes)
    ids = [verdict.id for block in cluster.chain("n1") for verdict in block.verdicts]
    assert len(set(ids)) == len(ids) == 6
    assert cluster.blamed("n1") == ()


def test_nodes_that_are_asked_as_soon_as_they_begin_know_what_they_knew(tmp_path: Path) -> None:
    """rmq RQ-40: who asks for the chain of a queue that was opened again waits until its nodes have read it."""
    with Cluster.local("orders", process=price, path=tmp_path, settings=QUICK) as first:
        ticket = first.client("shop-1").submit(b"tea")
        assert ticket.result(timeout_s=WAIT_S).kind == "finalized"
        known = {name: first.chain(name) for name in first.nodes}
    for _ in range(5):
        with Cluster.local("orders", process=price, path=tmp_path, settings=QUICK) as again:
            for name, blocks in known.items():
                assert [each.digest for each in again.chain(name)][: len(blocks)] == [
                    each.digest for each in blocks
                ]
                assert again.status(name, ticket.id) != "unknown" or not blocks


def test_a_function_that_always_raises_ends_refused(cluster: Cluster) -> None:
    """rmq RQ-42, RT-31: after some tries on each node, whatever it raises; others are decided meanwhile."""
    client = cluster.client("shop-1")
    broken, fine = client.submit(b"broken"), client.submit(b"tea")
    assert fine.result(timeout_s=WAIT_S).kind == "finalized"
    assert broken.result(timeout_s=WAIT_S).reason.count("failed: SystemExit") == 4


def test_a_slow_message_holds_up_no_other_and_is_decided(tmp_path: Path) -> None:
    """rmq RQ-73, RT-43: it takes longer than a slot, at every node. Its outcome is kept until its turn comes."""
    is_over = Event()

    def slow(message: Job, context: ProcessContext) -> Outcome:
        del context
        if message.body == b"slow":
            is_over.wait(WAIT_S)
        return Done(message.body)

    with Cluster.local("orders", process=slow, path=tmp_path, settings=QUICK) as cluster:
        client = cluster.client("shop-1")
        first = client.submit(b"slow")
        others = [client.submit(b"%d" % number) for number in range(20)]
        assert {each.result(timeout_s=WAIT_S).kind for each in others} == {"finalized"}
        assert first.outcome is None
        is_over.set()
        assert first.result(timeout_s=WAIT_S).value == b"slow"


def test_a_function_that_never_ends_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """rmq RQ-74: it takes a thread or two of each node; the others are decided meanwhile, and after it."""
    monkeypatch.setattr(worker, "HUNG_US", 300_000)
    is_over = Event()

    def hangs(message: Job, context: ProcessContext) -> Outcome:
        del context
        if message.body == b"hangs":
            is_over.wait(WAIT_S)
        return Done(message.body)

    with Cluster.local("orders", process=hangs, path=tmp_path, settings=QUICK) as cluster:
        client = cluster.client("shop-1")
        first, other = client.submit(b"hangs"), client.submit(b"fine")
        assert other.result(timeout_s=WAIT_S).kind == "finalized"
        outcome = first.result(timeout_s=WAIT_S)
        assert outcome.kind == "refused"
        assert outcome.reason.count("failed: took longer than") == 4
        assert client.submit(b"later").result(timeout_s=WAIT_S).kind == "finalized"
        is_over.set()


def test_an_outcome_that_depends_on_the_time_is_that_of_its_block(tmp_path: Path) -> None:
    """rmq RQ-73: it is not kept for another block, which has another time."""

    def timed(message: Job, context: ProcessContext) -> Outcome:
        del message
        return Done(str(context.now()).encode())

    with Cluster.local("orders", process=timed, path=tmp_path, settings=QUICK) as cluster:
        client = cluster.client("shop-1")
        values = [client.submit(b"x").result(timeout_s=WAIT_S).value for _ in range(3)]
        times = {block.time_ms for block in cluster.chain("n1")}
    assert {int(each) for each in values} <= times
    assert len(set(values)) == 3


def test_a_cluster_that_is_opened_again_goes_on(tmp_path: Path) -> None:
    """rmq CC-15: with what is in its folder."""
    with Cluster.local("orders", process=price, path=tmp_path, settings=QUICK) as cluster:
        ticket = cluster.client("shop-1").submit(b"tea", dedupe=b"order-17")
        assert ticket.result(timeout_s=WAIT_S).kind == "finalized"
    with Cluster.local("orders", process=price, path=tmp_path, settings=QUICK) as cluster:
        again = cluster.client("shop-1").submit(b"tea", dedupe=b"order-17")
        outcome = again.result(timeout_s=WAIT_S)
        assert (outcome.kind, outcome.value) == ("duplicate", b"4.20")


def test_a_client_with_a_journal_goes_on_with_its_tickets(tmp_path: Path) -> None:
    """rmq RQ-81: what it had submitted is decided, and it hears of it, in a later process."""
    journal = tmp_path / "shop.db"
    with Cluster.local("orders", process=never, path=tmp_path, settings=QUICK) as cluster:
        client = cluster.client("shop-1", journal=journal)
        first = client.submit(b"tea", ttl_s=300.0)
        assert next(iter(first.receipts(timeout_s=WAIT_S))).receipt.kind == "placed"
    with Cluster.local("orders", process=price, path=tmp_path, settings=QUICK) as cluster:
        (ticket,) = cluster.client("shop-1", journal=journal).tickets()
        assert ticket.id == first.id
        assert ticket.result(timeout_s=WAIT_S).value == b"4.20"
    with Cluster.local("orders", process=price, path=tmp_path, settings=QUICK) as cluster:
        assert cluster.client("shop-1", journal=journal).tickets() == []


class Away(MemoryStore):
    """A store that doesn't answer."""

    def ask(self, request: StoreRequest) -> StoreOutcome:
        """Nothing of use."""
        del request
        return Unavailable("away")


def test_who_waits_for_a_message_hears_that_its_client_has_ended(tmp_path: Path) -> None:
    """rmq RQ-50: without a timeout, too; and what is closed begins nothing any more."""
    with Cluster.local("orders", nodes=1, process=never, path=tmp_path) as cluster:
        ticket = cluster.client("shop-1").submit(b"tea")
        with ThreadPoolExecutor() as threads:
            waits: list[Future[object]] = [
                threads.submit(ticket.result),
                threads.submit(lambda: list(ticket.receipts())),
            ]
            cluster.close()
            for each in waits:
                with pytest.raises(TimeoutError, match="shop-1/client is closed"):
                    each.result(WAIT_S)
        for begin, name in ((cluster.client, "shop-2"), (cluster.watch, ""), (cluster.start, "n1")):
            with pytest.raises(MisuseError, match="this cluster of orders is closed"):
                begin(name)


def test_a_client_whose_journal_is_another_ones_takes_nothing_more(tmp_path: Path) -> None:
    """rmq RQ-81: what it has taken is not sent, as it can't be stored; whoever waits for that is told."""
    hub, journal = Hub(), tmp_path / "shop.db"
    once = EndOptions(restarts=RestartPolicy(restarts_max=0))
    with Cluster.local("orders", nodes=1, process=price, path=tmp_path, hub=hub) as cluster:
        former = Cluster(cluster.foundation, tmp_path, hub.side, options=once)
        client = former.client("shop-1", journal=journal)
        assert client.submit(b"tea").result(timeout_s=WAIT_S).kind == "finalized"
        assert cluster.client("shop-1", journal=journal).tickets() == []
        with pytest.raises(TimeoutError, match="taken over by one that began later"):
            client.submit(b"milk").result()
        with pytest.raises(MisuseError, match=r"takes nothing more, .* taken over"):
            client.submit(b"milk")
        former.close()


def test_a_client_that_can_not_read_its_journal_does_not_say_that_nothing_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """rmq RQ-81: nobody would go on with what a former life had submitted."""
    monkeypatch.setattr(clients, "ORIENTED_S", 0.1)
    with Cluster.local("orders", nodes=1, process=price, path=tmp_path) as cluster:
        side, keys = Hub().side("shop-1"), Ed25519Keys(bytes(32))
        client = QueueClient("shop-1", cluster.foundation, side, keys, EndOptions(), journal=Away())
        client.start()
        for ask in (client.tickets, lambda: client.submit(b"tea")):
            with pytest.raises(MisuseError, match="the store of its journal gives nothing"):
                ask()
        assert client.stop(WAIT_S)


def test_a_node_that_is_busy_or_does_not_run_is_asked_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """rmq RQ-97: whoever watches a node doesn't end because it had no time to answer, and is told which runs."""
    monkeypatch.setattr(host, "ASK_S", 0.05)
    is_over = Event()
    with Cluster.local("orders", nodes=1, process=price, path=tmp_path) as cluster:
        assert not cluster.chain("n1")
        seen = cluster.seen("n1")
        assert not seen.is_reading
        assert (seen.nodes, seen.group, seen.quorum) == (("n1",), ("n1",), 1)
        with pytest.raises(LookupError):
            cluster._nodes["n1"].look(lambda _: is_over.wait(WAIT_S))  # pyright: ignore[reportPrivateUsage]
        with pytest.raises(LookupError, match="doesn't answer in time"):
            cluster.seen("n1")
        assert not cluster.failure("n1")
        is_over.set()
        cluster.kill("n1")
        for ask in (cluster.seen, cluster.chain, cluster.failure, cluster.decided_of):
            with pytest.raises(LookupError, match="n1 doesn't run here"):
                ask("n1")


def test_a_node_that_can_not_be_started_leaves_nothing_behind(tmp_path: Path) -> None:
    """rmq RQ-50: its port is another one's; when that has gone it is started as if nothing had been."""
    with create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        made = ClusterFile.new(tmp_path / "cluster.yaml", "orders", {"n1": place})
        cluster = made.open(process=price)
        for _ in range(2):
            with pytest.raises(ConfigurationError, match=f"can't listen on {place}"):
                cluster.start("n1")
    with cluster:
        cluster.start("n1")
        assert cluster.client("shop-1").submit(b"tea").result(timeout_s=WAIT_S).value == b"4.20"


def _known(path: Path) -> dict[str, tuple[int, str]]:
    found = guarded(path.read_bytes())[1]
    assert found is not None
    return found


def test_a_node_that_lost_its_store_is_as_good_as_before(cluster: Cluster, tmp_path: Path) -> None:
    """rmq RQ-67, RT-40: others have what it signed last; with its guard it goes on behind that."""
    client = cluster.client("shop-1")
    for _ in range(5):
        assert client.submit(b"tea").result(timeout_s=WAIT_S).kind == "finalized"
    while True:
        cluster.kill("n3")
        ((height, _),) = _known(tmp_path / "n3.guard").values()
        if any(cluster.heights(name)["n3"] == height for name in ("n1", "n2", "n4")):
            break
        cluster.start("n3")  # it was killed while it signed: once more
        assert client.submit(b"tea").result(timeout_s=WAIT_S).kind == "finalized"
    for lost in tmp_path.glob("n3.db*"):
        lost.unlink()
    cluster.start("n3")
    cluster.kill("n1")  # now the one that lost its store is needed
    assert client.submit(b"milk").result(timeout_s=WAIT_S).kind == "finalized"
    assert cluster.heights("n2")["n3"] > height
    assert cluster.blamed("n2") == ()


def test_nodes_that_are_in_use_are_refused(cluster: Cluster, tmp_path: Path) -> None:
    """rmq RQ-66: the guard is locked as long as its node runs."""
    with pytest.raises(MisuseError, match=r"n1\.guard is in use by another process"):
        Cluster.local("orders", process=price, path=tmp_path)
    assert cluster.client("shop-1").submit(b"tea").result(timeout_s=WAIT_S).kind == "finalized"


def test_a_guard_never_signs_two_entries_for_one_height(tmp_path: Path) -> None:
    """rmq CC-16, RQ-66: nor after it was opened again; one that is missing signs nothing."""
    keys = Ed25519Keys(bytes(32))
    path, session = tmp_path / "guard", bytes(32)
    guard = FileGuard(path, is_new=True)
    assert guard.last(session) == (0, b"")
    second = Release(session, 2, b"two", b"signed")
    assert guard.release(second, keys) == Released(keys.sign(b"signed"))
    guard.close()
    guard = FileGuard(path, is_new=False)
    assert guard.last(session) == (2, b"two")
    assert guard.release(second, keys) == Released(keys.sign(b"signed"))
    assert guard.release(Release(session, 2, b"other", b""), keys) == Withheld(2, b"two")
    assert guard.release(Release(session, 1, b"one", b""), keys) == Withheld(2, b"two")
    guard.close()
    path.unlink()
    guard = FileGuard(path, is_new=False)
    assert guard.last(session) is None
    assert isinstance(guard.release(second, keys), Withheld)
    guard.close()


def test_a_guard_that_was_torn_remembers_what_it_wrote_before(tmp_path: Path) -> None:
    """rmq RQ-63: it writes over the older of two places; torn in both it knows nothing, and its node listens."""
    keys, path, session = Ed25519Keys(bytes(32)), tmp_path / "guard", bytes(32)
    guard = FileGuard(path, is_new=True)
    for height in range(1, 6):
        guard.release(Release(session, height, b"%d" % height, b""), keys)
    guard.close()
    whole = path.read_bytes()
    newest = max(range(2), key=lambda at: whole[at * SLOT_BYTES :].partition(b"\n")[0][9:])
    for cut in (0, 5, 40):
        torn = bytearray(whole)
        torn[newest * SLOT_BYTES + cut] ^= 1
        path.write_bytes(torn)
        guard = FileGuard(path, is_new=False)
        assert guard.last(session) == (4, b"4")
        guard.close()
    path.write_bytes(bytes(len(whole)))
    guard = FileGuard(path, is_new=False)
    assert guard.last(session) is None
    guard.close()


async def _coroutine(message: Job, context: ProcessContext) -> Outcome:
    return Done(message.body + str(context.now()).encode())


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"process": _coroutine}, "coroutine function"),
        ({"process": Done}, r"\(message, context\)"),
        ({"nodes": ["a", "a"]}, "different names"),
        ({"nodes": ["a b"]}, "different names"),
        ({"nodes": 0}, "one node or more"),
        ({"nodes": 17}, "1 to 16"),
        ({"faults": "none"}, "faults 'none'"),
        ({"store": "memory:"}, "a node that forgets its log is another node"),
    ],
)
def test_what_can_not_work_is_refused(more: dict[str, object], error: str, tmp_path: Path) -> None:
    """rmq RQ-46, RQ-72, RT-28: at once, and with what to write instead."""
    with pytest.raises(ConfigurationError, match=error):
        Cluster.local("orders", **{"process": price, "path": tmp_path, **more})  # type: ignore[arg-type]


def test_the_programs_of_the_page_run() -> None:
    """rmq RQ-18: what docs/rmq.md asserts is so."""
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert blocks
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)


@pytest.mark.long
def test_nodes_that_keep_their_logs_in_redis_go_on(tmp_path: Path) -> None:
    """rmq RQ-67, RT-42: over restarts, and when one has lost what Redis had of it."""
    if not (sources := local_servers()):
        pytest.fail(NONE_FOUND)
    with (
        sources[0].server(appendonly="yes", appendfsync="always") as server,
        Cluster.local(
            "orders", process=price, path=tmp_path, settings=QUICK, store=server.url
        ) as cluster,
    ):
        client = cluster.client("shop-1")
        assert client.submit(b"tea", dedupe=b"one").result(timeout_s=WAIT_S).value == b"4.20"
        for name in cluster.nodes:
            cluster.kill(name)
            assert client.submit(b"milk").result(timeout_s=WAIT_S).value == b"1.10"
            cluster.start(name)
        again = client.submit(b"tea", dedupe=b"one").result(timeout_s=WAIT_S)
        assert (again.kind, again.value) == ("duplicate", b"4.20")
        assert not list(tmp_path.glob("*.db"))


def test_a_client_waits_while_too_many_of_its_messages_are_open(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """rmq RQ-81: and goes on as they are decided; one that is closed meanwhile is told."""
    monkeypatch.setattr(clients, "OPEN_MAX", 4)
    client = cluster.client("shop-1")
    tickets = [client.submit(b"tea", dedupe=b"%d" % at) for at in range(20)]
    assert {each.result(timeout_s=WAIT_S).kind for each in tickets} == {"finalized"}
    client.stop(5.0)
    with pytest.raises(MisuseError, match="is closed"):
        client.submit(b"tea")


@pytest.mark.long
def test_an_unfair_cluster_decides_once(unfair_cluster: MakeCluster) -> None:
    """rmq RQ-29: the fixture, as a user has it: each job is done once, whichever node is ended when."""
    cluster = unfair_cluster(price)
    client = cluster.client("shop-1")
    for at in range(2):
        ticket = client.submit(b"tea", key=b"%d" % at, dedupe=b"once")
        cluster.upset()
        again = client.submit(b"tea", key=b"%d" % at, dedupe=b"once")
        ended = {each.result(timeout_s=WAIT_S).kind for each in (ticket, again)}
        assert ended == {"finalized", "duplicate"}


def test_what_nodes_count_is_shown_to_prometheus(cluster: Cluster) -> None:
    """rmq RQ-97: where each node is, by its name."""
    assert cluster.client("shop-1").submit(b"tea").result(timeout_s=WAIT_S).kind == "finalized"
    with MetricsServer([], more=[ClusterCollector(cluster)]) as shown, urlopen(shown.url) as answer:
        text = answer.read().decode()
    for name in cluster.nodes:
        assert f'surepipe_rmq_undecided{{node="{name}"}}' in text
        assert f'surepipe_rmq_epoch{{node="{name}"}} 1.0' in text
