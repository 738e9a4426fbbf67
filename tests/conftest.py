"""Settings of all of the project's tests: examples, timeouts."""

import atexit
import contextlib
import gc
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import worker_exit  # isort: skip - first, see there
import hypothesis
import preloaded
import pytest
import shared_rewriting
from hypothesis import HealthCheck
from hypothesis.database import DirectoryBasedExampleDatabase
from hypothesis.internal import entropy
from hypothesis.internal.conjecture import engine, providers

from lightrig.harness.bench import Bench, bind
from lightrig.harness.garbage import exclude_present
from lightrig.harness.signals import ENDING
from lightrig.instruments.clock import Clock, SystemClock
from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.instruments.temporary_folders import TemporaryFolder
from lightrig.testbeds import load

LONGEST_FILES = Path(__file__).with_name("longest_files.txt")
TIMEOUT = 300
LONG_TIMEOUT = 1200
SHRINKING = 60
# Of Hypothesis about its own generator, once in a process of Python 3.14.
_OF_HYPOTHESIS = "ignore:It looks like `register_random` was passed"

_include_again: list[Callable[[], None]] = []

# Leases and saved states of tests are none of this machine's. The next run removes those of one
# that was killed.
_states = TemporaryFolder("tests")
atexit.register(_states.cleanup)
os.environ["LIGHTRIG_STATE"] = _states.name
preloaded.share(os.environ.pop(preloaded.SHARED, _states.name))

# Whether what was written outlives a loss of power is nothing that a test tries, and some thousand
# waits for a disk take longer than what is written. tests/preloaded.py does the same.
os.fsync = lambda file: os.fstat(file) and None

# What is printed does not depend on how the person's terminal is set, nor do programs that tests
# start.
for _setting in (
    "COLUMNS",
    "LINES",
    "FORCE_COLOR",
    "NO_COLOR",
    "TTY_COMPATIBLE",
    "TTY_INTERACTIVE",
):
    os.environ.pop(_setting, None)

