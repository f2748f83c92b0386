"""The status of a running pipeline says what its pipes count, and how fast; it is read back as it was."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from surepipe import LocalRoute, Pipe, PipeReceiver, StreamReceiver, StreamSender
from surepipe.actors.notices import PipeNotice
from surepipe.actors.steps import StepRuntime
from surepipe.core.effects import NoticeKind
from surepipe.core.store_requests import Failed, InfoOutcome, Unavailable
from surepipe.errors import ConfigurationError
from surepipe.observe import Latencies
from surepipe.observe.metrics import PipeCollector
from surepipe.observe.status import (
    CounterRates,
    Counts,
    Part,
    PathSeen,
    PipeFlow,
    Progress,
    Status,
    StoreSeen,
    compact,
    milliseconds,
    observed_as,
    seconds,
)
from surepipe.observe.watch import (
    NOTICES_MAX,
    Guaranteed,
    RunFacts,
    StoreHealth,
    Watch,
    counts_of,
    pipes_of,
)
from surepipe.storage import MemoryStore, SqliteStore
from surepipe.storage.faulty import FaultyStore, Misfortune
from tests.actors.kit import PATIENCE_S


class Clock:
    """Stands still until it is set."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Node:
    """Counts as a test says, and how often it was asked."""

    def __init__(self, **parts: dict[str, int]) -> None:
        self.parts = parts
        self.asked = 0

    def __call__(self) -> Counts:
        self.asked += 1
        return self.parts


SENDING = {"accepted": 50, "in_flight": 3, "backlog": 4, "oldest_unconfirmed_us": 1_500_000}
RECEIVING = {"settled": 40, "in_work": 2, "held": 0, "duplicate": 6, "dead_lettered": 1}


@pytest.fixture
def watched() -> tuple[Watch, Node, Clock]:
    """A pipe whose ends are both here, and a sink on another node."""
    node, clock = Node(intake={**SENDING, **RECEIVING}), Clock()
    parts = [
        Part(name="intake", role="pipe", node="main", flow=PipeFlow()),
        Part(name="out", role="sink", node="other"),
    ]
    return Watch("shop", parts, node, node="main", clock=clock, wall=lambda: 0.0), node, clock


def test_a_pipe_in_a_program_is_watched_as_it_is() -> None:
    """With what it guarantees, and how long its messages took; the value survives JSON."""
    latencies, clock = Latencies(), Clock()
    with Pipe("orders", runtime=StepRuntime(), trace=latencies) as pipe:
        watch = Watch(
            "shop", pipes_of([pipe]), lambda: {"orders": pipe.counters()}, latencies, clock=clock
        )
        pipe.receive(str)
        pipe.send_many([b"x"] * 30)
        pipe.flush(10)
        clock.now += 3
        status = watch.status()
    (part,) = status.pipes
    assert part.guarantee == "exactly-once, absolute"
    assert part.flow is not None
    assert (part.flow.accepted, part.flow.settled, part.flow.unconfirmed) == (30, 30, 0)
    assert part.flow.settled_per_s == 10
    assert part.flow.settling is not None
    assert part.flow.settling.count == 30
    assert Status.model_validate_json(status.model_dump_json(by_alias=True)) == status


def test_the_order_of_a_pipe_with_lanes_is_that_within_each_key() -> None:
    """It said none, as if there were no order at all."""
    with PipeReceiver("orders", route=LocalRoute(), key="customer", lanes=4) as pipe:
        (part,) = pipes_of([pipe])
    assert part.guarantee == "exactly-once, absolute per key"


def test_unconfirmed_is_in_flight_and_backlog_and_totals_are_over_all_pipes(
    watched: tuple[Watch, Node, Clock],
) -> None:
    """Pipes O-2: what was accepted and is not confirmed."""
    status = watched[0].status()
    (pipe,) = status.pipes
    assert pipe.flow is not None
    assert (pipe.flow.unconfirmed, pipe.flow.oldest_unconfirmed_s) == (7, 1.5)
    assert (pipe.flow.duplicates, status.total("dead_letters")) == (6, 1)


