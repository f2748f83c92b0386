"""Keeps proofs that members signed two things, while a node goes from epoch to epoch.

A log blames its members for as long as its session lasts. A node keeps the proofs: it begins no later session by
waiting for whoever was caught in an earlier one, and shows him to those who were away, until he has another key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from surepipe.core.records import record
from surepipe.queues.rmq.encoding import MemberKeys, Value, taken
from surepipe.queues.rmq.entries import ForkProof


@record
class Caught:
    """Two signatures of one node for one height, in a session of this epoch."""

    key: bytes
    epoch: int
    session: bytes
    proof: ForkProof

    @property
    def fields(self) -> tuple[Value, ...]:
        return (self.key, self.epoch, self.session, self.proof.fields)

    @staticmethod
    def of(value: Value) -> Caught:
        """Raises Malformed."""
        key, epoch, session, proof = taken(value, bytes, int, bytes, tuple)
        return Caught(key, epoch, session, ForkProof.of(proof))


class CaughtNodes:
    """The first proof against each key. It only grows, but for keys that nobody has any more."""

    def __init__(self, keys: MemberKeys) -> None:
        self._keys = keys
        self._by_key: dict[bytes, Caught] = {}

    @property
    def fields(self) -> tuple[Value, ...]:
        return tuple(each.fields for each in self._by_key.values())

    def restore(self, rows: Sequence[Value]) -> None:
        """Take what a former life had stored."""
        for row in rows:
            found = Caught.of(row)
            self._by_key[found.key] = found

    def add(self, key: bytes, epoch: int, session: bytes, proof: ForkProof) -> bool:
        """Keep a proof that a log has looked at. True for the first one against this key."""
        if key in self._by_key:
            return False
        self._by_key[key] = Caught(key, epoch, session, proof)
        return True

    def learn(self, rows: Sequence[Value], keys: Mapping[str, bytes]) -> bool:
        """Take proofs that somebody shows, if they hold against a key of these. True when one is new."""
        is_new = False
        for row in rows:
            found = Caught.of(row)
            if (
                found.key not in self._by_key
                and keys.get(found.proof.author) == found.key
                and found.proof.holds(found.session, found.key, self._keys)
            ):
                self._by_key[found.key] = found
                is_new = True
        return is_new

    def forget_others(self, keys: Mapping[str, bytes]) -> bool:
        """Forget keys that nobody has any more. True when there were some."""
        over = set(self._by_key) - set(keys.values())
        self._by_key = {key: each for key, each in self._by_key.items() if key not in over}
        return bool(over)

    def holds(self, key: bytes | None) -> bool:
        """Whether there is a proof against this key."""
        return key in self._by_key

    def epochs(self, keys: Mapping[str, bytes]) -> dict[str, int]:
        """Of these names those that are caught, and in which epoch they were."""
        return {name: self._by_key[key].epoch for name, key in keys.items() if key in self._by_key}
