"""Lanes over a stream: reading goes on past a message that fails, and the committed position never passes it."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from surepipe.core.effects import Deliver, Key, NoticeKind
from surepipe.core.store_requests import Position, ReadFrom, Trimmed, Unavailable
from surepipe.pipes.catalogue import parse_layers
from surepipe.pipes.stack.assembled import ReceiverStack
from surepipe.pipes.stack.boundary import BoundaryOptions
from tests.kit.stream_wire import MS, SECOND, CallFaults, Reader, StreamWire
from tests.pipes.lanes_kit import ERROR, LANES, LETTERS, key_of


class LaneReader(Reader):
    """A reader whose handlers run side by side. ``poison`` fails as often as its count says, -1 always."""

    poison: dict[bytes, int]
    open: dict[int, Deliver]

    def build(self) -> ReceiverStack:
        """A new machine."""
        return ReceiverStack(
            self.wire.pipe,
            parse_layers(self.layers),
            rng=random.Random(self.wire.rng.getrandbits(64)),
            boundary=self.wire.boundary,
            reverse=False,
            key_of=key_of,
            life=self.wire.receiver_life,
        )

    def start(self) -> None:
        """What poisons one life poisons the next."""
        former = getattr(self.wire, "receiver", None)
        self.poison = former.poison if isinstance(former, LaneReader) else {}
        super().start()

    def crash(self) -> None:
        self.stop()
        LaneReader(self.wire, self.layers)

    def handle_next(self, ticket: int) -> None:
        """One message more of a delivery."""
        delivery = self.open.pop(ticket)
        seq, payload = delivery.seqs[0], delivery.payloads[0]
        if left := self.poison.get(payload, 0):
            self.poison[payload] = left - 1
            self.step(lambda: self.receiver.failed(ticket, seq, ERROR, self.wire.now))
            return
        self.payloads.append(payload)
        if position := self.wire.positions.get((delivery.epoch, seq)):
            self.wire.settled.append(position)
        if len(delivery.seqs) > 1:
            rest = replace(delivery, seqs=delivery.seqs[1:], payloads=delivery.payloads[1:])
            self.open[ticket] = rest
        self.step(lambda: self.receiver.settled(ticket, ((seq, seq),), self.wire.now))

    def work_all(self, *keys: Key) -> None:
        """Handlers return, in these keys only if any are given, until nothing of them is in work."""
        while self.is_alive and (
            found := [d for d in self.open.values() if not keys or d.key in keys]
        ):
            self.handle_next(found[0].ticket)

    def committed(self) -> int:
        """The next index of the committed position."""
        found = self.wire.store.get(self.wire.pipe, self.wire.pipe)
        assert isinstance(found, Position)
        return found.next


def reader_of(wire: StreamWire) -> LaneReader:
    """The reader that lives now."""
    assert isinstance(wire.receiver, LaneReader)
    return wire.receiver


def started(
    boundary: BoundaryOptions = LANES,
    *,
    seed: int = 1,
    faults: CallFaults | None = None,
    **options: object,
) -> StreamWire:
    """A wire with a reader that has lanes."""
    layer = {"start": "earliest", "rto_initial_s": 0.2, "rto_min_s": 0.02, **options}
    wire = StreamWire(
        [{"stream": layer}],
        seed=seed,
        boundary=boundary,
        faults=faults,
        auto_settle=False,
        with_reader=False,
    )
    LaneReader(wire)
    return wire


def test_the_position_stays_before_a_failing_message_and_other_keys_go_on() -> None:
    """a:1 fails for ever; 40 messages of b are read in pieces of 8 and handled, and nothing is committed."""
    wire = started(read_max=64)
    reader = reader_of(wire)
    reader.poison[b"a:1"] = -1
    wire.send("a:1")
    for number in range(40):
        wire.send(f"b:{number}")
        wire.advance(5 * MS)
        reader.work_all("b")
    assert reader.payloads == [f"b:{number}".encode() for number in range(40)]
    assert reader.committed() == 1
    reader.poison.clear()
    wire.advance(2 * SECOND)
    reader.work_all()
    wire.advance(SECOND)
    assert reader.committed() == 42


def test_reading_stops_at_read_max_behind_the_oldest_unsettled_entry_and_says_so() -> None:
    """16 entries are read, no more; the notice names the message (pipes P-9)."""
    wire = started(read_max=16)
    reader = reader_of(wire)
    reader.poison[b"a:1"] = -1
    wire.send("a:1", *(f"b:{number}" for number in range(60)))
    for _ in range(30):
        reader.work_all()
        wire.advance(50 * MS)
    assert len(reader.payloads) == 15
    assert reader.receiver.delivery.in_work[0] == 16
    stalled = [notice for notice in reader.notices if notice.kind is NoticeKind.STALLED]
    assert [notice.ranges for notice in stalled] == [((1, 1),)]
    reader.poison.clear()
    for _ in range(30):
        wire.advance(SECOND)
        reader.work_all()
    assert len(reader.payloads) == 61


def test_what_was_refused_is_read_again_when_the_rest_is_answered() -> None:
    """K-2, S-7: 1 is refused while 2 is in work and the reader waits for more; then 2 is settled."""
    wire = started(rto_initial_s=0.02)
    reader = reader_of(wire)
    wire.send("a:1", "b:1")
    wire.advance(50 * MS)
    assert len(reader.waits) == 1
    [stream] = reader.receiver.layers
    delivery = next(iter(reader.open.values()))
    stream.refused(delivery.epoch, 1, 1, delivery.producer)
    assert len(reader.waits) == 1
    reader.work_all("b")
    before = reads_from(reader, 1)
    wire.advance(SECOND)
    assert reads_from(reader, 1) == before + 1


def test_what_was_refused_is_read_again_though_the_last_answer_came_while_a_read_was_open() -> None:
    """K-2, S-7: 1 is refused, the next read is under way when 2 is settled, and finds the end; no poll is
    waited for."""
    wire = started(rto_initial_s=0.02)
    reader = reader_of(wire)
    wire.advance(50 * MS)
    wire.hold = True
    wire.send("a:1", "b:1")
    while not reader.open:
        (wire.sender if wire.sender.calls else reader).answer()
        wire.advance(MS)
    assert isinstance(reader.calls[0][1], ReadFrom)
    [stream] = reader.receiver.layers
    delivery = next(iter(reader.open.values()))
    stream.refused(delivery.epoch, 1, 1, delivery.producer)
    reader.work_all("b")
    before = reads_from(reader, 1)
    wire.hold = False
    reader.answer()
    wire.advance(SECOND)
    assert reads_from(reader, 1) == before + 1


def reads_from(reader: LaneReader, index: int) -> int:
    """How often the reader has asked for entries from this index on."""
    requests = [getattr(effect, "request", None) for effect in reader.effects]
    return sum(isinstance(request, ReadFrom) and request.index == index for request in requests)


def test_a_crash_brings_back_what_stands_behind_the_position_in_order() -> None:
    """Committed before a:2: b:1 and b:2 come again, a:1 does not."""
    wire = started()
    reader = reader_of(wire)
    wire.send("a:1")
    wire.advance(5 * MS)
    reader.work_all()
    wire.advance(50 * MS)
    reader.poison[b"a:2"] = -1
    wire.send("a:2", "b:1", "b:2")
    wire.advance(5 * MS)
    reader.work_all()
    wire.advance(50 * MS)
    assert reader.committed() == 2
    reader.crash()
    again = reader_of(wire)
    wire.advance(50 * MS)
    again.work_all("b")
    wire.send("b:3")
    wire.advance(50 * MS)
    again.work_all("b")
    assert again.payloads == [b"b:1", b"b:2", b"b:3"]


def test_the_position_follows_at_once_when_nothing_is_in_work_and_else_by_half_windows() -> None:
    """Eight of sixteen settled in order: committed; three: not before all that is in work is answered."""
    wire = started(read_max=16)
    reader = reader_of(wire)
    wire.send(*(f"{number}:1" for number in range(10)))
    wire.advance(5 * MS)
    for number in range(8):
        reader.work_all(str(number))
        wire.advance(MS)
        assert reader.committed() == (9 if number == 7 else 1)
    reader.work_all()
    wire.advance(MS)
    assert reader.committed() == 11


@pytest.mark.parametrize("commit", ["message", 3, 0.05])
def test_other_ways_to_commit_hold_with_lanes(commit: object) -> None:
    """Each message, every third, every 50 ms: the position follows what is settled in order."""
    wire = started(commit=commit)
    reader = reader_of(wire)
    wire.send(*(f"{number % 3}:{number}" for number in range(9)))
    wire.advance(5 * MS)
    reader.work_all("1", "2")
    wire.advance(200 * MS)
    assert reader.committed() == 1
    reader.work_all("0")
    wire.advance(200 * MS)
    assert reader.committed() == 10


def test_an_outage_while_a_key_is_poisoned_ends_like_any_other() -> None:
    """Reads fail with a:1 in its waits: the place is checked against the entry before it, and b goes on."""
    wire = started()
    reader = reader_of(wire)
    wire.send("b:0")
    wire.advance(5 * MS)
    reader.work_all()
    wire.advance(5 * MS)
    reader.poison[b"a:1"] = -1
    wire.send("a:1", "b:1")
    wire.advance(5 * MS)
    reader.work_all()
    wire.hold = True
    wire.send("b:2")
    wire.advance(5 * MS)
    while reader.calls and isinstance(reader.calls[0][1], ReadFrom):
        ticket, _ = reader.calls.pop(0)
        reader.take_answer(ticket, Unavailable())
    wire.hold = False
    for end in (wire.sender, reader):
        while end.calls:
            end.answer()
    wire.advance(2 * SECOND)
    reader.work_all("b")
    assert reader.payloads == [b"b:0", b"b:1", b"b:2"]
    assert NoticeKind.DIVERGED not in reader.kinds_noticed()


def test_what_went_wrong_with_the_stream_is_told_when_nothing_is_in_work_any_more() -> None:
    """Entries are gone while a:1 is in work: only when it is answered the reader stops, with the exact range."""
    wire = started(LETTERS)
    reader = reader_of(wire)
    wire.send("a:1", "b:1")
    wire.advance(5 * MS)
    reader.work_all("b")
    wire.hold = True
    wire.send("c:1")
    wire.advance(5 * MS)
    wire.sender.answer()
    wire.advance(MS)
    (ticket, request), *_ = reader.calls
    assert isinstance(request, ReadFrom)
    reader.calls.clear()
    reader.take_answer(ticket, Trimmed(9))
    assert not reader.notices
    wire.hold = False
    reader.work_all("a")
    wire.advance(SECOND)
    reader.work_all()
    assert reader.payloads == [b"b:1", b"a:1", b"c:1"], "what the store says anew is what counts"


@pytest.mark.parametrize("policy", ["stop", "earliest"])
def test_a_stream_that_went_back_is_read_anew_only_after_what_is_in_work(policy: str) -> None:
    """The store loses everything with a:1 in work: then the policy applies (storage S-7)."""
    wire = started(on_reset=policy)
    reader = reader_of(wire)
    wire.send("a:1", "b:1")
    wire.advance(5 * MS)
    reader.work_all("b")
    wire.store.delete(wire.pipe)
    wire.create()
    wire.advance(6 * SECOND)
    assert NoticeKind.RESET not in reader.kinds_noticed()
    reader.work_all("a")
    wire.advance(6 * SECOND)
    assert NoticeKind.RESET in reader.kinds_noticed()
    assert reader.receiver.layers[0].gauges()["in_work"] == 0


@pytest.mark.parametrize("seed", range(15))
def test_each_key_is_in_order_and_nothing_is_lost_whatever_calls_and_readers_do(seed: int) -> None:
    """Calls lost, doubled, late, unavailable; handlers fail; three crashes: per key and life strictly growing."""
    faults = CallFaults(lost=0.05, unanswered=0.05, doubled=0.05, unavailable=0.05)
    wire = started(LETTERS, seed=seed, faults=faults, read_max=24)
    rng = random.Random(seed)
    texts = [f"{rng.choice('aabcd')}:{number}" for number in range(80)]
    reader_of(wire).poison |= {text.encode(): rng.choice([1, -1]) for text in rng.sample(texts, 8)}
    wire.send(*texts)
    lives, letters = [reader_of(wire)], set[bytes]()

    def tick() -> None:
        reader = reader_of(wire)
        if rng.random() < 0.01 and len(lives) < 4:
            reader.crash()
            lives.append(reader_of(wire))
        elif reader.open:
            reader.handle_next(rng.choice(sorted(reader.open)))
        letters.update(effect.letter.payload for effect in lives[-1].letters)
        wire.later(MS, tick)

    def is_done() -> bool:
        seen = {payload for life in lives for payload in life.payloads}
        return seen | letters == {text.encode() for text in texts}

    tick()
    wire.run(is_done)
    for life in lives:
        for key in "abcd":
            own = [int(p.split(b":")[1]) for p in life.payloads if p.startswith(key.encode())]
            assert own == sorted(set(own)), f"seed {seed}, key {key}"
    if len(lives) == 1:
        assert len(lives[0].payloads) == len(set(lives[0].payloads))


# What was forwarded: each message has a producer of its own, and all are number 1 of epoch 1.


def forward(wire: StreamWire, *texts: str) -> None:
    """Append each under its own name, as a handler does that forwards into a stream."""
    for text in texts:
        wire.store.append(wire.pipe, f"out/{text}", 1, 1, [text.encode()])
    wire.do(lambda: None)


# An end in good order.


def fill_gaps(reader: LaneReader, *in_hand: int) -> None:
    """Nothing new; what handlers are not at goes back."""
    reader.step(lambda: reader.receiver.fill_gaps(reader.wire.now))
    for ticket in [ticket for ticket in reader.open if ticket not in in_hand]:
        give_back(reader, ticket)


def give_back(reader: LaneReader, ticket: int) -> None:
    """Its handler has left it, if there is anything left."""
    if reader.open.pop(ticket, None) is not None:
        reader.step(lambda: reader.receiver.given_back(ticket, reader.wire.now))


def has_gaps(reader: LaneReader) -> bool:
    """Whether it waits for something."""
    return reader.receiver.has_gaps


def comes_again(reader: LaneReader) -> int:
    """How much the next reader would repeat."""
    return reader.receiver.comes_again


def close(reader: LaneReader) -> None:
    """Its end; what is settled is committed."""
    reader.step(lambda: reader.receiver.close(reader.wire.now))
    assert reader.receiver.is_stored


def test_at_its_end_what_is_older_than_something_settled_is_handed_out_and_nothing_else() -> None:
    """Of a:1 b:2 c:3 a:4 b:5 c:6 only c:3 is handled: a:1 and b:2 follow, and the place is behind c:3."""
    wire = started(read_max=64)
    reader = reader_of(wire)
    wire.send("a:1", "b:2", "c:3", "a:4", "b:5", "c:6")
    wire.advance(5 * MS)
    reader.handle_next(next(t for t, one in reader.open.items() if one.key == "c"))
    assert comes_again(reader) == 1
    fill_gaps(reader)
    assert [one.payloads for one in reader.open.values()] == [[b"a:1"], [b"b:2"]]
    assert has_gaps(reader)
    reader.work_all()
    assert not has_gaps(reader)
    close(reader)
    assert comes_again(reader) == 0
    assert reader.committed() == 4


def test_a_letter_and_a_further_attempt_fill_a_gap_and_what_fails_above_is_left() -> None:
    """a:1 becomes a letter after two attempts, c:4 has failed once when the end begins, b:2 and b:3 are done."""
    wire = started(LETTERS, read_max=64)
    reader = reader_of(wire)
    reader.poison |= {b"a:1": -1, b"c:4": -1}
    wire.send("a:1", "b:2", "b:3", "c:4")
    wire.advance(5 * MS)
    for _ in range(2):
        reader.work_all("b")
    reader.handle_next(next(t for t, one in reader.open.items() if one.key == "a"))
    reader.handle_next(next(t for t, one in reader.open.items() if one.key == "c"))
    fill_gaps(reader)
    assert not reader.open
    assert has_gaps(reader)
    wire.advance(SECOND)
    assert [one.payloads for one in reader.open.values()] == [[b"a:1"]]
    reader.work_all()
    wire.advance(SECOND)
    assert not has_gaps(reader)
    close(reader)
    assert reader.committed() == 4


@pytest.mark.parametrize("seed", range(40))
def test_after_an_end_in_good_order_nothing_comes_again_and_nothing_is_missing(seed: int) -> None:
    """Lives of a reader with handlers by seed, each ended anywhere, with some messages in hand and some that
    fail: all messages are handled once, and nothing newer than the newest that was handled or in hand then."""
    rng = random.Random(seed)
    wire = started(seed=seed, read_max=rng.choice([8, 64]), commit=rng.choice(["batch", "message"]))
    texts = [f"{rng.choice('abcdef')}:{number}" for number in range(60)]
    wire.send(*texts)
    order = {text.encode(): place for place, text in enumerate(texts)}
    handled: list[bytes] = []
    while len(handled) < len(texts):
        reader = reader_of(wire)
        reader.poison |= {rng.choice(texts).encode(): 1}
        wire.advance(20 * MS)
        for _ in range(rng.randrange(20)):
            if reader.open:
                reader.handle_next(rng.choice([*reader.open]))
        in_hand = rng.sample([*reader.open], min(3, len(reader.open)))
        bound = max(
            (
                order[one]
                for one in (*reader.payloads, *(reader.open[t].payloads[0] for t in in_hand))
            ),
            default=-1,
        )
        fill_gaps(reader, *in_hand)
        for ticket in in_hand:  # what was in hand ends, and the rest of its work goes back
            reader.handle_next(ticket)
            give_back(reader, ticket)
        while has_gaps(reader):
            reader.work_all()
            wire.advance(SECOND)
        assert all(order[one] <= bound for one in reader.payloads), f"seed {seed}"
        close(reader)
        handled += reader.payloads
        reader.crash()
    assert sorted(handled, key=lambda one: order[one]) == [text.encode() for text in texts], seed


def test_a_forwarded_message_that_fails_holds_up_its_own_key_and_no_other() -> None:
    """a:1 fails for ever, a:2 waits for it; forty others are handled, and nothing is committed behind a:1."""
    wire = started(read_max=64)
    reader = reader_of(wire)
    reader.poison[b"a:1"] = -1
    others = [f"{number % 5}:{number}" for number in range(40)]
    forward(wire, "a:1", "a:2", *others)
    for _ in range(5):
        wire.advance(5 * MS)
        reader.work_all()
    assert sorted(reader.payloads) == sorted(text.encode() for text in others)
    assert reader.committed() == 1
    reader.poison.clear()
    wire.advance(2 * SECOND)
    reader.work_all()
    wire.advance(SECOND)
    assert reader.payloads[40:] == [b"a:1", b"a:2"]
    assert reader.committed() == 43


def test_at_read_max_a_notice_names_the_forwarded_message_that_holds_everything_up() -> None:
    """14 others are settled behind a:1, each of a producer of its own: the bound counts them, too (pipes P-9). c:1
    fails as well, and holds up its own key only."""
    wire = started(read_max=16)
    reader = reader_of(wire)
    reader.poison |= {b"a:1": -1, b"c:1": -1}
    forward(wire, "a:1", "c:1", *(f"b:{number}" for number in range(60)))
    for _ in range(30):
        reader.work_all()
        wire.advance(50 * MS)
    assert len(reader.payloads) == 14
    assert reader.receiver.delivery.in_work[0] == 16
    stalled = [notice for notice in reader.notices if notice.kind is NoticeKind.STALLED]
    assert [(notice.producer, notice.ranges) for notice in stalled] == [("out/a:1", ((1, 1),))]


@pytest.mark.parametrize("seed", range(15))
def test_of_what_was_forwarded_nothing_is_lost_nor_repeated_but_what_stands_behind_the_position(
    seed: int,
) -> None:
    """Calls lost, doubled, late; handlers fail, some for good; three crashes with several in work. A crash brings
    back what stands behind the committed position and nothing before it."""
    faults = CallFaults(lost=0.05, unanswered=0.05, doubled=0.05, unavailable=0.05)
    wire = started(LETTERS, seed=seed, faults=faults, read_max=24)
    rng = random.Random(seed)
    texts = [f"{rng.choice('aabcd')}:{number}" for number in range(80)]
    index_of = {text.encode(): index for index, text in enumerate(texts, 1)}
    poison = {text.encode(): rng.choice([1, -1]) for text in rng.sample(texts, 8)}
    lost = {payload for payload, times in poison.items() if times < 0}
    reader_of(wire).poison |= poison
    forward(wire, *texts)
    lives, began = [reader_of(wire)], [1]

    def tick() -> None:
        reader = reader_of(wire)
        if rng.random() < 0.02 and len(lives) < 4:
            began.append(committed(wire))
            reader.crash()
            lives.append(reader_of(wire))
        elif reader.open:
            reader.handle_next(rng.choice(sorted(reader.open)))
        wire.later(MS, tick)

    tick()
    wire.run(lambda: committed(wire) == len(texts) + 1)
    handled = [payload for life in lives for payload in life.payloads]
    letters = [effect.letter for life in lives for effect in life.letters]
    assert {letter.payload for letter in letters} == lost, f"seed {seed}"
    assert set(handled) == set(index_of) - lost, f"seed {seed}"
    assert all(letter.producer == f"out/{letter.payload.decode()}" for letter in letters)
    for life, start in zip(lives, began, strict=True):
        assert len(life.payloads) == len(set(life.payloads)), f"seed {seed}"
        assert all(index_of[payload] >= start for payload in life.payloads), f"seed {seed}"
        for key in "abcd":
            own = [int(p.split(b":")[1]) for p in life.payloads if p.startswith(key.encode())]
            assert own == sorted(own), f"seed {seed}, key {key}"


def committed(wire: StreamWire) -> int:
    """The next index of the committed position; 1 before there is one."""
    found = wire.store.get(wire.pipe, wire.pipe)
    return found.next if isinstance(found, Position) else 1
