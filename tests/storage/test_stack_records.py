"""A stream remembers which stack wrote it: readers of another read nothing, and both ends say which two met."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import pairwise, permutations
from pathlib import Path
from typing import cast

import pytest

from surepipe import Pipe, PipeNotice, PipeStopped, StacksDiffer, StreamReceiver, StreamSender
from surepipe.actors import StepRuntime
from surepipe.actors.codecs import CodecChoice
from surepipe.actors.ends.stores import LOOK_AGAIN_US, StackRecords
from surepipe.core.store_requests import (
    KEEP_ALL,
    AppendRun,
    Batch,
    CommitPosition,
    Committed,
    Created,
    Entries,
    GetPosition,
    OtherStack,
    Owner,
    Position,
    Retention,
    Store,
    StoreOutcome,
    StoreRequest,
    StreamInfo,
    Unavailable,
)
from surepipe.pipes.catalogue import LayerText
from surepipe.pipes.stack.agreement import LAYER_ABOVE, Terms
from surepipe.storage import MemoryStore, SqliteStore
from tests.kit.memory_bench import MemoryBench, return_at_once
from tests.kit.redis_bench import RedisBench
from tests.kit.stacks import directory
from tests.storage.sqlite_bench import SqliteBench

STACKS = directory(stream=True)
PLAIN: LayerText = {"stream": {"start": "earliest"}}
WITHIN_S = 30.0


OLD, NEW = "strict-monotonic > stream", "stream"


def layered(kind: str, **options: object) -> Sequence[LayerText]:
    """OLD or NEW, with these options of the stream."""
    stream: LayerText = {"stream": {"start": "earliest", **options}}
    return ["strict-monotonic", stream] if kind == OLD else [stream]


def readers_of(store: Store, name: str = "orders") -> list[tuple[str, int]]:
    """Who is registered with the stream, and where."""
    info = store.info(name)
    assert isinstance(info, StreamInfo)
    return [(one.reader, one.next) for one in info.readers]


class Silent(MemoryStore):
    """A store that answers no question about a record for a while."""

    is_silent = True

    def ask(self, request: StoreRequest) -> StoreOutcome:
        """As ever, or no answer."""
        is_record = isinstance(request, GetPosition) and "/stacks" in request.stream
        return Unavailable() if self.is_silent and is_record else super().ask(request)


class Away(MemoryStore):
    """A store that takes nothing for a while, or (``is_silent``) answers nothing at all."""

    is_away = is_silent = False

    def ask(self, request: StoreRequest) -> StoreOutcome:
        """As ever, or no answer."""
        if self.is_silent or (self.is_away and isinstance(request, AppendRun)):
            return Unavailable()
        return super().ask(request)


class World:
    """Ends over one store in virtual time, with what each told."""

    def __init__(self, stack: ExitStack, store: Store) -> None:
        self.runtime = StepRuntime(5)
        self.told: dict[str, list[PipeNotice]] = {"sender": [], "receiver": []}
        self._stack = stack
        self._store = store

    def sender(
        self,
        layers: Sequence[LayerText],
        name: str = "orders",
        *,
        journal: Store | None = None,
        codec: CodecChoice = "auto",
        retention: Retention = KEEP_ALL,
    ) -> StreamSender:
        """A writer."""
        notices = self.told["sender"].append
        end = StreamSender(
            name,
            list(layers),
            store=self._store,
            journal=journal,
            codec=codec,
            retention=retention,
            runtime=self.runtime,
            notices=notices,
        )
        self._stack.callback(end.abort)
        return end

    def receiver(
        self,
        layers: Sequence[LayerText],
        name: str = "orders",
        *,
        state: Store | None = None,
        codec: CodecChoice = "auto",
        retention: Retention = KEEP_ALL,
    ) -> StreamReceiver:
        """A reader."""
        notices = self.told["receiver"].append
        end = StreamReceiver(
            name,
            list(layers),
            store=self._store,
            state=state,
            codec=codec,
            retention=retention,
            runtime=self.runtime,
            notices=notices,
        )
        self._stack.callback(end.abort)
        return end

    def reads(
        self,
        layers: Sequence[LayerText],
        name: str = "orders",
        *,
        state: Store | None = None,
        codec: CodecChoice = "auto",
    ) -> list[object]:
        """What a reader gets until it is through, or is refused; it is closed then."""
        seen = list[object]()
        reader = self.receiver(layers, name, state=state, codec=codec)
        reader.receive(seen.append)
        try:
            assert reader.catch_up(WITHIN_S)
        except StacksDiffer as error:
            seen.append(error)
        reader.close()
        return seen

    def mismatches(self, who: str) -> list[str]:
        """What one end told of the other's stack."""
        return [notice.detail for notice in self.told[who] if notice.kind == "Mismatch"]


