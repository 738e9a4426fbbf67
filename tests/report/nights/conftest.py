"""Nights that were planted once for all tests that only look."""

import re

import pytest
from planted_nights import two_testbeds

from lightrig.harness.report.nights import write_nights
from lightrig.harness.report.nights.series import read
from lightrig.harness.report.nights.series_changes import find_series_changes
from lightrig.harness.report.nights.source import Source


@pytest.fixture(scope="session")
def planted(tmp_path_factory):
    """A simulated testbed whose firmware becomes slow, one of hardware with a dirty fiber."""
    root = tmp_path_factory.mktemp("planted")
    two_testbeds(root, reports=True)
    return root


@pytest.fixture(scope="session")
def page(planted):
    """Their page."""
    return write_nights(planted, planted / "nights.html").read_text()


@pytest.fixture
def history_of():
    """Read the nights of a folder."""

    def history_of(root, last=90):
        return read(Source(root, last))

    return history_of


@pytest.fixture
def marks_of(history_of):
    """Each change that is found: testbed, simulated, quantity, subject and night."""

    def marks_of(root):
        history = history_of(root)
        return {
            (lab.testbed, lab.simulated, one.series.quantity, one.series.subject, change.index)
            for lab, moved in zip(history.labs, find_series_changes(history.labs), strict=True)
            for one in moved
            for change in one.changes
        }

    return marks_of


@pytest.fixture
def fold():
    """Return the fold of a quantity on a page, by the number of its lab and its name."""

    def fold(page, lab, quantity):
        start = page.index(f'<details class="ln-quantity" id="n{lab}-{quantity}"')
        return re.split('<details class="ln-quantity"|</section>', page[start + 9 :])[0]

    return fold
