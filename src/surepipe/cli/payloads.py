"""Payloads of dead letters as people and programs read them: JSON, text, or bytes in hexadecimal.

What a terminal would obey rather than show (escape sequences, marks that turn the direction of writing) never
reaches it: JSON escapes it, and a text that has it is shown as bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeAlias, cast

from surepipe.actors.codecs import unmarked

SHOWN_MAX = 4096
"""Bytes that are shown in hexadecimal; --raw gives all."""
SPARE_LEVELS = 20
"""By how much deeper than a payload what it is written in may be nested, and the code that writes it."""
ROW = 16
_MARK = b"\x1e"
"""Stands before JSON where the codec is auto, and before bytes that happen to begin with it."""
_BREAKS = str.maketrans("", "", "\n\t")
Kind: TypeAlias = Literal["json", "text", "bytes"]


class Read(NamedTuple):
    """What a payload is, as far as its bytes tell."""

    kind: Kind
    value: object


def read_payload(payload: bytes) -> Read:
    """The message of a payload: a JSON value, a text, or bytes."""
    content, _ = unmarked(payload)
    if content.startswith(_MARK * 2):
        return Read("bytes", content[1:])
    content = content.removeprefix(_MARK)
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return Read("bytes", content)
    try:
        return Read("json", _parsed(text))
    except (ValueError, RecursionError):
        text = text.replace("\r\n", "\n")
        return Read("text", text) if _is_plain(text) else Read("bytes", content)


def _parsed(text: str) -> object:
    """A value of JSON. Raises ValueError for what only Python takes for one, RecursionError where it is too deep.

    Reading may go deeper than writing (from Python 3.12 on), so it is written once, to be sure that it can be.
    """
    value = cast(
        "object", json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    )
    deeper = value
    for _ in range(SPARE_LEVELS):
        deeper = [deeper]
    json.dumps(deeper, indent=2)
    return value


def _refuse_constant(name: str) -> object:
    """Raises ValueError: NaN and Infinity are no JSON."""
    raise ValueError(f"{name} is no JSON")


def _is_plain(text: str) -> bool:
    """Whether a terminal shows all of it, and obeys nothing."""
    return text.translate(_BREAKS).isprintable()


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object. Raises ValueError for a key that stands twice: one of its values would not be shown."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice")
    return found


def payload_facts(payload: bytes) -> dict[str, object]:
    """For machines: the value itself, with bytes in hexadecimal, and which of the three it is."""
    kind, value = read_payload(payload)
    shown = value.hex() if isinstance(value, bytes) else value
    return {"payload_is": kind, "payload": shown}


def payload_lines(payload: bytes) -> Iterator[str]:
    """For people: how long it is and what it is, then the payload."""
    kind, value = read_payload(payload)
    yield f"{len(payload)} bytes, {_KINDS[kind]}:"
    if isinstance(value, bytes):
        yield from _hexadecimal(value)
    elif kind == "text":
        yield from str(value).split("\n")
    else:
        yield from _written(value).split("\n")


_KINDS: dict[Kind, str] = {"json": "JSON", "text": "text", "bytes": "neither JSON nor text"}


def _written(value: object) -> str:
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return text if _is_plain(text) else json.dumps(value, indent=2)


def _hexadecimal(value: bytes) -> Iterator[str]:
    """Where a row begins, its bytes, and those of them that are letters."""
    for start in range(0, min(len(value), SHOWN_MAX), ROW):
        row = value[start : start + ROW]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        yield f"{start:04x}  {row.hex(' ').ljust(3 * ROW - 1)}  {letters}"
    if len(value) > SHOWN_MAX:
        yield f"and {len(value) - SHOWN_MAX} bytes more: --raw gives all of them"