def assert_named(own: str, other: str, name: str, store: Store) -> None:
    """The reader stops with both texts, and the writer is told them by its next append."""
    with ExitStack() as stack:
        world = World(stack, store)
        sender = world.sender(STACKS[own], name)
        sender.send({"n": 1}, until="confirmed", timeout=WITHIN_S)
        receiver = world.receiver(STACKS[other], name)
        met = f"this end has {other}, payloads auto; the other end has {own}, payloads auto"
        with pytest.raises(StacksDiffer, match=re.escape(met)):
            next(iter(receiver))
        assert len(world.mismatches("receiver")) == 1
        world.runtime.advance(LOOK_AGAIN_US / 1_000_000)
        sender.send({"n": 2}, until="confirmed", timeout=WITHIN_S)
        (told,) = world.mismatches("sender")
        met = f"this end has {own}, payloads auto; the other end has {other}, payloads auto"
        assert told.startswith(f"reader {name!r}: ")
        assert met in told
        kinds = {notice.kind for notices in world.told.values() for notice in notices}
        assert kinds == {"Mismatch"}


@pytest.mark.parametrize("own", STACKS)
def test_a_reader_of_another_stack_reads_nothing_and_both_ends_say_which_two_met(own: str) -> None:
    """Every pair of stacks over a stream, in memory."""
    for pair in permutations(STACKS, 2):
        if pair[0] == own:
            assert_named(*pair, "orders", MemoryStore())


def test_every_kind_of_store_keeps_the_record(
    any_bench: MemoryBench | SqliteBench | RedisBench,
) -> None:
    """Each stack with its neighbour, over SQLite and each Redis that the machine has."""
    for number, pair in enumerate(pairwise(STACKS)):
        assert_named(*pair, f"s{number}", any_bench.store)


@pytest.mark.parametrize("own", STACKS)
def test_readers_of_the_same_stack_are_told_nothing_in_any_life(own: str) -> None:
    """Two lives of the writer, two readers."""
    store, seen = MemoryStore(), list[object]()
    for number in (1, 2):
        with ExitStack() as stack:
            world = World(stack, store)
            world.sender(STACKS[own]).send(number, until="confirmed", timeout=WITHIN_S)
            receiver = world.receiver(STACKS[own])
            receiver.receive(seen.append)
            assert receiver.catch_up(WITHIN_S)
            assert not world.told["sender"] + world.told["receiver"]
    assert seen == [1, 2]


def test_a_writer_may_change_its_stack_once_everything_is_read() -> None:
    """Refused before, with both texts; then the old reader stops at the first message of the new stack."""
    store = MemoryStore()
    old, new = STACKS["dedupe > stream"], [PLAIN]
    with ExitStack() as stack:
        world = World(stack, store)
        sender = world.sender(old)
        sender.send("old", until="confirmed", timeout=WITHIN_S)
        with pytest.raises(StacksDiffer, match=r"wrote it.* as dedupe > stream.*has stream,"):
            world.sender(new)
        sender.abort()
        reader, seen = world.receiver(old), list[object]()
        reader.receive(seen.append)
        assert reader.catch_up(WITHIN_S)
        reader.close()
        sender = world.sender(new)
        sender.send("new", until="confirmed", timeout=WITHIN_S)
        with pytest.raises(StacksDiffer, match=r"this end has dedupe > stream, .* has stream,"):
            next(iter(world.receiver(old)))
        assert seen == ["old"]
        again = world.receiver([{"stream": {"start": "earliest", "reader": "second"}}])
        with pytest.raises(StacksDiffer, match=r"has stream, .* has dedupe > stream,"):
            next(iter(again))


