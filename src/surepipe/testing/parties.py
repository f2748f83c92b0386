"""Relays of no good will, for tests of what parties do: they lose, repeat, reorder, forge, and lie about time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Protocol

from surepipe.queues.ibc import Item, ItemKind, Ledger, Party, Relay, RelayOptions, Submission
from surepipe.queues.ibc.keys import QueueKey, Receipt
from surepipe.queues.ibc.relay import PartyEnd, RelayEnd


class Chance(Protocol):
    """What decides."""

    def randrange(self, stop: int, /) -> int: ...


class UnfairEnd:
    """An end of a relay that forgets, repeats and reorders what it is to submit, and forges. It can only be late,
    never wrong: a party that does what it shows may be settled by it alone."""

    def __init__(self, inner: RelayEnd, other: Ledger, chance: Chance) -> None:
        self._inner, self._other, self._chance = inner, other, chance
        self._kept: list[Submission] = []

    @property
    def ledger(self) -> Ledger:
        """Of the party that it submits to."""
        return self._inner.ledger

    def submit(self, submission: Submission) -> None:
        """Three of those that it ever had, each perhaps changed; and that messages have timed out."""
        self._kept.append(submission)
        for _ in range(3):
            old = self._kept[self._chance.randrange(len(self._kept))]
            self._inner.submit(self._changed(old))
        if (early := self._early_timeout()) is not None:
            self._inner.submit(early)

    def _early_timeout(self) -> Submission | None:
        """True proofs for an untrue claim: that messages which have time left have timed out."""
        name, own = self._other.party, self.ledger
        if name not in own.connections or own.party not in self._other.connections:
            return None
        sent = own.counters(name, "send", own.height)
        key, height = QueueKey(own.party, "receipt", "tail"), self._other.height
        proof, value = self._other.prove([key], height), self._other.get(key, height)
        items = [
            Item(ItemKind.TIMEOUT, key.encode(), value or b"", index=index)
            for index in range(sent.head, min(sent.tail, sent.head + 3))
        ]
        headers = (self._other.header(height),)
        return Submission(name, headers, height, proof, tuple(items), b"forger")

    def _changed(self, submission: Submission) -> Submission:
        items = list(submission.items)
        if not items:
            return submission
        at = self._chance.randrange(len(items))
        item = items[at]
        match self._chance.randrange(6):
            case 0:
                items.reverse()
            case 1:
                items[at] = replace(item, value=item.value[:-1] + b"9")
            case 2:
                items[at] = replace(item, key=item.key[:-1] + bytes([item.key[-1] ^ 1]))
            case 3:
                items[at] = replace(item, value=Receipt(0, b"forged").encode())
            case 4:
                return replace(submission, height=max(1, submission.height - 1))
            case _:
                pass
        return replace(submission, items=tuple(items))

    def close(self) -> None:
        """Close the end beneath, if it can be closed."""
        close = getattr(self._inner, "close", None)
        if callable(close):
            close()


UnfairRelay = Callable[[Party, Party], Relay]


def unfair_relay(a: Party, b: Party, seed: int) -> Relay:
    """A relay between two parties of this process that has no good will. ``settle`` still comes to an end."""
    one, other = PartyEnd(a), PartyEnd(b)
    rng = Random(seed)
    ends = UnfairEnd(one, other.ledger, rng), UnfairEnd(other, one.ledger, rng)
    return Relay([ends], options=RelayOptions(resubmit_after_s=0.0, poll_s=0.01))
