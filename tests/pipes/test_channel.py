"""Channels: two pipes between two ends, opened from one side, each the way back of the other."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest

from surepipe.core.effects import Accepted, Confirmed, Notice, NoticeKind, Renumbered
from surepipe.errors import ConfigurationError
from surepipe.pipes.catalogue import LayerText, parse_layers
from surepipe.pipes.channel import CHANNEL_LAYER, ChannelMachine, ListenerMachine, OwnMessages, Role
from surepipe.pipes.wire.frames import Data, Frame, Open, Opened, Probe, Unknown, tag_of
from tests.kit.channel_wire import CALLER, LISTENER, ChannelWire

SECOND = 1_000_000
MULTI = "multi-unconfirmed"
CARRIED: list[LayerText] = [{"sequential-confirm": {"retry": "carrier"}}, MULTI]


def texts(first: int, last: int) -> list[bytes]:
    """The payloads of numbered messages."""
    return [str(n).encode() for n in range(first, last + 1)]


def is_handshake(frame: Frame) -> bool:
    """A frame by which a channel opens."""
    return isinstance(frame, Open | Opened) and frame.layer == CHANNEL_LAYER


def test_an_undisturbed_handshake_takes_four_frames() -> None:
    """pipes C-2: Open and Opened for each direction, then Up at both ends, once."""
    wire = ChannelWire(MULTI, MULTI)
    wire.run(SECOND)
    assert wire.up()
    assert len(wire.sent) == 4
    assert [wire.ends[role].notices for role in Role] == [[NoticeKind.UP], [NoticeKind.UP]]


@pytest.mark.parametrize("number", range(1, 5))
@pytest.mark.parametrize("fault", ["lost", "duplicated", "delayed"])
@pytest.mark.parametrize("layers", [MULTI, "reliable"])
def test_ch1_any_handshake_frame_may_be_lost_doubled_or_late(
    layers: str, fault: str, number: int
) -> None:
    """pipes C-2, C-3 (ch1): up within two timeouts, one end each, and both directions carry messages."""
    wire = ChannelWire(
        layers,
        layers,
        lose=lambda _f, _r, n: n == number and fault in ("lost", "delayed"),
        copies=lambda _f, _r, n: {"duplicated": [500, 5 * SECOND], "delayed": [3 * SECOND]}.get(
            fault if n == number else "", []
        ),
    )
    wire.run(3 * SECOND)
    assert wire.up()
    wire.send(CALLER, *range(1, 11))
    wire.send(LISTENER, *range(1, 11))
    wire.run(20 * SECOND)
    assert wire.made == 2
    for role in Role:
        end = wire.ends[role]
        assert sorted(end.delivered, key=int) == texts(1, 10)
        assert end.confirmed == end.accepted == 10
        assert end.notices == [NoticeKind.UP]


def test_ch2_the_first_data_frame_of_each_direction_may_be_lost() -> None:
    """pipes C-1 (ch2): both arrive, by the re-send of each direction."""
    lost: list[Role] = []

    def lose(frame: Frame, sender: Role, _number: int) -> bool:
        if isinstance(frame, Data) and sender not in lost:
            lost.append(sender)
            return True
        return False

    wire = ChannelWire(MULTI, MULTI, lose=lose)
    wire.run(SECOND)
    wire.send(CALLER, b"there")
    wire.send(LISTENER, b"back")
    wire.run(10 * SECOND)
    assert lost == [CALLER, LISTENER]
    assert wire.ends[LISTENER].delivered == [b"there"]
    assert wire.ends[CALLER].delivered == [b"back"]


@pytest.mark.parametrize("layers", ["reliable", "continuous-index", "strict-monotonic", "resend"])
def test_ch3_messages_sent_before_it_is_up_arrive_in_order(layers: str) -> None:
    """pipes C-3 (ch3): 100 messages while the first two Opens are lost."""
    wire = ChannelWire(
        layers, MULTI, lose=lambda f, r, n: n <= 2 and is_handshake(f) and r is CALLER
    )
    for n in range(1, 101):
        wire.send(CALLER, n)
    assert not wire.up()
    wire.run(30 * SECOND)
    assert wire.ends[LISTENER].delivered == texts(1, 100)


@pytest.mark.parametrize("back", [[MULTI], CARRIED])
def test_ch4_sequential_confirm_gets_its_confirms_through_the_opposite_stack(
    back: list[LayerText],
) -> None:
    """pipes C-1, K-4 (ch4): retry: carrier, 20 % of all frames lost: absolute, and nothing is missing."""
    for seed in range(10):
        rng = random.Random(seed)
        wire = ChannelWire(
            CARRIED,
            back,
            seed=seed,
            lose=lambda _f, _r, _n, rng=rng: rng.random() < 0.2,  # type: ignore[misc]
        )
        wire.send(CALLER, *range(1, 31))
        wire.run(5 * SECOND)
        wire.send(LISTENER, *range(1, 31))
        wire.run(900 * SECOND)
        assert wire.ends[LISTENER].delivered == texts(1, 30)
        assert wire.ends[CALLER].confirmed == 30
        assert sorted(set(wire.ends[CALLER].delivered), key=int) == texts(1, 30)


def test_a_quiet_channel_sends_nothing() -> None:
    """pipes V-4: after the work is done no frame travels, although confirms were messages themselves."""
    wire = ChannelWire(CARRIED, CARRIED)
    wire.send(CALLER, 1, 2, 3)
    wire.run(10 * SECOND)
    count = len(wire.sent)
    wire.run(600 * SECOND)
    assert wire.ends[LISTENER].delivered == texts(1, 3)
    assert len(wire.sent) == count


@pytest.mark.parametrize("layers", [MULTI, "reliable"])
def test_the_other_end_links_again_after_a_restart(layers: str) -> None:
    """pipes C-5: the listening process ends and comes back empty; what was not confirmed arrives."""
    wire = ChannelWire(layers, layers)
    wire.send(CALLER, *range(1, 6))
    wire.run(SECOND)
    delivered = wire.ends[LISTENER].delivered
    wire.stop_listening_end()
    wire.send(CALLER, *range(6, 11))
    wire.run(60 * SECOND)
    assert wire.up()
    assert sorted(delivered + wire.ends[LISTENER].delivered, key=int) == texts(1, 10)
    wire.send(LISTENER, b"7")
    wire.run(90 * SECOND)
    assert wire.ends[CALLER].delivered == [b"7"]


@pytest.mark.parametrize("layers", [MULTI, "reliable"])
def test_a_restarted_caller_is_a_new_life_at_the_same_end(layers: str) -> None:
    """pipes C-5: no second end comes into being, both directions go on."""
    wire = ChannelWire(layers, layers)
    wire.send(CALLER, 1, 2)
    wire.run(SECOND)
    wire.start(CALLER)
    wire.send(CALLER, 3, 4)
    wire.run(30 * SECOND)
    wire.send(LISTENER, 5, 6)
    wire.run(60 * SECOND)
    assert wire.made == 3
    assert wire.ends[LISTENER].delivered == texts(1, 4)
    assert wire.ends[CALLER].delivered == texts(5, 6)


def test_silence_frees_what_is_volatile_and_the_next_message_opens_again() -> None:
    """pipes C-5: Down after idle_forget_s at both ends, then one more handshake."""
    wire = ChannelWire(MULTI, MULTI)
    wire.send(CALLER, 1)
    wire.run(1_000 * SECOND)
    assert not wire.up()
    assert all(wire.ends[role].notices == [NoticeKind.UP, NoticeKind.DOWN] for role in Role)
    wire.send(CALLER, 2)
    wire.run(1_100 * SECOND)
    assert wire.up()
    assert wire.ends[LISTENER].delivered == texts(1, 2)


def test_a_listener_makes_one_end_for_a_name_and_life() -> None:
    """pipes C-2: repeated, older and unknown Opens create nothing; a higher life reaches the end that is."""
    listener = ListenerMachine(["talk"])
    tag = tag_of("talk/forward")

    def opening(life: int, pipe: int = tag) -> Open:
        return Open(pipe, CHANNEL_LAYER, life, 7, life, 1, 1, 0)

    assert listener.admits(opening(5, tag_of("other/forward"))) is None
    assert listener.admits(opening(5)) == "talk"
    assert listener.admits(opening(5)) is None
    assert listener.admits(opening(4)) is None
    assert listener.admits(opening(6)) is None
    listener.forget("talk")
    assert listener.admits(opening(7)) == "talk"


def test_a_listener_asks_whoever_speaks_without_an_end_to_open_again() -> None:
    """pipes C-2: of a name that it knows, and not when that is what the frame does."""
    listener = ListenerMachine(["talk"])
    tag = tag_of("talk/forward")
    question = Probe(tag, CHANNEL_LAYER, 7, 1, 1, 2)
    assert listener.answer(question) == Unknown(tag, CHANNEL_LAYER, 0, 0)
    assert listener.answer(replace(question, pipe=tag_of("other/forward"))) is None
    assert listener.answer(Open(tag, CHANNEL_LAYER, 5, 7, 5, 1, 1, 0)) is None


def test_what_is_the_channels_own_is_forgotten_when_it_is_confirmed() -> None:
    """pipes V-5: nothing is kept of epochs that have nothing left."""
    own = OwnMessages()
    own.offer(2, own=True)
    own.offer(1, own=False)
    assert list(own.told(Accepted(5, 1, 3))) == [Accepted(5, 3, 1)]
    assert list(own.told(Confirmed(5, ((1, 1), (3, 3))))) == [Confirmed(5, ((3, 3),))]
    assert list(own.told(Confirmed(5, ((2, 2),)))) == []
    assert own.numbers == {}


def test_the_channels_own_messages_stay_its_own_under_new_numbers() -> None:
    """pipes L-4: 2 of epoch 5 is the channel's own, and becomes 1 of epoch 9; the application hears of 3 only."""
    own = OwnMessages()
    own.offer(1, own=False)
    own.offer(1, own=True)
    own.offer(1, own=False)
    list(own.told(Accepted(5, 1, 3)))
    assert list(own.told(Renumbered(5, 2, 2, 9, 1))) == [Renumbered(5, 3, 1, 9, 2)]
    assert list(own.told(Confirmed(9, ((1, 2),)))) == [Confirmed(9, ((2, 2),))]
    assert own.numbers == {}


