"""Who knows the key is let in, and nobody else; records can't be changed, repeated, left out or turned round."""

from __future__ import annotations

import hashlib
import hmac
from random import Random

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from hypothesis import given, settings
from hypothesis import strategies as st

from surepipe.actors.links.connection import Incoming, TooLong, What, sealed_record
from surepipe.actors.links.greeting import (
    KEY,
    MAGIC,
    NONCE,
    ConnectingGreeting,
    Greeting,
    ListeningGreeting,
    NoSeal,
    Seal,
    Stranger,
)
from surepipe.actors.links.security import MutualTls, Wire
from surepipe.testing.certificates import Authority

SHARED = b"a key that both of them know well"
VECTORS = {
    "listening says": "73757265706970013e4a7de06848c5329f12b01584b866e0fedfb0428fc24334"
    "323d58c5e2b681707bd5d47e446fcec2a3d811736110e578",
    "connecting says": "ea2e41369b2070e256b4de8fd421cd685e4c2a42a35c3efb2e5d5b07cbb3fb02"
    "2441e3d54410492b788768bcff2218cf5a612a897977c18a59546ec4bcf4cc8e"
    "28c02df7b1e38310a0966ba7c044f5d1",
    "listening proves": "5262f2e8ee23e43948c479a2da5c788a1fc8fc1c73af532a74822c1ae7007820",
    "first record forward": "000000165aa61435ddcd6cd0d6e86113cd3a77083246f1c98341",
    "first record back": "00000011ad3762397e84baee8b4da4d7df532a8dcb",
}
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


# What anybody else can compute.


def test_the_greeting_and_its_first_records_are_what_the_description_says() -> None:
    """Vectors: every byte from two fixed draws of chance, and again by HKDF and HMAC written out (RFC 5869).

    Another implementation, or another version of this one, speaks with ours if it makes these bytes.
    """
    listening, connecting = pair()
    first = spoken(listening)
    list(connecting.take(first))
    second = spoken(connecting)
    list(listening.take(second))
    third = spoken(listening)
    list(connecting.take(third))
    ours, theirs = listening.seal, connecting.seal
    assert ours is not None
    assert theirs is not None
    said = {
        "listening says": first,
        "connecting says": second,
        "listening proves": third,
        "first record forward": sealed_record(theirs, What.FRAME, b"frame"),
        "first record back": sealed_record(ours, What.PING),
    }
    assert {name: data.hex() for name, data in said.items()} == VECTORS

    forward, back, proofs = _keys_written_out(first, second)
    assert second[KEY + NONCE :] == hmac.digest(proofs, b"connecting", "sha256")
    assert third == hmac.digest(proofs, b"listening", "sha256")
    number = (1).to_bytes(12, "big")
    for key, data in ((forward, said["first record forward"]), (back, said["first record back"])):
        assert ChaCha20Poly1305(key).decrypt(number, data[4:], data[:4])


def _keys_written_out(first: bytes, second: bytes) -> tuple[bytes, bytes, bytes]:
    theirs = X25519PublicKey.from_public_bytes(first[len(MAGIC) : len(MAGIC) + KEY])
    secret = X25519PrivateKey.from_private_bytes(entropy(2)[:KEY]).exchange(theirs)
    extracted = hmac.digest(hashlib.sha256(SHARED).digest(), secret, "sha256")
    keys: list[bytes] = []
    before = b""
    for count in (b"\x01", b"\x02", b"\x03"):
        before = hmac.digest(extracted, before + first + second[: KEY + NONCE] + count, "sha256")
        keys.append(before)
    return keys[0], keys[1], keys[2]


# TLS between buffers.


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[MutualTls, MutualTls]:
    """Two processes with certificates of one authority."""
    authority = Authority(tmp_path_factory.mktemp("certificates"), "us")
    one, other = authority.sign("one"), authority.sign("other")
    return (
        MutualTls(one.cert, one.key, authority.ca),
        MutualTls(other.cert, other.key, authority.ca),
    )


def _wires(both: tuple[MutualTls, MutualTls]) -> tuple[Wire, Wire]:
    mine, theirs = both
    return (
        mine.wires(listening=True, host="127.0.0.1")(),
        theirs.wires(listening=False, host="127.0.0.1")(),
    )


@settings(max_examples=25)
@given(sizes=st.lists(st.integers(1, 700), min_size=1, max_size=20))
def test_tls_comes_to_its_end_however_its_bytes_are_cut(
    both: tuple[MutualTls, MutualTls], sizes: list[int]
) -> None:
    """The listening side has nothing to say before it was spoken to; then both carry what they are given."""
    listening, connecting = _wires(both)
    listening.begin()
    assert listening.owed() == b""
    connecting.begin()
    for _ in range(4):
        assert _carry(connecting.owed(), listening, sizes) == b""
        assert _carry(listening.owed(), connecting, sizes) == b""
    assert listening.is_ready
    assert connecting.is_ready
    message = bytes(range(256)) * 300
    assert _carry(listening.give(message), connecting, sizes) == message
    assert _carry(connecting.give(message), listening, sizes) == message
    assert _carry(connecting.end(), listening, sizes) == b""


def _carry(data: bytes, to: Wire, sizes: list[int]) -> bytes:
    got = bytearray()
    at = index = 0
    while at < len(data):
        size = sizes[index % len(sizes)]
        got += to.take(data[at : at + size])
        at, index = at + size, index + 1
    return bytes(got)


@given(data=st.binary(min_size=1, max_size=2000), opening=st.sampled_from([b"", b"\x16\x03\x01"]))
def test_no_bytes_do_anything_to_tls_but_end_the_connection(
    both: tuple[MutualTls, MutualTls], data: bytes, opening: bytes
) -> None:
    """Whatever a stranger says: it waits for more, or says Stranger; nothing of his comes through."""
    for wire in _wires(both):
        wire.begin()
        try:
            assert wire.take(opening + data) == b""
        except Stranger:
            assert not wire.is_ready
