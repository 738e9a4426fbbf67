"""The cells of docs/how-to/at-the-bench.md, in one kernel on a served workbench."""

import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import preloaded
import pytest
from notebooks.workbench import ROOT, Workbench, skip_where_impossible, workbench

from lightrig.api import Results, load
from lightrig.harness.record.run_folder import RunFacts

if TYPE_CHECKING:
    from nbclient import NotebookClient


PAGE = (ROOT / "docs" / "how-to" / "at-the-bench.md").read_text()
CELLS = [
    block
    for block in re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    if not block.startswith("# test_")
]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    skip_where_impossible()
    with workbench(tmp_path_factory.mktemp("bench")) as served:
        yield served


@pytest.fixture
def client(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> "Iterator[NotebookClient]":
    """A kernel, in the folder of the lab."""
    import nbformat
    from nbclient import NotebookClient

    for name, value in bench.environment.items():
        monkeypatch.setenv(name, value)
    notebook = nbformat.v4.new_notebook()
    kernel = NotebookClient(notebook, resources={"metadata": {"path": str(bench.file.parent)}})
    kernel.create_kernel_manager()
    # Not a kernel that is installed for the person: that of this interpreter.
    kernel.km.kernel_spec.argv = [
        sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"
    ]  # fmt: skip
    with kernel.setup_kernel():
        yield kernel


def run(client: "NotebookClient", source: str) -> dict[str, str]:
    """Run a cell; return what it shows, by kind."""
    import nbformat

    cell = nbformat.v4.new_code_cell(source)
    client.nb.cells.append(cell)
    client.execute_cell(cell, len(client.nb.cells) - 1)
    shown: dict[str, str] = {}
    for output in cell.outputs:
        if output.output_type == "stream":
            shown["text"] = shown.get("text", "") + output.text
        else:
            shown |= output.data
    return shown


def test_the_cells_of_the_page_measure_show_and_restore(
    bench: Workbench, client: "NotebookClient"
) -> None:
    assert bench.circuits() == set()
    earlier = {each.run for each in recorded_runs(bench)}
    shown = [run(client, cell) for cell in CELLS]
    loss, power, matrix, timeline = shown[1:5]
    printed = re.match(r"(\S+) \((\S+), (\S+)\) (\w+) (\d+)", loss["text"])
    assert printed is not None
    value, low, high, unit, n = printed.groups()
    assert (unit, n) == ("dB", "8")
    assert float(low) < float(value) < float(high)
    assert "95 % interval" in loss["text/html"]
    assert "simulated" in loss["text/html"]
    assert "dBm" in power["text/html"]
    assert "n = 20" in power["text/html"]
    assert matrix["text/html"].count("<tr>") == 17
    assert "●" not in matrix["text/html"]
    assert "carrier_up" in timeline["text"]
    assert "<svg" in timeline["text/html"]
    assert ">simulated</span>" in timeline["text/html"]
    assert bench.circuits() == set()
    (recorded,) = (each for each in recorded_runs(bench) if each.run not in earlier)
    assert (recorded.by_hand, recorded.state) == (True, "complete")
    # The run's report, made from its rows, draws the event with the same bars.
    lightrig(bench, "report", recorded.run)
    page = (bench.file.parent / "results" / "runs" / recorded.run / "report.html").read_text()
    bars = re.findall(r'<path class="lr-bar[^"]*" d="([^"]+)"', timeline["text/html"])
    assert len(bars) > 3
    assert all(each in page for each in bars)


def test_a_kernel_that_ends_restores(bench: Workbench, client: "NotebookClient") -> None:
    from nbclient.exceptions import CellExecutionError
    from nbclient.util import run_sync

    run(client, CELLS[0])
    run(client, 'fabric.apply(fabric.plans["straight"])')
    assert bench.circuits() == {"1>19", "2>20", "3>17", "4>18"}
    interrupted = "import signal\nfor _ in range(2):\n    signal.raise_signal(signal.SIGINT)"
    for _ in range(2):  # what the person does who presses Stop twice; the lab stays open
        with pytest.raises(CellExecutionError, match="KeyboardInterrupt"):
            run(client, interrupted)
    assert run(client, "lab.circuits('ocs')")["text/plain"] == "ocs: 1>19, 2>20, 3>17, 4>18"
    assert lightrig(bench, "who", bench.file).count("for a notebook, run 2") == len(lab_of(bench))
    run_sync(client.km.shutdown_kernel)()
    assert bench.circuits() == set()


def recorded_runs(bench: Workbench) -> list[RunFacts]:
    """Return the runs of the bench, whichever tests of this file have run."""
    folder = bench.file.parent / "results"
    return list(Results(folder).runs()) if folder.exists() else []


def lightrig(bench: Workbench, *arguments: object) -> str:
    """Return what a command prints."""
    ended = preloaded.run(["lightrig", *arguments], bench.file.parent, bench.environment)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def lab_of(bench: Workbench) -> list[str]:
    """Return the switches, servers and instruments of the workbench."""
    testbed = load(bench.file)
    return [*testbed.switches, *testbed.servers, *testbed.instruments]
