"""testbeds/workbench.yaml and what is stored with it."""

import re

import pytest
from notebooks.workbench import FILE, ROOT, skip_where_impossible

from lightrig.harness.bench import bind
from lightrig.harness.measure.insertion_loss.references import simulated_references
from lightrig.testbeds import load
from lightrig.testbeds.references import load_references, references_path


def test_no_night_measures_it() -> None:
    night = re.search(r"^NIGHT .*(?:\\\n.*)*", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert night is not None
    assert "testbeds/namespaces.yaml" in night[0]
    assert FILE.name not in night[0]


def test_stored_references_are_those_of_the_devices_that_are_served() -> None:
    skip_where_impossible()
    bench = bind(load(FILE), "simulated", 0)
    try:
        of_devices = next(s for s in simulated_references(bench).sets if s.wavelength_nm == 1310)
    finally:
        bench.close()
    (stored,) = load_references(references_path(FILE)).sets
    for kind in ("launch", "offset"):
        known = stored.values(kind)
        assert known == {p: pytest.approx(v, abs=1e-4) for p, v in of_devices.values(kind).items()}
    assert stored.checks == {c: pytest.approx(db, abs=1e-4) for c, db in of_devices.checks.items()}
