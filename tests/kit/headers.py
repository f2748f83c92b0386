"""Parties whose headers are signed, and ways to damage a signed header: for tests, fuzzing and benchmarks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from random import Random

from surepipe.queues.ibc.headers import (
    Header,
    SignedHeader,
    ValidatorSet,
    public_key,
    sign,
)
from surepipe.queues.ibc.proof import ProofError


def seed_of(number: int) -> bytes:
    """The private key of a validator."""
    return number.to_bytes(32, "big")


PUBLIC = {number: public_key(seed_of(number)) for number in range(1, 100)}


@dataclass(frozen=True)
class Chain:
    """A party whose validators at a height are ``size`` numbers from ``height // step`` on, each of power 1."""

    size: int = 4
    step: int = 0
    party: str = "east"

    def members(self, height: int) -> list[int]:
        """Numbers of validators."""
        first = height // self.step if self.step else 0
        return [first + n + 1 for n in range(self.size)]

    def set_at(self, height: int) -> ValidatorSet:
        """Who signs this height."""
        return ValidatorSet.of({PUBLIC[n]: 1 for n in self.members(height)})

    def at(
        self,
        height: int,
        *,
        time_ms: int | None = None,
        root: bytes = b"",
        signers: list[int] | None = None,
    ) -> SignedHeader:
        """The header of a height, a thousand milliseconds after the one before, with both sets."""
        own, following = self.set_at(height), self.set_at(height + 1)
        header = Header(
            self.party,
            height,
            1000 * height if time_ms is None else time_ms,
            root or sha256(b"root %d" % height).digest(),
            own.hash,
            following.hash,
        )
        seeds = [seed_of(n) for n in (self.members(height) if signers is None else signers)]
        return sign(header, seeds, own, following)


@cache
def honest(chain: Chain, height: int) -> SignedHeader:
    """The header of a height, signed once."""
    return chain.at(height)


def damaged_header(random: Random, chain: Chain, height: int) -> SignedHeader | None:
    """The header of a height with a part changed, at random: bytes, fields, signatures or sets. None when nothing
    can be read of it."""
    good = honest(chain, height)
    try:
        return random.choice(_DAMAGES)(random, chain, good)
    except ProofError:
        return None


def _other_bytes(random: Random, _: Chain, good: SignedHeader) -> SignedHeader:
    data = good.encode()
    for _times in range(random.choice((1, 1, 2, 5))):
        place = random.randrange(len(data))
        rest = data[place + random.randrange(2) :]
        data = data[:place] + random.randbytes(random.randrange(3)) + rest
    return SignedHeader.decode(data)


def _other_field(random: Random, _: Chain, good: SignedHeader) -> SignedHeader:
    """Still signed as it was, by those who signed something else."""
    header = good.header
    fields: list[tuple[str, object]] = [
        ("height", random.choice((1, header.height + 1, header.height - 1, 1 << 63))),
        ("time_ms", random.choice((0, header.time_ms + 1, 1 << 63))),
        ("root", random.randbytes(32)),
        ("validators", random.choice((header.next_validators, random.randbytes(32)))),
        ("next_validators", random.choice((header.validators, random.randbytes(32)))),
    ]
    name, value = random.choice(fields)
    return replace(good, header=replace(header, **{name: value}))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def _other_signatures(random: Random, chain: Chain, good: SignedHeader) -> SignedHeader:
    """Some left out, one twice, two exchanged, or those of another header; in any order."""
    own = list(good.signatures)
    other = honest(chain, good.header.height + 1).signatures
    keys = [key for key, _ in own]
    mixed = list(zip(keys, [each for _, each in random.sample(own, len(own))], strict=True))
    found = random.choice(
        (own[: random.randrange(len(own))], [*own, own[0]], mixed, [*own[1:], other[0]], [*other])
    )
    return replace(good, signatures=tuple(random.sample(found, len(found))))


def _other_signers(random: Random, chain: Chain, good: SignedHeader) -> SignedHeader:
    """Signed as it should be, but by a third of the validators at most: with a set that they made up, or with
    signatures of the others that are of the honest header."""
    members = chain.members(good.header.height)
    traitors = random.sample(members, (len(members) - 1) // 3)
    strangers = random.choice(([], [98]))
    made_up = ValidatorSet.of({PUBLIC[n]: random.randint(1, 1 << 40) for n in [*traitors, 98]})
    own = made_up if strangers and random.random() < 0.5 else good.validators
    following = random.choice((good.next_validators, made_up))
    assert own is not None
    assert following is not None
    header = replace(good.header, root=random.randbytes(32), validators=own.hash)
    header = replace(header, next_validators=following.hash)
    signed = sign(header, [seed_of(n) for n in [*traitors, *strangers]], own, following)
    done = {key for key, _ in signed.signatures}
    others = [each for each in good.signatures if each[0] not in done]
    return replace(signed, signatures=(*signed.signatures, *random.choice(([], others))))


def _other_sets(random: Random, chain: Chain, good: SignedHeader) -> SignedHeader:
    """Left out, exchanged, or those of another height."""
    other = honest(chain, good.header.height + random.randint(1, 9))
    sets = (None, good.validators, good.next_validators, other.validators)
    return replace(good, validators=random.choice(sets), next_validators=random.choice(sets))


_DAMAGES: tuple[Callable[[Random, Chain, SignedHeader], SignedHeader], ...] = (
    _other_bytes,
    _other_field,
    _other_signatures,
    _other_signers,
    _other_sets,
)
