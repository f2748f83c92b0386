"""Relays: one header for a batch, any number of them at once, and nothing that they remember matters."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from random import Random
from typing import cast

import pytest

from surepipe.core.store_requests import (
    KEEP_ALL,
    AllDone,
    AppendRun,
    DropValues,
    ReadFrom,
    Store,
    StoreOutcome,
    StoreRequest,
    StreamInfo,
    TableRows,
    Unavailable,
)
from surepipe.errors import ConfigurationError, NotConfirmed, StoreReset, StoreUnavailable
from surepipe.queues.ibc import (
    ClientStatus,
    Connection,
    ConnectionState,
    Header,
    IbcRefused,
    Ledger,
    Party,
    PartyLimits,
    Relay,
    RelayOptions,
    Sending,
    Submission,
    SubmissionOutcome,
    Transaction,
    sign,
)
from surepipe.queues.ibc.auditing import (
    first_kept,
    judge_believed,
    judge_connection,
    judge_ledger,
    judge_submissions,
)
from surepipe.queues.ibc.keys import HANDLER_RAISED
from surepipe.queues.ibc.ledger import HEADERS
from surepipe.queues.ibc.relay import PartyEnd
from surepipe.storage.memory import MemoryStore
from tests.queues.ibc.party_pair import START_MS, Pair


def relay_of(pair: Pair, **options: object) -> Relay:
    """A relay of its own."""
    return Relay(
        [(pair.east, pair.west)],
        options=replace(RelayOptions(), **options),  # type: ignore[arg-type]
        clock=pair.time.wall_ms,
        sleep=pair.time.sleep,
    )


def test_a_batch_takes_one_header_and_nothing_takes_none() -> None:
    """IT-42, IB-30: receipts flow back, queues empty, and then no call is made."""
    pair = Pair()
    pair.east_app.send_many("west", [Sending("note", b"%d" % n) for n in range(20)])
    pair.relay.settle(5)
    path = pair.relay.paths[0]
    assert path.submitted == {("receive", "done"): 20, ("receipt", "done"): 20}
    assert path.headers == 2
    assert [each[0] for each in pair.told[:20]] == ["received"] * 20
    submissions = path.submissions
    for _ in range(5):
        assert not pair.relay.run_once()
    assert path.submissions == submissions
    assert pair.counters(pair.east, "west", "send") == (20, 20)


def test_receipts_are_cleaned_up_when_it_is_quiet() -> None:
    """IB-29: after that nothing is left of a message."""
    pair = Pair()
    pair.send(b"a")
    pair.relay.settle(5)
    assert pair.counters(pair.west, "east", "receipt") == (0, 1)
    pair.time.sleep(60)
    assert pair.relay.run_once()
    assert pair.counters(pair.west, "east", "receipt") == (1, 1)


@pytest.mark.parametrize("order", ["ordered", "unordered"])
@pytest.mark.parametrize("seed", range(5))
def test_two_relays_at_once_come_to_the_same_end(order: str, seed: int) -> None:
    """IT-43, I-18, IB-31: each message executed once, whoever is faster."""
    pair = Pair(order=order)
    rng = Random(seed)
    relays = [relay_of(pair, batch_items_max=3), relay_of(pair, batch_items_max=5)]
    for number in range(30):
        pair.send(b"%d" % number)
        pair.west_app.send("east", "note", b"back %d" % number)
        if rng.random() < 0.5:
            rng.choice(relays).run_once()
    for relay in relays:
        relay.settle(60)
    for party, name in ((pair.west, b""), (pair.east, b"back ")):
        got = [e[3] for e in pair.told if e[:2] == ("received", party.name)]
        wanted = [name + b"%d" % number for number in range(30)]
        assert (got if order == "ordered" else sorted(got)) == (
            wanted if order == "ordered" else sorted(wanted)
        )
    assert len([e for e in pair.told if e[0] == "committed"]) == 60


def test_what_expired_is_rolled_back_and_the_rest_delivered() -> None:
    """IT-44, IB-35: a backlog the other party is quiet, so it is asked for a block."""
    pair = Pair()
    pair.send(b"soon", timeout_ms=START_MS + 2_000)
    pair.send(b"never")
    pair.time.sleep(10)
    pair.relay.settle(30)
    assert ("rolled back", "east", 0, b"soon", 1) in pair.told
    assert ("received", "west", 1, b"never") in pair.told
    assert ("committed", "east", 1, b"never", b"done never") in pair.told


def test_a_backlog_leaves_new_messages_their_share() -> None:
    """IT-45, IB-33: unordered, a new message goes with the next submission."""
    pair = Pair(order="unordered")
    for start in range(0, 1_000, 250):
        old = [Sending("note", b"old %d" % number) for number in range(start, start + 250)]
        pair.east_app.send_many("west", old)
    relay = relay_of(pair, batch_items_max=20)
    relay.run_once()
    for number in range(10):
        before = len(pair.told)
        pair.send(b"new %d" % number)
        relay.run_once()
        fresh = [e[3] for e in pair.told[before:] if e[0] == "received"]
        assert b"new %d" % number in fresh
        assert sum(each.startswith(b"old") for each in fresh) >= 10


def test_a_message_that_is_refused_alone_is_parked_and_the_others_go_on() -> None:
    """IB-32: of an unordered connection."""
    pair = Pair(order="unordered")

    def generator() -> object:
        yield 1

    def hidden(_: Transaction, __: bytes) -> bytes:
        return cast("bytes", generator())

    pair.west_app.handle("worse", on_receive=hidden)
    pair.east_app.handle("worse")
    pair.east_app.send("west", "worse", b"x")
    pair.send(b"fine")
    with pytest.raises(NotConfirmed, match="deliver"):
        pair.relay.settle(1)
    assert ("committed", "east", 1, b"fine", b"done fine") in pair.told
    assert pair.relay.status()[0].parked == [0]


def test_held_back_is_told_and_not_forgotten() -> None:
    """IB-36: an ordered queue stops there."""
    pair = Pair()
    pair.send(b"a")
    relay = relay_of(pair, deny=("no*",))
    with pytest.raises(NotConfirmed, match="is of type 'note'"):
        relay.settle(0)
    assert pair.told == []


def test_a_second_relay_waits_before_it_takes_what_is_new() -> None:
    """IB-31: by its priority."""
    pair = Pair()
    second = relay_of(pair, priority=1)
    pair.send(b"a")
    assert not second.run_once()
    pair.time.sleep(3)
    assert second.run_once()


def test_figures_grow_with_the_clock_while_nothing_moves() -> None:
    """IT-48: how many, the oldest, and for how long it waits."""
    pair = Pair()
    pair.send(b"a")
    pair.send(b"b")
    for seconds in (5, 10):
        pair.time.sleep(5)
        found = pair.status()
        assert found.pending == {"deliver": 2, "settle": 0, "expire": 0}
        party, index, age = found.oldest["deliver"]
        assert (party, index) == ("east", 0)
        assert seconds - 1 < age <= seconds
    pair.receive(0)
    assert pair.status().pending == {"deliver": 1, "settle": 1, "expire": 0}


def test_a_party_that_shows_two_histories_is_frozen_with_the_evidence() -> None:
    """IT-30, IB-35: another header was believed at that height; the relay brings the party's own."""
    pair = Pair()
    west, seed = pair.west, bytes([2]) * 32
    own = west.merkle.latest
    pair.west_app.send("east", "note", b"x")
    hashes = west.signer.validators.hash
    forged = Header("west", own.height + 1, own.time_ms + 7, bytes(32), hashes, hashes)
    validators = west.signer.validators
    outcome = pair.east.update_header("west", sign(forged, [seed], validators, validators))
    assert outcome.kind == "done"
    pair.relay.run_once()
    client = pair.east.client("west")
    assert client is not None
    assert client.status(pair.time.ms) is ClientStatus.FROZEN
    with pytest.raises(IbcRefused, match="client-frozen"):
        pair.send(b"a")
    assert pair.relay.status()[0].state == "frozen"


