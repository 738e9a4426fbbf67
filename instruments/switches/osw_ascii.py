"""1xN switch modules that speak `<OSW_...>`, as Lfiber and others sell them."""

from lightrig.instruments.core.position_switch import TextPositionSwitch
from lightrig.instruments.core.wire_facts import WireFact
from lightrig.instruments.wire.framing import Bracketed
from lightrig.instruments.wire.session import Resync


class OswAscii(TextPositionSwitch):
    """Ingress 1, egress 2..N+1; output 0 is dark. Serial line at 9600 8N1.

    Source: as two independent programs speak to it, one of which cites the manual. The type
    reply names no serial number: its last field is taken for one.
    """

    schemes = ("serial",)
    wire_facts = (
        WireFact("frames and replies", "two independent programs, one of which cites the manual"),
        WireFact("that the last field of the type is a serial number"),
    )
    command_end = ""
    framing = Bracketed()
    resync = Resync(
        question=b"<OSW_TYPE_?>", recognises=lambda message: message.startswith(b"<OSW_TYPE_")
    )
    identity_query = "<OSW_TYPE_?>"
    identity_reply = r"<OSW_TYPE_(?P<manufacturer>[A-Z]+)-(?P<model>.*?(?P<serial>SIM-.*|[^-]*))>"
    position_query = "<OSW_OUT_?>"
    position_reply = r"<OSW_OUT_(\d\d)>"
    move_command = "<OSW_OUT_{position:02d}>"
    move_reply = "<OSW_OUT_OK>"
    move_timeout = 2_000_000_000
    denial = "<OSW_OUT_(?P<code>OVERFLOW)>"
    denial_text = "there is no such output"
