"""Judges two ledgers by what they show: each message was executed at most once and answered, both sides agree,
and nothing was known before it was said.

It reads blocks, headers and trees, and believes nobody: roots come from replaying the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, pairwise

from surepipe.core.store_requests import StreamInfo, Unavailable, called
from surepipe.errors import StoreReset, StoreUnavailable
from surepipe.queues.ibc.calls import ItemKind, Submission
from surepipe.queues.ibc.keys import QueueKey, Receipt, parse_key
from surepipe.queues.ibc.ledger import Ledger, inbox_of
from surepipe.queues.ibc.merkle_store import BlockRecord, IbcRefused
from surepipe.queues.ibc.transitions import Evidence, by_hand_row


@dataclass(slots=True)
class ConnectionHistory:
    """The events at one end of a connection, each with its block."""

    sent: dict[int, int] = field(default_factory=dict[int, int])
    ended: dict[int, int] = field(default_factory=dict[int, int])
    answered: dict[int, int] = field(default_factory=dict[int, int])
    codes: dict[int, int] = field(default_factory=dict[int, int])
    """Of receipts that were written here; a late one counts."""
    trusted: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Block, and the other party's height that was believed in it."""
    twice: list[str] = field(default_factory=list[str])
    height: int = 0
    """The last block that was read."""
    is_by_hand: bool = False
    """Whether a person gave the connection up, so that what was settled last is no proof of anything."""
    is_whole: bool = True
    """Whether the log goes back to the first block. What was before is not known."""

    def believed(self, block: int) -> int:
        """The highest height of the other party that was believed when this block was made."""
        return max((height for at, height in self.trusted if at <= block), default=0)


def first_kept(ledger: Ledger) -> int:
    """The first block that is still in the log."""
    info = ledger.store.info(ledger.merkle.log)
    return info.earliest if isinstance(info, StreamInfo) else 1


def history_of(ledger: Ledger, connection: str) -> ConnectionHistory:
    """Read from the log of one party."""
    first = first_kept(ledger)
    found = ConnectionHistory(is_whole=first == 1)
    party = ledger.connections[connection].party
    for block in ledger.merkle.blocks(first):
        _add(found, block, connection, party)
    return found


def _add(found: ConnectionHistory, block: BlockRecord, connection: str, party: str) -> None:
    found.height = block.height
    for operation in block.operations:
        if not operation.space:
            found.is_by_hand |= operation.key == by_hand_row(connection)
            height = _trusted_height(party, operation.key)
            if height is not None and operation.value is not None:
                found.trusted.append((block.height, height))
            continue
        key = parse_key(operation.key) if operation.space == "ibc" else None
        if key is None or key.connection != connection or key.index is None:
            continue
        index = key.index
        if key.queue == "send":
            where = found.ended if operation.value is None else found.sent
            if index in where:
                found.twice.append(f"message {index} was sent or settled twice")
            where[index] = block.height
        elif operation.value is not None:
            if key.part == "entry":
                if index in found.answered:
                    found.twice.append(f"message {index} was answered twice")
                found.answered[index] = block.height
            found.codes[index] = Receipt.decode(operation.value).code


@dataclass(slots=True)
class KeptProofs:
    """The proofs that a party was given and still keeps, judged again."""

    valid: int = 0
    invalid: int = 0
    """Under a header that is believed they don't show what they claim. Forgers leave such; they were refused."""
    unknown: int = 0
    """Of a height whose header isn't kept, or unreadable."""
    unproven: list[int] = field(default_factory=list[int])
    """Messages that were executed and whose only kept submissions prove nothing. An inbox is its relay's to write,
    and trimmed, so that convicts nobody: one that is gone may have shown them."""


def judge_submissions(ledger: Ledger, connection: str) -> KeptProofs:
    """Verify again what relays submitted to a party for a connection, under the headers that it keeps."""
    found, end = KeptProofs(), ledger.connections[connection]
    client = ledger.client(end.party)
    roots = {} if client is None else {h: e.header.root for h, e in client.trusted.items()}
    shown, claimed = set[int](), set[int]()
    submissions = chain.from_iterable(_submissions(ledger, each, found) for each in ledger.relayers)
    for submission in submissions:
        if submission.connection != connection:
            continue
        root = roots.get(submission.height)
        record = QueueKey(end.known_as, "", "connection").encode()
        evidence = Evidence(submission.proof, submission.items, record)
        for item in submission.items:
            if root is None:
                found.unknown += 1
                continue
            is_valid = evidence.shows(root, item.key, item.shown)
            found.valid += is_valid
            found.invalid += not is_valid
            key = parse_key(item.key)
            if item.kind is ItemKind.RECEIVE and key is not None and key.index is not None:
                (shown if is_valid else claimed).add(key.index)
    executed = set(history_of(ledger, connection).answered)
    found.unproven = sorted((claimed - shown) & executed) if not found.unknown else []
    return found


