"""Dead letters of a pipe in a stream: stored before their source is confirmed, listed, shown, and replayed."""

from __future__ import annotations

import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from surepipe.actors import Pipe, StreamReceiver, StreamSender
from surepipe.core.store_requests import AppendRun, Transaction
from surepipe.errors import Fenced, NotConfirmed
from surepipe.storage import DeadLetterStream, Level, SqliteStore, StoredLetter
from surepipe.storage.faulty import FaultyStore, FaultyTransaction, Misfortune
from surepipe.storage.letters import Fates
from tests.actors.kit import PATIENCE_S, Failing
from tests.actors.stored_kit import STREAM, Until, crash_sender, sqlite_store


class HeldStore(FaultyStore):
    """Its transactions wait until they are let go."""

    def __init__(self, inside: SqliteStore) -> None:
        super().__init__(inside)
        self.let_go = threading.Event()

    @contextmanager
    def transaction(self) -> Generator[FaultyTransaction[Transaction]]:
        assert self.let_go.wait(PATIENCE_S)
        with super().transaction() as transaction:
            yield transaction


class Stops:
    """A handler that counts, and refuses some messages for ever."""

    def __init__(self, *refused: object) -> None:
        self.refused = refused
        self.calls: list[object] = []
        self.done: list[object] = []

    def __call__(self, message: object) -> None:
        self.calls.append(message)
        if message in self.refused:
            raise ValueError(f"never {message}")
        self.done.append(message)


def test_a_poisoned_message_becomes_one_letter_and_the_rest_goes_on(tmp_path: Path) -> None:
    """dl1: e3 of 5, retries 3: three attempts, one letter, e4 and e5 delivered, all confirmed."""
    handle = Stops("e3")
    with (
        sqlite_store(tmp_path) as store,
        Pipe("orders", retries=3, retry_min_s=0.01, dead_letter=store) as pipe,
    ):
        pipe.receive(handle)
        pipe.send_many([f"e{number}" for number in range(1, 6)])
        pipe.flush(10)
        letters = pipe.dead_letters
        assert isinstance(letters, DeadLetterStream)
        (stored,) = letters.all()
        assert handle.calls.count("e3") == 3
        assert handle.done == ["e1", "e2", "e4", "e5"]
        assert stored.letter.attempts == 3
        assert (stored.letter.pipe, stored.letter.error_text) == ("orders", "never e3")
        shown = letters.show(stored.index)
        assert shown == stored
        assert "never e3" in stored.line()


def test_a_crash_between_letter_and_confirm_gives_one_letter(tmp_path: Path) -> None:
    """dl2: the letter is stored and its answer is lost with the receiver; the message fails again, one letter."""
    with sqlite_store(tmp_path) as inside:
        store = FaultyStore(inside)
        handle = Stops("e1")
        pipe = Pipe("orders", retries=1, retry_min_s=0.01, dead_letter=store)
        store.script(Misfortune.UNKNOWN, on=AppendRun)
        pipe.receive(handle)
        pipe.send("e1")
        pipe.receiver.crash()
        pipe.send("e2", until="confirmed", timeout=10)
        pipe.flush(10)
        pipe.close()
        assert len(list(DeadLetterStream(store, "orders/dead").all())) == 1
        assert handle.done == ["e2"]


def test_while_the_letters_store_is_away_the_message_stays_unconfirmed(tmp_path: Path) -> None:
    """dl3 (D-4): several refused letters; then the store is back, and nothing was lost."""
    with sqlite_store(tmp_path) as inside:
        store = FaultyStore(inside)
        handle = Stops("e1")
        with Pipe(
            "orders", retries=1, retry_min_s=0.01, retry_max_s=0.02, dead_letter=store
        ) as pipe:
            for _ in range(8):
                store.script(Misfortune.OUTAGE, on=AppendRun)
            pipe.receive(handle)
            pipe.send_many(["e1", "e2"])
            pipe.flush(10)
        assert handle.calls == ["e1", "e2"]
        assert len(list(DeadLetterStream(store, "orders/dead").all())) == 1


def test_in_a_batch_only_the_message_that_failed_counts_attempts(tmp_path: Path) -> None:
    """dl4: 10 messages, number 7 raises twice: 1..6 settled once, attempts only for 7, no letter."""
    handle = Failing(m7=2)
    with sqlite_store(tmp_path) as store:
        with Pipe("orders", retries=3, retry_min_s=0.01, dead_letter=store) as pipe:
            pipe.send_many([f"m{number}" for number in range(1, 11)])
            pipe.receive(handle)
            pipe.flush(10)
            assert pipe.counters()["settled"] == 10
        assert [handle.calls.count(f"m{number}") for number in range(1, 11)] == [
            *(1, 1, 1, 1, 1, 1, 3, 1, 1, 1)
        ]
        assert list(DeadLetterStream(store, "orders/dead").all()) == []


