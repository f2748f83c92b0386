"""PL-31 to PL-34 and more: errors of parties that don't trust each other, in the world of two banks.

A mutant is one function of a party's machine that means something else for a while. Two relays and a forger carry,
processes end between any two writes, and the judge reads both ledgers at the end (``tests.simulation.banks``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from surepipe.queues.ibc import Client, IbcRefused, SignedHeader, Transaction
from surepipe.queues.ibc.calls import Item
from surepipe.queues.ibc.keys import QueueKey, Receipt, SendValue
from surepipe.queues.ibc.module import MessageType
from surepipe.queues.ibc.queue import ProvableQueue
from surepipe.queues.ibc.transitions import Evidence, OpenBlock
from tests.mutants.mutant import Around, swapped
from tests.simulation.banks import TROUBLED, Played, run


@dataclass(frozen=True)
class PartyMutant:
    """A party with ``change`` in it, for as long as ``around`` is on; ``killed_by``: what the judge of ledgers
    names.

    ``within``: a ceiling on the seeds until the first kill, well above what was measured.
    """

    id: str
    change: str
    killed_by: tuple[str, ...]
    around: Around
    order: str = "ordered"
    equivocates: bool = False
    within: int = 12
    first: int = 0
    """the seed to begin with: what only one schedule of a hundred shows is looked for near it"""

    def __str__(self) -> str:
        return self.id

    def played(self, seed: int) -> Played:
        """The run of a seed, with the error in it."""
        with self.around():
            return run(seed, TROUBLED, self.order, equivocates=self.equivocates)


@dataclass(frozen=True)
class PartyKill:
    """The first seed that a mutant died by, and what was found there."""

    mutant: PartyMutant
    seeds: int
    names: tuple[str, ...]
    """What was found in that run."""
    digest: str


def hunt_party(mutant: PartyMutant) -> PartyKill | None:
    """Run one seed after the other until a named property is violated; None when none was within the ceiling."""
    for seed in range(mutant.first, mutant.first + mutant.within):
        played = mutant.played(seed)
        names = tuple(sorted({each.name for each in played.found}))
        if set(names) & set(mutant.killed_by):
            return PartyKill(mutant, seed + 1, names, played.digest)
    return None


def any_turn(to: object, index: int, queue: ProvableQueue) -> None:
    """PL-31: what comes too early is taken."""
    del to
    if index < queue.tail:
        raise IbcRefused("already-received", "planted")


def again_and_again(to: object, index: int, queue: ProvableQueue) -> None:
    """What was received is received again."""
    del to, index, queue


def settles_nothing(queue: ProvableQueue, index: int) -> bytes | None:
    """PL-32: a receipt that comes again is committed or rolled back again."""
    return queue.retrieve(index)


def little_endian(key: QueueKey) -> bytes:
    """PL-33: an index is written with its lowest byte first."""
    usual = _encode(replace(key, index=None))
    return usual if key.index is None else usual + key.index.to_bytes(8, "little")


def any_proof(evidence: Evidence, root: bytes, key: bytes, value: bytes | None) -> bool:
    """Whatever is brought is shown by whatever is beside it."""
    del evidence, root, key, value
    return True


def always_over(value: SendValue, height: int, time_ms: int) -> bool:
    """A limit is over by our own clock, whatever the other party's says."""
    del height, time_ms
    return value.timeout_ms > 0


def commits_all(
    block: OpenBlock, known: MessageType, tx: Transaction, data: bytes, receipt: Receipt
) -> Exception | None:
    """What failed over there, or never came there, is committed here."""
    return _call_back(block, known, tx, data, replace(receipt, code=0))


def never_received(to: object, key: QueueKey, item: Item) -> int:
    """A message times out though the other party has executed it."""
    del to, key, item
    return 0


def sees_no_evil(client: Client, signed: SignedHeader) -> None:
    """A second history of a party is no evidence, and the party is believed as before."""
    del client, signed


_encode = QueueKey.encode
_call_back: Callable[..., Exception | None] = vars(OpenBlock)["_call_back"]

PARTIES: tuple[PartyMutant, ...] = (
    PartyMutant(
        "PL-31-IBC",
        "an index beyond the next one is taken",
        ("connection", "queues", "rest", "supply"),
        swapped(OpenBlock, "_check_turn", staticmethod(any_turn)),
    ),
    PartyMutant(
        "PL-32-IBC",
        "a receipt that comes again counts again",
        ("connection", "rest", "supply"),
        swapped(ProvableQueue, "settle", settles_nothing),
    ),
    PartyMutant(
        "PL-33-IBC",
        "indexes in keys are little-endian",
        ("connection", "rest", "supply"),
        swapped(QueueKey, "encode", little_endian),
    ),
    PartyMutant(
        "IBC-proof-unread",
        "a proof isn't looked at",
        ("connection", "queues", "rest", "supply"),
        swapped(Evidence, "shows", any_proof),
    ),
    PartyMutant(
        "IBC-received-again",
        "what was received is received again",
        ("connection", "rest", "supply"),
        swapped(OpenBlock, "_check_turn", staticmethod(again_and_again)),
        order="unordered",
    ),
    PartyMutant(
        "IBC-own-clock",
        "a limit is over by our own clock",
        ("connection", "rest", "supply"),
        swapped(SendValue, "is_over", always_over),
    ),
    PartyMutant(
        "IBC-received-and-late",
        "what was executed times out, too",
        ("connection", "supply"),
        swapped(OpenBlock, "_received_before", staticmethod(never_received)),
        first=130,
    ),
    PartyMutant(
        "IBC-rollback-committed",
        "what failed over there is committed here",
        ("supply",),
        swapped(OpenBlock, "_call_back", commits_all),
    ),
    PartyMutant(
        "IBC-evidence-unseen",
        "who shows two histories is believed on",
        ("evidence", "rest"),
        swapped(Client, "_contradiction", sees_no_evil),
        equivocates=True,
    ),
)
