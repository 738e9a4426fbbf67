"""A browser for the tests of pages, where there is one."""

from collections.abc import Iterator

import pytest
from browser import Browser, program


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium without a window; its tests are skipped where it is not installed."""
    if program() is None:
        pytest.skip("no chromium on this machine: apt-get install chromium")
    with Browser() as found:
        yield found