def test_what_another_process_counts_is_null_and_not_nought(
    watched: tuple[Watch, Node, Clock],
) -> None:
    """A sender alone, a receiver alone, and a part of another node."""
    watch, node, _ = watched
    node.parts = {"intake": SENDING}
    sending = watch.status()
    node.parts = {"intake": RECEIVING}
    receiving = watch.status()
    first, second = sending.pipes[0].flow, receiving.pipes[0].flow
    assert first is not None
    assert second is not None
    assert (first.accepted, first.settled, first.dead_letters) == (50, None, None)
    assert (second.accepted, second.unconfirmed, second.settled) == (None, None, 40)
    assert [part.here for part in sending.parts] == [True, False]
    assert sending.total("settled") is None


def test_one_status_asks_the_pipes_once_and_nobody_asks_in_between(
    watched: tuple[Watch, Node, Clock],
) -> None:
    """Once at the beginning, for the rates, and once for each status."""
    watch, node, clock = watched
    clock.now += 60
    watch.status()
    watch.status()
    assert node.asked == 3


def test_rates_are_over_the_last_seconds_and_never_negative() -> None:
    """1 a second for 10 s, then 100 a second for 5 s, then nothing; then the pipe begins anew."""
    clock = Clock()
    rates = CounterRates(clock, {"p": {"n": 0}})
    found: list[float] = []
    for n in (*range(1, 11), *range(110, 511, 100), *[510] * 6, 0):
        clock.now += 1
        found.append(rates.look({"p": {"n": n}})[1]["p"]["n"])
    assert found[9] == 1
    assert found[14] == 100
    assert found[20] == 0
    assert found[21] == 0


def test_rates_after_a_pause_are_not_known_rather_than_an_average_over_it() -> None:
    """Nobody looks for an hour in which 163 a second came, and then nothing comes any more."""
    clock = Clock()
    rates = CounterRates(clock, {"p": {"n": 0}})
    clock.now += 3600
    assert rates.look({"p": {"n": 163 * 3600}}) == (0.0, {})
    clock.now += 1
    assert rates.look({"p": {"n": 163 * 3600}}) == (1.0, {"p": {"n": 0}})


def test_what_comes_in_and_goes_out_is_that_of_the_ends_and_no_sum_of_pipes() -> None:
    """A source, two pipes one behind the other, a stage and a sink: 100 a second are 100 a second."""
    node, clock = Node(), Clock()
    line = (
        ("rows", "source"),
        ("first", "pipe"),
        ("price", "stage"),
        ("second", "pipe"),
        ("out", "sink"),
    )
    parts = [
        Part(
            name=name,
            role=role,
            node="main",
            feeders=(line[at - 1][0],) if at else (),
            flow=PipeFlow() if role == "pipe" else None,
        )
        for at, (name, role) in enumerate(line)
    ]
    watch = Watch("shop", parts, node, node="main", clock=clock, wall=lambda: 0.0)
    clock.now += 2
    pipe = {**SENDING, **RECEIVING, "accepted": 200, "settled": 190}
    node.parts = {
        "rows": {"taken": 200},
        "first": pipe,
        "price": {"passed": 190},
        "second": pipe,
        "out": {"taken": 180},
    }
    status = watch.status()
    assert (status.in_per_s, status.out_per_s) == (100, 90)


def test_the_last_minutes_are_kept_and_what_was_not_known_then_stays_so(
    watched: tuple[Watch, Node, Clock],
) -> None:
    """Three samples, a second apart; at the second the pipe did not say anything."""
    watch, node, clock = watched
    nothing: dict[str, int] = {}
    for said in (SENDING | RECEIVING, nothing, SENDING):
        node.parts = {"intake": said}
        clock.now += 1
        watch.sample()
    clock.now += 5
    history = watch.status().history
    assert [moment.ago_s for moment in history] == [7, 6, 5]
    assert [moment.waiting for moment in history] == [7, None, 7]


def test_times_are_those_of_the_last_minute() -> None:
    """A thousand that took a minute, an hour ago, are another story than the hundred of now."""
    latencies, clock, node = Latencies(), Clock(), Node(orders={**SENDING, **RECEIVING})
    watch = Watch(
        "shop", [Part(name="orders", role="pipe", flow=PipeFlow())], node, latencies, clock=clock
    )
    where: dict[str, str | int] = {"pipe": "orders", "epoch": 1}
    for first, count, took_us in ((1, 1000, 60_000_000), (1001, 100, 900)):
        run = {**where, "seq": first, "count": count}
        latencies.write({**run, "kind": "accepted", "time_us": 0})
        latencies.write({**run, "kind": "settled", "time_us": took_us})
        clock.now += 100
        watch.sample()
    flow = watch.status().pipes[0].flow
    assert flow is not None
    assert flow.settling is not None
    assert (flow.settling.count, flow.settling.p99_ms) == (100, 1.0)