def _submissions(ledger: Ledger, relayer: str, found: KeptProofs) -> Iterator[Submission]:
    stream = inbox_of(relayer)
    store = ledger.store.beside(stream)
    info = store.info(stream)
    if isinstance(info, Unavailable):
        raise StoreUnavailable(f"{called(store)}: could not look for {stream!r}: {info}")
    if not isinstance(info, StreamInfo):
        return
    payloads = ledger.items(stream, info.earliest - 1, info.next - info.earliest, store)
    with suppress(
        StoreReset
    ):  # the relay may write there as it likes; what is missing convicts nobody
        for payload in payloads:
            try:
                yield Submission.decode(payload)
            except IbcRefused:
                found.unknown += 1


def _trusted_height(party: str, row: bytes) -> int | None:
    """Of a row that keeps a header of a party."""
    before = f"client/{party}/header/".encode()
    is_one = row.startswith(before) and len(row) == len(before) + 8
    return int.from_bytes(row[-8:], "big") if is_one else None


def judge_ledger(ledger: Ledger) -> Iterator[str]:
    """Whether one ledger agrees with itself: heights and times go up, and each root is what the log comes to
    (I-12, I-13)."""
    times = list[int]()
    for block, root in ledger.merkle.replayed():
        times.append(block.time_ms)
        if root != block.root:
            yield f"block {block.height} came to {block.root.hex()}, and done again to {root.hex()}"
            return
        if block.height <= ledger.height:
            header = ledger.header(block.height).header
            if (header.height, header.root, header.time_ms) != (
                block.height,
                block.root,
                block.time_ms,
            ):
                yield f"header {block.height} isn't that of its block"
    if any(a >= b for a, b in pairwise(times)):
        yield "times of blocks don't go up"


def judge_connection(a: Ledger, b: Ledger, names: tuple[str, str]) -> Iterator[str]:
    """Whether both ends of a connection fit together, in both directions."""
    one, other = history_of(a, names[0]), history_of(b, names[1])
    is_ordered = a.connections[names[0]].is_ordered
    yield from _judge(one, other, f"{a.party} to {b.party}", is_ordered=is_ordered)
    yield from _judge(other, one, f"{b.party} to {a.party}", is_ordered=is_ordered)


def judge_believed(ours: Ledger, theirs: Ledger) -> Iterator[str]:
    """Whether a party still has the headers that another one believes of it. Theirs is looked at again behind
    ours: it may have gone on since, and not back."""
    client = ours.client(theirs.party)
    if client is None:
        return
    theirs.refresh()
    newest = client.newest.header.height
    if newest > theirs.height:
        yield (
            f"{theirs.party}: its store has {theirs.height} signed blocks, and {ours.party} believes its header "
            f"{newest}: the store lost some, or went back"
        )


def _judge(
    ours: ConnectionHistory, theirs: ConnectionHistory, path: str, *, is_ordered: bool
) -> Iterator[str]:
    for text in (*ours.twice, *theirs.twice):
        yield f"{path}: {text}"
    for index, block in theirs.answered.items():
        if index not in ours.sent:
            # What it was shown may be of a block that was made after ours were read.
            if ours.is_whole and theirs.believed(block) <= ours.height:
                yield f"{path}: message {index} was answered and never sent"
        elif theirs.is_whole and theirs.believed(block) < ours.sent[index]:
            yield f"{path}: message {index} was received before its sending was believed"
    for index, block in ours.ended.items():
        answer = theirs.answered.get(index)
        is_known = ours.is_whole and not ours.is_by_hand
        if not is_known or (answer is not None and answer <= ours.believed(block)):
            continue
        if answer is not None and theirs.codes.get(index) == 0:
            yield f"{path}: message {index} was executed, and settled without its receipt"
    if is_ordered:
        for what, where in (("received", theirs.answered), ("settled", ours.ended)):
            if list(where) != sorted(where):
                yield f"{path}: messages were {what} out of order"


__all__ = [
    "ConnectionHistory",
    "KeptProofs",
    "history_of",
    "judge_believed",
    "judge_connection",
    "judge_ledger",
    "judge_submissions",
]
