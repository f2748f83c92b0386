"""Signed entries of the causal log, and the proof that somebody signed two for one height."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256

from surepipe.core.records import record
from surepipe.queues.rmq.encoding import (
    DIGEST_BYTES,
    Malformed,
    MemberKeys,
    Value,
    decode,
    digest,
    encode,
    signed_bytes,
    taken,
)


@record
class Member:
    """Who may write into a log."""

    name: str
    key: bytes
    address: str = ""
    """Where it listens, for nodes that come later than the file of the others."""


@record
class EntryReference:
    """An entry that another one cites."""

    author: str
    height: int
    digest: bytes


@dataclass(frozen=True)
class LogEntry:
    """What one member said at one height. ``records`` are encoded; ``signature`` is empty before it is signed."""

    session: bytes
    author: str
    height: int
    previous: bytes
    cites: tuple[EntryReference, ...]
    records: bytes
    signature: bytes = b""

    @cached_property
    def digest(self) -> bytes:
        cites = tuple((each.author, each.height, each.digest) for each in self.cites)
        fields = (self.session, self.author, self.height, self.previous, cites)
        return digest("entry", (*fields, sha256(self.records).digest()))

    @property
    def signed(self) -> bytes:
        """What its signature signs."""
        return entry_signed(self.session, self.author, self.height, self.digest)

    @cached_property
    def items(self) -> tuple[tuple[Value, ...], ...]:
        """Its records. Raises Malformed."""
        items = decode(self.records)
        found = [
            item
            for item in (items if isinstance(items, tuple) else ())
            if isinstance(item, tuple) and item and isinstance(item[0], str)
        ]
        if not isinstance(items, tuple) or len(found) < len(items):
            raise Malformed("records begin with the name of their kind")
        return tuple(found)

    @property
    def references(self) -> list[bytes]:
        """All that has to be delivered before it."""
        before = [self.previous] if self.height > 1 else []
        return [*before, *(each.digest for each in self.cites)]

    def with_signature(self, signature: bytes) -> LogEntry:
        return replace(self, signature=signature)._knowing(self.__dict__)

    def with_items(self, items: tuple[tuple[Value, ...], ...]) -> LogEntry:
        """The same, with its records as they were before they were written: they need not be read again."""
        return replace(self)._knowing({"items": items})

    def _knowing(self, found: Mapping[str, object]) -> LogEntry:
        """With what was worked out before. Neither of it depends on the signature."""
        self.__dict__.update({key: found[key] for key in ("digest", "items") if key in found})
        return self

    def encode(self) -> bytes:
        cites = tuple((each.author, each.height, each.digest) for each in self.cites)
        fields = (self.session, self.author, self.height, self.previous, cites)
        return encode((*fields, self.records, self.signature))

    @staticmethod
    def decode(data: bytes) -> LogEntry:
        """Raises Malformed."""
        entry = LogEntry.opened(data)
        _ = entry.items
        return entry

    @staticmethod
    def opened(data: bytes) -> LogEntry:
        """With records that were not looked at, and may be none. Raises Malformed."""
        fields = taken(decode(data), bytes, str, int, bytes, tuple, bytes, bytes)
        session, author, height, previous, cites, records, signature = fields
        found = tuple(EntryReference(*taken(each, str, int, bytes)) for each in cites)
        hashes = [session, previous, *(each.digest for each in found)]
        if any(len(each) != DIGEST_BYTES for each in hashes):
            raise Malformed("a hash has another length")
        return LogEntry(session, author, height, previous, found, records, signature)


def entry_signed(session: bytes, author: str, height: int, entry_digest: bytes) -> bytes:
    """What the author of an entry signs."""
    return signed_bytes("entry-signature", (session, author, height, entry_digest))


@record
class ForkProof:
    """Two entries of one author for one height, each with its signature; the lower digest comes first."""

    author: str
    height: int
    first: bytes
    first_signature: bytes
    second: bytes
    second_signature: bytes

    @property
    def fields(self) -> tuple[Value, ...]:
        first, second = (self.first, self.first_signature), (self.second, self.second_signature)
        return (self.author, self.height, *first, *second)

    @staticmethod
    def of(value: Value) -> ForkProof:
        """Raises Malformed."""
        return ForkProof(*taken(value, str, int, bytes, bytes, bytes, bytes))

    @staticmethod
    def between(one: LogEntry, other: LogEntry) -> ForkProof:
        lower, higher = sorted((one, other), key=lambda each: each.digest)
        return ForkProof(
            one.author, one.height, lower.digest, lower.signature, higher.digest, higher.signature
        )

    def holds(self, session: bytes, key: bytes, keys: MemberKeys) -> bool:
        """Whether it convinces: whoever has this key signed both."""
        return self.first < self.second and all(
            keys.verify(key, signature, entry_signed(session, self.author, self.height, each))
            for each, signature in (
                (self.first, self.first_signature),
                (self.second, self.second_signature),
            )
        )
