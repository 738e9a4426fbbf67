"""Signal quality of NIC ports by their transceivers: signal to noise and bit errors before FEC."""

from collections.abc import Iterable, Iterator

from lightrig.harness.bench import Bench
from lightrig.harness.measure.recording import Recording
from lightrig.harness.record import Row, Scalar
from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import Diagnostic, HasModuleDiagnostics
from lightrig.instruments.core.errors import DeniedError
from lightrig.testbeds import LightrigError, Port

FAMILY = "module_signal"

_UNITS = {
    "laser_age": "share",
    "tec_current": "share",
    "laser_temperature": "°C",
    "esnr": "dB",
    "pam4_level_transition": "dB",
    "prefec_ber": "1",
    "errored_frames": "1",
    "errored_frames_total": "1",
}
_SIGNED = frozenset(("tec_current", "laser_temperature"))
_SIDES = {"media": "", "host": "host_"}


class NoDiagnosticsError(LightrigError):
    """Raised when no transceiver of the ports measures the quality of its signals."""


def measure_signal_quality(bench: Bench, recording: Recording, ports: Iterable[Port]) -> None:
    """Record what the transceivers of NIC ports measure of each lane, once.

    The interval of a value is half its last digit to both sides: CMIS states no uncertainty.
    Ports without are left out. Raises `NoDiagnosticsError` where all are.
    """
    event, found, reasons = recording.next_event(), False, list[str]()
    for port in ports:
        server, spec = bench.servers[port.owner], bench.testbed.nic_port(port)
        if not isinstance(server, HasModuleDiagnostics):
            reasons.append(f"{port.owner} cannot read its transceivers")
            continue
        try:
            diagnostics, at = server.module_diagnostics(str(port), spec.netdev)
        except DeniedError as error:
            reasons.append(f"{port}: {error.text}")
            continue
        rows = [row for one in diagnostics for row in diagnostic_rows(port, one, at, event)]
        recording.record(rows)
        found = found or bool(rows)
        if not rows:
            reasons.append(f"{port}: its transceiver has no CMIS diagnostics (VDM)")
    if not found:
        raise NoDiagnosticsError("; ".join(reasons) or "no NIC port was given")


def diagnostic_rows(port: Port, one: Diagnostic, at: Span, event: int) -> Iterator[Row]:
    """Return the rows of one diagnostic of a port; none of a name or a side that is not known."""
    if one.name not in _UNITS or one.side not in _SIDES:
        return
    quantity = f"{FAMILY}.{_SIDES[one.side]}{one.name}"
    subject = str(port) if one.lane is None else f"{port}.lane{one.lane}"
    half = one.resolution / 2
    for suffix, value in (
        ("", one.current),
        ("_minimum", one.minimum),
        ("_average", one.average),
        ("_maximum", one.maximum),
    ):
        if value is not None:
            low = value - half if one.name in _SIGNED else max(value - half, 0.0)
            high = value + half
            conditions = {"event": event}
            unit = _UNITS[one.name]
            yield Row(subject, quantity + suffix, value, low, high, unit, at.earliest, conditions)
    for flag in sorted(one.flags):
        stated: dict[str, Scalar] = {"event": event, "flag": f"{one.name}: {flag}"}
        yield Row(subject, f"{FAMILY}.flag", 1, 1, 1, "1", at.earliest, stated)