@pytest.mark.parametrize("own", STACKS)
def test_the_layers_are_changed_as_the_page_says(own: str) -> None:
    """Let the readers read everything, then start the sender with the new layers, and the reader after it. Its
    place in the stream is there; what the former layers knew is nothing to the new ones. Two lives with each."""
    for other in STACKS:
        store, seen = MemoryStore(), list[object]()
        for number, name in enumerate((own, own, other, other, own)):
            with ExitStack() as stack:
                world = World(stack, store)
                sender = world.sender(STACKS[name])
                for message in (2 * number, 2 * number + 1):
                    sender.send(message, until="confirmed", timeout=WITHIN_S)
                receiver = world.receiver(STACKS[name])
                receiver.receive(seen.append)
                assert receiver.catch_up(WITHIN_S)
        assert seen == list(range(10)), other


@pytest.mark.parametrize("own", STACKS)
@pytest.mark.parametrize("had_a_place", [False, True])
def test_a_reader_of_another_stack_leaves_nothing_that_stops_the_right_one(
    own: str, *, had_a_place: bool
) -> None:
    """It is refused, and closed in order. What the right one knew is still there."""
    for other in STACKS:
        if other == own:
            continue
        store, seen = MemoryStore(), list[object]()
        with ExitStack() as stack:
            world = World(stack, store)
            sender = world.sender(STACKS[own])
            sender.send(0, until="confirmed", timeout=WITHIN_S)
            if had_a_place:
                right = world.receiver(STACKS[own])
                right.receive(seen.append)
                assert right.catch_up(WITHIN_S)
                right.close()
            sender.send(1, until="confirmed", timeout=WITHIN_S)
            before = store.get("orders", "orders")
            wrong = world.receiver(STACKS[other])
            with pytest.raises(StacksDiffer):
                next(iter(wrong))
            wrong.close()
            if had_a_place:
                after = store.get("orders", "orders")
                assert isinstance(before, Position)
                assert isinstance(after, Position)
                assert (after.next, after.state) == (before.next, before.state)
            assert next(iter(world.receiver(STACKS[own]))) == int(had_a_place), other


@pytest.mark.long
def test_a_journal_with_messages_of_another_stack_is_not_sent_through_this_one(
    tmp_path: Path,
) -> None:
    """Their numbers are those of the former stack: under the new one they would look like repeats."""
    store = Away(pause=return_at_once)
    journal = SqliteStore(tmp_path / "journal.db")
    with ExitStack() as stack, journal:
        world = World(stack, store)
        sender = world.sender(STACKS["dedupe > stream"], journal=journal)
        sender.send("first", until="confirmed", timeout=WITHIN_S)
        store.is_away = True
        sender.send("left", until="accepted", timeout=WITHIN_S)
        sender.abort()
        store.is_away = False
        reader = world.receiver(STACKS["dedupe > stream"])
        reader.receive(print)
        assert reader.catch_up(WITHIN_S)
        with pytest.raises(StacksDiffer, match="holds messages for it, as dedupe > stream"):
            world.sender([PLAIN], journal=journal)


