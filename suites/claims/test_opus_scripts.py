"""Training scripts of a lab's own on its circuits, judged by its limits.

LIGHTRIG_SCRIPTS names a JSON file, a list of `{"script": "train.py"}`: paths from the file's
folder, and where wanted `arguments`, `parallel` (`{"pp": 2, "dp": 2}`), `mode`, `results`, `ranks`
as for `lightrig train`, the `sha256` of the script, which is checked, and a `prelude`, a line of
Python that runs before it, such as one that sets a seed. What a script imports from its own folder
is found. Without it there is no test.
"""

import ast
import hashlib
import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import pytest

from lightrig.harness.bench import Fabric
from lightrig.harness.jobs.training import RESULTS, TrainingRequest
from lightrig.harness.systems.opus.measurements.train_script import train

pytestmark = [pytest.mark.of_system("opus")]

LISTED = os.environ.get("LIGHTRIG_SCRIPTS")


class NotListedError(Exception):
    """Raised for a script that is absent, or another one."""


def entries() -> list[dict[str, Any]]:
    """Return the list that LIGHTRIG_SCRIPTS names."""
    return json.loads(Path(LISTED).read_text("utf-8")) if LISTED else []


def source_of(entry: dict[str, Any]) -> str:
    """Return the source of a listed script behind its prelude; raises `NotListedError`."""
    path = Path(str(LISTED)).absolute().parent / entry["script"]
    if not path.is_file():
        raise NotListedError(f"LIGHTRIG_SCRIPTS: {path} does not exist")
    source = path.read_bytes()
    expected = entry.get("sha256")
    if expected and (found := hashlib.sha256(source).hexdigest()) != expected:
        raise NotListedError(f"LIGHTRIG_SCRIPTS: {path} has the SHA-256 {found}, not {expected}")
    before = f"import sys; sys.path.insert(0, {str(path.parent)!r}); {entry.get('prelude', '')}"
    return _behind_future_imports(before, source.decode())


def _behind_future_imports(before: str, source: str) -> str:
    """Return a source behind a line, which its imports from `__future__` must stay before."""
    body = ast.parse(source).body
    future = [
        node for node in body if isinstance(node, ast.ImportFrom) and node.module == "__future__"
    ]
    if not future:
        return f"{before}\n{source}"
    lines = source.splitlines()
    lines.insert(future[-1].end_lineno or 1, before)
    return "\n".join(lines) + "\n"


@pytest.mark.limits("train.step", "train.exposed_wait", "train.front_end")
@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry["script"])
def test_a_script_keeps_its_limits(entry, bench, links, measure):
    """Each rank prints the same numbers on circuits as on a ring of all ranks."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    try:
        source = source_of(entry)
    except NotListedError as error:
        pytest.skip(str(error))
    links.pause()
    fabric = Fabric(bench)
    began = bench.clock.now()
    request = TrainingRequest(
        source,
        Path(entry["script"]).name,
        entry.get("arguments", ()),
        entry.get("parallel", {}),
        entry.get("mode", "provisioning"),
        entry.get("results", RESULTS),
        entry.get("ranks"),
    )
    try:
        found = train(fabric, request, lambda part, rank, line: None)
    finally:
        fabric.restore()
    for line in found.lines():
        measure.note(line)
    measure.record(found.rows(began, {"script": request.name}))
    assert found.as_printed_before
    measure.judge("train.step", "train.exposed_wait", "train.front_end")


if not entries():
    del test_a_script_keeps_its_limits
