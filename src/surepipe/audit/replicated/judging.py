"""What a replicated queue's nodes have stored, judged together: that they decided the same, each message once, and
told the truth of it; who lied, and whether that is proven.

It shares no code with the nodes but for how values are written: what is final, and what a message has come to,
is worked out here again from signed entries alone.

What can't be known is said: a node whose store isn't at hand, a message that waits, an epoch that is forgotten.
Where more nodes lie than the queue bears nothing was promised, and what is broken is told as not judged.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from surepipe.audit.replicated.evidence import (
    LogEvidence,
    NodeRows,
    SessionPlace,
    SharedReading,
    StoredSession,
    opened,
    read_session,
    records_of,
)
from surepipe.audit.trace_audit import Judged, Standing
from surepipe.queues.rmq.chain import APPROVE, DONE, REFUSED, SKIP, Block, JobVerdict, ordered
from surepipe.queues.rmq.encoding import MemberKeys, MessageHeader, encode
from surepipe.queues.rmq.entries import LogEntry
from surepipe.queues.rmq.epochs import (
    EpochRecord,
    Foundation,
    Memory,
    Remembered,
    sealed_digest,
)
from surepipe.queues.rmq.receipts import TERMINAL

LOGS = "signed logs"
FORKS = "proof of who signs two entries"
AGREEMENT = "agreement"
APPROVED = "blocks by quorum"
RULES = "blocks by the rules"
ONCE = "each message decided once"
MEMORY = "memory of what was decided"
NO_LOSS = "no message lost"
RECEIPTS = "true receipts"
RECORDS = "one record for each epoch"
CASES = 3
_LOG_PROMISES = frozenset((LOGS, FORKS))
"""These hold however many lie."""


@dataclass(frozen=True)
class QueueAudit:
    """What was found. ``notes`` say what was read, and who lied."""

    judged: tuple[Judged, ...]
    notes: tuple[str, ...]

    @property
    def broken(self) -> tuple[Judged, ...]:
        return tuple(each for each in self.judged if each.standing is Standing.BROKEN)


@dataclass(frozen=True)
class _Ending:
    kind: str
    position: int
    detail: bytes


@dataclass
class _Session:
    """One session: the stored entries of each node, and what follows from all together."""

    place: SessionPlace
    logs: dict[str, StoredSession]
    reading: SharedReading
    all_of_it: LogEvidence = field(init=False)
    by_node: dict[str, LogEvidence] = field(init=False)
    forks: dict[str, tuple[int, set[bytes]]] = field(init=False)
    """By author: the first height for which he signed two entries, and their digests."""
    liars: dict[str, str] = field(init=False)
    """By name: what he did."""
    verdicts: dict[bytes, tuple[int, JobVerdict]] = field(init=False)
    done: dict[bytes, tuple[int, JobVerdict]] = field(init=False)
    """By uid."""
    headers: dict[bytes, MessageHeader] = field(init=False)
    memory: dict[bytes, Remembered] = field(init=False)
    """What it began with, as any of its nodes has it; by id."""
    seal: tuple[int, Block] | None = field(init=False)
    """Where it ended."""
    _done_before: dict[bytes, Remembered] = field(init=False)
    """By uid: work that was done in epochs before, and isn't done again."""
    _times: list[int] = field(init=False)
    _ends: list[tuple[bytes, bytes, int]] = field(init=False)

    def __post_init__(self) -> None:
        place, reading = self.place, self.reading
        entries: dict[bytes, LogEntry] = {}
        for log in self.logs.values():
            entries |= {d: each for d, each in log.entries.items() if each.signature}
        keys = place.keys
        signed = [
            each
            for each in entries.values()
            if each.author in keys and reading.holds(keys[each.author], each.signature, each.signed)
        ]
        self.forks = _forks(signed)
        self.by_node = {
            name: LogEvidence(place, log.entries.values(), reading)
            for name, log in self.logs.items()
        }
        self.all_of_it = LogEvidence(place, signed, reading)
        self.liars = {
            **self.all_of_it.double_voters(),
            **{name: f"signed two entries for height {at}" for name, (at, _) in self.forks.items()},
        }
        self.headers = dict(self.all_of_it.headers)
        for log in self.logs.values():
            self.headers |= log.taken
        self.verdicts, self.done = {}, {}
        begun = [log for log in self.logs.values() if log.has_begun and log.node not in self.liars]
        self.memory = {row.id: row for row in begun[0].memory} if begun else {}
        least = place.epoch - place.record.settings.dedupe_epochs
        self._done_before = {
            row.uid: row
            for row in self.memory.values()
            if row.kind == "finalized" and row.decided > least
        }
        self._ends = begun[0].ends if begun else []
        seals = [(at, block) for at, block in enumerate(self.final, 1) if block.record]
        self.seal = seals[0] if seals else None
        upto = seals[0][0] if seals else len(self.final)
        self._times = [block.time_ms for block in self.final[:upto]]
        for position, block in enumerate(self.final, 1):
            for verdict in block.verdicts:
                self.verdicts.setdefault(verdict.id, (position, verdict))
                header = self.headers.get(verdict.id)
                if verdict.kind == DONE and header is not None:
                    self.done.setdefault(header.uid, (position, verdict))

    @property
    def final(self) -> Sequence[Block]:
        return self.all_of_it.final

    @property
    def absent(self) -> list[str]:
        """Members whose store isn't at hand, but for those that are shown to lie: nobody would believe theirs."""
        there = self.logs.keys() | self.liars.keys()
        return [each for each in self.place.voters if each not in there]

    def ending(self, header: MessageHeader) -> _Ending | None:
        """The outcome of a message by the earliest evidence; None: it waits."""
        row = self.memory.get(header.id)
        if row is not None:
            return _Ending(row.kind, row.position, row.detail)
        row = self._done_before.get(header.uid)
        had_expired = row is not None and header.expires_ms < row.before_ms
        if row is not None and not (row.decided == header.epoch and had_expired):
            return _Ending("duplicate", row.position, encode((row.id, row.detail)))
        if header.epoch < self.place.epoch:
            for lo, hi, sealed_ms in self._ends:
                if lo <= header.point <= hi and header.expires_ms < sealed_ms:
                    return _Ending("expired", 0, b"")
        found: list[tuple[int, int, _Ending]] = []
        position, verdict = self.verdicts.get(header.id, (0, None))
        if verdict is not None:
            is_done = verdict.kind == DONE
            detail = verdict.result if is_done else verdict.reason.encode()
            kind = "finalized" if is_done else "refused"
            found.append((position, 0, _Ending(kind, position, detail)))
        position, verdict = self.done.get(header.uid, (0, None))
        if verdict is not None and verdict.id != header.id:
            detail = encode((verdict.id, verdict.result))
            found.append((position, 1, _Ending("duplicate", position, detail)))
        late = bisect_right(self._times, header.expires_ms)
        if late < len(self._times):
            found.append((late + 1, 2, _Ending("expired", late + 1, b"")))
        if self.seal is not None and header.epoch < self.place.epoch:
            found.append((self.seal[0], 2, _Ending("expired", self.seal[0], b"")))
        return min(found, key=lambda each: each[:2])[2] if found else None


