"""Thorlabs OSW12 (1x2) and OSW22 (2x2) MEMS switches on USB."""

from collections.abc import Mapping

from lightrig.instruments.core.instrument import Option, from_milliseconds, line_speed
from lightrig.instruments.core.position_switch import TextPositionSwitch
from lightrig.instruments.core.wire_facts import WireFact
from lightrig.instruments.wire.session import Resync
from lightrig.testbeds import Circuit

_BAR = frozenset({Circuit(1, 3), Circuit(2, 4)})
_CROSS = frozenset({Circuit(1, 4), Circuit(2, 3)})


class ThorlabsOsw(TextPositionSwitch):
    """A switch without a dark position. Serial line at 115200 8N1, RTS/CTS.

    A 1x2 is ingress 1, egress 2 and 3; a 2x2 is bar or cross: ingress 1 and 2, egress 3 and 4.
    It does not acknowledge: a move is done when it has had `settling` and then reports its
    position.

    Source: as two independent programs speak to it.
    """

    schemes = ("serial",)
    sizes = "1x2, 2x2"
    wire_facts = (
        WireFact("`S`, `S?`, speed of the line", "qudi, two independent drivers"),
        WireFact("format of the `ID?` reply"),
        WireFact("settling within 1 ms (option)", "qudi, default of its switch time"),
    )
    baud = line_speed(115_200)
    rts_cts = True
    command_end = "\n"
    resync = Resync(question=b"ID?\n", recognises=lambda message: b"OSW" in message)
    dark_position = None
    settling = Option(
        from_milliseconds,
        1_000_000,
        "from the command until the light has settled, in ns",
        key="settling_ms",
    )
    identity_query = "ID?"
    identity_reply = (
        r"(?P<manufacturer>\S+)\s+(?P<model>\S+)(\s+(?P<serial>\S+)(\s+(?P<firmware>\S+).*)?)?"
    )
    position_query = "S?"
    position_reply = "([12])"
    move_command = "S {position}"

    def _list_positions(self) -> Mapping[int, frozenset[Circuit]]:
        if self.inputs == 2:
            return {1: _BAR, 2: _CROSS}
        return {1: frozenset({Circuit(1, 2)}), 2: frozenset({Circuit(1, 3)})}
