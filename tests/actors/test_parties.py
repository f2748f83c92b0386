"""Parties and relays as processes have them: over a store that both can reach."""

from __future__ import annotations

import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.request import urlopen

import pytest

from surepipe.actors.ends.remote import StreamSender
from surepipe.actors.parties import Figures, ServedParty, ServedRelay, StoreEnd, StreamToParty
from surepipe.actors.threads import THREADS
from surepipe.observe.metrics import MetricsServer, RelayCollector
from surepipe.queues.ibc import (
    Item,
    ItemKind,
    Ledger,
    Party,
    PartyLimits,
    Relay,
    RelayOptions,
    Submission,
    Transaction,
)
from surepipe.queues.ibc.auditing import judge_submissions
from surepipe.queues.ibc.keys import QueueKey
from surepipe.queues.ibc.relay import PartyEnd
from surepipe.storage import MemoryStore, SqliteStore


def _is_quiet(found: Figures) -> bool:
    return bool(found) and not any(
        value for (name, _, _), value in found.items() if name == "surepipe_ibc_pending"
    )


def test_parties_take_what_a_relay_brings_by_their_stores(tmp_path: Path) -> None:
    """IB-120: each with a file of its own; the relay has nothing but these files."""
    done: list[bytes] = []
    with (
        SqliteStore(tmp_path / "east.db") as east_store,
        SqliteStore(tmp_path / "west.db") as west_store,
        ServedParty("east", store=east_store, keys=tmp_path / "east.keys") as east,
        ServedParty("west", store=west_store, keys=tmp_path / "west.keys") as west,
    ):
        signal = THREADS.signal()

        def commit(tx: Transaction, data: bytes, result: bytes) -> None:
            del tx, data
            done.append(result)
            signal.notify()

        east.module("app").handle("note", on_commit=commit)
        west.module("app").handle("note", on_receive=lambda _, data: b"done " + data)
        east.register("west", west.identity())
        west.register("east", east.identity())
        for party in (east, west):
            party.serve()
        with (
            SqliteStore(tmp_path / "east.db") as one,
            SqliteStore(tmp_path / "west.db") as other,
        ):
            ends = StoreEnd(one, "relay"), StoreEnd(other, "relay")
            served = ServedRelay(Relay([ends], options=RelayOptions(poll_s=0.02)))
            for number in range(5):
                east.module("app").send("west", "note", b"%d" % number)
            assert signal.wait(lambda: len(done) == 5, 30)
            assert served.wait(30, _is_quiet)
            with MetricsServer([], port=0, more=[RelayCollector(served.figures)]) as metrics:
                page = urlopen(metrics.url).read().decode()
            served.close()
            for end in ends:
                end.close()
    path = "east/west-west/east"
    assert f'surepipe_ibc_pending{{path="{path}",stage="deliver"}} 0.0' in page
    assert f'surepipe_ibc_live{{path="{path}",state="live"}} 1.0' in page
    assert (
        f'surepipe_ibc_submitted_total{{kind="receive",outcome="submitted",path="{path}"}}' in page
    )
    assert done == [b"done %d" % number for number in range(5)]


def test_what_came_after_the_last_look_at_a_stream_is_waited_for() -> None:
    """IB-129: a feed that found its stream empty doesn't say so of what is stored there a moment later."""
    signal = THREADS.signal()
    with ServedParty("east", store=MemoryStore()) as east, Party("west") as west:
        east.module("pipeline").handle("message")
        east.register("west", west.identity())
        sender = StreamSender("orders", store=east.store, codec="bytes")
        feed = StreamToParty(east, "orders", "west", "message", changed=signal.notify)
        told: list[int] = []

        def is_told() -> bool:
            if (count := feed.waiting()) is not None:
                told.append(count)
            return count is not None

        feed.start()
        assert signal.wait(is_told, 60)
        sender.send(b"one", until="confirmed")
        assert not is_told()  # nobody has looked since
        assert signal.wait(is_told, 60)
        assert told == [0, 1]
        sender.close()
        feed.close()


def test_a_relay_that_floods_its_inbox_holds_up_no_other() -> None:
    """IT-74, IT-72, IB-120: each has a stream of its own, and they are served by turns."""
    done: list[bytes] = []
    signal = THREADS.signal()

    def commit(tx: Transaction, data: bytes, result: bytes) -> None:
        del tx, data
        done.append(result)
        signal.notify()

    with ExitStack() as stack:
        east, west = (
            stack.enter_context(ServedParty(name, store=MemoryStore(), relayers=["one", "two"]))
            for name in ("east", "west")
        )
        east.module("app").handle("note", on_commit=commit)
        west.module("app").handle("note", on_receive=lambda _, data: b"done " + data)
        east.register("west", west.identity())
        west.register("east", east.identity())
        flooder, *ends = (
            StoreEnd(west.store, "one"),
            StoreEnd(east.store, "two"),
            StoreEnd(west.store, "two"),
        )
        for end in (flooder, *ends):
            stack.callback(end.close)
        junk = Item(ItemKind.RECEIVE, QueueKey("west", "send", "entry", 0).encode(), bytes(5_000))
        for height in range(1, 400):
            flooder.submit(Submission("east", (), height, (), (junk,), b"one"))
        for party in (east, west):
            party.serve()
        served = ServedRelay(Relay([(ends[0], ends[1])], options=RelayOptions(poll_s=0.02)))
        stack.callback(served.close)
        east.module("app").send("west", "note", b"Ann")
        assert signal.wait(lambda: done == [b"done Ann"], 60)


