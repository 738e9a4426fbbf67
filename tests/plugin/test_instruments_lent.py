"""Fixtures that are a testbed's instruments: spread, deselected, put back."""

import re
from pathlib import Path

import pytest
from runs.running import ROOT, Ended, started

TESTS = """
import pytest

HELD = {}

@pytest.mark.of_testbed("opus")
def test_of_opus_alone(testbed):
    pass

def test_sets(bench, attenuator, light_source):
    HELD[light_source.name] = True
    assert attenuator.attenuation(1) == 0
    assert not light_source.emission(1)
    attenuator.set_attenuation(1, 7)
    attenuator.set_shutter(1, is_open=True)
    light_source.set_emission(1, on=True)

def test_finds_it_as_it_was(bench, attenuator):
    assert HELD
    assert attenuator.attenuation(1) == 0
    assert not attenuator.shutter(1)
    assert not any(bench.instruments[name].emission(1) for name in HELD)

def test_of_all_kinds(power_meter, bit_error_tester, climate_chamber):
    pass

def test_asks_late(request, bench):
    assert request.getfixturevalue("attenuator").name == "voa"

def test_of_ports(nic_ports, bench):
    assert len(nic_ports) == 16
"""


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    folder = tmp_path_factory.mktemp("lent")
    (folder / "test_lent.py").write_text(TESTS)
    testbeds = [part for name in ("infinitehbd", "opus") for part in _testbed(name)]
    arguments = [folder, *testbeds, "--instruments", "simulated", "-v", "-rs", f"-c{_config()}"]
    with started(arguments, folder / "results") as run:
        return run.end()


def _testbed(name: str) -> list[str]:
    return ["--testbed", str(ROOT / "testbeds" / f"{name}.yaml")]


def _config() -> Path:
    return ROOT / "pyproject.toml"


def test_a_test_is_spread_over_instruments_of_a_kind_and_names_them(ended: Ended) -> None:
    assert ended.code == 0, ended.output
    for number in range(1, 5):
        assert f"test_sets[infinitehbd/laser{number}] PASSED" in ended.output
    assert "test_of_all_kinds[infinitehbd/meter1] PASSED" in ended.output


def test_settings_of_a_test_are_restored(ended: Ended) -> None:
    assert "test_finds_it_as_it_was[infinitehbd] PASSED" in ended.output


def test_a_missing_instrument_deselects_a_test_with_its_reason(ended: Ended) -> None:
    (opus,) = re.findall(r"^opus: (.*)$", ended.output, re.MULTILINE)
    assert opus == (
        "3 tests not applicable: no attenuator (1); no light source and no attenuator (1); "
        "no power meter, no bit error tester and no climate chamber (1)"
    )
    (infinitehbd,) = re.findall(r"^infinitehbd: (\d.*)$", ended.output, re.MULTILINE)
    assert "no physical NIC port (1)" in infinitehbd
    assert "test_of_ports[opus] PASSED" in ended.output


def test_an_instrument_can_be_asked_for_late(ended: Ended) -> None:
    assert "test_asks_late[infinitehbd] PASSED" in ended.output
    assert "test_asks_late[opus] SKIPPED" in ended.output
    assert ": testbed opus has no attenuator\n" in ended.output


def test_a_test_of_one_testbed_runs_on_no_other(ended: Ended) -> None:
    assert "test_of_opus_alone[opus] PASSED" in ended.output
    assert "test_of_opus_alone[infinitehbd]" not in ended.output
    assert "for another testbed (1)" in ended.output
