"""What public IBC chains commit to; with ``verify_chained`` it shows that one of them sent a packet, or answered.

Queues of parties don't use these. Of a chain with the usual store the path is ``(b"ibc", key)``, and the
specifications are ``STORE_SPECS``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256


@dataclass(frozen=True, slots=True)
class PacketPayload:
    """What one application says to another in a packet of version 2."""

    source_port: str
    destination_port: str
    version: str
    encoding: str
    value: bytes


def packet_v1(data: bytes, revision: int, height: int, time_ns: int) -> bytes:
    """What is committed for a packet of version 1, with its limits: a height of a revision, and a time."""
    return _hash(_number(time_ns) + _number(revision) + _number(height) + _hash(data))


def packet_v2(destination: str, timeout_s: int, payloads: Sequence[PacketPayload]) -> bytes:
    """The commitment of a packet of version 2 to a client of that name."""
    said = _hash(b"".join(map(_payload, payloads)))
    return _hash(b"\2" + _hash(destination.encode()) + _hash(_number(timeout_s)) + said)


def acknowledgement_v2(acknowledgements: Sequence[bytes]) -> bytes:
    """What is committed for the answers of the applications, in the order of the payloads."""
    return _hash(b"\2" + b"".join(map(_hash, acknowledgements)))


def _payload(payload: PacketPayload) -> bytes:
    ports = payload.source_port, payload.destination_port
    texts = *ports, payload.version, payload.encoding
    return _hash(b"".join(_hash(text.encode()) for text in texts) + _hash(payload.value))


def _number(number: int) -> bytes:
    return number.to_bytes(8, "big")


def _hash(data: bytes) -> bytes:
    return sha256(data).digest()
