"""Signals that come while switches and lent instruments are put back end nothing half-way."""

import signal
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from lightrig.harness.bench.opened_bench import restored_or_why
from lightrig.harness.bench.restoring import RestoreCutError
from lightrig.harness.plugin import fixtures
from lightrig.harness.plugin.collection import InstrumentSelection
from lightrig.instruments.core.capabilities import Restorable
from lightrig.testbeds import LightrigError

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture
def came() -> Iterator[list[int]]:
    """Signals that were handled."""
    noted: list[int] = []
    found = [signal.signal(number, lambda each, _: noted.append(each)) for number in SIGNALS]
    yield noted
    for number, handler in zip(SIGNALS, found, strict=True):
        signal.signal(number, handler)


def interrupted(done: list[str]) -> None:
    for number in SIGNALS:
        signal.raise_signal(number)
    done.append("put back")


class Laser(Restorable):
    """A light source whose settings are put back amid signals."""

    name = "laser"

    def __init__(self, done: list[str]) -> None:
        self._done = done

    def snapshot(self, channels: Sequence[int]) -> Callable[[], None]:
        """Return what puts the settings back."""
        return lambda: interrupted(self._done)


def test_a_lent_instrument_is_put_back_whatever_comes(came: list[int]) -> None:
    done: list[str] = []
    testbed = SimpleNamespace(name="bench", instruments={"laser": SimpleNamespace(channels=1)})
    bench: Any = SimpleNamespace(testbed=testbed, instruments={"laser": Laser(done)})
    chosen = InstrumentSelection({"light_source": "laser"})
    lent = fixtures.light_source.__wrapped__(bench, chosen)  # type: ignore[attr-defined]
    assert next(lent) is bench.instruments["laser"]
    signal.raise_signal(signal.SIGTERM)  # while a test has it, that is the test's
    assert (came, done) == ([signal.SIGTERM], [])
    assert list(lent) == []
    assert (came, done) == ([signal.SIGTERM], ["put back"])


def test_switches_are_restored_whatever_comes(came: list[int]) -> None:
    done: list[str] = []
    testbed: Any = SimpleNamespace(path="bench.yaml")
    assert restored_or_why(testbed, lambda: interrupted(done)) is None
    assert (came, done) == ([], ["put back"])


def test_what_is_not_restored_is_returned_and_a_cut_is_named() -> None:
    testbed: Any = SimpleNamespace(path="bench.yaml")
    error = LightrigError("ocs is not as found")

    def failing(problem: BaseException) -> Callable[[], None]:
        def restore() -> None:
            raise problem

        return restore

    assert restored_or_why(testbed, failing(error)) is error
    cut = restored_or_why(testbed, failing(SystemExit("time is over")))
    assert isinstance(cut, RestoreCutError)
    assert "run `lightrig restore bench.yaml`\n  SystemExit: time is over" in str(cut)