def test_a_stream_that_was_made_anew_remembers_nothing() -> None:
    """The record is of one incarnation of the stream."""
    store, runtime = MemoryStore(), StepRuntime(1)
    first = StackRecords(store, "s", 7, Terms("dedupe > stream"), runtime)
    first.begin_to_write("p", holds_rows=lambda: True)
    anew = StackRecords(store, "s", 8, Terms("stream"), runtime)
    anew.begin_to_write("p", holds_rows=lambda: True)
    batch = Batch((Entries(1, "p", 5, 1, [b"x"]),), 2, 2)
    assert anew.compared("r", batch) is batch
    assert isinstance(first.compared("r", batch), Batch)
    other = StackRecords(store, "s", 8, Terms("dedupe > stream"), runtime)
    assert isinstance(other.compared("r", batch), OtherStack)


def test_one_pipe_with_both_ends_is_told_of_what_a_former_one_left_unread() -> None:
    """Its stream has messages of another stack, which it would take for its own."""
    store = MemoryStore()
    with ExitStack() as stack:
        World(stack, store).sender(STACKS["continuous-index > stream"]).send(
            1, until="confirmed", timeout=WITHIN_S
        )
    with pytest.raises(StacksDiffer, match="as continuous-index > stream"):
        Pipe("orders", [PLAIN], store=store, runtime=StepRuntime(1))


LAYERED = [own for own in STACKS if LAYER_ABOVE in own]


def of_producer(own: str, producer: str) -> list[LayerText]:
    """This stack over a stream, for one of several senders."""
    return [*STACKS[own][:-1], {"stream": {"start": "earliest", "producer": producer}}]


@pytest.mark.parametrize("own", LAYERED)
def test_a_layered_stream_takes_one_sender_whatever_the_names(own: str) -> None:
    """Its layers take a second sender for a former life of the first, and would drop what it sends."""
    both = "'second' and 'first' both write it"
    with ExitStack() as stack:
        world = World(stack, MemoryStore())
        first = world.sender(of_producer(own, "first"))
        early = world.sender(of_producer(own, "second"))
        first.send({"n": 1}, until="confirmed", timeout=WITHIN_S)
        with pytest.raises(PipeStopped, match=both):
            early.send({"n": 2}, until="confirmed", timeout=WITHIN_S)
        with pytest.raises(StacksDiffer, match=both):
            world.sender(of_producer(own, "second"))
        receiver = world.receiver(STACKS[own])
        assert next(iter(receiver)) == {"n": 1}


@pytest.mark.parametrize("own", LAYERED)
def test_a_reader_drops_nothing_of_a_second_sender_that_was_not_refused(own: str) -> None:
    """One of an earlier version, or two that begin in one moment: it stops, and says who they are."""
    store, runtime = MemoryStore(), StepRuntime(1)
    assert isinstance(store.create("s", 1, KEEP_ALL), Created)
    records = StackRecords(store, "s", 1, Terms(own), runtime)
    for producer in ("first", "second"):
        records.begin_to_write(producer, holds_rows=lambda: False)
    for producer in ("first", "second"):
        store.open_producer("s", producer, 1, 1)
        store.append("s", producer, 1, 1, [b"x"])
    batch = Batch((Entries(1, "first", 1, 1, [b"x"]), Entries(2, "second", 1, 1, [b"x"])), 3, 3)
    outcome = records.compared("r", batch)
    assert isinstance(outcome, OtherStack)
    assert "'first' and 'second' both write it" in str(outcome)


def test_a_stream_without_layers_has_as_many_senders_as_one_likes() -> None:
    """It knows each by its name."""
    with ExitStack() as stack:
        world = World(stack, MemoryStore())
        for producer in ("first", "second"):
            sender = world.sender(of_producer("stream", producer))
            sender.send({"by": producer}, until="confirmed", timeout=WITHIN_S)
        messages = iter(world.receiver([PLAIN]))
        assert [next(messages), next(messages)] == [{"by": "first"}, {"by": "second"}]


