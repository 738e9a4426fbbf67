"""A simulated Polatis over SCPI.

Commands are those that independent drivers use, which quote the vendor's manual. Not confirmed,
and therefore chosen: the error for a port in use (-221), and that a circuit that does not exist
can be disconnected.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from lightrig.instruments.simulated.devices.polatis_box import (
    MANUFACTURER,
    BoxError,
    PolatisBox,
    Reason,
)
from lightrig.instruments.simulated.protocols.commands import Constant, command
from lightrig.instruments.simulated.protocols.scpi_device import DelayedReply, Reply, ScpiDevice
from lightrig.instruments.simulated.protocols.scpi_values import ScpiError
from lightrig.testbeds import Circuit

MOST_READINGS = 256
"""Number of ports that one power query may name."""

_ERRORS: dict[Reason, tuple[int, str]] = {
    "port": (-222, "Data out of range"),
    "monitor": (-241, "Hardware missing"),
    "busy": (-221, "Settings conflict"),
    "value": (-224, "Illegal parameter value"),
    "list": (-220, "Parameter error"),
}


class PolatisScpi(ScpiDevice):
    """The SCPI commands of one switch; sessions share an error queue."""

    error_format = '{code},"{text}"'

    def __init__(self, box: PolatisBox, stated: Mapping[str, str], *, serial: bool = False) -> None:
        """`stated` are the forms of its dialects; `serial` is whether it is the serial line."""
        self.session_mark = "%" if serial else "@"
        self.reply_end = b"\r" if serial and stated["line_end"] == "cr" else b"\r\n"
        self._compound = stated["compound"]
        identity = f"{MANUFACTURER},{box.product},{box.serial},{box.software}"
        super().__init__(box.name, box.clock, identity)
        self._box = box
        self._unacknowledged = False

    def execute(self, header: str, arguments: tuple[str, ...]) -> Reply:
        """Carry out one command; errors of the switch become entries of the error queue."""
        try:
            return super().execute(header, arguments)
        except BoxError as error:
            code, text = _ERRORS[error.reason]
            raise ScpiError(code, f"{text};{error.text}") from error

    def response(self, replies: Sequence[bytes]) -> bytes:
        """Return the response to a message, in the form of its dialect."""
        match self._compound:
            case "first":
                return replies[0] + self.reply_end
            case "lines":
                return b"".join(reply + self.reply_end for reply in replies)
        return super().response(replies)

    def about_to_send(self, reply: bytes) -> None:
        """Note the acknowledgement of a change: it is the reply to `*OPC?`."""
        if self._unacknowledged and reply.strip() == b"1":
            self._unacknowledged = False
            self._box.acknowledge()

    def reset(self) -> None:
        """Disconnect all circuits."""
        self._box.disconnect(list(self._box.matrix.egress_of))

    @command("OXC:SWITch:SIZE?")
    def _query_size(self) -> str:
        return f"{len(self._box.ingress_ports)},{len(self._box.egress_ports)}"

    @command("SYSTem:ERRor:ALL?")
    def _query_all_errors(self) -> str:
        entries = [self.errors.take()]
        while not (entry := self.errors.take()).startswith("0,"):
            entries.append(entry)
        return ",".join(entries)

    _query_network = Constant(
        "SYSTem:COMMunicate:NETWork#:ADDRess?",
        reply='IP="127.0.0.1" Gateway="0.0.0.0" Mask="255.0.0.0" Broadcast="127.255.255.255"',
    )

    # ------------------------------------------------------------------------- circuits

    @command("OXC:SWITch:CONNect:ADD")
    def _add(self, ingress: str, egress: str) -> DelayedReply:
        return self._change(self._box.connect(_circuits(ingress, egress)))

    @command("OXC:SWITch:CONNect:ONLY")
    def _only(self, ingress: str, egress: str) -> DelayedReply:
        return self._change(self._box.become(dict(_circuits(ingress, egress))))

    @command("OXC:SWITch:CONNect:SUB")
    def _subtract(self, ingress: str, egress: str) -> DelayedReply:
        if not _ports(egress):
            return self._disconnect(_ports(ingress))
        connected = self._box.matrix.egress_of
        pairs = _circuits(ingress, egress)
        return self._disconnect([each for each, partner in pairs if connected.get(each) == partner])

    @command("OXC:SWITch:DISConnect:ALL")
    def _disconnect_all(self) -> DelayedReply:
        return self._disconnect(list(self._box.matrix.egress_of))

    def _disconnect(self, ports: list[int]) -> DelayedReply:
        for port in ports:
            self._box.check_port(port)
        return self._change(self._box.disconnect(ports))

    def _change(self, after: int) -> DelayedReply:
        def finish() -> None:
            self._unacknowledged = True

        return DelayedReply(after, finish)

    @command("OXC:SWITch:CONNect:STATe?")
    def _query_circuits(self) -> str:
        circuits = sorted(self._box.matrix.egress_of.items())
        ingress, egress = (_list(circuit[side] for circuit in circuits) for side in (0, 1))
        return f"{ingress},{egress}"

    @command("OXC:SWITch:CONNect:PORT?")
    def _query_partner(self, text: str) -> str:
        (port,) = _ports(f"(@{text})")
        self._box.check_port(port)
        matrix = self._box.matrix
        return f'"{matrix.egress_of.get(port) or matrix.ingress_of.get(port) or ""}"'

    @command("OXC:BOOT:MODE?")
    def _query_boot_mode(self) -> str:
        return {"DARK": "DARK", "RESTORE": "REST"}.get(self._box.boot, self._box.boot)

    @command("OXC:BOOT:MODE")
    def _set_boot_mode(self, mode: str) -> None:
        modes = {"DARK": "DARK", "REST": "RESTORE", "AUT": "AUT"}
        if mode.upper() not in modes:
            raise ScpiError(-224, "Illegal parameter value")
        self._box.boot = modes[mode.upper()]

    # ---------------------------------------------------------------------------- ports

    @command("OXC:SWITch:PORT:DISable")
    def _disable(self, ports: str) -> DelayedReply:
        return DelayedReply(self._box.shut(_ports(ports), shut=True))

    @command("OXC:SWITch:PORT:ENABle")
    def _enable(self, ports: str) -> DelayedReply:
        return DelayedReply(self._box.shut(_ports(ports), shut=False))

    @command("OXC:SWITch:PORT:STATe?")
    def _query_shutters(self, text: str | None = None) -> str:
        ports = list(self._box.ports) if text is None else _ports(text)
        for port in ports:
            self._box.check_port(port)
        return f"({','.join('D' if self._box.is_shut(port) else 'E' for port in ports)})"

    @command("PMON:POWer?")
    def _query_power(self, text: str) -> str:
        ports = _ports(text)
        if len(ports) > MOST_READINGS:
            raise ScpiError(-223, "Too much data")
        return f"({','.join(f'{dbm:.2f}' for dbm in self._box.powers(ports))})"


def _circuits(ingress_list: str, egress_list: str) -> list[Circuit]:
    ingress, egress = _ports(ingress_list), _ports(egress_list)
    if len(ingress) != len(egress):
        raise BoxError("list", "Unequal lists")
    return [Circuit(*pair) for pair in zip(ingress, egress, strict=True)]


def _ports(text: str) -> list[int]:
    """Return the ports of a channel list: `(@1,2,5:7)`."""
    match = re.fullmatch(r"\(@([\d,:\s]*)\)", text)
    if match is None:
        raise ScpiError(-171, "Invalid expression")
    ports: list[int] = []
    for item in filter(None, match[1].replace(" ", "").split(",")):
        first, colon, last = item.partition(":")
        if not first.isdigit() or (colon and not last.isdigit()):
            raise ScpiError(-171, "Invalid expression")
        ports.extend(range(int(first), int(last or first) + 1))
    return ports


def _list(ports: Iterable[int]) -> str:
    return f"(@{','.join(map(str, ports))})"
