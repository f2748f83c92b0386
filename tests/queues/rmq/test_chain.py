"""Every way in which three honest nodes and a liar can vote in two slots: there is one final chain.

The liar is the first collator, proposes two blocks, and votes for everything. Honest nodes keep to the rules:
one vote for a block, never both skip and finalise in a slot, and finalise only what a quorum has approved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement, product

from surepipe.queues.rmq.chain import (
    APPROVE,
    DONE,
    FINALISE,
    SKIP,
    Block,
    JobVerdict,
    VoteChain,
    vote_signed,
)
from tests.queues.rmq.log_network import SESSION, KeyedHash

NAMES = ("n1", "n2", "n3", "n4")
VOTERS = {name: KeyedHash(name).public for name in NAMES}
HONEST, LIAR = NAMES[:3], "n4"
A = Block(SESSION, 1, 0, SESSION, LIAR, 1, (JobVerdict(bytes(32), DONE, b"", ""),))
B = Block(SESSION, 1, 0, SESSION, LIAR, 2, ())
Ballot = tuple[int, str]
"""Which of two blocks was approved (2: none), and what came then."""
BALLOTS: Sequence[Ballot] = tuple(product((0, 1, 2), ("", SKIP, FINALISE)))


class AnyKeys:
    """Signatures that are what they sign: nobody forges here."""

    public = b""

    def sign(self, data: bytes) -> bytes:
        return data

    def verify(self, key: bytes, signature: bytes, data: bytes) -> bool:
        del key
        return signature == data


def vote(chain: VoteChain, kind: str, slot: int, block: bytes, name: str) -> None:
    """Count one vote."""
    assert chain.add_vote(kind, slot, block, name, vote_signed(SESSION, kind, slot, block))


def cast(chain: VoteChain, slot: int, blocks: Sequence[Block], ballots: Sequence[Ballot]) -> None:
    """Let all vote in a slot; the liar for everything."""
    for name, (approved, _) in zip(HONEST, ballots, strict=True):
        if approved < len(blocks):
            vote(chain, APPROVE, slot, blocks[approved].digest, name)
    for block in blocks:
        vote(chain, APPROVE, slot, block.digest, LIAR)
        vote(chain, FINALISE, slot, block.digest, LIAR)
    vote(chain, SKIP, slot, b"", LIAR)
    for name, (_, then) in zip(HONEST, ballots, strict=True):
        if then == SKIP:
            vote(chain, SKIP, slot, b"", name)
        elif then == FINALISE and slot in chain.certified:
            vote(chain, FINALISE, slot, chain.certified[slot], name)


def seconds(chain: VoteChain) -> Iterator[Sequence[Block]]:
    """What may be proposed in slot 2: behind an approved block of slot 1, or behind nothing if it was skipped."""
    found = [
        Block(SESSION, 2, slot, parent, "n3", 3, ())
        for slot, parent in (
            (1, chain.certified.get(1)),
            (0, SESSION if 1 in chain.skipped else None),
        )
        if parent is not None
    ]
    return iter([found] if found else [])


def test_there_is_one_final_chain_whatever_is_voted() -> None:
    """rmq RQ-17, RQ-25, RQ-26, RQ-29: every combination of ballots of three honest nodes in two slots of two."""
    runs = finals = both = 0
    for first in combinations_with_replacement(BALLOTS, 3):
        for second in combinations_with_replacement(BALLOTS, 3):
            chain = VoteChain(SESSION, VOTERS, 3, AnyKeys())
            for block in (A, B):
                chain.add_block(block)
            cast(chain, 1, (A, B), first)
            assert (
                len(
                    [
                        key
                        for key, given in chain.votes.items()
                        if key[0] == APPROVE and len(given) > 2
                    ]
                )
                < 2
            )
            for blocks in seconds(chain):
                for block in blocks:
                    assert chain.is_founded(block)
                    chain.add_block(block)
                cast(chain, 2, blocks, second)
            runs += 1
            assert not chain.is_broken, (first, second)
            finals += bool(chain.final)
            both += 1 in chain.certified and 1 in chain.skipped
    assert runs == 165 * 165
    assert finals > 1_000, "some become final"
    assert both > 1_000, "a slot may be approved and skipped"


def test_who_finalises_what_he_skipped_breaks_the_chain() -> None:
    """rmq RQ-25: the rule is needed. One honest node that finalises what it skipped is enough for two chains."""
    chain = VoteChain(SESSION, VOTERS, 3, AnyKeys())
    chain.add_block(A)
    for name in HONEST:
        vote(chain, APPROVE, 1, A.digest, name)
    beside = Block(SESSION, 2, 0, SESSION, "n3", 3, ())
    chain.add_block(beside)
    for name in ("n1", "n2", LIAR):
        vote(chain, SKIP, 1, b"", name)
    for name in HONEST:
        vote(chain, APPROVE, 2, beside.digest, name)
        vote(chain, FINALISE, 2, beside.digest, name)
    for name in ("n1", "n3", LIAR):
        vote(chain, FINALISE, 1, A.digest, name)
    assert chain.is_broken
