"""Who signs the headers of a party: its private keys, and the memory that keeps it from signing two histories."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from surepipe.errors import ConfigurationError
from surepipe.queues.ibc.headers import Header, SignedHeader, ValidatorSet, public_key, sign
from surepipe.queues.ibc.merkle_store import IbcRefused

RUN_MAX = 256
"""So many headers are signed after one write of the guard."""


class Signer:
    """Signs each height once. With a file of keys, ``PATH.guard`` remembers what was signed last, and is written
    before a signature is released: a store that lost its tail stops the party, and never makes it sign two
    histories."""

    def __init__(self, seeds: Sequence[bytes], guard: Path | None = None) -> None:
        if not seeds or any(len(each) != 32 for each in seeds):
            raise ConfigurationError("a signer has at least one private key, each of 32 bytes")
        self._seeds = tuple(seeds)
        self._guard = guard
        self.validators = ValidatorSet.of({public_key(seed): 1 for seed in seeds})
        self._signed: dict[int, str] = {}
        if guard is not None and guard.exists():
            self._signed = _remembered(guard)

    @staticmethod
    def fresh() -> Signer:
        """With a new key, for a party that is gone with its process."""
        return Signer([Ed25519PrivateKey.generate().private_bytes_raw()])

    @staticmethod
    def of_file(path: str | Path) -> Signer:
        """With the keys of a file, a line of 64 hexadecimal digits each. It is made, with one key, when it isn't
        there. Raises ConfigurationError."""
        path = Path(path)
        if not path.exists():
            seed = Ed25519PrivateKey.generate().private_bytes_raw()
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(seed.hex() + "\n")
                file.flush()
                os.fsync(file.fileno())
        try:
            seeds = [bytes.fromhex(line) for line in path.read_text().split()]
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"{path} is no file of keys ({error}): each line has 64 hexadecimal digits"
            ) from error
        if not seeds or any(len(each) != 32 for each in seeds):
            raise ConfigurationError(
                f"{path} is no file of keys: each line has 64 hexadecimal digits, and there is one line at least"
            )
        return Signer(seeds, path.with_name(path.name + ".guard"))

    @property
    def newest(self) -> int:
        """The highest height that it has signed; 0 when it has signed none, or remembers none."""
        return max(self._signed, default=0)

    @property
    def is_guarded(self) -> bool:
        """Whether it remembers in a file."""
        return self._guard is not None

    def sign(self, headers: Sequence[Header]) -> list[SignedHeader]:
        """Sign up to 256 headers, ascending. Raises IbcRefused ``signer-guard`` for another header of a height
        that was signed, or a lower one."""
        for header in headers:
            known = self._signed.get(header.height)
            if known != header.hash.hex() and header.height <= self.newest:
                raise IbcRefused(
                    "signer-guard",
                    f"{header.party!r} has signed height {self.newest} already, its store comes with another "
                    f"height {header.height}: the store lost what it had, so this party may not go on under it",
                )
        if headers and headers[-1].height > self.newest:
            self._signed = {each.height: each.hash.hex() for each in headers[-RUN_MAX:]}
            self._write()
        own = self.validators
        return [sign(header, self._seeds, own, own) for header in headers]

    def _write(self) -> None:
        if self._guard is None:
            return
        fresh = self._guard.with_name(self._guard.name + ".new")
        with fresh.open("w") as file:
            json.dump({"signed": self._signed}, file)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._guard)
        folder = os.open(self._guard.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _remembered(guard: Path) -> dict[int, str]:
    """What was signed last, by height."""
    try:
        found = json.loads(guard.read_text())
        return {int(height): str(digest) for height, digest in found["signed"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigurationError(
            f"{guard} remembers what was signed last, and can't be read ({error!r}): bring it back from a copy. "
            "If there is none, and the store has lost nothing, remove it and open the party with adopt=True"
        ) from error


def signer_of(keys: str | Path | Sequence[bytes] | Signer | None) -> Signer:
    """Of what a party was given for its keys."""
    if isinstance(keys, Signer):
        return keys
    if keys is None:
        return Signer.fresh()
    if isinstance(keys, str | Path):
        return Signer.of_file(keys)
    return Signer(keys)
