"""A laser that cannot be tuned to the transmitters whose losses it measures."""

import pytest
from typer.testing import CliRunner

from lightrig.harness.bench import bind
from lightrig.harness.cli.app import application
from lightrig.instruments.core.errors import DeniedError
from lightrig.testbeds import load

LAB = """\
name: lab
switches: {{ocs: {{model: polatis, address: "tl1://ocs.invalid", size: 8x8}}}}
servers:
  server[0-1]:
    address: ssh://{{name}}.invalid
    nics: {{nic0: {{netdev: ens1, rate: 100G, transceiver: optics}}}}
transceivers: {{optics: {{pmd: {pmd}}}}}
instruments:
  laser:
    kind: light_source
    model: keysight-n7776c
    address: "scpi://{{name}}.invalid"
{stated}
fibers:
  - server[0-1].nic0 <-> ocs
  - laser.1 -> ocs.7
plans: {{one: ["server0.nic0 <-> server1.nic0"]}}
"""
LR4 = "100GBASE-LR4"
O_BAND = "    wavelengths: {min: 1240 nm, max: 1380 nm}"


def checked(tmp_path, pmd=LR4, stated=""):
    file = tmp_path / "lab.yaml"
    file.write_text(LAB.format(pmd=pmd, stated=stated))
    ended = CliRunner().invoke(application(), ["check", str(file)], env={"COLUMNS": "1000"})
    return ended.exit_code, ended.output + ended.stderr


def test_a_laser_of_the_other_band_is_located_once_a_laser(tmp_path):
    """1480 to 1620 nm of PyMeasure's driver, and 1310 nm of IEEE 802.3 clause 88."""
    status, printed = checked(tmp_path)
    assert status == 0
    assert "laser tunes from 1480 nm to 1620 nm" in printed
    assert "server0.nic0 on ocs sends at 1310 nm" in printed
    assert "lab.yaml:11:" in printed


def test_a_laser_of_the_family_for_that_band_is_as_it_should_be(tmp_path):
    status, printed = checked(tmp_path, stated=O_BAND)
    assert status == 0
    assert "tunes from" not in printed


def test_a_stated_range_is_compared_too(tmp_path):
    status, printed = checked(tmp_path, stated=O_BAND.replace("1380", "1300"))
    assert status == 0
    assert "laser tunes from 1240 nm to 1300 nm, and" in printed
    assert "lab.yaml:13:" in printed


@pytest.mark.parametrize(
    ("stated", "problem"),
    [
        (O_BAND.replace("1240", "1390"), "found min 1390 nm above max 1380 nm"),
        (O_BAND.replace("1240 nm", "1240"), "expected a wavelength"),
    ],
)
def test_a_range_that_is_none_is_located(tmp_path, stated, problem):
    status, printed = checked(tmp_path, stated=stated)
    assert status == 2
    assert problem in printed
    assert "lab.yaml:13:" in printed


def test_a_meter_has_no_range_of_wavelengths(tmp_path):
    file = tmp_path / "lab.yaml"
    text = LAB.format(pmd=LR4, stated=O_BAND)
    text = text.replace("light_source", "power_meter").replace("n7776c", "n7745a")
    file.write_text(text)
    ended = CliRunner().invoke(application(), ["check", str(file)])
    assert ended.exit_code == 2
    assert "expected them at a light source" in ended.output + ended.stderr


def test_a_simulated_laser_of_that_band_tunes_there_and_nowhere_else(tmp_path):
    checked(tmp_path, stated=O_BAND)
    bench = bind(load(tmp_path / "lab.yaml"), "simulated")
    try:
        laser = bench.instruments["laser"]
        laser.set_wavelength(1, 1271.5)
        assert laser.wavelength(1) == pytest.approx(1271.5)
        with pytest.raises(DeniedError):
            laser.set_wavelength(1, 1550.0)
    finally:
        bench.close()
