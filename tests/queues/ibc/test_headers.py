"""Headers and clients: known bytes, what is trusted, gaps, misbehaviour, and time. All time is told."""

from __future__ import annotations

from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surepipe.errors import MisuseError
from surepipe.queues.ibc.headers import (
    ENTRIES_MAX,
    Client,
    ClientStatus,
    Header,
    HeaderError,
    HeaderOutcome,
    NewerFormat,
    SignedHeader,
    TrustRoot,
    ValidatorSet,
    public_key,
    sign,
    update_to,
)
from surepipe.queues.ibc.proof import ProofError
from tests.kit.headers import PUBLIC, Chain, damaged_header, honest, seed_of

PERIOD = 1_000_000


def client_of(chain: Chain, height: int = 1, **changes: int | Fraction) -> Client:
    """One that trusts this height of the chain."""
    return Client(TrustRoot(chain.at(height), PERIOD, **changes))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def update(client: Client, signed: SignedHeader, now_ms: int = 100_000) -> HeaderOutcome:
    """Submit it; a refusal must change nothing, and the question beforehand must get the same answer."""
    before, asked = deepcopy(client), client.check(signed, now_ms)
    outcome = client.update(signed, now_ms)
    assert outcome == asked
    if outcome.kind in ("refused", "known"):
        assert client == before
    return outcome


def test_a_known_header_has_known_bytes() -> None:
    """IT-33: the set, the header and its signature."""
    own = ValidatorSet.of({public_key(b"\1" * 32): 1})
    assert own.hash.hex() == "a42ced8a0d64b4d84aa48b96295aebd8f9619c3157f5b91666e0aaa384027f81"
    root = bytes.fromhex("c37faeab36a82be1b63e3416e9f7d68193c6f2618e3f2d8e50002a270eb3b2f8")
    header = Header("east", 1, 1_700_000_000_000, root, own.hash, own.hash)
    assert header.hash.hex() == "dd76a600ce412f4c86f9afcbedfff61acd24d1e280dc1fbc6216ae931a3d19bd"
    ((_, signature),) = sign(header, [b"\1" * 32]).signatures
    assert signature.hex() == (
        "9e4ec488790d77c36699f670a7f9c580b3567752cbab6f5ef064e131157d946b"
        "921b7842b82332144bf177908286be1f73b9d2fe3cb9648f290897fd08289c03"
    )


def test_what_was_encoded_is_decoded() -> None:
    """IB-17: with both sets, with one, with none."""
    signed = Chain(step=1).at(5)
    for each in (
        signed,
        replace(signed, validators=None),
        replace(signed, validators=None, next_validators=None),
    ):
        assert SignedHeader.decode(each.encode()) == each


@settings(max_examples=50)
@given(st.binary(max_size=400), st.integers(0, 2**32))
def test_any_bytes_are_a_header_or_none(data: bytes, seed: int) -> None:
    """IB-22: random ones, and good ones that were damaged; only its own error is raised."""
    random, good = Random(seed), Chain().at(3).encode()
    at = random.randrange(len(good))
    for each in (
        data,
        good[:at] + data[:1] + good[at + 1 :],
        good[:at],
        good[:at] + data + good[at:],
    ):
        with suppress(ProofError):
            decoded = SignedHeader.decode(each)
            outcome = update(client_of(Chain()), decoded)
            assert outcome.kind == "refused" or decoded.header == Chain().at(3).header


@pytest.mark.parametrize(
    "data", [b"", b"\1", b"\1\2ab", b"\1\x01a" + bytes(112), Chain().at(1).header.encode() + b"\0"]
)
def test_a_header_has_one_encoding(data: bytes) -> None:
    """IB-17: a name of one letter, a length that is wrong, and bytes behind it are refused."""
    with pytest.raises(HeaderError):
        Header.decode(data)


def test_a_later_format_is_neither_believed_nor_refuted() -> None:
    """IB-118: it is told apart from bytes that are no header."""
    with pytest.raises(NewerFormat):
        Header.decode(b"\2" + Chain().at(1).header.encode()[1:])


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [(PUBLIC[1], 0)],
        [(PUBLIC[1][:31], 1)],
        [(PUBLIC[1], 1), (PUBLIC[1], 1)],
        sorted([(PUBLIC[1], 1), (PUBLIC[2], 1)], reverse=True),
        [(PUBLIC[1], 1 << 63)],
    ],
)
def test_a_set_of_validators_is_sorted_and_bounded(rows: list[tuple[bytes, int]]) -> None:
    """IB-17: no member twice, none without power, and a total that can be counted."""
    with pytest.raises(HeaderError):
        ValidatorSet(tuple(rows))


