"""A package of somebody else adds a driver and a peer; docs/drivers.md shows parts of it."""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import preloaded
import pytest
from distributions import write_metadata
from generated import REFERENCE
from typer.testing import CliRunner

from lightrig.harness.bench import Bench, bind
from lightrig.harness.cli.app import application
from lightrig.instruments.core.errors import DeniedError
from lightrig.instruments.core.position_switch import PositionSwitch
from lightrig.instruments.core.registry import NoDriverError, driver, models
from lightrig.testbeds import Circuit, load

ROOT = Path(__file__).parents[2]
ACME = Path(__file__).with_name("acme")
GUIDE = ROOT / "docs" / "drivers.md"
FILES = sorted(path.name for path in ACME.iterdir() if path.is_file())


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Metadata of the installed package, from its pyproject.toml."""
    folder = tmp_path_factory.mktemp("site")
    write_metadata(ACME, folder)
    return folder


@pytest.fixture
def _installed(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path, str(site), str(ACME)])
        yield
    for module in ("acme_osw", "acme_osw_peer", "acme_pm4", "acme_pm4_device"):
        sys.modules.pop(module, None)


@pytest.fixture
def bench(_installed: None) -> Iterator[Bench]:
    bound = bind(load(ACME / "bench.yaml"), "simulated")
    yield bound
    bound.close()


def test_the_guide_shows_files_of_the_package() -> None:
    blocks = re.findall(r"^`([\w.]+)`[^`]*\n\n```\w+\n(.*?)```", GUIDE.read_text(), re.M | re.S)
    assert {"acme_osw.py", "acme_osw_peer.py", "bench.yaml"} <= dict(blocks).keys()
    assert [name for name, shown in blocks if shown != (ACME / name).read_text()] == []


@pytest.mark.parametrize("name", FILES)
def test_the_site_shows_every_file(name: str) -> None:
    page = REFERENCE["driver-package"]()
    assert f"`{name}`\n\n" in page
    assert (ACME / name).read_text() in page


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)#]+)\)", GUIDE.read_text()))
def test_every_link_of_the_guide_leads_somewhere(link: str) -> None:
    made_with_the_site = link.startswith("reference/")
    assert made_with_the_site or (GUIDE.parent / link).exists()


@pytest.mark.usefixtures("_installed")
def test_its_model_is_listed() -> None:
    assert {"acme-osw", "acme-pm4", "polatis"} <= models().keys()
    assert driver("acme-osw").__module__ == "acme_osw"


def test_without_it_there_is_no_such_model() -> None:
    with pytest.raises(NoDriverError, match="no driver for model 'acme-osw'"):
        driver("acme-osw")


@pytest.mark.usefixtures("_installed")
def test_its_testbed_is_right() -> None:
    checked = CliRunner().invoke(application(), ["check", str(ACME / "bench.yaml")])
    assert checked.exit_code == 0, checked.output


def test_a_circuit_is_moved_and_read_back(bench: Bench) -> None:
    switch = bench.switches["osw"]
    assert str(bench.identities["osw"]) == "ACME OSW-1X4, serial SIM-osw, firmware 2.1"
    assert switch.circuits() == {Circuit(1, 2)}
    for wanted in ({Circuit(1, 5)}, set(), {Circuit(1, 3)}):
        moving = switch.change(switch.circuits(), wanted)
        assert moving.done().latest - moving.sent.earliest > 10_000_000
        assert switch.circuits() == wanted


def test_its_peer_is_in_the_light_of_everything_else(bench: Bench) -> None:
    switch, laser, meter = bench.switches["osw"], *bench.instruments.values()
    laser.set_power(1, 3.0)
    laser.set_emission(1, on=True)
    meter.prepare(range(1, 5), wavelength_nm=1550.0, averaging=1_000_000)
    switch.change(switch.circuits(), {Circuit(1, 4)}).done()
    bench.clock.sleep(100_000_000)
    assert [channel for channel, dbm in meter.power(range(1, 5)).dbm.items() if dbm > -10] == [3]


def test_a_refusal_is_raised_with_the_switchs_text(bench: Bench) -> None:
    switch = bench.switches["osw"]
    assert isinstance(switch, PositionSwitch)
    # A wrong `size:` in the testbed file would have this effect.
    switch.positions = {**switch.positions, 5: frozenset({Circuit(1, 6)})}
    with pytest.raises(DeniedError, match="2 no such channel") as told:
        switch.change({Circuit(1, 2)}, {Circuit(1, 6)}).done()
    assert told.value.code == "2"
    assert switch.circuits() == {Circuit(1, 2)}


def test_the_meter_measures_what_the_laser_launches(bench: Bench) -> None:
    switch, laser, meter = bench.switches["osw"], *bench.instruments.values()
    laser.set_power(1, -7.0)
    laser.set_emission(1, on=True)
    switch.change(switch.circuits(), {Circuit(1, 3)}).done()
    meter.prepare([1, 2], wavelength_nm=1310.0, averaging=20_000_000)
    reading = meter.power([2])
    # Two connectors of up to half a decibel each, and the diode's calibration.
    assert reading.dbm[2] == pytest.approx(-7.5, abs=0.8)
    assert reading.window == 20_000_000
    assert reading.answered - reading.asked >= reading.window
    assert meter.wavelength.get(1) == pytest.approx(1310.0)
    assert meter.averaging.get(3) == pytest.approx(100_000_000)
    with pytest.raises(DeniedError, match="-222") as refused:
        meter.wavelength.set(300.0, 4)
    assert "outside its range" in str(refused.value)
    with pytest.raises(DeniedError, match="-114"):
        meter.write(":SENS9:POW:WAV 1310NM")


def test_zeroing_takes_two_seconds_a_channel(bench: Bench) -> None:
    meter = bench.instruments["meter"]
    began = bench.clock.now()
    meter.zero([1, 4])
    assert bench.clock.now() - began == pytest.approx(4_000_000_000, rel=0.01)


def test_the_conformance_suite_passes(site: Path, tmp_path: Path) -> None:
    ended = preloaded.run(
        [
            *("pytest", "suites/test_conformance.py", "-q"),
            *("--testbed", ACME / "bench.yaml", "--instruments", "simulated"),
            *("-p", "no:cacheprovider", "-p", "no:html", "--results", tmp_path),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{ACME}"},
    )
    assert ended.returncode == 0, ended.stdout
    assert re.search(r"\d+ passed in ", ended.stdout), ended.stdout
