"""A stream remembers which stack wrote it: readers of another read nothing, and both ends say which two met."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import pairwise, permutations
from pathlib import Path

import pytest

from surepipe import Pipe, PipeNotice, PipeStopped, StacksDiffer, StreamReceiver, StreamSender
from surepipe.actors import StepRuntime
from surepipe.actors.ends.stores import LOOK_AGAIN_US, StackRecords
from surepipe.core.store_requests import (
    KEEP_ALL,
    AppendRun,
    Batch,
    Created,
    Entries,
    OtherStack,
    Position,
    Store,
    StoreOutcome,
    StoreRequest,
    Unavailable,
)
from surepipe.pipes.catalogue import LayerText
from surepipe.pipes.stack.agreement import LAYER_ABOVE, Terms
from surepipe.storage import MemoryStore, SqliteStore
from tests.kit.memory_bench import MemoryBench
from tests.kit.redis_bench import RedisBench
from tests.kit.stacks import directory
from tests.storage.sqlite_bench import SqliteBench

STACKS = directory(stream=True)
PLAIN: LayerText = {"stream": {"start": "earliest"}}
WITHIN_S = 30.0


class Away(MemoryStore):
    """A store that takes nothing for a while."""

    is_away = False

    def ask(self, request: StoreRequest) -> StoreOutcome:
        """As ever, or no answer."""
        if self.is_away and isinstance(request, AppendRun):
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
        self, layers: Sequence[LayerText], name: str = "orders", *, journal: Store | None = None
    ) -> StreamSender:
        """A writer."""
        notices = self.told["sender"].append
        end = StreamSender(
            name,
            list(layers),
            store=self._store,
            journal=journal,
            runtime=self.runtime,
            notices=notices,
        )
        self._stack.callback(end.abort)
        return end

    def receiver(self, layers: Sequence[LayerText], name: str = "orders") -> StreamReceiver:
        """A reader."""
        notices = self.told["receiver"].append
        end = StreamReceiver(
            name, list(layers), store=self._store, runtime=self.runtime, notices=notices
        )
        self._stack.callback(end.abort)
        return end

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
    store = Away()
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
    for producer in ("first", "second"):
        store.open_producer("s", producer, 1, 1)
        store.append("s", producer, 1, 1, [b"x"])
    records = StackRecords(store, "s", 1, Terms(own), runtime)
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
