"""pytest-timeout's timer, as the plugin suspends it."""

from types import SimpleNamespace
from typing import Any

import pytest

from lightrig.harness.plugin.timeouts import Timeouts


class Hooks:
    """pytest's hooks, as where pytest-timeout is installed; `late`: the timer has just run out."""

    def __init__(self, *, late: bool = False) -> None:
        config: Any = SimpleNamespace(hook=self)
        self.timeouts = Timeouts(config)
        self.late = late
        self.noted: list[Any] = []

    def pytest_timeout_set_timer(self, item: Any, settings: Any) -> None:
        self.timeouts.pytest_timeout_set_timer(item, settings)
        self.noted.append(("set", item, settings))

    def pytest_timeout_cancel_timer(self, item: Any) -> None:
        if self.late:
            self.late = False
            pytest.fail("out of time")
        self.timeouts.pytest_timeout_cancel_timer()
        self.noted.append(("cancel", item))


def test_a_timer_that_runs_is_cancelled_and_begins_anew() -> None:
    hooks = Hooks()
    hooks.pytest_timeout_set_timer("test_a", "5 s")
    with hooks.timeouts.suspended():
        hooks.noted.append("restore")
        with hooks.timeouts.suspended():  # as for each of two things that are restored
            hooks.noted.append("more")
    expected = [("cancel", "test_a"), "restore", "more", ("set", "test_a", "5 s")]
    assert hooks.noted[1:] == expected


def test_where_no_timer_runs_none_begins() -> None:
    """With `timeout_func_only` pytest-timeout cancels no timer after the test itself."""
    hooks = Hooks()
    hooks.pytest_timeout_set_timer("test_a", "5 s")
    hooks.pytest_timeout_cancel_timer("test_a")
    hooks.noted.clear()
    with hooks.timeouts.suspended():
        hooks.noted.append("restore")
    assert hooks.noted == ["restore"]


def test_a_timer_that_runs_out_before_it_is_cancelled_fails_after_restoring() -> None:
    hooks = Hooks(late=True)
    hooks.pytest_timeout_set_timer("test_a", "5 s")
    with pytest.raises(pytest.fail.Exception, match="out of time"), hooks.timeouts.suspended():
        hooks.noted.append("restore")
    assert hooks.noted[1:] == [("cancel", "test_a"), "restore"]
