"""The pytest face: options here; what they ask for is loaded only when a testbed is given.

Without `--testbed` the plugin is its options and a skip for suites that need one: other
projects' tests are left alone, and pay no second for plotting and data frames.
"""

from argparse import ArgumentError
from pathlib import Path

import pytest

from harness.modes import MODES, SAMPLES

PARTS = ("harness.plugin.collection", "harness.plugin.fixtures", "harness.plugin.session")
"""What is loaded with the first testbed; the last one begins the run."""

FIXTURES = frozenset(
    (
        "attenuator",
        "bench",
        "bit_error_tester",
        "climate_chamber",
        "collectives",
        "fabric",
        "light_source",
        "links",
        "measure",
        "modules",
        "moving",
        "nic_ports",
        "plan",
        "power_meter",
        "rdma",
        "samples",
        "servers",
        "switches",
        "testbed",
        "transition",
    )
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of a run."""
    group = parser.getgroup("lightrig", "optical testbeds")
    group.addoption(
        "--testbed",
        action="append",
        default=[],
        metavar="FILE",
        help="description of a testbed to measure; may be given several times",
    )
    group.addoption(
        "--instruments",
        choices=MODES,
        default="auto",
        help="auto: simulate optical domains that do not answer in full (default); "
        "hardware: an absence is an error; simulated: contact nothing outside this machine",
    )
    group.addoption("--seed", type=int, default=0, help="seed of simulated worlds (default 0)")
    group.addoption("--samples", type=int, default=None, help="events a test")
    group.addoption("--profile", choices=sorted(SAMPLES), default="quick", help="how many events")
    group.addoption(
        "--results", type=Path, default=None, metavar="DIR", help="folder of runs (results/)"
    )
    group.addoption(
        "--publish",
        default=None,
        metavar="PLACE",
        help="path or URL of a lab's data set that the run is copied to at its end",
    )
    # Another plugin may have taken the short name; see docs/events.md.
    for name in ("--json", "--lightrig-json"):
        try:
            group.addoption(
                name,
                dest="lightrig_json",
                default=None,
                metavar="FILE",
                help="write events for other tools, one JSON object a line; - is standard output",
            )
        except (ValueError, ArgumentError):
            continue
        break


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Load the rest if there is a testbed, before other plugins decide where reports go."""
    config.addinivalue_line(
        "markers", "needs(circuits=N): skip where a testbed cannot move N circuits at once"
    )
    config.addinivalue_line(
        "markers", "of_testbed(NAME): a question to one testbed, which no other is asked"
    )
    if config.getoption("testbed"):
        for part in PARTS:
            config.pluginmanager.import_plugin(part)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip tests that want a testbed where none is given."""
    if config.getoption("testbed"):
        return
    for item in items:
        info = getattr(item, "_fixtureinfo", None)
        if info is not None and FIXTURES & set(info.names_closure) - set(info.name2fixturedefs):
            item.add_marker(pytest.mark.skip(reason="no testbed: give --testbed FILE"))
