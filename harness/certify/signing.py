"""Signatures of sheets: Ed25519 (RFC 8032) over their canonical JSON."""

from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from cryptography.hazmat.primitives.serialization import (
    load_pem_private_key,
    load_pem_public_key,
    load_ssh_private_key,
    load_ssh_public_key,
)

from lightrig.harness.certify.sheet import Sheet, SheetError, Signature
from lightrig.testbeds.credentials import CredentialError, secret

_UNREADABLE = (ValueError, TypeError, UnsupportedAlgorithm)


def private_key(place: str) -> Ed25519PrivateKey:
    """Return the private key at `file:PATH`, `keyring:NAME` or `env:VARIABLE`.

    It is PEM (PKCS 8) or of OpenSSH, without passphrase. Raises `CredentialError`, without its
    content.
    """
    data = secret(place, group=False)
    load = load_ssh_private_key if b"OPENSSH PRIVATE KEY" in data else load_pem_private_key
    try:
        key = load(data, password=None)
    except _UNREADABLE:
        raise CredentialError(f"{place}: no private key without passphrase stands there") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise CredentialError(f"{place}: the key is not of Ed25519 (`ssh-keygen -t ed25519`)")
    return key


def public_key(path: Path) -> Ed25519PublicKey:
    """Return the public key in a file, PEM or a line of OpenSSH; raises `SheetError`."""
    try:
        data = path.read_bytes()
        load = load_pem_public_key if data.lstrip().startswith(b"-----") else load_ssh_public_key
        key = load(data)
    except OSError as error:
        raise SheetError(f"{path}: {error.strerror}") from error
    except _UNREADABLE as error:
        raise SheetError(f"{path} is no public key") from error
    if not isinstance(key, Ed25519PublicKey):
        raise SheetError(f"the key in {path} is not of Ed25519")
    return key


def sign(sheet: Sheet, key: Ed25519PrivateKey) -> Sheet:
    """Return the sheet with its signature."""
    value = key.sign(sheet.signed_bytes()).hex()
    public = key.public_key().public_bytes_raw().hex()
    return sheet.model_copy(update={"signature": Signature(key=public, value=value)})


def verify(sheet: Sheet, key: Ed25519PublicKey | None) -> None:
    """Raise `SheetError` unless `key` has signed the sheet as it is; None: the key in the sheet."""
    if sheet.signature is None:
        raise SheetError("it is not signed")
    key = key or Ed25519PublicKey.from_public_bytes(bytes.fromhex(sheet.signature.key))
    if sheet.signature.key != key.public_bytes_raw().hex():
        raise SheetError(f"another key has signed it: {sheet.signature.key}")
    try:
        key.verify(bytes.fromhex(sheet.signature.value), sheet.signed_bytes())
    except (InvalidSignature, ValueError):
        raise SheetError("its signature is wrong: it was changed after it was signed") from None
