"""How a dead letter is written down: one line of JSON with sorted keys, then the payload as it is.

The same letter always gives the same bytes. Times are microseconds.
"""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from typing import cast
from urllib.parse import quote

from surepipe.effects import Letter

FORMAT = 1
_KEYS = {field.name for field in fields(Letter)} - {"payload", "place"} | {"format"}
_MAYBE = {"traceback"}


class NoLetter(ValueError):
    """These bytes are not a letter."""


def encode(letter: Letter) -> bytes:
    """The bytes of a letter."""
    head: dict[str, object] = {**asdict(letter), "format": FORMAT}
    del head["payload"], head["place"]
    if not letter.traceback:
        del head["traceback"]  # as letters were written before there was any
    line = json.dumps(head, sort_keys=True, separators=(",", ":"))
    return line.encode() + b"\n" + letter.payload


def decode(data: bytes) -> Letter:
    """The letter that these bytes are; raises NoLetter when they are none."""
    line, newline, payload = data.partition(b"\n")
    if not newline:
        raise NoLetter(f"only one line: {line[:80]!r}")
    head = _Head(line)
    return Letter(
        pipe=head.text("pipe"),
        layer=head.number("layer"),
        epoch=head.number("epoch"),
        seq=head.number("seq"),
        payload=payload,
        attempts=head.number("attempts"),
        first_failure_us=head.number("first_failure_us"),
        last_failure_us=head.number("last_failure_us"),
        error_type=head.text("error_type"),
        error_text=head.text("error_text"),
        producer=head.text("producer"),
        replays=head.number("replays"),
        traceback=head.text("traceback", absent=""),
    )


class _Head:
    """The first line of a letter."""

    def __init__(self, line: bytes) -> None:
        try:
            found: object = json.loads(line)
        except ValueError as error:
            raise NoLetter(f"no line of JSON: {line[:80]!r}") from error
        if not isinstance(found, dict) or set(cast("dict[str, object]", found)) | _MAYBE != _KEYS:
            raise NoLetter(f"not the keys of a letter: {line[:80]!r}")
        self._values = cast("dict[str, object]", found)
        if self._values["format"] != FORMAT:
            raise NoLetter(f"format {self._values['format']!r}; this version reads {FORMAT}")

    def number(self, key: str) -> int:
        value = self._values[key]
        if type(value) is not int:
            raise NoLetter(f"{key} is {value!r}, no number")
        return value

    def text(self, key: str, absent: str | None = None) -> str:
        value = self._values.get(key, absent)
        if not isinstance(value, str):
            raise NoLetter(f"{key} is {value!r}, no text")
        return value


def name_of(letter: Letter) -> str:
    """The name of a message for all time. Also the producer of its letter, so that one message has one letter."""
    pipe, producer = (
        quote(part, safe=" ", errors="surrogatepass") for part in (letter.pipe, letter.producer)
    )
    return f"{pipe}/{producer}/{letter.layer}/{letter.epoch}/{letter.seq}"
