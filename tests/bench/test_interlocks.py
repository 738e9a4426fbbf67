"""Circuits are not changed under light that destroys a receiver or harms the switch."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lightrig.harness.bench import Bench, Fabric, bind
from lightrig.harness.bench.interlocks import InterlockError
from lightrig.instruments.core.errors import DeniedError
from lightrig.testbeds import Circuit, Plan, TestbedError, load

FILE = """
name: lab
switches:
  ocs: {{model: {model}, address: "{scheme}://ocs.invalid", size: {size}{options}{switching}}}
servers:
  server0:
    address: ssh://server0.invalid
    nics: {{nic0: {{netdev: e0, rate: 100G, transceiver: lr4}}}}
instruments:
  laser: {{kind: light_source, model: keysight-n7776c, address: scpi://laser.invalid{launch}}}
  chamber:
    kind: climate_chamber
    model: weiss-simserv
    address: simserv://chamber.invalid
    temperature: {{min: 0 °C, max: {hottest}}}
transceivers:
  lr4:
    wavelength: 1310 nm
    launch: {{min: -4 dBm, max: 4 dBm}}
    receive: {{min: -10 dBm, max: 4 dBm}}
    damage: 5 dBm
fibers:
  - laser -> ocs.1
  - ocs.{egress} -> server0.nic0
{overrides}
"""
PLAIN = {
    "model": "polatis",
    "scheme": "tl1",
    "size": "4x4",
    "egress": "5",
    "options": ", options: {monitors: both}",
    "switching": "",
    "launch": "",
    "hottest": "60 °C",
    "overrides": "",
}
NO_MONITORS = {
    "model": "dicon-mems",
    "scheme": "serial",
    "size": "1x2",
    "egress": "2",
    "options": "",
}
REASON = "the receivers are dummies"


@contextlib.contextmanager
def bench_of(folder: Path, **parts: str) -> Iterator[Bench]:
    path = folder / "lab.yaml"
    path.write_text(FILE.format(**{**PLAIN, **parts}))
    with contextlib.closing(bind(load(path), "simulated", 1)) as bench:
        yield bench


def connect(bench: Bench, dbm: float | None) -> None:
    """Set the laser, None for off, and lead its light to the server."""
    laser: Any = bench.instruments["laser"]
    if dbm is not None:
        laser.set_power(1, dbm)
        laser.set_emission(1, on=True)
    (egress,) = bench.testbed.cabling.cabled_ports("ocs")[1]
    Fabric(bench).apply(Plan("lit", {"ocs": frozenset({Circuit(1, egress)})}))


@pytest.mark.parametrize("dbm", [None, 4.0])
def test_harmless_light_is_connected(tmp_path: Path, dbm: float | None) -> None:
    with bench_of(tmp_path) as bench:
        connect(bench, dbm)
        assert bench.switches["ocs"].circuits() == {Circuit(1, 5)}


def test_measured_light_above_the_damage_threshold_is_refused(tmp_path: Path) -> None:
    with bench_of(tmp_path) as bench:
        with pytest.raises(InterlockError) as raised:
            connect(bench, 9.0)
        assert bench.switches["ocs"].circuits() == frozenset()
    message = str(raised.value)
    assert "at ingress 1 would reach server0.nic0, whose receiver is destroyed by" in message
    assert "more than 5 dBm from there" in message
    assert "switch the light off" in message


def test_an_overridden_interlock_is_not_judged_and_noted(tmp_path: Path) -> None:
    overrides = f"overrides: {{receiver_damage: {REASON}}}"
    with bench_of(tmp_path, overrides=overrides) as bench:
        connect(bench, 9.0)
        (note,) = bench.testbed.notes
    assert note.endswith(f"lab.yaml:25:13: the interlock receiver_damage is off: {REASON}")


def test_stated_light_above_the_damage_threshold_is_refused_unless_overridden(
    tmp_path: Path,
) -> None:
    launch = ", launch: {max: 9 dBm}"
    refused = pytest.raises(TestbedError, match="no more than its damage threshold")
    with refused, bench_of(tmp_path, launch=launch):
        pass
    with bench_of(
        tmp_path, launch=launch, overrides=f"overrides: {{receiver_damage: {REASON}}}"
    ) as bench:
        connect(bench, 8.0)


SWITCHING = ", switching_power: {max: -20 dBm}"


def test_a_circuit_is_not_changed_under_more_light_than_the_switch_allows(tmp_path: Path) -> None:
    with bench_of(tmp_path, switching=SWITCHING) as bench:
        connect(bench, None)
        bench.instruments["laser"].set_emission(1, on=True)  # type: ignore[attr-defined]
        fabric = Fabric(bench)
        with pytest.raises(InterlockError, match=r"more than the -20 dBm under which it may be"):
            fabric.apply(Plan("dark", {"ocs": frozenset()}))
        bench.instruments["laser"].set_emission(1, on=False)  # type: ignore[attr-defined]
        fabric.apply(Plan("dark", {"ocs": frozenset()}))
        assert bench.switches["ocs"].circuits() == frozenset()


def test_switching_power_can_be_overridden(tmp_path: Path) -> None:
    overrides = f"overrides: {{switching_power: {REASON}}}"
    with bench_of(tmp_path, switching=SWITCHING, overrides=overrides) as bench:
        connect(bench, 0.0)


@pytest.mark.parametrize(
    ("launch", "problem"),
    [
        (", launch: {max: 4 dBm}", "laser.1 launches up to 4 dBm, more than the -20 dBm"),
        ("", "ingress 1 is not measured, and the power of laser.1 not stated"),
    ],
)
def test_without_monitors_a_source_must_be_off_before_its_circuit_is_changed(
    tmp_path: Path, launch: str, problem: str
) -> None:
    parts = {**NO_MONITORS, "switching": SWITCHING, "launch": launch}
    with bench_of(tmp_path, **parts) as bench:
        Fabric(bench).apply(Plan("dark", {"ocs": frozenset()}))
        bench.instruments["laser"].set_emission(1, on=True)  # type: ignore[attr-defined]
        with pytest.raises(InterlockError, match=problem):
            connect(bench, None)
        assert bench.switches["ocs"].circuits() == frozenset()
        bench.instruments["laser"].set_emission(1, on=False)  # type: ignore[attr-defined]
        connect(bench, None)


WDM = """
name: wdm
switches:
  ocs: {{model: dicon-mems, address: "serial://ocs.invalid", size: 1x2,
        switching_power: {{max: {most}}}}}
servers:
  server0:
    address: ssh://server0.invalid
    nics: {{nic0: {{netdev: e0, rate: 100G, transceiver: lr4}}}}
transceivers:
  lr4: {{wavelength: 1310 nm, {wavelengths}launch: {{min: -4.3 dBm, max: 4.5 dBm}},
        receive: {{min: -10.6 dBm, max: 4.5 dBm}}}}
fibers:
  - server0.nic0 -> ocs.1
  - ocs.2 -> server0.nic0
"""


@pytest.mark.parametrize(
    ("wavelengths", "most", "problem"),
    [
        # 4.5 dBm a lane of LR4 are 10.5 dBm in its fiber (IEEE 802.3, clause 88).
        ("wavelengths: 4, ", "7 dBm", r"server0\.nic0 launches up to 10\.52 dBm, more than the 7"),
        ("wavelengths: 4, ", "11 dBm", None),
        ("wavelengths: 1, ", "7 dBm", None),
        ("", "11 dBm", r"up to 13\.53 dBm \(8 wavelengths .* lr4 states no `wavelengths:`\)"),
        ("", "14 dBm", None),
    ],
)
def test_a_switch_carries_all_wavelengths_of_a_fiber(
    tmp_path: Path, wavelengths: str, most: str, problem: str | None
) -> None:
    path = tmp_path / "wdm.yaml"
    path.write_text(WDM.format(wavelengths=wavelengths, most=most))
    refused = pytest.raises(InterlockError, match=problem) if problem else contextlib.nullcontext()
    with contextlib.closing(bind(load(path), "simulated", 1)) as bench, refused:
        fabric = Fabric(bench)
        for made in (frozenset[Circuit](), frozenset({Circuit(1, 2)})):
            fabric.apply(Plan("next", {"ocs": made}))


def test_a_source_of_unknown_power_must_be_off_before_a_receiver_is_connected(
    tmp_path: Path,
) -> None:
    with bench_of(tmp_path, options=", options: {monitors: none}") as bench:
        with pytest.raises(InterlockError, match=r"light of laser\.1, which is not measured"):
            connect(bench, 0.0)
        bench.instruments["laser"].set_emission(1, on=False)  # type: ignore[attr-defined]
        connect(bench, None)


def test_chamber_stays_within_what_its_devices_withstand(tmp_path: Path) -> None:
    with bench_of(tmp_path) as bench:
        chamber: Any = bench.instruments["chamber"]
        with pytest.raises(DeniedError, match="is not what the devices in it withstand"):
            chamber.set_temperature(61.0)
        chamber.set_temperature(60.0)
    with bench_of(tmp_path, overrides=f"overrides: {{temperature: {REASON}}}") as bench:
        bench.instruments["chamber"].set_temperature(61.0)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ({"hottest": "-1 °C"}, "found min 0 °C above max -1 °C"),
        ({"launch": ", temperature: {min: 0 C, max: 1 C}"}, "found it at a light source"),
        ({"overrides": "overrides: {receiver_damage: yes}"}, "at least 10 characters"),
        ({"overrides": "overrides: {every: thing that there is}"}, "the unknown key 'every'"),
    ],
)
def test_senseless_interlocks_are_findings(
    tmp_path: Path, parts: dict[str, str], problem: str
) -> None:
    with pytest.raises(TestbedError, match=problem), bench_of(tmp_path, **parts):
        pass