def test_the_next_header_is_trusted_and_a_forged_one_is_not() -> None:
    """IT-28: trusted; invalid; known."""
    chain, client = Chain(), client_of(Chain())
    good = chain.at(2)
    forged = replace(good, header=replace(good.header, root=bytes(32)))
    assert update(client, forged).code == "invalid-header"
    assert update(client, good).kind == "trusted"
    assert update(client, good).kind == "known"
    assert client.newest.header == good.header


def bad_signatures() -> dict[str, SignedHeader]:
    """Headers of height 2 that too few, or the wrong ones, signed."""
    chain = Chain(size=6)
    good = chain.at(2)
    stranger = chain.at(2, signers=[1, 2, 3, 4, 5, 20])
    twice = replace(good, signatures=(good.signatures[0], *good.signatures[:5]))
    (key, first), (_, second), *rest = good.signatures
    swapped = replace(good, signatures=((key, second), *good.signatures[1:]))
    del first, rest
    return {
        "nobody": chain.at(2, signers=[]),
        "exactly two thirds": chain.at(2, signers=[1, 2, 3, 4]),
        "a stranger": stranger,
        "somebody twice": twice,
        "a signature of another": swapped,
        "a short signature": replace(good, signatures=((key, b"short"), *good.signatures[1:])),
        "another set": replace(
            good, validators=chain.set_at(2), header=replace(good.header, validators=bytes(32))
        ),
    }


@pytest.mark.parametrize("signed", bad_signatures().values(), ids=bad_signatures())
def test_a_header_needs_more_than_two_thirds_of_its_validators(signed: SignedHeader) -> None:
    """IB-17: each signature by a distinct member, over these bytes; nothing is frozen by a bad one."""
    client = client_of(Chain(size=6))
    outcome = update(client, signed)
    assert (outcome.kind, outcome.code, outcome.is_valid) == ("refused", "invalid-header", False)
    assert client.status(100_000) is ClientStatus.ACTIVE


def test_five_of_six_are_enough() -> None:
    """IB-17: one may be away."""
    assert (
        update(client_of(Chain(size=6)), Chain(size=6).at(2, signers=[1, 2, 3, 4, 5])).kind
        == "trusted"
    )


def test_the_next_header_must_have_the_validators_that_were_named() -> None:
    """IB-17: invalid, and never a gap: nothing can stand in between."""
    other = Chain(step=1)
    assert update(client_of(Chain()), other.at(2)).code == "invalid-header"


def test_a_client_is_brought_over_changes_of_validators() -> None:
    """IT-29, IB-18: validators are replaced one by one, so a jump has a gap; bisection needs few headers."""
    chain = Chain(size=9, step=2)
    client = client_of(chain)
    outcome = update(client, chain.at(50))
    assert (outcome.code, outcome.gap, outcome.is_valid) == ("header-gap", (1, 50), None)
    outcome, submitted = update_to(client, 50, chain.at, 100_000)
    assert outcome.kind == "trusted"
    assert submitted < 49
    assert client.newest.header.height == 50


def test_a_jump_within_the_level_of_trust_needs_one_header() -> None:
    """IB-17: more than the level of those who are trusted signed it; at the level itself it is a gap."""
    for level, holds in ((Fraction(1, 3), True), (Fraction(4, 9), True), (Fraction(5, 9), False)):
        chain = Chain(size=9, step=2)  # at height 10 five of the nine of height 2 are there
        outcome = update(client_of(chain, trust_level=level), chain.at(10))
        assert (outcome.kind == "trusted") == holds


def test_two_headers_of_one_height_freeze() -> None:
    """IT-30, IB-19: found by an update, with the evidence; then nothing is believed or proven any more."""
    chain, client = Chain(), client_of(Chain())
    update(client, chain.at(2))
    twin = chain.at(2, root=bytes(32))
    assert client.check(twin, 0).kind == "frozen"
    assert client.status(0) is ClientStatus.ACTIVE
    assert update(client, twin).kind == "frozen"
    assert client.misbehaviour is not None
    assert (client.misbehaviour.first, client.misbehaviour.second) == (chain.at(2), twin)
    assert update(client, chain.at(3)).code == "client-frozen"
    found = client.header_at(2, 0)
    assert isinstance(found, HeaderOutcome)
    assert found.code == "client-frozen"


