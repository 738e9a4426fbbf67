"""Generic code names no published system: what it needs of one, it loads through the registry."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from lightrig.harness.claims.published import published_files
from lightrig.harness.system_registry import installed_systems

ROOT = Path(__file__).parents[2]
FOLDERS = ("harness", "instruments", "testbeds")
SYSTEMS = ROOT / "harness" / "systems"


def generic_files() -> Iterator[Path]:
    """Yield the Python files of all packages but those of systems and the suites."""
    for folder in FOLDERS:
        for file in (ROOT / folder).rglob("*.py"):
            if file.parent == SYSTEMS or SYSTEMS not in file.parents:
                yield file


def mentions(text: str, names: Iterable[str]) -> list[str]:
    """Return the lines that name a system, in code, strings or comments, each with its number."""
    return [
        f"{number}: {line.strip()}"
        for number, line in enumerate(text.splitlines(), 1)
        if any(name in line.lower().replace("math.acos", "") for name in names)
    ]


def test_generic_code_names_no_system() -> None:
    names = installed_systems().keys() | published_files().keys()
    files = list(generic_files())
    assert len(files) > 200
    found = [
        f"{file.relative_to(ROOT)}:{line}"
        for file in files
        for line in mentions(file.read_text("utf-8"), names)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "line",
    [
        "from lightrig.harness.systems.opus import SYSTEM",
        "class OpusError(LightrigError): ...",
        'example = "lightrig check testbeds/mixnet.yaml"',
        "ring = 3  # as RailX has it",
    ],
)
def test_a_name_in_code_string_or_comment_is_found(line: str) -> None:
    assert mentions(f"import math\n\n{line}\n", installed_systems()) == [f"3: {line}"]


def test_the_arc_cosine_names_no_system() -> None:
    assert not mentions("angle = math.acos(x)", ["acos"])
