"""Cells of the page in a test, and a test's body in a cell: simulated, one seed, one result."""

import ast
import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import preloaded
import pytest
from notebooks.workbench import FILE, ROOT

from lightrig.api import Results, open_lab

if TYPE_CHECKING:
    import pandas as pd


PAGE = (ROOT / "docs" / "how-to" / "at-the-bench.md").read_text()
FIRST, *LATER = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
CELLS = "\n".join(
    block for block in LATER if not re.search(r"\blab\.", block) and "def test_" not in block
)
TEST = next(block for block in LATER if "def test_" in block)
NAMES = re.findall(r"\blab\.(\w+)", FIRST)
SEED = 3


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The workbench with servers whose time is virtual."""
    monkeypatch.chdir(tmp_path)
    text = FILE.read_text()
    written = text.replace("netns://{name}", "ssh://{name}.invalid").replace(
        "model: veth", "numa: 0"
    )
    assert written.count("invalid") == text.count("invalid") + 1
    (tmp_path / "bench.yaml").write_text(written)
    return tmp_path / "bench.yaml"


def in_a_test(file: Path, source: str) -> "pd.DataFrame":
    """Return the rows of a test file."""
    (file.parent / "test_it.py").write_text(source)
    command = ["pytest", "test_it.py", "--testbed", "bench.yaml", "--instruments", "simulated"]
    ended = preloaded.run(
        [*command, "--seed", str(SEED), "--by-hand", "--results", "tested"], cwd=file.parent
    )
    assert ended.returncode == 0, ended.stdout
    return rows_in(file.parent / "tested")


def in_cells(file: Path, source: str, bound: Sequence[str] = NAMES) -> "pd.DataFrame":
    """Return the rows of cells, the first of which opens the lab."""
    lab = open_lab(file, "simulated", seed=SEED, results=file.parent / "typed", notify=len)
    names: dict[str, Any] = {name: getattr(lab, name) for name in bound}
    exec(source, names)  # as a kernel does
    lab.close()
    return rows_in(file.parent / "typed")


def rows_in(results: Path) -> "pd.DataFrame":
    (run,) = Results(results).runs()
    assert run.by_hand
    found = Results(results).frame(run=run.run)
    return found.drop(columns=["run", "test"])


def test_cells_pasted_into_a_test_measure_the_same(file: Path) -> None:
    import pandas as pd

    body = textwrap.indent(CELLS, "    ")
    tested = in_a_test(file, f"def test_it({', '.join(NAMES)}):\n{body}")
    typed = in_cells(file, CELLS)
    assert {"insertion_loss", "optical_power", "carrier_up"} <= set(typed["quantity"])
    assert len(typed) > 30
    pd.testing.assert_frame_equal(typed, tested)


def test_a_test_pasted_into_a_cell_measures_the_same(file: Path) -> None:
    import pandas as pd

    # Virtual NICs train their links for longer than the kernel's.
    source = TEST.replace("250e6", "250e9")
    (function,) = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef)
    assert {argument.arg for argument in function.args.args} <= {*NAMES}
    typed = in_cells(file, "\n".join(map(ast.unparse, function.body)))
    pd.testing.assert_frame_equal(typed, in_a_test(file, source))


def test_a_test_with_events_of_a_pair_of_plans_measures_the_same(file: Path) -> None:
    """The body is that of the suite of reconfigurations."""
    import pandas as pd

    names = ["measure", "bring_up", "measure_outage", "transition", "events"]
    body = """bring_up(transition.before)
for index in events:
    measure_outage(transition.before if index % 2 else transition.after)
"""
    source = f"def test_it({', '.join(names)}):\n{textwrap.indent(body, '    ')}"
    tested = in_a_test(file, source).drop(columns=["before", "after"])
    typed = in_cells(file, body, names).drop(columns=["before", "after"])
    assert tested["event"].nunique() == 60
    pd.testing.assert_frame_equal(typed[sorted(typed)], tested[sorted(tested)])
