"""Judging what others propose: the checks that a block has to pass before this node approves it."""

from __future__ import annotations

from collections.abc import Sequence

from surepipe.core.effects import Notice, NoticeKind
from surepipe.core.timing import earlier
from surepipe.queues.rmq.chain import (
    APPROVE,
    DONE,
    REFUSED,
    SKIP,
    Block,
    ordered,
)
from surepipe.queues.rmq.session.jobs import (
    Done,
    Later,
    Outcome,
    Refuse,
)
from surepipe.queues.rmq.session.proposing import ProposingSession
from surepipe.queues.rmq.session.state import (
    DIFFERS,
    MS,
    FunctionCall,
    SessionMessage,
)


class JudgingSession(ProposingSession):
    """What a voter does in the turn of somebody else."""

    def _judge(self, slot: int, now: int) -> None:
        """Approve the first proposal of the slot's collator, if it passes; skip when it can't."""
        key, entry_digest = self._proposals[slot]
        if (APPROVE, slot) in self._voted or (SKIP, slot) in self._voted:
            return
        block = self.chain.blocks[key]
        why = self._why_declined(block, entry_digest)
        if why is None:
            return  # something is missing: the timer decides
        if why:
            self._declined[slot] = why
            self._count(f"declined_{why}")
            self._out.append(
                Notice(
                    NoticeKind.DECLINED,
                    self.epoch,
                    (),
                    f"block of {block.collator} in slot {slot}: {why}",
                )
            )
            return
        results = [each for each in block.verdicts if each.kind == DONE]
        plans = [each for each in results if self.messages[each.id].header.kind == "plan"]
        if plans and key not in self._confirmed:
            path = self.chain.path(block.parent)
            assert path is not None  # it was looked at above
            self._compared(
                FunctionCall(
                    slot, (plans[0].id,), block.parent_slot, block.parent, block.time_ms, block
                ),
                block,
                [self._plan_outcome(self.messages[plans[0].id], path)],
                now,
            )
            if slot in self._declined:
                return
        if results and not self.settings.is_trusting and key not in self._confirmed:
            again_at = self._not_yet.get(key, now)
            if again_at > now:
                self._due = earlier(self._due, again_at)
            elif not any(call.block == block for call in self._calls.values()):
                ids = tuple(each.id for each in results)
                call = FunctionCall(
                    slot, ids, block.parent_slot, block.parent, block.time_ms, block
                )
                self._call(call, [self.messages[each] for each in ids])
            return
        self._vote(APPROVE, slot, key, now, entry_digest)

    def _compared(
        self, call: FunctionCall, block: Block, outcomes: Sequence[Outcome], now: int
    ) -> None:
        results = {each.id: each.result for each in block.verdicts}
        for message_id, outcome in zip(call.ids, outcomes, strict=True):
            if isinstance(outcome, Later):  # it may know later: no vote so far
                self._not_yet[block.digest] = now + max(outcome.after_us, MS)
                return
            if outcome != Done(results[message_id]):
                here = outcome.reason if isinstance(outcome, Refuse) else outcome.result.hex()[:16]
                there = results[message_id].hex()[:16]
                reason = (
                    here
                    if isinstance(outcome, Refuse)
                    else f"{DIFFERS}: {here} here, {there} there"
                )
                self._refuse(self.messages[message_id], block.slot, reason, now)
                self._declined.setdefault(block.slot, "invalid-result")
                self._count("declined_invalid-result")
        if block.slot not in self._declined:
            self._confirmed.add(block.digest)

    def _why_declined(self, block: Block, entry_digest: bytes) -> str | None:  # noqa: PLR0911, PLR0912 - checks in order
        """The first check that a proposal fails; None while something is missing, empty when it passes."""
        settings = self.settings
        if block.collator in self.log.blamed or self.is_caught(block.collator):
            return "not-collator"
        if not self.chain.is_founded(block):
            return None
        before = self._time_of(block.parent_slot, block.parent)
        if not before <= block.time_ms <= max(before, self._wall_ms + settings.clock_skew_ms):
            return "time"
        ids = [each.id for each in block.verdicts]
        if len(ids) > settings.batch_max or ids != ordered(block.parent, set(ids)):
            return "shape"
        messages = [self.messages.get(each) for each in ids]
        path = self.chain.path(block.parent)
        if path is None or None in messages or self._applied < len(self.chain.final):
            return None
        if block.record or self._has_seal(path):
            return self._why_no_seal(block, path)
        decided, done = self._decided_on(path)
        kinds = [self.messages[each.id].header.kind for each in block.verdicts if each.kind == DONE]
        if "plan" in kinds and len(kinds) > 1:
            return "shape"
        uids: set[bytes] = set()
        for verdict in block.verdicts:
            message = self.messages[verdict.id]
            if message.is_terminal or verdict.id in decided:
                return "replay"
            if verdict.kind == REFUSED:
                if not self._is_refused_before(message, entry_digest):
                    return "refusals"
                continue
            if message.uid in done or message.uid in uids or message.uid in self._done:
                return "replay"
            uids.add(message.uid)
            if message.header.expires_ms < block.time_ms:
                return "expired"
            if len(verdict.result) > settings.result_bytes_max:
                return "shape"
            if message.body is None:
                return None
        return ""

    def _is_refused_before(self, message: SessionMessage, entry_digest: bytes) -> bool:
        """Whether every member had refused it, to the knowledge of the entry that says so."""
        if not self._all_refuse(message):
            return False
        entries = [message.refusals[each][1] for each in self._voters]
        return all(each and self.log.causality.is_past(each, entry_digest) for each in entries)