def test_trust_is_kept_alive_over_a_quiet_time() -> None:
    """IB-35, IB-128: with ticks where there is no newer block; without a relay it expires."""
    pair = Pair(period_s=300)
    for _ in range(30):
        pair.time.sleep(60)
        pair.relay.run_once()
    pair.send(b"a")
    pair.relay.settle(5)
    pair.time.sleep(301)
    client = pair.east.client("west")
    assert client is not None
    assert client.status(pair.time.ms) is ClientStatus.EXPIRED
    assert pair.relay.status()[0].state == "expired"


def test_ends_that_disagree_in_order_are_not_relayed() -> None:
    """IB-35."""
    pair = Pair()
    east, west = Party("east", keys=[bytes(32)]), Party("west", keys=[bytes([9]) * 32])
    east.register("west", west.identity())
    west.register("east", east.identity(), order="unordered")
    with pytest.raises(ConfigurationError, match="ordered"):
        Relay([(east, west)], clock=pair.time.wall_ms).run_once()
    with pytest.raises(ConfigurationError, match="0 connections"):
        Relay([(pair.east, Party("north"))], clock=pair.time.wall_ms).run_once()


class Hanging(Store):
    """A store that doesn't answer when told so."""

    def __init__(self) -> None:
        self._inner = MemoryStore()
        self.is_down = False
        self.hides = ""
        """The one stream of which it shows no entry."""
        self.name = self.kind = "memory"

    @property
    def level(self) -> object:  # type: ignore[override]
        return self._inner.level

    def ask(self, request: StoreRequest) -> StoreOutcome:
        is_silent = self.is_down or (isinstance(request, ReadFrom) and request.stream == self.hides)
        return Unavailable("down") if is_silent else self._inner.ask(request)