class Hanging:
    """A store that answers, fails or hangs, as a test says."""

    def __init__(self) -> None:
        self.outcome: InfoOutcome = Failed("stream 'surepipe-health' does not exist")

    def info(self, stream: str) -> InfoOutcome:
        assert stream
        return self.outcome


def test_a_silent_store_is_told_once_and_once_more_when_it_answers() -> None:
    """With how long that was; one that is only slow is not told."""
    store, clock, told = Hanging(), Clock(), list[tuple[str, str]]()
    health = StoreHealth("main", store, lambda name, text: told.append((name, text)), clock)
    health.ask()
    clock.now += 1.9
    health.look()
    assert (told, health.seen()) == ([], StoreSeen(name="main"))
    store.outcome = Unavailable("connection refused")
    health.ask()
    for _ in range(3):
        clock.now += 10
        health.look()
    assert told == [("main", "does not answer: connection refused")]
    assert health.seen() == StoreSeen(name="main", silent_s=31.9, says="connection refused")
    store.outcome = Failed("no such stream")
    health.ask()
    health.look()
    assert told[1:] == [("main", "answers again, after 32 s")]
    assert health.seen().silent_s is None


def test_a_store_that_answers_questions_but_not_a_pipe_is_silent() -> None:
    """As a file is that can be read while another process keeps it locked: the pipe's wait counts, and the pipe
    tells it."""
    store, clock, told, waits_s = Hanging(), Clock(), list[tuple[str, str]](), [0.0]
    health = StoreHealth(
        "main", store, lambda name, text: told.append((name, text)), clock, lambda: waits_s[0]
    )
    health.ask()
    health.look()
    assert health.seen().silent_s is None
    waits_s[0] = 7.5
    health.look()
    assert (health.seen().silent_s, told) == (7.5, [])
    waits_s[0] = 0.0
    assert health.seen().silent_s is None


def test_what_a_silent_store_would_have_to_tell_is_unknown_and_not_nought() -> None:
    """The lag is that of the last answer; a pipe over another store knows its own."""
    parts = [
        Part(name=name, role="pipe", flow=PipeFlow(), stores=(store,))
        for name, store in (("orders", "redis"), ("bills", "main"))
    ]
    reading = {**RECEIVING, "lag": 0}
    watch = Watch("shop", parts, Node(orders=reading, bills=reading), clock=Clock())
    watch.beside = RunFacts(stores=lambda: (StoreSeen(name="redis", silent_s=22.0),))
    status = watch.status()
    assert [store.name for store in status.silent] == ["redis"]
    assert [part.flow and part.flow.lag for part in status.pipes] == [None, 0]
    assert [part.flow and part.flow.waiting for part in status.pipes] == [None, 0]
    assert status.waiting is None


def test_a_program_is_told_of_a_silent_store_as_a_run_is() -> None:
    """The pipes know which of their stores are silent, and the watch takes it from them: what was true at the
    last look was shown as true now. When the store answers again it is known again."""
    steps, store = StepRuntime(), FaultyStore(MemoryStore())
    with (
        StreamSender("ship", store=store, runtime=steps) as sender,
        Pipe("bills", runtime=steps) as bills,
    ):
        watch = Watch("shop", pipes_of([sender, bills]), counts_of([sender, bills]))

        def seen() -> tuple[list[int | None], int | None, list[str]]:
            status = watch.status()
            assert [one.name for one in status.stores] == ["FaultyStore"]
            waiting = [part.flow.waiting for part in status.pipes if part.flow is not None]
            return waiting, status.waiting, [one.name for one in status.silent]

        sender.send(1)
        steps.advance(5)
        assert seen() == ([0, 0], 0, [])
        store.script(Misfortune.OUTAGE, calls=1_000_000)
        sender.send(2)
        steps.advance(10)
        assert seen() == ([None, 0], None, ["FaultyStore"])
        store.calm()
        sender.flush()
        assert seen() == ([0, 0], 0, [])


