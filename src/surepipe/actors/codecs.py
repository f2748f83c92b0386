"""Between what applications send and the bytes that pipes carry.

The codec of a pipe is one of

* ``"auto"`` (default): bytes stay as they are, everything else travels as JSON, and the receiver gets back what
  was sent. JSON is told apart by a first byte 0x1E (the record separator of RFC 7464); bytes that happen to
  begin with it travel with one more in front.
* ``"json"``: plain JSON on the wire, for readers that are not surepipe. Bytes are refused.
* ``"bytes"``: bytes, and nothing else.
* a pydantic model: messages are instances of it, plain JSON on the wire, validated at both ends.
* any object with ``encode`` and ``decode``.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Generic, NoReturn, Protocol, TypeAlias, TypeVar, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from surepipe.actors.consuming.coroutines import require_plain, unrun_in
from surepipe.core.callables import require_call
from surepipe.errors import ConfigurationError, MisuseError, a_or_an

# How a replayed letter carries how often it was replayed: in front of its payload, between the codecs.
#
# A mark is the bytes 0x1E 0x12, the number in decimal, and 0x1E. No JSON begins like that. Other payloads that
# do get a mark with number 0 in front, so every payload is read as it was meant. A message that nobody replayed
# travels without one.


_START = b"\x1e\x12"
_REPLAYED = re.compile(rb"\x1e\x12(\d{1,9})\x1e")


def guarded(payload: bytes) -> bytes:
    """The payload as it may travel: with a mark of 0 when it could be taken for a marked one."""
    return marked(payload, 0) if payload.startswith(_START) else payload


def marked(payload: bytes, replays: int) -> bytes:
    """A payload, without a mark of its own, that says how often it was replayed."""
    return b"%b%d\x1e%b" % (_START, replays, payload)


def unmarked(payload: bytes) -> tuple[bytes, int]:
    """The payload without its mark, and how often it was replayed."""
    if not payload.startswith(_START):
        return payload, 0
    found = _REPLAYED.match(payload)
    return (payload[found.end() :], int(found[1])) if found else (payload, 0)


def was_replayed(payload: bytes) -> bool:
    """True when a payload has a mark."""
    return payload.startswith(_START)


_MARK = b"\x1e"
_BYTES = {bytes}
_BUFFERS = (bytes, bytearray, memoryview)
_first_byte = itemgetter(0)
M = TypeVar("M", bound=BaseModel)


class Undecodable(Exception):
    """A payload is not what the codec expects. It goes to the dead letters, at the first attempt."""


class Codec(Protocol):
    """Turns messages into payloads and back."""

    def encode(self, message: object) -> bytes:
        """The payload of a message. Raises MisuseError, which names the message's type and the fix."""
        ...

    def decode(self, payload: bytes) -> object:
        """The message of a payload. Raises Undecodable."""
        ...


class BytesCodec:
    """Bytes, untouched but for those that look like a replayed letter."""

    escaped = _MARK[0]

    def plain(self, items: Sequence[object]) -> bool:
        """True for bytes that don't begin with the mark."""
        return _are_plain_bytes(items)

    def encode(self, message: object) -> bytes:
        """The bytes themselves; bytearray and memoryview are copied."""
        if isinstance(message, _BUFFERS):
            return guarded(bytes(cast("bytes", message)))
        raise MisuseError(
            f"codec 'bytes' got a message of type {type(message).__name__}: send bytes, or choose "
            "codec='json' or a pydantic model"
        )

    def decode(self, payload: bytes) -> bytes:
        return unmarked(payload)[0]


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


def json_writer(item: str = ",", key: str = ":") -> Callable[[object], str]:
    """Writes what ``json.dumps`` writes, without NaN and infinities, with these separators.

    ``JSONEncoder.encode`` makes the encoder in C anew for each value, which costs as much as to encode a short
    one. This one is made once; a value that holds itself ends in its RecursionError, and not in a ValueError.
    """
    plain = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(item, key))
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return plain.encode
    quote = json.encoder.encode_basestring
    encode = make(None, plain.default, quote, None, key, item, False, False, False)
    join = "".join
    return lambda value: join(encode(value, 0))


def read_json(text: bytes, *, constants: bool = True) -> object:
    """A JSON value, as ``json.loads`` reads it, which is asked for what the fast reader refuses: a byte order
    mark, half a surrogate pair, 200 levels of nesting, no JSON. ``constants``: NaN and infinities, too.
    Raises ValueError and RecursionError."""
    try:
        value: object = from_json(text, allow_inf_nan=constants)
    except ValueError:
        return json.loads(text, parse_constant=None if constants else _no_constant)
    return value


