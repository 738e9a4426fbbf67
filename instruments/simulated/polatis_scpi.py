"""A simulated Polatis over SCPI; knows nothing of any driver.

Commands are those that independent drivers use, which quote the vendor's manual. Not confirmed,
and therefore chosen: the error for a port in use (-221), the partner of an unconnected port
("0"), and that taking down a circuit that is not there is no error.
"""

import re
from collections.abc import Iterable

from instruments.simulated.peer_server import PeerConnection
from instruments.simulated.polatis_box import (
    MANUFACTURER,
    SOFTWARE,
    BoxError,
    PolatisBox,
    Reason,
)
from instruments.simulated.scpi_peer import (
    MISSING_PARAMETER,
    ErrorQueue,
    Handler,
    Later,
    ScpiCommands,
    ScpiDialogue,
    ScpiError,
    ScpiRequest,
    one,
)
from testbeds import Circuit

MOST_READINGS = 256
"""How many ports one power query may ask for."""

_OBJECTIONS: dict[Reason, tuple[int, str]] = {
    "port": (-222, "Data out of range"),
    "monitor": (-241, "Hardware missing"),
    "busy": (-221, "Settings conflict"),
    "value": (-224, "Illegal parameter value"),
    "list": (-220, "Parameter error"),
}


class PolatisScpi:
    """The SCPI commands of one switch, for any number of sessions; they share an error queue."""

    def __init__(self, box: PolatisBox) -> None:
        self._box = box
        self._unacknowledged = False
        self._commands = ScpiCommands(
            f"{MANUFACTURER},{box.product},{box.serial},{SOFTWARE}",
            reset=self._reset,
            errors=ErrorQueue(form='{code},"{text}"'),
        )
        handlers: dict[str, Handler] = {
            "OXC:SWITch:SIZE?": self._size,
            "OXC:SWITch:CONNect:ADD": self._add,
            "OXC:SWITch:CONNect:ONLY": self._only,
            "OXC:SWITch:CONNect:SUB": self._sub,
            "OXC:SWITch:CONNect:STATe?": self._state,
            "OXC:SWITch:CONNect:PORT?": self._partner,
            "OXC:SWITch:DISConnect:ALL": lambda _: self._parted(list(box.matrix.egress_of)),
            "OXC:SWITch:PORT:DISable": lambda request: self._shut(request, shut=True),
            "OXC:SWITch:PORT:ENABle": lambda request: self._shut(request, shut=False),
            "OXC:SWITch:PORT:STATe?": self._shutters,
            "PMON:POWer?": self._power,
            "SYSTem:ERRor:ALL?": self._errors,
            "SYSTem:COMMunicate:NETWork#:ADDRess?": self._network,
        }
        for pattern, handler in handlers.items():
            self._commands.add(pattern, _objecting(handler))

    def session(self, connection: PeerConnection, index: int) -> ScpiDialogue:
        """A new client's session."""
        owner = f"{self._box.name}@{index:04d}"
        line = _Line(connection, self)
        return ScpiDialogue(line, self._box.clock, owner, self._commands, end=b"\r\n")

    def _reset(self) -> None:
        self._box.disconnect(list(self._box.matrix.egress_of))

    def _size(self, _: ScpiRequest) -> str:
        return f"{len(self._box.ingress_ports)},{len(self._box.egress_ports)}"

    def _errors(self, _: ScpiRequest) -> str:
        entries = [self._commands.errors.take()]
        while not (entry := self._commands.errors.take()).startswith("0,"):
            entries.append(entry)
        return ",".join(entries)

    def _network(self, _: ScpiRequest) -> str:
        return 'IP="127.0.0.1" Gateway="0.0.0.0" Mask="255.0.0.0" Broadcast="127.255.255.255"'

    # ------------------------------------------------------------------------- circuits

    def _add(self, request: ScpiRequest) -> Later:
        return self._acknowledged(self._box.connect(_circuits(request)))

    def _only(self, request: ScpiRequest) -> Later:
        return self._acknowledged(self._box.become(dict(_circuits(request))))

    def _sub(self, request: ScpiRequest) -> Later:
        ingress, egress = _two_lists(request)
        held = self._box.matrix.egress_of
        if not egress:
            return self._parted(ingress)
        pairs = zip(ingress, egress, strict=True) if len(ingress) == len(egress) else None
        if pairs is None:
            raise BoxError("list", "Unequal lists")
        return self._parted([each for each, partner in pairs if held.get(each) == partner])

    def _parted(self, ports: list[int]) -> Later:
        for port in ports:
            self._box.check_port(port)
        return self._acknowledged(self._box.disconnect(ports))

    def _acknowledged(self, after: int) -> Later:
        def then() -> None:
            self._unacknowledged = True

        return Later(after, None, then)

    def answering(self, answer: bytes) -> None:
        """Note that what was changed is being acknowledged, if that is what the answer does."""
        if self._unacknowledged and answer.strip() == b"1":
            self._unacknowledged = False
            self._box.acknowledge()

    def _state(self, _: ScpiRequest) -> str:
        held = sorted(self._box.matrix.egress_of.items())
        return f"{_listed(ingress for ingress, _ in held)},{_listed(egress for _, egress in held)}"

    def _partner(self, request: ScpiRequest) -> str:
        (port,) = _ports(f"(@{one(request)})")
        self._box.check_port(port)
        matrix = self._box.matrix
        return f'"{matrix.egress_of.get(port) or matrix.ingress_of.get(port) or 0}"'

    # ---------------------------------------------------------------------------- ports

    def _shut(self, request: ScpiRequest, *, shut: bool) -> Later:
        return Later(self._box.shut(_ports(one(request)), shut=shut))

    def _shutters(self, request: ScpiRequest) -> str:
        ports = _ports(one(request)) if request.arguments else list(self._box.ports)
        for port in ports:
            self._box.check_port(port)
        return f"({','.join('D' if self._box.is_shut(port) else 'E' for port in ports)})"

    def _power(self, request: ScpiRequest) -> str:
        ports = _ports(one(request))
        if len(ports) > MOST_READINGS:
            raise ScpiError(-223, "Too much data")
        return f"({','.join(f'{dbm:.2f}' for dbm in self._box.powers(ports))})"


