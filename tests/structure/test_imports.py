"""No file refers to another that refers back, through any number of files between.

Imports for type checkers count: who reads one of the files has to read the others too.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("harness", "instruments", "testbeds")


def imported(file: Path, modules: dict[str, Path]) -> Iterator[Path]:
    """Yield the files of `modules` that a file imports, also within functions.

    A package that passes on what its modules define is not counted as an import of these.
    """
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names] + [node.module]
        for name in names:
            found = modules.get(name.removeprefix("lightrig."))
            if found is not None and found != file and name.startswith("lightrig."):
                yield found


def circles(root: Path, folders: tuple[str, ...]) -> list[list[str]]:
    """Return the groups of files that refer to each other in a circle; packages' faces left out."""
    import networkx as nx

    files = [file for folder in folders for file in (root / folder).rglob("*.py")]
    files = [file for file in files if file.name != "__init__.py"]
    assert files
    modules = {".".join(file.relative_to(root).with_suffix("").parts): file for file in files}
    graph = nx.DiGraph((file, other) for file in files for other in imported(file, modules))
    groups = nx.strongly_connected_components(graph)
    return [sorted(str(f.relative_to(root)) for f in each) for each in groups if len(each) > 1]


def test_parts_that_know_each_other_well_have_no_circle() -> None:
    assert circles(ROOT, ("harness/plugin", "instruments/simulated")) == []


@pytest.mark.long
def test_no_files_refer_to_each_other_in_a_circle() -> None:
    assert circles(ROOT, FOLDERS) == []


def test_a_circle_through_a_third_file_is_found(tmp_path: Path) -> None:
    package = tmp_path / "harness"
    package.mkdir()
    (package / "a.py").write_text("from lightrig.harness.b import x\n")
    (package / "b.py").write_text("def f():\n    from lightrig.harness import c\n")
    guarded = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import lightrig.harness.a\n"
    (package / "c.py").write_text(guarded)
    (package / "d.py").write_text("import lightrig.harness.a\n")
    assert circles(tmp_path, ("harness",)) == [["harness/a.py", "harness/b.py", "harness/c.py"]]
