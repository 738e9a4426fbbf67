"""pytest-timeout's limit of a test's time, which does not hold while the lab is restored."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from lightrig.harness.signals import TIME_LIMITS


class Timeouts:
    """Follows pytest-timeout's timer by its hooks, and suspends it.

    Restoring may take minutes, as where a switch restarts, and is mostly a part of the last test,
    or of the first on the next testbed.

    Args:
        config: of the process that runs the tests.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._hooks: Any = config.hook
        self._running: tuple[pytest.Item, Any] | None = None

    def pytest_configure(self) -> None:
        """Suspend it wherever something is done uninterrupted."""
        TIME_LIMITS.append(self.suspended)

    def pytest_unconfigure(self) -> None:
        """Leave a program that goes on as it was."""
        TIME_LIMITS.remove(self.suspended)

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_timeout_set_timer(self, item: pytest.Item, settings: Any) -> None:
        """Note that a timer begins; pytest-timeout sets it next."""
        self._running = item, settings

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_timeout_cancel_timer(self) -> None:
        """Note that it ends; pytest-timeout cancels it next."""
        self._running = None

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Run without the timer, which begins anew afterwards.

        Where it ran out before it was cancelled, its failure is raised afterwards.
        """
        running = self._running
        late: BaseException | None = None
        while running is not None and self._running is not None:
            try:
                self._hooks.pytest_timeout_cancel_timer(item=running[0])
            except pytest.fail.Exception as error:  # raised by the handler of SIGALRM
                late = error
        try:
            yield
        finally:
            if late is not None:
                raise late
            if running is not None:
                item, settings = running
                self._hooks.pytest_timeout_set_timer(item=item, settings=settings)
