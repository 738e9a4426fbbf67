"""Kernel messages from the time of a test are evidence of it, on its card and its page."""

import json
import re
from html import unescape
from pathlib import Path

from runs.running import started

LAB = (Path(__file__).parents[1] / "report" / "causes_lab.yaml").read_text(encoding="utf-8")

SUITE = """
import pytest

def test_passes(bring_up, testbed):
    bring_up(testbed.plans["straight"])

def test_fails(bring_up, testbed):
    bring_up(testbed.plans["crossed"])
    assert False, "server0.nic0.p0: slow"

def test_sees_nothing(bench):
    assert False, "server1: slow"
"""


NETDEVS = ("ens1f0", "ens1f1")
"""By the file, on both servers."""


def test_lines_of_a_test_that_fails_reach_every_reader(tmp_path: Path) -> None:
    (tmp_path / "lab.yaml").write_text(LAB, encoding="utf-8")
    (tmp_path / "test_it.py").write_text(SUITE, encoding="utf-8")
    chosen = ("--testbed", tmp_path / "lab.yaml", "--instruments", "simulated")
    options = (tmp_path / "test_it.py", *chosen)
    with started(options, tmp_path / "results", page=True) as run:
        ended = run.end()
    (journal,) = ended.results.glob("runs/*/journal.jsonl")
    lines = [json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines()]
    tests = [one["test"] for one in lines if isinstance(one, dict) and "nodeid" in str(one)]
    passes, fails, sees_nothing = tests
    assert [each["outcome"] for each in tests] == ["passed", "failed", "failed"]
    assert "kernel" not in passes["details"]
    assert "kernel" not in sees_nothing["details"]
    logged = fails["details"]["kernel"]
    # A change of plan takes every link down and up again, and none of it was in the test before.
    by_port = {
        (server, netdev, state)
        for server in ("server0", "server1")
        for netdev in NETDEVS
        for state in ("down", "up")
        if any(
            f"s {server}: mlx5_core" in one and f"{netdev}: Link {state}" in one for one in logged
        )
    }
    assert len(by_port) == len(logged) == 8
    starts = [float(one.partition(" to ")[0]) for one in logged]
    assert starts == sorted(starts)
    assert starts[0] > -0.01
    (finding,) = fails["details"]["findings"]
    assert finding["meanwhile"] == logged
    assert logged[0] in ended.output
    card = re.search(r'class="lr-cause">.*?</article>', ended.page.read_text("utf-8"), re.DOTALL)
    assert card is not None
    assert all(one in unescape(card[0]) for one in logged)
