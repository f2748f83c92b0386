"""What a frame is, in the terms of a trace: its kind, layer, epoch, the run of messages that it carries.

Links, incarnations, credit and stamps are left out: they are random, or hints, and a frame keeps its name without.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from operator import attrgetter
from typing import Protocol, TypeAlias, cast

from surepipe.pipes import codec
from surepipe.pipes.frames import (
    Confirm,
    Data,
    Introduction,
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


class _Details(dict[str, str]):
    def __missing__(self, kind: str) -> str:
        return self.setdefault(kind, f'{{"frame":"{kind}"}}')


DETAILS: Mapping[str, str] = _Details()
"""The detail of a row about a frame, by the kind of the frame, whatever it is."""


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


def _introduction(frame: Introduction) -> Description:
    return ("introduction", frame.layer, 0, 0, 0, (frame.stack, frame.payloads))


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
    Introduction: _introduction,
}


def describe(frame: object) -> Description:
    """What any frame is; also one of a machine that brings records of its own."""
    known = _KNOWN.get(type(frame))
    if known is None:
        known = _KNOWN[type(frame)] = _reader_of(frame)
    return known(frame)


def carried(frame: object) -> list[tuple[int, int, int]]:
    """The messages of the pipe (epoch, first, count) that a frame of an inner layer brings, run by run."""
    if not isinstance(frame, Data | Numbered):
        return []
    if frame.layer == 0:
        return [(frame.epoch, frame.first, len(frame.payloads))]
    return [run for payload in frame.payloads for run in carried(codec.decode(payload))]


class Carrier(Protocol):
    """A record that carries messages."""

    payloads: Sequence[bytes]


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
    where = _where(("layer", "epoch", place or ""), names)
    kind, one = type(frame).__name__.lower(), 1 if place else 0

    def read_data(frame: object) -> Description:
        layer, epoch, first = where(frame)
        return ("data", layer, epoch, first, len(cast("Carrier", frame).payloads), ())

    def read_bare(frame: object) -> Description:
        layer, epoch, first = where(frame)
        return (kind, layer, epoch, first, one, ())

    def read(frame: object) -> Description:
        layer, epoch, first = where(frame)
        return (kind, layer, epoch, first, one, tuple(getattr(frame, name) for name in rest))

    if "payloads" in rest:
        return read_data
    return read if rest else read_bare


def _opaque(frame: object) -> Description:
    content = frame if isinstance(frame, bytes) else repr(frame).encode()
    return ("bytes", 0, 0, 0, 0, (blake2b(content, digest_size=8).hexdigest(),))


def _where(wanted: Sequence[str], names: Sequence[str]) -> Callable[[object], tuple[int, int, int]]:
    """How to read three numbers of a record; those that it has not are 0."""
    known = [name in names for name in wanted]
    if all(known):
        return attrgetter(*wanted)
    if known == [False, True, True]:
        get = attrgetter(*wanted[1:])
        return lambda frame: (0, *get(frame))
    return lambda frame: cast("tuple[int, int, int]", tuple(getattr(frame, n, 0) for n in wanted))
