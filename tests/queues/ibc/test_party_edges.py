"""What parties rest on: the age of trust, clocks that are set while limits run, outages, and planted mistakes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random

import pytest

from surepipe.actors.ends.remote import StreamSender
from surepipe.actors.parties import ServedParty, StreamToParty
from surepipe.actors.threads import THREADS
from surepipe.errors import MisuseError
from surepipe.queues.ibc import Item, Party, Receipt, Relay
from surepipe.queues.ibc.auditing import judge_connection
from surepipe.queues.ibc.keys import QueueKey
from surepipe.queues.ibc.party import BlockClock
from surepipe.queues.ibc.transitions import Evidence, OpenBlock
from surepipe.storage import MemoryStore
from tests.queues.ibc.party_pair import Pair

PERIOD_S = 14 * 24 * 3600.0


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_settled_that_was_not_received(seed: int) -> None:
    """I-7: without limits the sender's head is never beyond what the receiver has taken, whatever comes when."""
    pair, random = Pair(), Random(seed)
    for step in range(60):
        index = random.randrange(step // 3 + 1)
        match random.randrange(4):
            case 0:
                pair.send()
            case 1:
                pair.receive(index)
            case 2:
                pair.receipt(index)
            case _:
                pair.cleaned()
        settled, _ = pair.counters(pair.east, "west", "send")
        _, received = pair.counters(pair.west, "east", "receipt")
        assert settled <= received


@pytest.mark.parametrize(
    ("age_ms", "code"), [(99_999, ""), (100_000, "header-expired"), (200_000, "header-expired")]
)
def test_a_proof_counts_as_long_as_its_header_is_young_enough(age_ms: int, code: str) -> None:
    """I-15: to the millisecond; what is refused then changes nothing."""
    pair = Pair(period_s=100.0)
    pair.send()
    height = pair.east.merkle.latest.height
    signed = pair.east.view.header(height) if pair.east.view.refresh() else None
    assert signed is not None
    assert pair.west.update_header("east", signed).kind == "done"
    pair.time.ms = signed.header.time_ms + age_ms
    if code:
        pair.west.accept_time()  # so long a pause is a jump, too
    outcome = pair.receive(0, trusts=False, height=height)
    assert (outcome.code or "") == code, outcome
    assert pair.counters(pair.west, "east", "receipt") == ((0, 0) if code else (0, 1))


def test_no_proof_counts_of_a_party_that_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """I-15: a frozen client refuses before any proof is looked at, though the header is young and held."""
    pair = Pair()
    pair.send()
    pair.receive(0, height=pair.east.merkle.latest.height)
    pair.send()
    client = pair.west.client("east")
    assert client is not None
    held = pair.east.merkle.latest.height
    pair.east.view.refresh()
    pair.west.update_header("east", pair.east.view.header(held))

    def frozen(_: object) -> bool:
        return True

    monkeypatch.setattr(type(client), "misbehaviour", property(frozen), raising=False)
    asked: list[object] = []

    def shows(*of: object) -> bool:
        asked.append(of)
        return True

    monkeypatch.setattr(Evidence, "shows", shows)
    assert pair.receive(1, trusts=False, height=held).code == "client-frozen"
    assert not asked


def _shows_all(*_: object) -> bool:
    return True


@pytest.mark.parametrize("order", ["ordered", "unordered"])
def test_over_an_honest_route_order_and_delivery_need_no_proof(
    order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """IB-1: the proof stands for trust in whoever carries; the pattern is that of the queues."""
    told: list[list[tuple[object, ...]]] = []
    for is_checked in (True, False):
        if not is_checked:
            monkeypatch.setattr(Evidence, "shows", _shows_all)
        pair = Pair(order=order)
        for number in range(20):
            pair.send(b"%d" % number)
            if number % 7 == 0:
                pair.relay.settle(60)
        pair.relay.settle(60)
        told.append(pair.told)
    assert told[0] == told[1]
    received = [each[2] for each in told[0] if each[0] == "received"]
    assert sorted(received, key=str) == sorted(range(20), key=str)
    assert order == "unordered" or received == list(range(20))


def test_only_the_party_writes_what_its_absence_is_shown_of() -> None:
    """IB-25: absence is sound in a sorted tree, so no application reaches the space or streams of queues."""
    party = Party("east")
    with pytest.raises(MisuseError, match="not 'ibc'"):
        party.module("ibc")
    with pytest.raises(MisuseError, match="the party's own"):
        party.module("app").execute(lambda tx: tx.append("ibc/west/send", b"x"))
    assert party.merkle.scan("ibc", b"", None) == [(b"ibc", b"\x01east")]


@pytest.mark.parametrize("step_s", [-PERIOD_S / 5, PERIOD_S / 5])
def test_an_outage_within_a_third_of_the_trusting_period_costs_time_only(step_s: float) -> None:
    """IT-78: with a step of both clocks by a fifth of the period in it; both ledgers fit together."""
    pair = Pair()
    pair.send(b"before")
    pair.time.ms += round((PERIOD_S / 3 - 60) * 1000)
    pair.time.step_ms = round(step_s * 1000)
    pair.relay.settle(600)
    pair.send(b"after")
    pair.relay.settle(600)
    done = [each for each in pair.told if each[0] == "committed"]
    assert [each[3] for each in done] == [b"before", b"after"]
    pair.east.view.refresh()
    pair.west.view.refresh()
    assert list(judge_connection(pair.east.view, pair.west.view, ("west", "east"))) == []


def test_after_a_whole_trusting_period_an_operator_has_to_help() -> None:
    """IT-78: the client is expired and nothing is called broken; with new trust the message goes on."""
    pair = Pair()
    pair.send(b"before")
    pair.time.ms += round(PERIOD_S * 1000)
    for party in (pair.east, pair.west):
        party.accept_time()
        party.tick()
    assert pair.status().state == "expired"
    pair.east.view.refresh()
    pair.west.view.refresh()
    assert list(judge_connection(pair.east.view, pair.west.view, ("west", "east"))) == []
    trust = {party.name: party.identity() for party in (pair.east, pair.west)}
    pair.east.recover("west", trust["west"])
    pair.west.recover("east", trust["east"])
    pair.relay.settle(600)
    assert [each[3] for each in pair.told if each[0] == "committed"] == [b"before"]


@pytest.mark.parametrize("step_s", [-86_400.0, -61.0, 30.0, 3_600.0])
@pytest.mark.parametrize("order", ["ordered", "unordered"])
def test_a_message_with_a_limit_ends_once_though_the_receiver_sets_its_clock(
    step_s: float, order: str
) -> None:
    """IB-113, I-4, I-5: back or ahead, while messages are under way: each is executed and committed, or neither
    executed nor committed and rolled back."""
    pair = Pair(order=order)
    for number in range(4):
        pair.send(b"%d" % number, timeout_after_s=60)
    pair.west_steps(round(step_s * 1000))
    for number in range(4, 8):
        pair.send(b"%d" % number, timeout_after_s=60)
    pair.time.ms += 20_000
    relay = Relay(
        [(pair.east, pair.west)], clock=pair.time.wall_ms, sleep=lambda _: pair.time.sleep(5)
    )
    relay.settle(7_200)
    ends = {kind: [each[3] for each in pair.told if each[0] == kind] for kind in ENDS}
    assert ends["received"] == ends["committed"]
    assert sorted(ends["committed"] + ends["rolled back"]) == [b"%d" % n for n in range(8)]


ENDS = ("received", "committed", "rolled back")


# A store that hangs.


class Hanging(MemoryStore):
    """Whose answer about streams doesn't come before it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.goes = threading.Event()
        self.goes.set()

    def info(self, stream: str) -> object:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        self.goes.wait(60)
        return super().info(stream)


def test_whoever_asks_what_waits_does_not_wait_for_a_store_that_hangs() -> None:
    """IB-103: the count comes when the store answers; until then there is none, and nobody stands still."""
    signal, store = THREADS.signal(), Hanging()
    with ServedParty("east", store=store) as east, Party("west") as west:
        east.module("pipeline").handle("message")
        east.register("west", west.identity())
        sender = StreamSender("orders", store=store, codec="bytes")
        sender.send(b"one", until="confirmed")
        feed = StreamToParty(east, "orders", "west", "message", changed=signal.notify)
        store.goes.clear()
        feed.start()
        asked = threading.Thread(target=lambda: [feed.waiting() for _ in range(100)])
        asked.start()
        asked.join(30)
        assert not asked.is_alive()
        assert feed.waiting() is None
        store.goes.set()
        assert signal.wait(lambda: feed.waiting() is not None, 60)
        sender.close()
        feed.close()


# Planted mistakes: each makes the row beside it fail.


def _newer_receipt_waits() -> None:
    """The row of a receipt in a later format."""
    pair = Pair()
    pair.send(b"a")
    pair.receive(0)
    block = pair.west.merkle.begin()
    block.set("ibc", QueueKey("east", "receipt", "entry", 0).encode(), b"\2 something new")
    pair.west.merkle.commit(block, pair.time.ms + 50)
    pair.west.sign()
    outcome = pair.receipt(0)
    assert (outcome.kind, outcome.code) == ("refused", "newer-format")


def _ticks_go_by_time_that_passed() -> None:
    """The row of an idle party whose wall clock is set back."""
    pair = Pair()
    pair.east.tick()
    pair.time.step_ms = -86_400_000
    pair.time.ms += 6_000
    assert pair.east.tick().kind == "done"


def _plant_lenient_receipts(monkeypatch: pytest.MonkeyPatch) -> None:
    def receipt(self: OpenBlock, connection: str, height: int, item: Item, *_: object) -> int:
        del height
        found = Receipt(3 if item.value[:1] > b"\1" else 0)
        to = self._connection(connection)  # pyright: ignore[reportPrivateUsage]
        self._settle(to, 0, found, b"")  # pyright: ignore[reportPrivateUsage]
        return 0

    monkeypatch.setattr(OpenBlock, "receipt", receipt)


def _plant_wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    def elapsed(self: BlockClock, last_ms: int) -> int:
        return self._wall_ms() - last_ms  # pyright: ignore[reportPrivateUsage]

    monkeypatch.setattr(BlockClock, "elapsed_ms", elapsed)


@pytest.mark.parametrize(
    ("row", "plant"),
    [
        (_newer_receipt_waits, _plant_lenient_receipts),
        (_ticks_go_by_time_that_passed, _plant_wall_clock),
    ],
    ids=["unknown format rolled back", "age by the wall clock"],
)
def test_a_planted_mistake_is_noticed(
    row: Callable[[], None],
    plant: Callable[[pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """IT-81: the row holds, and fails with the mistake."""
    row()
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        row()