class _Line:
    """A client's connection, on which the answer to `*OPC?` is the acknowledgement."""

    def __init__(self, connection: PeerConnection, scpi: PolatisScpi) -> None:
        self._connection = connection
        self._scpi = scpi

    def send(self, data: bytes) -> None:
        """Write to the client."""
        self._scpi.answering(data)
        self._connection.send(data)

    def close(self, *, abruptly: bool = False) -> None:
        """Hang up."""
        self._connection.close(abruptly=abruptly)


def _objecting(handler: Handler) -> Handler:
    """`handler`, whose objections go into the error queue."""

    def handle(request: ScpiRequest) -> str | bytes | Later | None:
        try:
            return handler(request)
        except BoxError as error:
            code, words = _OBJECTIONS[error.reason]
            raise ScpiError(code, f"{words};{error.text}") from error

    return handle


def _two_lists(request: ScpiRequest) -> tuple[list[int], list[int]]:
    if len(request.arguments) != 2:
        raise ScpiError(*MISSING_PARAMETER)
    ingress, egress = request.arguments
    return _ports(ingress), _ports(egress)


def _circuits(request: ScpiRequest) -> list[Circuit]:
    ingress, egress = _two_lists(request)
    if len(ingress) != len(egress):
        raise BoxError("list", "Unequal lists")
    return [Circuit(*pair) for pair in zip(ingress, egress, strict=True)]


def _ports(text: str) -> list[int]:
    """The ports of a channel list: `(@1,2,5:7)`."""
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


def _listed(ports: Iterable[int]) -> str:
    return f"(@{','.join(map(str, ports))})"