def test_what_waits_in_a_stream_is_told_while_its_receiver_has_its_hands_full() -> None:
    """It reads nothing then, so it knows an old end of the stream; what was put there since is known here."""
    busy = {"confirmed": 40_000, "settled": 960, "in_work": 512, "held": 0, "lag": 64}
    parts = [Part(name="intake", role="pipe", flow=PipeFlow())]
    node = Node(intake={**SENDING, "in_flight": 0, "backlog": 0, **busy})
    watch = Watch("shop", parts, node, clock=Clock())
    flow = watch.status().pipes[0].flow
    assert flow is not None
    assert (flow.lag, flow.waiting) == (39_040, 39_040)
    node.parts["intake"] |= {"in_work": 0, "lag": 0, "settled": 39_000}  # the rest was dropped
    flow = watch.status().pipes[0].flow
    assert flow is not None
    assert flow.waiting == 0


def test_what_waits_for_another_party_waits_and_is_not_known_before_its_relay_has_looked() -> None:
    """The stream to the party is empty, and nothing is through before the other side has answered."""
    parts = [Part(name="delivered", role="pipe", flow=PipeFlow(), to_party=True)]
    node = Node(delivered={**SENDING, "in_flight": 0, "backlog": 0})
    watch = Watch("shop", parts, node, clock=Clock())
    assert watch.status().waiting is None
    path = PathSeen(path="shop-bakery", state="live", pending={"deliver": 20, "settle": 300})
    watch.beside = RunFacts(paths=lambda: {"delivered": path})
    assert watch.status().waiting == 320


def test_nothing_on_the_way_has_no_age(watched: tuple[Watch, Node, Clock]) -> None:
    """A dash and not 0.0 s."""
    watch, node, _ = watched
    node.parts["intake"] |= {"in_flight": 0, "backlog": 0, "oldest_unconfirmed_us": 0}
    flow = watch.status().pipes[0].flow
    assert flow is not None
    assert flow.oldest_unconfirmed_s is None


def test_how_long_a_source_still_takes_is_told_at_the_rate_of_the_last_seconds() -> None:
    """250 rows in 10 s are a quarter of the file, in bytes; nothing is told of what stands still."""
    node, clock = Node(rows={"taken": 0}), Clock()
    watch = Watch("shop", [Part(name="rows", role="source")], node, clock=clock)
    watch.beside = RunFacts(progress=lambda: {"rows": (5_000, 20_000, 250)})
    clock.now += 10
    node.parts = {"rows": {"taken": 250}}
    assert watch.status().parts[0].progress == Progress(done=5_000, of=20_000, left_s=30.0)
    clock.now += 10
    watch.status()
    clock.now += 10
    assert watch.status().parts[0].progress == Progress(done=5_000, of=20_000)


def test_a_look_at_once_has_no_rates_and_a_part_that_comes_later_began_with_nothing() -> None:
    """No division by nothing."""
    clock = Clock()
    rates = CounterRates(clock, {})
    assert rates.look({"p": {"n": 5}}) == (0.0, {})
    clock.now += 2
    assert rates.look({"p": {"n": 5}}) == (2.0, {"p": {"n": 2.5}})


def test_the_last_notices_are_kept(watched: tuple[Watch, Node, Clock]) -> None:
    """The oldest one goes."""
    watch = watched[0]
    for number in range(NOTICES_MAX + 1):
        watch.notice(PipeNotice("intake", "sender", NoticeKind.STALLED, 1, ((number, number),), ""))
    told = watch.status().notices
    assert len(told) == NOTICES_MAX
    assert told[0].text == "pipe intake (sender): Stalled, epoch 1, message 1"
    assert told[0].time == "1970-01-01T00:00:00.000+00:00"


def test_a_newer_status_with_more_in_it_can_be_read(watched: tuple[Watch, Node, Clock]) -> None:
    """What is not known is read past."""
    status = watched[0].status()
    newer = status.model_dump(by_alias=True) | {"weather": "fine"}
    assert Status.model_validate(newer) == status


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        *(
            (0, "0"),
            (1.25, "1.2"),
            (7.0, "7"),
            (9_999, "9,999"),
            (9_999.7, "10.0k"),
            (12_345, "12.3k"),
        ),
        *(
            (99_960, "100k"),
            (999_499, "999k"),
            (999_500, "1.0M"),
            (2.5e13, "25.0T"),
            (1e19, "many"),
        ),
        (None, "–"),
    ],
)
def test_numbers_are_at_most_five_signs(number: float | None, shown: str) -> None:
    """At every border of a unit."""
    assert compact(number) == shown
    assert len(shown) <= 5


