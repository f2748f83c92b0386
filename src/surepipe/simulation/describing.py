"""What a frame is, in the terms of a trace: its kind, layer, epoch, the run of messages that it carries.

Links, incarnations, credit and stamps are left out: they are random, or hints, and a frame keeps its name without.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from operator import attrgetter
from typing import TypeAlias

from surepipe.pipes.frames import (
    Confirm,
    Data,
    Nack,
    Numbered,
    Open,
    Opened,
    Probe,
    Refused,
    Unknown,
)

Description: TypeAlias = tuple[str, int, int, int, int, tuple[object, ...]]
"""kind, layer, epoch, first, count, content of a control frame."""

DETAILS: dict[str, str] = {}
"""The detail of a row about a frame, by the kind of the frame."""


def frame_detail(kind: str) -> str:
    """What a row says of the kind of its frame."""
    found = DETAILS.get(kind)
    if found is None:
        found = DETAILS[kind] = f'{{"frame":"{kind}"}}'
    return found


def _run(frame: Data | Numbered) -> Description:
    return ("data", frame.layer, frame.epoch, frame.first, len(frame.payloads), ())


def _confirm(frame: Confirm) -> Description:
    """The run that a confirm speaks of is the longest one that it declares settled."""
    if frame.cum or not frame.done:
        return ("confirm", frame.layer, frame.epoch, 1, frame.cum, (frame.done, frame.held))
    first, last = max(frame.done, key=lambda run: run[1] - run[0])
    about = (frame.done, frame.held)
    return ("confirm", frame.layer, frame.epoch, first, last - first + 1, about)


def _nack(frame: Nack) -> Description:
    return ("nack", frame.layer, frame.epoch, 0, 0, (frame.missing,))


def _probe(frame: Probe) -> Description:
    return ("probe", frame.layer, frame.epoch, 0, 0, (frame.base, frame.next))


def _open(frame: Open) -> Description:
    return ("open", frame.layer, frame.epoch, 0, 0, (frame.life, frame.base))


def _opened(frame: Opened) -> Description:
    return ("opened", frame.layer, frame.epoch, 0, 0, (frame.expected, frame.cum, frame.closed))


def _unknown(frame: Unknown) -> Description:
    return ("unknown", frame.layer, 0, 0, 0, ())


def _refused(frame: Refused) -> Description:
    return ("refused", frame.layer, frame.epoch, 0, 0, (frame.reason.name.lower(), frame.known))


_KNOWN: dict[type, Callable[..., Description]] = {
    Data: _run,
    Numbered: _run,
    Confirm: _confirm,
    Nack: _nack,
    Probe: _probe,
    Open: _open,
    Opened: _opened,
    Unknown: _unknown,
    Refused: _refused,
}


def describe(frame: object) -> Description:
    """What any frame is; also one of a machine that brings records of its own."""
    known = _KNOWN.get(type(frame))
    if known is None:
        known = _KNOWN[type(frame)] = _reader_of(frame)
    return known(frame)


_PLACES = ("first", "seq", "number")
_LEFT_OUT = frozenset({"layer", "epoch", "pipe", "link", "incarnation", "stamp", "echo", *_PLACES})


def _reader_of(frame: object) -> Callable[..., Description]:
    """How to read frames of a type that no product machine sends.

    A record with ``payloads`` carries messages from its ``first``, ``seq`` or ``number`` on; another one with such
    an attribute speaks of that message; whatever else a record holds is its content.
    """
    if not is_dataclass(frame):
        return _opaque
    names = [field.name for field in fields(frame)]
    place = next((name for name in _PLACES if name in names), None)
    rest = tuple(name for name in names if name not in _LEFT_OUT)
    layer, epoch, first = (_getter(name, names) for name in ("layer", "epoch", place or ""))
    kind, one = type(frame).__name__.lower(), 1 if place else 0

    def read_data(frame: object) -> Description:
        count = len(getattr(frame, "payloads", ()))
        return ("data", layer(frame), epoch(frame), first(frame), count, ())

    def read_bare(frame: object) -> Description:
        return (kind, layer(frame), epoch(frame), first(frame), one, ())

    def read(frame: object) -> Description:
        about = tuple(getattr(frame, name) for name in rest)
        return (kind, layer(frame), epoch(frame), first(frame), one, about)

    if "payloads" in rest:
        return read_data
    return read if rest else read_bare


def _opaque(frame: object) -> Description:
    content = frame if isinstance(frame, bytes) else repr(frame).encode()
    return ("bytes", 0, 0, 0, 0, (blake2b(content, digest_size=8).hexdigest(),))


def _getter(name: str, names: Sequence[str]) -> Callable[[object], int]:
    """How to read a number that records of this type may have."""
    return attrgetter(name) if name in names else _zero


def _zero(_frame: object) -> int:
    return 0
