"""Packs: the core works without them, finds those of others, and imports none to list commands."""

import ast
import os
import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
LAYERS = ("harness", "instruments", "suites")

BLOCKED = """
import sys

class Blocked:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if any(name == one or name.startswith(one + ".") for one in PACKS):
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Blocked)
"""


def python(code: str, *folders: Path, blocked: bool = False) -> subprocess.CompletedProcess[str]:
    """Run code in the checkout, with packages from `folders`; without all packs if `blocked`."""
    before = f"PACKS = {[*FOLDERS, 'lightrig.systems']!r}\n{BLOCKED}" if blocked else ""
    return subprocess.run(
        [sys.executable, "-c", before + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders)), "COLUMNS": "200"},
        timeout=900,
    )


def lightrig(*command: str, folder: Path | None = None, blocked: bool = False) -> Any:
    code = f"from lightrig.harness.cli import main; main({[*command]!r})"
    return python(code, *([folder] if folder else []), blocked=blocked)


def packs_of(root: Path) -> list[str]:
    """Return the folders of packs as packages, found by their manifests."""
    names = sorted(path.parent.name for path in (root / "harness").glob("*/pack.json"))
    folders = [
        (layer, name) for layer in LAYERS for name in names if (root / layer / name).is_dir()
    ]
    return [f"lightrig.{layer}.{name}" for layer, name in folders]


def imports_of_packs(root: Path) -> list[str]:
    """Return each import of a pack by a file of the core, also one within a function."""
    packs = packs_of(root)
    found = []
    for file in sorted(path for layer in LAYERS for path in (root / layer).rglob("*.py")):
        module = f"lightrig.{'.'.join(file.relative_to(root).with_suffix('').parts)}."
        if any(module.startswith(f"{pack}.") for pack in packs):
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            found += [
                f"{module}: {name}"
                for name in names
                if any(f"{name}.".startswith(f"{pack}.") for pack in packs)
            ]
    return found


FOLDERS = packs_of(ROOT)


def test_the_core_imports_no_pack() -> None:
    assert len(packs_of(ROOT)) >= 9
    assert imports_of_packs(ROOT) == []


def test_an_import_of_a_new_pack_is_found(tmp_path: Path) -> None:
    for name in ("harness/mirrors", "harness/bench", "instruments/mirrors", "suites"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "harness/mirrors/pack.json").write_text("{}")
    (tmp_path / "harness/mirrors/tilt.py").write_text("from lightrig.instruments import mirrors\n")
    lazy = "def tilt():\n    from lightrig.harness import mirrors\n"
    (tmp_path / "harness/bench/fabric.py").write_text(lazy)
    (tmp_path / "suites/test_it.py").write_text("import lightrig.instruments.mirrors.motor\n")
    assert imports_of_packs(tmp_path) == [
        "lightrig.harness.bench.fabric.: lightrig.harness.mirrors",
        "lightrig.suites.test_it.: lightrig.instruments.mirrors.motor",
    ]


def test_the_linter_protects_the_packs_that_it_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = project["tool"]["importlinter"]["contracts"]
    (contract,) = (one for one in contracts if one["name"].startswith("The core imports no pack"))
    assert set(contract["protected_modules"]) <= {*FOLDERS, "lightrig.systems"}
    assert contract["allowed_importers"] == contract["protected_modules"]


def test_a_testbed_is_checked_and_examined_without_packs() -> None:
    done = lightrig("check", "testbeds/rings8.yaml", blocked=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "NIC ports     56" in done.stdout
    done = lightrig("doctor", "testbeds/rings8.yaml", "--simulated", "--read-only", blocked=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "no problems in the simulated lab" in done.stdout


def test_what_needs_a_pack_names_the_missing_one() -> None:
    done = lightrig("check", "testbeds/opus.yaml", blocked=True)
    assert done.returncode == 2
    assert (
        "testbeds/opus.yaml:4:9: nothing is known of the system 'opus'; not installed here: packs"
        in done.stderr
    )
    assert "systems" in done.stderr
    done = lightrig("train", "testbeds/rails4.yaml", "--", "script.py", blocked=True)
    assert done.returncode == 2
    assert "its pack jobs is not installed: lightrig.harness.jobs is blocked" in done.stderr


@pytest.mark.long
def test_a_testbed_is_measured_and_reported_without_packs(tmp_path: Path) -> None:
    done = python(
        f"""
        import pytest
        suites = ["suites/test_reconfiguration.py", "suites/test_insertion_loss.py"]
        lab = ["--testbed", "testbeds/rings8.yaml", "--instruments", "simulated", "--samples", "1"]
        raise SystemExit(pytest.main([*suites, *lab, "-q", "--results", {str(tmp_path)!r}]))
        """,
        blocked=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (page,) = tmp_path.glob("runs/*/report.html")
    text = page.read_text()
    assert "Reconfiguration" in text
    assert "Insertion loss" in text


def test_commands_are_listed_without_importing_a_pack() -> None:
    done = python(
        f"""
        import sys
        from lightrig.harness.cli import help_text
        assert "orchestrate" in help_text()
        print(sorted(set({FOLDERS!r}) & set(sys.modules)))
        """
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """Install the example of docs/packs.md, a distribution with a pack."""
    page = (ROOT / "docs/packs.md").read_text()
    files = dict(re.findall(r"`(mirrors/[\w.]+)`\n\n```\w+\n(.*?)```", page, re.DOTALL))
    assert len(files) == 4
    (tmp_path / "mirrors").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    installed = tmp_path / "mirrors-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: mirrors\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text("[lightrig.packs]\nmirrors = mirrors\n")
    return tmp_path


def test_a_pack_of_another_distribution_brings_commands_and_quantities(foreign: Path) -> None:
    assert (
        "  tilt         Show the tilt of a mirror.\n" in lightrig("--help", folder=foreign).stdout
    )
    assert lightrig("tilt", "6", folder=foreign).stdout == "1.5 mrad\n"
    done = python(
        """
        from lightrig.harness.quantities.registry import declared_elsewhere
        print([one.name for one in declared_elsewhere()])
        """,
        foreign,
    )
    assert (done.stdout, done.stderr) == ("['mirror.tilt']\n", "")


@pytest.mark.parametrize(
    ("manifest", "wrong"),
    [
        ("{", "Expecting property name"),
        ('{"comands": {}}', "unknown comands; known are"),
        ('{"commands": {"tilt": {"module": "mirrors"}}}', "'summary'"),
        ('["tilt"]', "list"),
    ],
)
def test_a_manifest_that_is_none_is_named(foreign: Path, manifest: str, wrong: str) -> None:
    (foreign / "mirrors" / "pack.json").write_text(manifest)
    done = lightrig("check", "testbeds/rings8.yaml", folder=foreign)
    assert done.returncode == 2
    assert "pack mirrors: " in done.stderr
    assert "pack.json" in done.stderr
    assert wrong in done.stderr
    assert "Traceback" not in done.stderr


def test_a_part_that_cannot_be_loaded_is_named(foreign: Path) -> None:
    (foreign / "mirrors" / "quantities.py").write_text("import absent_library\n")
    done = lightrig("check", "testbeds/rings8.yaml", folder=foreign)
    assert done.returncode == 2
    assert (
        "pack mirrors: quantities 'mirrors.quantities:QUANTITIES' cannot be loaded" in done.stderr
    )
    assert "absent_library" in done.stderr
    assert "Traceback" not in done.stderr
