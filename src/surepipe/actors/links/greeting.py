"""How two processes that share a key find out that they do, before either keeps anything of the other.

Three messages. The listening side speaks first, so somebody who merely connects gets nothing that was made with
the key and could be tried against a list of guesses:

    listening   magic, public key, nonce
    connecting  public key, nonce, proof
    listening   proof

Both mix a fresh key agreement (X25519) with the shared key; what follows is sealed with keys of this connection
only, so bytes of another connection, or of the other direction, open nothing.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

MAGIC = b"surepip\x01"
"""Ends in the version of the greeting and of what is sealed after it."""
KEY = 32
NONCE = 16
PROOF = 32
FIRST = len(MAGIC) + KEY + NONCE
SECOND = KEY + NONCE + PROOF


class Stranger(Exception):
    """Whoever is there does not know the key, or does not speak this protocol."""


class Seal(Protocol):
    """What protects the records of one connection, in both directions."""

    overhead: int

    def close(self, length: bytes, record: bytes) -> bytes:
        """Protect the next record that goes out."""
        ...

    def open(self, length: bytes, sealed: bytes) -> bytes:
        """Decrypt the next record. Raises Stranger when it was changed, repeated or left out."""
        ...


class KeySeal:
    """Each record is encrypted and authenticated under its number, so none can be repeated or left out."""

    overhead = 16

    def __init__(self, outgoing: bytes, incoming: bytes) -> None:
        self._out, self._in = ChaCha20Poly1305(outgoing), ChaCha20Poly1305(incoming)
        self._sent = self._received = 0

    def close(self, length: bytes, record: bytes) -> bytes:
        """Seal under the next number."""
        self._sent += 1
        return self._out.encrypt(self._sent.to_bytes(12, "big"), record, length)

    def open(self, length: bytes, sealed: bytes) -> bytes:
        """Open under the next number."""
        self._received += 1
        try:
            return self._in.decrypt(self._received.to_bytes(12, "big"), sealed, length)
        except InvalidTag:
            raise Stranger("a record does not open") from None


class NoSeal:
    """The connection protects its records itself (TLS), or nobody needs to."""

    overhead = 0

    def close(self, length: bytes, record: bytes) -> bytes:
        del length
        return record

    def open(self, length: bytes, sealed: bytes) -> bytes:
        del length
        return sealed


@dataclass(frozen=True, slots=True)
class Said:
    """What a greeting says in answer, and the seal when it is over."""

    reply: bytes
    seal: Seal | None = None


class Greeting(Protocol):
    """One side of the greeting. ``wants`` is the size of the message that it takes next."""

    wants: int

    def begin(self) -> Said:
        """What to say before anything was heard."""
        ...

    def take(self, message: bytes) -> Said:
        """Take a message of the wanted size. Raises Stranger."""
        ...


class _Half:
    """What both sides of a greeting do. Randomness comes in, so tests can repeat a greeting."""

    def __init__(self, shared: bytes, entropy: bytes) -> None:
        self._shared = shared
        self._private = X25519PrivateKey.from_private_bytes(entropy[:KEY])
        public = self._private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self._mine = public + entropy[KEY : KEY + NONCE]
        self.wants = 0

    def _agree(self, theirs: bytes, transcript: bytes) -> tuple[bytes, bytes, bytes]:
        """Keys for: what the connecting side sends, what the listening side sends, the proofs."""
        try:
            secret = self._private.exchange(X25519PublicKey.from_public_bytes(theirs[:KEY]))
        except ValueError:  # a public key that would make the secret known to everybody
            raise Stranger("no proper public key") from None
        salt = hashlib.sha256(self._shared).digest()
        keys = HKDF(algorithm=SHA256(), length=96, salt=salt, info=transcript).derive(secret)
        return keys[:32], keys[32:64], keys[64:]


class ListeningGreeting(_Half):
    """The side that waits for connections."""

    def begin(self) -> Said:
        self.wants = SECOND
        self._first = MAGIC + self._mine
        return Said(self._first)

    def take(self, message: bytes) -> Said:
        """The connecting side's key and proof; answered with the proof of this one."""
        theirs, proof = message[: KEY + NONCE], message[KEY + NONCE :]
        forward, back, proofs = self._agree(theirs, self._first + theirs)
        if not hmac.compare_digest(proof, _proof(proofs, b"connecting")):
            raise Stranger("another key")
        self.wants = 0
        return Said(_proof(proofs, b"listening"), KeySeal(back, forward))


class ConnectingGreeting(_Half):
    """The side that connects."""

    def begin(self) -> Said:
        self.wants = FIRST
        self._proofs = b""
        return Said(b"")

    def take(self, message: bytes) -> Said:
        """First the other side's key, answered with key and proof; then its proof."""
        if self.wants == FIRST:
            return self._answer(message)
        if not hmac.compare_digest(message, _proof(self._proofs, b"listening")):
            raise Stranger("another key")
        self.wants = 0
        return Said(b"", KeySeal(*self._keys))

    def _answer(self, message: bytes) -> Said:
        if not message.startswith(MAGIC):
            raise Stranger("another protocol or version")
        forward, back, self._proofs = self._agree(message[len(MAGIC) :], message + self._mine)
        self._keys = (forward, back)
        self.wants = PROOF
        return Said(self._mine + _proof(self._proofs, b"connecting"))


class WelcomingGreeting:
    """The listening side of a link without a shared key, with TLS or open to all: it only says welcome.

    With TLS 1.3 the connecting side is through with its handshake before the listener has looked at its
    certificate. Without a word of the listener it would take itself for connected, be dropped, and come again at
    once, for ever.
    """

    wants = 0

    def begin(self) -> Said:
        """Say it as soon as the wire carries it."""
        return Said(MAGIC, NoSeal())

    def take(self, message: bytes) -> Said:
        """Never asked: it wants nothing."""
        raise Stranger(f"{len(message)} bytes that nobody asked for")


class WelcomeGreeting:
    """The connecting side, which waits to be let in."""

    wants = len(MAGIC)

    def begin(self) -> Said:
        return Said(b"")

    def take(self, message: bytes) -> Said:
        """The listening side's word."""
        if message != MAGIC:
            raise Stranger("another protocol or version")
        return Said(b"", NoSeal())


def _proof(key: bytes, who: bytes) -> bytes:
    return hmac.new(key, who, hashlib.sha256).digest()