def test_an_end_that_does_not_answer_stalls_its_own_path_only() -> None:
    """IT-73, IB-122: the others go on, and it goes on when the end is back."""
    hanging = Hanging()
    pair = Pair(stores=(None, hanging))
    third = Party("third", keys=[bytes([3]) * 32], clock=pair.time.wall_ms)
    third.register("east", pair.east.identity())
    pair.east.register("third", third.identity())
    third.module("app").handle("note", on_receive=lambda _, data: data)
    relay = Relay(
        [(pair.east, pair.west), (pair.east, third)],
        clock=pair.time.wall_ms,
        sleep=pair.time.sleep,
    )
    relay.run_once()
    pair.send(b"to west")
    pair.east_app.send("third", "note", b"to third")
    hanging.is_down = True
    for _ in range(3):
        relay.run_once()
    assert [each.state for each in relay.status()] == ["stalled", "live"]
    assert ("committed", "east", 0, b"to third", b"to third") in pair.told
    hanging.is_down = False
    pair.time.sleep(60)
    relay.settle(60)
    assert ("committed", "east", 0, b"to west", b"done to west") in pair.told


def test_a_path_whose_store_falls_silent_in_the_middle_of_a_look_is_told_as_stalled() -> None:
    """IB-122: 1. A store says that there are new blocks. 2. It doesn't answer any more. 3. Whoever says so needs
    the path's name, and must not ask that store for it: the relay ended by that, for all of its paths."""
    hanging = Hanging()
    pair = Pair(stores=(None, hanging))
    relay = relay_of(pair)
    relay.settle(60)
    pair.send(b"to west")
    pair.west_app.execute(lambda tx: tx.set(b"k", b"a block that no relay has looked at"))
    hanging.hides = HEADERS
    (first,) = relay.status()
    assert (first.path, first.state) == ("east/west-west/east", "stalled")
    relay.run_once()
    hanging.hides = ""
    pair.time.sleep(60)
    relay.settle(60)
    assert ("committed", "east", 0, b"to west", b"done to west") in pair.told


def test_a_ledger_that_went_back_behind_what_is_believed_of_it_is_called_broken() -> None:
    """IB-131, I-14: each ledger agrees with itself, and what lacks might have come later; but no header that
    another party believes can have been signed later than that."""
    store = MemoryStore()
    pair = Pair(stores=(None, store))
    relay = relay_of(pair)
    relay.settle(60)
    before = store.snapshot()
    pair.send(b"to west")
    relay.settle(60)
    east, west = Ledger(pair.east.store), Ledger(store)
    east.refresh()
    west.refresh()
    assert not [*judge_believed(east, west), *judge_believed(west, east)]
    store.roll_back(before)
    again = Ledger(store)
    again.refresh()
    (told,) = judge_believed(east, again)
    assert "the store lost some, or went back" in told


