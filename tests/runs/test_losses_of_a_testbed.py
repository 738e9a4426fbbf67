"""The suite on insertion loss, as a process of its own."""

import json

import pytest
from running import ROOT, started

OPUS = ROOT / "testbeds" / "opus.yaml"


@pytest.mark.long
def test_every_circuit_of_opus_is_measured(tmp_path):
    arguments = ["suites/test_insertion_loss.py", "--testbed", OPUS, "--instruments", "simulated"]
    with started([*arguments, "-n0"], tmp_path / "results") as run:
        ended = run.end()
    assert ended.code == 0, ended.output
    assert "1 passed, 1 deselected in" in ended.output
    assert "opus: 1 test not applicable: no climate chamber (1)" in ended.output
    rows = [json.loads(line) for line in ended.rows]
    losses = {row[1] for row in rows if row[2] == "insertion_loss"}
    assert len(losses) == 16 * 16
    assert "ocs 1>33" in losses