def test_an_end_with_other_layers_is_refused_and_says_so() -> None:
    """pipes F-5: the digests differ, so nothing is opened and a person is told."""
    caller = ChannelWire("reliable", MULTI)
    listener = ChannelMachine(
        "talk",
        LISTENER,
        parse_layers("reliable"),
        parse_layers("resend"),
        rng=random.Random(1),
        life_hint=9,
    )
    listener.wake(0)
    opening = caller.sent[0][1]
    effects = listener.frame(opening, 1)
    (notice,) = [effect for effect in effects if isinstance(effect, Notice)]
    assert notice.detail == (
        "the two ends of this pipe are configured differently: this end has layers resend, back reliable; the "
        "other end has others, and does not say which. Give both the same layers and the same codec, and start "
        "both again"
    )
    assert not listener.is_up


def test_confirms_need_a_layer_that_carries_them() -> None:
    """pipes K-4: sequential-confirm alone has nothing that would bring its confirms back."""
    with pytest.raises(ConfigurationError, match="add multi-unconfirmed below it"):
        ChannelWire({"sequential-confirm": {"retry": "carrier"}}, CARRIED[:1])


def test_foreign_and_meaningless_input_changes_one_counter() -> None:
    """pipes P-8: another pipe's frame, bytes that are no frame, an answer to no link of ours."""
    wire = ChannelWire(MULTI, MULTI)
    wire.run(SECOND)
    machine = wire.ends[CALLER].machine
    strangers: list[tuple[object, str]] = [
        (b"nonsense", "malformed"),
        (Open(5, CHANNEL_LAYER, 1, 1, 1, 1, 1, 1), "foreign"),
        (Data(5, 0, 1, 1, 1, 1, 1, False, (b"x",)), "foreign"),
        (Opened(tag_of("talk/forward"), CHANNEL_LAYER, 99, 1, 1, 1, 0, 0, False), "stale_link"),
    ]
    for frame, counter in strangers:
        before = machine.counters()
        assert machine.frame(frame, wire.now) == []
        after = machine.counters()
        assert {k: after[k] - before[k] for k in after if after[k] != before[k]} == {counter: 1}