def test_a_party_whose_store_was_emptied_says_so_and_refuses_nothing() -> None:
    """IT-70, IB-116: 1. A store is emptied while its party runs. 2. It knows no connection any more. 3. A refusal
    would be taken for an answer."""
    store = MemoryStore()
    empty = store.snapshot()
    pair = Pair(stores=(store, None))
    store.roll_back(empty)
    for why in ("does not exist", "lost the log of 'east'"):
        with pytest.raises(StoreReset, match=why):
            pair.send(b"to nobody")


def test_an_item_of_a_store_that_does_not_answer_is_not_gone() -> None:
    """IB-122, S-14: a party that takes a silence for a loss stops, until somebody starts it anew."""
    hanging = Hanging()
    pair = Pair(stores=(hanging, None))
    pair.send(b"to west")
    ledger = Ledger(hanging)
    ledger.refresh()
    hanging.is_down = True
    with pytest.raises(StoreUnavailable, match="down"):
        ledger.body("west", 0)
    with pytest.raises(StoreUnavailable, match="down"):
        judge_submissions(ledger, "west")
    hanging.is_down = False
    assert ledger.body("west", 0)


def damaged_nodes(store: MemoryStore) -> None:
    """Nodes of the tree are gone, as after a disk that lost some."""
    found = store.load_table("ibc/nodes")
    assert isinstance(found, TableRows)
    store.create("by hand", 1, KEEP_ALL)
    store.open_producer("by hand", "nobody", 1, 1)
    done = store.together(
        AppendRun("by hand", "nobody", 1, 1, [b"x"]),
        DropValues("ibc/nodes", [key for key, _ in found.pairs]),
        is_decided=True,
    )
    assert isinstance(done, AllDone)


@pytest.mark.parametrize("what", ["went back", "is damaged"])
def test_a_party_whose_store_lost_something_stalls_its_own_path_only(what: str) -> None:
    """IB-122: the relay says so and goes on with the others; it ended, and with it all that it carried."""
    store = MemoryStore()
    pair = Pair(stores=(None, store))
    third = Party("third", keys=[bytes([3]) * 32], clock=pair.time.wall_ms)
    third.register("east", pair.east.identity())
    pair.east.register("third", third.identity())
    third.module("app").handle("note", on_receive=lambda _, data: data)
    relay = Relay(
        [(pair.east, pair.west), (pair.east, third)],
        clock=pair.time.wall_ms,
        sleep=pair.time.sleep,
    )
    before = store.snapshot()
    pair.send(b"to west")
    relay.settle(60)
    pair.send(b"more")
    if what == "went back":
        store.roll_back(before)
    else:
        damaged_nodes(store)
        relay.paths[0] = Relay([(pair.east, pair.west)], clock=pair.time.wall_ms).paths[0]
    pair.east_app.send("third", "note", b"to third")
    for _ in range(3):
        relay.run_once()
    assert ("committed", "east", 0, b"to third", b"to third") in pair.told
    first, second = relay.status()
    assert (first.state, second.state) == ("stalled", "live")
    assert "lost" in first.why
    (alone,) = Relay([(pair.east, pair.west)], clock=pair.time.wall_ms).status()
    assert alone.state == "stalled"


def test_a_header_that_another_relay_brings_meanwhile_is_no_loss() -> None:
    """IB-122: the party made it after this relay had looked at it, and before it looked at the other one."""
    pair = Pair()
    pair.send(b"a")
    other = relay_of(pair)

    relay = relay_of(pair)
    look = relay.paths[0].refresh

    def refresh() -> None:
        look()
        assert relay.paths[0].sides is not None
        target = relay.paths[0].sides[1]
        pair.send(b"b")
        other.run_once()
        target.ledger.refresh()

    relay.paths[0].refresh = refresh  # type: ignore[method-assign]
    relay.run_once()
    assert [each.state for each in relay.status()] == ["live"]


def test_a_relay_takes_a_newer_height_when_its_own_was_pruned() -> None:
    """IT-46."""
    pair = Pair()
    end = PartyEnd(pair.east)
    end.ledger.refresh()
    pair.send(b"a")
    for _ in range(5):
        pair.east_app.execute(lambda tx: tx.set(b"k", b"v"))
    pair.east.merkle.prune(pair.east.merkle.latest.height)
    pair.relay.settle(5)
    assert ("committed", "east", 0, b"a", b"done a") in pair.told


