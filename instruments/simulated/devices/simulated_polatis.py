"""A simulated Polatis on its four wires."""

from collections.abc import Mapping

from lightrig.instruments.simulated.devices.dialects import forms
from lightrig.instruments.simulated.devices.polatis_box import PolatisBox
from lightrig.instruments.simulated.devices.polatis_netconf import PolatisNetconf
from lightrig.instruments.simulated.devices.polatis_restconf import PolatisRestconf
from lightrig.instruments.simulated.devices.polatis_scpi import PolatisScpi
from lightrig.instruments.simulated.devices.polatis_tl1 import PolatisTl1
from lightrig.instruments.simulated.devices.polatis_yang import PolatisYang
from lightrig.instruments.simulated.protocols.device_server import SessionFactory
from lightrig.instruments.simulated.registry import DeviceContext
from lightrig.testbeds import SwitchSpec


class SimulatedPolatis(PolatisTl1):
    """One simulated switch: a change over one wire is visible on the others.

    Its options are those of `PolatisBox`, the `DIALECTS`, and over NETCONF `openflow_errors`,
    whether replies contain the errors that one lab has seen.
    """

    def __init__(self, context: DeviceContext) -> None:
        spec = context.spec
        assert isinstance(spec, SwitchSpec)
        assert context.matrix is not None
        box = PolatisBox(
            spec.name,
            (spec.ingress_count, spec.egress_count),
            spec.options,
            context.matrix,
            context.clock,
            context.truth,
            context.serial,
            context.stated,
        )
        super().__init__(box, context.login, forms("polatis", spec.options))
        self._options = spec.options

    def wires(self) -> Mapping[str, SessionFactory]:
        """Return the factories of TL1, SCPI and RESTCONF on TCP, of NETCONF and of serial SCPI."""
        return wires(self, self.box, self.login, self._options)


def wires(
    tl1: PolatisTl1,
    box: PolatisBox,
    login: tuple[str, str],
    options: Mapping[str, bool | int | float | str],
) -> dict[str, SessionFactory]:
    """Return the session factories of one box, by wire."""
    tree, stated = PolatisYang(box), forms("polatis", options)
    spurious = bool(options.get("openflow_errors", False))
    return {
        "tl1": tl1.session,
        "scpi": PolatisScpi(box, stated).session,
        "serial": PolatisScpi(box, stated, serial=True).session,
        "netconf": PolatisNetconf(tree, stated, openflow_errors=spurious).session,
        "restconf": PolatisRestconf(tree, login, stated).session,
    }
