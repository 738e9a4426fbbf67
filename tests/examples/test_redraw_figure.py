"""The example runs on a run of one's own, and says whose figure is whose."""

import subprocess
import sys

import pytest
from record.recorded import MS, ROOT, begin, context

from lightrig.harness.record import Row, settle

STAGES = {"acknowledged": 196, "signal_recovered": 52, "firmware_up": 3000, "carrier_up": 3001}


@pytest.fixture
def results(tmp_path):
    """A run of 40 events of two ports each; the second port is a second slower."""
    journal = begin(tmp_path, "20260314-021500-abcdef")
    for stage, middle in STAGES.items():
        for event in range(40):
            for port in range(2):
                at = (middle + event % 5 + 1000 * port) * MS
                bounds = at, at - MS, at + MS
                row = Row(f"nic{port}", stage, *bounds, "ns", event, {"event": event})
                journal.append(context(), row)
    journal.close()
    settle(journal.path.parent)
    return tmp_path


@pytest.mark.long
def test_the_figure_is_drawn_from_the_last_run(results, tmp_path):
    output = tmp_path / "timeline.svg"
    command = [sys.executable, "-W", "error", "examples/redraw_figure.py", "last"]
    ended = subprocess.run(
        [*command, "--results", str(results), "--output", str(output)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    drawn = output.read_text()
    assert "ours simulated" in drawn
    assert "run 20260314-021500-abcdef" in drawn
    assert "published: ≈ 200 ms" in drawn
    assert "published: within ≈ 100 ms" in drawn
    # Of two ports one an event, in turn: the median lies between them.
    assert "698 ms (n = 40)" in drawn
    assert drawn.count("(n = 40)") == len(STAGES)
