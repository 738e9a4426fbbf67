"""Frame loss and signal quality of NIC ports: ethtool's FEC histogram, the modules' diagnostics."""

import itertools
import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from lightrig.harness.bench import Bench, Fabric
from lightrig.harness.measure.bit_errors.frame_loss import measure_frame_loss
from lightrig.harness.measure.bit_errors.setup import NoCountersError
from lightrig.harness.measure.bring_up import bring_up
from lightrig.harness.measure.links import LinkObservation
from lightrig.harness.measure.recording import Recording
from lightrig.harness.measure.signal_quality import NoDiagnosticsError, measure_signal_quality
from lightrig.harness.record import Row
from lightrig.testbeds import Port

LAB = """
name: pair
switches:
  ocs: {{model: polatis, address: "tl1://ocs.invalid", login: env:LOGIN, size: 4x4}}
servers:
  server[0-1]:
    address: ssh://bench@{{name}}.invalid
    nics:
      nic0: {{netdev: ens1f0, rdma: mlx5_0, rate: {rate}, transceiver: optics}}
transceivers:
  optics:
    wavelength: 1310 nm
    launch: {{min: -4.3 dBm, max: 4.5 dBm}}
    receive: {{min: -10.6 dBm, max: 4.5 dBm}}
fibers:
  - server[0-1].nic0 <-> ocs
plans:
  joined: [server0.nic0 <-> server1.nic0]
simulation:
  nic: {{{nic}}}
"""

QUANTITIES = [
    f"module_signal.{name}"
    for name in ("esnr", "prefec_ber", "prefec_ber_minimum", "prefec_ber_average")
] + ["module_signal.prefec_ber_maximum", "module_signal.host_esnr", "module_signal.host_prefec_ber"]

Measured = Callable[..., list[Row]]


PORTS = [Port("server0", "nic0"), Port("server1", "nic0")]
Measure = Callable[[Bench, Recording, list[Port]], None]


@pytest.fixture
def measured(simulated: Callable[..., Bench]) -> Measured:
    def measure(
        what: Measure, rate: str, ber: float | None = None, nic: str = "fec_histogram: true"
    ) -> list[Row]:
        bench = simulated(LAB.format(rate=rate, nic=nic), 3)
        fabric, links, rows = Fabric(bench), LinkObservation(bench), list[Row]()
        if ber is not None:
            assert bench.world is not None
            for port in bench.world.roster.values():
                port.spec = replace(port.spec, ber=ber)
        bring_up(fabric, links, bench.testbed.plans["joined"])
        what(bench, Recording(rows.extend, {}), PORTS)
        return rows

    return measure


@pytest.mark.parametrize(
    ("rate", "ber", "code", "least"),
    [("100G", 1e-7, 528, 1e-30), ("400G", 1e-4, 544, 1e-18), ("400G", 2.4e-4, 544, 1e-12)],
)
def test_the_bound_holds_the_true_ratio_of_each_port(measured, rate, ber, code, least):
    rows = measured(measure_frame_loss, rate, ber)
    losses = [row for row in rows if row.quantity == "frame_loss_ratio"]
    assert [row.subject for row in losses] == ["server0.nic0", "server1.nic0"]
    for row in losses:
        assert row.conditions["symbols"] == code
        # Half a minute of code words without a loss bounds the ratio at 2e-9 without the tail.
        assert row.lower <= row.value <= row.upper < max(1e3 * least, 1e-12) or ber > 2e-4
        assert row.upper < 1e-8
    closed = [row for row in rows if row.quantity == "closure.frame_loss_ratio"]
    assert [row.value for row in closed] == [1.0, 1.0]


def test_a_driver_without_histogram_is_named(measured):
    with pytest.raises(NoCountersError, match=re.escape("server0.nic0: its driver has no histog")):
        measured(measure_frame_loss, "100G", nic="driver: ice")


def test_modules_of_400g_tell_signal_to_noise_and_bit_errors_of_each_lane(measured):
    rows = measured(measure_signal_quality, "400G", 1e-6)
    lanes = {f"{port}.lane{number}" for port in PORTS for number in range(1, 9)}
    by_quantity = {name: [row for row in rows if row.quantity == name] for name in QUANTITIES}
    assert all({row.subject for row in found} == lanes for found in by_quantity.values())
    for row in by_quantity["module_signal.esnr"]:
        assert row.lower < 20.422 < row.upper  # of which 3/8 erfc(sqrt(SNR / 10)) is 1e-6
    least, mean, greatest, now = (
        by_quantity[f"module_signal.prefec_ber{suffix}"]
        for suffix in ("_minimum", "_average", "_maximum", "")
    )
    for low, middle, high, latest in zip(least, mean, greatest, now, strict=True):
        assert low.value < middle.value < high.value
        assert middle.lower < 1e-6 < middle.upper
        assert latest.value == pytest.approx(1e-6, rel=0.3)


def test_modules_of_100g_are_named_as_without_diagnostics(measured):
    with pytest.raises(NoDiagnosticsError, match="its transceiver has no CMIS diagnostics"):
        measured(measure_signal_quality, "100G")


def test_no_count_of_a_histogram_falls_where_nearly_every_code_word_has_errors(
    measured: Measured,
) -> None:
    """At one wrong bit in 500 a word of 5,280 bits has ten or so: of 24,000 words none is clean."""
    counts: list[list[int]] = []

    def read(bench: Bench, recording: Recording, ports: list[Port]) -> None:
        assert bench.world is not None
        port = bench.world.roster[ports[0]]
        for _ in range(40):
            port.accrue()
            clean = port.codewords - port.corrected_blocks - port.uncorrectable_blocks
            counts.append([clean, port.uncorrectable_blocks, *port.symbol_error_counts])
            bench.clock.sleep(1_270_000)

    measured(read, "100G", 2e-3)
    falls = [
        (before, after)
        for before, after in itertools.pairwise(counts)
        if any(b < a for a, b in zip(before, after, strict=True))
    ]
    assert falls == []
    assert counts[-1][1] > counts[0][1] > 0
