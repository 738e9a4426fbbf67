"""Answers like a DiCon GP600 with one matrix, X1; knows nothing of any driver.

Guessed: the codes and words of its error queue, and that connecting a port in use moves it.
"""

from collections.abc import Mapping

from instruments.clock import Span
from instruments.simulated.peer_server import PeerConnection, SessionFactory
from instruments.simulated.peers import Surroundings
from instruments.simulated.scpi_peer import (
    ErrorQueue,
    Later,
    ScpiCommands,
    ScpiDialogue,
    ScpiError,
    ScpiRequest,
)
from testbeds import Circuit, SwitchSpec


class DiconGp600Peer:
    """A matrix of ingress 1..N and outputs 1..M; output 0 parts an ingress."""

    def __init__(self, around: Surroundings) -> None:
        assert isinstance(around.spec, SwitchSpec)
        assert around.matrix is not None
        self._around = around
        self._spec = around.spec
        self._matrix = around.matrix
        self._commands = ScpiCommands(
            f"Dicon Fiberoptics Inc, GP600, {around.serial}, 7.0",
            errors=ErrorQueue(form="{code:+d}, {text}"),
            error_query="SYSTem:ERRor?",
        )
        self._commands.add("SYSTem:CONFig?", lambda _: "X1")
        self._commands.add("RESET", lambda _: self._reset())
        self._commands.add("XONE", self._connect)
        self._commands.add("XONEASK", self._ask)

    def wires(self) -> Mapping[str, SessionFactory]:
        """Lines on a raw socket."""
        return {"scpi": self._session}

    def _session(self, connection: PeerConnection, index: int) -> "_Dialogue":
        owner = f"{self._spec.name}#{index:04d}"
        return _Dialogue(connection, self._around.clock, owner, self._commands, end=b"\r\n")

    def _connect(self, request: ScpiRequest) -> Later:
        words = request.arguments[0].split() if request.arguments else []
        if len(words) != 2 or not all(word.isdigit() for word in words):
            raise ScpiError(-109, "Missing Parameter")
        ingress, output = map(int, words)
        if ingress not in self._spec.ingress_ports or output > self._spec.egress_count:
            raise ScpiError(-222, "Data Out Of Range")
        if output == 0:
            after = self._matrix.disconnect([ingress])
        else:
            after = self._matrix.connect([Circuit(ingress, self._spec.ingress_count + output)])
        return Later(after, None, self._acknowledge)

    def _acknowledge(self) -> None:
        now = self._around.clock.now()
        self._around.truth.note(self._spec.name, "acknowledged", up=True, at=Span(now, now))

    def _ask(self, request: ScpiRequest) -> str:
        words = request.arguments[0].split() if request.arguments else []
        if words == ["DIM"]:
            return f"{self._spec.ingress_count},{self._spec.egress_count}"
        if len(words) != 1 or not words[0].isdigit():
            raise ScpiError(-109, "Missing Parameter")
        ingress = int(words[0])
        if ingress not in self._spec.ingress_ports:
            raise ScpiError(-222, "Data Out Of Range")
        egress = self._matrix.egress_of.get(ingress)
        return f"{ingress},{egress - self._spec.ingress_count if egress else 0}"

    def _reset(self) -> None:
        self._matrix.disconnect(list(self._matrix.egress_of))


class _Dialogue(ScpiDialogue):
    """`X1 CH 3 5`, `X1 CH 3?` and `X1 DIM?` are words, not headers: put into SCPI's form."""

    def received(self, data: bytes) -> None:
        """Take bytes; a line end ends a command."""
        *lines, self._rest = (self._rest + data).replace(b"\r", b"\n").split(b"\n")
        whole = b"".join(self._as_scpi(line) + b"\n" for line in lines if line.strip())
        super().received(whole)

    _rest = b""

    @staticmethod
    def _as_scpi(line: bytes) -> bytes:
        words = line.decode("ascii", "replace").upper().split()
        if words[:1] != ["X1"]:
            return line
        asks = words[-1].endswith("?")
        rest = " ".join(words[1:]).removesuffix("?").removeprefix("CH ").strip()
        return f"{'XONEASK' if asks else 'XONE'} {rest}".encode()