def _forks(entries: Sequence[LogEntry]) -> dict[str, tuple[int, set[bytes]]]:
    at: dict[tuple[str, int], set[bytes]] = {}
    for entry in entries:
        at.setdefault((entry.author, entry.height), set()).add(entry.digest)
    found: dict[str, tuple[int, set[bytes]]] = {}
    for (author, height), digests in sorted(at.items()):
        if len(digests) > 1:
            found.setdefault(author, (height, digests))
    return found


# Judging.


def judge_queue(
    foundation: Foundation, nodes: Sequence[NodeRows], keys: MemberKeys, *, at_rest: bool = False
) -> QueueAudit:
    """Judge what is at hand of a queue: of some of its nodes or of all. ``keys`` verify signatures. ``at_rest``:
    nothing more will be decided, so what waits is lost."""
    reading = SharedReading(keys)
    notes: list[str] = []
    records, judged = _judge_records(foundation, nodes, keys)
    sessions = _sessions(records, nodes, reading)
    for session in sessions:
        notes += [f"{session.place}: {each}" for each in _about(session)]
        judged += _judge_session(session, sessions, at_rest=at_rest)
    first = min((each.place.epoch for each in sessions), default=1)
    if first > 1:
        notes.append(f"epochs before {first} are forgotten by the nodes, and not judged")
    return QueueAudit(tuple(judged), tuple(notes))


