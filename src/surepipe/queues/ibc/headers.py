"""Signed headers, and what a party believes of another one because of them.

A header commits to the root of a height, and to the validators of this height and of the next. A ``Client`` begins
with a header that a human compared, and trusts another when more than two thirds of its validators signed it, and
enough of those whom it trusts already are among them. It is a machine: it is told the time, and says what it
found.

Two different headers of one height, or times that run backwards, both signed, show that validators lie. Then the
client is frozen with the evidence, and believes nothing until an operator gives it a new beginning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from fractions import Fraction
from hashlib import sha256
from itertools import accumulate, pairwise
from typing import Literal, TypeAlias

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from surepipe.errors import MisuseError
from surepipe.queues.ibc.proof import ProofError, ProofLimits
from surepipe.queues.ibc.wire import decode, encode

VALIDATORS_MAX = 256
ENTRIES_MAX = 1024
"""How many headers a client keeps."""
DRIFT_MS = 5000
"""How far a header may be ahead of the clock."""
NAME = re.compile(r"[A-Za-z0-9_.+\-#\[\]<>]{2,64}")
"""Of parties and connections."""
_SIGNED = b"surepipe/ibc/header/1\n"
_LIMITS = ProofLimits(bytes_max=64 << 10, fields_max=4096)
_STATE_LIMITS = ProofLimits(bytes_max=64 << 10, fields_max=2 * ENTRIES_MAX)
_EVIDENCE_LIMITS = ProofLimits(bytes_max=128 << 10)
_U64 = 1 << 64


class HeaderError(ProofError):
    """These bytes are no header, or no set of validators."""

    code = "invalid-header"


class NewerFormat(HeaderError):
    """A header of a later format: neither believed nor held against anybody."""

    code = "newer-format"


@dataclass(frozen=True, slots=True)
class ValidatorSet:
    """Public keys with their power, ascending by key."""

    members: tuple[tuple[bytes, int], ...]

    def __post_init__(self) -> None:
        keys = [key for key, _ in self.members]
        if (
            not 1 <= len(keys) <= VALIDATORS_MAX
            or any(len(key) != 32 for key in keys)
            or any(a >= b for a, b in pairwise(keys))
            or any(power < 1 for _, power in self.members)
            or self.power >= 1 << 63
        ):
            raise HeaderError(
                f"a set has 1 to {VALIDATORS_MAX} keys of 32 bytes, ascending, each with a power of 1 or more, "
                "below 2^63 together"
            )

    @staticmethod
    def of(powers: Mapping[bytes, int]) -> ValidatorSet:
        """A set of these keys."""
        return ValidatorSet(tuple(sorted(powers.items())))

    @property
    def power(self) -> int:
        """Of all members."""
        return sum(power for _, power in self.members)

    @property
    def hash(self) -> bytes:
        return sha256(self.encode()).digest()

    def power_of(self, keys: Sequence[bytes]) -> int:
        """Of those of its members that are among these."""
        wanted = set(keys)
        return sum(power for key, power in self.members if key in wanted)

    def encode(self) -> bytes:
        rows = [key + power.to_bytes(8, "big") for key, power in self.members]
        return b"\1" + len(rows).to_bytes(2, "big") + b"".join(rows)

    @staticmethod
    def decode(data: bytes) -> ValidatorSet:
        """Raises HeaderError."""
        count = int.from_bytes(data[1:3], "big")
        if data[:1] != b"\1" or len(data) != 3 + 40 * count:
            raise HeaderError("a set of validators has another length, or is of another format")
        rows = [data[at : at + 40] for at in range(3, len(data), 40)]
        return ValidatorSet(tuple((row[:32], int.from_bytes(row[32:], "big")) for row in rows))


@dataclass(frozen=True, slots=True)
class Header:
    """What validators sign: the root after block ``height`` of a party, its time, and who signs this one and the
    next."""

    party: str
    height: int
    time_ms: int
    root: bytes
    validators: bytes
    next_validators: bytes

    def __post_init__(self) -> None:
        hashes = (self.root, self.validators, self.next_validators)
        if (
            not NAME.fullmatch(self.party)
            or not 1 <= self.height < _U64
            or not 0 <= self.time_ms < _U64
            or any(len(each) != 32 for each in hashes)
        ):
            raise HeaderError(
                "a header has the name of a party, a height from 1 on, a time, and three hashes of 32 bytes"
            )

    @property
    def hash(self) -> bytes:
        return sha256(self.encode()).digest()

    def encode(self) -> bytes:
        name = self.party.encode()
        numbers = self.height.to_bytes(8, "big") + self.time_ms.to_bytes(8, "big")
        hashes = self.root + self.validators + self.next_validators
        return b"\1" + bytes((len(name),)) + name + numbers + hashes

    @staticmethod
    def decode(data: bytes) -> Header:
        """Raises HeaderError, of a later format NewerFormat."""
        if data[:1] > b"\1":
            raise NewerFormat(f"a header of format {data[0]}")
        length = data[1] if len(data) > 1 else 0
        if data[:1] != b"\1" or len(data) != 2 + length + 112:
            raise HeaderError("a header has another length, or is of another format")
        name, rest = data[2 : 2 + length], data[2 + length :]
        return Header(
            name.decode("latin-1"),
            int.from_bytes(rest[:8], "big"),
            int.from_bytes(rest[8:16], "big"),
            rest[16:48],
            rest[48:80],
            rest[80:],
        )


@dataclass(frozen=True, slots=True)
class SignedHeader:
    """A header with signatures; the sets are attached where the reader may not have them."""

    header: Header
    signatures: tuple[tuple[bytes, bytes], ...]
    """Public keys, each with its signature."""
    validators: ValidatorSet | None = None
    next_validators: ValidatorSet | None = None

    def encode(self) -> bytes:
        sets = {"validators": self.validators, "next_validators": self.next_validators}
        return encode(
            "SignedHeader",
            {
                "header": self.header.encode(),
                "signatures": [{"key": k, "signature": s} for k, s in self.signatures],
                **{name: each.encode() for name, each in sets.items() if each is not None},
            },
        )

    @staticmethod
    def decode(data: bytes) -> SignedHeader:
        """Raises ProofError, HeaderError among them."""
        values = decode("SignedHeader", data, _LIMITS)
        signatures = [(each["key"], each["signature"]) for each in values["signatures"]]
        found = [
            ValidatorSet.decode(values[name]) if values[name] else None
            for name in ("validators", "next_validators")
        ]
        return SignedHeader(Header.decode(values["header"]), tuple(signatures), *found)


def sign(
    header: Header,
    seeds: Sequence[bytes],
    validators: ValidatorSet | None = None,
    next_validators: ValidatorSet | None = None,
) -> SignedHeader:
    """Sign with private keys, each given by its seed of 32 bytes. Signing again gives the same bytes."""
    data = _SIGNED + header.encode()
    keys = [Ed25519PrivateKey.from_private_bytes(seed) for seed in seeds]
    signatures = [(key.public_key().public_bytes_raw(), key.sign(data)) for key in keys]
    return SignedHeader(header, tuple(sorted(signatures)), validators, next_validators)


def public_key(seed: bytes) -> bytes:
    """The public key of a seed."""
    return Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()


def _is_signed_by(header: Header, key: bytes, signature: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, _SIGNED + header.encode())
    except (InvalidSignature, ValueError):
        return False
    return True


# What a party believes.


@dataclass(frozen=True, slots=True)
class TrustRoot:
    """With what trust begins: a header and both of its sets, which a human compared, and for how long a header is
    worth anything. It has to be shorter than validators can be held to account."""

    signed: SignedHeader
    trusting_period_ms: int
    trust_level: Fraction = Fraction(2, 3)
    """More than this part of the validators that are trusted must have signed a header that isn't the next one."""

    def __post_init__(self) -> None:
        if self.signed.validators is None or self.signed.next_validators is None:
            raise MisuseError("a root of trust needs both sets of validators attached")
        if not Fraction(1, 3) <= self.trust_level < 1 or self.trusting_period_ms < 1:
            raise MisuseError(
                "a trust level is from 1/3 on and below 1, and a trusting period is above 0"
            )

    def encode(self) -> bytes:
        return encode(
            "TrustRoot",
            {
                "signed": self.signed.encode(),
                "trusting_period_ms": self.trusting_period_ms,
                "level_above": self.trust_level.numerator,
                "level_below": self.trust_level.denominator,
            },
        )

    @staticmethod
    def decode(data: bytes) -> TrustRoot:
        """Raises ProofError for bytes that are none, and MisuseError for one that can't be."""
        values = decode("TrustRoot", data, _LIMITS)
        return TrustRoot(
            SignedHeader.decode(values["signed"]),
            values["trusting_period_ms"],
            Fraction(values["level_above"], values["level_below"] or 1),
        )