@pytest.mark.parametrize(("height", "time_ms"), [(4, 2000), (4, 1999), (3, 5000), (3, 6000)])
def test_a_time_that_runs_backwards_freezes(height: int, time_ms: int) -> None:
    """IB-19: against the trusted header before, or the one behind."""
    chain, client = Chain(), client_of(Chain())
    update(client, chain.at(2))
    if height == 3:
        update(client, chain.at(5))
    assert update(client, chain.at(height, time_ms=time_ms)).kind == "frozen"


def test_the_lowest_header_can_freeze_and_nothing_below_it_is_believed() -> None:
    """IB-17: below the root of trust only a contradiction counts."""
    chain = Chain()
    assert update(client_of(chain, 5), chain.at(3)).code == "header-expired"
    assert update(client_of(chain, 5), chain.at(3, signers=[1, 2])).code == "invalid-header"
    assert update(client_of(chain, 5), chain.at(3, time_ms=5000)).kind == "frozen"
    assert update(client_of(chain, 5), chain.at(5, root=bytes(32))).kind == "frozen"


def test_evidence_freezes_although_neither_header_was_submitted() -> None:
    """IB-19: both are shown from one trusted header; only signed bytes count."""
    chain = Chain()
    for first, second in (
        (chain.at(7), chain.at(7, root=bytes(32))),
        (chain.at(7, time_ms=9000), chain.at(8, time_ms=8000)),
    ):
        client = client_of(chain)
        assert client.submit_evidence(first, second, 0).kind == "frozen"
        assert client.status(0) is ClientStatus.FROZEN


def test_what_is_no_evidence_changes_nothing() -> None:
    """IB-19: two that agree, one that is forged, one of another party, both below what is trusted."""
    chain = Chain()
    twin = chain.at(7, root=bytes(32))
    for first, second in (
        (chain.at(7), chain.at(8)),
        (chain.at(7), chain.at(7)),
        (chain.at(7), chain.at(7, root=bytes(32), signers=[1, 2])),
        (chain.at(7), replace(twin, header=replace(twin.header, root=b"\1" * 32))),
        (Chain(party="west").at(7), Chain(party="west").at(7, root=bytes(32))),
    ):
        client = client_of(chain)
        before = deepcopy(client)
        outcome = client.submit_evidence(first, second, 0)
        assert outcome.code in ("not-evidence", "unregistered-sender")
        assert client == before
    assert client_of(chain, 9).submit_evidence(chain.at(7), twin, 0).code == "not-evidence"


def test_a_client_that_was_idle_too_long_is_expired_until_it_is_recovered() -> None:
    """IT-31: an update is refused then, and an operator's new root of trust makes it active."""
    chain, client = Chain(), client_of(Chain())
    late = 1000 + PERIOD
    assert client.status(late - 1) is ClientStatus.ACTIVE
    assert client.status(late) is ClientStatus.EXPIRED
    assert update(client, chain.at(2), late).code == "client-expired"
    with pytest.raises(MisuseError, match="above height 1"):
        client.recover(TrustRoot(chain.at(1), PERIOD))
    client.recover(TrustRoot(chain.at(1000), PERIOD))
    assert client.status(late) is ClientStatus.ACTIVE
    assert update(client, chain.at(1001), late).kind == "trusted"
    found = client.header_at(1, late)
    assert isinstance(found, HeaderOutcome)
    assert found.code == "header-expired"


def test_old_headers_prove_nothing_and_are_dropped_for_good() -> None:
    """IB-17, IB-110: by age, and above the bound the oldest; what was dropped is never filled in."""
    chain, client = Chain(), client_of(Chain())
    update(client, chain.at(500), 600_000)
    now = 1000 + PERIOD
    found = client.header_at(1, now)
    assert isinstance(found, HeaderOutcome)
    assert found.code == "header-expired"
    assert update(client, chain.at(900), now).kind == "trusted"
    assert sorted(client.trusted) == [500, 900]
    assert update(client, chain.at(1), now).code == "header-expired"
    found = client.header_at(700, now)
    assert isinstance(found, HeaderOutcome)
    assert found.code == "unknown-header"