def test_a_refused_reader_is_not_there(any_bench: MemoryBench | SqliteBench | RedisBench) -> None:
    """It had no place, and gets none. So the layers can be changed when the others have read all."""
    store = any_bench.store
    with ExitStack() as stack:
        world = World(stack, store)
        sender = world.sender(layered(OLD), "r")
        sender.send(0, until="confirmed", timeout=WITHIN_S)
        assert len(world.reads(layered(NEW, reader="wrong"), "r")) == 1
        assert readers_of(store, "r") == []
        sender.close()
        assert world.reads(layered(OLD), "r") == [0]
        world.sender(layered(NEW), "r").send(1, until="confirmed", timeout=WITHIN_S)


def test_nothing_waits_for_a_refused_reader() -> None:
    """A bounded stream goes on behind the others, as if it had never come."""
    store, seen = MemoryStore(pause=return_at_once), list[object]()
    kept = Retention(max_bytes=2_000)
    with ExitStack() as stack:
        world = World(stack, store)
        sender = world.sender(layered(OLD), retention=kept)
        sender.send(0, until="confirmed", timeout=WITHIN_S)
        wrong = world.receiver(layered(NEW, reader="wrong"), retention=kept)
        with pytest.raises(StacksDiffer):
            next(iter(wrong))
        wrong.close()
        right = world.receiver(layered(OLD), retention=kept)
        right.receive(seen.append)
        for number in range(1, 100):
            sender.send(number, until="confirmed", timeout=WITHIN_S)
        assert right.catch_up(WITHIN_S)
        assert seen == list(range(100))


def test_a_reader_is_not_registered_before_it_is_known_who_wrote() -> None:
    """Nobody answers for the records: it waits. Whatever kills it then, it has left nothing."""
    store = Silent(pause=return_at_once)
    store.is_silent = False
    with ExitStack() as stack:
        world = World(stack, store)
        world.sender(layered(OLD)).send(0, until="confirmed", timeout=WITHIN_S)
        store.is_silent = True
        wrong = world.receiver(layered(NEW))
        wrong.receive(print)
        assert not wrong.catch_up(WITHIN_S)
        assert readers_of(store) == []
        store.is_silent = False
        with pytest.raises(StacksDiffer):
            wrong.catch_up(WITHIN_S)
        assert readers_of(store) == []


@pytest.mark.parametrize("start", ["latest", 2])
def test_a_reader_that_finds_nothing_of_others_has_a_place_at_once(start: object) -> None:
    """What comes from then on is kept for it, whoever writes that; with the right layers it gets all."""
    store = MemoryStore(pause=return_at_once)
    with ExitStack() as stack:
        world = World(stack, store)
        sender = world.sender(layered(OLD))
        sender.send(0, until="confirmed", timeout=WITHIN_S)
        early = world.receiver(layered(NEW, start=start))
        early.receive(print)
        assert early.catch_up(WITHIN_S)
        sender.send(1, until="confirmed", timeout=WITHIN_S)
        with pytest.raises(StacksDiffer):
            early.catch_up(WITHIN_S)
        early.close()
        assert readers_of(store) == [("orders", 2)]
        sender.send(2, until="confirmed", timeout=WITHIN_S)
        assert world.reads(layered(OLD, start=start)) == [1, 2]


@pytest.mark.parametrize("commit", ["batch", "message", 60.0])
@pytest.mark.parametrize("read_max", [1, 256])
def test_what_stands_before_anothers_messages_is_delivered_and_settled(
    commit: object, read_max: int
) -> None:
    """In one batch with them, or not. After the right reader of the rest nothing comes again."""
    store = MemoryStore(pause=return_at_once)
    old = layered(OLD, commit=commit, read_max=read_max)
    with ExitStack() as stack:
        world = World(stack, store)
        first = world.sender(layered(OLD))
        first.send_many([0, 1], until="confirmed", timeout=WITHIN_S)
        assert world.reads(old) == [0, 1]
        second = world.sender(layered(NEW, producer="b"))
        for number in (2, 3, 4):  # who is still there goes on with its layers
            first.send(number, until="confirmed", timeout=WITHIN_S)
        second.send_many([10, 11], until="confirmed", timeout=WITHIN_S)
        *got, refused = world.reads(old)
        assert got == [2, 3, 4]
        assert "written by 'b'" in str(refused)
        (met,) = world.reads(old)
        assert isinstance(met, StacksDiffer)
        assert world.reads(layered(NEW, commit=commit, read_max=read_max)) == [10, 11]