# `make test` tries the same examples on every machine and in every run; `make fuzz` looks for
# new ones with `--hypothesis-profile fuzz`. How fast a machine draws is no property of the code.
hypothesis.settings.register_profile(
    "tests",
    deadline=None,
    derandomize=True,
    max_examples=25,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
hypothesis.settings.register_profile(
    "fuzz",
    hypothesis.settings.get_profile("tests"),
    derandomize=False,
    max_examples=int(os.environ.get("FUZZ_EXAMPLES", "200")),
    # What has failed once is tried first in every later run.
    database=DirectoryBasedExampleDatabase(Path(__file__).parents[1] / ".hypothesis" / "examples"),
)
hypothesis.settings.load_profile("tests")


@pytest.fixture
def virtual_clock() -> Iterator[VirtualClock]:
    clock = VirtualClock(stall_timeout=20)
    yield clock
    clock.close()


@pytest.fixture
def system_clock() -> Iterator[SystemClock]:
    clock = SystemClock()
    yield clock
    clock.close()


@pytest.fixture
def ctrl_c_raises(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt, also below a runner that handles it otherwise.

    Python swallows one that comes within a destructor or a callback of a weak reference; pytest
    would report that as an error of the test.
    """
    report = sys.unraisablehook

    def unless_ctrl_c(unraisable: "sys.UnraisableHookArgs") -> None:
        if unraisable.exc_type is not KeyboardInterrupt:
            report(unraisable)

    monkeypatch.setattr(sys, "unraisablehook", unless_ctrl_c)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def handlers_are_restored() -> Iterator[None]:
    """A test that leaves another handler of a signal would fail the tests after it, not itself."""
    before = {number: signal.getsignal(number) for number in ENDING}
    yield
    left = {number: signal.getsignal(number) for number in ENDING}
    for number, handler in before.items():
        signal.signal(number, handler)
    assert left == before


@pytest.fixture
def all_is_carried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restoring does not wait for a killed run's last commands: these devices have obeyed them."""
    monkeypatch.setattr("lightrig.harness.bench.leftovers.SETTLING", -1)


@pytest.fixture
def clock(virtual_clock: VirtualClock) -> Clock:
    """The virtual clock, where a folder or a file does not name another."""
    return virtual_clock


@pytest.fixture
def simulated(tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    """Bind testbeds, each a file or its text, to simulated instruments until the test ends."""
    with contextlib.ExitStack() as stack:

        def bind_simulated(testbed: Path | str, seed: int = 1) -> Bench:
            if isinstance(testbed, str):
                path = tmp_path / "testbed.yaml"
                path.write_text(testbed)
                testbed = path
            bench = bind(load(testbed), "simulated", seed)
            stack.callback(bench.close)
            return bench

        yield bind_simulated


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    # Of all tests: a mark on each would stay in the memory of every worker.
    if config.option.timeout is None:
        config.option.timeout = TIMEOUT
    if hasattr(config, "workerinput"):
        worker_exit.end_at_once()
    # A shell starts a command in the background with SIGINT ignored, and programs that tests
    # start and interrupt would inherit it.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Plugins that are installed for these tests, and that a run of Lightrig does not have
    # elsewhere: tests start pytest some sixty times, and Hypothesis takes a quarter of a short
    # run. Not in the process that starts workers, which need them.
    if hasattr(config, "workerinput") or config.getoption("dist", "no") == "no":
        os.environ["PYTEST_ADDOPTS"] = "-p no:hypothesispytest -p no:anyio"
    else:
        os.environ[preloaded.SHARED] = _states.name
    # Hypothesis has no setting for any of these. A failure that shrinks for as long as its
    # test may take is reported as a timeout, without the assertion.
    assert hasattr(engine, "MAX_SHRINKING_SECONDS")
    engine.MAX_SHRINKING_SECONDS = SHRINKING
    # It seeds and restores NumPy's global generator around each example and its body, a third of
    # the time of a short one; nothing here uses that generator (ruff's NPY002).
    assert hasattr(entropy, "NP_RANDOM")
    entropy.NP_RANDOM = random.Random()
    # Even without chance it draws constants of those of the project's modules that are imported
    # by then, which depends on the files that the same process has run before.
    assert hasattr(providers, "_get_local_constants")
    if hypothesis.settings.get_current_profile_name() == "tests":
        providers._get_local_constants = providers.Constants  # noqa: SLF001 - the one place


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Collect without looking for garbage, and never look through what lives until the end."""
    gc.disable()
    worker = getattr(session.config, "workerinput", None)
    try:
        if worker is not None:
            shared_rewriting.store_share(
                session.config.pluginmanager.rewrite_hook,
                session.config.args,
                int(worker["workerid"].removeprefix("gw")),
                worker["workercount"],
            )
        return (yield)
    finally:
        _include_again.append(exclude_present())
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Free what collecting a file has left before the next: the youngest objects are looked at.

    They are looked at once, since what is left of them is excluded like all the rest.
    """
    report = yield
    if isinstance(collector, pytest.Module):
        gc.collect(0)
        gc.freeze()
    return report


def _longest_first(items: list[pytest.Item]) -> None:
    """Sort files: those of longest_files.txt in its order, then those of the most tests."""
    lines = LONGEST_FILES.read_text(encoding="utf-8").splitlines()
    longest = [line.split()[1] for line in lines if not line.startswith("#")]
    places = {file: place for place, file in enumerate(longest)}
    files = [item.nodeid.partition("::")[0] for item in items]
    counts = Counter(files)
    order = {file: (places.get(file, len(places)), -counts[file]) for file in counts}
    items.sort(key=lambda item: order[item.nodeid.partition("::")[0]])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        _longest_first(items)
    # Marks are made once, not for each of thirteen thousand tests.
    warned = pytest.mark.filterwarnings("error", _OF_HYPOTHESIS)
    long = pytest.mark.timeout(LONG_TIMEOUT)
    for item in items:
        item.add_marker(warned, append=False)
        is_long = item.get_closest_marker("long") is not None
        if is_long and item.get_closest_marker("timeout") is None:
            item.add_marker(long)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workerinput"):
        return  # ends at once
    for include_again in _include_again:
        include_again()  # DuckDB reports objects that are not collected
