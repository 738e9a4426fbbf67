"""Measurements of one subject: value, interval, count, unit, and what they refuse."""

import contextlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bench.served_lab import LEFT, ServedLab, set_circuits

from lightrig.harness.bench import Bench, Fabric, bind, bind_only
from lightrig.harness.bench.named_values import SubjectError
from lightrig.harness.measure.bring_up import bring_up
from lightrig.harness.measure.circuits import plan_of
from lightrig.harness.measure.insertion_loss.chains import NothingToMeasureError
from lightrig.harness.measure.insertion_loss.rows import RelativeLossError, measure_insertion_loss
from lightrig.harness.measure.links import LinkObservation
from lightrig.harness.measure.measured import Measured, NothingMeasuredError, median_of
from lightrig.harness.measure.path_changes import NotLoggedError
from lightrig.harness.measure.power import measure_power
from lightrig.harness.measure.reconfiguration import measure_reconfiguration
from lightrig.harness.measure.recording import NotEnoughDataError, Recording
from lightrig.harness.measure.switching_times import measure_switching
from lightrig.harness.record import Row
from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import PowerMonitor
from lightrig.testbeds import Circuit, Limit, load


@contextlib.contextmanager
def simulated(name: str) -> Iterator[Bench]:
    bench = bind(load(Path("testbeds") / f"{name}.yaml"), "simulated", 5)
    try:
        yield bench
    finally:
        bench.close()


@pytest.fixture(scope="module")
def mixnet() -> Iterator[Bench]:
    with simulated("mixnet") as bench:
        yield bench


def test_a_loss_holds_the_truth_and_leaves_the_circuits(mixnet: Bench) -> None:
    fabric, stored = Fabric(mixnet), list[Row]()
    recording = Recording(stored.extend)
    fabric.apply(fabric.plans["pairs"])
    before = mixnet.switches["ocs"].circuits()
    assert mixnet.world is not None
    inside = []
    for ingress, egress in [
        (1, 40),
        (2, 33),
        (5, 55),
        (9, 41),
        (3, 44),
        (12, 38),
        (7, 36),
        (4, 52),
    ]:
        found = measure_insertion_loss(fabric, recording, f"ocs {ingress}>{egress}")
        truth = mixnet.world.loss("ocs", Circuit(ingress, egress))
        low, high = found.interval
        assert low < found.value < high
        assert abs(found.value - truth) < 2 * (high - low)
        inside.append(low <= truth <= high)
        assert (found.unit, found.n, found.simulated) == ("dB", 8, True)
        assert mixnet.switches["ocs"].circuits() == before
    assert sum(inside) >= 6  # of 8 at 95 %, fewer in one of 200 such
    losses = [row for row in stored if row.quantity == "insertion_loss"]
    assert [row.subject for row in losses][:2] == ["ocs 1>40", "ocs 2>33"]


@pytest.mark.parametrize(
    ("subject", "sentence"),
    [
        ("ocs 1>2", "ocs 1>2 cannot be measured: nothing reads the light at both of its ports"),
        ("osc 1>40", "found 'osc 1>40', expected a switch of .* such as 'ocs 1>2'"),
        ("ocs.1", "found 'ocs.1', expected a switch"),
    ],
)
def test_a_circuit_that_cannot_be_measured_is_named(
    mixnet: Bench, subject: str, sentence: str
) -> None:
    with pytest.raises(NothingToMeasureError, match=sentence):
        measure_insertion_loss(Fabric(mixnet), Recording(lambda _: None), subject)


def test_without_references_a_loss_names_what_takes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contextlib.closing(ServedLab(tmp_path)) as served:
        for name, value in served.environment.items():
            monkeypatch.setenv(name, value)
        set_circuits(served.switch, LEFT)
        with (
            contextlib.closing(bind_only(served.testbed, {"ocs"}, "a test")) as bench,
            pytest.raises(RelativeLossError, match=r"would be relative(.|\n)*`lightrig refer"),
        ):
            measure_insertion_loss(Fabric(bench), Recording(lambda _: None), "ocs 1>10")
        assert served.switch.circuits() == LEFT


def test_a_limit_on_losses_without_references_names_what_takes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = Limit("insertion_loss", "upper", 1.0, 3.0, "dB", None)
    recording = Recording(lambda _: None, {"insertion_loss": limit})
    with contextlib.closing(ServedLab(tmp_path)) as served:
        for name, value in served.environment.items():
            monkeypatch.setenv(name, value)
        set_circuits(served.switch, LEFT)
        with contextlib.closing(bind_only(served.testbed, {"ocs"}, "a test")) as bench:
            measure_insertion_loss(Fabric(bench), recording)
        with pytest.raises(NotEnoughDataError) as error:
            recording.judge("insertion_loss")
        file = served.testbed.path
    assert "Nothing was measured" in str(error.value)
    assert f"`lightrig reference {file}` takes references." in str(error.value)


# ----------------------------------------------------------------------------------- power


class Monitor(PowerMonitor):
    """Shows given readings at its second channel."""

    def __init__(self, *readings: float) -> None:
        self.readings = list(readings)

    def power(self, ports: Sequence[int]) -> Any:
        assert ports == [2]
        return SimpleNamespace(dbm={2: self.readings.pop(0)}, window=7)


