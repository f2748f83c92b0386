"""A party that is killed at each write of its store, before it and after it: the next process goes on, once."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from surepipe.actors.parties import ServedParty
from surepipe.core.store_requests import (
    KEEP_ALL,
    AppendRun,
    Batch,
    CommitPosition,
    StoreOutcome,
    StoreRequest,
    Together,
    Unavailable,
)
from surepipe.errors import StoreUnavailable
from surepipe.queues.ibc import Ledger, Party, Relay, Sending, Transaction
from surepipe.queues.ibc.auditing import judge_connection, judge_ledger
from surepipe.queues.ibc.keys import SendValue
from surepipe.storage.memory import MemoryStore
from tests.queues.ibc.party_pair import Time

WRITES = AppendRun | Together | CommitPosition


class Dying(MemoryStore):
    """Answers nothing more from one of its writes on, which is done or not."""

    left = -1
    is_done = False
    is_dead = False

    def ask(self, request: StoreRequest) -> StoreOutcome:
        if isinstance(request, WRITES) and not self.is_dead:
            self.left -= 1
            if self.left == 0:
                self.is_dead = True
                if self.is_done:
                    super().ask(request)
        return Unavailable("it is dead") if self.is_dead else super().ask(request)


class Deal:
    """Two parties of which one is killed again and again, and what they do between: three messages each way."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._time = folder, Time()
        self.stores = {"east": Dying(), "west": Dying()}
        self.parties = {name: self._opened(name) for name in self.stores}
        for name, other in (("east", "west"), ("west", "east")):
            self.parties[name].register(other, self.parties[other].identity())

    def _opened(self, name: str) -> Party:
        party = Party(
            name,
            store=self.stores[name],
            keys=self._folder / f"{name}.keys",
            clock=self._time.wall_ms,
            monotonic=self._time.monotonic_us,
        )

        def receive(tx: Transaction, data: bytes) -> bytes:
            tx.set(b"got", (tx.get(b"got") or b"") + data)
            return data

        def commit(tx: Transaction, data: bytes, result: bytes) -> None:
            assert data == result
            tx.set(b"done", (tx.get(b"done") or b"") + data)

        party.module("app").handle("note", on_receive=receive, on_commit=commit)
        return party

    def go_on(self) -> None:
        """Send what isn't sent, carry what waits. Raises StoreUnavailable when a store is dead."""
        for party in self.parties.values():

            def send_next(
                tx: Transaction, to: str = "west" if party.name == "east" else "east"
            ) -> bool:
                sent = tx.get(b"sent") or b""
                if len(sent) < 3:
                    tx.set(b"sent", sent + b"abc"[len(sent) : len(sent) + 1])
                    tx.send(to, "note", b"abc"[len(sent) : len(sent) + 1])
                return len(sent) < 3

            while party.module("app").execute(send_next):
                pass
        relay = Relay(
            [(self.parties["east"], self.parties["west"])],
            clock=self._time.wall_ms,
            sleep=self._time.sleep,
        )
        for _ in range(6):
            relay.run_once()
            self._time.sleep(6)

    def restart(self) -> None:
        """Both processes anew over what their stores have; the store that died is back."""
        for name, store in self.stores.items():
            store.is_dead, store.left = False, -1
            self.parties[name] = self._opened(name)

    def found(self) -> list[str]:
        """What is wrong."""
        ledgers = [Ledger(store) for store in self.stores.values()]
        texts = [text for ledger in ledgers if ledger.refresh() for text in judge_ledger(ledger)]
        texts += judge_connection(ledgers[0], ledgers[1], ("west", "east"))
        for name, party in self.parties.items():
            for key in (b"got", b"done"):
                value = party.module("app").get(key)
                texts += [] if value == b"abc" else [f"{name} has {key!r}: {value!r}"]
        return texts


WRITES_MAX = 14


@pytest.mark.parametrize("name", ["east", "west"])
@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
def test_a_party_is_killed_at_each_of_its_writes(tmp_path: Path, name: str, is_done: bool) -> None:
    """IT-14, I-3, I-4, I-10: blocks, headers and windows. Each message is executed once and settled once."""
    died = 0
    for write in range(1, WRITES_MAX):
        folder = tmp_path / str(write)
        folder.mkdir()
        deal = Deal(folder)
        deal.stores[name].left, deal.stores[name].is_done = write, is_done
        with suppress(StoreUnavailable):
            deal.go_on()
        died += deal.stores[name].is_dead
        deal.restart()
        deal.go_on()
        assert deal.found() == [], (write, is_done)
    assert died >= 8


ROW = b"sent/orders"


def fed(party: ServedParty) -> None:
    """Send what the stream has, two entries in a block, as a pipe between parties does."""
    while True:
        done = int(party.merkle_row(ROW) or b"1")
        found = party.store.read("orders", done, 2, 1 << 20)
        if not isinstance(found, Batch):
            return
        sendings = [Sending("note", each) for run in found.entries for each in run.payloads]
        party.send_from("app", "west", sendings, (ROW, b"%d" % done, b"%d" % found.next))


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
def test_entries_of_a_stream_are_sent_once_at_whatever_write_a_process_dies(
    tmp_path: Path, is_done: bool
) -> None:
    """IB-119, IT-14, IB-129: how far the stream was sent is a row of the block that sends."""
    wanted, died = [b"%d" % number for number in range(6)], 0
    for write in range(1, 11):
        store = Dying()
        store.create("orders", 1, KEEP_ALL)
        for seq, payload in enumerate(wanted, 1):
            store.append("orders", "shop", 1, seq, [payload])
        for _ in range(2):
            with suppress(StoreUnavailable):
                party = ServedParty("east", store=store, keys=tmp_path / f"{write}.keys")
                party.module("app").handle("note")
                if "west" not in party.connections:
                    with Party("west") as west:
                        party.register("west", west.identity())
                    store.left, store.is_done = write, is_done
                fed(party)
                fed(party)
            died += store.is_dead
            store.is_dead, store.left = False, -1
        ledger = Ledger(store)
        ledger.refresh()
        found = ledger.entries("west", "send", 0, 100, ledger.height)
        assert [SendValue.decode(each).data for each in found.values()] == wanted, write
    assert died >= 6
