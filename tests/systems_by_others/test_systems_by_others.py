"""A package of another project adds a published system; docs/systems.md tells how."""

import os
import re
import subprocess
import sys
from pathlib import Path

import preloaded
import pytest
from distributions import write_metadata
from generated import REFERENCE

ROOT = Path(__file__).parents[2]
CAROUSEL = Path(__file__).with_name("carousel")
GUIDE = ROOT / "docs" / "systems.md"
FILES = sorted(
    path.relative_to(CAROUSEL).as_posix()
    for path in CAROUSEL.rglob("*")
    if path.suffix in (".py", ".yaml", ".toml")
)
LIGHTRIG = "from lightrig.harness.cli import main; main()"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Metadata of the installed package, beside its folder."""
    folder = tmp_path_factory.mktemp("site")
    write_metadata(CAROUSEL, folder)
    return folder


def run(site: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `lightrig` or pytest in `folder`, with the package installed where there is a site."""
    program = ["-m", "pytest"] if words[0] == "pytest" else ["-c", LIGHTRIG]
    arguments = words[1:]
    path = os.pathsep.join([str(site), str(CAROUSEL), str(ROOT)])
    return subprocess.run(
        [sys.executable, *program, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("name", FILES)
def test_the_site_shows_every_file(name: str) -> None:
    page = REFERENCE["system-package"]()
    assert f"`{name}`\n\n" in page
    assert (CAROUSEL / name).read_text() in page


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)#]+)\)", GUIDE.read_text()))
def test_every_link_of_the_guide_exists(link: str) -> None:
    made_with_the_site = link.startswith("reference/")
    assert made_with_the_site or (GUIDE.parent / link).exists()


@pytest.mark.long
def test_its_testbed_is_generated_measured_and_compared_with_its_paper(
    site: Path, tmp_path: Path
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_carousel.py").write_text((CAROUSEL / "test_carousel.py").read_text())
    written = run(site, tmp_path, "lightrig", "generate", "carousel", "--output", "mine.yaml")
    assert written.returncode == 0, written.stderr
    checked = run(site, tmp_path, "lightrig", "check", "mine.yaml")
    assert checked.returncode == 0, checked.stderr

    tested = run(site, tmp_path, "pytest", "test_carousel.py", "--testbed", "mine.yaml")
    assert tested.returncode == 0, tested.stdout
    assert re.search(r"passed +test_carousel.*carousel\.cycle 13\d(\.\d)? ms", tested.stdout)
    (report,) = tmp_path.glob("results/runs/*/report.html")
    assert "Turns through all matchings" in report.read_text()

    compared = run(site, tmp_path, "lightrig", "claims", "carousel")
    assert compared.returncode == 0, compared.stdout
    matchings, cycle = compared.stdout.splitlines()
    assert matchings.startswith("matchings\tagrees\tcomputed\t3\t3\t")
    assert cycle.startswith("cycle\trecovered\tclosure\t")


@pytest.mark.long
def test_its_tests_are_deselected_on_a_testbed_without_its_plans(
    site: Path, tmp_path: Path
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_carousel.py").write_text((CAROUSEL / "test_carousel.py").read_text())
    run(site, tmp_path, "lightrig", "generate", "carousel", "--output", "mine.yaml")
    file = tmp_path / "mine.yaml"
    file.write_text(file.read_text().replace("matching", "pairing"))
    ended = run(site, tmp_path, "pytest", "--testbed", "mine.yaml", "--instruments", "simulated")
    assert "no plan matching0, with which a rotation begins" in ended.stdout


def test_without_the_package_the_system_is_unknown(tmp_path: Path) -> None:
    ended = preloaded.run(["lightrig", "claims", "carousel"], tmp_path)
    assert ended.returncode == 2
    assert "carousel: no such system; known are: acos, " in ended.stderr


def test_a_system_whose_part_cannot_be_imported_is_named(site: Path, tmp_path: Path) -> None:
    package = tmp_path / "carousel"
    package.mkdir()
    for file in (CAROUSEL / "carousel").iterdir():
        if file.is_file() and file.name != "claims.py":
            (package / file.name).write_bytes(file.read_bytes())
    info = tmp_path / "site"
    write_metadata(CAROUSEL, info)
    ended = subprocess.run(
        [sys.executable, "-c", LIGHTRIG, "claims", "carousel"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(info), str(tmp_path), str(ROOT)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2
    assert "system carousel: claims 'carousel.claims:COMPUTED' cannot be loaded" in ended.stderr
    assert "Traceback" not in ended.stderr