@dataclass(frozen=True, slots=True)
class TrustedHeader:
    """A header that is believed, with its two sets, and with the signatures that make it evidence."""

    header: Header
    hash: bytes
    validators: ValidatorSet
    next_validators: ValidatorSet
    signatures: tuple[tuple[bytes, bytes], ...]

    @property
    def signed(self) -> SignedHeader:
        """As another party can verify it."""
        return SignedHeader(self.header, self.signatures, self.validators, self.next_validators)


class ClientStatus(Enum):
    """``EXPIRED`` follows from the time; the others are kept."""

    ACTIVE = "active"
    FROZEN = "frozen"
    CLOSED = "closed"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class Misbehaviour:
    """Why a client froze: two signed headers that can't both be honest."""

    first: SignedHeader
    second: SignedHeader

    def encode(self) -> bytes:
        return encode(
            "Misbehaviour", {"first": self.first.encode(), "second": self.second.encode()}
        )

    @staticmethod
    def decode(data: bytes) -> Misbehaviour:
        """Raises ProofError."""
        values = decode("Misbehaviour", data, _EVIDENCE_LIMITS)
        return Misbehaviour(
            SignedHeader.decode(values["first"]), SignedHeader.decode(values["second"])
        )


@dataclass(frozen=True, slots=True)
class HeaderOutcome:
    """What came of a header. ``known`` is a repeat that changes nothing. With ``header-gap`` come the two heights
    between which a header is wanted first."""

    kind: Literal["trusted", "known", "frozen", "refused"]
    code: str = ""
    text: str = ""
    gap: tuple[int, int] | None = None

    @property
    def is_valid(self) -> bool | None:
        """True, false, or None: not known, another header may show it."""
        if self.kind != "refused":
            return True
        return None if self.code in _UNKNOWN else False