def _judge_records(
    foundation: Foundation, nodes: Sequence[NodeRows], keys: MemberKeys
) -> tuple[dict[int, EpochRecord], list[Judged]]:
    """The records that nodes know, and whether they know the same."""
    records: dict[int, EpochRecord] = {1: foundation.record}
    faults: list[str] = []
    for node in nodes:
        chain = records_of(foundation, node, keys)
        for number, found in chain.known.items():
            known = records.setdefault(number, found)
            if known.digest != found.digest:
                faults.append(f"{node.name} has another record of epoch {number}")
        faults += [
            f"{node.name} has a session of epoch {number}, and no proof of that epoch"
            for number, _ in opened(node.epochs)
            if number not in chain.known
        ]
    for before, after in pairwise(sorted(records)):
        length_ms = records[before].settings.epoch_length_ms
        if before > 1 and records[after].start_ms < records[before].start_ms + length_ms:
            faults.append(f"epoch {before} was shorter than agreed")
    if len(records) == 1:
        return records, []
    return records, [_told("epochs", RECORDS, faults)]


def _sessions(
    records: Mapping[int, EpochRecord], nodes: Sequence[NodeRows], reading: SharedReading
) -> list[_Session]:
    """All sessions that a node has something of, the earliest first."""
    places: dict[tuple[int, bytes], SessionPlace] = {}
    for node in nodes:
        for number, lo in node.logs:
            found = records.get(number)
            parts = [each for each in found.partitions if each.lo == lo] if found else []
            if found is not None and parts:
                places[number, lo] = SessionPlace(found, parts[0], records.get(number - 1))
    sessions: list[_Session] = []
    for key, place in sorted(places.items()):
        logs = {
            node.name: read_session(node.name, node.logs[key], place, reading)
            for node in nodes
            if key in node.logs
        }
        sessions.append(_Session(place, logs, reading))
    return sessions


def _about(session: _Session) -> Iterator[str]:
    kinds = [
        ending.kind if ending else "waits"
        for ending in map(session.ending, session.headers.values())
    ]
    counted = [f"{kinds.count(each)} {each}" for each in (*TERMINAL, "waits") if each in kinds]
    sealed = "sealed, " if session.seal else ""
    told = ", ".join(counted) or "no message"
    yield f"{sealed}{len(session.final)} final blocks; {told}"
    for name, what in sorted(session.liars.items()):
        yield f"{name} lied: it {what}"


def _told(part: str, promise: str, faults: Sequence[str], unknown: str = "") -> Judged:
    """Broken where there are faults, else not judged where something isn't known, else held."""
    if faults:
        more = f"; and {len(faults) - CASES} more" if len(faults) > CASES else ""
        return Judged(part, promise, Standing.BROKEN, "; ".join(faults[:CASES]) + more)
    return Judged(part, promise, Standing.UNJUDGED if unknown else Standing.HELD, unknown)


def _judge_session(
    session: _Session, sessions: Sequence[_Session], *, at_rest: bool
) -> Iterator[Judged]:
    if not session.headers and not session.final and not session.liars:
        if any(log.entries for log in session.logs.values()):
            yield from (_judge_logs(session), _judge_forks(session))
        memory = _judge_memory(session, sessions)
        if memory is not None:
            yield memory
        return
    rows = (
        _judge_logs(session),
        _judge_forks(session),
        _judge_agreement(session),
        _judge_quorums(session),
        _judge_rules(session),
        _judge_once(session, sessions),
        _judge_memory(session, sessions),
        _judge_loss(session, sessions, at_rest=at_rest),
        _judge_receipts(session),
    )
    for row in rows:
        if row is not None:
            yield _as_claimed(session, row)