def test_with_lanes_too_what_stands_before_is_handled_before_the_reader_stops() -> None:
    """The reader is ahead of its handlers, which take their time."""
    store, seen = MemoryStore(pause=return_at_once), list[object]()
    with ExitStack() as stack:
        world = World(stack, store)
        first = world.sender(layered(NEW))
        first.send_many(range(3), until="confirmed", timeout=WITHIN_S)
        assert world.reads(layered(NEW)) == [0, 1, 2]
        second = world.sender(layered(OLD, producer="b"))
        first.send_many(range(3, 9), until="confirmed", timeout=WITHIN_S)
        second.send(9, until="confirmed", timeout=WITHIN_S)
        reader = StreamReceiver(
            "orders",
            list(layered(NEW, read_max=6)),
            store=store,
            key=str,
            lanes=2,
            runtime=world.runtime,
            notices=world.told["receiver"].append,
        )
        stack.callback(reader.abort)
        reader.receive(seen.append)
        with pytest.raises(StacksDiffer):
            reader.catch_up(WITHIN_S)
        reader.close()
        assert sorted(map(str, seen)) == list("345678")
        info = store.info("orders")
        assert isinstance(info, StreamInfo)
        assert readers_of(store) == [("orders", info.next - 1)]


def test_a_new_producer_too_waits_until_what_others_wrote_is_read() -> None:
    """And one of the former layers that comes back then, the other way round."""
    store = MemoryStore(pause=return_at_once)
    old, new = layered(OLD, producer="a"), layered(NEW, producer="b")
    with ExitStack() as stack:
        world = World(stack, store)
        first = world.sender(old)
        first.send(0, until="confirmed", timeout=WITHIN_S)
        first.close()
        assert world.reads(old) == [0]
        world.sender(old).send(1, until="confirmed", timeout=WITHIN_S)
        with pytest.raises(StacksDiffer, match=r"as strict.*not all of that .*'orders' is at 2 of"):
            world.sender(new)
        assert world.reads(old) == [1]
        world.sender(new).send(3, until="confirmed", timeout=WITHIN_S)
        with pytest.raises(StacksDiffer, match=r"as stream, .*not all of that is read"):
            world.sender(old)
        assert world.reads(new) == [3]
        world.sender(old).send(4, until="confirmed", timeout=WITHIN_S)
        assert world.reads(old) == [4]


def test_a_sender_that_is_refused_leaves_the_stream_to_the_others(tmp_path: Path) -> None:
    """Its journal held messages of its former layers. Who has these may begin, though not all is read."""
    store = Away(pause=return_at_once)
    with ExitStack() as stack, SqliteStore(tmp_path / "journal.db") as journal:
        world = World(stack, store)
        sender = world.sender(layered(NEW), journal=journal)
        sender.send("first", until="confirmed", timeout=WITHIN_S)
        other = world.sender(layered(NEW, producer="b"))
        store.is_away = True
        sender.send("left", until="accepted", timeout=WITHIN_S)
        sender.abort()
        store.is_away = False
        assert world.reads(layered(NEW)) == ["first"]
        with pytest.raises(StacksDiffer, match="holds messages for it"):
            world.sender(layered(OLD), journal=journal)
        other.send("more", until="confirmed", timeout=WITHIN_S)
        world.sender(layered(NEW, producer="c"))


