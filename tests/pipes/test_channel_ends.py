"""Ends of a channel that fall silent, restart, are replaced, or don't fit; and what an end keeps meanwhile."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import cast

import pytest

from surepipe.core.effects import (
    Accepted,
    AppendRows,
    DeadLetter,
    Deliver,
    Effect,
    Notice,
    NoticeKind,
    Persist,
    Reject,
    RejectReason,
    Transmit,
    WakeAt,
    WriteFailed,
    WriteStored,
)
from surepipe.pipes.catalogue import LayerText, parse_layers
from surepipe.pipes.channel import (
    CHANNEL_LAYER,
    ChannelMachine,
    ChannelOptions,
    ListenerMachine,
    Role,
)
from surepipe.pipes.stack.boundary import BoundaryOptions
from surepipe.pipes.wire.codec import encode
from surepipe.pipes.wire.frames import Confirm, Data, Frame, Open, Refused, RefusedReason, tag_of
from tests.kit.channel_wire import CALLER, LISTENER, ChannelWire
from tests.kit.frames import random_frame
from tests.kit.journal import MemoryJournal

SECOND = 1_000_000
MULTI = "multi-unconfirmed"
CARRIED: list[LayerText] = [{"sequential-confirm": {"retry": "carrier"}}, MULTI]
QUICK = ChannelOptions(idle_forget_s=60.0)


def texts(first: int, last: int) -> list[bytes]:
    """The payloads of numbered messages."""
    return [str(n).encode() for n in range(first, last + 1)]


def frames_of(effects: list[Effect]) -> list[object]:
    """What these effects put on the route."""
    return [effect.frame for effect in effects if isinstance(effect, Transmit)]


def end(
    role: Role,
    layers: LayerText | list[LayerText],
    life: int = 1,
    boundary: BoundaryOptions | None = None,
    options: ChannelOptions | None = None,
    *,
    chance: int = 0,
) -> ChannelMachine:
    """One end, started, with the same layers in both directions."""
    parsed = parse_layers(layers)
    hint = (life << 20) + chance
    return ChannelMachine(
        *("talk", role, parsed, parsed),
        rng=random.Random(life),
        life_hint=hint,
        boundary=boundary,
        options=options,
    )


# Silence.


def test_an_end_that_alone_heard_nothing_comes_up_again() -> None:
    """pipes C-5: the way back fails for longer than idle_forget_s while the way there works: only the caller
    goes down. Its next Open tells the listener, which has heard it all the time, to open its direction again."""
    broken = [False]
    wire = ChannelWire(
        MULTI,
        MULTI,
        options=QUICK,
        lose=lambda _f, sender, _n: broken[0] and sender is LISTENER,
    )
    wire.send(CALLER, 1)
    wire.run(SECOND)
    broken[0] = True
    wire.send(CALLER, 2)
    wire.run(90 * SECOND)
    assert NoticeKind.DOWN in wire.ends[CALLER].notices
    broken[0] = False
    wire.send(CALLER, 3)
    wire.run(200 * SECOND)
    assert wire.ends[CALLER].confirmed == 3
    assert set(wire.ends[LISTENER].delivered) == set(texts(1, 3))
    wire.send(LISTENER, 4)
    wire.run(230 * SECOND)
    assert wire.ends[CALLER].delivered == [b"4"]


def test_silence_does_not_free_what_is_in_work() -> None:
    """pipes C-5: a handler of 200 s at an end that forgets after 60: its answer settles its own message."""
    wire = ChannelWire(MULTI, MULTI, options=QUICK, auto_settle=False)
    wire.send(CALLER, 1)
    wire.run(2 * SECOND)
    wire.lose = lambda _f, _s, _n: True
    wire.run(200 * SECOND)
    assert NoticeKind.DOWN not in wire.ends[LISTENER].notices
    wire.settle()
    wire.run(201 * SECOND)
    assert NoticeKind.DOWN in wire.ends[LISTENER].notices
    wire.lose = None
    wire.auto_settle = True
    wire.run(300 * SECOND)
    assert wire.ends[CALLER].confirmed == 1


def test_tickets_of_a_forgotten_receiver_are_not_given_out_again() -> None:
    """pipes P-3: a second answer to a ticket from before Down is late; it settles nothing that came after."""
    wire = ChannelWire(MULTI, MULTI, options=QUICK, auto_settle=False)
    wire.send(CALLER, 1)
    wire.run(SECOND)
    (_, old), machine = wire.deferred[0], wire.ends[LISTENER].machine
    wire.settle()
    wire.run(100 * SECOND)
    assert wire.ends[LISTENER].notices == [NoticeKind.UP, NoticeKind.DOWN]
    wire.send(CALLER, 2)
    wire.run(110 * SECOND)
    (_, new) = wire.deferred[0]
    assert new.ticket != old.ticket
    before = machine.counters()["late_answer"]
    machine.settled(old.ticket, ((1, 9),), wire.now)
    assert machine.counters()["late_answer"] == before + 1
    wire.run(130 * SECOND)
    assert wire.ends[CALLER].confirmed == 1


def test_counters_never_go_back() -> None:
    """pipes O-1: what the forgotten receiver counted is still told after Down."""
    wire = ChannelWire(MULTI, MULTI, options=QUICK)
    wire.send(CALLER, 1, 2, 3)
    wire.run(100 * SECOND)
    assert not wire.up()
    assert wire.ends[LISTENER].machine.counters()["settled"] == 3


# Restarts and replacements.


@pytest.mark.parametrize("back", [CARRIED, [MULTI]])
def test_a_confirm_that_died_with_the_receiver_is_not_waited_for(back: list[LayerText]) -> None:
    """pipes G-5, C-5: settled, its carrier told so, the carried confirm lost, then the end restarts: nothing
    below sends the message again, so the layer that waits for the confirm does when a new receiver answers."""
    wire = ChannelWire(CARRIED, back)
    wire.run(SECOND)

    def is_carried_confirm(frame: Frame, sender: Role, _number: int) -> bool:
        return sender is LISTENER and isinstance(frame, Data)

    wire.lose = is_carried_confirm
    wire.send(CALLER, 1)
    wire.run(2 * SECOND)
    assert wire.ends[CALLER].confirmed == 0
    wire.stop_listening_end()
    wire.lose = None
    wire.send(CALLER, 2)
    wire.run(1_000 * SECOND)
    assert wire.ends[CALLER].confirmed == 2
    assert wire.ends[LISTENER].delivered[-1] == b"2"


def test_a_caller_whose_clock_went_back_opens_under_a_life_above_the_former() -> None:
    """pipes L-7, clock-step: its first Open is refused with the life that is known; the next one is above it."""
    wire = ChannelWire(MULTI, MULTI)
    wire.send(CALLER, 1)
    wire.run(SECOND)
    known = wire.ends[CALLER].machine.handshake.life
    wire.lives = -1
    wire.start(CALLER)
    assert wire.ends[CALLER].machine.handshake.life < known
    wire.send(CALLER, 2)
    wire.run(30 * SECOND)
    assert wire.ends[CALLER].machine.handshake.life == known + 1
    assert wire.ends[CALLER].confirmed == 1
    assert wire.ends[LISTENER].delivered == texts(1, 2)


def linked(
    layers: LayerText | list[LayerText], **more: object
) -> tuple[ChannelMachine, ChannelMachine]:
    """Two ends that have opened to each other at time 0; what they send from then on goes nowhere."""
    ends = (end(CALLER, layers, 1, **more), end(LISTENER, layers, 2, **more))  # type: ignore[arg-type]
    caller, listener = ends
    frames = [(listener, f) for f in frames_of(caller.wake(0))]
    frames += [(caller, f) for f in frames_of(listener.wake(0))]
    while frames:
        to, frame = frames.pop(0)
        other = caller if to is listener else listener
        frames += [(other, answer) for answer in frames_of(to.frame(frame, 0))]
    assert caller.is_up
    assert listener.is_up
    return ends


def test_a_replaced_caller_is_told_so_and_stops() -> None:
    """pipes L-7: a newer life was admitted; the older opens again, is refused, names what is unconfirmed,
    and sends and opens no more."""
    caller, listener = linked(MULTI)
    caller.send([b"1", b"2"], 1)
    tag = tag_of("talk/forward")
    newer = Open(tag, CHANNEL_LAYER, 5 << 20, 77, 5 << 20, 1, 1, stack=listener_digest(listener))
    listener.frame(newer, 2)
    (again,) = (
        frame
        for frame in frames_of(caller.frame(unknown_of(listener), 3))
        if isinstance(frame, Open)
    )
    (refusal,) = frames_of(listener.frame(again, 4))
    assert refusal == Refused(
        *(tag, CHANNEL_LAYER, caller.handshake.link, again.epoch),
        *(RefusedReason.FENCED, 5 << 20),
    )
    assert listener.counters()["fenced"] == 1
    effects = caller.frame(refusal, 5)
    notices = [e for e in effects if getattr(e, "kind", None) is NoticeKind.FENCED]
    assert [notice.ranges for notice in notices] == [((1, 2),)]  # type: ignore[union-attr]
    assert caller.stopped == f"the other end serves life {5 << 20}"
    assert caller.send([b"3"], 6) == [Reject(RejectReason.STOPPED, 1)]
    assert not frames_of(caller.wake(3600 * SECOND))
    assert not frames_of(caller.frame(refusal, 3600 * SECOND))


def listener_digest(listener: ChannelMachine) -> int:
    """The digest that a caller of this listener sends."""
    return listener.handshake.directions.peer_digest


def unknown_of(listener: ChannelMachine) -> object:
    """What a listener that lost its memory says."""
    fresh = end(LISTENER, MULTI, 9)
    fresh.wake(0)
    data = Data(listener.handshake.directions.incoming, 0, 1, 1, 1, 1, 1, True, (b"x",))
    (unknown,) = frames_of(fresh.frame(data, 0))
    return unknown


def test_a_late_refusal_of_a_former_link_changes_nothing() -> None:
    """pipes P-8: Refused for another link, of a life that is not above ours, or for the other direction."""
    caller, _ = linked(MULTI)
    shake, directions = caller.handshake, caller.handshake.directions
    fenced = (RefusedReason.FENCED, shake.life + 1)
    for frame, counter in (
        (Refused(directions.outgoing, CHANNEL_LAYER, shake.link + 1, 1, *fenced), "stale_link"),
        (Refused(directions.incoming, CHANNEL_LAYER, shake.link, 1, *fenced), "foreign"),
        (
            Refused(
                *(directions.outgoing, CHANNEL_LAYER, shake.link, 1),
                *(RefusedReason.FENCED, shake.life),
            ),
            "impossible",
        ),
    ):
        before, counted = caller.export(), caller.counters()
        assert caller.frame(frame, 0) == []
        after = caller.counters()
        assert {n: after[n] - counted[n] for n in after if after[n] != counted[n]} == {counter: 1}
        assert without_counts(caller.export()) == without_counts(before)
    assert caller.is_up


def test_two_callers_in_turn_that_were_never_answered_take_different_lives() -> None:
    """L-1, L-7: both began with clocks that were set back, and nobody heard of the first before it died."""
    lives: list[int] = []
    for drawn in (17, 99):
        caller = end(CALLER, MULTI, 3, chance=drawn)
        (offer,) = (one for one in frames_of(caller.wake(0)) if isinstance(one, Open))
        head = (offer.pipe, CHANNEL_LAYER, offer.link, offer.epoch)
        (again,) = frames_of(caller.frame(Refused(*head, RefusedReason.FENCED, 5 << 20), 1))
        assert isinstance(again, Open)
        lives.append(again.life)
    assert len(set(lives)) == len(lives)
    assert min(lives) > 5 << 20


def test_a_channel_that_is_refused_for_good_stops_as_a_pipe_does() -> None:
    """L-7, F-5: the other end speaks another version; going on would only be refused again, and nobody told."""
    caller, _ = linked(MULTI)
    shake = caller.handshake
    head = (shake.directions.outgoing, CHANNEL_LAYER, shake.link, shake.life)
    effects = caller.frame(Refused(*head, RefusedReason.VERSION, shake.life + 9), 0)
    assert [one.kind for one in effects if isinstance(one, Notice)] == [NoticeKind.MISMATCH]
    assert not caller.is_up
    assert caller.handshake.stopped


def without_counts(state: object) -> object:
    """An exported state without what the channel counted itself."""
    ours, *rest = cast("list[list[tuple[str, object]]]", state)
    return [[pair for pair in ours if pair[0] != "_counts"], *rest]


def test_an_end_with_other_layers_is_told_and_stops() -> None:
    """pipes F-5: Refused(stack) for each Open, one notice at the refusing end; the other end stops."""
    caller, listener = end(CALLER, "reliable"), end(LISTENER, "resend", 2)
    listener.wake(0)
    caller.send([], 0)
    (opening,) = frames_of(caller.wake(0))
    first, second = listener.frame(opening, 1), listener.frame(opening, 2)
    (refusal,) = frames_of(first)
    assert isinstance(refusal, Refused)
    assert refusal.reason is RefusedReason.STACK
    assert frames_of(second) == [refusal]
    assert [len([e for e in x if hasattr(e, "kind")]) for x in (first, second)] == [1, 0]
    caller.frame(refusal, 3)
    assert "this end has layers reliable, back" in caller.stopped
    assert "the other end has others, and does not say which" in caller.stopped
    assert caller.send([b"1"], 4) == [Reject(RejectReason.STOPPED, 1)]


def test_a_listener_reads_encoded_frames_too() -> None:
    """F-4: a route may pass bytes or frames; the answer to data for an end that is gone is Unknown."""
    listener = ListenerMachine(f"line{n}" for n in range(1000))
    opening = Open(tag_of("line7/forward"), CHANNEL_LAYER, 5, 7, 5, 1, 1, 0)
    assert listener.admits(memoryview(encode(opening))) == "line7"
    data = Data(tag_of("line999/forward"), 0, 1, 1, 1, 1, 1, True, (b"x",))
    answer = listener.answer(encode(data))
    assert answer is not None
    assert answer.pipe == tag_of("line999/forward")
    assert listener.answer(b"nonsense") is None
    assert listener.admits(b"nonsense") is None


# Bounds.


@pytest.mark.parametrize("layers", ["strict-monotonic", "resend", "reliable"])
def test_what_waits_for_the_channel_to_open_is_bounded(layers: str) -> None:
    """pipes P-9: 10,000 messages offered at once and one by one; what is taken fits, the rest is rejected."""
    options = ChannelOptions(held_max=100, held_max_bytes=1_000)
    small = {layers: {"window": 50, "backlog": 50}} if layers != "strict-monotonic" else layers
    for sizes in ([5_000, 5_000], [1] * 2_000):
        caller = end(CALLER, small, options=options)
        caller.wake(0)
        rejected = 0
        for size in sizes:
            effects = caller.send([bytes(20)] * size, 0)
            rejected += sum(e.count for e in effects if isinstance(e, Reject))
        taken = sum(sizes) - rejected
        assert taken <= 100
        assert caller.counters()["rejected"] == rejected
        assert caller.counters()["accepted"] == taken
        assert caller.room <= 50
        if layers == "strict-monotonic":
            assert taken == 50, "1,000 bytes"
            assert caller.room_bytes == 0


def test_the_largest_message_fits_where_messages_carry_a_mark() -> None:
    """pipes P-9: message_max_bytes is what the application may send, with or without carried confirms."""
    wire = ChannelWire(CARRIED, {MULTI: {"message_max_bytes": 5000}})
    wire.run(SECOND)
    wire.send(LISTENER, bytes(5000))
    wire.send(LISTENER, bytes(5001))
    wire.run(10 * SECOND)
    assert wire.ends[CALLER].delivered == [bytes(5000)]
    assert wire.ends[LISTENER].rejected == [Reject(RejectReason.TOO_LARGE, 1)]


# Deliveries and letters where messages carry a mark.


def caller_of_marked(boundary: BoundaryOptions) -> tuple[ChannelWire, ChannelMachine]:
    """A wire on which confirms and messages come mixed to the caller; its handlers answer by hand."""
    wire = ChannelWire(CARRIED, ["continuous-index", MULTI], auto_settle=False)
    parsed = parse_layers(["continuous-index", MULTI])
    machine = ChannelMachine(
        *("talk", CALLER, parse_layers(CARRIED), parsed),
        rng=random.Random(5),
        life_hint=50 << 20,
        boundary=boundary,
    )
    wire.ends[CALLER].machine = machine
    wire._perform(CALLER, machine.wake(0))  # pyright: ignore[reportPrivateUsage]
    wire.run(2 * SECOND)
    return wire, machine


def test_what_was_answered_does_not_come_again_with_what_failed() -> None:
    """pipes D-1, dl4: message, confirms, message in one delivery; the first fails once: each is settled once."""
    wire, machine = caller_of_marked(BoundaryOptions())
    wire.send(LISTENER, b"first")
    wire.run(3 * SECOND)
    wire.send(CALLER, b"ask")
    wire.send(LISTENER, b"before")
    wire.run(4 * SECOND)
    first, ask = wire.deferred
    wire.deferred.clear()
    assert [role for role, _ in (first, ask)] == [CALLER, LISTENER]
    handle(wire, *ask)
    wire.send(LISTENER, b"after")
    wire.run(5 * SECOND)
    handle(wire, *first)
    (_, before) = wire.deferred.popleft()
    assert before.payloads == [b"before"]
    entered = machine.counters()["settled"]
    error = ("ValueError", "boom")
    wire._perform(CALLER, machine.failed(before.ticket, before.first, error, wire.now))  # pyright: ignore[reportPrivateUsage]
    again: list[bytes] = []
    wire.run(wire.now + SECOND)
    while wire.deferred:
        again += wire.deferred[0][1].payloads
        handle(wire, *wire.deferred.popleft())
        wire.run(wire.now + SECOND)
    assert again == [b"before", b"after"]
    assert machine.counters()["settled"] == entered + 2, "the confirms were answered before"
    assert wire.ends[CALLER].confirmed == 1
    assert wire.ends[LISTENER].confirms == [b"first", b"before", b"after"]


def test_messages_between_confirms_are_handed_out_one_run_after_the_other() -> None:
    """pipes P-13: message, confirm, message in one delivery: the second run follows when the first is settled."""
    wire, machine = caller_of_marked(BoundaryOptions())
    wire.send(LISTENER, b"first")
    wire.run(3 * SECOND)
    wire.send(CALLER, b"ask")
    wire.send(LISTENER, b"before")
    wire.run(4 * SECOND)
    first, ask = wire.deferred
    wire.deferred.clear()
    handle(wire, *ask)
    wire.send(LISTENER, b"after")
    wire.run(5 * SECOND)
    handle(wire, *first)
    runs: list[list[bytes]] = []
    while wire.deferred:
        role, delivery = wire.deferred.popleft()
        runs.append([*delivery.payloads])
        handle(wire, role, delivery)
    assert runs == [[b"before"], [b"after"]]
    assert machine.receiver.idle


def handle(wire: ChannelWire, role: Role, delivery: Deliver) -> None:
    """The handler returns."""
    wire._handle(role, delivery)  # pyright: ignore[reportPrivateUsage]


def test_a_dead_letter_holds_the_message_without_its_mark() -> None:
    """pipes D-3: the payload of a letter is what the application sent, so that it can be replayed."""
    wire, machine = caller_of_marked(BoundaryOptions(retries=1, dead_letters=True))
    wire.send(LISTENER, b"poison")
    wire.run(3 * SECOND)
    (_, delivery) = wire.deferred.popleft()
    effects = machine.failed(delivery.ticket, delivery.first, ("ValueError", ""), wire.now)
    (posted,) = (effect for effect in effects if isinstance(effect, DeadLetter))
    assert posted.letter.payload == b"poison"
    wire._perform(CALLER, machine.answer(posted.ticket, WriteStored(), wire.now))  # pyright: ignore[reportPrivateUsage]
    wire.run(4 * SECOND)
    assert wire.ends[LISTENER].confirmed == 1


def test_a_failure_that_is_final_becomes_a_letter_at_once() -> None:
    """pipes D-3: the same inputs as any receiver machine takes."""
    wire, machine = caller_of_marked(BoundaryOptions(retries=9, dead_letters=True))
    wire.send(LISTENER, b"undecodable")
    wire.run(3 * SECOND)
    (_, delivery) = wire.deferred.popleft()
    error = ("ValueError", "")
    effects = machine.failed(delivery.ticket, delivery.first, error, wire.now, final=True)
    assert [e.letter.payload for e in effects if isinstance(e, DeadLetter)] == [b"undecodable"]


def test_a_confirm_that_is_given_up_is_sent_anew_and_no_letter() -> None:
    """pipes T-10: give_up_after_s on the way back: a lost confirm would stop the way there for good."""
    back: LayerText = {MULTI: {"give_up_after_s": 20.0}}
    wire = ChannelWire(CARRIED, back)
    wire.run(SECOND)
    wire.lose = lambda frame, sender, _n: sender is LISTENER and isinstance(frame, Data)
    wire.send(CALLER, 1)
    wire.run(60 * SECOND)
    assert NoticeKind.UNDELIVERABLE in wire.ends[LISTENER].notices
    wire.lose = None
    wire.run(200 * SECOND)
    assert wire.ends[CALLER].confirmed == 1
    assert wire.ends[LISTENER].machine.sender.idle, "nobody is asked to store what was given up"


# P-11.


@pytest.mark.parametrize(
    ("there", "back"),
    [
        (MULTI, MULTI),
        ("reliable", "strict-monotonic"),
        (CARRIED, MULTI),
        (CARRIED, CARRIED),
    ],
)
@pytest.mark.parametrize("opened", [False, True])
def test_a_restored_end_goes_on_with_the_same_effects(
    there: LayerText, back: LayerText, opened: bool
) -> None:
    """pipes P-11, P-12: at every frame the end is exported, restored into a fresh machine, and both go on."""
    twins: list[ChannelMachine] = []

    def twin_of(machine: ChannelMachine) -> ChannelMachine:
        sends, receives = (there, back) if machine.role is CALLER else (back, there)
        assert isinstance(machine.rng, random.Random)
        rng = random.Random(1)
        twin = ChannelMachine(
            *("talk", machine.role, parse_layers(sends), parse_layers(receives)),
            rng=rng,
            life_hint=1,
        )
        twin.restore(machine.export())
        rng.setstate(machine.rng.getstate())
        twins.append(twin)
        return twin

    lost_at_first = 0 if opened else 4
    wire = ChannelWire(there, back, lose=lambda _f, _s, n: n % 5 == 0 or n < lost_at_first)
    wire.twin = twin_of
    for n in range(1, 9):
        wire.send(CALLER, n)
    wire.run(20 * SECOND)
    wire.send(LISTENER, 1, 2, 3)
    wire.run(60 * SECOND)
    assert len(twins) > 8
    assert len(wire.ends[LISTENER].delivered) >= 8


# Whatever arrives.


@pytest.mark.parametrize("layers", [[MULTI], ["reliable"], CARRIED], ids=str)
@pytest.mark.parametrize("seed", range(2))
def test_any_sound_frame_gives_a_defined_result(layers: list[LayerText], seed: int) -> None:
    """pipes P-8: 200 frames of all kinds for either direction, a third of them the channel's own, with nearly
    sensible numbers: nothing is raised, and one that is ignored touches one counter."""
    rng = random.Random(seed)
    for channel in linked(layers):
        channel.send([b"1", b"2", b"3"], 0)
        tags = (channel.handshake.directions.outgoing, channel.handshake.directions.incoming)
        for now in range(200):
            frame = random_frame(rng, rng.choice(tags), layers=len(layers))
            if rng.random() < 0.33:
                frame = replace(frame, layer=CHANNEL_LAYER)
            before, counted = without_counts(channel.export()), channel.counters()
            effects = channel.frame(frame, now // 100)
            after = channel.counters()
            moved = {name for name in after if after[name] != counted[name]}
            if not effects and not moved:
                assert without_counts(channel.export()) != before, frame


@pytest.mark.parametrize("back", [[MULTI], CARRIED, ["continuous-index", MULTI]], ids=str)
def test_the_way_there_survives_restarts_of_the_other_end(back: list[LayerText]) -> None:
    """pipes C-5, G-5: 20 % loss both ways, the listening process ends four times: nothing accepted by the
    caller is missing, and each confirm is of a message that was handled (V-2)."""
    for seed in range(6):
        rng = random.Random(seed)
        options = ChannelOptions(idle_forget_s=30.0)
        wire = ChannelWire(CARRIED, back, seed=seed, options=options)
        wire.lose = lambda _f, _s, _n, rng=rng: rng.random() < 0.2
        handled: set[bytes] = set()
        wire.run(10 * SECOND)
        for part in range(5):
            wire.send(CALLER, *range(part * 5, part * 5 + 5))
            wire.run(wire.now + rng.randrange(4 * SECOND))
            if LISTENER in wire.ends:
                handled |= set(wire.ends[LISTENER].delivered)
                assert set(wire.ends[CALLER].confirms) <= handled
                wire.stop_listening_end()
            wire.run(wire.now + rng.randrange(60 * SECOND))
        wire.run(wire.now + 600 * SECOND)
        if LISTENER in wire.ends:
            handled |= set(wire.ends[LISTENER].delivered)
        assert wire.ends[CALLER].confirmed == wire.ends[CALLER].accepted == 25
        assert handled >= set(texts(0, 24))


@pytest.mark.parametrize(
    "decide", [WriteStored(), WriteFailed("full")], ids=lambda o: type(o).__name__
)
def test_a_journal_of_the_way_back_keeps_messages_and_confirms_apart(decide: object) -> None:
    """pipes L-3, V-2: rows of both kinds; a confirm that the journal refuses is offered again, and a new life
    knows which of the rows it finds are confirms."""
    journal = MemoryJournal()
    parsed, carried = parse_layers(MULTI), parse_layers(CARRIED)
    made = ChannelMachine(
        *("talk", LISTENER, parsed, carried),
        rng=random.Random(1),
        life_hint=7 << 20,
        journal=journal.contents(),
    )
    told: list[Effect] = []
    first_refused = [isinstance(decide, WriteFailed)]
    now = [0]

    def perform(effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Persist):
                outcome: object = (
                    journal.write(effect.write)
                    if not holds_confirm(effect, first_refused)
                    else decide
                )
                perform(made.answer(effect.ticket, outcome, now[0]))
            else:
                told.append(effect)

    perform(made.wake(0))
    perform(made.send([b"one"], 0))
    made.handshake.up = made.handshake.receiving_open = True
    confirm = Confirm(tag_of("talk/forward"), 0, 1, 1, 1, 1, (), (), 64, 0)
    made._waiting_confirms[0] = confirm  # pyright: ignore[reportPrivateUsage]
    perform(made.send([b"two"], 0))
    now[0] = 2 * SECOND
    perform(made.wake(now[0]))
    perform(made.send([b"three"], 2 * SECOND))
    accepted = [(e.first, e.count) for e in told if isinstance(e, Accepted)]
    rows = [payload for part in journal.contents().rows for payload in part.payloads]
    assert sum(row[:1] == b"\x01" for row in rows) == 1
    messages = {seq for seq, row in enumerate(rows, 1) if row[:1] == b"\x00"}
    assert {n for first, count in accepted for n in range(first, first + count)} == messages
    again = ChannelMachine(
        *("talk", LISTENER, parsed, carried),
        rng=random.Random(1),
        life_hint=1,
        journal=journal.contents(),
    )
    (opening,) = (effect for effect in again.wake(0) if isinstance(effect, Persist))
    again.answer(opening.ticket, journal.write(opening.write), 0)
    ((_, ranges),) = again.unconfirmed()
    assert {n for first, last in ranges for n in range(first, last + 1)} == messages


def holds_confirm(effect: Persist, refuse_next: list[bool]) -> bool:
    """Whether this write has a confirm among its rows, and the first such write is to be refused."""
    payloads = effect.write.payloads if isinstance(effect.write, AppendRows) else ()
    is_refused = refuse_next[0] and any(payload[:1] == b"\x01" for payload in payloads)
    refuse_next[0] = refuse_next[0] and not is_refused
    return is_refused


# Two callers at once, on a route where each of them has a connection of its own.


class Connections:
    """Callers that share a name, and a listener. Its frames go to whoever spoke last of that direction."""

    def __init__(self) -> None:
        self.now = 0
        self.ends: dict[int, ChannelMachine] = {0: end(LISTENER, MULTI, 1)}
        self.deadlines: dict[int, int | None] = {0: 0}
        self.where: dict[int, int] = {}
        self.delivered: dict[int, list[bytes]] = {0: []}
        self.notices: dict[int, list[NoticeKind]] = {0: []}
        self.unheard: set[int] = set()
        """Callers whose frames are lost."""

    def call(self, number: int) -> ChannelMachine:
        """A caller begins, whose life is above those of lower numbers."""
        self.ends[number], self.deadlines[number] = end(CALLER, MULTI, number), self.now
        self.delivered[number], self.notices[number] = [], []
        return self.ends[number]

    def leave(self, number: int) -> None:
        """A caller is gone, and so is its connection."""
        for each in (self.ends, self.deadlines, self.delivered):
            del each[number]
        self.where = {tag: who for tag, who in self.where.items() if who != number}

    def run(self, until: int) -> None:
        """Whoever is due wakes, in order, up to then; frames arrive at once."""
        while True:
            dues = [(due, who) for who, due in self.deadlines.items() if due is not None]
            due, who = min(dues, default=(until + 1, 0))
            if due > until:
                break
            self.now, self.deadlines[who] = max(self.now, due), None
            self.perform(who, self.ends[who].wake(self.now))
        self.now = until

    def send(self, who: int, *payloads: bytes) -> None:
        self.perform(who, self.ends[who].send(list(payloads), self.now))

    def perform(self, who: int, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Transmit(frame):
                    self._carry(who, cast("Frame", frame))
                case WakeAt(deadline):
                    self.deadlines[who] = deadline
                case Deliver(ticket=ticket, first=first, payloads=payloads):
                    self.delivered[who] += payloads
                    ranges = ((first, first + len(payloads) - 1),)
                    self.perform(who, self.ends[who].settled(ticket, ranges, self.now))
                case Notice(kind):
                    self.notices[who].append(kind)
                case _:
                    pass

    def _carry(self, sender: int, frame: Frame) -> None:
        if sender in self.unheard:
            return
        if sender:
            self.where[frame.pipe] = sender
            targets = [0]
        else:
            here = self.where.get(frame.pipe)
            targets = [who for who in self.ends if who] if here is None else [here]
        for to in targets:
            self.perform(to, self.ends[to].frame(frame, self.now))


def test_a_caller_that_begins_beside_an_older_one_is_served_and_the_older_stops() -> None:
    """pipes C-5, L-7: the older is connected and idle, and what the listener asks goes to its connection at first.
    The newer says that nobody has opened to it, and the older hears that another is served."""
    net = Connections()
    old = net.call(2)
    net.send(2, b"old")
    net.run(10 * SECOND)
    new = net.call(3)
    net.run(net.now)
    net.send(3, b"new")
    net.run(14 * SECOND)
    assert new.is_up
    assert net.delivered[0] == [b"old", b"new"]
    net.send(0, b"back")
    net.run(18 * SECOND)
    assert (net.delivered[2], net.delivered[3]) == ([], [b"back"])
    assert new.idle
    assert old.stopped.startswith("the other end serves life")
    assert NoticeKind.FENCED in net.notices[2]


def test_a_caller_is_served_after_an_older_one_that_answered_in_its_place_is_gone() -> None:
    """pipes C-3: the older answers what was meant for the newer, and is gone when the newer is heard again. The
    listener holds the channel for one that is up, and nobody but the newer can tell it otherwise."""
    net = Connections()
    net.call(2)
    net.run(10 * SECOND)
    new = net.call(3)
    net.run(net.now)
    net.unheard.add(3)
    net.run(30 * SECOND)
    assert not new.is_up
    net.leave(2)
    net.unheard.clear()
    net.run(90 * SECOND)
    assert new.is_up