def _as_claimed(session: _Session, row: Judged) -> Judged:
    """With more liars than the queue bears, nothing but the log is promised."""
    liars = sorted(session.liars)
    if row.standing is not Standing.BROKEN or row.promise in _LOG_PROMISES:
        return row
    if len(liars) <= session.place.may_lie:
        return row
    why = (
        f"{', '.join(liars)} lied, and {session.place.may_lie} of {len(session.place.voters)} may: "
        f"nothing is promised then ({row.why})"
    )
    return Judged(row.part, row.promise, Standing.UNJUDGED, why)


def _judge_logs(session: _Session) -> Judged:
    """CC-3, CL-2, CL-3: every entry is signed by its author, and stands behind what it cites."""
    faults = [
        fault
        for name, log in session.logs.items()
        if name not in session.liars
        for fault in log.faults
    ]
    return _told(str(session.place), LOGS, faults, _unread(session))


def _unread(session: _Session) -> str:
    absent = session.absent
    return f"the store of {', '.join(absent)} isn't at hand" if absent else ""


def _judge_forks(session: _Session) -> Judged:
    """CC-13, CL-8: whoever signed two entries for one height is proven a liar, at every node that holds both."""
    faults: list[str] = []
    unproven: list[str] = []
    for author, (height, digests) in session.forks.items():
        for name, log in session.logs.items():
            if author in log.proofs or name in session.liars:
                continue
            told = f"{author} signed two entries for height {height}"
            if len(digests & log.entries.keys()) > 1:
                faults.append(f"{told}, {name} has both and no proof")
            else:
                unproven.append(f"{told}, and {name} hasn't heard of it")
    unknown = "; ".join(unproven) or _unread(session)
    return _told(str(session.place), FORKS, faults, unknown)


def _judge_agreement(session: _Session) -> Judged:
    """All nodes have one chain, as far as each has got."""
    faults: list[str] = []
    chains = {
        name: each.final for name, each in session.by_node.items() if name not in session.liars
    }
    longest = max(chains, key=lambda name: len(chains[name]), default="")
    for name, chain in chains.items():
        for position, (mine, theirs) in enumerate(zip(chain, chains[longest], strict=False), 1):
            if mine.digest != theirs.digest:
                faults.append(f"{name} and {longest} hold different blocks at position {position}")
                break
    on_chain = {block.digest for block in session.final}
    tip = session.final[-1].slot if session.final else 0
    for slot, digest in reversed(session.all_of_it.finalised()):
        if slot <= tip and digest not in on_chain:
            faults.append(f"a quorum has finalised a block in slot {slot} beside the final chain")
    return _told(str(session.place), AGREEMENT, faults, _unread(session))


def _judge_quorums(session: _Session) -> Judged:
    """A quorum approved each final block, and skipped each slot that it jumps."""
    faults: list[str] = []
    evidence = session.all_of_it
    for position, block in enumerate(session.final, 1):
        if not evidence.has_quorum(APPROVE, block.slot, block.digest):
            faults.append(f"block {position} was not approved by {session.place.quorum}")
        faults += [
            f"block {position} jumps slot {slot}, which {session.place.quorum} have not skipped"
            for slot in range(block.parent_slot + 1, block.slot)
            if not evidence.has_quorum(SKIP, slot)
        ]
    unread = _unread(session)
    if faults and unread:  # who isn't here may have said so
        return _told(str(session.place), APPROVED, (), unread)
    return _told(str(session.place), APPROVED, faults)


def _judge_rules(session: _Session) -> Judged:
    """RQ-24: the right node proposes at the right time, in the right order, and only what it may."""
    faults: list[str] = []
    unknown = 0
    before: Block | None = None
    for position, block in enumerate(session.final, 1):
        faults += [f"block {position} {why}" for why in _breaches(session, block, before)]
        unknown += sum(each.id not in session.headers for each in block.verdicts)
        before = block
    why = (
        f"{unknown} messages of final blocks aren't in the logs that are at hand" if unknown else ""
    )
    return _told(str(session.place), RULES, faults, why)