class JsonCodec:
    """JSON, as the standard library reads and writes it, without NaN and infinities."""

    def __init__(self) -> None:
        self._write = json_writer()

    def encode(self, message: object) -> bytes:
        """Compact JSON in UTF-8."""
        try:
            return self._write(message).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise MisuseError(
                f"a message of type {type(message).__name__} can't be written as JSON ({error}); "
                "nothing was accepted. Send JSON values or bytes, or choose another codec"
            ) from error

    def decode(self, payload: bytes) -> object:
        try:
            return read_json(unmarked(payload)[0], constants=False)
        except (ValueError, RecursionError) as error:
            raise Undecodable(f"not JSON: {type(error).__name__}") from error


class AutoCodec:
    """Bytes as they are, everything else as JSON, told apart by the first byte."""

    escaped = _MARK[0]

    def plain(self, items: Sequence[object]) -> bool:
        """True for bytes that don't begin with the mark."""
        return _are_plain_bytes(items)

    def __init__(self) -> None:
        self._json = JsonCodec()

    def encode(self, message: object) -> bytes:
        """Bytes as they are (one byte longer if they begin with the mark), else mark and JSON."""
        if type(message) is bytes and message[:1] != _MARK:
            return message
        if isinstance(message, _BUFFERS):
            payload = bytes(cast("bytes", message))
            return _MARK + payload if payload[:1] == _MARK else payload
        return _MARK + self._json.encode(message)

    def decode(self, payload: bytes) -> object:
        """What was sent."""
        if payload[:1] != _MARK:
            return payload
        try:
            value: object = from_json(payload[1:], allow_inf_nan=False)
        except ValueError:
            return self._decode_slowly(payload)
        return value

    def _decode_slowly(self, payload: bytes) -> object:
        """Bytes that begin with the mark, replayed letters, and JSON that the fast reader does not take."""
        rest = payload[1:]
        if rest[:1] == _MARK:
            return rest
        letter, replays = unmarked(payload)
        return self.decode(letter) if replays else self._json.decode(rest)


class GuardedCodec:
    """A codec of the user's own, whose payloads may be any bytes."""

    def __init__(self, inside: Codec) -> None:
        self._inside = inside

    def encode(self, message: object) -> bytes:
        """What the user's codec gives, told apart from a replayed letter."""
        payload = self._inside.encode(message)
        if not isinstance(cast("object", payload), bytes):
            kind = type(payload).__name__
            raise MisuseError(
                f"encode of the codec gave {a_or_an(kind)} for a message of type {type(message).__name__}; "
                "nothing was accepted. Let it give bytes"
            )
        return guarded(payload)

    def decode(self, payload: bytes) -> object:
        """What the user's codec makes of its own payload."""
        message = self._inside.decode(unmarked(payload)[0])
        if unrun := unrun_in(message):
            raise Undecodable(f"decode gave {a_or_an(unrun)}, whose body nobody has run")
        return message


class ModelCodec(Generic[M]):
    """Instances of one pydantic model, as JSON."""

    def __init__(self, model: type[M]) -> None:
        self.model = model

    def encode(self, message: object) -> bytes:
        """The model as JSON; a mapping is validated first."""
        if not isinstance(message, self.model):
            try:
                message = self.model.model_validate(message)
            except ValidationError as error:
                raise MisuseError(
                    f"a message of type {type(message).__name__} is no {self.model.__name__}; "
                    f"nothing was accepted: {_locations(error)}"
                ) from None
        return message.model_dump_json().encode()

    def decode(self, payload: bytes) -> M:
        """The validated model."""
        try:
            return self.model.model_validate_json(unmarked(payload)[0])
        except ValidationError as error:
            raise Undecodable(f"no {self.model.__name__}: {_locations(error)}") from None


CodecChoice: TypeAlias = str | type[BaseModel] | Codec
_NAMED: Mapping[str, Callable[[], Codec]] = {
    "auto": AutoCodec,
    "json": JsonCodec,
    "bytes": BytesCodec,
}


def choose_codec(choice: CodecChoice) -> Codec:
    """The codec that a user named. Raises ConfigurationError for what is none."""
    if isinstance(choice, str):
        return _NAMED[choice]() if choice in _NAMED else _refused(choice)
    if isinstance(choice, type):
        return _of_class(choice)
    return _own(choice)


