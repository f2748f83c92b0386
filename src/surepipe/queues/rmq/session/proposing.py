"""Proposals: which messages a node picks in its turn, and the checks that a block of another node has to pass."""

from __future__ import annotations

from collections.abc import Sequence

from surepipe.core.effects import (
    Notice,
    NoticeKind,
)
from surepipe.core.timing import earlier
from surepipe.queues.rmq.chain import (
    APPROVE,
    DONE,
    REFUSED,
    SKIP,
    Block,
    JobVerdict,
    ordered,
)
from surepipe.queues.rmq.session.jobs import (
    Done,
    Later,
    Outcome,
    Refuse,
)
from surepipe.queues.rmq.session.state import (
    DIFFERS,
    MS,
    FunctionCall,
    SessionMessage,
)
from surepipe.queues.rmq.session.voting import VotingSession


class ProposingSession(VotingSession):
    """Proposes a block in this node's turn, and judges the blocks of others before approving them."""

    # The turn of this node.

    def _propose(self, slot: int, now: int) -> None:
        if (
            slot in self._proposals
            or (SKIP, slot) in self._voted
            or ("propose", slot) in self._voted
            or any(call.block is None and call.slot == slot for call in self._calls.values())
        ):
            return
        parent = self.chain.parent()
        path = self.chain.path(parent[1]) if parent is not None else None
        if parent is None or path is None:
            return
        parent_slot, parent_digest = parent
        time_ms = max(self._time_of(parent_slot, parent_digest), self._wall_ms)
        is_ending = self._has_seal(path)
        due = None if is_ending else self._seal_due(path)
        if due is not None and due <= time_ms:
            call = FunctionCall(slot, (), parent_slot, parent_digest, time_ms)
            sealed = self._sealed_by(path, time_ms)
            if sealed is not None:
                self._put_forward(call, [], now, sealed=sealed)
            return
        picked = [] if is_ending else self._pick(path, time_ms, now)
        if picked and len(picked) < self.settings.batch_max:
            if self._linger_until is None:
                self._linger_until = now + self.settings.linger_us
            if now < self._linger_until:
                self._due = earlier(self._due, self._linger_until)
                return
        self._linger_until = None
        call = FunctionCall(
            slot, tuple(each.id for each in picked), parent_slot, parent_digest, time_ms
        )
        if picked and picked[0].header.kind == "plan":
            self._worked_out(call, [self._plan_outcome(picked[0], path)], now)
        elif picked:
            self._call(call, picked)
        elif self._has_empty(path, is_ending, now):
            self._put_forward(call, [], now)
        else:
            self._vote(SKIP, slot, b"", now)

    def _has_empty(self, path: Sequence[bytes], is_ending: bool, now: int) -> bool:
        """Whether a block without results moves something."""
        if is_ending:
            return self._is_unfinished(now)
        return self._is_unopened(path) or bool(self._refusable(path)) or self._wants_empty(now)

    def _pick(self, path: Sequence[bytes], time_ms: int, now: int) -> list[SessionMessage]:
        """The oldest messages that a block of this time behind this branch may say are done."""
        ids, uids = self._decided_on(path)
        picked: list[SessionMessage] = []
        for message_id in self._undecided:
            message = self.messages[message_id]
            self._give_up_on_irreproducible(message, now)
            if (
                message.body is None
                or message.header.expires_ms < time_ms
                or message_id in ids
                or message.uid in uids
                or self._is_put_off(message, now)
                or message_id != self._smallest(message.uid)
            ):
                continue
            if message.author in self.log.blamed:
                self._vouch_for(message, now)
                continue
            if message.header.kind == "plan":  # alone in its block
                return picked or [message]
            picked.append(message)
            if len(picked) == self.settings.batch_max:
                break
        return picked

    def _vouch_for(self, message: SessionMessage, now: int) -> None:
        """Say a message that only a liar has said: 1. He told its header to this node, in an entry that nobody
        else gets. 2. Once he is blamed nobody may cite that. 3. Nobody could approve what only this node knows."""
        if self.log.append(("external", message.header.fields), now):
            message.author = self.name

    def _give_up_on_irreproducible(self, message: SessionMessage, now: int) -> None:
        """Refuse, too, what so many have found another result for that not all of them lie: it is decided then."""
        if message.refusals and self.name not in message.refusals:
            differing = [each for each, _ in message.refusals.values() if each.startswith(DIFFERS)]
            if len(differing) > len(self._voters) - self.chain.quorum:
                self._refuse(message, self.chain.slot, f"{DIFFERS} at {len(differing)} nodes", now)

    def _smallest(self, uid: bytes) -> bytes:
        """Of messages that are the same work the one that is processed: the smallest id that is undecided."""
        return min(
            each
            for each in self._by_uid[uid]
            if each in self._undecided and not self._all_refuse(self.messages[each])
        )

    def _refusable(self, path: Sequence[bytes]) -> list[SessionMessage]:
        ids, _ = self._decided_on(path)
        return [
            self.messages[each]
            for each in self._undecided
            if each not in ids and self._all_refuse(self.messages[each])
        ]

    def _wants_empty(self, now: int) -> bool:
        """Whether a block without verdicts moves something: it expires messages, or finishes its parent."""
        on_branch = self._on_branch()
        return self._is_unfinished(now) or any(
            self.messages[each].header.expires_ms < self._wall_ms
            for each in self._undecided
            if each not in on_branch
        )

    def _worked_out(self, call: FunctionCall, outcomes: Sequence[Outcome], now: int) -> None:
        """The user's function has said what becomes of messages that are to be proposed."""
        verdicts: list[JobVerdict] = []
        for message_id, outcome in zip(call.ids, outcomes, strict=True):
            message = self.messages[message_id]
            match outcome:
                case Done(result) if len(result) <= self.settings.result_bytes_max:
                    verdicts.append(JobVerdict(message_id, DONE, result, ""))
                case Done():
                    self._refuse(message, call.slot, "its result is too large", now)
                case Refuse(reason):
                    self._refuse(message, call.slot, reason, now)
                case Later(after_us):
                    message.not_before = now + max(after_us, MS)
        if call.slot != self.chain.slot or (SKIP, call.slot) in self._voted:
            self._count("late_outcome")
            return
        path = self.chain.path(call.parent)
        is_ending = path is not None and self._has_seal(path)
        if path is not None and (
            (verdicts and not is_ending) or self._has_empty(path, is_ending, now)
        ):
            self._put_forward(call, verdicts, now)
        else:
            self._vote(SKIP, call.slot, b"", now)

    def _put_forward(
        self, call: FunctionCall, verdicts: Sequence[JobVerdict], now: int, *, sealed: bytes = b""
    ) -> None:
        """Propose a block, and approve it."""
        path = self.chain.path(call.parent) or ()
        relies_on: list[bytes] = []
        listed = {each.id: each for each in verdicts}
        for message in () if sealed or self._has_seal(path) else self._refusable(path):
            entries = [message.refusals[each][1] for each in self._voters]
            if b"" in entries or len(listed) >= self.settings.batch_max:
                continue  # the own refusal is not in the log yet
            reasons = "; ".join(f"{name}: {message.refusals[name][0]}" for name in self._voters)
            listed[message.id] = JobVerdict(message.id, REFUSED, b"", reasons)
            relies_on += entries
        in_order = tuple(listed[each] for each in ordered(call.parent, listed))
        block = Block(
            self.log.session,
            call.slot,
            call.parent_slot,
            call.parent,
            self.name,
            call.time_ms,
            in_order,
            sealed,
        )
        item = ("candidate", block.fields)
        if self.log.append(item, now, is_urgent=True, relies_on=relies_on):
            self._voted.add(("propose", call.slot))
            self._confirmed.add(block.digest)
            self._vote(APPROVE, call.slot, block.digest, now)

    # Blocks of others.

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
