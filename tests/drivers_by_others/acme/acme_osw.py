"""Acme OSW: switches one fiber to one of N, selected by channel over a serial line."""

from lightrig.drivers import Resync, TextPositionSwitch


class AcmeOsw(TextPositionSwitch):
    """Ingress 1, egress 2..N+1; at channel 0 it is dark.

    Source: Acme OSW user manual, 3rd edition.
    """

    schemes = ("serial",)
    resync = Resync(question=b"ID?\r\n", recognises=lambda reply: reply.startswith(b"ACME "))
    identity_query = "ID?"
    identity_reply = r"(?P<manufacturer>\S+) (?P<model>\S+) (?P<serial>\S+) (?P<firmware>\S+)"
    position_query = "CH?"
    position_reply = r"CH (\d{1,3})"
    move_command = "CH {position}"
    move_reply = "OK"
    move_timeout = 2_000_000_000
    denial = r"ERR (?P<code>\d+) (?P<text>.+)"
