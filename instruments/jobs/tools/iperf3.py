"""`iperf3 --json`: throughput of TCP and UDP, as its client or its server reports it.

An end reports what it counted itself; a client also gets the server's counts, a server nothing
from its client: it prints zeros in their place. Source: outputs of iperf 3.0 to 3.18.
"""

from dataclasses import dataclass
from typing import Any, Literal

from lightrig.instruments.servers.tools.output import (
    ToolOutputError,
    ToolReportedError,
    field,
    load,
    optional,
)

TOOL = "iperf3"
_NUMBER = (int, float)
_OF_TWO_ENDS = ("sum_sent", "sum_received")
_OF_EACH_STREAM = frozenset({"sock_bufsize", "sndbuf_actual", "rcvbuf_actual"})


@dataclass(frozen=True, slots=True)
class Iperf3Flow:
    """One direction; None for what the reporting end does not know.

    Attributes:
        sent_bps: bit/s that the sender counted.
        received_bps: bit/s that the receiver counted.
        retransmits: TCP segments sent again.
        packets, lost_packets: datagrams of UDP sent, and those that did not arrive.
        jitter_ms: of UDP, as in RFC 1889.
    """

    sent_bps: float | None
    received_bps: float | None
    retransmits: int | None = None
    packets: int | None = None
    lost_packets: int | None = None
    jitter_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Iperf3Report:
    """One test. `forward` is from client to server; None with --reverse."""

    version: str
    reporter: Literal["client", "server"]
    protocol: str
    streams: int
    forward: Iperf3Flow | None
    reverse: Iperf3Flow | None


def parse(text: str) -> Iperf3Report:
    """Read one JSON document.

    Raises:
        ToolReportedError: iperf3 reports an error.
        ToolOutputError: it is something else, a count contradicts its rate, or it is a server's
            report of both directions, whose sums no source explains.
    """
    document = load(TOOL, text, ignored_repeats=_OF_EACH_STREAM)
    if error := optional(TOOL, document, "error", str):
        raise ToolReportedError(TOOL, "a test that succeeded", error)
    start, end = field(TOOL, document, "start", dict), field(TOOL, document, "end", dict)
    test = field(TOOL, start, "test_start", dict)
    accepted, connecting = "accepted_connection" in start, "connecting_to" in start
    if accepted == connecting:
        raise ToolOutputError(TOOL, "`connecting_to` of a client or `accepted_connection`")
    both = "sum_sent_bidir_reverse" in end
    if both and accepted:
        raise ToolOutputError(TOOL, "a client's report of a test in both directions")
    is_reverse = bool(optional(TOOL, test, "reverse", int))
    first = _flow(end, "", known="received" if is_reverse < accepted else "both")
    if is_reverse and accepted:
        first = _flow(end, "", known="sent")
    second = _flow(end, "_bidir_reverse", known="both") if both else None
    return Iperf3Report(
        field(TOOL, start, "version", str),
        "server" if accepted else "client",
        field(TOOL, test, "protocol", str),
        field(TOOL, test, "num_streams", int),
        None if is_reverse else first,
        first if is_reverse else second,
    )


def _flow(end: dict[str, Any], suffix: str, *, known: str) -> Iperf3Flow:
    sent = optional(TOOL, end, f"sum_sent{suffix}", dict)
    received = optional(TOOL, end, f"sum_received{suffix}", dict)
    datagrams = optional(TOOL, end, f"sum{suffix}", dict)
    if datagrams is not None and not any(name.startswith(_OF_TWO_ENDS) for name in end):
        # UDP before 3.11 (esnet/iperf, pull request 1174): one sum, of the end that reports.
        sent, received = (None, datagrams) if known == "received" else (datagrams, None)
    if sent is received is None:
        raise ToolOutputError(TOOL, "`sum_sent` and `sum_received`", ", ".join(end))
    if known == "received":
        sent = None
    if known == "sent":
        received = None
    losses = (received or sent) if datagrams is not None else None
    packets = optional(TOOL, losses, "packets", int) if losses else None
    lost = optional(TOOL, losses, "lost_packets", int) if losses else None
    if lost is not None and (packets is None or not 0 <= lost <= packets):
        raise ToolOutputError(TOOL, "at most as many packets lost as sent", f"{lost} of {packets}")
    return Iperf3Flow(
        _rate(sent),
        _rate(received),
        optional(TOOL, sent, "retransmits", int) if sent else None,
        packets,
        lost,
        optional(TOOL, losses, "jitter_ms", _NUMBER) if losses else None,
    )


def _rate(total: dict[str, Any] | None) -> float | None:
    """Return the rate of a sum, which must be its bytes over its seconds."""
    if total is None:
        return None
    rate = float(field(TOOL, total, "bits_per_second", _NUMBER))
    counted, seconds = (field(TOOL, total, key, _NUMBER) for key in ("bytes", "seconds"))
    if seconds <= 0 or abs(rate * seconds - 8 * counted) > 1e-2 * 8 * counted:
        raise ToolOutputError(TOOL, "bits_per_second that agree with bytes and seconds", total)
    return rate
