"""Fixtures that measure: each is a function of `harness.measure`, bound to the open testbed.

They put their rows into the recording of the test, which `measure` judges.
"""

# Projects without a testbed load this file too: `bound` loads what a test asks for.
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from lightrig.harness.measure.bound import bound
from lightrig.harness.plugin.keys import RUN

if TYPE_CHECKING:
    from lightrig.harness.bench import Bench, Fabric
    from lightrig.harness.findings import Finding
    from lightrig.harness.measure.bit_errors.counting import BitErrors
    from lightrig.harness.measure.insertion_loss.end_to_end import PathLosses
    from lightrig.harness.measure.links import LinkObservation
    from lightrig.harness.measure.loss_windows import LossWindow
    from lightrig.harness.measure.measured import Measured
    from lightrig.harness.measure.port_counters import PortCounters
    from lightrig.harness.measure.recording import Recording
    from lightrig.harness.measure.relock_turns import RelockTurns
    from lightrig.harness.measure.stages import Reconfiguration
    from lightrig.testbeds import Link, Plan


@pytest.fixture
def bring_up(fabric: Fabric, links: LinkObservation) -> Callable[..., frozenset[Link]]:
    """`bring_up(plan)`: apply a plan and wait until its links carry traffic; return them.

    `partly=True` goes on with those that there are; see `measure.bring_up`.
    """
    return bound("bring_up", fabric, links)


@pytest.fixture
def measure_reconfiguration(
    fabric: Fabric, links: LinkObservation, measure: Recording
) -> Callable[..., Reconfiguration]:
    """`measure_reconfiguration(plan)`: apply a plan and record every stage."""
    return bound("measure_reconfiguration", fabric, links, measure)


@pytest.fixture
def measure_outage(
    fabric: Fabric, links: LinkObservation, measure: Recording
) -> Callable[..., list[LossWindow]]:
    """`measure_outage(plan)`: the same, with the interruption of each link direction."""
    return bound("measure_outage", fabric, links, measure)


@pytest.fixture
def measure_power(bench: Bench, measure: Recording) -> Callable[..., Measured]:
    """`measure_power(subject)`: mean power at a port or channel."""
    return bound("measure_power", bench, measure)


@pytest.fixture
def measure_insertion_loss(
    fabric: Fabric, measure: Recording
) -> Callable[..., list[Finding] | Measured]:
    """`measure_insertion_loss()`: every measurable circuit; returns the faults found."""
    return bound("measure_insertion_loss", fabric, measure)


@pytest.fixture
def measure_path_losses(fabric: Fabric, measure: Recording) -> Callable[[Plan], PathLosses]:
    """`measure_path_losses(plan)`: loss from transceiver to transceiver, through all switches."""
    return bound("measure_path_losses", fabric, measure)


@pytest.fixture
def measure_fiber_losses(fabric: Fabric, measure: Recording) -> Callable[[], None]:
    """`measure_fiber_losses()`: from each NIC's transceiver to the switch's monitors, and back."""
    return bound("measure_fiber_losses", fabric, measure)


@pytest.fixture
def measure_path_changes(fabric: Fabric, measure: Recording) -> Callable[..., None]:
    """`measure_path_changes(meter, plans, session, count)`: switching time by a meter's log."""
    return bound("measure_path_changes", fabric, measure)


@pytest.fixture
def measure_switching(fabric: Fabric, measure: Recording) -> Callable[..., None]:
    """`measure_switching(oscilloscope, plans, count)`: rise, fall, settling, repeatability."""
    return bound("measure_switching", fabric, measure)


@pytest.fixture
def measure_switch_optics(fabric: Fabric, measure: Recording) -> Callable[[str], None]:
    """`measure_switch_optics(quantity)`: by polarization, by wavelength, or crosstalk."""
    return bound("measure_switch_optics", fabric, measure)


@pytest.fixture
def measure_telemetry(bench: Bench, measure: Recording) -> Callable[..., None]:
    """`measure_telemetry(modules)`: power and temperature of the transceivers of switches."""
    return bound("measure_telemetry", bench.clock, measure)


@pytest.fixture
def hold_temperature(bench: Bench, measure: Recording) -> Callable[..., None]:
    """`hold_temperature(chamber, celsius)`: a condition of all later rows of the test."""
    return bound("hold_temperature", bench.clock, measure)


@pytest.fixture
def bit_error_counter(fabric: Fabric, measure: Recording) -> Callable[..., BitErrors]:
    """`bit_error_counter(tester, attenuator)`: lead a tester's light back to it, to be counted."""
    return bound("bit_error_counter", fabric, measure)


@pytest.fixture
def measure_port_errors(bench: Bench, measure: Recording) -> Callable[..., list[str]]:
    """`measure_port_errors(ports, fec)`: by counters of NIC ports; returns the quantities."""
    return bound("measure_port_errors", bench, measure)


@pytest.fixture
def measure_frame_loss(bench: Bench, measure: Recording) -> Callable[..., None]:
    """`measure_frame_loss(ports)`: bounded by the FEC histograms of NIC ports."""
    return bound("measure_frame_loss", bench, measure)


@pytest.fixture
def measure_signal_quality(bench: Bench, measure: Recording) -> Callable[..., None]:
    """`measure_signal_quality(ports)`: what the transceivers of NIC ports measure of each lane."""
    return bound("measure_signal_quality", bench, measure)


@pytest.fixture
def measure_errors_around(
    fabric: Fabric, links: LinkObservation, measure: Recording
) -> Callable[..., list[str]]:
    """`measure_errors_around(plan, ports)`: before FEC, before and after a change of circuits."""
    return bound("measure_errors_around", fabric, links, measure)


@pytest.fixture
def measure_pattern_errors(bench: Bench, measure: Recording) -> Callable[..., None]:
    """`measure_pattern_errors(links)`: NIC ports send each other a test pattern."""
    return bound("measure_pattern_errors", bench, measure)


@pytest.fixture
def soak(
    fabric: Fabric,
    links: LinkObservation,
    measure: Recording,
    lightrig_port_counters: PortCounters,
    pytestconfig: pytest.Config,
) -> Callable[[], None]:
    """`soak()`: hold the testbed's plans in turn for `--soak`, and record what links do."""
    from lightrig.harness.measure.soak import Soak  # noqa: PLC0415
    from lightrig.harness.plugin.soaks import EARLIER  # noqa: PLC0415

    earlier = pytestconfig.stash[EARLIER].get(fabric.testbed.name)
    length = pytestconfig.getoption("soak")
    return Soak(fabric, links, measure, lightrig_port_counters, length, earlier).run


@pytest.fixture
def relock(
    fabric: Fabric, links: LinkObservation, measure: Recording, pytestconfig: pytest.Config
) -> Iterator[RelockTurns]:
    """`relock.event(plan)`: apply a plan, and divide the time from light to carrier into stages.

    Sources take turns; `relock.end()` records the rows, also of a test that ends before it.
    """
    from lightrig.harness.measure.relock_turns import RelockTurns  # noqa: PLC0415
    from lightrig.harness.port_differences import simulated_nics  # noqa: PLC0415
    from lightrig.harness.record.run_folder import load_ports  # noqa: PLC0415

    read = load_ports(pytestconfig.stash[RUN].folder, fabric.testbed.name)
    nics = read.get("ports") or simulated_nics(fabric.bench)
    turns = RelockTurns(fabric, links, measure, nics)
    yield turns
    turns.end()