def power_of(*readings: float, subject: str = "meter.2") -> tuple[Measured, list[int]]:
    slept: list[int] = []
    bench: Any = SimpleNamespace(
        switches={"ocs": object()},
        instruments={"meter": Monitor(*readings)},
        simulated=frozenset(),
        clock=SimpleNamespace(now=lambda: 11, sleep=slept.append),
    )
    recording = Recording(lambda _: None)
    return measure_power(bench, recording, subject, count=len(readings)), slept


def test_a_power_has_the_interval_of_its_mean() -> None:
    found, slept = power_of(-3.0, -3.4, -2.9, -3.1)
    # Mean -3.1, standard deviation sqrt(0.14/3); Student's t for 3 degrees is 3.182 (GUM, G.2).
    half = 3.182 * math.sqrt(0.14 / 3) / 2
    assert found.interval == pytest.approx((-3.1 - half, -3.1 + half), abs=1e-4)
    assert (found.value, found.n, found.unit) == (pytest.approx(-3.1), 4, "dBm")
    assert float(found) == found.value
    assert str(found) == (
        "-3.10 dBm (meter.2 optical_power; n = 4; 95 % interval -3.45 … -2.75; scatter alone)"
    )
    assert slept == [0, 7, 7, 7]  # no two readings share a window


def test_a_power_that_nothing_reads_is_refused() -> None:
    with pytest.raises(NothingMeasuredError, match="no light in 1 of 3 readings"):
        power_of(-3.0, -math.inf, -3.1)
    for subject in ("meter", "mete.2", "ocs.2", "meter.x"):
        with pytest.raises(SubjectError, match="expected the port or channel of meter"):
            power_of(-3.0, -3.1, subject=subject)
    with pytest.raises(SubjectError, match="expected 2 readings or more"):
        power_of(-3.0)


# ---------------------------------------------------------------- switching, reconfiguration


def test_a_switching_time_is_the_median_of_its_changes() -> None:
    with simulated("switchlab") as bench:
        fabric, scope = Fabric(bench), bench.instruments["scope"]
        near, far = fabric.plans["near"], fabric.plans["far"]
        stored: list[Row] = []
        recording = Recording(stored.extend)
        plans: Any = (fabric, recording, scope, (near, far))
        found = measure_switching(*plans, 3, subject="ocs.1")
        assert found is not None
        times = sorted(row.value for row in stored if row.quantity == "switching.time")
        assert (len(times), found.n) == (3, 3)
        assert found.value == pytest.approx(times[1], abs=1)
        assert "no 95 % interval: 6 samples needed" in str(found)
        assert measure_switching(*plans, 1) is None
        with pytest.raises(NotLoggedError, match=r"no circuit from 'ocs\.2' move, but from"):
            measure_switching(*plans, 1, subject="ocs.2")


def test_of_enough_changes_the_median_has_its_interval() -> None:
    spans = [Span(n, n + 2) for n in (60, 10, 40, 20, 50, 30, 70)]
    found = median_of("switching.time", "ocs.1", spans, simulated=False)
    # Of seven samples the least and the greatest are a 98 % interval of the median, no two others
    # of 95 % (binomial).
    assert (found.value, found.interval, found.n) == (41, (10, 72), 7)


def test_an_event_has_its_stages_its_bounds_and_the_timeline() -> None:
    with simulated("opus") as bench:
        fabric, links = Fabric(bench), LinkObservation(bench)
        first, second = list(fabric.plans)[:2]
        stored: list[Row] = []
        recording = Recording(stored.extend)
        bring_up(fabric, links, fabric.plans[first])
        event = measure_reconfiguration(fabric, links, recording, second)
        assert event.plan == second
        carrier = event.measured("carrier_up")
        (row,) = (row for row in stored if row.quantity == "reconfiguration.carrier_up")
        assert (carrier.value, carrier.interval) == (row.value, (row.lower, row.upper))
        assert (event.n, event.unit) == (1, "ns")
        assert event.value == max(event.points().values())
        assert event.interval[0] <= event.value <= event.interval[1]
        with pytest.raises(NothingMeasuredError, match="has no stage 'carier_up'; seen: "):
            event.measured("carier_up")
        picture = event.plot()
        assert picture.svg.count("<svg") == 1
        assert ">simulated</span>" in picture.html


def test_one_circuit_more_leaves_all_that_share_no_port(mixnet: Bench) -> None:
    fabric = Fabric(mixnet)
    fabric.apply(fabric.plans["pairs"])
    before = mixnet.switches["ocs"].circuits()
    taken = sorted(before)[:2]
    subject = f"ocs {taken[0].ingress}>{taken[1].egress}"
    wanted = plan_of(fabric, subject).circuits["ocs"]
    assert wanted == before - {*taken} | {Circuit(taken[0].ingress, taken[1].egress)}
    assert plan_of(fabric, "mesh") is fabric.plans["mesh"]
    with pytest.raises(SubjectError, match="no plan or circuit 'mehs'; did you mean 'mesh'"):
        plan_of(fabric, "mehs")
