"""A NIC port's counters as a gate: what they say, and what they do not."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tools.simulated_hosts import SECOND, Pair, served, tools

from lightrig.instruments.clock import Clock, Span, SystemClock
from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.instruments.core.errors import DeniedError
from lightrig.instruments.servers.host.commands import Reading
from lightrig.instruments.servers.ports.port_errors import PortErrors, pattern_errors
from lightrig.instruments.servers.tools.mlxlink import PrbsTest

RATE = 100e9


class ClaimResult:
    """A server's tools that show one set of counters after another, ten seconds apart."""

    def __init__(self, readings: Sequence[dict[str, int]]) -> None:
        self.readings = list(readings)
        self.at = 0

    def counters(self, netdev: str) -> Reading[dict[str, int]]:
        assert netdev == "ens1"
        self.at += 10 * SECOND
        return Reading(self.readings.pop(0), Span(self.at, self.at + 1_000_000))


def counted(fec: Any, *readings: dict[str, int]) -> Any:
    clock = SystemClock()
    port = PortErrors("server0.nic0", ClaimResult(readings), "ens1", fec, RATE, clock)  # type: ignore[arg-type]
    return port.count(duration=0).result()


def lanes(*errors: int) -> dict[str, int]:
    return {f"rx_err_lane_{n}_phy": count for n, count in enumerate(errors)}


FULL = {"rx_bits_phy": 5 * 10**12, "rx_corrected_bits_phy": 70, "rx_pcs_symbol_err_phy": 4}


def test_before_fec_the_raw_errors_of_all_lanes_count() -> None:
    later = {**FULL, "rx_bits_phy": 6 * 10**12, "rx_corrected_bits_phy": 999, **lanes(11, 12)}
    found = counted("before", {**FULL, **lanes(1, 2)}, later)
    assert (found.bits, found.errors, found.void) == (10**12, 20, None)
    assert found.began.earliest < found.ended.earliest


def test_without_lanes_the_corrected_bits_do() -> None:
    found = counted(
        "before", FULL, {**FULL, "rx_bits_phy": 6 * 10**12, "rx_corrected_bits_phy": 99}
    )
    assert (found.bits, found.errors) == (10**12, 29)


def test_after_fec_symbols_count() -> None:
    found = counted("after", FULL, {**FULL, "rx_bits_phy": 6 * 10**12, "rx_pcs_symbol_err_phy": 7})
    assert (found.bits, found.errors) == (10**11, 3)
    port = PortErrors("p", ClaimResult([]), "ens1", "after", RATE, SystemClock())  # type: ignore[arg-type]
    assert port.bits_per_second == RATE / 10


@pytest.mark.parametrize(
    ("later", "reason"),
    [
        ({**FULL, "rx_bits_phy": 10**9}, "were reset"),
        ({**FULL, "rx_bits_phy": 6 * 10**12, "rx_corrected_bits_phy": 5}, "were reset"),
        ({**FULL, "rx_bits_phy": 1 << 64}, "exceeds its width"),
        ({name: count for name, count in FULL.items() if name != "rx_bits_phy"}, "were reset"),
    ],
)
def test_an_impossible_count_is_no_number(later: dict[str, int], reason: str) -> None:
    found = counted("before", FULL, later)
    assert found.void is not None
    assert reason in found.void
    assert (found.bits, found.errors) == (0, 0)


def test_a_link_that_was_down_is_lost_signal() -> None:
    first = {**FULL, "link_down_events_phy": 3}
    assert not counted("before", first, {**first, "rx_bits_phy": 6 * 10**12}).clock_lost
    last = {**FULL, "rx_bits_phy": 6 * 10**12, "link_down_events_phy": 4}
    assert counted("before", first, last).clock_lost


@pytest.mark.parametrize(
    ("fec", "has"), [("before", {"rx_bits_phy": 1}), ("after", {"rx_corrected_bits_phy": 1})]
)
def test_a_driver_that_counts_no_errors_is_refused(fec: Any, has: dict[str, int]) -> None:
    with pytest.raises(DeniedError, match=f"does not count received bits and errors {fec} FEC"):
        counted(fec, has)


# ------------------------------------------------------------------------- over real SSH


@contextmanager
def joined(folder: Path, **described: Any) -> Iterator[tuple[Pair, Clock, list[Any]]]:
    clock = VirtualClock()
    pair = Pair(clock, **described)
    try:
        with served(pair, folder) as commands:
            pair.light(on=True)
            clock.sleep(SECOND)
            yield pair, clock, tools(commands)
    finally:
        clock.close()


def test_simulated_ports_count_what_their_light_makes(tmp_path: Path) -> None:
    with joined(tmp_path, ber=1e-9) as (_, clock, (nic, _argument)):
        port = PortErrors("server0.nic0", nic, "ens1f0", "before", RATE, clock)
        found = port.count(duration=10 * SECOND).result()
        assert found.void is None
        assert found.bits == pytest.approx(1e12, rel=0.01)
        assert found.errors / found.bits == pytest.approx(1e-9, rel=0.2)


def patterns(
    clock: Clock, both: Sequence[Any], body: Callable[[Any, Any], None], *, there: str = "PRBS31"
) -> None:
    with (
        pattern_errors("server0.nic0", both[0], "mlx5_0", "PRBS31", RATE, clock) as here,
        pattern_errors("server1.nic0", both[1], "mlx5_0", there, RATE, clock) as later,
    ):
        body(here, later)


def test_a_pattern_is_counted_and_the_port_given_back(tmp_path: Path) -> None:
    with joined(tmp_path, ber=1e-9) as (_, clock, both):

        def body(here: Any, _: Any) -> None:
            found = here.count(duration=10 * SECOND).result()
            assert not found.sync_lost
            assert found.bits == pytest.approx(1e12, rel=0.01)
            assert found.bits <= RATE * 10.1
            assert found.errors / found.bits == pytest.approx(1e-9, rel=0.2)

        patterns(clock, both, body)
        assert both[0].firmware("mlx5_0").value.prbs is None
        clock.sleep(SECOND)
        assert both[0].link("ens1f0").value.detected


def test_another_pattern_is_not_zero_errors(tmp_path: Path) -> None:
    with joined(tmp_path) as (_, clock, both):

        def body(here: Any, _: Any) -> None:
            found = here.count(duration=SECOND).result()
            assert found.sync_lost
            assert (found.bits, found.errors) == (0, 0)

        patterns(clock, both, body, there="PRBS7")


def test_pattern_without_error_counters_is_void() -> None:
    class Mute:
        def clear(self) -> None:
            pass

        def read(self) -> Reading[PrbsTest]:
            reported = PrbsTest("PRBS31", "PRBS31", None, None, None, (True,), None, None, None)
            return Reading(reported, Span(10 * SECOND, 10 * SECOND))

    from lightrig.instruments.servers.ports.port_errors import PatternErrors

    found = PatternErrors("p", Mute(), RATE, SystemClock()).count(duration=0).now()  # type: ignore[arg-type]
    assert found.void == "it reported no errors"
    assert found.bits == 0
