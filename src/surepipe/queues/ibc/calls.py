"""Calls that a relay submits to a party, and their results.

A submission carries headers of the other party, one proof at one height, and items that the proof shows. It gives
its relay no right: everything in it is checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from hashlib import sha256
from typing import Literal

from surepipe.queues.ibc.headers import SignedHeader
from surepipe.queues.ibc.merkle_store import IbcRefused
from surepipe.queues.ibc.proof import (
    BatchProof,
    CompressedAbsence,
    CompressedBatchProof,
    ExistenceProof,
    MerkleProof,
    NonExistenceProof,
    ProofError,
    ProofLimits,
)
from surepipe.queues.ibc.wire import decode, decode_chain, encode, encode_chain

REDUNDANT = frozenset(
    {"already-received", "already-resolved", "must-go-forward", "header-known", "too-early"}
)
"""Codes of calls that somebody else has made already. They change nothing, and a relay counts them as
successes."""
RELAYER_MAX_BYTES = 64
SUBMISSION_LIMITS = ProofLimits(bytes_max=8 << 20, fields_max=100_000)
VALUE_BYTES_MAX = 2 << 20
"""Of a message or a result. A submission of one has it twice, by itself and in its proof; that something isn't
there is shown by its two neighbours, with their values."""
ITEMS_MAX = 1024


class ItemKind(IntEnum):
    """What an item asks for."""

    RECEIVE = 1
    RECEIPT = 2
    TIMEOUT = 3
    CLEANUP = 4
    TIMEOUT_ON_CLOSE = 5


@dataclass(frozen=True, slots=True)
class Item:
    """One call with its evidence: a key of the other party, and its value (empty in a timeout: its absence).

    ``index`` is the message that timed out, ``record`` the other party's record of a connection that closed.
    ``is_hashed``: the other party's tree holds the hash of the value.
    """

    kind: ItemKind
    key: bytes
    value: bytes = b""
    is_hashed: bool = False
    index: int = 0
    record: bytes = b""

    @property
    def shown(self) -> bytes | None:
        """What the tree of the other party has under the key; None: nothing."""
        if self.kind in (ItemKind.TIMEOUT, ItemKind.TIMEOUT_ON_CLOSE) and not self.value:
            return None
        return committed_form(self.value) if self.is_hashed else self.value


def committed_form(value: bytes) -> bytes:
    """What a tree holds of a message in place of its bytes."""
    return b"\2" + sha256(value).digest()


@dataclass(frozen=True, slots=True)
class Submission:
    """Headers first, then items, all of which are proven at one height. One without both asks for a block."""

    connection: str
    """The receiving party's own name of the connection."""
    headers: tuple[SignedHeader, ...] = ()
    height: int = 0
    proof: MerkleProof = ()
    items: tuple[Item, ...] = ()
    relayer: bytes = b""

    def encode(self) -> bytes:
        return encode(
            "Submission",
            {
                "connection": self.connection,
                "headers": [each.encode() for each in self.headers],
                "height": self.height,
                "proof": encode_chain(self.proof),
                "items": [
                    {
                        "kind": int(item.kind),
                        "key": item.key,
                        "value": item.value,
                        "form": int(item.is_hashed),
                        "index": item.index,
                        "record": item.record,
                    }
                    for item in self.items
                ],
                "relayer": self.relayer,
            },
        )

    @property
    def value_bytes(self) -> int:
        """Of all values in it and in its proof: most of what it has where messages are large."""
        shown = (part for part in self.proof if isinstance(part, BatchProof | CompressedBatchProof))
        entries = [entry for part in shown for entry in part.entries]
        entries += [
            part for part in self.proof if isinstance(part, ExistenceProof | NonExistenceProof)
        ]
        found = sum(len(item.value) + len(item.record) for item in self.items)
        for entry in entries:
            if isinstance(entry, NonExistenceProof | CompressedAbsence):
                found += sum(len(each.value) for each in (entry.left, entry.right) if each)
            else:
                found += len(entry.value)
        return found

    @staticmethod
    def decode(data: bytes) -> Submission:
        """Raises IbcRefused ``malformed-batch``."""
        try:
            return Submission._decoded(data)
        except (ProofError, ValueError) as error:
            raise IbcRefused("malformed-batch", f"a submission can't be read: {error}") from error

    @staticmethod
    def _decoded(data: bytes) -> Submission:
        values = decode("Submission", data, SUBMISSION_LIMITS)
        if len(values["items"]) > ITEMS_MAX or len(values["relayer"]) > RELAYER_MAX_BYTES:
            raise ProofError("it has too many items, or names its relay in too many bytes")
        if any(each["form"] not in (0, 1) for each in values["items"]):
            raise ProofError("an item has a form that doesn't exist")
        items = [
            Item(
                ItemKind(each["kind"]),
                each["key"],
                each["value"],
                bool(each["form"]),
                each["index"],
                each["record"],
            )
            for each in values["items"]
        ]
        return Submission(
            values["connection"],
            tuple([SignedHeader.decode(each) for each in values["headers"]]),
            values["height"],
            decode_chain(values["proof"], SUBMISSION_LIMITS),
            tuple(items),
            values["relayer"],
        )


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """What came of one call. ``redundant``: somebody else has done it, and nothing was changed."""

    kind: Literal["done", "redundant", "refused"]
    code: str = ""
    index: int | None = None
    text: str = ""

    @staticmethod
    def of(refusal: IbcRefused) -> CallOutcome:
        """The result of a refused call."""
        kind: Literal["redundant", "refused"] = (
            "redundant" if refusal.code in REDUNDANT else "refused"
        )
        return CallOutcome(kind, refusal.code, None, str(refusal))


@dataclass(frozen=True, slots=True)
class SubmissionOutcome:
    """What came of each header and each item."""

    headers: Sequence[CallOutcome]
    items: Sequence[CallOutcome]
