"""Address of an instrument, parsed, with its credentials."""

import urllib.parse
from dataclasses import dataclass, field
from pathlib import Path

from lightrig.testbeds import LightrigError
from lightrig.testbeds.parts import WireTimeouts

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
        ssh_config: configuration of SSH's client; None for that of the user and the machine.
        timeouts: time limits of the wire.
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
    ssh_config: Path | None = None
    timeouts: WireTimeouts = field(default_factory=WireTimeouts)

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
            host = parts.hostname or ""
            if parts.scheme == "ssh":  # an alias of ssh_config is found by its very letters
                start = parts.netloc.lower().rfind(host)
                host = parts.netloc[start : start + len(host)]
            return cls(parts.scheme, host, parts.port, login, parts.username)
        except ValueError as error:
            raise AddressError(f"the address {address} cannot be read: {error}") from error

    def __str__(self) -> str:
        if self.scheme in _WITHOUT_HOST:
            return f"{self.scheme}://{self.resource}"
        return f"{self.scheme}://{self.host}" + (f":{self.port}" if self.port else "")
