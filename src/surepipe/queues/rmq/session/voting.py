"""Votes of a session: what a node may say in a slot, how long it waits for others, and if there is a cause."""

from __future__ import annotations

from collections.abc import Sequence

from surepipe.core.effects import Call
from surepipe.core.timing import earlier
from surepipe.queues.rmq.chain import (
    APPROVE,
    DONE,
    FINALISE,
    SKIP,
    vote_signed,
)
from surepipe.queues.rmq.session.jobs import (
    ProcessJobs,
)
from surepipe.queues.rmq.session.sealing import SealingSession
from surepipe.queues.rmq.session.state import (
    MS,
    FunctionCall,
    SessionMessage,
)

SUSPECT_EVERY = 32
"""In each so many-th of his turns a suspect gets the full time, so that he can show that he is there."""


class VotingSession(SealingSession):
    """Slots, their timers, and the votes of this node."""

    # Voting.

    def _vote(self, kind: str, slot: int, block: bytes, now: int, *relies_on: bytes) -> None:
        """Vote, unless this was done, or what excludes it. Votes are in the log, so no life takes one back."""
        excluded = {APPROVE: (SKIP,), SKIP: (FINALISE,), FINALISE: (SKIP,)}[kind]
        if (kind, slot) in self._voted or any((each, slot) in self._voted for each in excluded):
            return
        signature = self._keys.sign(vote_signed(self.log.session, kind, slot, block))
        item = ("vote", kind, slot, block, signature)
        if self.log.append(item, now, is_urgent=True, relies_on=relies_on):
            self._voted.add((kind, slot))

    def _spread_certificates(self, now: int) -> None:
        """Say what convinced this node, unless somebody has: a liar may have given his vote to this one only."""
        below = self._finalised_below - 1
        news, self.chain.decided = self.chain.decided, []
        for key in news:
            kind, slot, block = key
            if key in self._certificates or slot < below:
                continue
            votes = self.chain.certificate(kind, slot, block)
            if self.log.append(
                ("certificate", kind, slot, block, votes), now, is_urgent=kind != FINALISE
            ):
                self._certificates.add(key)
            else:
                self.chain.decided.append(key)

    def _refuse(self, message: SessionMessage, slot: int, reason: str, now: int) -> None:
        if self.name in message.refusals:
            return
        reason = reason[: self.settings.result_bytes_max // 4]
        if self.log.append(("refusal", message.id, slot, reason), now):
            message.refusals[self.name] = reason, b""
            self._issue(message, "refusal", reason.encode(), now)

    # Waiting for others.

    @property
    def _finalised_below(self) -> int:
        tip = self.chain.tip()
        return tip.slot + 1 if tip is not None else 1

    def _look_who_is_silent(self, slot: int) -> None:
        """Suspect whose turn passed without a word of his: the next ones aren't waited for as long."""
        for past in range(self._judged_below, slot):
            collator = self.chain.collator(past)
            has_spoken = past in self._proposals or past in self.chain.certified
            has_skipped = collator in self.chain.votes.get((SKIP, past, b""), {})
            self._suspects.pop(collator, None)
            if not has_spoken and not has_skipped and collator != self.name:
                self._suspects[collator] = past
                self._silent.append(past)
        self._judged_below = max(self._judged_below, slot)
        while len(self._suspects) > len(self._voters) - self.chain.quorum:
            del self._suspects[min(self._suspects, key=lambda name: self._suspects[name])]

    def _timeout(self, slot: int) -> int:
        turn = slot // len(self._voters)
        if self.chain.collator(slot) in self._suspects and turn % SUSPECT_EVERY:
            return min(self.settings.suspect_timeout_us, self.settings.slot_timeout_us)
        self._silent = [each for each in self._silent if each >= self._finalised_below]
        doublings = max(0, len(self._silent) - 1)
        return min(
            self.settings.slot_timeout_us << min(doublings, 20), self.settings.slot_timeout_max_us
        )

    def _is_hopeless(self, slot: int) -> bool:
        collator = self.chain.collator(slot)
        has_skipped = collator in self.chain.votes.get((SKIP, slot, b""), {})
        is_liar = collator in self.log.blamed or self.is_caught(collator)
        return has_skipped or is_liar or slot in self._declined

    # Causes.

    def _has_cause(self, now: int) -> bool:  # noqa: PLR0911 - one return a cause
        """Whether there is anything to do in this slot."""
        if self._is_unfinished(now) or self._seen >= self.chain.slot:
            return True
        parent = self.chain.parent()
        path = self.chain.path(parent[1]) if parent is not None else None
        if self._has_seal(path or ()):
            return False
        if path is not None and self._is_unopened(path):
            return True
        if self.record is not None:
            due = self._seal_due(path or ())
            if due is not None and due <= self._wall_ms:
                return True
            if due is not None:
                self._due = earlier(self._due, now + (due - self._wall_ms) * MS)
        on_branch = self._on_branch()
        for message_id in self._undecided:
            message = self.messages[message_id]
            if message_id in on_branch:
                continue
            if message.header.expires_ms < self._wall_ms or self._all_refuse(message):
                return True
            if message.body is not None and not self._is_put_off(message, now):
                return True
            if message.not_before > now:
                self._due = earlier(self._due, message.not_before)
            wait_ms = message.header.expires_ms - self._wall_ms + 1
            self._due = earlier(self._due, now + wait_ms * MS)
        return False

    def _on_branch(self) -> set[bytes]:
        """Messages with a verdict on the branch that the next block is built on."""
        parent = self.chain.parent()
        path = self.chain.path(parent[1]) if parent is not None else None
        return self._decided_on(path or ())[0]

    def _decided_on(self, path: Sequence[bytes]) -> tuple[set[bytes], set[bytes]]:
        """Ids that have a verdict on a branch behind the final chain, and uids that are done there."""
        decided: set[bytes] = set()
        uids: set[bytes] = set()
        for key in path:
            for verdict in self.chain.blocks[key].verdicts:
                decided.add(verdict.id)
                message = self.messages.get(verdict.id)
                if verdict.kind == DONE and message is not None:
                    uids.add(message.uid)
        return decided, uids

    def _is_unfinished(self, now: int) -> bool:
        """Whether an approved block waits for its end for so long that another one should be put behind it."""
        highest = max(self.chain.certified, default=0)
        if highest < self._finalised_below:
            return False
        if self._tip_seen[0] != highest:
            self._tip_seen = (highest, now)
        due = self._tip_seen[1] + self.settings.slot_timeout_us
        if now < due:
            self._due = earlier(self._due, due)
        return now >= due

    def _is_unopened(self, path: Sequence[bytes]) -> bool:
        """Whether the lead's epoch waits for its first block. The foundation's waits for a message."""
        has_begun = bool(path or self.chain.final)
        return self.is_lead and self.epoch > 1 and not has_begun

    def _all_refuse(self, message: SessionMessage) -> bool:
        return all(each in message.refusals for each in self._voters)

    def _is_put_off(self, message: SessionMessage, now: int) -> bool:
        return self.name in message.refusals or message.not_before > now

    # The user's function.

    def _call(self, call: FunctionCall, messages: Sequence[SessionMessage]) -> None:
        self._call_ticket -= 1
        self._calls[self._call_ticket] = call
        jobs = tuple(each.job for each in messages)
        self._out.append(Call(self._call_ticket, ProcessJobs(jobs, call.time_ms)))