def test_the_layers_can_be_changed_where_the_place_is_in_another_store(
    any_bench: MemoryBench | SqliteBench | RedisBench, tmp_path: Path
) -> None:
    """The stream's store can't know how far that reader is. It stops by itself, goes on with the new layers, and
    misses nothing; without any reader yet the sender is refused as ever."""
    store = any_bench.store
    with ExitStack() as stack, SqliteStore(tmp_path / "state.db") as state:
        world = World(stack, store)
        sender = world.sender(layered(OLD), "s")
        sender.send(0, until="confirmed", timeout=WITHIN_S)
        with pytest.raises(StacksDiffer, match="no reader has begun"):
            world.sender(layered(NEW), "s")
        assert len(world.reads(layered(NEW, reader="wrong"), "s", state=state)) == 1
        with pytest.raises(StacksDiffer, match="no reader has begun"):
            world.sender(layered(NEW), "s")
        assert world.reads(layered(OLD), "s", state=state) == [0]
        sender = world.sender(layered(OLD), "s")
        sender.send(1, until="confirmed", timeout=WITHIN_S)
        sender.close()
        world.sender(layered(NEW), "s").send(2, until="confirmed", timeout=WITHIN_S)
        got, refused = world.reads(layered(OLD), "s", state=state)
        assert got == 1
        assert isinstance(refused, StacksDiffer)
        assert world.reads(layered(NEW), "s", state=state) == [2]
        assert readers_of(store, "s") == []


def test_a_new_reader_of_a_stream_with_two_stacks_is_told_what_it_can_do() -> None:
    """It reads what is there with the layers of who wrote it, one after the other, or begins behind that."""
    store = MemoryStore(pause=return_at_once)
    with ExitStack() as stack:
        world = World(stack, store)
        sender = world.sender(layered(OLD))
        sender.send(0, until="confirmed", timeout=WITHIN_S)
        sender.close()
        assert world.reads(layered(OLD)) == [0]
        world.sender(layered(NEW)).send(1, until="confirmed", timeout=WITHIN_S)
        (refused,) = world.reads(layered(NEW, reader="late"))
        assert "from entry 1 on is read with those of its writer" in str(refused)
        assert str(refused).endswith("begin at 2 (start: 2)")
        assert world.reads(layered(NEW, reader="late", start=2)) == [1]
        got, _ = world.reads(layered(OLD, reader="other"))
        assert [got, *world.reads(layered(NEW, reader="other"))] == [0, 1]


def test_what_was_accepted_under_one_codec_is_not_sent_under_another(tmp_path: Path) -> None:
    """The stream's store was away when the sender with another codec began, so its journal has a message of that
    when it is refused. The former codec would make another value of it."""
    store = Away(pause=return_at_once)
    with ExitStack() as stack, SqliteStore(tmp_path / "journal.db") as journal:
        world = World(stack, store)
        former = world.sender([PLAIN], journal=journal, codec="json")
        former.send({"n": 1}, until="confirmed", timeout=WITHIN_S)
        former.close()
        store.is_silent = True
        other = world.sender([PLAIN], journal=journal, codec="auto")
        other.send(b"5", until="accepted", timeout=WITHIN_S)
        other.abort()
        store.is_silent = False
        held = r"accepted by a sender with stream, payloads auto; this one has .* payloads json"
        with pytest.raises(StacksDiffer, match=held):
            world.sender([PLAIN], journal=journal, codec="json")
        with pytest.raises(StacksDiffer, match="not all of that is read"):
            world.sender([PLAIN], journal=journal, codec="auto")
        assert world.reads([PLAIN], codec="json") == [{"n": 1}]
        again = world.sender([PLAIN], journal=journal, codec="auto")
        again.flush(WITHIN_S)
        again.close()
        assert world.reads([PLAIN], codec="auto") == [b"5"]
        world.sender([PLAIN], journal=journal, codec="json")  # all is confirmed, and read


def test_who_can_say_its_codec_is_compared_though_who_wrote_before_could_not() -> None:
    """With ``bytes`` nothing is known, and with ``json`` it is, from then on."""
    store = MemoryStore(pause=return_at_once)
    with ExitStack() as stack:
        world = World(stack, store)
        for codec, message in (("bytes", b"1"), ("json", 2)):
            sender = world.sender([PLAIN], codec=cast("CodecChoice", codec))
            sender.send(message, until="confirmed", timeout=WITHIN_S)
            sender.close()
        got, refused = world.reads([PLAIN], codec="auto")
        assert got == b"1"
        assert isinstance(refused, StacksDiffer)


