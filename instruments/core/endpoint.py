"""Address of an instrument, parsed, with its credentials."""

import urllib.parse
from dataclasses import dataclass
from pathlib import Path

from lightrig.testbeds import LightrigError

_WITHOUT_HOST = ("serial", "visa")


class AddressError(LightrigError):
    """An address that cannot be read."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Address and credentials of an instrument.

    Attributes:
        scheme: the wire, as the address names it.
        host: name or address; empty for serial:// and visa://.
        port: TCP port; None for the usual one of the wire.
        login: user and password, or None.
        user: the user that an address names.
        known_hosts: file of SSH host keys; None for the user's default file.
        certificates: file of trusted certificates; None for those that the system trusts.
        resource: of serial:// the device's path, of visa:// the VISA resource name.
    """

    scheme: str
    host: str = ""
    port: int | None = None
    login: tuple[str, str] | None = None
    user: str | None = None
    known_hosts: Path | None = None
    certificates: Path | None = None
    resource: str = ""

    @classmethod
    def parse(cls, address: str, login: tuple[str, str] | None) -> "Endpoint":
        """Read `scheme://[user@]host[:port]`, `serial:///dev/...` or `visa://RESOURCE`.

        Raises:
            AddressError: it is none of these.
        """
        scheme, _, rest = address.partition("://")
        if scheme in _WITHOUT_HOST:
            return cls(scheme, login=login, resource=rest)
        try:
            parts = urllib.parse.urlsplit(address)
            return cls(parts.scheme, parts.hostname or "", parts.port, login, parts.username)
        except ValueError as error:
            raise AddressError(f"the address {address} cannot be read: {error}") from error

    def __str__(self) -> str:
        if self.scheme in _WITHOUT_HOST:
            return f"{self.scheme}://{self.resource}"
        return f"{self.scheme}://{self.host}" + (f":{self.port}" if self.port else "")