_UNKNOWN = frozenset({"header-gap", "newer-format", "header-from-future", "header-expired"})
Refusal: TypeAlias = HeaderOutcome


def _refused(code: str, text: str, gap: tuple[int, int] | None = None) -> HeaderOutcome:
    return HeaderOutcome("refused", code, text, gap)


@dataclass(slots=True)
class Client:
    """What is known of one party. Times are milliseconds since 1970, those of the ledger that holds the client."""

    root: TrustRoot
    trusted: dict[int, TrustedHeader] = field(default_factory=dict[int, TrustedHeader])
    floor: int = 0
    """The highest height that was dropped: nothing at or below it is believed again."""
    is_closed: bool = False
    misbehaviour: Misbehaviour | None = None

    def __post_init__(self) -> None:
        if not self.trusted:
            self._begin(self.root)

    def _begin(self, root: TrustRoot) -> None:
        signed = root.signed
        assert signed.validators is not None
        assert signed.next_validators is not None
        header = signed.header
        sets = signed.validators.hash, signed.next_validators.hash
        if sets != (header.validators, header.next_validators):
            raise MisuseError("a root of trust whose sets aren't those that its header states")
        if why := self._why_unsigned(signed, signed.validators):
            raise MisuseError(f"a root of trust that isn't sound: {why}")
        entry = TrustedHeader(
            header, header.hash, signed.validators, signed.next_validators, signed.signatures
        )
        self.root, self.trusted = root, {header.height: entry}

    def copy(self) -> Client:
        """A copy that changes by itself. What it believes is shared, as that never changes."""
        return replace(self, trusted=dict(self.trusted))

    # Looking.

    @property
    def party(self) -> str:
        """Of which party it knows."""
        return self.root.signed.header.party

    @property
    def newest(self) -> TrustedHeader:
        """There is always one."""
        return self.trusted[max(self.trusted)]

    def status(self, now_ms: int) -> ClientStatus:
        """How it stands now."""
        if self.is_closed:
            return ClientStatus.CLOSED
        if self.misbehaviour is not None:
            return ClientStatus.FROZEN
        return ClientStatus.EXPIRED if self._is_old(self.newest, now_ms) else ClientStatus.ACTIVE

    def header_at(self, height: int, now_ms: int) -> TrustedHeader | Refusal:
        """The header against which a proof of this height is checked."""
        if self.misbehaviour is not None:
            return _refused("client-frozen", f"{self.party} showed two histories")
        entry = self.trusted.get(height)
        if entry is None:
            code = "header-expired" if height <= self.floor else "unknown-header"
            return _refused(code, f"height {height} of {self.party} is not trusted here")
        if self._is_old(entry, now_ms):
            return _refused(
                "header-expired", f"height {height} of {self.party} is too old to prove anything"
            )
        return entry

    def _is_old(self, entry: TrustedHeader, now_ms: int) -> bool:
        return now_ms - entry.header.time_ms >= self.root.trusting_period_ms

    # Headers.

    def update(self, signed: SignedHeader, now_ms: int) -> HeaderOutcome:
        """Believe a header, if it shows enough. A refusal changes nothing."""
        outcome, entry = self._judge(signed, now_ms)
        if outcome.kind == "trusted" and entry is not None:
            self.trusted[entry.header.height] = entry
            self._drop_old(now_ms)
        elif outcome.kind == "frozen":
            self.misbehaviour = self._contradiction(signed)
        return outcome

    def check(self, signed: SignedHeader, now_ms: int) -> HeaderOutcome:
        """What ``update`` would say. Changes nothing."""
        return self._judge(signed, now_ms)[0]

    def _judge(  # noqa: PLR0911 - the checks in their order; the first that fails decides
        self, signed: SignedHeader, now_ms: int
    ) -> tuple[HeaderOutcome, TrustedHeader | None]:
        header = signed.header
        if refusal := self._why_not_at_all(header, now_ms):
            return refusal, None
        if (known := self.trusted.get(header.height)) and known.hash == header.hash:
            return HeaderOutcome("known"), None
        if header.height <= self.floor:
            return _refused("header-expired", f"heights up to {self.floor} were dropped"), None
        below = max((height for height in self.trusted if height < header.height), default=None)
        base = self.trusted[min(self.trusted) if below is None else below]
        entry = self._shown(signed, base, is_below=below is None)
        if isinstance(entry, HeaderOutcome):
            return entry, None
        if self._contradiction(signed) is not None:
            return HeaderOutcome("frozen"), None
        if below is None:
            return _refused(
                "header-expired", f"{self.party} is trusted from {base.header.height} on"
            ), None
        if header.time_ms > now_ms + DRIFT_MS:
            return _refused(
                "header-from-future", f"its time is {header.time_ms}, and now is {now_ms}"
            ), None
        return HeaderOutcome("trusted"), entry

    def _why_not_at_all(self, header: Header, now_ms: int) -> HeaderOutcome | None:
        if header.party != self.party:
            return _refused(
                "unregistered-sender", f"a header of {header.party!r}, not of {self.party!r}"
            )
        match self.status(now_ms):
            case ClientStatus.CLOSED:
                return _refused("client-closed", f"all connections with {self.party} are closed")
            case ClientStatus.FROZEN:
                return _refused("client-frozen", f"{self.party} showed two histories")
            case ClientStatus.EXPIRED:
                return _refused(
                    "client-expired", f"the newest header of {self.party} is too old to go on from"
                )
            case ClientStatus.ACTIVE:
                return None

    def _shown(  # noqa: PLR0911 - the checks in their order
        self, signed: SignedHeader, base: TrustedHeader, *, is_below: bool
    ) -> TrustedHeader | HeaderOutcome:
        """The header as an entry, when its own validators signed it and enough of the base's are among them."""
        header = signed.header
        own, following = self._sets_of(signed)
        if own is None or following is None:
            return _refused(
                "invalid-header", "a set of validators is missing, or isn't the one that it states"
            )
        if why := self._why_unsigned(signed, own):
            return _refused("invalid-header", why)
        signers = [key for key, _ in signed.signatures]
        entry = TrustedHeader(header, header.hash, own, following, signed.signatures)
        trusting = base.validators if is_below else base.next_validators
        if not is_below and header.validators == base.header.next_validators:
            return entry
        if not is_below and header.height == base.header.height + 1:
            return _refused(
                "invalid-header", "its validators aren't those that the header before it named"
            )
        if trusting.power_of(signers) > self.root.trust_level * trusting.power:
            return entry
        if is_below:
            return _refused("invalid-header", "too few of those who are trusted signed it")
        heights = base.header.height, header.height
        return _refused(
            "header-gap",
            f"too few of those trusted at {heights[0]} signed {heights[1]}: send one in between",
            heights,
        )

    def _sets_of(self, signed: SignedHeader) -> tuple[ValidatorSet | None, ValidatorSet | None]:
        """The two sets that a header states: attached, or held. Where they differ both have to be attached."""
        header = signed.header
        attached = [each for each in (signed.validators, signed.next_validators) if each]
        if header.validators != header.next_validators and len(attached) < 2:
            return None, None
        return self._set_of(header.validators, attached), self._set_of(
            header.next_validators, attached
        )

    def _set_of(self, hash_: bytes, attached: Sequence[ValidatorSet]) -> ValidatorSet | None:
        """The set with this hash. One that is held comes first, so that equal ones are kept once."""
        for entry in (self.newest, *self.trusted.values()):
            if entry.header.validators == hash_:
                return entry.validators
            if entry.header.next_validators == hash_:
                return entry.next_validators
        return next((each for each in attached if each.hash == hash_), None)

    @staticmethod
    def _why_unsigned(signed: SignedHeader, own: ValidatorSet) -> str:
        header, keys = signed.header, [key for key, _ in signed.signatures]
        members = {key for key, _ in own.members}
        if len(set(keys)) != len(keys) or not set(keys) <= members:
            return "somebody signed twice, or isn't a validator"
        if own.power_of(keys) * 3 <= own.power * 2:
            return "two thirds of its validators or fewer signed it"
        if not all(_is_signed_by(header, key, each) for key, each in signed.signatures):
            return "a signature is of other bytes"
        return ""

    def _contradiction(self, signed: SignedHeader) -> Misbehaviour | None:
        """The trusted header at its height, right before, or behind it, that can't be honest beside it."""
        height = signed.header.height
        before = max((each for each in self.trusted if each < height), default=None)
        behind = min((each for each in self.trusted if each > height), default=None)
        for place in (before, height, behind):
            entry = None if place is None else self.trusted.get(place)
            if entry is not None and _contradict(entry.header, signed.header):
                return Misbehaviour(entry.signed, signed)
        return None

    def _drop_old(self, now_ms: int) -> None:
        newest = max(self.trusted)
        old = [
            h for h, e in sorted(self.trusted.items()) if h != newest and self._is_old(e, now_ms)
        ]
        kept = [height for height in sorted(self.trusted) if height not in old]
        for height in old + kept[: max(0, len(kept) - ENTRIES_MAX)]:
            del self.trusted[height]
            self.floor = max(self.floor, height)

    # Misbehaviour.

    def submit_evidence(
        self, first: SignedHeader, second: SignedHeader, now_ms: int
    ) -> HeaderOutcome:
        """Freeze when two headers, both shown from one trusted header, contradict each other."""
        for each in (first, second):
            if refusal := self._why_not_at_all(each.header, now_ms):
                return refusal
        lowest = min(first.header.height, second.header.height)
        below = max((height for height in self.trusted if height < lowest), default=None)
        if below is None or not _contradict(first.header, second.header):
            return _refused(
                "not-evidence",
                "they don't contradict each other, or are older than what is trusted",
            )
        for each in (first, second):
            if isinstance(
                shown := self._shown(each, self.trusted[below], is_below=False), HeaderOutcome
            ):
                return _refused("not-evidence", shown.text)
        self.misbehaviour = Misbehaviour(first, second)
        return HeaderOutcome("frozen")

    def recover(self, root: TrustRoot) -> None:
        """Begin again, after a freeze or an expiry, by a header above all that were trusted. An operator decides.

        Raises MisuseError.
        """
        highest = max(self.trusted)
        header = root.signed.header
        if header.party != self.party or header.height <= highest:
            raise MisuseError(
                f"{self.party} is recovered by a header of its own above height {highest}"
            )
        self._begin(root)
        self.floor, self.misbehaviour = max(self.floor, highest), None


