"""What the two ends of a pipe say to each other: one record per thing said, no behaviour.

Every frame names its pipe (``pipe``, a 64-bit tag of the name) and the layer of the stack that it belongs to
(0 is the outermost). ``codec`` turns frames into bytes and back; the local route passes the records as they are.
All integers are in 0 .. 2**63 - 1, except the tags, links and incarnations, which are in 0 .. 2**64 - 1.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from enum import IntEnum
from typing import TypeAlias

from surepipe.core.effects import Ranges
from surepipe.core.records import record

MAX_NUMBER = 2**63 - 1


class RefusedReason(IntEnum):
    """Why a receiver will not serve a sender."""

    FENCED = 1
    UNKNOWN_EPOCH = 2
    STACK = 3
    VERSION = 4


@record
class Numbered:
    """A run of consecutive messages of an index pipe."""

    pipe: int
    layer: int
    epoch: int
    first: int
    payloads: Sequence[bytes]


@record
class Data:
    """A run of consecutive messages of a retry pipe, one transmission of it.

    Everything below ``base`` is settled. ``stamp`` numbers the transmission; ``ask`` wants a Confirm at once.
    """

    pipe: int
    layer: int
    link: int
    epoch: int
    first: int
    base: int
    stamp: int
    ask: bool
    payloads: Sequence[bytes]


@record
class Probe:
    """Tell me where you are: my oldest unconfirmed message is ``base``, my next new one ``next``."""

    pipe: int
    layer: int
    link: int
    epoch: int
    base: int
    next: int


@record
class Confirm:
    """Facts: all up to ``cum`` and all of ``done`` are settled. Hints: the rest.

    ``held`` was received and is not settled, ``limit`` is the highest seq there is room for, ``echo`` is the
    stamp of the transmission this answers (0 for none).
    """

    pipe: int
    layer: int
    link: int
    incarnation: int
    epoch: int
    cum: int
    done: Ranges
    held: Ranges
    limit: int
    echo: int


@record
class Nack:
    """These messages are missing while later ones have arrived."""

    pipe: int
    layer: int
    link: int
    incarnation: int
    epoch: int
    missing: Ranges


@record
class Open:
    """I am life ``life`` and will send ``epoch`` from ``base`` on; ``stack`` is a digest of my layers."""

    pipe: int
    layer: int
    life: int
    link: int
    epoch: int
    base: int
    next: int
    stack: int


@record
class Opened:
    """You may send. ``expected`` is what I deliver next; ``closed`` says that the epoch is over for me."""

    pipe: int
    layer: int
    link: int
    incarnation: int
    epoch: int
    expected: int
    cum: int
    limit: int
    closed: bool


@record
class Unknown:
    """I don't know where this starts: open. ``link`` is 0 from a receiver of an index pipe."""

    pipe: int
    layer: int
    link: int
    incarnation: int


@record
class Refused:
    """I will not serve ``epoch`` on this link; ``known`` is the highest life or epoch that I know."""

    pipe: int
    layer: int
    link: int
    epoch: int
    reason: RefusedReason
    known: int


@record
class Introduction:
    """I am configured as ``stack``, and write messages as ``payloads`` ("": can't be compared).

    ``sends``: this is the sending end, or the caller of a channel. ``asks``: say what you are.
    """

    pipe: int
    layer: int
    sends: bool
    asks: bool
    stack: str
    payloads: str


Frame: TypeAlias = (
    Numbered | Data | Probe | Confirm | Nack | Open | Opened | Unknown | Refused | Introduction
)


def tag_of(name: str) -> int:
    """The 64-bit tag under which frames carry the name of their pipe."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big")