def _of_class(choice: type[object]) -> Codec:
    if issubclass(choice, BaseModel):
        return ModelCodec(choice)
    if inspect.isfunction(inspect.getattr_static(choice, "encode", None)):
        raise ConfigurationError(
            f"codec is {choice!r}, a class: give one that was made, {choice.__name__}()"
        )
    return _own(choice)


def _own(choice: object) -> Codec:
    if not (hasattr(choice, "encode") and hasattr(choice, "decode")):
        _refused(choice)
    for name, argument in (("encode", "message"), ("decode", "payload")):
        what, function = f"{name} of the codec", getattr(choice, name)
        require_plain(what, function, "nobody would await it")
        require_call(what, function, argument, ConfigurationError)
    return GuardedCodec(cast("Codec", choice))


def _refused(choice: object) -> NoReturn:
    raise ConfigurationError(
        f"codec is {choice!r}: write 'auto', 'json' or 'bytes', a pydantic model, or an object with encode "
        "and decode, such as one over pydantic.TypeAdapter for a dataclass"
    )


def wire_form(codec: Codec) -> str:
    """Names the form of payloads; two codecs with equal names read each other's. Empty where only the user
    knows, as with bytes."""
    if isinstance(codec, AutoCodec):
        return "auto"
    return "json" if isinstance(codec, JsonCodec | ModelCodec) else ""


def are_alike(codec: Codec, other: Codec) -> bool:
    """True when a payload of one, which was not replayed, is what the other writes of the same message."""
    return type(codec) is AutoCodec and type(other) is AutoCodec


_DIGITS = bytes.maketrans(b"123456789E", b"000000000e")
_OVERFLOWS = (b"0e000", b"0" * 309)
"""How numbers look, every digit a zero, that may be too large for a float: they are read as infinite."""


def payloads_of(
    codec: Codec, messages: Sequence[object], texts: Sequence[bytes], longest: int
) -> list[bytes] | None:
    """Payloads of messages whose JSON stands in these texts, as the codec would write it but for blanks; each is
    an object of its own. None where it writes something else, and where blanks might make one too long. Raises
    MisuseError for what the codec refuses."""
    if type(codec) is not AutoCodec or max(map(len, texts), default=0) >= longest:
        return None
    payloads = [_MARK + text for text in texts]
    if _may_overflow(b"\n".join(texts)):
        for at, text in enumerate(texts):
            if _may_overflow(text):
                payloads[at] = codec.encode(messages[at])
    return payloads


def _may_overflow(text: bytes) -> bool:
    flat = text.translate(_DIGITS, b"+")
    return any(sign in flat for sign in _OVERFLOWS)


def encode_all(codec: Codec, messages: Sequence[object]) -> list[bytes]:
    """The payloads of these messages."""
    if _is_plain(codec, messages):
        return cast("list[bytes]", list(messages))
    return [codec.encode(message) for message in messages]


def decoder(codec: Codec, payloads: Sequence[bytes]) -> Callable[[bytes], object] | None:
    """What decodes these payloads; None when they are messages as they are."""
    if isinstance(codec, BytesCodec | AutoCodec) and not may_hold_marks(payloads):
        return None
    return codec.decode


def escaped_by(codec: Codec) -> int | None:
    """The first byte with which bytes may not travel as they are; None for another codec than of bytes."""
    return codec.escaped if isinstance(codec, BytesCodec | AutoCodec) else None


def may_hold_marks(payloads: Sequence[bytes]) -> bool:
    """False when no payload begins with the mark; True, to be on the safe side, when one of them is empty."""
    try:
        return _MARK[0] in map(_first_byte, payloads)
    except IndexError:
        return True


def _are_plain_bytes(items: Sequence[object]) -> bool:
    return set(map(type, items)) <= _BYTES and not may_hold_marks(cast("Sequence[bytes]", items))


def _is_plain(codec: Codec, items: Sequence[object]) -> bool:
    return isinstance(codec, BytesCodec | AutoCodec) and codec.plain(items)


def _locations(error: ValidationError) -> str:
    # Where and why, never the value: errors get into logs, payloads must not.
    return "; ".join(
        f"{'.'.join(map(str, problem['loc'])) or 'message'}: {problem['msg']}"
        for problem in error.errors(include_input=False, include_url=False)
    )