def _contradict(one: Header, other: Header) -> bool:
    """Whether both can't belong to one history: times go up with heights."""
    if one.height == other.height:
        return one.hash != other.hash
    lower, higher = (one, other) if one.height < other.height else (other, one)
    return lower.time_ms >= higher.time_ms


# What is believed, as rows of a store: one of each header, one of each set, one of the rest. A row of a header or
# of a set never changes, so an update writes what is new and drops what went.


def client_changes(before: Client | None, client: Client) -> Iterator[tuple[bytes, bytes | None]]:
    """The rows by which a client differs from what it was; None drops one."""
    held = before.trusted if before is not None else {}
    party, kept = client.party, client.trusted
    for height in sorted(held.keys() - kept.keys()):
        yield _row(party, "header", height.to_bytes(8, "big")), None
    for height in sorted(kept.keys() - held.keys()):
        signed = SignedHeader(kept[height].header, kept[height].signatures)
        yield _row(party, "header", height.to_bytes(8, "big")), signed.encode()
    old, new = _sets_held(held), _sets_held(kept)
    for each in sorted(old.keys() - new.keys()):
        yield _row(party, "set", each), None
    for each in sorted(new.keys() - old.keys()):
        yield _row(party, "set", each), new[each].encode()
    if before is None or before.root != client.root:
        yield _row(client.party, "root"), client.root.encode()
    evidence = None if before is None else before.misbehaviour
    if evidence != client.misbehaviour:
        found = client.misbehaviour
        yield _row(client.party, "evidence"), None if found is None else found.encode()
    state = _state_of(client)
    if before is None or _state_of(before) != state:
        yield _row(client.party), state