def _breaches(session: _Session, block: Block, before: Block | None) -> Iterator[str]:
    place, settings = session.place, session.place.record.settings
    if block.collator != place.voters[block.slot % len(place.voters)]:
        yield f"is by {block.collator}, whose turn it wasn't"
    if before is not None and block.time_ms < before.time_ms:
        yield "is earlier than the one before it"
    ids = [each.id for each in block.verdicts]
    if ids != ordered(block.parent, set(ids)) or len(ids) > settings.batch_max:
        yield "has its messages in an order that its collator chose, or too many"
    sealed = session.seal
    if sealed is not None and block.slot > sealed[1].slot and (block.verdicts or block.record):
        yield "has messages behind the seal"
    if block.record and block.verdicts:
        yield "is a seal with messages"
    for verdict in block.verdicts:
        header = session.headers.get(verdict.id)
        short = verdict.id.hex()[:8]
        if header is None:
            continue
        if not place.partition.holds(header.point) or header.epoch not in (
            place.epoch,
            place.epoch - 1,
        ):
            yield f"has {short}, which belongs elsewhere"
        if verdict.kind == DONE and header.expires_ms < block.time_ms:
            yield f"does {short}, which had expired"
        refusing = session.all_of_it.refusals.get(verdict.id, set())
        if verdict.kind == REFUSED and not set(place.voters) <= refusing and not session.absent:
            yield f"refuses {short}, which not all have refused"


def _judge_once(session: _Session, sessions: Sequence[_Session]) -> Judged | None:
    """A message has one verdict, and work of one dedupe key is done once."""
    faults: list[str] = []
    verdicts: dict[bytes, int] = {}
    done: dict[bytes, tuple[int, bytes]] = {}
    for position, block in enumerate(session.final, 1):
        for each in block.verdicts:
            short, header = each.id.hex()[:8], session.headers.get(each.id)
            if each.id in verdicts:
                faults.append(f"{short} is decided in block {verdicts[each.id]} and {position}")
            verdicts.setdefault(each.id, position)
            if header is None or each.kind != DONE:
                continue
            if header.uid in done and done[header.uid][1] != each.id:
                faults.append(
                    f"the work of {short} is done in block {done[header.uid][0]} and {position}"
                )
            done.setdefault(header.uid, (position, each.id))
    window = session.place.record.settings.dedupe_epochs
    for other in sessions:
        behind = session.place.epoch - other.place.epoch
        if behind <= 0:
            continue
        faults += [
            f"{each.hex()[:8]} is decided in epoch {other.place.epoch} too"
            for each in verdicts.keys() & other.verdicts.keys()
        ]
        if behind < window:
            faults += [
                f"the work of {done[uid][1].hex()[:8]} was done in epoch {other.place.epoch} too"
                for uid in done.keys() & other.done.keys()
            ]
    return _told(str(session.place), ONCE, sorted(faults)) if verdicts else None


def _judge_memory(session: _Session, sessions: Sequence[_Session]) -> Judged | None:
    """RQ-70: all began with the same, and it is what the seals before it name."""
    logs = {n: log for n, log in session.logs.items() if log.has_begun and n not in session.liars}
    parents = [
        each
        for each in sessions
        if each.place.epoch == session.place.epoch - 1
        and each.place.partition.meets(session.place.partition)
    ]
    if session.place.epoch == 1 or not logs:
        return None
    faults: list[str] = []
    first, known = next(iter(logs.items()))
    rows = sorted(each.fields for each in known.memory)
    for name, log in logs.items():
        if sorted(each.fields for each in log.memory) != rows:
            faults.append(f"{name} and {first} remember different things")
    of_parent = _remembered_of(session, parents)
    faults += [
        f"{verdict.id.hex()[:8]}, decided in epoch {session.place.epoch - 1}, isn't remembered"
        for verdict in of_parent
        if verdict.id not in session.memory
    ]
    whole = [each for each in parents if each.place.partition == session.place.partition]
    if whole and (sealed := whole[0].seal) is not None:
        hashes = Memory.written(known.memory).hashes
        if sealed[1].record != sealed_digest(session.place.record.digest, hashes):
            faults.append("the seal before it names another memory, or another record")
        return _told(str(session.place), MEMORY, faults)
    why = "the sessions before it are forgotten" if not parents else ""
    return _told(str(session.place), MEMORY, faults, "" if len(logs) > 1 else why)