def test_a_log_that_was_trimmed_is_not_called_broken() -> None:
    """IB-131, IT-79: nor one that is whole; one that says what its block doesn't is."""
    pair = Pair()
    for number in range(60):
        pair.time.sleep(60)
        pair.send(b"%d" % number)
        pair.relay.settle(5)
    whole = Ledger(pair.east.store), Ledger(pair.west.store)
    for _ in range(300):
        pair.time.sleep(60)
        pair.east_app.execute(lambda tx: tx.set(b"k", b"%d" % tx.height))
    trimmed = Ledger(pair.east.store), whole[1]
    for ledgers in (whole, trimmed):
        for ledger in ledgers:
            ledger.refresh()
            assert list(judge_ledger(ledger)) == []
        assert list(judge_connection(*ledgers, ("west", "east"))) == []
    assert first_kept(trimmed[0]) > 1
    assert first_kept(trimmed[1]) == 1


def test_what_is_behind_many_that_stand_is_settled_and_times_out() -> None:
    """I-16, IB-33: unordered, more messages than a batch are held back in front; figures count all of them."""
    pair = Pair(order="unordered")
    pair.east_app.handle("held")
    relay = relay_of(pair, deny=("held",), batch_items_max=10)
    for _ in range(12):
        pair.east_app.send_many("west", [Sending("held", b"x") for _ in range(100)])
    fine = pair.send(b"fine")
    late = pair.send(b"late", timeout_ms=pair.time.ms + 3_000)
    skipped = relay_of(pair, deny=("held",), skip=frozenset({late}), batch_items_max=10)
    skipped.run_once()
    pair.time.sleep(10)
    for _ in range(6):
        skipped.run_once()
        pair.time.sleep(6)
    assert ("committed", "east", fine, b"fine", b"done fine") in pair.told
    assert ("rolled back", "east", late, b"late", 1) in pair.told
    assert relay.status()[0].pending == {"deliver": 1_200, "settle": 0, "expire": 0}


def test_threads_may_share_a_party() -> None:
    """IB-5: each call is done as a whole; indexes are dense."""
    pair = Pair()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(pair.send, [b"%d" % number for number in range(80)]))
    assert sorted(found) == list(range(80))
    pair.relay.settle(10)
    assert sum(each[0] == "committed" for each in pair.told) == 80


def test_a_party_that_is_lost_is_given_up_by_hand() -> None:
    """IB-117: not while it is believed; then what is unsettled comes back, and the connection is closed."""
    pair = Pair(period_s=300)
    pair.send(b"executed")
    pair.receive(0)
    pair.send(b"never arrived")
    with pytest.raises(IbcRefused, match="not-permitted"):
        pair.east.abandon("west", "we are tired")
    pair.time.sleep(400)
    pair.east.accept_time()
    assert pair.east.abandon("west", "its owner is bankrupt") == 0
    assert [each for each in pair.told if each[0] == "rolled back"] == [
        ("rolled back", "east", 0, b"executed", 6),
        ("rolled back", "east", 1, b"never arrived", 6),
    ]
    assert pair.east.connections["west"].state is ConnectionState.CLOSED
    ledgers = Ledger(pair.east.store), Ledger(pair.west.store)
    for ledger in ledgers:
        ledger.refresh()
    assert list(judge_connection(*ledgers, ("west", "east"))) == []


@pytest.mark.parametrize("order", ["ordered", "unordered"])
def test_a_long_run_takes_no_more_room_than_a_short_one(order: str) -> None:
    """IB-107, IB-11, IT-25: log, headers and streams of queues go with what was settled; one that waits keeps
    what tells of its age (IT-48)."""
    pair, sizes = Pair(order=order, keep_heights=4), list[int]()
    relay = relay_of(pair, cleanup_every=8)
    for _ in range(4):
        for _ in range(32):
            pair.send(b"x" * 500)
            relay.settle(60)
            pair.time.sleep(120)
        sizes.append(sum(_entries(party.store) for party in (pair.east, pair.west)))
    assert max(sizes) <= 1.3 * sizes[0], sizes
    begin = pair.time.ms
    pair.send(b"old")
    for _ in range(70):
        pair.time.sleep(600)
        pair.east.tick()
    _, _, age = pair.status().oldest["deliver"]
    assert age == (pair.time.ms - begin) / 1_000
    relay.settle(60)


