"""Frames as bytes (pipes F-1 to F-4, P-8)."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Sequence
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.fuzz_codec import fuzz
from surepipe.errors import MisuseError
from surepipe.pipes.wire.codec import (
    RANGES_MAX,
    VERSION,
    NotAFrame,
    decode,
    decoded,
    encode,
    encoded,
    pipe_of,
)
from surepipe.pipes.wire.frames import (
    MAX_NUMBER,
    Confirm,
    Data,
    Frame,
    Nack,
    Numbered,
    Probe,
    tag_of,
)
from tests.kit.frames import examples, frames, random_frame

MALFORMED = NotAFrame("malformed")
EXAMPLES = examples(pipe=tag_of("pipe"))


def kind_of(frame: Frame) -> str:
    """The name of a test case."""
    return type(frame).__name__


def sealed(body: bytes) -> bytes:
    """A body with the length and checksum that belong to it."""
    body = body[:4] + struct.pack(">I", len(body) + 4) + body[8:]
    return body + struct.pack(">I", crc32(body))


def with_bytes(frame: Frame, at: int, replacement: bytes) -> bytes:
    """The frame with some bytes from the end of its body replaced, and a checksum that fits."""
    body = encode(frame)[:-4]
    at += len(body)
    return sealed(body[:at] + replacement + body[at + len(replacement) :])


@given(frames)
def test_every_frame_survives_encode_and_decode(frame: Frame) -> None:
    """Drawn from all kinds up to the bounds of every field; twice gives the same bytes (pipes F-1)."""
    data = encode(frame)
    assert decode(data) == frame
    decoded = decode(data)
    assert not isinstance(decoded, NotAFrame)
    assert encode(decoded) == data


@pytest.mark.parametrize("frame", EXAMPLES, ids=kind_of)
def test_the_pipe_of_a_frame_is_seen_without_decoding_it(frame: Frame) -> None:
    """From the record and from its bytes; what is no frame has none (pipes P-8)."""
    data = encode(frame)
    for form in (frame, data, bytearray(data), memoryview(data), data[:-1]):
        assert pipe_of(form) == frame.pipe
    for stranger in (b"", data[:17], b"XX" + data[2:], "text", None):
        assert pipe_of(stranger) is None


@given(frames)
def test_a_frame_that_is_at_hand_is_not_decoded_again(frame: Frame) -> None:
    """Its bytes are those of any other, and who has only these decodes them."""
    both = encoded(frame)
    assert both == encode(frame)
    assert decoded(both) is frame
    assert decoded(bytes(bytearray(both))) == frame


@given(st.lists(st.binary(max_size=9), min_size=1), st.sampled_from((list, tuple)))
def test_any_sequence_of_payloads_comes_back_as_a_list(
    payloads: list[bytes], build: type[Sequence[bytes]]
) -> None:
    """The type of the sequence is the only thing that encoding normalises."""
    decoded = decode(encode(Numbered(1, 0, 1, 1, tuple(payloads) if build is tuple else payloads)))
    assert decoded == Numbered(1, 0, 1, 1, payloads)


@pytest.mark.parametrize("frame", EXAMPLES, ids=kind_of)
def test_each_change_of_one_byte_is_noticed(frame: Frame) -> None:
    """All positions, all 255 other values for short frames: malformed or another version (pipes F-2)."""
    data = encode(frame)
    step = 1 if len(data) < 200 else 29
    for at, old in enumerate(data):
        for new in range(old % step, 256, step):
            if new == old:
                continue
            outcome = decode(data[:at] + bytes([new]) + data[at + 1 :])
            assert outcome == NotAFrame("version" if at == 2 else "malformed"), (at, new)


@pytest.mark.parametrize("frame", EXAMPLES, ids=kind_of)
def test_truncated_and_extended_frames_are_malformed(frame: Frame) -> None:
    """Every proper prefix, the empty one too, and every kind of tail (pipes F-2)."""
    data = encode(frame)
    assert {decode(data[:end]) for end in range(len(data))} == {MALFORMED}
    assert {decode(data + tail) for tail in (b"\0", b"SP", data)} == {MALFORMED}


def test_another_version_is_told_from_damage() -> None:
    """All 255 others: only the first three bytes are common to all versions (pipes F-1)."""
    for version in {*range(256)} - {VERSION}:
        for rest in (b"", b"whatever", encode(EXAMPLES[0])[3:]):
            assert decode(b"SP" + bytes([version]) + rest) == NotAFrame("version")


@pytest.mark.parametrize("claim", [2, 2**16, 2**31, 2**32 - 1])
def test_a_claim_of_many_messages_allocates_nothing(claim: int) -> None:
    """The checksum fits, so only the count itself stands against the claim (pipes F-2)."""
    frame = Numbered(1, 0, 1, 1, [b"x"])
    data = with_bytes(frame, -9, struct.pack(">I", claim))
    tracemalloc.start()
    outcome = decode(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert outcome == MALFORMED
    assert peak < 100_000


@pytest.mark.parametrize("length", [0, 2, 2**31, 2**32 - 1])
def test_lengths_must_fill_the_frame_exactly(length: int) -> None:
    """One payload of one byte that claims another length; the checksum fits."""
    assert decode(with_bytes(Numbered(1, 0, 1, 1, [b"x"]), -5, struct.pack(">I", length))) == (
        MALFORMED
    )


def test_as_many_ranges_as_are_allowed_go_and_come() -> None:
    """F-2: one more is refused, below."""
    ranges = tuple((n, n) for n in range(2, 2 * RANGES_MAX + 2, 2))
    assert len(ranges) == RANGES_MAX
    for frame in (Nack(1, 0, 2, 3, 4, ranges), Confirm(1, 0, 2, 3, 4, 0, ranges, ranges, 9, 0)):
        assert decode(encode(frame)) == frame


@pytest.mark.parametrize("count", [RANGES_MAX + 1, 2**32 - 1])
def test_a_claim_of_many_ranges_is_malformed(count: int) -> None:
    """The empty list of a Nack turned into a long one."""
    data = with_bytes(Nack(1, 0, 2, 3, 4, ()), -4, struct.pack(">I", count))
    assert decode(data) == MALFORMED


@pytest.mark.parametrize(
    ("frame", "at", "replacement"),
    [
        (Numbered(1, 0, 1, 1, [b""]), -8, struct.pack(">I", 0)),
        (Numbered(1, 0, 1, 1, [b""]), -16, struct.pack(">q", 0)),
        (Numbered(1, 0, 1, 1, [b""]), -16, struct.pack(">q", -1)),
        (Numbered(1, 0, 1, 1, [b""]), -24, struct.pack(">q", -1)),
        (Numbered(1, 0, 1, 1, [b"", b""]), -20, struct.pack(">q", MAX_NUMBER)),
        (Data(1, 0, 1, 1, 1, 1, 1, True, [b""]), -9, b"\2"),
        (Data(1, 0, 1, 1, 1, 1, 1, True, [b""]), -17, struct.pack(">q", -1)),
        (Probe(1, 0, 1, 1, 1, 1), -16, struct.pack(">q", 2)),
        (Probe(1, 0, 1, 1, 1, 1), -8, struct.pack(">Q", 2**63)),
        (Nack(1, 0, 1, 1, 1, ((4, 5),)), -16, struct.pack(">q", 6)),
        (Nack(1, 0, 1, 1, 1, ((4, 5),)), -16, struct.pack(">q", 0)),
        (Nack(1, 0, 1, 1, 1, ((4, 5), (6, 7))), -16, struct.pack(">q", 5)),
        (EXAMPLES[8], -9, b"\0"),
        (EXAMPLES[8], -9, b"\5"),
        (EXAMPLES[6], -1, b"\2"),
    ],
)
def test_fields_that_break_a_rule_are_malformed(frame: Frame, at: int, replacement: bytes) -> None:
    """One field at a time, in a frame whose length and checksum are right (pipes F-2)."""
    assert decode(encode(frame)) == frame
    assert decode(with_bytes(frame, at, replacement)) == MALFORMED


def test_a_kind_that_does_not_exist_is_malformed() -> None:
    """All numbers of kinds that no frame has, in a sealed frame."""
    body = encode(EXAMPLES[0])[:-4]
    for kind in (0, *range(10, 256)):
        assert decode(sealed(body[:3] + bytes([kind]) + body[4:])) == MALFORMED


@pytest.mark.parametrize(
    "frame",
    [
        Numbered(1, 0, 1, 1, []),
        Numbered(1, 0, 1, 0, [b"x"]),
        Numbered(1, 0, -1, 1, [b"x"]),
        Numbered(1, 0, 1, MAX_NUMBER, [b"x", b"y"]),
        Numbered(2**64, 0, 1, 1, [b"x"]),
        Numbered(1, 2**16, 1, 1, [b"x"]),
        Probe(1, 0, 1, 1, 1, 2**63),
        Nack(1, 0, 1, 1, 1, ((2, 1),)),
        Nack(1, 0, 1, 1, 1, ((1, 3), (3, 4))),
        Nack(1, 0, 1, 1, 1, ((5, 6), (1, 2))),
        Nack(1, 0, 1, 1, 1, tuple((n, n) for n in range(2, 2 * RANGES_MAX + 4, 2))),
    ],
)
def test_a_frame_that_could_not_be_decoded_is_not_encoded(frame: Frame) -> None:
    """Each breaks one rule; what goes out can always be read."""
    with pytest.raises(MisuseError, match="encoding a"):
        encode(frame)


def test_the_error_about_a_frame_shows_no_payload() -> None:
    """A payload may be a secret, and errors are logged (pipes O-3)."""
    with pytest.raises(MisuseError) as caught:
        encode(Numbered(1, 0, 1, 0, [b"secret"]))
    assert "secret" not in str(caught.value)


def test_the_largest_numbers_survive() -> None:
    """Tags up to 2**64 - 1, numbers up to 2**63 - 1, a run that ends at the last number."""
    top, tag = MAX_NUMBER, 2**64 - 1
    for frame in (
        Numbered(tag, 2**16 - 1, top, top - 1, [b"a", b"b"]),
        Confirm(tag, 0, tag, tag, top, top, ((1, top),), ((top, top),), top, top),
    ):
        assert decode(encode(frame)) == frame


@given(st.binary(max_size=200))
def test_random_bytes_are_never_a_frame(data: bytes) -> None:
    """Bytes without a matching checksum; nothing is raised (pipes F-2)."""
    assert isinstance(decode(data), NotAFrame)
    assert isinstance(decode(b"SP\1" + data), NotAFrame)


def test_frames_of_large_messages_survive() -> None:
    """One message of a mebibyte, and a full run of 512."""
    for frame in (
        Numbered(1, 0, 1, 1, [random.Random(5).randbytes(2**20)]),
        Numbered(1, 0, 1, 1, [b"%d" % n for n in range(512)]),
        Numbered(1, 0, 1, 1, [b"%04d" % n for n in range(512)]),
        Numbered(1, 0, 1, 1, [b"%04d" % n for n in range(5000)]),
        Numbered(1, 0, 1, 1, [b""] * 512),
    ):
        assert decode(encode(frame)) == frame


def test_random_frames_of_the_kit_can_be_encoded() -> None:
    """The frames with which machines are tested are ones that could come from a route."""
    rng = random.Random(1)
    for _ in range(2_000):
        frame = random_frame(rng, pipe=3, layers=2)
        assert decode(encode(frame)) == frame


def test_a_short_fuzz_run_finds_nothing() -> None:
    """20,000 inputs from valid frames, mutations of them and random bytes, by a fixed seed."""
    report = fuzz(inputs=20_000, seed=1)
    assert report.failures == []
    assert report.inputs == 20_000
    assert min(report.frames, report.malformed, report.other_version) > 100
