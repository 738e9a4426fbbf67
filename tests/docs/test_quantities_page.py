"""The example of docs/quantities.md runs."""

import re
from pathlib import Path

import preloaded
import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "quantities.md"


@pytest.mark.parametrize(
    "section", ["Isolation", pytest.param("Insertion loss", marks=pytest.mark.long)]
)
def test_the_example_declares_records_and_judges(tmp_path, section):
    page = PAGE.read_text(encoding="utf-8")
    assert page.count('section="Isolation"') == 1
    page = page.replace('section="Isolation"', f'section="{section}"')
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
    shown = report.read_text(encoding="utf-8")
    (answer,) = re.findall(r"<tr><td>isolation <a.*?</tr>", shown)
    assert "pass" in answer
    assert "35 dB" in answer
    assert "not measured" not in answer
    (table,) = re.findall(r'aria-label="isolation"><table.*?</table>', shown)
    assert "35 dB" in table
    assert "pass" in table
    # Made again where the conftest is not: the run has stored the declaration.
    report.unlink()
    again = preloaded.run(["lightrig", "report", "last", "--results", tmp_path / "results"], ROOT)
    assert again.returncode == 0
    page = report.read_text(encoding="utf-8")
    assert section in page
    assert "Other quantities" not in page
