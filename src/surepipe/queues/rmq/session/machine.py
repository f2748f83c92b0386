"""One session of a replicated queue at one node: its messages, its turns, and the receipts that it gives.

A message is a header, which travels in the log, and a body, which travels beside it. The collator of a slot runs
the user's function on waiting messages and proposes a block of verdicts; the others check it and vote
(``chain.py``). What a message has come to is derived from the chain alone, so all nodes tell the same of it.

Whatever a life had known is in the log: a restart delivers its entries again, and knows its votes from its own.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from hashlib import sha256

from surepipe.core.effects import Addressed, Effect, Notice, NoticeKind, WakeAt
from surepipe.core.timing import earlier
from surepipe.queues.rmq.catchain import Voice
from surepipe.queues.rmq.chain import (
    DONE,
    FINALISE,
    SKIP,
    Block,
)
from surepipe.queues.rmq.encoding import (
    Malformed,
    MessageHeader,
    Value,
    decode,
    taken,
)
from surepipe.queues.rmq.entries import LogEntry
from surepipe.queues.rmq.epochs import (
    Remembered,
    remembered,
)
from surepipe.queues.rmq.receipts import receipt_of_row
from surepipe.queues.rmq.session.jobs import (
    JobOutcomes,
    Outcome,
)
from surepipe.queues.rmq.session.proposing import ProposingSession
from surepipe.queues.rmq.session.state import (
    Beginning,
    FunctionCall,
)


class SessionMachine(ProposingSession):
    """The queue of one session at one node, around its log."""

    # Inputs.

    def wake(self, now: int, wall_ms: int) -> list[Effect]:
        """The deadline has passed, or the machine was just built."""
        self._wall_ms = wall_ms
        self._take(self.log.wake(now))
        return self._finish(now)

    def answer(self, ticket: int, outcome: object, now: int, wall_ms: int) -> list[Effect]:
        """The store, the guard or the user's function has answered."""
        self._wall_ms = wall_ms
        if ticket >= 0:
            self._take(self.log.answer(ticket, outcome, now))
        else:
            call = self._calls.pop(ticket, None)
            if call is not None and isinstance(outcome, JobOutcomes):
                self._processed(call, outcome.outcomes, now)
        return self._finish(now)

    def connected(self, peer: str, now: int, wall_ms: int) -> list[Effect]:
        """A member can be reached again."""
        self._wall_ms = wall_ms
        self._take(self.log.connected(peer, now))
        return self._finish(now)

    def frame(self, frame: object, now: int, wall_ms: int) -> list[Effect]:
        """A frame of a member or of a client has come; any bytes may."""
        self._wall_ms = wall_ms
        if not isinstance(frame, Addressed) or not isinstance(frame.frame, bytes):
            self._count("malformed")
            return self._finish(now)
        try:
            return self.decoded(frame.route, decode(frame.frame), now, wall_ms)
        except Malformed:
            self._count("malformed")
        return self._finish(now)

    def decoded(
        self, route: str, value: Value, now: int, wall_ms: int, *, is_followed: bool = False
    ) -> list[Effect]:
        """A frame that was read already. ``is_followed``: others have come, and then it is woken."""
        self._wall_ms = wall_ms
        try:
            if not self._take_frame(route, value, now):
                self._take(self.log.decoded(route, value, now))
        except Malformed:
            self._count("malformed")
        return [] if is_followed else self._finish(now)

    def _take_frame(self, route: str, value: Value, now: int) -> bool:
        """False for a frame of the log."""
        match value:
            case ("submit", str() as queue, tuple() as fields, bytes() as body):
                self._submit(route, queue, fields, body, now)
            case ("read", str() as queue, str() as submitter, int() as after, *_):
                if queue == self.queue:
                    self.receipts.read(submitter, route, after, now)
                    self._send(route, "now", queue, self.name, self.epoch, self._wall_ms)
            case ("bodies", bytes() as session, tuple() as bodies) if session == self.log.session:
                for each in bodies:
                    if isinstance(each, bytes):
                        self._take_body(each, now)
            case ("pull-bodies", bytes() as session, tuple() as ids) if session == self.log.session:
                wanted = [self.messages.get(each) for each in ids[:16] if isinstance(each, bytes)]
                for each in wanted:
                    if each is not None and each.body is not None:
                        self._send(route, "bodies", session, (each.body,))
            case _:
                return False
        return True

    def _take(self, effects: Sequence[Effect]) -> None:
        """Effects of the log go on as they are, but for its deadline, which is one of two."""
        for effect in effects:
            if isinstance(effect, WakeAt):
                self._log_due = effect.deadline
            else:
                self._out.append(effect)

    def _finish(self, now: int) -> list[Effect]:
        for entry in self.log.take_delivered():
            self._read(entry, now)
        self._due = None
        if self.is_active:
            self._apply(now)
        if self.log.voice is Voice.SPEAKING and not self.chain.is_broken:
            if not self._has_said_again:
                self._say_again(now)
            if self.is_active and self.name in self._voters:
                self._act(now)
        self._send_bodies()
        self._ask_for_bodies(now)
        self._tell(now)
        self._take(self.log.wake(now))  # what was said above may be made an entry now
        for entry in self.log.take_delivered():
            self._read(entry, now)
        due = earlier(self._log_due, self._due)
        if due != self._armed:
            self._armed = due
            self._out.append(WakeAt(due))
        out, self._out = self._out, []
        return out

    def _processed(self, call: FunctionCall, outcomes: Sequence[Outcome], now: int) -> None:
        """The user's function has answered: of messages to be proposed, or of a block to be confirmed."""
        if call.block is not None:
            self._compared(call, call.block, outcomes, now)
        else:
            self._worked_out(call, outcomes, now)

    # Former lives.

    def _replay(self) -> None:
        """What former lives had kept: bodies and receipts; and the entries of the log, votes among them."""
        rows: list[Remembered] = []
        for row in self.log.upper_rows:
            match row:
                case ("taken", fields, bytes() as body):
                    header = MessageHeader.of(fields)
                    self._unsaid[header.id] = header
                    self._early_bodies[header.body_hash] = body
                case ("body", bytes() as body):
                    self._early_bodies[sha256(body).digest()] = body
                case ("remembered", bytes() as chunk):
                    rows += remembered(chunk)
                case ("begins", int() as begins_ms, tuple() as missed, tuple() as ends):
                    epochs = tuple(each for each in missed if isinstance(each, int))
                    ended = tuple(taken(each, bytes, bytes, int) for each in ends)
                    self._begin(Beginning(tuple(rows), begins_ms, epochs, ended))
                case ("receipt", *_):
                    submitter, receipt = receipt_of_row(row)
                    self.receipts.add(self.log.session, submitter, receipt, is_stored=True)
                    if receipt.kind == "placed":
                        self._placed.add(receipt.id)
                    elif receipt.kind != "refusal":
                        self._told_before[receipt.id] = receipt.kind
                case _:
                    raise Malformed("a row that no life of this queue has kept")
        self.log.upper_rows.clear()
        for header in self._unsaid.values():
            self._add_header(header, self.name, 0)
        for entry in self.log.take_delivered():
            self._read(entry, 0)
        self._early_bodies.clear()
        self._early_bytes = 0

    def _say_again(self, now: int) -> None:
        """Put into the log what a former life took in, and had no time to say."""
        for header in self._unsaid.values():
            self.log.append(("external", header.fields), now)
        self._has_said_again = True

    # Reading the log.

    def _read(self, entry: LogEntry, now: int) -> None:
        """Take the statements of a delivered entry into what is known."""
        is_voter = entry.author in self._voters
        for item in entry.items:
            try:
                may_say = is_voter or item[0] in ("handed_over", "certificate", "fork")
                if not may_say or not self._read_item(entry, item, now):
                    self._count("unknown_record")
            except Malformed:
                self._count("malformed_record")

    def _read_item(self, entry: LogEntry, item: tuple[Value, ...], now: int) -> bool:  # noqa: PLR0912 - one case a kind
        match item:
            case ("external", fields):
                header = MessageHeader.of(fields)
                self._unsaid.pop(header.id, None)
                self._add_header(header, entry.author, now)
            case ("handed_over", fields, bytes()):
                header = MessageHeader.of(fields)
                if header.epoch == self.epoch - 1:
                    self._add_header(header, entry.author, now)
            case ("refusal", bytes() as message_id, int(), str() as reason):
                message = self.messages.get(message_id)
                if message is not None and message.refusals.get(entry.author, ("", b""))[1] == b"":
                    message.refusals[entry.author] = reason, entry.digest
            case ("candidate", fields):
                self._add_candidate(Block.of(fields), entry)
            case ("vote", str() as kind, int() as slot, bytes() as block, bytes() as signature):
                if self.chain.add_vote(kind, slot, block, entry.author, signature):
                    self._seen = max(self._seen, slot)
                    if entry.author == self.name:
                        self._voted.add((kind, slot))
                else:
                    self._count("bad_vote")
            case ("certificate", str() as kind, int() as slot, bytes() as block, tuple() as votes):
                for vote in votes:
                    match vote:
                        case (str() as name, bytes() as signature):
                            self.chain.add_vote(kind, slot, block, name, signature)
                        case _:
                            raise Malformed("a certificate is names and signatures")
                if self.chain.certificate(kind, slot, block):
                    self._certificates.add((kind, slot, block))
            case ("fork", *_):
                pass
            case _:
                return False
        return True

    def _add_candidate(self, block: Block, entry: LogEntry) -> None:
        self.chain.add_block(block)
        if block.collator == entry.author == self.chain.collator(block.slot):
            self._proposals.setdefault(block.slot, (block.digest, entry.digest))
            self._seen = max(self._seen, block.slot)

    # What the chain says.

    def _apply(self, now: int) -> None:
        """Take in blocks that have become final, and tell what they mean for messages."""
        chain = self.chain
        while self._applied < len(chain.final):
            block = chain.blocks[chain.final[self._applied]]
            if any(each.id not in self.messages for each in block.verdicts):
                break  # a header that its collator had: the log brings it
            self._applied += 1
            touched: set[bytes] = set()
            if self.seal is None:  # what expires behind the seal belongs to the next session
                self._times.append(block.time_ms)
                while self._expiring and self._expiring[0][0] < block.time_ms:
                    touched.add(heapq.heappop(self._expiring)[1])
            for verdict in block.verdicts:
                self._verdicts.setdefault(verdict.id, (self._applied, verdict))
                uid = self.messages[verdict.id].uid
                touched.add(verdict.id)
                if verdict.kind == DONE:
                    self._done.setdefault(uid, (self._applied, verdict))
                    touched |= self._by_uid[uid]
            if block.record and self.seal is None:
                self.seal, self._sealed_at = block, self._applied
                old = [
                    each
                    for each in self._undecided
                    if self.messages[each].header.epoch < self.epoch
                ]
                touched.update(old)
            for message_id in sorted(touched):
                self._settle(self.messages[message_id], now)
            if block is self.seal:
                self.left += self._undecided
                self._out.append(
                    Notice(
                        NoticeKind.SEALED,
                        self.epoch,
                        (),
                        f"position {self._applied}, {len(self._undecided)} messages go on",
                    )
                )
        self._follow_live(now)

    # Turns.

    def _act(self, now: int) -> None:
        """Vote and propose, as far as this slot allows it."""
        chain = self.chain
        self._spread_certificates(now)
        for slot in range(self._finalised_below, chain.slot):
            if slot in chain.certified:
                self._vote(FINALISE, slot, chain.certified[slot], now)
        if self.seal is not None:
            return
        slot = chain.slot
        self._look_who_is_silent(slot)
        if self._slot_since[0] != slot:
            self._slot_since = (slot, now) if self._has_cause(now) else (0, 0)
        if self._slot_since[0] == 0 and not self._has_cause(now):
            return
        if self._slot_since[0] != slot:
            self._slot_since = (slot, now)
        if chain.collator(slot) == self.name:
            self._propose(slot, now)
        if slot in self._proposals:
            self._judge(slot, now)
        timer = self._slot_since[1] + self._timeout(slot)
        if now >= timer or (SKIP, slot) in self._voted or self._is_hopeless(slot):
            self._vote(SKIP, slot, b"", now)
        else:
            self._due = earlier(self._due, timer)