def test_an_audit_reads_what_each_relay_has_brought(tmp_path: Path) -> None:
    """IB-120, IB-131: relays one and two carry a message each; a later life knows three instead of one."""
    path = tmp_path / "west.db"
    with Party("east") as east, ExitStack() as stack:
        east.module("app").handle("note")
        for number, relayers in enumerate((["one", "two"], ["two", "three"])):
            west = ServedParty(
                "west", store=f"sqlite:///{path}", keys=tmp_path / "w.keys", relayers=relayers
            )
            stack.callback(west.close)
            west.module("app").handle("note")
            if not number:
                east.register("west", west.identity())
                west.register("east", east.identity())
            west.serve()
            for relayer in relayers:
                end = StoreEnd(west.store, relayer)
                east.module("app").send("west", "note", relayer.encode())
                Relay([(PartyEnd(east), end)]).settle(60)
                end.close()
    with SqliteStore(path) as store:
        ledger = Ledger(store)
        ledger.refresh()
        found = judge_submissions(ledger, "east")
        assert ledger.relayers == ("one", "two", "three")
    assert (found.valid, found.unproven) == (4, [])


def test_a_message_that_waits_for_the_application_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """IB-114: relays bring it again and again, and nobody but the party knows why it isn't taken."""

    calls: list[object] = []
    signal, relayers = THREADS.signal(), ["one", "two", "three"]

    def unfinished(tx: Transaction, data: bytes) -> object:
        del tx
        calls.append(data)
        signal.notify()
        return (each for each in data)

    with Party("east") as east, MemoryStore() as store:
        west = ServedParty("west", store=store, relayers=relayers)
        east.module("app").handle("note")
        west.module("app").handle("note", on_receive=unfinished)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        east.register("west", west.identity())
        west.register("east", east.identity())
        west.serve()
        east.module("app").send("west", "note", b"Ann")
        for count, relayer in enumerate(relayers, 1):
            end = StoreEnd(store, relayer)
            Relay([(PartyEnd(east), end)]).run_once()
            assert signal.wait(lambda count=count: len(calls) == count, 60)  # type: ignore[misc]
            end.close()
        west.close()
    told = [each.getMessage() for each in caplog.records if "handler-misuse" in each.getMessage()]
    (text,) = told
    assert text.startswith("party west: message 0 of connection east waits: handler-misuse: ")


class ShippedEnd:
    """A party whose ledger is read from a copy of its file; submissions are handed to its process as bytes."""

    def __init__(self, file: Path, party: Party) -> None:
        self._file, self._party = file, party
        self._copy = file.with_suffix(".copy")
        self.ship()
        self.store = SqliteStore(self._copy)
        self.ledger = Ledger(self.store)

    def ship(self) -> None:
        """Bring the copy up to date."""
        with (
            closing(sqlite3.connect(self._file)) as own,
            closing(sqlite3.connect(self._copy)) as to,
        ):
            own.backup(to)

    def submit(self, submission: Submission) -> None:
        self._party.submit(submission.encode())


def test_a_relay_carries_without_an_account_of_either_store(tmp_path: Path) -> None:
    """IB-121: it reads copies that are shipped to it, and hands over bytes; the copies may be late."""
    with (
        SqliteStore(tmp_path / "east.db") as east_store,
        SqliteStore(tmp_path / "west.db") as west_store,
        Party("east", store=east_store, keys=tmp_path / "east.keys") as east,
        Party("west", store=west_store, keys=tmp_path / "west.keys") as west,
    ):
        done: list[bytes] = []

        def commit(tx: Transaction, data: bytes, result: bytes) -> None:
            del tx, data
            done.append(result)

        east.module("app").handle("note", on_commit=commit)
        west.module("app").handle("note", on_receive=lambda _, data: b"done " + data)
        east.register("west", west.identity())
        west.register("east", east.identity())
        for number in range(5):
            east.module("app").send("west", "note", b"%d" % number)
        ends = [ShippedEnd(tmp_path / f"{each.name}.db", each) for each in (east, west)]
        relay = Relay([(ends[0], ends[1])])
        for _ in range(10):
            relay.run_once()
            for end in ends:
                end.ship()
        for end in ends:
            end.store.close()
    assert done == [b"done %d" % number for number in range(5)]


@pytest.mark.parametrize(("size", "count"), [(1 << 20, 2), (400_000, 5), (20_000, 150)])
def test_messages_pass_however_large_they_are_together(size: int, count: int) -> None:
    """IB-28: a submission has a message twice, by itself and in its proof, and goes by the inbox all the same;
    more of them than fit go by several."""
    done: list[bytes] = []
    signal = THREADS.signal()

    def commit(tx: Transaction, data: bytes, result: bytes) -> None:
        del tx, data
        done.append(result)
        signal.notify()

    limits = PartyLimits(data_bytes_max=1 << 20)
    with ExitStack() as stack:
        east, west = (
            stack.enter_context(ServedParty(name, store=MemoryStore(), limits=limits))
            for name in ("east", "west")
        )
        east.module("app").handle("note", on_commit=commit)
        west.module("app").handle("note", on_receive=lambda _, data: b"%d" % len(data))
        east.register("west", west.identity())
        west.register("east", east.identity())
        ends = [StoreEnd(party.store, "relay") for party in (east, west)]
        for number in range(count):
            east.module("app").send("west", "note", bytes([number]) * size)
        for party in (east, west):
            party.serve()
        served = ServedRelay(Relay([(ends[0], ends[1])], options=RelayOptions(poll_s=0.02)))
        stack.callback(served.close)
        for end in ends:
            stack.callback(end.close)
        assert signal.wait(lambda: served.failure is not None or len(done) == count, 60)
        assert served.failure is None
    assert done == [b"%d" % size] * count