def test_a_confirm_that_travels_as_a_message_is_not_taken_for_one() -> None:
    """pipes V-2: 30 confirms enter the way back between 30 messages; each is confirmed when it has arrived,
    under the identity that it was accepted with, and no confirm is reported to anybody."""
    for seed in range(10):
        rng = random.Random(seed)
        wire = ChannelWire(CARRIED, MULTI, seed=seed)
        wire.lose = lambda _f, _r, _n, rng=rng: rng.random() < 0.2
        wire.run(100 * SECOND)
        for n in range(1, 31):
            wire.send(CALLER, n)
            wire.send(LISTENER, n)
            wire.run(wire.now + SECOND // 4)
            assert set(wire.ends[LISTENER].confirms) <= set(wire.ends[CALLER].delivered)
        wire.run(900 * SECOND)
        for role in Role:
            assert sorted(wire.ends[role].confirms, key=int) == texts(1, 30)
            assert wire.ends[role].machine.idle


def restarted(wire: ChannelWire, who: str, talk: str, moment: int) -> bool:
    """Restart a side, or both, after so many events; False when both ends were up by then."""
    if talk != "nobody":
        wire.send(CALLER, 1)
    for _ in range(moment):
        wire.step(60 * SECOND)
    if wire.up():
        return False
    if talk == "both" and LISTENER in wire.ends:
        wire.send(LISTENER, 2)
    if who != "caller" and LISTENER in wire.ends:
        wire.stop_listening_end()
    if who != "listener":
        wire.start(CALLER)
    if talk != "nobody":
        wire.send(CALLER, 3)
    return True


def _loses(lost: int) -> Callable[[object, object, int], bool]:
    return lambda _frame, _reverse, number: number == lost


@pytest.mark.parametrize("layers", ["reliable", MULTI, "strict-monotonic", "sequential-confirm"])
def test_a_restart_of_either_side_during_the_handshake_leaves_nobody_waiting(layers: str) -> None:
    """pipes C-2, C-5: every moment before both ends are up, with each frame lost in turn: up in six seconds."""
    stuck: list[object] = []
    tried = 0
    sides, talks = ("listener", "caller", "both"), ("nobody", "caller", "both")
    for who, talk, lost, moment in product(sides, talks, range(10), range(1, 10)):
        wire = ChannelWire(layers, layers, seed=lost, lose=_loses(lost))
        if restarted(wire, who, talk, moment):
            tried += 1
            end = wire.now + 6 * SECOND
            while not wire.up() and wire.step(end):
                pass
            if not wire.up():
                stuck.append((who, talk, lost, moment))
    assert not stuck
    assert tried > 200


@pytest.mark.parametrize("layers", ["reliable", MULTI])
def test_after_a_restart_during_the_handshake_over_a_bad_route_all_arrives(layers: str) -> None:
    """pipes C-2, C-5: for ten seconds a third of all frames is lost: up in a minute, and both directions carry."""
    for seed, moment in product(range(20), range(1, 8)):
        chance = random.Random(seed)
        wire = ChannelWire(layers, layers, seed=seed)
        wire.lose = lambda _f, _r, _n, wire=wire, chance=chance: (
            wire.now < 10 * SECOND and chance.random() < 1 / 3
        )
        restarted(wire, ("listener", "caller", "both")[seed % 3], "caller", moment)
        wire.run(wire.now + 60 * SECOND)
        assert wire.up(), (seed, moment)
        wire.send(LISTENER, 4)
        wire.send(CALLER, 5)
        wire.run(wire.now + 120 * SECOND)
        assert b"5" in wire.ends[LISTENER].delivered
        assert b"4" in wire.ends[CALLER].delivered
