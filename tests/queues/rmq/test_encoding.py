"""The bytes of the replicated queue: known vectors, one way to write each value, and a verdict on any bytes."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from surepipe.errors import ConfigurationError
from surepipe.queues.rmq.encoding import (
    NESTING_MAX,
    Ed25519Keys,
    Encoded,
    Malformed,
    MessageHeader,
    Value,
    decode,
    encode,
    encoded_tuple,
    is_canonical,
    quorum,
)

BODY = b'{"item":"tea"}'
HEADER = MessageHeader(
    "orders",
    "work",
    "shop-1",
    bytes(range(16)),
    1,
    1700000060000,
    b"customer-7",
    b"order-17",
    sha256(BODY).digest(),
    len(BODY),
)
VALUES = st.recursive(
    st.binary(max_size=20) | st.text(max_size=10) | st.integers(-(1 << 63), (1 << 63) - 1),
    lambda inner: st.lists(inner, max_size=4).map(tuple),
    max_leaves=12,
)


def test_a_header_has_the_ids_that_everybody_computes() -> None:
    """rmq RQ-4, RT-1: known bytes in, known hashes out."""
    assert HEADER.id.hex() == "f7160f662b79daf0fc2ad38824e89c35a46a9ff4abf4fe061b6ca1854eb32122"
    assert HEADER.uid.hex() == "eebfc652d76789f685888bf918a482b509fd6654575090a1cb7c25e008df1001"
    assert HEADER.point.hex() == "acade5fe58d0b5a8"
    plain = replace(HEADER, dedupe=b"")
    assert plain.uid == plain.id


@given(VALUES)
def test_a_value_comes_back_as_it_was(value: object) -> None:
    """rmq RQ-4: what is read writes the same bytes."""
    assert decode(encode(value)) == value  # type: ignore[arg-type]


@given(st.binary(max_size=60))
def test_any_bytes_are_a_value_or_malformed(data: bytes) -> None:
    """rmq RQ-4: and a value has one way to be written."""
    try:
        value = decode(data)
    except Malformed:
        return
    assert encode(value) == data


def test_a_header_cut_or_changed_is_malformed_or_another_one() -> None:
    """rmq RT-1: each byte changed, and cut at each length."""
    data = encode(HEADER.fields)
    for at in range(len(data)):
        with pytest.raises(Malformed):
            decode(data[:at])
        other = data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :]
        try:
            found = MessageHeader.of(decode(other))
        except Malformed:
            continue
        assert found.id != HEADER.id
    with pytest.raises(Malformed, match="behind"):
        decode(data + b"i")


def test_nesting_is_bounded_on_both_sides() -> None:
    """rmq RQ-4: eight levels are a value, nine are not."""
    value: object = ()
    for _ in range(NESTING_MAX - 1):
        value = (value,)
    data = encode(value)  # type: ignore[arg-type]
    assert decode(data) == value
    with pytest.raises(Malformed):
        encode((value,))
    with pytest.raises(Malformed, match="deep"):
        decode(b"t\0\0\0\1" + data)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("queue", ""),
        ("submitter", "a b"),
        ("kind", "other"),
        ("nonce", b"short"),
        ("epoch", 0),
        ("expires_ms", -1),
        ("key", bytes(257)),
        ("dedupe", bytes(257)),
        ("body_hash", b""),
        ("size", -1),
    ],
)
def test_a_field_out_of_its_bounds_makes_no_header(field: str, value: object) -> None:
    """rmq RQ-82: so nobody can fill logs with keys of a megabyte."""
    with pytest.raises(Malformed):
        MessageHeader.of(replace(HEADER, **{field: value}).fields)  # type: ignore[arg-type]


def test_quorums_are_those_of_the_table() -> None:
    """rmq RQ-1: of n nodes, how many decide, may lie, may be down."""
    sizes = (1, 2, 3, 4, 5, 6, 7, 10, 13, 16)
    assert [quorum(n).size for n in sizes] == [1, 2, 2, 3, 4, 4, 5, 7, 9, 11]
    assert [quorum(n).may_lie for n in sizes] == [0, 0, 0, 1, 1, 1, 2, 3, 4, 5]
    assert [quorum(n).may_be_down for n in sizes] == [0, 0, 1, 1, 1, 2, 2, 3, 4, 5]
    assert [quorum(n, "crash").size for n in sizes] == [1, 2, 2, 3, 3, 4, 4, 6, 7, 9]
    for n in range(1, 40):
        found = quorum(n)
        assert 2 * found.size - n > found.may_lie, "two quorums share one who doesn't lie"
    with pytest.raises(ConfigurationError, match="0 nodes"):
        quorum(0)


def test_a_signature_that_libraries_could_judge_differently_counts_for_nothing() -> None:
    """rmq RQ-86: nodes that judge one signature differently would hold different logs."""
    keys = Ed25519Keys(bytes(32))
    signature = keys.sign(b"text")
    assert keys.verify(keys.public, signature, b"text")
    assert keys.sign(b"text") == signature
    assert not keys.verify(keys.public, signature, b"other")
    order = (1 << 252) + 27742317777372353535851937790883648493
    scalar = int.from_bytes(signature[32:], "little") + order
    assert not is_canonical(keys.public, signature[:32] + scalar.to_bytes(32, "little"))
    field = (1 << 255) - 19
    assert not is_canonical((field + 3).to_bytes(32, "little"), signature)
    assert not is_canonical(keys.public, signature[:-1])


def test_a_key_that_any_signature_fits_is_none() -> None:
    """rmq RQ-86: for the key of order one this signature is valid, says a library, whatever the text is."""
    one = (1).to_bytes(32, "little")
    signature = one + bytes(32)
    Ed25519PublicKey.from_public_bytes(one).verify(signature, b"any text")
    assert not Ed25519Keys(bytes(32)).verify(one, signature, b"any text")


@given(values=st.lists(VALUES, max_size=4).map(tuple))
def test_what_is_written_already_stands_within_another_value(values: tuple[Value, ...]) -> None:
    """rmq RQ-4: there is one way to write a value, whether its parts were written before or not."""
    parts = [Encoded(encode(each)) for each in values]
    assert encode(tuple(parts)) == encoded_tuple(parts) == encode(values)
