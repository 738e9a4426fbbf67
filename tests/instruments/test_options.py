"""Options of testbed files: declared by the driver classes, and by nothing that is read besides."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from lightrig.instruments.core.models import options_of, shipped_drivers, simulated_models
from lightrig.instruments.switches.polatis import Polatis
from lightrig.testbeds import LightrigError

ROOT = Path(__file__).parents[2]
READ = re.compile(r"options\.get\(\s*\"(\w+)\"")
SHIPPED = sorted(shipped_drivers())


@pytest.mark.parametrize("model", SHIPPED)
def test_every_option_of_a_driver_has_a_description(model):
    driver = shipped_drivers()[model].load()
    for option in driver.declared_options():
        assert option.about
        assert option.attribute or option.key in driver.options


@pytest.mark.parametrize("model", SHIPPED)
def test_options_that_a_simulated_device_reads_are_declared_for_its_model(model):
    module = simulated_models()[model].load().__module__.replace(".", "/")
    read = set(READ.findall((ROOT / f"{module}.py").read_text()))
    declared = options_of(model)
    assert declared is not None
    assert read <= set(declared)


@pytest.mark.parametrize("folder", ["instruments", "harness"])
def test_every_option_that_is_read_is_declared(folder):
    declared = {option for model in SHIPPED for option in options_of(model) or ()}
    for file in (ROOT / folder).rglob("*.py"):
        if file.name not in ("host_tools.py", "probe.py", "launchers.py"):  # command-line options
            assert set(READ.findall(file.read_text())) <= declared, file


def test_an_unknown_model_states_no_options():
    assert options_of("polatys") is None


def test_a_driver_has_no_keyword_that_it_does_not_declare():
    with pytest.raises(TypeError, match="Polatis has no option 'reruoting'"):
        Polatis("ocs", None, None, reruoting=True)


def test_an_option_with_a_wrong_value_names_instrument_and_option():
    spec = SimpleNamespace(name="ocs", options={"averaging": 12})
    with pytest.raises(LightrigError, match=r"ocs: options: averaging: found 12, expected one of"):
        Polatis.open(spec, None, None)