def _entries(store: Store) -> int:
    """Of all streams of a party."""
    names = ["log", "headers"]
    names += [f"{party}/{queue}" for party in ("east", "west") for queue in ("send", "receipt")]
    found = [store.info(f"ibc/{name}") for name in names]
    return sum(each.next - each.earliest for each in found if isinstance(each, StreamInfo))


class FirstThis(dict[str, Connection]):
    """The connections of a ledger; whoever asks for one lets something happen first."""

    def __init__(self, known: dict[str, Connection], act: Callable[[], None]) -> None:
        super().__init__(known)
        self._act = act

    def __getitem__(self, name: str) -> Connection:
        self._act()
        return super().__getitem__(name)


def test_ledgers_that_are_read_one_after_the_other_are_not_called_broken() -> None:
    """IB-131, IT-79: when the first one was read, more is sent, received and settled."""
    pair = Pair()

    def go_on() -> None:
        pair.send(b"a")
        pair.west_app.send("east", "note", b"c")
        pair.relay.settle(5)

    go_on()
    east, west = Ledger(pair.east.store), Ledger(pair.west.store)
    for ledger in (east, west):
        ledger.refresh()
    west.connections = FirstThis(west.connections, go_on)
    assert list(judge_connection(east, west, ("west", "east"))) == []
    assert list(judge_connection(west, east, ("east", "west"))) == []


def test_garbage_makes_no_heights() -> None:
    """IB-108, IT-63, I-9: submissions of which nothing is accepted change neither heights nor what is stored."""
    pair, random = Pair(), Random(3)
    pair.send(b"a")
    relayed = Recording(pair)
    before = pair.west.merkle.latest, _entries(pair.west.store)
    Relay([(PartyEnd(pair.east), relayed)], clock=pair.time.wall_ms).run_once()
    (good,) = relayed.submissions
    for _ in range(200):
        item = replace(good.items[0], value=good.items[0].value + random.randbytes(2))
        bad = random.choice(
            [
                replace(good, items=(item,), headers=()),
                replace(good, connection="nobody"),
                replace(good, height=random.randrange(2, 1 << 40), headers=()),
            ]
        )
        outcome = pair.west.submit(bad)
        assert all(each.kind != "done" for each in (*outcome.headers, *outcome.items))
    assert (pair.west.merkle.latest, _entries(pair.west.store)) == before
    assert pair.west.submit(good).items[0].kind == "done"


class Recording(PartyEnd):
    """The west, as a relay sees it; what is submitted goes nowhere."""

    def __init__(self, pair: Pair) -> None:
        super().__init__(pair.west)
        self.submissions: list[Submission] = []

    def submit(self, submission: Submission) -> None:
        self.submissions.append(submission)


def test_kept_proofs_are_judged_by_the_headers_that_are_kept() -> None:
    """IT-80: one that was altered is invalid, one whose header is unknown is unknown, and neither was executed."""
    pair = Pair()
    pair.send(b"a")
    end = Recording(pair)
    Relay([(PartyEnd(pair.east), end)], clock=pair.time.wall_ms).run_once()
    (good,) = end.submissions
    assert pair.west.submit(good).items[0].kind == "done"
    altered = replace(good, items=(replace(good.items[0], value=good.items[0].value + b"x"),))
    for each in (good, altered, replace(good, height=1_000)):
        store, stream = pair.west.store, "ibc/inbox/relay"
        store.create(stream, 1, KEEP_ALL)
        info = store.info(stream)
        assert isinstance(info, StreamInfo)
        store.append(stream, "relay", 1, info.next, [each.encode()])
    ledger = Ledger(pair.west.store)
    ledger.refresh()
    found = judge_submissions(ledger, "east")
    assert (found.valid, found.invalid, found.unknown, found.unproven) == (1, 1, 1, [])


def test_two_hosts_with_the_same_calls_agree_byte_for_byte() -> None:
    """IB-2, I-20, IB-7: roots of all heights, and the records of both logs."""
    logs: list[list[bytes]] = []
    for _ in range(2):
        pair = Pair()
        for number in range(5):
            pair.send(b"%d" % number, timeout_after_s=2.0 * number + 1)
            pair.time.sleep(1.5)
            if number % 2:
                pair.relay.settle(5)
        pair.relay.settle(60)
        logs.append([b.encode() for p in (pair.east, pair.west) for b in p.merkle.blocks()])
    assert logs[0] == logs[1]


