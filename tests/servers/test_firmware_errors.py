"""Bit errors by a NIC's firmware, between two readings."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from test_port_errors import joined

from lightrig.instruments.clock import Span, SystemClock
from lightrig.instruments.core.errors import DeniedError
from lightrig.instruments.servers.host.commands import Reading
from lightrig.instruments.servers.ports.firmware_errors import FirmwareErrors
from lightrig.instruments.servers.tools.mlxlink import BitErrors, LinkReport, MlxlinkReport

SECOND = 1_000_000_000
RATE = 100e9
ERRORS = BitErrors(
    since_clear_ns=600 * SECOND,
    raw_errors=(10, 20),
    raw_ber=None,
    raw_ber_by_lane=None,
    effective_errors=3,
    effective_ber=None,
    symbol_errors=None,
    symbol_ber=None,
    link_down_count=1,
    link_recovery_count=None,
)
UP = LinkReport("Active", "LinkUp", "100G", 10**11, 2, "RS", None, "ON")


def report(errors: BitErrors | None, link: LinkReport = UP) -> MlxlinkReport:
    return MlxlinkReport({}, link, None, errors, None)


class ClaimResult:
    """Firmware that tells one thing after another, thirty seconds apart."""

    def __init__(self, reports: Sequence[MlxlinkReport]) -> None:
        self.reports = list(reports)
        self.at = 0

    def firmware(self, device: str) -> Reading[MlxlinkReport]:
        assert device == "mlx5_0"
        self.at += 30 * SECOND
        return Reading(self.reports.pop(0), Span(self.at, self.at + SECOND))


def counted(fec: Any, *reports: MlxlinkReport) -> Any:
    errors: Any = ClaimResult(reports)
    port = FirmwareErrors("server0.nic0", errors, "mlx5_0", fec, RATE, SystemClock())
    return port.count(duration=0).result()


@pytest.mark.parametrize(("fec", "errors"), [("before", 7), ("after", 2)])
def test_errors_grow_and_the_fewest_bits_count(fec: Any, errors: int) -> None:
    later = replace(ERRORS, raw_errors=(12, 25), effective_errors=5)
    found = counted(fec, report(ERRORS), report(later))
    assert (found.errors, found.void, found.clock_lost) == (errors, None, False)
    assert found.bits == pytest.approx(29 * RATE)


@pytest.mark.parametrize(
    "later",
    [
        replace(ERRORS, raw_errors=(1, 2)),
        replace(ERRORS, raw_errors=(90, 90), since_clear_ns=SECOND),
    ],
    ids=["fell", "cleared"],
)
def test_reset_counters_void_the_count(later: BitErrors) -> None:
    found = counted("before", report(ERRORS), report(later))
    assert found.void is not None
    assert "were reset" in found.void
    assert (found.bits, found.errors) == (0, 0)


@pytest.mark.parametrize(
    "later",
    [report(replace(ERRORS, link_down_count=2)), report(ERRORS, replace(UP, state="Polling"))],
    ids=["was down", "is down"],
)
def test_a_link_that_was_down_lost_its_signal(later: MlxlinkReport) -> None:
    assert counted("before", report(ERRORS), later).clock_lost


@pytest.mark.parametrize(
    "first",
    [
        report(None),
        report(replace(ERRORS, raw_errors=None)),
        report(ERRORS, replace(UP, state="Disable")),
    ],
)
def test_firmware_without_error_counters_is_refused(first: MlxlinkReport) -> None:
    with pytest.raises(DeniedError, match="reports no errors before FEC"):
        counted("before", first)


def test_simulated_firmware_counts_what_light_makes(tmp_path: Any) -> None:
    with joined(tmp_path, ber=1e-9) as (_, clock, (nic, _argument)):
        port = FirmwareErrors("server0.nic0", nic, "mlx5_0", "before", RATE, clock)
        found = port.count(duration=10 * SECOND).result()
        assert found.void is None
        assert found.errors / found.bits == pytest.approx(1e-9, rel=0.2)
