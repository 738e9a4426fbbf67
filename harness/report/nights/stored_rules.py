"""Rules of a lab's baselines file, as a run kept them beside the testbed's description."""

import tempfile
from pathlib import Path

from lightrig.harness.quantities.registry import names_in_files
from lightrig.harness.record import Results, RunFacts
from lightrig.testbeds.baselines import Baselines, baselines_path, load_baselines


def stored_rules(results: Results, run: RunFacts, testbed: str) -> Baselines | None:
    """Return the rules that `run` kept of a testbed; None without any.

    Raises `TestbedError` for a file that cannot be read as rules.
    """
    described = run.header.get("descriptions", {}).get(testbed)
    if described is None:
        return None
    file = baselines_path(Path(described))
    text = results.stored_file(run, str(file))
    if text is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, file.name)
        path.write_bytes(text)
        return load_baselines(path, names_in_files())
