"""Certificates for trying out TLS on one machine, and for tests. Their keys lie unprotected in a folder."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePrivateKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

_BEGIN = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
_FAR = datetime.datetime(2100, 1, 1, tzinfo=datetime.UTC)
_MAY_SIGN = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)
_PAST = datetime.datetime(2020, 2, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True)
class CertificateFiles:
    """A certificate and its key, as PEM files."""

    cert: Path
    key: Path


class Authority:
    """Signs certificates for 127.0.0.1 and for other hosts.

    ``ca`` is the file that those who trust it are given.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = _name(name)
        self._key = generate_private_key(SECP256R1())
        self.ca = folder / f"{name}.ca.pem"
        certificate = (
            self._builder(self._name, self._key, _FAR)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_MAY_SIGN, critical=True)
        )
        self.ca.write_bytes(certificate.sign(self._key, SHA256()).public_bytes(Encoding.PEM))

    def sign(
        self, name: str, *, expired: bool = False, hosts: Sequence[str] = ()
    ) -> CertificateFiles:
        """A certificate of this name, for 127.0.0.1 and for these hosts."""
        key = generate_private_key(SECP256R1())
        builder = self._builder(_name(name), key, _PAST if expired else _FAR).add_extension(
            x509.SubjectAlternativeName(
                [
                    x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
                    *(x509.DNSName(host) for host in hosts),
                ]
            ),
            critical=False,
        )
        files = CertificateFiles(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        files.cert.write_bytes(builder.sign(self._key, SHA256()).public_bytes(Encoding.PEM))
        files.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return files

    def _builder(
        self, subject: x509.Name, key: EllipticCurvePrivateKey, end: datetime.datetime
    ) -> x509.CertificateBuilder:
        # Since Python 3.13 a certificate must name the key that signed it (RFC 5280, strictly read).
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(_BEGIN)
            .not_valid_after(end)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
