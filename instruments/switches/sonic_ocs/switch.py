"""The driver of SONiC on an optical circuit switch, for the wire of its address."""

from typing import Self, cast

from lightrig.instruments.clock import Clock
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.registry import Spec
from lightrig.instruments.switches.sonic_ocs.command_line import SonicCommandLine


class SonicOcs(SonicCommandLine):
    """SONiC on an optical circuit switch: ssh:// (port 22) for its command line, or gnmi:// (8080).

    Both report the same circuits. Over gNMI a change is one transaction; TLS is always used, and
    the switch's certificate verified.

    Source: named at each wire's own class.
    """

    @classmethod
    def open(cls, spec: Spec, endpoint: Endpoint, clock: Clock) -> Self:
        """Return the driver for the wire of `endpoint`; see `Instrument.open`."""
        if endpoint.scheme != "gnmi":
            return super().open(spec, endpoint, clock)
        # Needs an extra, so it is loaded when used.
        from lightrig.instruments.switches.sonic_ocs.gnmi import SonicGnmi  # noqa: PLC0415

        return cast(Self, SonicGnmi.open(spec, endpoint, clock))
