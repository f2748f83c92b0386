"""What others have: one member after the other is told how far this log is, and asked for what is missing."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import merge
from itertools import islice

from surepipe.core.timing import below
from surepipe.queues.rmq.catchain.options import Voice
from surepipe.queues.rmq.catchain.speaking import SpeakingLog
from surepipe.queues.rmq.catchain.state import EntryPull
from surepipe.queues.rmq.causal import Known
from surepipe.queues.rmq.encoding import (
    Malformed,
    Value,
    signed_bytes,
    taken,
)

PULL_FIRST_US = 50_000
"""Whoever is asked for an entry has twice this to answer, the next one twice as long: a liar who cites what only
he has must not cost a slot each time."""


class AskingLog(SpeakingLog):
    """Anti-entropy, and the question of a new life what it had said."""

    # Heads.

    def _sync(self, now: int) -> None:
        """Tell one member after the other how far this log is; all of them while it asks what it had said."""
        if self._sync_at is None or now < self._sync_at:
            return
        if not self._others:
            self._sync_at = None  # a deadline that stays in the past hides all that come behind it
            return
        every = self.options.sync_every_us
        self._sync_at = now + every - every // 5 + below(self._rng, 2 * every // 5 + 1)
        if self.voice is Voice.ASKING:
            self._asked_again.clear()
            for peer in self._others:
                self._send_heads(peer)
                self._pull_again(peer)
            return
        self._round = self._round or self._shuffled()
        peer = self._round.pop()
        self._send_heads(peer)
        self._pull_again(peer)

    def _send_heads(self, peer: str, answers: int = 0) -> None:
        """``answers``: the life of the peer that wants to know. It can't be told by a frame of an earlier one."""
        asks = 0
        if self.voice is Voice.ASKING and not (answers and peer in self._asked_again):
            asks = self._stored.epoch  # who answers late was not there when all were asked
            self._asked_again.add(peer)
        heads = tuple((name, len(c), c[-1]) for name, c in self.causality.chains.items() if c)
        blamed = tuple(sorted(self.blamed))
        yours = self.causality.highest(peer)
        signature = b""
        if answers > 0:
            signature = self._keys.sign(self._answer_signed(self.name, peer, answers, yours))
        self._send(peer, "heads", self.session, asks, answers, yours, heads, blamed, signature)

    def _answer_signed(self, member: str, asker: str, life: int, height: int) -> bytes:
        """What a member signs when it tells how much it knows of what another one has said."""
        return signed_bytes("answer", (self.session, member, asker, life, height))

    def _take_answer(self, peer: str, height: int, signature: bytes) -> None:
        """A member tells this life how far it knows its chain. One that can't have written this isn't counted, so
        nobody else can make a node that forgot something speak."""
        key = self._keys_of.get(peer)
        text = self._answer_signed(peer, self.name, self._stored.epoch, height)
        if key is None or not self._keys.verify(key, signature, text):
            self._count("bad_answer")
        elif height <= self.height and peer in self._witnesses:
            self._answered.add(peer)

    def _take_heads(
        self, peer: str, heads: tuple[Value, ...], blamed: tuple[Value, ...], now: int
    ) -> bool:
        """Send a member what it lacks, at most ``sync_cap`` entries. True when it has more than this one."""
        theirs = {name: (height, head) for name, height, head in (_head(each) for each in heads)}
        is_ahead = any(name not in self.blamed for name in blamed)
        missing: list[Iterable[Known]] = []
        for name, chain in self.causality.chains.items():
            if name in self.blamed:
                continue
            height, head = theirs.get(name, (0, b""))
            if height > len(chain):
                is_ahead = True
            elif height and chain[height - 1] != head:
                if head not in self.causality.known and head not in self._pulls:
                    self._pulls[head] = EntryPull(
                        peer, now
                    )  # two branches: both sides are to see both
                height -= 1
            missing.append(self.causality.above(name, height))
        in_order = merge(*missing, key=lambda known: known.order)
        self._send_entries(peer, islice(in_order, self.options.sync_cap))
        proofs = tuple(p.fields for name, p in self.blamed.items() if name not in blamed)
        if proofs:
            self._send(peer, "proofs", self.session, proofs)
        return is_ahead

    # Pulls.

    def _pull(self, now: int) -> None:
        """Ask for entries that others cite: first who cited them, then the others in turn."""
        asked: dict[str, list[bytes]] = {}
        for entry_digest, pull in self._pulls.items():
            if pull.due is None or pull.due > now:
                continue
            peers = [
                each
                for each in (pull.cited_by, *self._others)
                if each not in pull.asked and each != self.name
            ]
            if not peers:
                pull.due = None
                continue
            wanted = asked.setdefault(peers[0], [])
            if len(wanted) < self.options.pull_max:
                wanted.append(entry_digest)
                pull.asked.add(peers[0])
                patience = min(PULL_FIRST_US << len(pull.asked), self.options.pull_timeout_us)
                pull.due = now + patience
            else:
                pull.due = now + self.options.entry_delay_us
        for peer, digests in asked.items():
            self._send(peer, "pull", self.session, tuple(digests))

    def _pull_again(self, peer: str) -> None:
        """Ask a member for what nobody had when all were asked, each time for others of it."""
        had_none = [each for each, pull in self._pulls.items() if pull.due is None]
        wanted = had_none[: self.options.pull_max]
        for each in wanted:
            self._pulls[each] = self._pulls.pop(each)
        if wanted:
            self._send(peer, "pull", self.session, tuple(wanted))


def _head(value: Value) -> tuple[str, int, bytes]:
    name, height, head = taken(value, str, int, bytes)
    if height < 1:
        raise Malformed("a head is at height 1 or above")
    return name, height, head
