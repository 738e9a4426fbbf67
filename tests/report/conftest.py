"""Small runs, made through the journal itself."""

import re

import pytest
from report_runs import HEADER, YAML, Page

from lightrig import testbeds
from lightrig.harness.record import Journal, read_journal
from lightrig.harness.report import sections


@pytest.fixture
def small(tmp_path):
    """A description with two plans; light comes in time, carriers never do."""
    path = tmp_path / "small.yaml"
    path.write_text(YAML)
    return testbeds.load(path)


@pytest.fixture
def journal(tmp_path):
    """A new journal in a folder of its own."""
    return Journal(tmp_path / "journal.jsonl", HEADER)


@pytest.fixture
def show(journal, small):
    """Write contexts with their rows into the journal, close it, and read the fragment."""

    def show(*parts, described=None, close=True):
        for one, measured in parts:
            journal.append_many(one, measured)
        if close:
            journal.close({"exit": 0})
        found = {"small": small} if described is None else described
        return Page(sections(read_journal(journal.path), found))

    return show


@pytest.fixture
def svg_of():
    """Return the drawing of a page whose label begins with some words."""

    def svg_of(page, label):
        drawings = re.findall(r"<svg.*?</svg>", page.fragment, re.DOTALL)
        return next(one for one in drawings if f'aria-label="{label}' in one)

    return svg_of
