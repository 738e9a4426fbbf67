"""Wheel and source distribution hold all that commands and suites need outside a checkout."""

import importlib.util
import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.long  # building a wheel fetches setuptools

TESTBED = next(
    block
    for block in re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    if "name: mine" in block
)


@pytest.fixture(scope="module", params=["wheel", "sdist"])
def installed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the distribution's content and nothing of the checkout."""
    if importlib.util.find_spec("pip") is None:
        pytest.skip("pip is not installed")
    folder = tmp_path_factory.mktemp(request.param)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    source = ROOT if request.param == "wheel" else sdist(folder)
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", folder, source], check=True)
    (wheel,) = folder.glob("*.whl")
    target = folder / "site"
    subprocess.run([*pip, "install", "--no-deps", "--target", target, wheel], check=True)
    return target


def sdist(folder: Path) -> Path:
    """Return the source distribution, made by `python -m build` as a release is."""
    tools = folder / "tools"
    venv.create(tools, with_pip=True)
    python = tools / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "build"], check=True)
    build = [python, "-m", "build", "--sdist", "--outdir", folder, ROOT]
    subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
    (made,) = folder.glob("*.tar.gz")
    return made


@pytest.fixture
def run(installed: Path, tmp_path: Path):
    """Run a module of the installed package in an empty folder; the checkout is not on its path."""
    (tmp_path / "mine.yaml").write_text(TESTBED)
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}

    def run(*arguments: str) -> str:
        ended = subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env={**clean, "PYTHONPATH": str(installed)},
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )
        assert ended.returncode in (0, 1), ended.stdout + ended.stderr
        return ended.stdout

    return run


def test_the_package_is_the_one_installed(run, installed):
    found = run("-c", "import lightrig.harness as h; print(h.__file__)").strip()
    assert Path(found).is_relative_to(installed)


@pytest.mark.parametrize("system", ["acos", "infinitehbd", "mixnet", "opus", "railx"])
def test_claims_of_every_system_are_computed(run, system):
    program = "from lightrig.harness.cli import main; main()"
    assert "agrees" in run("-c", program, "claims", system, "--results", "none")


def test_a_figure_of_a_paper_is_drawn(run, tmp_path):
    program = "from lightrig.harness.cli import main; main()"
    figure = ("--figure", "22", "--output", "fig22.svg", "--results", "none")
    assert "switch acknowledges" in run("-c", program, "claims", "mixnet", *figure, "--json")
    assert (tmp_path / "fig22.svg").read_text(encoding="utf-8").startswith("<?xml")


def test_a_testbed_file_is_checked(run):
    program = "from lightrig.harness.cli import main; main()"
    assert "straight (4 circuits, 2 links)" in run("-c", program, "check", "mine.yaml")


def test_suites_run_from_the_package(run):
    options = ("--testbed", "mine.yaml", "--instruments", "simulated", "--samples", "5")
    ended = run("-m", "pytest", "--pyargs", "lightrig.suites", *options)
    assert "test_reconfiguration.py::test_between_plans[mine/straight-to-crossed]" in ended
    assert " failed" not in ended


def test_the_example_of_the_readme_runs_with_the_dependencies_of_the_wheel(tmp_path: Path) -> None:
    """Nothing of this environment is there: what the wheel does not ask for is missing."""
    pip = ["-m", "pip", "--quiet", "--disable-pip-version-check"]
    wheels = ["wheel", "--no-deps", "--wheel-dir", tmp_path, ROOT]
    subprocess.run([sys.executable, *pip, *wheels], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    venv.create(tmp_path / "venv", with_pip=True)
    programs = tmp_path / "venv" / "bin"
    subprocess.run([programs / "python", *pip, "install", wheel], check=True)

    lab = tmp_path / "lab"
    (lab / "testbeds").mkdir(parents=True)
    (lab / "testbeds" / "mine.yaml").write_text(TESTBED)
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "PYTHON"))}

    def run(program: str, *arguments: str) -> str:
        ended = subprocess.run(
            [programs / program, *arguments],
            cwd=lab,
            env={**clean, "OCS_LOGIN": "admin:secret"},
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    assert "straight (4 circuits, 2 links)" in run("lightrig", "check", "testbeds/mine.yaml")
    measured = run("pytest", "--pyargs", "lightrig.suites", "--testbed", "testbeds/mine.yaml")
    assert "test_reconfiguration.py::test_between_plans[mine/straight-to-crossed]" in measured
    (page,) = (lab / "results" / "runs").glob("*/report.html")
    assert str(page) in measured
    assert "nights.html" in run("lightrig", "report")
