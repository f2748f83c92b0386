"""The bytes of the replicated queue: whatever is hashed, signed, stored or sent.

A value is bytes, text, a whole number of 64 bits, or a tuple of values. There is one way to write each, so equal
values have equal digests everywhere, and what is read back writes the same bytes again.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import field
from functools import lru_cache
from hashlib import sha256
from typing import Any, Protocol, TypeAlias

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from surepipe.core.records import record
from surepipe.errors import ConfigurationError, SurepipeError

Value: TypeAlias = "bytes | str | int | tuple[Value, ...]"
NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
"""Of queues, nodes and submitters."""
NESTING_MAX = 8
KEY_BYTES_MAX = 256
"""The longest ``key`` and the longest ``dedupe`` of a message."""
DIGEST_BYTES, SIGNATURE_BYTES = 32, 64
_SIZED, _NUMBER = struct.Struct(">cI").pack, struct.Struct(">cq").pack
_U32, _I64 = struct.Struct(">I").unpack_from, struct.Struct(">q").unpack_from
_BYTES, _TEXT, _INTEGER, _TUPLE = b"bsit"
_NO_VALUE = "a number beyond 64 bits, too deep a tuple, or no value"


class Malformed(SurepipeError):
    """These bytes are no value, or not the one that is expected here."""


class Encoded(bytes):
    """A value that is written already: within another one it stands as it is."""


def encoded_tuple(items: Sequence[bytes]) -> Encoded:
    """A tuple of values that are written already."""
    return Encoded(_SIZED(b"t", len(items)) + b"".join(items))


def encode(value: Value) -> bytes:
    """Write a value. Raises Malformed for what is none, such as a number beyond 64 bits."""
    out: list[bytes] = []
    try:
        _write((value,), out, -1)
    except struct.error:
        raise Malformed(_NO_VALUE) from None
    return b"".join(out)


def _write(items: tuple[Any, ...], out: list[bytes], depth: int) -> None:
    """Write a tuple, or at depth -1 what is in it. Most of that are no tuples, and take no call."""
    if depth >= NESTING_MAX:
        raise Malformed(_NO_VALUE)
    add = out.append
    if depth >= 0:
        add(_SIZED(b"t", len(items)))
    for each in items:
        kind = each.__class__
        if kind is bytes:
            add(_SIZED(b"b", len(each)))
            add(each)
        elif kind is int:
            add(_NUMBER(b"i", each))
        elif kind is str:
            raw = each.encode()
            add(_SIZED(b"s", len(raw)))
            add(raw)
        elif kind is tuple:
            _write(each, out, depth + 1)
        elif kind is Encoded:
            add(each)
        else:
            raise Malformed(_NO_VALUE)


def decode(data: bytes) -> Value:
    """Read a value that takes all of the bytes. Raises Malformed, and nothing else, whatever they are."""
    try:
        (value,), end = _read(data, 0, 1, -1)
    except (struct.error, IndexError):
        raise Malformed("cut off") from None
    if end != len(data):
        raise Malformed("bytes behind the value")
    return value


def _read(data: bytes, at: int, count: int, depth: int) -> tuple[tuple[Value, ...], int]:
    """So many values, one behind the other."""
    if depth >= NESTING_MAX:
        raise Malformed("too deep")
    items: list[Value] = []
    for _ in range(count):
        tag = data[at]
        if tag == _INTEGER:
            items.append(_I64(data, at + 1)[0])
            at += 9
            continue
        size, begin = _U32(data, at + 1)[0], at + 5
        if tag == _TUPLE:
            item, at = _read(data, begin, size, depth + 1)
            items.append(item)
            continue
        at = begin + size
        if at > len(data):
            raise Malformed("cut off")
        if tag == _BYTES:
            items.append(data[begin:at])
        elif tag == _TEXT:
            try:
                items.append(data[begin:at].decode())
            except UnicodeDecodeError:
                raise Malformed("a text that isn't UTF-8") from None
        else:
            raise Malformed("of no kind that is known")
    return tuple(items), at


def taken(value: Value, *kinds: type) -> Any:
    """The fields of a tuple, if they are of these kinds and as many. Raises Malformed."""
    if not isinstance(value, tuple) or tuple(map(type, value)) != kinds:
        raise Malformed("other fields than expected")
    return value


def signed_bytes(tag: str, value: Value) -> bytes:
    """What a signature of this kind of value signs."""
    return b"surepipe/rmq/" + tag.encode() + b"/1\n" + encode(value)


def digest(tag: str, value: Value) -> bytes:
    """The hash of a value of this kind; that of equal fields of another kind is another one."""
    return sha256(signed_bytes(tag, value)).digest()


FIRST_POINT, LAST_POINT = bytes(8), b"\xff" * 8


def point(key: bytes) -> bytes:
    """Where a key stands among all keys: the first 8 bytes of its hash."""
    return sha256(key).digest()[:8]


# Quorums.


@record
class Quorum:
    """How many of n nodes decide, how many may lie, and how many may be down (the liars among them)."""

    size: int
    may_lie: int
    may_be_down: int


def quorum(n: int, faults: str = "byzantine") -> Quorum:
    """Of n nodes with these ``faults``: any two quorums share a node that doesn't lie."""
    if n < 1 or faults not in ("byzantine", "crash"):
        raise ConfigurationError(
            f"a quorum of {n} nodes with faults {faults!r}: give one node or more, and 'byzantine' or 'crash'"
        )
    if faults == "crash":
        return Quorum(n // 2 + 1, 0, n - n // 2 - 1)
    lie = (n - 1) // 3
    size = (n + lie) // 2 + 1
    return Quorum(size, lie, n - size)


# Keys of nodes.


class MemberKeys(Protocol):
    """The key of one node, and the means to check what others have signed."""

    @property
    def public(self) -> bytes: ...

    def sign(self, data: bytes) -> bytes:
        """The signature; for equal data equal bytes."""
        ...

    def verify(self, key: bytes, signature: bytes, data: bytes) -> bool: ...


class Ed25519Keys:
    """The key of a node, from its seed of 32 bytes."""

    def __init__(self, seed: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.public = self._key.public_key().public_bytes_raw()

    def sign(self, data: bytes) -> bytes:
        return self._key.sign(data)

    def verify(self, key: bytes, signature: bytes, data: bytes) -> bool:
        if not is_canonical(key, signature):
            return False
        try:
            _public_key(key).verify(signature, data)
        except (InvalidSignature, ValueError):
            return False
        return True


@lru_cache(256)
def _public_key(key: bytes) -> Ed25519PublicKey:
    """Of some nodes many signatures are checked; reading a key takes a sixth of that."""
    return Ed25519PublicKey.from_public_bytes(key)


_FIELD = (1 << 255) - 19
_ORDER = (1 << 252) + 27742317777372353535851937790883648493
_EIGHTH = 2707385501144840649318225287225658788936804267575313519463743609750303402022
_SMALL = frozenset({0, 1, _FIELD - 1, _EIGHTH, _FIELD - _EIGHTH})
"""The y of points that any signature could be made to fit."""


def is_canonical(key: bytes, signature: bytes) -> bool:
    """Whether all libraries agree about this key and signature: what they read differently counts for nothing,
    as nodes that judge one signature differently would hold different logs."""
    if len(key) != DIGEST_BYTES or len(signature) != SIGNATURE_BYTES:
        return False
    ys = [int.from_bytes(each, "little") & ((1 << 255) - 1) for each in (key, signature[:32])]
    scalar = int.from_bytes(signature[32:], "little")
    return scalar < _ORDER and all(y < _FIELD for y in ys) and ys[0] not in _SMALL


# Messages.


@record
class MessageHeader:
    """What identifies a message and travels in the log. Its ``id`` is its hash, so nobody can change a field."""

    queue: str
    kind: str
    submitter: str
    nonce: bytes
    epoch: int
    expires_ms: int
    key: bytes
    dedupe: bytes
    body_hash: bytes
    size: int
    _ids: tuple[bytes, bytes] | None = field(default=None, init=False, compare=False, repr=False)

    @property
    def fields(self) -> tuple[Value, ...]:
        return (
            self.queue,
            self.kind,
            self.submitter,
            self.nonce,
            self.epoch,
            self.expires_ms,
            self.key,
            self.dedupe,
            self.body_hash,
            self.size,
        )

    @property
    def ids(self) -> tuple[bytes, bytes]:
        """``id`` and ``uid``, which are asked for again and again, and worked out once."""
        known = self._ids
        if known is None:
            own = digest("message", self.fields)
            work = (self.queue, self.kind, self.key, self.dedupe)
            known = own, digest("uid", work) if self.dedupe else own
            object.__setattr__(self, "_ids", known)
        return known

    @property
    def id(self) -> bytes:
        return self.ids[0]

    @property
    def uid(self) -> bytes:
        """Equal for messages that are the same work: by the ``dedupe`` key, if the sender gave one."""
        return self.ids[1]

    @property
    def point(self) -> bytes:
        """Of a plan the first one, whatever its key: the lead decides it, and the lead's heir remembers it."""
        return FIRST_POINT if self.kind == "plan" else point(self.key)

    @staticmethod
    def of(value: Value) -> MessageHeader:
        """Raises Malformed."""
        header = MessageHeader(
            *taken(value, str, str, str, bytes, int, int, bytes, bytes, bytes, int)
        )
        if (
            not NAME.fullmatch(header.queue)
            or not NAME.fullmatch(header.submitter)
            or header.kind not in ("work", "plan")
            or len(header.nonce) != 16
            or len(header.body_hash) != DIGEST_BYTES
            or header.epoch < 1
            or header.expires_ms < 0
            or header.size < 0
            or max(len(header.key), len(header.dedupe)) > KEY_BYTES_MAX
        ):
            raise Malformed("a field of a header is out of its bounds")
        return header