def test_one_call_writes_so_much_and_no_more() -> None:
    """IB-104, IT-64: what is larger is refused and leaves nothing; a large submission takes several blocks."""
    pair = Pair()
    with pytest.raises(IbcRefused, match="too-large"):
        pair.east_app.send_many("west", [Sending("note", bytes(262_144))] * 17)
    with pytest.raises(IbcRefused, match="too-large"):
        pair.east_app.execute(lambda tx: tx.set(b"k", bytes(5 << 20)))
    assert pair.counters(pair.east, "west", "send") == (0, 0)

    def copies(tx: Transaction, data: bytes) -> bytes:
        tx.set(b"%d" % (tx.index or 0), data * 8)
        return b"done"

    pair.west_app.handle("big", on_receive=copies)
    pair.east_app.handle("big")
    for _ in range(2):
        pair.east_app.send_many("west", [Sending("big", bytes(200_000))] * 4)
    before = pair.west.merkle.latest.height
    pair.relay.settle(60)
    assert pair.counters(pair.west, "east", "receipt")[1] == 8
    assert pair.west.merkle.latest.height - before >= 2


def test_a_handler_that_writes_too_much_has_failed() -> None:
    """IB-104, IB-114: its message is answered as one whose handler raised, and what is behind it goes on."""
    pair, ended = Pair(), list[int]()

    def writes(tx: Transaction, data: bytes) -> bytes:
        del data
        tx.set(b"k", bytes(5 << 20))
        return b"done"

    def roll_back(tx: Transaction, data: bytes, code: int, result: bytes) -> None:
        del tx, data, result
        ended.append(code)

    pair.west_app.handle("fat", on_receive=writes)
    pair.east_app.handle("fat", on_rollback=roll_back)
    pair.east_app.send("west", "fat", b"x")
    pair.send(b"behind it")
    pair.relay.settle(60)
    assert ended == [HANDLER_RAISED]
    assert ("received", "west", 1, b"behind it") in pair.told
    assert pair.west_app.execute(lambda tx: tx.get(b"k")) is None
    sizes = [sum(len(o.value or b"") for o in b.operations) for b in pair.west.merkle.blocks()]
    assert max(sizes) < 6 << 20


class ByBytes(PartyEnd):
    """What a relay in another process does: a submission is bytes on its way."""

    def submit(self, submission: Submission) -> SubmissionOutcome:
        return self._party.submit(submission.encode())


@pytest.mark.parametrize("order", ["ordered", "unordered"])
def test_what_expires_between_large_messages_comes_back(order: str) -> None:
    """IB-28, IB-23: that a receipt isn't there is shown by its neighbours, whose values may be large; what doesn't
    fit into one submission goes by several."""
    pair = Pair(order=order)
    for end in (pair.east, pair.west):
        end.limits = PartyLimits(data_bytes_max=1 << 20, result_bytes_max=1 << 20)
    pair.west_app.handle("large", on_receive=lambda _, data: data)
    pair.east_app.handle("large")
    pair.east_app.send_many("west", [Sending("large", bytes(1 << 20))])
    pair.west_app.send_many("east", [Sending("large", bytes(1 << 20))])
    ends = ByBytes(pair.east), ByBytes(pair.west)
    relay = Relay([ends], clock=pair.time.wall_ms, sleep=pair.time.sleep)
    relay.settle(60)
    for number in range(12):
        pair.east_app.send("west", "note", b"%d" % number, timeout_after_s=5.0)
    pair.time.sleep(10.0)
    relay.settle(60)
    assert pair.counters(pair.east, "west", "send") == (13, 13)
    assert [event[0] for event in pair.told] == ["rolled back"] * 12


def test_limits_that_no_submission_could_carry_are_refused() -> None:
    """IB-28: of data and of results, when the limits are made and not when the first message is stuck."""
    for name in ("data_bytes_max", "result_bytes_max"):
        with pytest.raises(ConfigurationError, match=f"{name}.*2097152"):
            PartyLimits(**{name: (2 << 20) + 1})