def test_an_interrupted_replay_goes_on_and_each_letter_is_sent_once(tmp_path: Path) -> None:
    """dl5 (D-5): three letters, the first replay ends after one; journal and letters in one store: each once."""
    with sqlite_store(tmp_path) as store:
        with Pipe("orders", retries=1, retry_min_s=0.01, dead_letter=store) as pipe:
            pipe.receive(Stops("e1", "e2", "e3"))
            pipe.send_many(["e1", "e2", "e3"])
            pipe.flush(10)
        letters = DeadLetterStream(store, "orders/dead")
        with Pipe("orders", journal=store) as target:
            assert target.replay(letters, letters_max=1).exactly_once
            crash_sender(target)
            got = Until(3)
            target.receive(got)
            replayed = target.replay(letters)
            assert (replayed.count, replayed.exactly_once) == (2, True)
            assert target.replay(letters).count == 0
            assert got.wait() == ["e1", "e2", "e3"]


def test_a_replay_whose_write_is_lost_on_the_way_sends_nothing_twice(tmp_path: Path) -> None:
    """The journal's write with the letter is not done, then done and unanswered: the letter arrives once."""
    with sqlite_store(tmp_path) as inside:
        letters = DeadLetterStream(inside, "orders/dead")
        with Pipe("orders", retries=1, retry_min_s=0.01, dead_letter=letters) as pipe:
            pipe.receive(Stops("e1", ""))
            pipe.send_many(["e1", b"", "e2"])
            pipe.flush(10)
        store = FaultyStore(inside)
        faulty_letters = DeadLetterStream(store, "orders/dead")
        with Pipe("orders", journal=store) as target:
            got: list[object] = []
            target.receive(got.append)
            target.send("before", until="confirmed")
            store.script(Misfortune.OUTAGE, on=FaultyTransaction)
            store.script(Misfortune.UNKNOWN, on=FaultyTransaction)
            assert target.replay(faulty_letters).exactly_once
            target.flush(10)
        assert got == ["before", "e1"]


def test_without_a_journal_in_the_same_store_a_replay_says_at_least_once(tmp_path: Path) -> None:
    """The answer tells which of the two it was."""
    with sqlite_store(tmp_path, "a.db") as store, sqlite_store(tmp_path, "b.db") as other:
        with Pipe("orders", retries=1, retry_min_s=0.01, dead_letter=store) as pipe:
            pipe.receive(Stops("e1"))
            pipe.send("e1")
            pipe.flush(10)
        letters = DeadLetterStream(store, "orders/dead")
        with StreamSender("orders", store=other) as sender:
            replayed = sender.replay(letters)
        assert str(replayed) == "1 letter replayed, at least once"


def test_a_replay_into_a_stream_names_all_who_get_it(tmp_path: Path) -> None:
    """One of two readers failed on the message: both get it, and the answer says so; of one it says nothing."""

    def layer(reader: str) -> dict[str, dict[str, object]]:
        return {"stream": {"start": "earliest", "reader": reader}}

    counted: list[object] = []
    with (
        sqlite_store(tmp_path) as store,
        StreamSender("trips", store=store, journal=store) as sender,
    ):
        billing = StreamReceiver(
            "trips", layer("billing"), store=store, retries=1, dead_letter=store
        )
        with billing:
            billing.receive(Stops("e1"))
            sender.send("e1", until="confirmed", timeout=PATIENCE_S)
            assert billing.catch_up(PATIENCE_S)
        letters = DeadLetterStream(store, "trips/dead/billing")
        assert str(sender.replay(letters)) == "1 letter replayed, exactly once"
        with StreamReceiver("trips", layer("stats"), store=store) as stats:
            stats.receive(counted.append)
            said = str(sender.replay(letters, reader="another"))
            sender.flush(PATIENCE_S)
            assert stats.catch_up(PATIENCE_S)
        assert (
            said == "1 letter replayed, exactly once, to each reader of the stream: billing, stats"
        )
        assert counted == ["e1"] * 3


def test_two_replays_at_once_do_not_both_send_a_letter(tmp_path: Path) -> None:
    """The second takes over before the first has sent: the first is refused, and its letter goes with the
    second."""
    with sqlite_store(tmp_path) as store:
        with Pipe("orders", retries=1, retry_min_s=0.01, dead_letter=store) as pipe:
            pipe.receive(Stops("e1"))
            pipe.send("e1")
            pipe.flush(10)
        letters = DeadLetterStream(store, "orders/dead")
        claims: list[object] = []

        class Overtaken(DeadLetterStream):
            def read(self, index: int, letters_max: int = 256) -> list[StoredLetter]:
                found = super().read(index, letters_max)
                if not claims:
                    claims.append(store.claim("orders/dead", "replay", 2**62))
                return found

        with Pipe("orders", journal=store) as target:
            got = Until(1)
            target.receive(got)
            with pytest.raises(Fenced, match="belongs to owner"):
                target.replay(Overtaken(store, "orders/dead"))
            assert target.replay(letters).count == 1
            target.flush(10)
            assert got.wait() == ["e1"]


