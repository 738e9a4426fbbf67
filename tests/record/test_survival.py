"""Killed at any moment, a run keeps what it acknowledged and is whole again afterwards."""

import os
import random
import subprocess
import time
from pathlib import Path

import preloaded
from record.killed_writer import TESTS_EVERY

from lightrig.harness.record import Results, read_journal, recover, to_recover
from lightrig.harness.report import write_page

KILLS = range(5)
TESTS = Path(__file__).parents[1]


def acknowledged(results, run, after_s):
    """Kill a writer `after_s` after its first word; returns how many things it said are kept."""
    command = ("python", "-m", "record.killed_writer", results, run)
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    with preloaded.Process(command, env=environment, stdout=subprocess.PIPE) as writer:
        receive = writer.stdout.fileno()
        output, deadline = 0, None
        while deadline is None or time.monotonic() < deadline:
            output += len(os.read(receive, 1 << 16))
            deadline = deadline or time.monotonic() + after_s
        writer.kill()
        while more := os.read(receive, 1 << 16):
            output += len(more)
    return output // 8


def test_nothing_acknowledged_is_lost_to_kill_9(tmp_path):
    dice = random.Random(5)
    output = {f"r{n}": acknowledged(tmp_path, f"r{n}", dice.uniform(0, 0.04)) for n in KILLS}
    folders = list(to_recover(tmp_path))
    assert [folder.name for folder in folders] == sorted(output)
    for folder in folders:
        stored = read_journal(folder / "journal.jsonl")
        rows = [int(row.value) for _, row in stored.rows()]
        tests = [int(test.nodeid.removeprefix("test_")) for test in stored.tests]
        count = len(rows) + len(tests)
        assert output[folder.name] <= count <= output[folder.name] + 1
        assert sorted(rows + tests) == list(range(count))
        assert all(number % TESTS_EVERY == TESTS_EVERY - 1 for number in tests)
        recovered = recover(folder, write_page)
        assert recovered.facts.state == "recovered"
        assert len(recovered.facts.tests) == len(tests)
        assert Results(tmp_path).frame(run=folder.name)["value"].tolist() == rows
        assert "made from its journal" in recovered.report.read_text()
    assert [one.state for one in Results(tmp_path).runs()] == ["recovered"] * len(output)
