"""All votes that correct nodes may cast in two slots, beside liars who cast every vote: never two final chains.

Explored is the whole space: in each slot two blocks behind each one that may stand before it, as collators may
lie, too. A correct node approves one of them or none, skips or doesn't, and finalises what is approved and it has
not skipped. What any order of events allows is among these, so nothing is said of time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations_with_replacement

import pytest

from surepipe.queues.rmq.chain import APPROVE, FINALISE, SKIP, Block, VoteChain, vote_signed
from surepipe.queues.rmq.encoding import quorum
from tests.queues.rmq.log_network import SESSION, KeyedHash

Choice = tuple[Block | None, bool, Block | None]
"""What a correct node approves, whether it skips, and what it finalises."""
Decided = tuple[frozenset[bytes], bool, frozenset[bytes]]
"""Approved blocks, whether the slot is skipped, and final blocks, each by a quorum."""


def blocks_of(slot: int, parent: Block | None) -> list[Block]:
    """Two different ones."""
    before = (parent.slot, parent.digest) if parent else (0, SESSION)
    return [Block(SESSION, slot, *before, "n1", time_ms, ()) for time_ms in (1, 2)]


def choices(blocks: Sequence[Block]) -> list[Choice]:
    """All that one correct node may do in a slot."""
    approved = (None, *blocks)
    skipping: list[Choice] = [(each, True, None) for each in approved]
    return skipping + [(each, False, final) for each in approved for final in approved]


def decisions(
    blocks: Sequence[Block], honest: int, lying: int, size: int
) -> Mapping[Decided, Sequence[Choice]]:
    """All that a slot may come to, each with votes that lead there. Liars give every vote."""
    found: dict[Decided, Sequence[Choice]] = {}
    for votes in combinations_with_replacement(choices(blocks), honest):
        approved = {
            each.digest for each in blocks if sum(vote[0] is each for vote in votes) + lying >= size
        }
        finalised = [each for _, _, each in votes if each is not None]
        if any(each.digest not in approved for each in finalised):
            continue  # a correct node finalises what is approved
        final = frozenset(
            each.digest for each in blocks if sum(one is each for one in finalised) + lying >= size
        )
        is_skipped = sum(vote[1] for vote in votes) + lying >= size
        found.setdefault((frozenset(approved), is_skipped, final), votes)
    return found


def runs(
    honest: int, lying: int, size: int
) -> Iterator[list[tuple[Sequence[Block], Sequence[Choice]]]]:
    """All of two slots, each with its blocks and votes."""
    first = blocks_of(1, None)
    for (approved, is_skipped, _), votes in decisions(first, honest, lying, size).items():
        parents: list[Block | None] = [each for each in first if each.digest in approved]
        parents += [None] if is_skipped else []
        second = [each for parent in parents for each in blocks_of(2, parent)]
        for later in decisions(second, honest, lying, size).values():
            yield [(first, votes), (second, later)]


def chain_of(
    n: int, lying: int, size: int, slots: Sequence[tuple[Sequence[Block], Sequence[Choice]]]
) -> list[VoteChain]:
    """The chains of two nodes that hear all of it, one of them backwards."""
    names = [f"n{at + 1}" for at in range(n)]
    said: list[tuple[str, int, bytes, str]] = []
    for slot, (blocks, votes) in enumerate(slots, 1):
        for name, (approved, skips, final) in zip(names, votes, strict=False):
            said += [(APPROVE, slot, approved.digest, name)] if approved else []
            said += [(SKIP, slot, b"", name)] if skips else []
            said += [(FINALISE, slot, final.digest, name)] if final else []
        for name in names[n - lying :]:
            said.append((SKIP, slot, b"", name))
            said += [(kind, slot, b.digest, name) for b in blocks for kind in (APPROVE, FINALISE)]
    found: list[VoteChain] = []
    for order in (said, said[::-1]):
        voters = {name: KeyedHash(name).public for name in names}
        chain = VoteChain(SESSION, voters, size, KeyedHash("x"))
        for blocks, _ in slots:
            for block in blocks:
                chain.add_block(block)
        for kind, slot, digest, name in order:
            text = vote_signed(SESSION, kind, slot, digest)
            assert chain.add_vote(kind, slot, digest, name, KeyedHash(name).sign(text))
        found.append(chain)
    return found


@pytest.mark.parametrize(("n", "faults"), [(3, "crash"), (4, "byzantine"), (7, "byzantine")])
def test_no_votes_of_correct_nodes_make_two_final_chains(n: int, faults: str) -> None:
    """rmq RQ-91: with as many liars as may lie. All votes come to 70 different decisions about two slots."""
    allowed = quorum(n, faults)
    count = 0
    for slots in runs(n - allowed.may_lie, allowed.may_lie, allowed.size):
        one, other = chain_of(n, allowed.may_lie, allowed.size, slots)
        count += 1
        assert not one.is_broken
        assert not other.is_broken
        assert one.final == other.final
    assert count == 70


def test_one_liar_more_makes_two_final_chains() -> None:
    """rmq RQ-91: the exploration sees what it looks for."""
    allowed = quorum(4)
    lying = allowed.may_lie + 1
    assert any(
        each.is_broken
        for slots in runs(4 - lying, lying, allowed.size)
        for each in chain_of(4, lying, allowed.size, slots)
    )