def stored_client(
    party: str, read: Callable[[Sequence[bytes]], Sequence[bytes | None]]
) -> Client | None:
    """The client that rows tell of, or None. Raises ProofError for rows that don't fit together: none is believed
    then."""
    state: bytes | None = None
    while True:
        before, (state,) = state, read([_row(party)])
        if state is None:
            return None
        try:
            return _client_of(party, state, read)
        except LookupError as missing:
            if state == before:  # else somebody has changed it between two reads
                raise ProofError(f"the client of {party!r} lacks rows") from missing


def _client_of(
    party: str, state: bytes, read: Callable[[Sequence[bytes]], Sequence[bytes | None]]
) -> Client:
    values = decode("ClientState", state, _STATE_LIMITS)
    steps: list[int] = values["steps"]
    heights = list(accumulate(steps))
    keys = [_row(party, "root"), _row(party, "evidence")]
    keys += [_row(party, "header", height.to_bytes(8, "big")) for height in heights]
    root, evidence, *found = read(keys)
    if root is None or None in found or (evidence is None) == values["is_frozen"]:
        raise LookupError
    headers = [SignedHeader.decode(row) for row in found if row is not None]
    hashes = sorted({h for s in headers for h in (s.header.validators, s.header.next_validators)})
    rows = dict(zip(hashes, read([_row(party, "set", each) for each in hashes]), strict=True))
    sets = {each: ValidatorSet.decode(row) for each, row in rows.items() if row is not None}
    if len(sets) < len(rows):
        raise LookupError
    if any(each.hash != hash_ for hash_, each in sets.items()) or heights != [
        signed.header.height for signed in headers
    ]:
        raise ProofError(f"the client of {party!r} has rows of another one")
    entries = [
        TrustedHeader(
            each.header,
            each.header.hash,
            sets[each.header.validators],
            sets[each.header.next_validators],
            each.signatures,
        )
        for each in headers
    ]
    return Client(
        TrustRoot.decode(root),
        {entry.header.height: entry for entry in entries},
        values["floor"],
        values["is_closed"],
        None if evidence is None else Misbehaviour.decode(evidence),
    )


