"""Messages of a session: taken in, with bodies that travel beside the log, and what their senders are told."""

from __future__ import annotations

import heapq
from hashlib import sha256

from surepipe.core.timing import earlier
from surepipe.queues.rmq.catchain import Voice
from surepipe.queues.rmq.encoding import (
    MessageHeader,
    Value,
    encode,
)
from surepipe.queues.rmq.receipts import Receipt
from surepipe.queues.rmq.session.state import (
    MS,
    Ending,
    SessionMessage,
    SessionState,
)

EARLY_BODIES_MAX, EARLY_BYTES_MAX = 4096, 16 << 20
BODIES_BYTES = 256 << 10


class SessionMessages(SessionState):
    """What becomes of a message at this node, as far as the chain has nothing to say."""

    # Submitting.

    def _submit(
        self, route: str, queue: str, head: tuple[Value, ...], body: bytes, now: int
    ) -> None:
        """Take a message in, and answer when it is stored; or refuse it, which leaves no trace."""
        header = MessageHeader.of(head)
        message_id, submitter = header.id, header.submitter
        why = self._why_not(header, queue, body)
        self.receipts.meet(submitter, route, now)
        if not why and message_id in self._placed:
            self._out += self.receipts.repeat(message_id, submitter, route)
            return
        if not why and message_id not in self.messages:
            if self.log.append(("external", header.fields), now):
                self._add_header(header, self.name, now)
            else:
                why = "overloaded"
        if why:
            self._count(f"refused_{why}")
            self._send(route, "answer", self.queue, self.name, message_id, why)
            return
        row = self.log.keep(("taken", header.fields, body), now)
        self._take_body(body, now, is_kept=True)
        self._fresh_bodies.append(body)
        self._placed.add(message_id)
        self._issue(self.messages[message_id], "placed", b"", now, row=row)

    def _why_not(self, header: MessageHeader, queue: str, body: bytes) -> str:
        settings = self.settings
        if len(body) != header.size or sha256(body).digest() != header.body_hash:
            return "malformed"
        is_here = self.partition.holds(header.point)
        if queue != self.queue or header.queue != queue or self.name not in self._voters:
            return "moved"
        if self.seal is not None or not is_here:
            return "moved"
        if self.log.voice is not Voice.SPEAKING:
            return "unavailable"
        if header.id in self.messages:
            return ""
        checks = (
            ("ahead", header.epoch > self.epoch),
            ("too-old", header.epoch < self.epoch - 1 or header.expires_ms < self._wall_ms),
            (
                "ttl",
                header.expires_ms - self._wall_ms > settings.ttl_max_ms + settings.clock_skew_ms,
            ),
            ("too-large", len(body) > settings.message_bytes_max),
            ("overloaded", len(self._undecided) >= settings.pending_max),
        )
        return next((reason for reason, fails in checks if fails), "")

    # Headers and bodies.

    def _add_header(self, header: MessageHeader, author: str, now: int) -> None:
        if header.queue != self.queue or header.epoch not in (self.epoch, self.epoch - 1):
            self._count("foreign_header")
            return
        if not self.partition.holds(header.point):
            self._count("foreign_header")
            return
        if header.id in self.messages:
            message = self.messages[header.id]
            if message.author in self.log.blamed and author not in self.log.blamed:
                message.author = author
            return
        message = SessionMessage(header, header.id, header.uid, author=author)
        message.told = self._told_before.pop(header.id, "")
        message.body_due = now
        self.messages[message.id] = message
        self._by_uid.setdefault(message.uid, set()).add(message.id)
        self._undecided[message.id] = None
        heapq.heappush(self._expiring, (header.expires_ms, message.id))
        self._bodiless.setdefault(header.body_hash, {})[message.id] = None
        body = self._early_bodies.get(header.body_hash) or self.find_body(header)
        if body is not None:
            self._take_body(body, now)
        if self.is_active:
            self._settle(message, now)
        if self.seal is not None and not message.is_terminal:
            self.left.append(message.id)

    def _take_body(self, body: bytes, now: int, *, is_kept: bool = False) -> None:
        """Take a body in that a header here speaks of; hold one whose header is on its way, for a while."""
        body_hash = sha256(body).digest()
        wanting = [
            self.messages[each]
            for each in self._bodiless.pop(body_hash, ())
            if self.messages[each].header.size == len(body)
        ]
        for message in wanting:
            message.body = body
        if wanting:
            self._early_bytes -= len(self._early_bodies.pop(body_hash, b""))
            if not is_kept and self._wall_ms:  # not in a replay
                self.log.keep(("body", body), now)
        elif len(body) <= self.settings.message_bytes_max:
            early = self._early_bodies
            self._early_bytes += 0 if body_hash in early else len(body)
            early[body_hash] = body
            while len(early) > EARLY_BODIES_MAX or self._early_bytes > EARLY_BYTES_MAX:
                self._early_bytes -= len(early.pop(next(iter(early))))

    def _send_bodies(self) -> None:
        """Give the others what was taken in here in this step."""
        fresh, self._fresh_bodies = self._fresh_bodies, []
        while fresh:
            size = many = 0
            while many < len(fresh) and (not many or size + len(fresh[many]) <= BODIES_BYTES):
                size += len(fresh[many])
                many += 1
            for peer in self._voters:
                if peer != self.name:
                    self._send(peer, "bodies", self.log.session, tuple(fresh[:many]))
            del fresh[:many]

    def _ask_for_bodies(self, now: int) -> None:
        """Ask for bodies of messages that wait: first who brought the header, then the others in turn."""
        asked: dict[str, list[bytes]] = {}
        for message_id in [each for ids in self._bodiless.values() for each in ids]:
            message = self.messages[message_id]
            is_wanted = message.header.kind == "plan" or (
                self.keeps_bodies and message_id in self._verdicts
            )
            if message.is_terminal and not is_wanted:
                continue
            if message.body_due <= now:
                peers = [message.author, *(each for each in self._voters if each != message.author)]
                peers = [each for each in peers if each != self.name]
                if not peers:
                    continue
                if message.body_asked:  # the first time its body may be on its way
                    peer = peers[(message.body_asked - 1) % len(peers)]
                    asked.setdefault(peer, []).append(message_id)
                message.body_asked += 1
                first = message.body_asked == 1
                message.body_due = now + (50 * MS if first else self.settings.body_timeout_us)
            self._due = earlier(self._due, message.body_due)
        for peer, ids in asked.items():
            for at in range(0, len(ids), 16):
                self._send(peer, "pull-bodies", self.log.session, tuple(ids[at : at + 16]))

    # Receipts.

    def _issue(
        self,
        message: SessionMessage,
        kind: str,
        detail: bytes,
        now: int,
        *,
        row: int = 0,
        ending: Ending | None = None,
    ) -> None:
        """Give a receipt; of a terminal kind with its ending. It is stored before it is shown, so its number is
        never given again."""
        if self.name not in self._voters:
            return
        submitter = message.header.submitter
        number = self.receipts.next_number(submitter, self._wall_ms)
        block, slot, epoch = b"", 0, self.epoch
        if ending is not None:
            epoch = ending.epoch
            if epoch == self.epoch:
                block = self.chain.final[ending.position - 1]
                slot = self.chain.blocks[block].slot
        receipt = Receipt(number, message.id, kind, epoch, slot, block, detail, self._wall_ms)
        self.receipts.add(self.log.session, submitter, receipt, is_stored=False)
        kept = self.log.keep(("receipt", submitter, receipt.fields), now)
        self._unstored.append((max(row, kept), submitter, number))

    def _tell(self, now: int) -> None:
        """Send receipts that are stored to those who read."""
        while self._unstored and self._unstored[0][0] <= self.log.is_kept:
            _, submitter, number = self._unstored.popleft()
            self.receipts.stored(submitter, number)
        self._out += self.receipts.tell(now)

    def _settle(self, message: SessionMessage, now: int) -> None:
        """Tell how a message ended, once it has."""
        if message.is_terminal:
            return
        ending = self.ending(message.id)
        if ending is None:
            return
        message.is_terminal = True
        self._undecided.pop(message.id, None)
        if message.told != ending.kind:
            message.told = ending.kind
            if not self.receipts.has_told_end(message.id):  # nor in the session before this one
                detail = encode((ending.position, ending.detail))
                self._issue(message, ending.kind, detail, now, ending=ending)

    def _follow_live(self, now: int) -> None:
        """Tell what undecided messages have come to, up or down."""
        if self._followed == self.chain.version:
            return
        self._followed = self.chain.version
        live = self._live_ids()
        for message_id in [*live, *(each for each in self._undecided if self.messages[each].told)]:
            message = self.messages.get(message_id)
            if message is None or message.is_terminal or message_id not in self._undecided:
                continue
            standing = live.get(message_id, "")
            before = message.told if message.told in ("collated", "accepted") else ""
            if standing == before:
                continue
            message.told = standing
            if not self.receipts.has_readers_of_steps(message.header.submitter, now):
                continue
            if standing == "accepted" or (standing == "collated" and not before):
                self._issue(message, standing, b"", now)
            elif not standing:
                self._issue(message, "returned", b"", now)
