"""Who may claim a reader again: the same life as often as it likes, until a later one has begun."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from surepipe.core.store_requests import ClaimReader, FencedOut, Owner, Unavailable
from surepipe.storage.faulty import FaultyStore, Misfortune
from surepipe.storage.memory import MemoryStore
from surepipe.storage.positions import CHANCE_BITS, Claims, number_now, numbered


class Clock:
    """A wall clock in milliseconds."""

    def __init__(self, ms: int) -> None:
        self.ms = ms

    def with_chance(self, chance: int) -> Callable[[], int]:
        """Numbers lives by this clock."""
        return lambda: numbered(self.ms, chance)


@pytest.fixture(name="store")
def make_store() -> FaultyStore:
    """A store with misfortunes on demand."""
    return FaultyStore(MemoryStore())


def claim(claims: Claims, renewal: int = 1) -> object:
    """Claim the reader."""
    return claims.claim("s", "r", renewal)


def test_a_life_takes_over_and_its_renewals_go_on(store: FaultyStore) -> None:
    """Each renewal is a new owner, a repeat of one is the same."""
    clock = Clock(1000)
    first = Claims(store, clock.with_chance(3))
    assert [claim(first, n) for n in (1, 1, 2, 2, 5)] == [Owner(n) for n in (1, 1, 2, 2, 3)]
    clock.ms += 1
    assert claim(Claims(store, clock.with_chance(0))) == Owner(4)


def test_lives_of_one_millisecond_replace_each_other(
    store: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is drawn, and however late the answer: the highest chances, each below the one before."""
    highest = (1 << CHANCE_BITS) - 1
    drawn = iter(range(highest, highest - 8, -1))

    def randbits(bits: int) -> int:
        return next(drawn) & ((1 << bits) - 1)

    monkeypatch.setattr("secrets.randbits", randbits)
    for number in range(1, 9):
        monkeypatch.setattr("time.time_ns", lambda: 1_000_000_000)
        claims = Claims(store, number_now)
        monkeypatch.setattr(claims, "_number_of_life", lambda: numbered(1_003, 0))
        assert claim(claims) == Owner(number)


def test_a_life_that_was_replaced_claims_in_vain(store: FaultyStore) -> None:
    """Also a thousand renewals later, and whatever the clock shows by then; the later life renews at will."""
    clock = Clock(1000)
    older = Claims(store, clock.with_chance(5))
    claim(older)
    clock.ms += 1
    newer = Claims(store, clock.with_chance(0))
    claim(newer)
    for shown in (1001, 5000, 1):
        clock.ms = shown
        for renewal in (1, 2, 1000):
            assert isinstance(claim(older, renewal), FencedOut)
    assert claim(newer, 2) == Owner(3)


def test_two_that_begin_in_one_millisecond_replace_each_other_in_their_order(
    store: FaultyStore,
) -> None:
    """Whatever their chance is: who begins takes over, and only who begins."""
    clock, earlier = Clock(1000), list[Claims]()
    for owner, chance in enumerate((7, 7, 0, 9), 1):
        claims = Claims(store, clock.with_chance(chance))
        assert claim(claims) == Owner(2 * owner - 1)
        assert claim(claims, 2) == Owner(2 * owner)
        assert all(isinstance(claim(former, 3), FencedOut) for former in earlier)
        earlier.append(claims)


def test_one_whose_clock_is_behind_takes_over_all_the_same(store: FaultyStore) -> None:
    """It was started by intent, and nobody can have begun in the future."""
    ahead = Claims(store, Clock(9000).with_chance(1))
    claim(ahead)
    behind = Claims(store, Clock(1000).with_chance(1))
    assert claim(behind) == Owner(2)
    assert isinstance(claim(ahead, 2), FencedOut)
    assert claim(behind, 2) == Owner(3)


@pytest.mark.parametrize("misfortune", [Misfortune.OUTAGE, Misfortune.UNKNOWN])
def test_a_first_claim_without_an_answer_is_repeated_unless_somebody_began_meanwhile(
    store: FaultyStore, misfortune: Misfortune
) -> None:
    """Done or not done, it is the claim of the moment when the life began."""
    clock = Clock(1000)
    later = Claims(store, clock.with_chance(0))
    for is_replaced in (False, True):
        clock.ms += 10
        store.script(misfortune, on=ClaimReader)
        waiting = Claims(store, clock.with_chance(1))
        assert isinstance(claim(waiting), Unavailable)
        clock.ms += 10
        later = Claims(store, clock.with_chance(1))
        if is_replaced:
            claim(later)
            clock.ms += 10
        assert isinstance(claim(waiting), FencedOut if is_replaced else Owner)
    assert isinstance(claim(later, 2), Owner)


def test_numbers_follow_the_clock_and_fit_a_store() -> None:
    """Milliseconds of the wall clock first; below 2^63 for centuries."""
    one, other = number_now(), number_now()
    assert 0 <= (other >> CHANCE_BITS) - (one >> CHANCE_BITS) < 60_000
    assert numbered(2, 0) > numbered(1, (1 << CHANCE_BITS) - 1)
    assert numbered(200 * 366 * 24 * 3600 * 1000, 0) < 2**63
