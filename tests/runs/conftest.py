"""Real runs: pytest as a process of its own, in a lab that this process serves."""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from bench.served_lab import ServedLab
from runs.running import Started, started
from typer.testing import CliRunner, Result

from lightrig.harness.cli.app import application
from lightrig.instruments.clock import SystemClock

Start = Callable[..., Started]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a run with these arguments; the lab's environment may be given."""
    with contextlib.ExitStack() as stack:
        count = itertools.count()

        def begin(
            *arguments: object,
            environment: Mapping[str, str] | None = None,
            fresh: bool = False,
        ) -> Started:
            results = tmp_path / f"results{next(count)}"
            return stack.enter_context(started(arguments, results, environment, fresh=fresh))

        yield begin


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[ServedLab]:
    with contextlib.closing(ServedLab(tmp_path)) as served:
        yield served


@pytest.fixture
def restore(
    lab: ServedLab, monkeypatch: pytest.MonkeyPatch, all_is_carried_out: None
) -> Callable[..., Result]:
    """`lightrig restore` of the lab."""

    def restored(*options: str) -> Result:
        for name, value in lab.environment.items():
            monkeypatch.setenv(name, value)
        command = ["restore", str(lab.file), *options]
        return CliRunner().invoke(application("restore"), command)

    return restored


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], None]:
    """Wait until something is so, for 120 s at most: a run has to start first."""

    def wait(so: Callable[[], bool]) -> None:
        clock = SystemClock()
        deadline = clock.now() + 120_000_000_000
        while not so():
            assert clock.now() < deadline, "it never came to be so"
            clock.sleep(10_000_000)

    return wait
