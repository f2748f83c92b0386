"""Who may speak over a link: those who share a key, those with a certificate, or, on one machine, anybody.

Each kind brings a wire, which turns bytes of the socket into bytes of the connection (TLS, or nothing), and a
greeting, which is spoken over the wire.
"""

from __future__ import annotations

import ipaddress
import secrets
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol, TypeAlias

from surepipe.actors.links.greeting import (
    KEY,
    NONCE,
    ConnectingGreeting,
    Greeting,
    ListeningGreeting,
    Stranger,
    WelcomeGreeting,
    WelcomingGreeting,
)
from surepipe.errors import ConfigurationError

KEY_MIN = 32
READ_MAX = 256 * 1024
_SAME = "do both processes have the same security?"


class Wire(Protocol):
    """What lies between the socket and the greeting. ``is_ready``: it carries bytes of the connection by now."""

    is_ready: bool

    def begin(self) -> None: ...

    def take(self, data: bytes) -> bytes:
        """Bytes of the connection in what the socket brought. Raises Stranger."""
        ...

    def give(self, data: bytes) -> bytes:
        """What the socket is to carry for bytes of the connection."""
        ...

    def owed(self) -> bytes:
        """Bytes of the wire's own for the other side, once."""
        ...

    def end(self) -> bytes:
        """The last bytes: nothing follows."""
        ...


class PlainWire:
    """Bytes of the socket are bytes of the connection."""

    is_ready = True

    def begin(self) -> None:
        """Be ready at once."""

    def take(self, data: bytes) -> bytes:
        return data

    def give(self, data: bytes) -> bytes:
        return data

    def owed(self) -> bytes:
        return b""

    def end(self) -> bytes:
        return b""


class TlsWire:
    """TLS between two buffers of bytes.

    The listening side makes its part only when somebody speaks: of those who connect and say nothing there may be
    many, and each TLS object takes memory that a silent stranger has not paid for.
    """

    def __init__(self, context: ssl.SSLContext, *, listening: bool, name: str | None) -> None:
        self.is_ready = False
        self._context = context
        self._listening = listening
        self._name = name
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None

    def begin(self) -> None:
        if not self._listening:
            self._advance()

    def take(self, data: bytes) -> bytes:
        """Go on with the handshake, then open what came in."""
        self._in.write(data)
        if not self.is_ready:
            self._advance()
        return self._opened() if self.is_ready else b""

    def give(self, data: bytes) -> bytes:
        """Seal, behind whatever the handshake has to say."""
        assert self._tls is not None
        self._tls.write(data)
        return self._out.read()

    def owed(self) -> bytes:
        """Messages of the handshake, or the alert that tells the other side why it is refused."""
        return self._out.read()

    def end(self) -> bytes:
        """Say that nothing follows, so that a cut connection can be told from a closed one."""
        if self._tls is not None and self.is_ready:
            try:
                self._tls.unwrap()
            except ssl.SSLError:  # the other side has not said so yet, and is not waited for
                return self._out.read()
        return self._out.read()

    def _advance(self) -> None:
        if self._tls is None:
            self._tls = self._context.wrap_bio(
                self._in, self._out, server_side=self._listening, server_hostname=self._name
            )
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return
        except ssl.SSLError as error:
            raise Stranger(str(error)) from None
        self.is_ready = True

    def _opened(self) -> bytes:
        assert self._tls is not None
        pieces: list[bytes] = []
        try:
            while piece := self._tls.read(READ_MAX):
                pieces.append(piece)
        except ssl.SSLWantReadError:
            return b"".join(pieces)
        except ssl.SSLZeroReturnError:  # it said its last; the socket tells the rest
            return b"".join(pieces)
        except ssl.SSLError as error:
            raise Stranger(str(error)) from None
        return b"".join(pieces)


class SharedKey:
    """Both processes know the same secret: each connection is encrypted and every record authenticated.

    ``key``: at least 32 bytes or characters; ``secrets.token_hex(32)`` makes one. It is never printed. Raises
    ConfigurationError for a shorter one.
    """

    unproven: ClassVar[str] = f"the other side did not show the same key in time; {_SAME}"
    """What is told of who was dropped as a stranger."""

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

    def wires(self, *, listening: bool, host: str) -> Callable[[], Wire]:
        del listening, host
        return PlainWire

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

    unproven: ClassVar[str] = (
        "the other side showed in time no certificate that the ca of this side has signed, or refused the one of "
        f"this side; {_SAME}"
    )

    def greeting(self, *, listening: bool) -> Greeting:
        """TLS knows who is there; the listening side says that it does."""
        return WelcomingGreeting() if listening else WelcomeGreeting()

    def wires(self, *, listening: bool, host: str) -> Callable[[], Wire]:
        """Makes the wire of each connection. Raises ConfigurationError when a file does not do."""
        context = self._context(listening=listening)
        name = None if listening else self.name or host
        return lambda: TlsWire(context, listening=listening, name=name)

    def _context(self, *, listening: bool) -> ssl.SSLContext:
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

    unproven: ClassVar[str] = (
        f"the other side did not greet in time as one without a key does; {_SAME}"
    )

    def greeting(self, *, listening: bool) -> Greeting:
        """Nobody asks; the listening side says what it is."""
        return WelcomingGreeting() if listening else WelcomeGreeting()

    def wires(self, *, listening: bool, host: str) -> Callable[[], Wire]:
        del listening, host
        return PlainWire


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
