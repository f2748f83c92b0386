"""Who may speak over a link: those who share a key, those with a certificate, or, on one machine, anybody."""

from __future__ import annotations

import ipaddress
import secrets
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from surepipe.actors.links.greeting import (
    KEY,
    NONCE,
    ConnectingGreeting,
    Greeting,
    ListeningGreeting,
    NoGreeting,
)
from surepipe.errors import ConfigurationError

KEY_MIN = 32


class SharedKey:
    """Both processes know the same secret: each connection is encrypted and every record authenticated.

    ``key``: at least 32 bytes or characters; ``secrets.token_hex(32)`` makes one. It is never printed. Raises
    ConfigurationError for a shorter one.
    """

    def __init__(self, key: str | bytes) -> None:
        self._key = key.encode() if isinstance(key, str) else key
        if len(self._key) < KEY_MIN:
            raise ConfigurationError(
                f"a shared key of {len(self._key)} bytes is too short: it needs {KEY_MIN}, such as "
                'python -c "import secrets; print(secrets.token_hex(32))" prints'
            )

    @classmethod
    def read(cls, path: str | Path) -> SharedKey:
        """The key that a file holds, without the blanks around it. Raises ConfigurationError."""
        try:
            return cls(Path(path).read_bytes().strip())
        except OSError as error:
            raise ConfigurationError(f"the shared key {path} can't be read: {error}") from None

    def greeting(self, *, listening: bool) -> Greeting:
        """A new greeting, with chance of its own."""
        kind = ListeningGreeting if listening else ConnectingGreeting
        return kind(self._key, secrets.token_bytes(KEY + NONCE))

    def context(self, *, listening: bool) -> ssl.SSLContext | None:
        """No TLS."""
        del listening
        return None

    def __repr__(self) -> str:
        return "SharedKey(...)"


@dataclass(frozen=True, slots=True)
class MutualTls:
    """TLS 1.3, where both sides show a certificate that ``ca`` has signed. All three are paths of PEM files.

    ``name``: the name in the other side's certificate, if it is not the host that is connected to.
    """

    cert: str | Path
    key: str | Path
    ca: str | Path
    name: str | None = None

    def greeting(self, *, listening: bool) -> Greeting:
        """TLS has greeted already."""
        del listening
        return NoGreeting()

    def context(self, *, listening: bool) -> ssl.SSLContext:
        """The context of one side. Raises ConfigurationError when a file does not do."""
        purpose = ssl.Purpose.CLIENT_AUTH if listening else ssl.Purpose.SERVER_AUTH
        try:
            context = ssl.create_default_context(purpose, cafile=str(self.ca))
            context.load_cert_chain(str(self.cert), str(self.key))
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(
                f"TLS with certificate {self.cert}, key {self.key}, ca {self.ca}: {error}"
            ) from None
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        return context


@dataclass(frozen=True, slots=True)
class OneMachine:
    """No key: for processes of one machine that may all trust each other. Loopback addresses only."""

    def greeting(self, *, listening: bool) -> Greeting:
        """Nobody asks."""
        del listening
        return NoGreeting()

    def context(self, *, listening: bool) -> ssl.SSLContext | None:
        """No TLS."""
        del listening
        return None


Security: TypeAlias = SharedKey | MutualTls | OneMachine


def address_of(text: str) -> tuple[str, int]:
    """Host and port of ``host:port`` or ``[::1]:port``. Raises ConfigurationError."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    is_number = port.isascii() and port.isdigit()
    if not _is_host(host) or not is_number or int(port) > 65535:
        raise ConfigurationError(f"{text!r} is no address: write host:port, such as 127.0.0.1:7400")
    return host, int(port)


def _is_host(text: str) -> bool:
    """False for what the resolver could not even be asked for."""
    try:
        return bool(text.encode("idna")) and "\0" not in text
    except UnicodeError:
        return False


def require_suitable(address: str, security: object) -> None:
    """Refuse to speak to other machines without a key. Raises ConfigurationError."""
    if not isinstance(security, SharedKey | MutualTls | OneMachine):
        raise ConfigurationError(
            f"security is {security!r}: give SharedKey(...), MutualTls(...) or OneMachine()"
        )
    host, _ = address_of(address)
    if isinstance(security, OneMachine) and not _is_loopback(host):
        raise ConfigurationError(
            f"{address} without a key would let anybody send: use SharedKey(...) or MutualTls(...), "
            "or a loopback address"
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
