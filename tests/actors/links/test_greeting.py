"""Who knows the key is let in, and nobody else; records can't be changed, repeated, left out or turned round."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surepipe.actors.links.greeting import (
    KEY,
    NONCE,
    ConnectingGreeting,
    Greeting,
    ListeningGreeting,
    NoSeal,
    Seal,
    Stranger,
)
from surepipe.actors.links.records import Incoming, TooLong, What, sealed_record

SHARED = b"a key that both of them know well"
OTHER = b"a key that nobody else knows here"


def entropy(seed: int) -> bytes:
    """What a greeting draws."""
    return Random(seed).randbytes(KEY + NONCE)


def pair(listening: bytes = SHARED, connecting: bytes = SHARED) -> tuple[Incoming, Incoming]:
    """Both sides before the greeting."""
    return (
        Incoming(ListeningGreeting(listening, entropy(1)), 1000),
        Incoming(ConnectingGreeting(connecting, entropy(2)), 1000),
    )


def spoken(side: Incoming) -> bytes:
    """What a side wants to say now."""
    said = b"".join(side.replies)
    side.replies.clear()
    return said


def greet(one: Incoming, other: Incoming) -> tuple[Seal, Seal]:
    """Carry the whole greeting."""
    for _ in range(3):
        assert list(other.take(spoken(one))) == []
        assert list(one.take(spoken(other))) == []
    assert one.seal is not None
    assert other.seal is not None
    return one.seal, other.seal


def test_those_who_share_a_key_can_speak_in_both_directions() -> None:
    """A record each way after the greeting."""
    one, other = pair()
    listening, connecting = greet(one, other)
    assert list(other.take(sealed_record(listening, What.FRAME, b"down"))) == [(1, b"down")]
    assert list(one.take(sealed_record(connecting, What.FRAME, b"up"))) == [(1, b"up")]


def test_another_key_is_noticed_by_the_listening_side_before_it_has_proved_anything() -> None:
    """The listening side has sent its public key and nonce, nothing that was made with the shared key."""
    one, other = pair(connecting=OTHER)
    assert list(other.take(spoken(one))) == []
    with pytest.raises(Stranger, match="another key"):
        list(one.take(spoken(other)))
    assert spoken(one) == b""


def test_a_listener_that_does_not_know_the_key_is_noticed_too() -> None:
    """Its proof is wrong, whatever it is."""
    one, other = pair()
    list(other.take(spoken(one)))
    list(one.take(spoken(other)))
    forged = bytes(len(spoken(one)))
    with pytest.raises(Stranger, match="another key"):
        list(other.take(forged))


def test_a_greeting_that_was_recorded_opens_no_second_connection() -> None:
    """The listening side draws anew, so the connecting side's old words prove nothing."""
    one, other = pair()
    list(other.take(spoken(one)))
    recorded = spoken(other)
    later = Incoming(ListeningGreeting(SHARED, entropy(3)), 1000)
    with pytest.raises(Stranger, match="another key"):
        list(later.take(recorded))


@pytest.mark.parametrize("public", [bytes(32), b"\x01" + bytes(31)])
def test_a_public_key_that_makes_the_secret_known_is_refused(public: bytes) -> None:
    """Points of small order."""
    side = ListeningGreeting(SHARED, entropy(1))
    side.begin()
    with pytest.raises(Stranger):
        side.take(public + bytes(NONCE) + bytes(32))


@pytest.mark.parametrize("what", ["changed", "repeated", "left out", "turned round", "cut short"])
def test_a_record_that_is_not_the_next_one_of_this_connection_opens_nothing(what: str) -> None:
    """Each is sealed under its number and direction."""
    one, other = pair()
    listening, connecting = greet(one, other)
    first = sealed_record(connecting, What.FRAME, b"first")
    second = sealed_record(connecting, What.FRAME, b"second")
    back = sealed_record(listening, What.FRAME, b"back")
    attacks = {
        "changed": [first[:-1] + bytes([first[-1] ^ 1])],
        "repeated": [first, first],
        "left out": [second],
        "turned round": [back],
        "cut short": [b"\x00\x00\x00\x11" + first[4:21]],
    }
    *fine, bad = attacks[what]
    for record in fine:
        list(one.take(record))
    with pytest.raises(Stranger):
        list(one.take(bad))


def test_a_record_longer_than_agreed_is_refused_by_its_length_alone() -> None:
    """Nothing of it is waited for, so it takes no memory."""
    one, other = pair()
    greet(one, other)
    with pytest.raises(TooLong):
        list(one.take((1_000_000).to_bytes(4, "big")))


@given(st.binary(max_size=300), st.lists(st.integers(1, 40), max_size=10))
def test_no_bytes_of_a_stranger_do_anything_but_end_the_connection(
    noise: bytes, cuts: list[int]
) -> None:
    """Any bytes in any pieces: they wait, or they raise Stranger; no record comes out."""
    kinds: list[Greeting] = [
        ListeningGreeting(SHARED, entropy(1)),
        ConnectingGreeting(SHARED, entropy(2)),
    ]
    for greeting in kinds:
        side = Incoming(greeting, 1000)
        rest = noise
        try:
            for cut in [*cuts, 300]:
                piece, rest = rest[:cut], rest[cut:]
                assert list(side.take(piece)) == []
        except Stranger:
            continue


@given(st.lists(st.binary(max_size=40), max_size=8), st.lists(st.integers(1, 9), max_size=60))
def test_records_come_out_whole_however_they_were_cut(bodies: list[bytes], cuts: list[int]) -> None:
    """The stream of bytes is cut anywhere."""
    one, other = pair()
    _, connecting = greet(one, other)
    stream = b"".join(sealed_record(connecting, What.FRAME, body) for body in bodies)
    found: list[tuple[int, bytes]] = []
    for cut in [*cuts, len(stream) + 1]:
        found += one.take(stream[:cut])
        stream = stream[cut:]
    assert found == [(What.FRAME, body) for body in bodies]


def test_without_a_seal_records_are_as_they_are() -> None:
    """For TLS, which has its own."""
    assert sealed_record(NoSeal(), What.PING) == b"\x00\x00\x00\x01\x02"
