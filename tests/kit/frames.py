"""Frames to draw from: every kind that can be encoded, and bytes that are almost one."""

from __future__ import annotations

import random
from collections.abc import Sequence

from hypothesis import strategies as st

from surepipe.core.effects import Ranges
from surepipe.pipes.wire.codec import RANGES_MAX
from surepipe.pipes.wire.frames import (
    MAX_NUMBER,
    Confirm,
    Data,
    Frame,
    Introduction,
    Nack,
    Numbered,
    Open,
    Opened,
    Probe,
    Refused,
    RefusedReason,
    Unknown,
)

KINDS = (Numbered, Data, Probe, Confirm, Nack, Open, Opened, Unknown, Refused, Introduction)

tags = st.integers(0, 2**64 - 1)
layers = st.integers(0, 2**16 - 1)
numbers = st.one_of(st.integers(0, 40), st.integers(0, MAX_NUMBER))
seqs = st.one_of(st.integers(1, 40), st.integers(1, MAX_NUMBER))
flags = st.booleans()
texts = st.text(max_size=40).filter(str.isprintable)
runs = st.lists(st.binary(max_size=40), min_size=1, max_size=20)


@st.composite
def all_ranges(draw: st.DrawFn) -> Ranges:
    """Ordered, disjoint ranges, touching ones among them."""
    bounds = draw(st.lists(seqs, max_size=2 * RANGES_MAX, unique=True).map(sorted))
    return tuple(zip(bounds[::2], bounds[1::2], strict=False))


@st.composite
def ordered_pairs(draw: st.DrawFn) -> tuple[int, int]:
    """A base and a next that is not below it."""
    low, high = sorted((draw(seqs), draw(seqs)))
    return low, high


def _fitting(first: int, payloads: Sequence[bytes]) -> int:
    return min(first, MAX_NUMBER - len(payloads) + 1)


@st.composite
def numbered_frames(draw: st.DrawFn) -> Frame:
    """Any Numbered frame."""
    payloads = draw(runs)
    first = _fitting(draw(seqs), payloads)
    return Numbered(draw(tags), draw(layers), draw(numbers), first, payloads)


@st.composite
def data_frames(draw: st.DrawFn) -> Frame:
    """Any Data frame."""
    payloads = draw(runs)
    first = _fitting(draw(seqs), payloads)
    head = (draw(tags), draw(layers), draw(tags), draw(numbers))
    return Data(*head, first, draw(seqs), draw(numbers), draw(flags), payloads)


@st.composite
def open_frames(draw: st.DrawFn) -> Frame:
    """Any Open frame."""
    base, following = draw(ordered_pairs())
    head = (draw(tags), draw(layers), draw(numbers), draw(tags), draw(numbers))
    return Open(*head, base, following, draw(tags))


@st.composite
def probe_frames(draw: st.DrawFn) -> Frame:
    """Any Probe frame."""
    return Probe(draw(tags), draw(layers), draw(tags), draw(numbers), *draw(ordered_pairs()))


frames: st.SearchStrategy[Frame] = st.one_of(
    numbered_frames(),
    data_frames(),
    probe_frames(),
    open_frames(),
    st.builds(
        Confirm,
        tags,
        layers,
        tags,
        tags,
        numbers,
        numbers,
        all_ranges(),
        all_ranges(),
        numbers,
        numbers,
    ),
    st.builds(Nack, tags, layers, tags, tags, numbers, all_ranges()),
    st.builds(Opened, tags, layers, tags, tags, numbers, numbers, numbers, numbers, flags),
    st.builds(Unknown, tags, layers, tags, tags),
    st.builds(Refused, tags, layers, tags, numbers, st.sampled_from(RefusedReason), numbers),
    st.builds(Introduction, tags, layers, flags, flags, texts.filter(bool), texts),
)


def examples(pipe: int = 1, layer: int = 0) -> list[Frame]:
    """One frame of each kind, every field different from its neighbours."""
    head = (pipe, layer)
    return [
        Numbered(*head, 7, 11, [b"ab", b"", b"c" * 300]),
        Data(*head, 5, 7, 11, 9, 31, True, [b"ab", b"", b"c" * 300]),
        Probe(*head, 5, 7, 9, 14),
        Confirm(*head, 5, 6, 7, 8, ((10, 11), (13, 13)), ((12, 12),), 99, 31),
        Nack(*head, 5, 6, 7, ((9, 9), (12, 14))),
        Open(*head, 8, 5, 7, 9, 14, 2**63 + 5),
        Opened(*head, 5, 6, 7, 9, 8, 99, True),
        Unknown(*head, 5, 6),
        Refused(*head, 5, 7, RefusedReason.FENCED, 12),
        Introduction(*head, True, False, "dedupe > reliable", "aüto"),
    ]


def random_frame(rng: random.Random, pipe: int, layers: int) -> Frame:
    """A frame of any kind with small numbers, so that many of them nearly make sense."""

    def number() -> int:
        return rng.choice((0, 1, 1, 2, 3, rng.randrange(40), rng.randrange(2**63)))

    def seq() -> int:
        return max(1, number() - 8)

    def ranges() -> Ranges:
        bounds = sorted(rng.sample(range(1, 60), 2 * rng.randrange(4)))
        return tuple(zip(bounds[::2], bounds[1::2], strict=True))

    head = (pipe, rng.randrange(layers))
    payloads = [rng.randbytes(rng.randrange(6)) for _ in range(rng.randrange(1, 6))]
    base = seq()
    makers = (
        lambda: Numbered(*head, number(), seq(), payloads),
        lambda: Data(*head, number(), number(), seq(), base, number(), number() > 1, payloads),
        lambda: Probe(*head, number(), number(), base, base + rng.randrange(9)),
        lambda: Confirm(
            *(*head, number(), number(), number(), number()), ranges(), ranges(), number(), number()
        ),
        lambda: Nack(*head, number(), number(), number(), ranges()),
        lambda: Open(*head, number(), number(), number(), base, base + 3, number()),
        lambda: Opened(
            *(*head, number(), number(), number(), number(), number(), number()), number() > 1
        ),
        lambda: Unknown(*head, number(), number()),
        lambda: Refused(*head, number(), number(), rng.choice(list(RefusedReason)), number()),
        lambda: Introduction(*head, number() > 1, number() > 1, "reliable", ""),
    )
    return rng.choice(makers)()


def mutated(rng: random.Random, data: bytes) -> bytes:
    """The bytes after one accident: changed, cut, extended, a piece repeated or left out."""
    at, end = sorted((rng.randrange(len(data)), rng.randrange(len(data))))
    accidents = (
        lambda: data[:at] + bytes([data[at] ^ rng.randrange(1, 256)]) + data[at + 1 :],
        lambda: data[:at],
        lambda: data + rng.randbytes(rng.randrange(1, 9)),
        lambda: data[:end] + data[at:],
        lambda: data[:at] + data[end:],
        lambda: data[:at] + rng.randbytes(4) + data[at + 4 :],
    )
    return rng.choice(accidents)()
