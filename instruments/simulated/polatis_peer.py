"""A simulated Polatis on its four wires; knows nothing of any driver."""

from collections.abc import Mapping

from instruments.simulated.peer_server import SessionFactory
from instruments.simulated.peers import Surroundings
from instruments.simulated.polatis_box import PolatisBox
from instruments.simulated.polatis_netconf import PolatisNetconf
from instruments.simulated.polatis_restconf import PolatisRestconf
from instruments.simulated.polatis_scpi import PolatisScpi
from instruments.simulated.polatis_tl1 import PolatisTl1
from instruments.simulated.polatis_yang import PolatisYang
from testbeds import SwitchSpec


class PolatisPeer(PolatisTl1):
    """One simulated switch: what one wire changes, the others see.

    Its options: `rerouting` says whether connecting a port in use moves it or is denied (TL1,
    SCPI); `monitors` (`egress`, `both`, `none`) where power monitors are fitted;
    `openflow_errors` adds errors to NETCONF answers as one lab has seen them.
    """

    def __init__(self, around: Surroundings) -> None:
        spec = around.spec
        assert isinstance(spec, SwitchSpec)
        assert around.matrix is not None
        box = PolatisBox(
            spec.name,
            (spec.ingress_count, spec.egress_count),
            spec.options,
            around.matrix,
            around.clock,
            around.truth,
            around.serial,
        )
        super().__init__(box, around.login)
        self._options = spec.options

    def wires(self) -> Mapping[str, SessionFactory]:
        """TL1, SCPI and RESTCONF on TCP; NETCONF on whatever carries SSH's subsystem."""
        return wires(self, self._box, self._login, self._options)


def wires(
    tl1: PolatisTl1,
    box: PolatisBox,
    login: tuple[str, str],
    options: Mapping[str, bool | int | float | str],
) -> dict[str, SessionFactory]:
    """What makes a session of one box, by wire."""
    tree = PolatisYang(box)
    spurious = bool(options.get("openflow_errors", False))
    return {
        "tl1": tl1.session,
        "scpi": PolatisScpi(box).session,
        "netconf": PolatisNetconf(tree, openflow_errors=spurious).session,
        "restconf": PolatisRestconf(tree, login).session,
    }
