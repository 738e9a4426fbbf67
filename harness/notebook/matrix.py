"""The circuits of a switch as a matrix for a notebook."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup

from lightrig.testbeds import Circuit, Testbed


class CircuitMatrix(frozenset[Circuit]):
    """Circuits of one switch; a notebook shows them as a matrix, ingress by egress.

    Attributes:
        switch: its name.
        ingress, egress: its ports.
        cabled: those of its ports that the testbed cables, of both sides.
    """

    switch: str
    ingress: range
    egress: range
    cabled: tuple[frozenset[int], frozenset[int]]

    @classmethod
    def of(cls, switch: str, circuits: Iterable[Circuit], testbed: Testbed) -> CircuitMatrix:
        """Return the circuits of a switch of `testbed`."""
        found, spec = cls(circuits), testbed.switches[switch]
        found.switch, found.ingress, found.egress = switch, spec.ingress_ports, spec.egress_ports
        found.cabled = testbed.cabling.cabled_ports(switch)
        return found

    def __repr__(self) -> str:
        listed = ", ".join(str(circuit) for circuit in sorted(self)) or "no circuits"
        return f"{self.switch}: {listed}"

    def _repr_html_(self) -> str:
        ingress, egress = self.cabled
        head = "".join(f"<th>{_port(n, n in egress)}</th>" for n in self.egress)
        rows = "".join(
            f"<tr><th>{_port(i, i in ingress)}</th>"
            + "".join(f"<td>{'●' if Circuit(i, e) in self else '·'}</td>" for e in self.egress)
            + "</tr>"
            for i in self.ingress
        )
        caption = Markup("{}: ingress down, egress across; ports of others in parentheses")
        return (
            f"<table><caption>{caption.format(self.switch)}</caption>"
            f"<tr><td></td>{head}</tr>{rows}</table>"
        )


def _port(number: int, ours: bool) -> str:
    return str(number) if ours else f"({number})"
