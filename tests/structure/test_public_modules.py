"""The public modules: their examples run, and pages import nothing else.

Their names are frozen in public_modules.txt, which `tests/generated.py` writes: a change there
breaks code outside, and gets a line in the changelog.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from distributions import write_metadata
from generated import PUBLIC_MODULES

from lightrig.harness.bench import bind
from lightrig.harness.system_registry import installed_systems
from lightrig.testbeds import load

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "public-modules.md"
INTERNAL = {
    "docs/training.md": "lightrig.harness.systems.opus.runtime",
    "examples/launch_on_ring.py": ("lightrig.harness", "lightrig.instruments", "lightrig.testbeds"),
}
"""Imports of pages and examples beside the public modules: parts of one published system, and a
launcher of jobs.
"""


IMPORT = re.compile(r"^ *(?:from|import) (lightrig\.[\w.]+)", re.MULTILINE)


@pytest.mark.parametrize(
    "path",
    [
        *(ROOT / "docs").rglob("*.md"),
        ROOT / "README.md",
        *(ROOT / "examples").rglob("*.py"),
        *(ROOT / "tests" / "drivers_by_others").rglob("acme*.py"),
        *(ROOT / "tests" / "systems_by_others" / "carousel").rglob("*.py"),
    ],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_pages_and_examples_import_public_modules_alone(path: Path) -> None:
    name = path.relative_to(ROOT).as_posix()
    text = path.read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL) if path.suffix == ".md" else [text]
    public = {f"lightrig.{module}" for module in PUBLIC_MODULES}
    found = {module for block in blocks for module in IMPORT.findall(block)} - public
    assert {module for module in found if not module.startswith(INTERNAL.get(name, "-"))} == set()
    assert bool(found) == (name in INTERNAL)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Return a folder with the files of the page, and their metadata in `site` beside them."""
    folder = tmp_path / "package"
    folder.mkdir()
    for name, text in re.findall(r"^`([\w.]+)`\n\n```\w+\n(.*?)```", PAGE.read_text(), re.M | re.S):
        (folder / name).write_text(text)
    write_metadata(folder, tmp_path / "site")
    return folder


def test_the_driver_meets_its_device_on_the_wire(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(package)
    monkeypatch.syspath_prepend(package.parent / "site")
    installed_systems.cache_clear()
    bench = bind(load(package / "bench.yaml"), "simulated", seed=1)
    try:
        laser, meter = (bench.instruments[name] for name in ("laser", "meter"))
        laser.set_power(1, -3.0)  # type: ignore[attr-defined]
        laser.set_emission(1, on=True)  # type: ignore[attr-defined]
        meter.prepare([1], wavelength_nm=1310.0)  # type: ignore[attr-defined]
        # The connector between them loses up to half a decibel.
        assert meter.power([1]).dbm[1] == pytest.approx(-3.25, abs=0.25)  # type: ignore[attr-defined]
        assert meter.wavelength.get() == pytest.approx(1310.0)  # type: ignore[attr-defined]
        assert installed_systems()["lit-rack"].title == "Lit Rack"
    finally:
        bench.close()
        installed_systems.cache_clear()


@pytest.mark.long
def test_the_example_is_checked_measured_and_reported(package: Path) -> None:
    path = os.pathsep.join(map(str, (package.parent / "site", package, ROOT)))
    environment = {**os.environ, "PYTHONPATH": path}
    options = ("--testbed", "bench.yaml", "--instruments", "simulated", "--rootdir", ".")
    for command in (
        ("lightrig.harness.cli", "check", "bench.yaml", "--declarations", "conftest.py"),
        ("pytest", "test_launched_power.py", *options),
    ):
        program = ("-m", *command)
        if command[0] != "pytest":
            program = ("-c", "from lightrig.harness.cli import main; main()", *command[1:])
        ended = subprocess.run(
            [sys.executable, *program],
            cwd=package,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "launched_power" in ended.stdout
    (report,) = package.glob("results/runs/*/report.html")
    assert "Launched power by test" in report.read_text()
