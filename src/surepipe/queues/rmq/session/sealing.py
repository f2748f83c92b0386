"""The end of a session, and what is before its beginning: seals, plans, and what is remembered."""

from __future__ import annotations

from collections.abc import Sequence

from surepipe.queues.rmq.chain import (
    DONE,
    FINALISE,
    Block,
)
from surepipe.queues.rmq.epochs import (
    EpochRecord,
    Memory,
    Operation,
    PlanRefused,
    Remembered,
    SealProof,
    next_record,
    plan_operations,
    sealed_digest,
)
from surepipe.queues.rmq.session.jobs import (
    Done,
    Later,
    Outcome,
    Refuse,
)
from surepipe.queues.rmq.session.messages import SessionMessages
from surepipe.queues.rmq.session.state import (
    Beginning,
    SessionMessage,
)


class SealingSession(SessionMessages):
    """Begins a session with what was handed on, decides when its seal is due, and hands on its own memory."""

    # Its beginning.

    def activate(self, beginning: Beginning, now: int) -> None:
        """It is known how all sessions before this one ended: from here on it has turns."""
        for chunk in Memory.written(beginning.rows).chunks:
            self.log.keep(("remembered", chunk), now)
        self.log.keep(("begins", beginning.begins_ms, beginning.missed, beginning.ends), now)
        self._begin(beginning)
        for message in list(self.messages.values()):
            self._settle(message, now)

    def _begin(self, beginning: Beginning) -> None:
        self.is_active, self.begins_ms = True, beginning.begins_ms
        self.missed, self._ends = beginning.missed, beginning.ends
        for row in beginning.rows:
            self._remembered[row.id] = row
            if row.kind == "finalized" and row.decided > self.epoch - self.settings.dedupe_epochs:
                self._remembered_uids[row.uid] = row

    def _time_of(self, slot: int, block: bytes) -> int:
        """Of a parent; in the first slot the end of the sessions before."""
        return self.chain.blocks[block].time_ms if slot else self.begins_ms

    # When and how it ends.

    def _branch(self, path: Sequence[bytes]) -> list[Block]:
        """The final chain and what is behind it."""
        return [self.chain.blocks[each] for each in (*self.chain.final, *path)]

    def _has_seal(self, path: Sequence[bytes]) -> bool:
        return self.seal is not None or any(self.chain.blocks[each].record for each in path)

    def _seal_due(self, path: Sequence[bytes]) -> int | None:
        """The block time from which on a seal may be put behind this branch; None while that can't be said."""
        record = self.record
        if record is None:
            return None
        if not self.is_lead:
            return self.begins_ms if self.next_record is not None else None
        # It lasts from its first block on. 1. A seal is proposed, and becomes final only after an outage as long
        # as an epoch. 2. Counted from the seal's time the next epoch is over before it begins. 3. What is handed
        # over to it finds it sealed, and is lost.
        first = self.chain.final[0] if self.chain.final else path[0] if path else None
        if first is None:
            return None
        return self.chain.blocks[first].time_ms + self.settings.epoch_length_ms

    def _plans_on(self, path: Sequence[bytes]) -> list[Sequence[Operation]] | None:
        """What the plans ask for that are done on a branch, in their order; None while one isn't here."""
        found: list[Sequence[Operation]] = []
        assert self.record is not None
        for block in self._branch(path):
            for verdict in block.verdicts:
                message = self.messages.get(verdict.id)
                if message is None or (message.header.kind == "plan" and message.body is None):
                    return None
                if verdict.kind == DONE and message.header.kind == "plan":
                    body, admins = message.body or b"", self.record.admins
                    found.append(plan_operations(message.header, body, admins, self._keys))
        return found

    def _plan_outcome(self, message: SessionMessage, path: Sequence[bytes]) -> Outcome:
        """A plan is done when it can be followed after those before it on the branch."""
        if self.record is None or message.body is None:
            return Refuse("plans are followed where there are epochs")
        before = self._plans_on(path)
        if before is None:
            return Later()
        try:
            asked = plan_operations(message.header, message.body, self.record.admins, self._keys)
            next_record(self.record, [*before, asked], self.record.start_ms)
        except PlanRefused as error:
            return Refuse(str(error))
        return Done()

    def _memory_behind(self, path: Sequence[bytes]) -> list[Remembered]:
        """What the sessions behind this one have to remember, if it ended after this branch."""
        least = self.epoch + 2 - self.settings.dedupe_epochs
        rows = [
            row
            for row in self._remembered.values()
            if row.kind == "finalized" and row.decided >= least
        ]
        before_ms = 0
        for position, block in enumerate(self._branch(path), 1):
            for verdict in block.verdicts:
                header, is_done = self.messages[verdict.id].header, verdict.kind == DONE
                if is_done or header.epoch == self.epoch:
                    kind = "finalized" if is_done else "refused"
                    detail = verdict.result if is_done else verdict.reason.encode()
                    uid = self.messages[verdict.id].uid
                    place = (header.point, verdict.id, uid, header.epoch, self.epoch, position)
                    rows.append(Remembered(*place, before_ms, kind, detail))
            before_ms = block.time_ms
        return rows

    def _sealed_by(self, path: Sequence[bytes], time_ms: int) -> bytes | None:
        """What a seal of this time behind this branch says; None while that isn't known here."""
        found = self.next_record
        if self.is_lead:
            assert self.record is not None
            plans = self._plans_on(path)
            if plans is None:
                return None
            found = next_record(self.record, plans, time_ms)
        if found is None or self._applied < len(self.chain.final):
            return None
        if any(v.id not in self.messages for b in self._branch(path) for v in b.verdicts):
            return None
        return sealed_digest(found.digest, Memory.written(self._memory_behind(path)).hashes)

    def _why_no_seal(self, block: Block, path: Sequence[bytes]) -> str | None:
        """As ``_why_declined``, of a seal and of what stands behind one: empty blocks, until it is final."""
        if block.verdicts or (block.record and self._has_seal(path)):
            return "seal"
        if not block.record:
            return ""
        due = self._seal_due(path)
        if due is None and self.record is not None and not self.is_lead:
            return None  # the record behind this one is on its way
        if due is None or block.time_ms < due:
            return "seal"
        expected = self._sealed_by(path, block.time_ms)
        if expected is None:
            return None
        return "" if expected == block.record else "seal"

    # Of a session that is sealed.

    def memory(self) -> Memory:
        """What it hands on."""
        if self._handed is None:
            self._handed = Memory.written(self._memory_behind(()))
        return self._handed

    def record_behind(self) -> EpochRecord | None:
        """The record that its seal names."""
        if self.seal is None or self.record is None:
            return None
        if not self.is_lead:
            return self.next_record
        plans = self._plans_on(())
        return None if plans is None else next_record(self.record, plans, self.seal.time_ms)

    def seal_proof(self) -> SealProof | None:
        """The proof to others that this session is sealed."""
        if self.seal is None:
            return None
        blocks: list[Block] = []
        for key in self.chain.final[self._sealed_at - 1 :]:
            block = self.chain.blocks[key]
            blocks.append(block)
            votes = self.chain.certificate(FINALISE, block.slot, key)
            if votes:
                return SealProof(tuple(blocks), votes)
        return None
