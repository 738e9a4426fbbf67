"""Keys of a night over hosts: an authority of this lab alone, and a key file for each participant.

Dask lets everybody in who has a key of the authority, and checks no name: every key file may run
code on every host of the lab. A key file is PEM: private key, its certificate, the authority's.
"""

import datetime as dt
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from lightrig.instruments.clock import wall_time
from lightrig.testbeds import LightrigError
from lightrig.testbeds.lab_hosts import LabHosts
from lightrig.testbeds.private_files import PrivateFileError, read_private

AUTHORITY = "authority.pem"
SCHEDULER = "scheduler.pem"

VALID = dt.timedelta(days=730)
_TEMPORARY = dt.timedelta(days=30)
"""Longer than any night."""
_BACKDATED = dt.timedelta(days=1)
"""Clocks of hosts may differ."""


class KeyFileError(LightrigError):
    """A key file of a night is absent, damaged, expired, or open to other accounts."""


@dataclass(frozen=True, slots=True)
class NightKey:
    """Private key, certificate and the authority's certificate, each as PEM, and its last moment.

    The authority's key has the authority's certificate twice.
    """

    key: str
    certificate: str
    authority: str
    expires: dt.datetime

    @property
    def pem(self) -> str:
        """The content of the key file."""
        return self.key + self.certificate + self.authority


def key_file(keys: Path, host: str) -> Path:
    """Return the key file of a host's worker."""
    return keys / f"worker-{quote(host, safe='')}.pem"


def temporary_key() -> NightKey:
    """Return a key of an authority that nothing else knows, for the processes of one night."""
    return _made("night", _authority(_TEMPORARY), _TEMPORARY)


def make_keys(lab: LabHosts) -> Iterator[tuple[Path, NightKey, bool]]:
    """Make the key files that are missing; yield each file, its key, and whether it is new.

    The first is the authority's, which makes the keys of hosts that are added later, the second the
    scheduler's. Files that exist stay as they are. Raises `KeyFileError` for what cannot be
    written, and for a file that `read_key` refuses.
    """
    assert lab.keys is not None
    files = [lab.keys / AUTHORITY, lab.keys / SCHEDULER]
    files += [key_file(lab.keys, host.name) for host in lab.hosts]
    authority: NightKey | None = None
    for file in files:
        exists = file.exists()
        if exists:
            found = read_key(file)
        else:
            found = _authority(VALID) if authority is None else _made(file.stem, authority, VALID)
            _write(file, found.pem)
        authority = authority or found
        if found.authority != authority.authority:
            raise KeyFileError(
                f"{file} is not of the authority in {lab.keys / AUTHORITY}: remove it, and make it "
                "again"
            )
        yield file, found, not exists


def read_key(file: Path) -> NightKey:
    """Read a key file; raises `KeyFileError` unless this account alone can, and it is valid now."""
    try:
        content = read_private(file, group=False)
    except PrivateFileError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise KeyFileError(
                f"there is no {file}: make it where the night is started (lightrig night FILE "
                "--make-keys), and copy it to its host with mode 0600"
            ) from error
        raise KeyFileError(str(error)) from error
    return parse_key(str(file), content)


def parse_key(name: str, content: bytes) -> NightKey:
    """Parse the content of the key file `name`; raises `KeyFileError` unless it is valid now."""
    try:
        private = load_pem_private_key(content, None)
        certificate, authority = x509.load_pem_x509_certificates(content)
        certificate.verify_directly_issued_by(authority)
        matches = certificate.public_key() == private.public_key()
    except (ValueError, TypeError, InvalidSignature):
        matches = False  # without the cause, which may show a part of the key
    if not matches:
        raise KeyFileError(f"{name} is no key file of a night, or damaged: copy or make it again")
    expires = min(certificate.not_valid_after_utc, authority.not_valid_after_utc)
    if expires < wall_time():
        raise KeyFileError(
            f"{name} expired on {expires:%Y-%m-%d}: remove it and, if {AUTHORITY} expired too, all "
            "key files, and make and copy them again (lightrig night FILE --make-keys)"
        )
    starts = max(certificate.not_valid_before_utc, authority.not_valid_before_utc)
    if starts > wall_time():
        raise KeyFileError(
            f"{name} is valid from {starts:%Y-%m-%d %H:%M} UTC on: is the clock of this host right?"
        )
    pem = Encoding.PEM
    key = private.private_bytes(pem, PrivateFormat.PKCS8, NoEncryption()).decode()
    return NightKey(
        key, certificate.public_bytes(pem).decode(), authority.public_bytes(pem).decode(), expires
    )


def _authority(valid: dt.timedelta) -> NightKey:
    return _made(f"Lightrig night authority {os.urandom(8).hex()}", None, valid)


def _made(name: str, authority: NightKey | None, valid: dt.timedelta) -> NightKey:
    """Return a key with a certificate, of that authority or, without one, an authority itself."""
    private = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    issuer, signer = subject, private
    expires = wall_time().replace(microsecond=0) + valid
    if authority is not None:
        above = x509.load_pem_x509_certificate(authority.certificate.encode())
        found = load_pem_private_key(authority.key.encode(), None)
        assert isinstance(found, ec.EllipticCurvePrivateKey)
        issuer, signer = above.subject, found
        expires = min(expires, above.not_valid_after_utc)
    public = private.public_key()
    is_authority = authority is None
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(wall_time() - _BACKDATED)
        .not_valid_after(expires)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(_usage(is_authority), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
    )
    if not is_authority:
        both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(both), critical=False)
    certificate = builder.sign(signer, hashes.SHA256()).public_bytes(Encoding.PEM).decode()
    key = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return NightKey(key, certificate, authority.authority if authority else certificate, expires)


def _usage(is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _write(file: Path, content: str) -> None:
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
            opened.write(content)
    except OSError as error:
        raise KeyFileError(f"{file} cannot be written: {error.strerror}") from error
