"""Cutting a connection into messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surepipe.testing.proxy import Chunks, RespValues, is_error

LEAVES = st.one_of(
    st.integers().map(lambda n: b":%d\r\n" % n),
    st.sampled_from([b"+OK\r\n", b"-ERR no\r\n", b"$-1\r\n", b"*-1\r\n", b"_\r\n", b"#t\r\n"]),
    st.binary(max_size=20).map(lambda b: b"$%d\r\n%s\r\n" % (len(b), b)),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(lambda v: b"*%d\r\n" % len(v) + b"".join(v)),
        st.lists(st.tuples(inner, inner), max_size=3).map(
            lambda v: b"%%%d\r\n" % len(v) + b"".join(k + e for k, e in v)
        ),
    ),
    max_leaves=12,
)


@given(st.lists(VALUES, max_size=5), st.lists(st.integers(1, 7), min_size=1, max_size=5))
def test_values_come_out_whole_however_the_bytes_are_cut(
    values: list[bytes], sizes: list[int]
) -> None:
    """X-65: any values, nested too, fed in pieces of any length."""
    splitter, stream, found, turn = RespValues(), b"".join(values), list[bytes](), 0
    while stream:
        size = sizes[turn % len(sizes)]
        found += splitter.feed(stream[:size])
        stream, turn = stream[size:], turn + 1
    assert found == values


def test_a_value_is_held_until_its_last_byte() -> None:
    """Nothing before it, everything with it."""
    splitter = RespValues()
    assert splitter.feed(b"*2\r\n$1\r\na\r\n$1\r\nb\r") == []
    assert splitter.feed(b"\n") == [b"*2\r\n$1\r\na\r\n$1\r\nb\r\n"]


def test_what_is_no_such_protocol_is_refused() -> None:
    """A length that is no number."""
    with pytest.raises(ValueError, match="x"):
        RespValues().feed(b"$x\r\n")


def test_errors_are_told_from_answers() -> None:
    """Both kinds of error, of protocol 2 and 3."""
    assert [is_error(reply) for reply in (b"-ERR\r\n", b"!5\r\nERR x\r\n", b"+OK\r\n")] == [1, 1, 0]


def test_without_a_protocol_every_read_is_a_message() -> None:
    """Chunks."""
    assert Chunks().feed(b"abc") == [b"abc"]