def test_replays_into_one_pipe_take_turns(tmp_path: Path) -> None:
    """Four at once, as after four waits that were given up: each letter once, and who was taken over is told."""
    with sqlite_store(tmp_path) as store, ThreadPoolExecutor(4) as threads:
        with Pipe("orders", retries=1, retry_min_s=0.01, dead_letter=store) as pipe:
            pipe.receive(Stops(*range(8)))
            pipe.send_many(range(8))
            pipe.flush(10)
        with Pipe("orders", journal=store) as target:
            got = Stops()
            target.receive(got)
            replays = [
                threads.submit(target.replay, DeadLetterStream(store, "orders/dead"))
                for _ in range(4)
            ]
            raised = [one.exception() for one in replays]
        assert got.done == [*range(8)]
        assert {type(error) for error in raised} <= {type(None), Fenced}
        assert type(None) in {type(error) for error in raised}


def test_a_replay_goes_on_behind_one_that_gave_up_its_letter(tmp_path: Path) -> None:
    """1. The journal does not answer, and a replay ends with its letter under way. 2. Another one takes over and
    sends that letter. 3. The journal refuses the first, and what waits with it, which the second sends again."""
    with sqlite_store(tmp_path) as inside:
        with Pipe("orders", retries=1, retry_min_s=0.01, dead_letter=inside) as pipe:
            pipe.receive(Stops(*range(8)))
            pipe.send_many(range(8))
            pipe.flush(10)
        store = HeldStore(inside)
        with Pipe("orders", journal=store) as target:
            got = Stops()
            target.receive(got)
            with pytest.raises(NotConfirmed, match="may be accepted yet"):
                target.replay(DeadLetterStream(store, "orders/dead"), timeout=0)

            class Opening(DeadLetterStream):
                def refresh(self, fates: Fates) -> None:
                    store.let_go.set()
                    super().refresh(fates)

            assert target.replay(Opening(store, "orders/dead")).count == 8
        assert got.done == [*range(8)]


def test_a_letter_that_is_not_there_is_not_replayed_in_silence(tmp_path: Path) -> None:
    """By its index: an error names it, and a replay that waits is not taken over."""
    with (
        sqlite_store(tmp_path) as store,
        Pipe("orders", journal=store, dead_letter=store, retries=1) as pipe,
    ):
        pipe.receive(Stops(1, 2))
        pipe.send_many([1, 2])
        pipe.flush(PATIENCE_S)
        letters = DeadLetterStream(store, "orders/dead")
        for index in (-1, 0, 3, 999):
            with pytest.raises(LookupError, match=f"orders/dead has no letter {index}"):
                pipe.replay(letters, index=index)
        assert letters.delete(1, 0)
        left_out = pipe.replay(letters, index=1)
        assert left_out.count == 0
        assert str(left_out) == "no letter replayed: letter 1 of orders/dead was deleted"
        assert str(pipe.replay(letters, index=2)) == "1 letter replayed, exactly once"
        again = pipe.replay(letters, index=2)
        assert str(again) == "no letter replayed: letter 2 of orders/dead was sent again before"
        assert pipe.replay(letters, index=1, letters_max=0).left_out == ""


def test_the_level_of_the_letters_enters_the_guarantee(tmp_path: Path) -> None:
    """Letters of level process: power-loss is not tolerated, though state and journal are."""
    with (
        SqliteStore(tmp_path / "power.db", level=Level.POWER) as power,
        sqlite_store(tmp_path) as process,
    ):
        for letters, tolerates in ((power, True), (process, False)):
            with Pipe(
                "orders",
                journal=power,
                state=power,
                boundary="committed",
                retries=2,
                dead_letter=letters,
            ) as pipe:
                assert ("host-power-loss" in str(pipe.guarantee.headline)) is tolerates


def test_letters_of_several_producers_of_one_stream_are_told_apart(tmp_path: Path) -> None:
    """Two senders whose epochs and seqs are equal: two letters, each with its producer."""
    with sqlite_store(tmp_path) as store:
        for name in ("a", "b"):
            layer = {"stream": {"producer": name}}
            with StreamSender("orders", layer, store=store) as sender:
                sender.send(f"from {name}")
        with Pipe("orders", STREAM, store=store, retries=1, dead_letter=store) as pipe:
            pipe.receive(Stops("from a", "from b"))
            pipe.finish()
        letters = DeadLetterStream(store, "orders/dead")
        assert sorted(stored.letter.producer for stored in letters.all()) == ["a", "b"]