@pytest.mark.parametrize("is_noted", [True, False])
def test_the_rows_of_a_pipe_keep_their_codec_without_a_stream_too(
    tmp_path: Path, *, is_noted: bool
) -> None:
    """Both ends of a pipe have one codec, and its journal may be of another life. Rows of an earlier version,
    which noted no codec, are taken as they are."""
    got, runtime = list[object](), StepRuntime(1)
    with SqliteStore(tmp_path / "journal.db") as journal:
        pipe = Pipe("orders", journal=journal, codec="auto", runtime=runtime)
        pipe.send(b"5")
        pipe.abort()
        if not is_noted:
            forget_terms(journal)
        try:
            with Pipe("orders", journal=journal, codec="json", runtime=runtime) as pipe:
                pipe.receive(got.append)
        except StacksDiffer:
            got.append("refused")
        assert got == (["refused"] if is_noted else [5])


def test_rows_of_an_earlier_version_do_not_follow_a_sender_to_another_codec(
    tmp_path: Path,
) -> None:
    """What wrote the stream is known of them, and they are for that."""
    store = Away(pause=return_at_once)
    with ExitStack() as stack, SqliteStore(tmp_path / "journal.db") as journal:
        world = World(stack, store)
        sender = world.sender([PLAIN], journal=journal, codec="json")
        sender.send(1, until="confirmed", timeout=WITHIN_S)
        store.is_away = True
        sender.send(2, until="accepted", timeout=WITHIN_S)
        sender.abort()
        store.is_away = False
        assert world.reads([PLAIN], codec="json") == [1]
        forget_terms(journal)
        with pytest.raises(StacksDiffer, match="holds messages for it, as stream, payloads json"):
            world.sender([PLAIN], journal=journal, codec="auto")


def test_a_stream_of_an_earlier_version_is_known_by_the_note_of_its_writer() -> None:
    """It has no record of the whole: the writer that noted itself makes one, and it is the first chapter."""
    store, runtime = MemoryStore(), StepRuntime(1)
    records = StackRecords(store, "s", 7, Terms("dedupe > stream"), runtime)
    records.begin_to_write("p", holds_rows=lambda: False)
    written = store.get("s/stacks", "p")
    assert isinstance(written, Position)
    store = MemoryStore(new_incarnation=lambda: 7)
    store.create("s", 1, KEEP_ALL)
    store.open_producer("s", "p", 1, 1)
    store.append("s", "p", 1, 1, [b"x"])
    owner = store.claim("s/stacks", "p", 1)
    assert isinstance(owner, Owner)
    store.commit(CommitPosition("s/stacks", "p", owner.number, 1, 1, None, written.state))
    other = StackRecords(store, "s", 7, Terms("stream"), runtime)
    with pytest.raises(StacksDiffer, match="as dedupe > stream"):
        other.begin_to_write("p", holds_rows=lambda: False)
    again = StackRecords(store, "s", 7, Terms("dedupe > stream"), runtime)
    again.begin_to_write("p", holds_rows=lambda: False)
    with pytest.raises(StacksDiffer, match="as dedupe > stream"):
        other.begin_to_write("q", holds_rows=lambda: False)


def forget_terms(journal: Store) -> None:
    """Make the position of the journal what an earlier version wrote."""
    found = journal.get("orders/journal", "confirmed")
    assert isinstance(found, Position)
    state = json.dumps(json.loads(found.state)[:3]).encode()
    done = journal.commit(
        CommitPosition(
            *("orders/journal", "confirmed", found.owner, found.tag, found.next),
            *(found.anchor, state, found.tag, found.revision + 1),
        )
    )
    assert isinstance(done, Committed)