@pytest.mark.parametrize(
    ("number", "shown"),
    [(0, "0.0 s"), (9.9, "9.9 s"), (99, "99 s"), (100, "2 min"), (7_200, "2 h"), (2e5, "2 days")],
)
def test_times_are_told_in_the_unit_that_suits_them(number: float, shown: str) -> None:
    """Seconds to days; short ones in milliseconds."""
    assert seconds(number) == shown
    assert (seconds(None), milliseconds(0.5), milliseconds(2_000)) == ("–", "0.5 ms", "2.0 s")


def test_two_readers_of_a_stream_are_told_apart(tmp_path: Path) -> None:
    """One is behind, and the other has read everything: rows, metrics and notices name each, and hide neither."""
    told: list[str] = []

    def reader(name: str) -> StreamReceiver:
        layers = {"stream": {"start": "earliest", "reader": name}}
        return StreamReceiver(
            "posts", layers, store=store, retries=1, dead_letter=store, notices=note
        )

    def note(notice: PipeNotice) -> None:
        told.append(str(notice))

    def refuse(message: object) -> None:
        raise ValueError(f"{message} is none of ours")

    with (
        SqliteStore(tmp_path / "posts.db") as store,
        StreamSender("posts", {"stream": {"producer": "gateway"}}, store=store) as sender,
        reader("mail") as mail,
        reader("stats") as stats,
    ):
        sender.send_many(range(50), until="confirmed")
        stats.receive(refuse)
        assert stats.catch_up(PATIENCE_S)
        orders: tuple[list[Guaranteed], ...] = ([sender, mail, stats], [stats, mail, sender])
        for ends in orders:
            watch = Watch("news", pipes_of(ends), counts_of(ends))
            flows = {part.name: part.flow for part in watch.status().pipes}
            assert list(flows) == [observed_as(end) for end in ends]
            behind, through = flows["posts/mail"], flows["posts/stats"]
            assert behind is not None
            assert through is not None
            assert (through.lag, through.settled) == (0, 50)
            assert behind.settled == 0
            assert (behind.lag or 0) + (behind.in_work or 0) + (behind.held or 0) > 0
            assert {name for name, flow in flows.items() if flow and flow.accepted == 50} == {
                "posts/gateway"
            }
        registry = CollectorRegistry()
        registry.register(PipeCollector(lambda: [sender, mail, stats]))
        labels = [{"pipe": name} for name in ("posts/mail", "posts/stats", "posts")]
        settled = [registry.get_sample_value("surepipe_settled_total", one) for one in labels]
        assert settled == [0, 50, None]
    assert told
    assert all(text.startswith("pipe posts/stats (receiver): ") for text in told)


def test_a_reader_called_as_its_stream_has_no_other_name(tmp_path: Path) -> None:
    """Nor has a pipe without a stream; the ends of one name are one row, whose counters are added up."""
    with (
        SqliteStore(tmp_path / "posts.db") as store,
        StreamSender("posts", store=store) as sender,
        StreamReceiver(
            "posts", {"stream": {"start": "earliest", "reader": "posts"}}, store=store
        ) as receiver,
    ):
        receiver.receive(str)
        sender.send_many(range(5), until="confirmed")
        assert receiver.catch_up(PATIENCE_S)
        (posts,) = (
            Watch("news", pipes_of([sender, receiver]), counts_of([sender, receiver]))
            .status()
            .pipes
        )
        assert posts.name == "posts"
        assert posts.flow is not None
        assert (posts.flow.accepted, posts.flow.settled) == (5, 5)


def test_counters_under_a_name_that_no_part_has_are_refused() -> None:
    """They would never be seen, and the pipe would look as if it were another process's."""
    with (
        Pipe("orders") as pipe,
        pytest.raises(ConfigurationError, match=r"given of 'mail', and its parts are 'orders'"),
    ):
        Watch("shop", pipes_of([pipe]), lambda: {"mail": pipe.counters()})
