"""Two ends with different stacks tell each other, and say which two met; equal ones never do."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from surepipe.core.effects import Deliver, Effect, Notice, NoticeKind, Transmit, WakeAt
from surepipe.pipes.catalogue import parse_layers
from surepipe.pipes.stack.agreement import (
    AGAIN,
    TRIES_MAX,
    Agreement,
    Terms,
    stack_digest,
    stack_text,
)
from surepipe.pipes.stack.assembled import ReceiverStack, SenderStack
from surepipe.pipes.wire import codec
from surepipe.pipes.wire.frames import Introduction, tag_of
from tests.kit.stacks import Layers, directory

SECOND = 1_000_000
STACKS = directory()
NAMES = list(STACKS)
Fate = Callable[[object], bool]


@dataclass
class Pair:
    """A sender and a receiver that are configured apart, and a route that brings frames in order or loses them."""

    sends: Layers
    receives: Layers
    arrives: Fate = lambda _: True
    told: dict[str, list[Notice]] = field(default_factory=lambda: {"sender": [], "receiver": []})
    delivered: int = 0

    def __post_init__(self) -> None:
        sends, receives = parse_layers(self.sends), parse_layers(self.receives)
        self.sender = SenderStack(
            "p", sends, rng=random.Random(1), life_hint=7, terms=Terms(stack_text(sends))
        )
        self.receiver = ReceiverStack(
            "p", receives, rng=random.Random(2), terms=Terms(stack_text(receives))
        )
        self._wakes: dict[str, int | None] = {"sender": 0, "receiver": 0}
        self._frames: list[tuple[str, object]] = []

    def run(self, until: int) -> None:
        """The first of both, two messages, and what follows from that."""
        now, has_sent = 0, False
        while now <= until:
            for who, machine in (("receiver", self.receiver), ("sender", self.sender)):
                wake = self._wakes[who]
                if wake is not None and wake <= now:
                    self._wakes[who] = None
                    self._perform(who, machine.wake(now), now)
            if not has_sent:
                has_sent = True
                self._perform("sender", self.sender.send([b"1", b"2"], now), now)
            self._carry(now)
            times = [time for time in self._wakes.values() if time is not None]
            if not times:
                return
            now = max(now + 1, min(times))

    def _carry(self, now: int) -> None:
        while self._frames:
            to, frame = self._frames.pop(0)
            machine = self.receiver if to == "receiver" else self.sender
            if self.arrives(frame):
                self._perform(to, machine.frame(frame, now), now)

    def _perform(self, who: str, effects: list[Effect], now: int) -> None:
        for effect in effects:
            if isinstance(effect, Transmit):
                to = "receiver" if who == "sender" else "sender"
                self._frames.append((to, codec.encode(effect.frame)))  # type: ignore[arg-type]  # frames only
            elif isinstance(effect, WakeAt):
                self._wakes[who] = effect.deadline
            elif isinstance(effect, Notice):
                self.told[who].append(effect)
            elif isinstance(effect, Deliver):
                self.delivered += len(effect.payloads)
                last = effect.first + len(effect.payloads) - 1
                settled = self.receiver.settled(effect.ticket, ((effect.first, last),), now)
                self._perform("receiver", settled, now)

    def kinds(self, who: str) -> set[NoticeKind]:
        """What one end told."""
        return {notice.kind for notice in self.told[who]}


def assert_named(pair: Pair, own: str, other: str) -> None:
    """Both ends told one Mismatch with both texts, the sender stopped, and nobody calls itself replaced."""
    told = {
        who: [n.detail for n in notices if n.kind is NoticeKind.MISMATCH]
        for who, notices in pair.told.items()
    }
    case = f"{own} / {other}"
    assert pair.sender.stopped, case
    assert f"this end has {own}; the other end has {other}." in told["sender"][-1], case
    assert f"this end has {other}; the other end has {own}." in told["receiver"][-1], case
    assert NoticeKind.FENCED not in pair.kinds("sender") | pair.kinds("receiver"), case


@pytest.mark.parametrize("own", NAMES)
def test_every_two_stacks_that_differ_are_named_at_both_ends_before_a_message_is_delivered(
    own: str,
) -> None:
    """Every pair of the directory: the first frames say it; equal stacks deliver and tell nothing."""
    for other in NAMES:
        pair = Pair(STACKS[own], STACKS[other])
        pair.run(5 * SECOND)
        if own == other:
            assert pair.delivered >= 1, own
            assert pair.kinds("sender") | pair.kinds("receiver") <= {NoticeKind.STALLED}, own
            assert not pair.sender.stopped
        else:
            assert_named(pair, own, other)
            assert pair.delivered == 0, (own, other)


@pytest.mark.parametrize("part", range(4))
def test_ends_that_lose_their_first_words_are_told_all_the_same(part: int) -> None:
    """The first three introductions are lost, so digests, refusals and data of the other stack come first."""
    rng = random.Random(part)
    for _ in range(60):
        own, other = rng.sample(NAMES, 2)
        left = [3]

        def arrives(frame: object, left: list[int] = left) -> bool:
            if isinstance(codec.decoded(frame), Introduction) and left[0]:
                left[0] -= 1
                return False
            return True

        pair = Pair(STACKS[own], STACKS[other], arrives)
        pair.run(20 * SECOND)
        assert_named(pair, own, other)


def test_an_end_of_an_earlier_version_is_taken_as_it_is_and_asked_a_few_times() -> None:
    """It counts the introductions as malformed and answers none: the pipe works, and after eight they end."""
    spoken: list[object] = []

    def arrives(frame: object) -> bool:
        is_introduction = isinstance(codec.decoded(frame), Introduction)
        spoken.extend([frame] if is_introduction else [])
        return not is_introduction

    pair = Pair(["reliable"], ["reliable"], arrives)
    pair.run(1000 * SECOND)
    assert pair.delivered == 2
    assert not pair.told["sender"]
    assert len(spoken) == 2 * TRIES_MAX


def test_what_only_one_end_minds_is_no_difference() -> None:
    """Windows, waits, sizes and names may differ; two codecs differ only where both are known."""
    plain = parse_layers(["reliable"])
    for options in ({"window": 7}, {"rto_min_s": 0.5}, {"message_max_bytes": 99}):
        other = parse_layers({"reliable": options})
        assert stack_text(other) == stack_text(plain)
    named = parse_layers({"stream": {"start": "earliest", "reader": "r", "producer": "x"}})
    assert stack_text(named) == "stream"
    assert Terms("a", "json").fits(Terms("a"))
    assert Terms("a").fits(Terms("a", "auto"))
    assert not Terms("a", "json").fits(Terms("a", "auto"))
    assert not Terms("a").fits(Terms("b"))


def test_texts_are_equal_where_digests_are() -> None:
    """The digest in an Open and the text say the same of any two stacks."""
    digests = {stack_digest(parse_layers(layers)): text for text, layers in STACKS.items()}
    assert sorted(digests.values()) == sorted(NAMES)


def test_an_end_waits_longer_each_time_and_answers_for_ever() -> None:
    """1, 2, 4, 8, 16, 30, 30 seconds; a second receiver of the name is no business of the first."""
    one = Agreement(Terms("reliable"), tag_of("p"), sends=False)
    now, waits = 0, list[int]()
    assert len(one.begin(now)) == 1
    while one.again_at is not None:
        waits.append((one.again_at - now) // SECOND)
        now = one.again_at
        assert len(one.wake(now)) == 1
    assert waits == [1, 2, 4, 8, 16, 30, 30]
    assert max(waits) * SECOND == AGAIN.most
    question = Introduction(tag_of("p"), 0xFFFF, True, True, "resend", "")
    for _ in range(20):
        assert [answer.stack for answer in one.heard(question)] == ["reliable"]
    assert "the other end has resend." in one.differs
    same_side = Introduction(tag_of("p"), 0xFFFF, False, True, "resend", "")
    other = Agreement(Terms("reliable"), tag_of("p"), sends=False)
    assert not other.heard(same_side)
    assert not other.differs


def test_an_agreement_is_part_of_the_exported_state() -> None:
    """A machine that is restored still knows what it has heard."""
    pair = Pair(["reliable"], ["resend"])
    pair.run(SECOND)
    layers = parse_layers(["reliable"])
    again = SenderStack(
        "p", layers, rng=random.Random(1), life_hint=7, terms=Terms(stack_text(layers))
    )
    again.restore(pair.sender.export())
    assert again.differs == pair.sender.differs != ""
