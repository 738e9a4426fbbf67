"""DiCon 1xN MEMS switch modules on a serial line."""

from lightrig.instruments.core.instrument import line_speed
from lightrig.instruments.core.position_switch import TextPositionSwitch
from lightrig.instruments.core.wire_facts import WireFact
from lightrig.instruments.wire.session import Resync


class DiconMems(TextPositionSwitch):
    """Ingress 1, egress 2..N+1; parked it is dark. Serial line at 115200 8N1.

    The module answers a move with an empty line only, so every move is followed by the position
    query in the same write: its reply acknowledges the move.

    Source: as two independent programs speak to it.
    """

    schemes = ("serial",)
    wire_facts = (
        WireFact("commands and echo", "photonmover and instrumental, independent drivers"),
        WireFact("format of the `ID?` reply"),
        WireFact("that a parked module reports position 0"),
    )
    baud = line_speed(115_200)
    command_end = "\r"
    resync = Resync(question=b"ID?\r", recognises=lambda message: b"," in message)
    identity_query = "ID?"
    identity_reply = (
        r"\s*(?P<manufacturer>[^ ,]*) (?P<model>[^,]+?)\s*,\s*(?P<serial>[^,]*?)\s*"
        r",\s*(?P<firmware>[^,]*?)\s*(,.*)?"
    )
    position_query = "I1?"
    position_reply = r"([0-9]+)"
    move_command = "I1 {position}"
    dark_command = "PK"
    move_query = "I1?"
    move_reply = r"[0-9]+"
    denial = r"(?P<code>\?)"
    denial_text = "it does not know this command, or has no such output"
