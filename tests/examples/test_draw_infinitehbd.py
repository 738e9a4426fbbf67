"""The example draws what it is asked for, and says that nothing of it was measured."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = "examples/draw_infinitehbd.py"


@pytest.mark.long
def test_two_charts_are_drawn(tmp_path):
    page = tmp_path / "charts.html"
    asked = ["cross-tor-traffic", "aggregate-costs", "--output", str(page)]
    command = [sys.executable, "-W", "error", EXAMPLE, *asked]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    drawn = page.read_text()
    assert drawn.count('<svg class="lr-svg"') == 2
    assert "published: near zero below" in drawn
    assert "InfiniteHBD (K=3)" in drawn
    assert "nothing here was measured" in drawn
    assert "http" not in drawn.partition("<body")[2]


def test_a_chart_that_nobody_knows_is_named(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [EXAMPLE, "nonesuch"])
    main = runpy.run_path(str(ROOT / EXAMPLE))["main"]
    with pytest.raises(SystemExit, match="2"):
        main()
    assert "found 'nonesuch', expected one of waste-distribution" in capsys.readouterr().err
