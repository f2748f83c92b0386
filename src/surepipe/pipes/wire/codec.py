"""Frames as bytes.

A frame is ``"SP"``, version, kind, total length, layer, pipe tag, then the fields of its kind, then
a CRC-32 of everything before it; all numbers are big-endian. There is one encoding for each frame,
so decoding and encoding again gives the same bytes.

Bytes from a route may be anything. ``decode`` answers each input with a frame that keeps every rule
of ``frames``, or with the counter under which the input is to be counted; it raises nothing, and
allocates no more than the input holds. Cost is per frame: the lengths of a run are packed and
unpacked in one call, and the payloads are joined and cut without a step of our own for each.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate, chain, pairwise
from typing import Literal, cast
from zlib import crc32

from surepipe.core.effects import Ranges
from surepipe.core.payloads import Payloads, sized
from surepipe.errors import MisuseError
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

VERSION = 1
RANGES_MAX = 64
"""The most ranges that one field of a frame may hold."""

_MAGIC = b"SP"
_START = len(_MAGIC) + 1
_HEAD = struct.Struct(">2sBBIHQ")
_CHECKSUM = struct.Struct(">I")
_COUNT = struct.Struct(">I")
_WIDTH = _COUNT.size
_RANGE = 2 * 8
_CUT_AT_ONCE_MAX = 1024
"""Payloads of one size are cut in one call, several times faster; `struct` remembers how, so not for any count."""

# q: a number, so nothing above 2**63 - 1 fits. Q: a tag, link, incarnation or digest.
# B: a flag or a reason.
_NUMBERED = struct.Struct(">qq")
_DATA = struct.Struct(">QqqqqB")
_PROBE = struct.Struct(">Qqqq")
_CONFIRM = struct.Struct(">QQqqqq")
_NACK = struct.Struct(">QQq")
_OPEN = struct.Struct(">qQqqqQ")
_OPENED = struct.Struct(">QQqqqqB")
_UNKNOWN = struct.Struct(">QQ")
_REFUSED = struct.Struct(">QqBq")
_INTRODUCTION = struct.Struct(">BB")
TEXT_MAX = 4096
"""The most bytes of a text in a frame."""


class _Kind(IntEnum):
    NUMBERED = 1
    DATA = 2
    PROBE = 3
    CONFIRM = 4
    NACK = 5
    OPEN = 6
    OPENED = 7
    UNKNOWN = 8
    REFUSED = 9
    INTRODUCTION = 10


@dataclass(frozen=True, slots=True)
class NotAFrame:
    """These bytes are no frame of this version; ``counter`` is the one that counts them."""

    counter: Literal["malformed", "version"]


_MALFORMED = NotAFrame("malformed")
_OTHER_VERSION = NotAFrame("version")


class _Malformed(Exception):
    """The bytes break a rule of the format."""


def encode(frame: Frame) -> bytes:
    """The bytes of a frame.

    Raises MisuseError for a frame that ``decode`` would not accept: a number out of range, ranges
    out of order or more than ``RANGES_MAX``, a run without messages.
    """
    if not _is_sound(frame):
        raise MisuseError(
            f"encoding a {type(frame).__name__} frame of layer {frame.layer}: a number is below its "
            f"bound, a run is empty, or ranges are out of order or more than {RANGES_MAX}"
        )
    try:
        kind, parts = _fields(frame)
        fields = b"".join(parts)
        length = _HEAD.size + len(fields) + _CHECKSUM.size
        head = _HEAD.pack(_MAGIC, VERSION, kind, length, frame.layer, frame.pipe)
    except struct.error as error:
        raise MisuseError(
            f"encoding a {type(frame).__name__} frame of layer {frame.layer}: a field does not fit "
            f"({error})"
        ) from None
    return b"".join((head, fields, _CHECKSUM.pack(crc32(fields, crc32(head)))))


class EncodedFrame(bytes):
    """The bytes of a frame that is still at hand, so who gets them in the same process need not decode them.

    It is a message of the layer below, and keeps the frame's payloads alive while that layer keeps it.
    """

    frame: Frame


def encoded(frame: Frame) -> EncodedFrame:
    """As ``encode``, with the frame. Only for a frame that nobody changes any more."""
    made = EncodedFrame(encode(frame))
    made.frame = frame
    return made


def decode(data: bytes) -> Frame | NotAFrame:
    """The frame that these bytes are, or what to count them as. Never raises."""
    if len(data) < _START or not data.startswith(_MAGIC):
        return _MALFORMED
    if data[_START - 1] != VERSION:
        return _OTHER_VERSION
    try:
        frame = _parsed(data)
    except _Malformed:
        return _MALFORMED
    return frame if _is_sound(frame) else _MALFORMED


def decoded(frame: object) -> object:
    """What arrived, whichever way a route passes it: the frame of bytes, anything else as it is."""
    if type(frame) is EncodedFrame:
        return frame.frame
    if isinstance(frame, bytes | bytearray | memoryview):
        return decode(bytes(cast("bytes", frame)))
    return frame


def pipe_of(frame: object) -> int | None:
    """The tag of the pipe that a frame, or the bytes of one, is for, unchecked; None when it is no frame."""
    if isinstance(frame, bytes | bytearray | memoryview):
        data = bytes(cast("bytes", frame))
        is_whole = len(data) >= _HEAD.size and data.startswith(_MAGIC)
        return int(_HEAD.unpack_from(data)[5]) if is_whole else None
    tag = getattr(frame, "pipe", None)
    return tag if isinstance(tag, int) else None


def _parsed(data: bytes) -> Frame:
    if len(data) < _HEAD.size + _CHECKSUM.size:
        raise _Malformed
    _, _, kind, length, layer, pipe = _HEAD.unpack_from(data)
    end = len(data) - _CHECKSUM.size
    if length != len(data) or kind not in _READERS:
        raise _Malformed
    if _CHECKSUM.unpack_from(data, end)[0] != crc32(memoryview(data)[:end]):
        raise _Malformed
    reader = _Reader(data, _HEAD.size, end)
    frame = _READERS[kind](pipe, layer, reader)
    reader.done()
    return frame


# Writing.


def _fields(frame: Frame) -> tuple[int, Sequence[bytes]]:  # noqa: PLR0911 - one for each kind
    match frame:
        case Numbered():
            fields = _NUMBERED.pack(frame.epoch, frame.first)
            return _Kind.NUMBERED, (fields, *_run(frame.payloads))
        case Data():
            fields = _DATA.pack(
                frame.link, frame.epoch, frame.first, frame.base, frame.stamp, frame.ask
            )
            return _Kind.DATA, (fields, *_run(frame.payloads))
        case Probe():
            return _Kind.PROBE, (_PROBE.pack(frame.link, frame.epoch, frame.base, frame.next),)
        case Confirm():
            fields = _CONFIRM.pack(
                frame.link, frame.incarnation, frame.epoch, frame.cum, frame.limit, frame.echo
            )
            return _Kind.CONFIRM, (fields, _packed(frame.done), _packed(frame.held))
        case Nack():
            fields = _NACK.pack(frame.link, frame.incarnation, frame.epoch)
            return _Kind.NACK, (fields, _packed(frame.missing))
        case Open():
            fields = _OPEN.pack(
                frame.life, frame.link, frame.epoch, frame.base, frame.next, frame.stack
            )
            return _Kind.OPEN, (fields,)
        case Opened():
            fields = _OPENED.pack(
                frame.link,
                frame.incarnation,
                frame.epoch,
                frame.expected,
                frame.cum,
                frame.limit,
                frame.closed,
            )
            return _Kind.OPENED, (fields,)
        case Unknown():
            return _Kind.UNKNOWN, (_UNKNOWN.pack(frame.link, frame.incarnation),)
        case Refused():
            fields = _REFUSED.pack(frame.link, frame.epoch, frame.reason, frame.known)
            return _Kind.REFUSED, (fields,)
        case Introduction():
            fields = _INTRODUCTION.pack(frame.sends, frame.asks)
            return _Kind.INTRODUCTION, (fields, *_text(frame.stack), *_text(frame.payloads))


def _run(payloads: Sequence[bytes]) -> Sequence[bytes]:
    count, run = len(payloads), sized(payloads)
    if run.is_uniform:
        lengths = _COUNT.pack(count) + _COUNT.pack(run.longest) * count
    else:
        lengths = struct.pack(f">{count + 1}I", count, *map(len, run))
    return (lengths, *run)


def _text(text: str) -> Sequence[bytes]:
    data = text.encode()
    return (_COUNT.pack(len(data)), data)


def _packed(ranges: Ranges) -> bytes:
    return struct.pack(f">I{2 * len(ranges)}q", len(ranges), *chain.from_iterable(ranges))


# Reading.


class _Reader:
    """A place in the fields of a frame; what is asked for beyond their end is malformed."""

    __slots__ = ("_at", "_data", "_end")

    def __init__(self, data: bytes, at: int, end: int) -> None:
        self._data = data
        self._at = at
        self._end = end

    def numbers(self, layout: struct.Struct) -> tuple[int, ...]:
        """Fields of fixed width."""
        at = self._advance(layout.size)
        return layout.unpack_from(self._data, at)

    def ranges(self) -> Ranges:
        """A counted list of ranges."""
        (count,) = self.numbers(_COUNT)
        if count > RANGES_MAX:
            raise _Malformed
        at = self._advance(count * _RANGE)
        bounds = struct.unpack_from(f">{2 * count}q", self._data, at)
        return tuple(zip(bounds[::2], bounds[1::2], strict=True))

    def run(self) -> Payloads:
        """The payloads of a run: they fill the frame up to its end."""
        (count,) = self.numbers(_COUNT)
        at = self._advance(count * _WIDTH)  # checked before anything of that size is made
        lengths = struct.unpack_from(f">{count}I", self._data, at)
        data, size = self._data, sum(lengths)
        longest, start = max(lengths, default=0), self._advance(size)
        if 0 < count <= _CUT_AT_ONCE_MAX and lengths.count(lengths[0]) == count:
            return Payloads(
                struct.unpack_from(f"{lengths[0]}s" * count, data, start), size, longest
            )
        ends = accumulate(lengths, initial=start)
        return Payloads([data[a:b] for a, b in pairwise(ends)], size, longest)

    def text(self) -> str:
        (size,) = self.numbers(_COUNT)
        start = self._advance(size)
        try:
            return self._data[start : start + size].decode()
        except UnicodeDecodeError:
            raise _Malformed from None

    def done(self) -> None:
        """Nothing may be left."""
        if self._at != self._end:
            raise _Malformed

    def _advance(self, size: int) -> int:
        at = self._at
        self._at = at + size
        if self._at > self._end:
            raise _Malformed
        return at


def _numbered(pipe: int, layer: int, reader: _Reader) -> Frame:
    epoch, first = reader.numbers(_NUMBERED)
    payloads = reader.run()
    return Numbered(pipe, layer, epoch, first, payloads)


def _data(pipe: int, layer: int, reader: _Reader) -> Frame:
    link, epoch, first, base, stamp, ask = reader.numbers(_DATA)
    payloads = reader.run()
    return Data(pipe, layer, link, epoch, first, base, stamp, _flag(ask), payloads)


def _probe(pipe: int, layer: int, reader: _Reader) -> Frame:
    return Probe(pipe, layer, *reader.numbers(_PROBE))


def _confirm(pipe: int, layer: int, reader: _Reader) -> Frame:
    link, incarnation, epoch, cum, limit, echo = reader.numbers(_CONFIRM)
    done, held = reader.ranges(), reader.ranges()
    return Confirm(pipe, layer, link, incarnation, epoch, cum, done, held, limit, echo)


def _nack(pipe: int, layer: int, reader: _Reader) -> Frame:
    link, incarnation, epoch = reader.numbers(_NACK)
    missing = reader.ranges()
    return Nack(pipe, layer, link, incarnation, epoch, missing)


def _open(pipe: int, layer: int, reader: _Reader) -> Frame:
    return Open(pipe, layer, *reader.numbers(_OPEN))


def _opened(pipe: int, layer: int, reader: _Reader) -> Frame:
    link, incarnation, epoch, expected, cum, limit, closed = reader.numbers(_OPENED)
    return Opened(pipe, layer, link, incarnation, epoch, expected, cum, limit, _flag(closed))


def _unknown(pipe: int, layer: int, reader: _Reader) -> Frame:
    return Unknown(pipe, layer, *reader.numbers(_UNKNOWN))


def _refused(pipe: int, layer: int, reader: _Reader) -> Frame:
    link, epoch, reason, known = reader.numbers(_REFUSED)
    if reason not in _REASONS:
        raise _Malformed
    return Refused(pipe, layer, link, epoch, _REASONS[reason], known)


def _introduction(pipe: int, layer: int, reader: _Reader) -> Frame:
    sends, asks = map(_flag, reader.numbers(_INTRODUCTION))
    return Introduction(pipe, layer, sends, asks, reader.text(), reader.text())


def _flag(value: int) -> bool:
    if value > 1:  # another encoding of True would not survive being encoded again
        raise _Malformed
    return value == 1


_REASONS = {int(reason): reason for reason in RefusedReason}
_READERS: dict[int, Callable[[int, int, _Reader], Frame]] = {
    _Kind.NUMBERED: _numbered,
    _Kind.DATA: _data,
    _Kind.PROBE: _probe,
    _Kind.CONFIRM: _confirm,
    _Kind.NACK: _nack,
    _Kind.OPEN: _open,
    _Kind.OPENED: _opened,
    _Kind.UNKNOWN: _unknown,
    _Kind.REFUSED: _refused,
    _Kind.INTRODUCTION: _introduction,
}


# The rules that widths of fields don't give; the same for writing and reading.


def _is_sound(frame: Frame) -> bool:  # noqa: PLR0911 - one for each kind
    match frame:
        case Numbered(_, _, epoch, first, payloads):
            return epoch >= 0 and _is_run(first, payloads)
        case Data(_, _, _, epoch, first, base, stamp, _, payloads):
            return epoch >= 0 and base >= 1 and stamp >= 0 and _is_run(first, payloads)
        case Probe(_, _, _, epoch, base, following):
            return epoch >= 0 and 1 <= base <= following
        case Confirm():
            numbers = (frame.epoch, frame.cum, frame.limit, frame.echo)
            return min(numbers) >= 0 and _are_ranges(frame.done) and _are_ranges(frame.held)
        case Nack():
            return frame.epoch >= 0 and _are_ranges(frame.missing)
        case Open():
            return frame.life >= 0 and frame.epoch >= 0 and 1 <= frame.base <= frame.next
        case Opened():
            return min(frame.epoch, frame.expected, frame.cum, frame.limit) >= 0
        case Unknown():
            return True
        case Refused():
            return frame.epoch >= 0 and frame.known >= 0
        case Introduction():
            return bool(frame.stack) and _is_text(frame.stack) and _is_text(frame.payloads)


def _is_run(first: int, payloads: Sequence[bytes]) -> bool:
    return first >= 1 and 1 <= len(payloads) <= MAX_NUMBER - first + 1


def _is_text(text: str) -> bool:
    """What may be shown to people as it is, whoever wrote it."""
    return text.isprintable() and len(text.encode()) <= TEXT_MAX


def _are_ranges(ranges: Ranges) -> bool:
    """Positive, ordered, disjoint, and not too many."""
    bounds = [0]
    for first, last in ranges:
        if not bounds[-1] < first <= last:
            return False
        bounds.append(last)
    return len(ranges) <= RANGES_MAX
