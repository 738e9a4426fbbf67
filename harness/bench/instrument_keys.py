"""Keys of leases: of an instrument by its address before it is opened, then by its serial.

Two files may give one instrument different names, and one instrument may be reached at two
addresses (TL1 and NETCONF of one switch). So an address is leased before anything is contacted,
and the serial as soon as it is known, before anything is changed.
"""

import os
import socket
from collections.abc import Iterable

from lightrig.instruments.core.capabilities import Identity
from lightrig.instruments.core.endpoint import AddressError, Endpoint
from lightrig.instruments.wire.tcp import is_placeholder
from lightrig.testbeds import InstrumentSpec, ServerSpec, SwitchSpec

_PORTS = {
    "tl1": 3082,
    "ssh": 22,
    "netconf": 830,
    "restconf": 80,
    "gnmi": 8080,
    "scpi": 5025,
    "simserv": 2049,
}
"""Usual ports, so that an address with and one without its port are the same."""

_NO_SERIAL = frozenset(("", "0", "unknown", "n/a", "none"))


def address_keys(spec: SwitchSpec | InstrumentSpec | ServerSpec) -> frozenset[str]:
    """Return the keys of an instrument's address; none for a placeholder.

    Names are looked up, so that a name, an alias and the number are one address.
    """
    if not spec.address:
        return frozenset()
    try:
        endpoint = Endpoint.parse(spec.address, None)
    except AddressError:  # opening it will say so
        return frozenset()
    if endpoint.scheme == "netns" or (endpoint.host and is_placeholder(endpoint.host)):
        return frozenset()
    if endpoint.scheme == "serial":
        return frozenset({f"serial {os.path.realpath(endpoint.resource)}"})
    if endpoint.scheme == "visa":
        return frozenset({f"visa {endpoint.resource.upper()}"})
    port = endpoint.port or _PORTS.get(endpoint.scheme, 0)
    return frozenset(f"address {host} port {port}" for host in _resolved(endpoint.host))


def _resolved(host: str) -> Iterable[str]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return {host.lower().rstrip(".")}  # connecting to it will say what is wrong
    return {str(address[4][0]) for address in found}


def identity_key(identity: Identity, address: str | None) -> str:
    """Return the key of the instrument that reports `identity`.

    An instrument without a serial number is known by its address. So are simulated ones, whose
    serial numbers repeat: each lab that is served is another one.
    """
    made = f"{identity.manufacturer} {identity.model}"
    if identity.serial.strip().lower() in _NO_SERIAL:
        return f"{made} at {address or 'no address'}"
    if identity.simulated:
        return f"{made} serial {identity.serial} at {address or 'no address'}"
    return f"{made} serial {identity.serial}"