def _row(party: str, part: str = "", which: bytes = b"") -> bytes:
    """The key of a row. No name of a party has a slash."""
    return f"client/{party}/{part}/".encode() + which


def _sets_held(trusted: Mapping[int, TrustedHeader]) -> dict[bytes, ValidatorSet]:
    found: dict[bytes, ValidatorSet] = {}
    for entry in trusted.values():
        found[entry.header.validators] = entry.validators
        found[entry.header.next_validators] = entry.next_validators
    return found


def _state_of(client: Client) -> bytes:
    heights = sorted(client.trusted)
    return encode(
        "ClientState",
        {
            "floor": client.floor,
            "is_closed": client.is_closed,
            "is_frozen": client.misbehaviour is not None,
            "steps": [height - below for below, height in pairwise([0, *heights])],
        },
    )


def update_to(
    client: Client, height: int, header_at: Callable[[int], SignedHeader], now_ms: int
) -> tuple[HeaderOutcome, int]:
    """Bring a client to a height, by headers in between where too few of those it trusts signed that one: first
    half way, and so on. What came of it, and how many headers were submitted. A relay does this."""
    wanted, submitted = [height], 0
    while True:
        outcome = client.update(header_at(wanted[-1]), now_ms)
        submitted += 1
        if outcome.gap is not None:
            base, target = outcome.gap
            wanted.append((base + target) // 2)
        elif outcome.kind in ("trusted", "known") and len(wanted) > 1:
            wanted.pop()
        else:
            return outcome, submitted
