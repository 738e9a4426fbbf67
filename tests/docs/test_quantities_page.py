"""The example of docs/quantities.md runs."""

import re
from pathlib import Path

import preloaded

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "quantities.md"


def test_the_example_declares_records_and_judges(tmp_path):
    page = PAGE.read_text(encoding="utf-8")
    for name, text in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", page, re.DOTALL):
        (tmp_path / name).write_text(text, encoding="utf-8")
    (limit,) = re.findall(r"limits:\n(  isolation: .*)\n", page)
    testbed = (ROOT / "testbeds" / "opus.yaml").read_text(encoding="utf-8")
    testbed = testbed.replace("file: opus/", f"file: {ROOT}/testbeds/opus/")
    testbed = testbed.replace("limits:\n", f"limits:\n{limit}\n")
    (tmp_path / "mine.yaml").write_text(testbed, encoding="utf-8")
    check = ["lightrig", "check", "mine.yaml"]
    refused = preloaded.run(check, cwd=tmp_path)
    assert "no quantity 'isolation' is declared" in refused.stderr
    checked = preloaded.run([*check, "--declarations", "conftest.py"], cwd=tmp_path)
    assert checked.returncode == 0, checked.stderr
    options = ("--testbed", "mine.yaml", "--instruments", "simulated", "--results", "results")
    run = preloaded.run(["pytest", "test_isolation.py", *options], cwd=tmp_path)
    assert run.returncode == 0, run.stdout
    assert "isolation 35 dB" in run.stdout
    (report,) = (tmp_path / "results").glob("runs/*/report.html")
    assert "Isolation" in report.read_text(encoding="utf-8")
    # Made again where the conftest is not: the run has stored the declaration.
    report.unlink()
    again = preloaded.run(["lightrig", "report", "last", "--results", tmp_path / "results"], ROOT)
    assert again.returncode == 0
    page = report.read_text(encoding="utf-8")
    assert "Isolation" in page
    assert "Other quantities" not in page