def _remembered_of(session: _Session, parents: Sequence[_Session]) -> list[JobVerdict]:
    """What sealed sessions before this one decided of messages whose keys it has."""
    found: list[JobVerdict] = []
    for parent in parents:
        if parent.seal is None:
            continue
        for _, verdict in parent.verdicts.values():
            header = parent.headers.get(verdict.id)
            matters = verdict.kind == DONE or (header and header.epoch == parent.place.epoch)
            if header is not None and matters and session.place.partition.holds(header.point):
                found.append(verdict)
    return found


def _judge_loss(session: _Session, sessions: Sequence[_Session], *, at_rest: bool) -> Judged | None:
    """Each message that a node took in is decided, waits, or goes on in the next epoch."""
    if not session.headers:
        return None
    faults: list[str] = []
    waiting: list[str] = []
    known = session.all_of_it.known_to(session.seal[1].digest) if session.seal else set[bytes]()
    for header in session.headers.values():
        if session.ending(header) is not None:
            continue
        short = header.id.hex()[:8]
        if session.seal is None:
            waiting.append(short)
            continue
        heirs = [
            each
            for each in sessions
            if each.place.epoch == session.place.epoch + 1
            and each.place.partition.holds(header.point)
        ]
        if any(header.id in each.headers for each in heirs):
            continue
        if not any(each.seal for each in heirs):
            waiting.append(short)
        elif header.id in known:
            faults.append(
                f"{short} was known to all who sealed this epoch, and nobody handed it over"
            )
    for name, log in session.logs.items():
        for submitter, receipt in log.receipts:
            is_kept = receipt.id in session.by_node[name].headers or receipt.id in log.taken
            if receipt.kind == "placed" and not is_kept and name not in session.liars:
                faults.append(f"{name} told {submitter} that it keeps {receipt.id.hex()[:8]}")
    if at_rest:
        faults += [f"{each} was taken in, and isn't decided" for each in waiting]
    some = ", ".join(waiting[:CASES])
    why = f"{len(waiting)} wait for their end ({some}{' ...' if len(waiting) > CASES else ''})"
    return _told(str(session.place), NO_LOSS, faults, why if waiting else "")


def _judge_receipts(session: _Session) -> Judged | None:
    """Receipts of nodes must match the decisions: one ending each, with numbers that grow."""
    faults: list[str] = []
    told_of = 0
    for name, log in session.logs.items():
        if name in session.liars:
            continue
        last: dict[str, int] = {}
        ended: set[bytes] = set()
        for submitter, receipt in log.receipts:
            told_of += 1
            short = receipt.id.hex()[:8]
            if receipt.number <= last.get(submitter, 0):
                faults.append(f"{name} gave {submitter} number {receipt.number} after a later one")
            last[submitter] = max(receipt.number, last.get(submitter, 0))
            if receipt.kind not in TERMINAL:
                continue
            if receipt.id in ended:
                faults.append(f"{name} told the end of {short} twice")
            ended.add(receipt.id)
            header = session.headers.get(receipt.id)
            ending = session.ending(header) if header is not None else None
            if ending is None:
                faults.append(f"{name} told that {short} was {receipt.kind}, and it isn't decided")
            elif (ending.kind, encode((ending.position, ending.detail))) != (
                receipt.kind,
                receipt.detail,
            ):
                faults.append(
                    f"{name} told that {short} was {receipt.kind}, and it was {ending.kind} at {ending.position}"
                )
    return _told(str(session.place), RECEIPTS, faults) if told_of else None
