"""The pytest face: options here; what they ask for is loaded only when a testbed is given.

Without a testbed the plugin is its options, and fixtures that skip the tests which take them:
other projects' tests are left alone, and pay no second for plotting and data frames.
"""

import os
from argparse import ArgumentTypeError
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lightrig.harness.garbage import paused
from lightrig.harness.modes import MODES, SAMPLES
from lightrig.harness.plugin.keys import FILES, NO_TESTBED

if TYPE_CHECKING:
    from lightrig.testbeds import Testbed

pytest_plugins = ["lightrig.harness.plugin.fixtures", "lightrig.harness.plugin.measurements"]

PARTS = ("lightrig.harness.plugin.collection", "lightrig.harness.plugin.session")
"""Plugins that are loaded with the first testbed; the last one begins the run."""


def _duration(text: str) -> int:
    """Return the nanoseconds of an option such as 2h."""
    from lightrig.testbeds.quantities import QuantityError, parse_duration  # noqa: PLC0415

    try:
        found = parse_duration(text)
    except QuantityError as error:
        raise ArgumentTypeError(str(error)) from error
    if found <= 0:
        raise ArgumentTypeError(f"found {text!r}, expected a time above 0, e.g. '2h'")
    return found


class Hooks:
    """Hooks of Lightrig, for a `conftest.py`."""

    @pytest.hookspec(firstresult=True)
    def pytest_lightrig_testbeds(self, config: pytest.Config) -> Sequence[Path] | None:
        """Return the testbeds to measure where no person has named one, or None.

        They are simulated unless `--instruments` says otherwise.
        """

    @pytest.hookspec(firstresult=True)
    def pytest_lightrig_unavailable(self, fixture: str, testbed: "Testbed") -> str | None:
        """Return why a testbed can never offer a fixture, or None if it can.

        Tests that take the fixture are deselected on that testbed, with the reason. Decide by
        the testbed's description alone: nothing is contacted during collection.
        """


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Declare the hooks."""
    pluginmanager.add_hookspecs(Hooks)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of a run."""
    group = parser.getgroup("lightrig", "optical testbeds")
    group.addoption(
        "--testbed",
        action="append",
        default=[],
        metavar="FILE",
        help="description of a testbed to measure; may be given several times; without, "
        "the files in LIGHTRIG_TESTBED, else those of the ini option lightrig_testbed",
    )
    parser.addini("lightrig_testbed", "testbeds to measure without --testbed", type="paths")
    group.addoption(
        "--instruments",
        choices=MODES,
        default=None,
        help="auto: simulate instruments joined by fibers unless all of them answer (default); "
        "hardware: an absence is an error; simulated: contact nothing outside this machine",
    )
    group.addoption(
        "--strict-links",
        action="store_true",
        help="a test fails where any of its links does not come up; without, those of the suites "
        "go on with the others",
    )
    group.addoption("--seed", type=int, default=0, help="seed of simulated worlds (default 0)")
    group.addoption("--samples", type=int, default=None, help="events a test")
    group.addoption("--profile", choices=sorted(SAMPLES), default="quick", help="how many events")
    group.addoption(
        "--fail-inconclusive",
        action="store_true",
        help="exit 1 if a test lacks the data for a verdict; without, that alone exits 0",
    )
    group.addoption(
        "--results", type=Path, default=None, metavar="DIR", help="folder of runs (results/)"
    )
    group.addoption(
        "--faults",
        type=Path,
        default=None,
        metavar="FILE",
        help="fault plan: faults that are injected into simulated testbeds while tests run",
    )
    group.addoption(
        "--traces",
        choices=("failed", "all", "none"),
        default="failed",
        help="keep what went over the wires of tests that failed (default), of all tests, or of "
        "none, at most 1 MB an instrument and test",
    )
    group.addoption(
        "--publish",
        default=None,
        metavar="PLACE",
        help="path or URL of a lab's data set that the run is copied to at its end",
    )
    group.addoption(
        "--run-name",
        default=None,
        metavar="NAME",
        help="name of the run, YYYYMMDD-HHMMSS-NAME, which counts for the night of that date; "
        "by default made of the time",
    )
    group.addoption(
        "--by-hand",
        action="store_true",
        help="mark the run as one by hand: it belongs to no night, and is in no trend, card or "
        "metric",
    )
    group.addoption(
        "--queue",
        type=_duration,
        default=0,
        metavar="TIME",
        help="wait so long, such as 2h, for instruments that another run of this machine has, in "
        "the order in which runs came; without, end at once",
    )
    group.addoption(
        "--hold",
        type=_duration,
        default=0,
        metavar="TIME",
        help="how long this run will have the instruments, such as 1h, for those that wait",
    )
    group.addoption(
        "--soak",
        type=_duration,
        default=0,
        metavar="TIME",
        help="watch all links for so long, such as 72h, in suites/test_soak.py; without, its "
        "tests are deselected",
    )
    group.addoption(
        "--soak-resume",
        default=None,
        metavar="RUN",
        help="go on with the soak of an earlier run that was killed: both count, and the time "
        "between them does not",
    )
    group.addoption(
        "--relock",
        action="store_true",
        help="divide the time between light and carrier into stages, in suites/test_relock.py and "
        "nothing else: transceivers are read meanwhile, so that it counts as with --by-hand",
    )
    # See docs/appendix/events.md.
    group.addoption(
        "--lightrig-json" if _is_taken("--json", parser) else "--json",
        dest="lightrig_json",
        default=None,
        metavar="FILE",
        help="write events for other tools, one JSON object a line; - is standard output",
    )


