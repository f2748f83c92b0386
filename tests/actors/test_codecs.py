from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, TypedDict, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from surepipe.actors.codecs import (
    AutoCodec,
    BytesCodec,
    Codec,
    JsonCodec,
    ModelCodec,
    Undecodable,
    choose_codec,
    decoder,
    encode_all,
    json_writer,
)
from surepipe.errors import ConfigurationError, MisuseError


class Order(BaseModel):
    number: int
    customer: str


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=10,
)


@given(st.binary() | JSON_VALUES | st.binary().map(lambda rest: b"\x1e" + rest))
def test_the_default_codec_gives_back_what_was_sent(message: object) -> None:
    """Bytes as bytes and values as values, also bytes that look like its own mark."""
    codec = AutoCodec()
    got = codec.decode(codec.encode(message))
    assert got == message
    assert type(got) is type(message)


@given(st.binary().filter(lambda payload: payload[:1] != b"\x1e"))
def test_the_default_codec_leaves_bytes_untouched(payload: bytes) -> None:
    """The very same object travels."""
    assert AutoCodec().encode(payload) is payload


@given(st.lists(st.binary(max_size=3) | st.integers()))
def test_many_messages_are_encoded_and_decoded_as_one_by_one(messages: list[object]) -> None:
    """The quick way for plain bytes makes no difference."""
    codec = AutoCodec()
    payloads = encode_all(codec, messages)
    assert payloads == [codec.encode(message) for message in messages]
    decode = decoder(codec, payloads)
    assert (payloads if decode is None else [decode(payload) for payload in payloads]) == messages


def test_plain_json_is_for_readers_that_know_nothing_of_surepipe() -> None:
    """Compact, UTF-8, no mark."""
    assert JsonCodec().encode({"a": [1, "ä"]}) == '{"a":[1,"ä"]}'.encode()


@pytest.mark.parametrize("message", [math.nan, math.inf, {1, 2}, object(), b"bytes", "\ud800"])
def test_what_json_can_not_say_is_refused_and_not_bent(message: object) -> None:
    """The error names the type and what to do."""
    with pytest.raises(MisuseError, match=f"type {type(message).__name__} can't be written"):
        JsonCodec().encode(message)


def test_what_can_be_written_can_be_read_however_deep_it_is() -> None:
    """500 lists inside each other; the fast reader gives up at 200."""
    codec, message = JsonCodec(), list[object]()
    for _ in range(500):
        message = [message]
    assert codec.decode(codec.encode(message)) == message


def test_a_structure_that_contains_itself_is_refused() -> None:
    """Circular, and too deep to write."""
    circular: list[object] = []
    circular.append(circular)
    with pytest.raises(MisuseError):
        JsonCodec().encode(circular)


@pytest.mark.parametrize("payload", [b"", b"{", b"\xff", b"nul", b"NaN", b"[" * 100_000])
def test_a_payload_that_is_no_json_is_undecodable_and_its_text_is_not_repeated(
    payload: bytes,
) -> None:
    """pipes D-3: it becomes a letter; errors may be logged, payloads never."""
    with pytest.raises(Undecodable) as caught:
        JsonCodec().decode(payload)
    assert str(caught.value).startswith("not JSON: ")


def test_the_bytes_codec_takes_bytes_only() -> None:
    """Other buffers are copied, other types refused."""
    codec = BytesCodec()
    assert codec.encode(bytearray(b"ab")) == b"ab"
    assert codec.encode(memoryview(b"ab")) == b"ab"
    with pytest.raises(MisuseError, match="type str"):
        codec.encode("ab")
    with pytest.raises(MisuseError, match="type int"):
        encode_all(codec, [b"a", 1])


def test_a_model_travels_as_json_and_is_checked_at_both_ends() -> None:
    """Instances, mappings that fit, and neither."""
    codec = ModelCodec(Order)
    order = Order(number=1, customer="secret")
    assert codec.decode(codec.encode(order)) == order
    assert codec.decode(codec.encode({"number": 1, "customer": "secret"})) == order
    with pytest.raises(MisuseError, match="is no Order; nothing was accepted: customer") as misuse:
        codec.encode({"number": 1, "customer": ["secret"]})
    with pytest.raises(Undecodable, match="no Order: number") as undecodable:
        codec.decode(b'{"number": "secret", "customer": "x"}')
    assert "secret" not in str(misuse.value) + str(undecodable.value)


def test_a_codec_is_named_or_made_by_the_user() -> None:
    """Names, a model, an object; another name is refused with the names there are."""

    own: Codec = Backwards()
    chosen = choose_codec(own)
    assert chosen.encode("abc") == b"cba"
    assert chosen.decode(b"cba") == "abc"
    assert isinstance(choose_codec("auto"), AutoCodec)
    assert isinstance(choose_codec("json"), JsonCodec)
    assert isinstance(choose_codec("bytes"), BytesCodec)
    assert isinstance(choose_codec(Order), ModelCodec)
    with pytest.raises(ConfigurationError, match="'pickle': write 'auto', 'json' or 'bytes'"):
        choose_codec("pickle")


class Backwards:
    """A codec, if one is made of it."""

    def encode(self, message: object) -> bytes:
        return str(message).encode()[::-1]

    def decode(self, payload: bytes) -> object:
        return payload[::-1].decode()


class Fixed(TypedDict):
    number: int


@dataclass
class Plain:
    number: int


@pytest.mark.parametrize("choice", [Plain, Fixed, dict, int, str, list[int], object(), None])
def test_what_is_no_codec_is_refused_when_it_is_given(choice: Any) -> None:
    """And not by the first message, with an AttributeError: classes were taken for models."""
    with pytest.raises(
        ConfigurationError, match=r"a pydantic model, or .* pydantic\.TypeAdapter for"
    ):
        choose_codec(choice)


def test_a_class_with_a_codecs_functions_is_a_codec_or_told_to_be_made() -> None:
    """Static ones need no instance."""
    with pytest.raises(ConfigurationError, match=r"a class: give one that was made, Backwards\(\)"):
        choose_codec(cast("Any", Backwards))

    class Static:
        encode = staticmethod(Backwards().encode)
        decode = staticmethod(Backwards().decode)

    assert choose_codec(cast("Any", Static)).encode("abc") == b"cba"


@given(JSON_VALUES, st.sampled_from([(",", ":"), (", ", ": ")]))
def test_json_is_written_as_by_the_standard_library(
    value: object, separators: tuple[str, str]
) -> None:
    """The encoder that is made once writes the same text."""
    wanted = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=separators)
    assert json_writer(*separators)(value) == wanted


def _holds_itself() -> object:
    found: list[object] = []
    found.append(found)
    return found


@pytest.mark.parametrize(
    "value", [math.nan, [math.inf], {1, 2}, b"", {(1, 2): 3}, object(), _holds_itself()]
)
def test_what_is_no_json_is_refused_and_the_writer_goes_on(value: object) -> None:
    """Among them a list that holds itself."""
    write = json_writer()
    with pytest.raises((TypeError, ValueError, RecursionError)):
        write(value)
    assert write({"n": [1, "ä", None, 1.5, True], "1": {}}) == '{"n":[1,"ä",null,1.5,true],"1":{}}'
