"""Training scripts of a lab's own on its circuits, judged by its limits.

LIGHTRIG_SCRIPTS names a JSON file, a list of `{"script": "train.py"}`: paths from the file's
folder, and where wanted `arguments`, `parallel` (`{"pp": 2, "dp": 2}`), `mode`, `results`, `ranks`
as for `lightrig train`, and the `sha256` of the script, which is checked. Without it there is no
test.
"""

import hashlib
import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import pytest

from lightrig.harness.bench import Fabric
from lightrig.harness.system_registry import RESULTS, TrainingRequest
from lightrig.harness.systems.opus.measurements.train_script import train

pytestmark = [pytest.mark.of_system("opus")]

LISTED = os.environ.get("LIGHTRIG_SCRIPTS")
ENTRIES: list[dict[str, Any]] = json.loads(Path(LISTED).read_text("utf-8")) if LISTED else []


def source_of(entry: dict[str, Any]) -> str:
    """Return the source of a listed script; skip where it is absent or another one."""
    path = Path(str(LISTED)).parent / entry["script"]
    if not path.is_file():
        pytest.skip(f"LIGHTRIG_SCRIPTS: {path} does not exist")
    source = path.read_bytes()
    expected = entry.get("sha256")
    if expected and (found := hashlib.sha256(source).hexdigest()) != expected:
        pytest.skip(f"LIGHTRIG_SCRIPTS: {path} has the SHA-256 {found}, not {expected}")
    return source.decode()


@pytest.mark.limits("train.step", "train.exposed_wait", "train.front_end")
@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["script"])
def test_a_script_keeps_its_limits(entry, bench, links, measure):
    """Each rank prints the same numbers on circuits as on a ring of all ranks."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    source = source_of(entry)
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


if not ENTRIES:
    del test_a_script_keeps_its_limits