def _is_taken(name: str, parser: pytest.Parser) -> bool:
    """Return whether another plugin has an option of this name.

    pytest 8.4 adds it a second time all the same, and ends with a traceback when it parses.
    """
    try:
        _, unknown = parser.parse_known_and_unknown_args([name, "value"])
    except pytest.UsageError:  # it takes another value
        return True
    return name not in unknown


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Load the rest if there is a testbed, before other plugins decide where reports go."""
    config.addinivalue_line(
        "markers",
        "limits(*families): `samples` is the number of events that the limits under these need",
    )
    config.addinivalue_line(
        "markers",
        "needs(circuits=N, lacks=FUNCTION, whole_plans=True): deselect where a testbed cannot "
        "move N circuits at once, or where a function of the test's parameters (testbed, plan, "
        "...) returns a reason; inconclusive where ports are out of service",
    )
    config.addinivalue_line(
        "markers",
        "fault(kind, at=PLACES, after=, lasting=, loss=, step=): inject a fault into the "
        "simulated testbed while the test runs; see docs/faults.md",
    )
    config.addinivalue_line("markers", "of_testbed(NAME): run on the testbed of that name alone")
    config.addinivalue_line(
        "markers", "claim(SYSTEM:CLAIM, ...): tests a claim of a paper (docs/systems.md)"
    )
    config.addinivalue_line(
        "markers", "of_system(NAME): run on testbeds that declare this published system"
    )
    files, by_person = testbed_files(config)
    if config.option.instruments is None:
        config.option.instruments = "auto" if by_person else "simulated"
    if files:
        config.stash[FILES] = files
        with paused():
            for part in PARTS:
                config.pluginmanager.import_plugin(part)
            load_fixtures(config)


def load_fixtures(config: pytest.Config) -> None:
    """Register the fixtures of all packs and installed systems, of which the testbeds may be."""
    # Imported here: without a testbed no system is looked for.
    from lightrig.harness.system_registry import (  # noqa: PLC0415
        SystemRegistryError,
        installed_parts,
    )
    from lightrig.testbeds.errors import PackError  # noqa: PLC0415

    try:
        for name, module in installed_parts("fixtures"):
            if not config.pluginmanager.is_registered(module):
                config.pluginmanager.register(module, f"lightrig-{name}")
    except (PackError, SystemRegistryError) as error:
        raise pytest.UsageError(str(error)) from error


def testbed_files(config: pytest.Config) -> tuple[list[str], bool]:
    """Return the testbeds' files, and whether a person named them.

    A person names them by option, environment or ini file; else a conftest may.
    """
    given: list[str] = config.getoption("testbed")
    named = [name for name in os.environ.get("LIGHTRIG_TESTBED", "").split(os.pathsep) if name]
    if found := given or named or list(map(str, config.getini("lightrig_testbed"))):
        return found, True
    return list(map(str, config.hook.pytest_lightrig_testbeds(config=config) or ())), False


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip tests that want a testbed where none is given."""
    if FILES in config.stash:
        return
    for item in items:
        # Fixtures of a system, and what they build on, are unknown without a testbed.
        if "lightrig_testbed" in getattr(item, "fixturenames", ()) or item.get_closest_marker(
            "of_system"
        ):
            item.add_marker(pytest.mark.skip(reason=NO_TESTBED))
