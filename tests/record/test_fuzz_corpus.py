"""Inputs that once crashed a reader, or took it seconds, are read or refused by a typed error."""

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.campaigns.mutation_targets import CORPUS, Target, targets

INPUTS = sorted(path for path in CORPUS.glob("*/*") if path.is_file())
MOST_SECONDS = 1.0
"""Of processor time; the slowest took 10 s and takes milliseconds now."""
ATTEMPTS = 3
"""The least of these counts: the first one loads modules, and the machine may be busy."""


@pytest.fixture(scope="module")
def by_name() -> Mapping[str, Target]:
    return {target.name: target for target in targets()}


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_former_crash_ends_as_declared(path: Path, by_name: Mapping[str, Target]) -> None:
    target, data = by_name[path.parent.name], path.read_bytes()
    used = []
    while not used or (min(used) >= MOST_SECONDS and len(used) < ATTEMPTS):
        began = time.process_time()
        with contextlib.suppress(*target.errors):
            target.run(data)
        used.append(time.process_time() - began)
    assert min(used) < MOST_SECONDS


def test_what_is_changed_is_read_unchanged(by_name: Mapping[str, Target]) -> None:
    for target in by_name.values():
        for data in target.corpus:
            with contextlib.suppress(*target.errors):
                target.run(data)
    # The last line of a reply's data, which only a session that awaited it can have taken.
    replies = by_name["wire netconf"].corpus
    assert by_name["wire netconf"].run(replies[0]) == [{"ingress": "1", "egress": "9"}]


def test_each_kept_input_belongs_to_a_target(by_name: Mapping[str, Target]) -> None:
    assert {path.parent.name for path in INPUTS} <= by_name.keys()
