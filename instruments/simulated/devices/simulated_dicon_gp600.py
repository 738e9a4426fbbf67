"""Simulated DiCon GP600 with one matrix, X1.

Commands are those of the driver of autosweep, which cites the manual's table 4-11. Guessed: the
codes and texts of its error queue but for the empty one, and that connecting a port in use moves
it.
"""

from lightrig.instruments.simulated.protocols.commands import Constant, Query, command
from lightrig.instruments.simulated.protocols.device_server import DeviceConnection
from lightrig.instruments.simulated.protocols.scpi_device import (
    DelayedReply,
    ScpiDevice,
    ScpiServerSession,
)
from lightrig.instruments.simulated.protocols.scpi_values import (
    ScpiError,
    boolean,
    number,
)
from lightrig.instruments.simulated.registry import DeviceContext
from lightrig.testbeds import Circuit, SwitchSpec

_WAVELENGTHS = (1310.0, 1550.0)


class SimulatedDiconGp600(ScpiDevice):
    """A matrix of ingress 1..N and outputs 1..M; output 0 disconnects an ingress."""

    error_format = "{code:+d}, {text}"
    no_error = "No Error"
    reply_end = b"\r\n"

    def __init__(self, context: DeviceContext) -> None:
        assert isinstance(context.spec, SwitchSpec)
        assert context.matrix is not None
        identity = f"Dicon Fiberoptics Inc, GP600, {context.serial}, 7.0"
        super().__init__(context.spec.name, context.clock, identity)
        self._context = context
        self._spec = context.spec
        self._matrix = context.matrix
        self._wavelength = _WAVELENGTHS[-1]
        self._saves = False

    def session(self, connection: DeviceConnection, index: int) -> "_Gp600Session":
        """Open the session of a new client."""
        return _Gp600Session(self, connection, f"{self.name}#{index:04d}")

    _query_configuration = Constant("SYSTem:CONFig?", reply="X1")
    _query_version = Query("VER?", reply=lambda self: self.identity.rpartition(",")[2].strip())

    @command("WEN")
    def _set_saving(self, text: str) -> None:
        self._saves = boolean(text)

    _query_saving = Query("WEN?", reply=lambda self: self._saves)

    @command("RESET")
    def reset(self) -> None:
        """Disconnect everything."""
        self._matrix.disconnect(list(self._matrix.egress_of))

    @command("XONE")
    def _connect(self, ports: str = "") -> DelayedReply:
        fields = ports.split()
        if fields[:1] == ["W"] and len(fields) == 2:
            if number(fields[1]) not in _WAVELENGTHS:
                raise ScpiError(-222, "Data Out Of Range")
            self._wavelength = number(fields[1])
            return DelayedReply(0)
        if len(fields) != 2 or not all(word.isdigit() for word in fields):
            raise ScpiError(-109, "Missing Parameter")
        ingress, output = map(int, fields)
        if ingress not in self._spec.ingress_ports or output > self._spec.egress_count:
            raise ScpiError(-222, "Data Out Of Range")
        if output == 0:
            after = self._matrix.disconnect([ingress])
        else:
            after = self._matrix.connect([Circuit(ingress, self._spec.ingress_count + output)])
        return DelayedReply(after, self._context.acknowledge)

    @command("XONEASK")
    def _query(self, port: str = "") -> str:
        if port == "DIM":
            return f"{self._spec.ingress_count},{self._spec.egress_count}"
        if port == "WAVESAVAIL":
            return ",".join(f"{nm:.1f}" for nm in _WAVELENGTHS)
        if port == "W":
            return f"{self._wavelength:.1f}"
        if not port.isdigit():
            raise ScpiError(-109, "Missing Parameter")
        ingress = int(port)
        if ingress not in self._spec.ingress_ports:
            raise ScpiError(-222, "Data Out Of Range")
        egress = self._matrix.egress_of.get(ingress)
        return f"{ingress},{egress - self._spec.ingress_count if egress else 0}"


class _Gp600Session(ScpiServerSession):
    """Rewrites `X1 CH 3 5`, `X1 CH 3?` and `X1 DIM?`, which are no SCPI headers, into headers."""

    _partial = b""

    def received(self, data: bytes) -> None:
        """Take bytes; a line end ends a command."""
        *lines, self._partial = (self._partial + data).replace(b"\r", b"\n").split(b"\n")
        super().received(b"".join(self._as_scpi(line) + b"\n" for line in lines if line.strip()))

    @staticmethod
    def _as_scpi(line: bytes) -> bytes:
        fields = line.decode("ascii", "replace").upper().split()
        if fields[:1] != ["X1"]:
            return line
        header = "XONEASK" if fields[-1].endswith("?") else "XONE"
        rest = " ".join(fields[1:]).removesuffix("?").removeprefix("CH ").strip()
        return f"{header} {rest}".encode()
