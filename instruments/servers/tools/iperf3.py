"""`iperf3 --json` and `--json-stream`: what flowed between two hosts, second by second.

A failed run prints an object with `error`, and ends with status 0 on versions that were tried.
Source: samples of iperf 3.0.11 and 3.12; the stream's events (3.17) by their documentation.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from instruments.servers.tools.output import (
    ToolOutputError,
    ToolReportedError,
    field,
    load,
    optional,
)

TOOL = "iperf3"

_REPEATED = frozenset({"sock_bufsize", "sndbuf_actual", "rcvbuf_actual"})
"""Keys that 3.12 prints once for each stream."""

_RATE_TOLERANCE = 2e-3
"""A rate may be of the sender's time where the bytes are of the receiver's, a little longer."""


@dataclass(frozen=True, slots=True)
class Flow:
    """What was counted in one direction over a time.

    Attributes:
        start_ns: since the test began.
        retransmits: TCP segments sent again; None where the sender does not say.
        packets: UDP datagrams that should have arrived.
        jitter_ns: UDP, as RFC 1889 smooths it.
        omitted: it lies in the warm-up that was asked to be left out.
    """

    start_ns: int
    end_ns: int
    bytes: int
    bps: float
    retransmits: int | None = None
    packets: int | None = None
    lost_packets: int | None = None
    jitter_ns: float | None = None
    omitted: bool = False


@dataclass(frozen=True, slots=True)
class Iperf3Report:
    """One run.

    Attributes:
        streams: how many flowed side by side.
        reverse: the server was the sender.
        sent: over the whole test, all streams, as the sender counted.
        received: the same as the receiver counted; None for a run that it did not answer.
        intervals: all streams, one a second unless asked otherwise.
        sent_back: the other direction of a run with --bidir.
        received_back: the same as its receiver counted.
    """

    version: str
    protocol: str
    streams: int
    reverse: bool
    sent: Flow
    received: Flow | None
    intervals: tuple[Flow, ...]
    sent_back: Flow | None = None
    received_back: Flow | None = None


def parse(text: str) -> Iperf3Report:
    """Read what iperf3 printed.

    Raises:
        ToolReportedError: iperf3 says that the run failed.
        ToolOutputError: it printed something else, or contradicts itself: a rate against its
            bytes and time, a sum against its streams, a loss against its packets.
    """
    document = _document(text)
    if "error" in document:
        raise ToolReportedError(TOOL, "a run", document["error"])
    start = field(TOOL, document, "start", dict)
    setup = field(TOOL, start, "test_start", dict)
    end = field(TOOL, document, "end", dict)
    intervals = field(TOOL, document, "intervals", list)
    streams = field(TOOL, setup, "num_streams", int)
    ended = field(TOOL, end, "streams", list)
    sent = _flow(field(TOOL, end, _first(end, "sum_sent", "sum"), dict))
    received = optional(TOOL, end, "sum_received", dict)
    sent_back = _optional_flow(end, "sum_sent_bidir_reverse")
    _check_sum([sent, sent_back], [_sender(each) for each in ended])
    return Iperf3Report(
        version=field(TOOL, start, "version", str),
        protocol=field(TOOL, setup, "protocol", str),
        streams=streams,
        reverse=bool(field(TOOL, setup, "reverse", int)),
        sent=sent,
        received=None if received is None else _flow(received),
        intervals=tuple(map(_interval, intervals)),
        sent_back=sent_back,
        received_back=_optional_flow(end, "sum_received_bidir_reverse"),
    )


def _document(text: str) -> dict[str, Any]:
    first, _, rest = text.strip().partition("\n")
    if first.startswith('{"event"') or (first.startswith("{") and '"event"' in first and rest):
        return _of_events(text)
    document = load(TOOL, text, ignored_repeats=_REPEATED)
    if not isinstance(document, dict):
        raise ToolOutputError(TOOL, "an object", type(document).__name__)
    return document


def _of_events(text: str) -> dict[str, Any]:
    """The object that the events of --json-stream, one a line, amount to."""
    document: dict[str, Any] = {"intervals": []}
    for line in text.splitlines():
        if not line.strip():
            continue
        told = load(TOOL, line, ignored_repeats=_REPEATED)
        event = field(TOOL, told, "event", str)
        if event == "interval":
            document["intervals"].append(field(TOOL, told, "data", dict))
        elif event in document:
            raise ToolOutputError(TOOL, f"one event {event!r}", line)
        else:
            document[event] = field(TOOL, told, "data", (dict, str))
    return document


def _first(mapping: object, *keys: str) -> str:
    told = mapping if isinstance(mapping, Mapping) else {}
    return next((key for key in keys if key in told), keys[0])


def _sender(stream: Any) -> Flow:
    """A stream as its sender counted it; UDP has one object for both."""
    return _flow(field(TOOL, stream, _first(stream, "sender", "udp"), dict))


def _interval(told: Any) -> Flow:
    total = _flow(field(TOOL, told, "sum", dict))
    back = _optional_flow(told, "sum_bidir_reverse")
    _check_sum([total, back], [_flow(each) for each in field(TOOL, told, "streams", list)])
    return total


def _optional_flow(end: Any, key: str) -> Flow | None:
    told = optional(TOOL, end, key, dict)
    return None if told is None else _flow(told)


def _check_sum(totals: list[Flow | None], parts: list[Flow]) -> None:
    """The totals of both directions are those of all streams."""
    total = sum(each.bytes for each in totals if each is not None)
    if parts and sum(part.bytes for part in parts) != total:
        told = " + ".join(str(part.bytes) for part in parts)
        raise ToolOutputError(TOOL, f"streams that add up to {total} bytes", told)


def _flow(told: Any) -> Flow:
    start, end, rate = (
        float(field(TOOL, told, key, (int, float))) for key in ("start", "end", "bits_per_second")
    )
    size = field(TOOL, told, "bytes", int)
    packets, lost = (optional(TOOL, told, key, int) for key in ("packets", "lost_packets"))
    flow = Flow(
        round(start * 1e9),
        round(end * 1e9),
        size,
        rate,
        optional(TOOL, told, "retransmits", int),
        packets,
        lost,
        _ns_of_ms(optional(TOOL, told, "jitter_ms", (int, float))),
        bool(optional(TOOL, told, "omitted", bool)),
    )
    if start < 0 or end < start or min(size, rate, packets or 0, lost or 0) < 0:
        raise ToolOutputError(TOOL, "counts and times from 0", told)
    counted = 8 * size / (end - start) if end > start else rate
    if abs(counted - rate) > _RATE_TOLERANCE * max(counted, rate):
        raise ToolOutputError(TOOL, "a rate of its bytes by its time", told)
    _check_loss(told, packets, lost)
    return flow


def _check_loss(told: Any, packets: int | None, lost: int | None) -> None:
    percent = optional(TOOL, told, "lost_percent", (int, float))
    if percent is None or packets is None or lost is None:
        return
    if lost > packets or (packets and abs(100 * lost / packets - percent) > 0.01):
        raise ToolOutputError(TOOL, "a loss of lost by all packets", told)


def _ns_of_ms(value: float | None) -> float | None:
    return None if value is None else value * 1e6