def test_a_client_keeps_so_many_headers() -> None:
    """IB-110: one more, and the lowest goes. A single key, so that it is quick."""
    chain = Chain(size=1)
    client = Client(TrustRoot(chain.at(1), 1 << 40))
    for height in range(2, ENTRIES_MAX + 3):
        client.update(chain.at(height), 1 << 30)
    assert (len(client.trusted), client.floor, min(client.trusted)) == (ENTRIES_MAX, 2, 3)


def test_a_header_too_far_ahead_of_the_clock_waits() -> None:
    """IB-17: five seconds, and not one millisecond more; later it is trusted."""
    chain, client = Chain(), client_of(Chain())
    assert update(client, chain.at(10), 4999).code == "header-from-future"
    assert update(client, chain.at(10), 5000).kind == "trusted"


def test_a_header_of_another_party_or_of_a_closed_one_is_refused() -> None:
    """IB-17: before its signatures are looked at."""
    client = client_of(Chain())
    assert update(client, Chain(party="west").at(2)).code == "unregistered-sender"
    client.is_closed = True
    assert update(client, Chain().at(2)).code == "client-closed"


def test_a_root_of_trust_must_be_sound() -> None:
    """IB-17: both sets, enough signatures, a level that means something."""
    chain = Chain()
    for signed in (
        replace(chain.at(1), validators=None),
        chain.at(1, signers=[1]),
        replace(chain.at(1), next_validators=Chain(step=1).set_at(9)),
    ):
        with pytest.raises(MisuseError):
            Client(TrustRoot(signed, PERIOD))
    with pytest.raises(MisuseError, match="trust level"):
        TrustRoot(chain.at(1), PERIOD, Fraction(1, 4))


@settings(max_examples=25)
@given(st.integers(0, 2**32))
def test_a_damaged_header_is_not_believed(seed: int) -> None:
    """IB-17, IB-19: other bytes, fields, signatures, signers and sets: what is trusted is what was signed, nothing
    freezes, and evidence that was made up is none."""
    random, chain = Random(seed), Chain(size=random_step(seed) + 4, step=random_step(seed))
    client = client_of(chain)
    assert update_to(client, 9, lambda height: honest(chain, height), 100_000)[0].is_valid
    for _ in range(20):
        height = random.randrange(2, 30)
        damaged = damaged_header(random, chain, height)
        if damaged is not None:
            outcome = update(client.copy(), damaged)
            is_so = damaged.header == honest(chain, height).header
            assert outcome.kind == "refused" or is_so
            assert outcome.kind != "frozen"
            made_up = client.submit_evidence(damaged, honest(chain, height), 100_000)
            assert made_up.kind == "refused"


@settings(max_examples=20)
@given(st.integers(0, 2**32))
def test_a_third_of_the_validators_forges_nothing(seed: int) -> None:
    """IB-17, IB-19: whatever a third signs, with sets of its own, at any height and in any order: it is neither
    trusted nor a reason to freeze, and what is honest is trusted all the same."""
    random, chain = Random(seed), Chain(size=6, step=random_step(seed))
    client = client_of(chain)
    corrupt = [20, 21, 22]
    for height in range(2, 8):
        traitors = [n for n in chain.members(height) if n % 3 == 0]
        own = ValidatorSet.of({PUBLIC[n]: random.randint(1, 99) for n in corrupt + traitors})
        wrong = chain.at(
            height + random.randint(-1, 5) if height > 2 else 3, root=random.randbytes(32)
        )
        sets = random.choice(
            ((own, own), (chain.set_at(height), own), (wrong.validators, wrong.next_validators))
        )
        assert sets[0] is not None
        assert sets[1] is not None
        header = replace(wrong.header, validators=sets[0].hash, next_validators=sets[1].hash)
        forged = sign(header, [seed_of(n) for n in corrupt + traitors], *sets)
        assert update(client, forged).kind == "refused"
        assert client.submit_evidence(forged, chain.at(header.height), 0).kind == "refused"
        assert update(client, chain.at(height)).kind == "trusted"


def random_step(seed: int) -> int:
    """How often validators change."""
    return seed % 3
