"""Pages on security promise what a test shows, and name every listener."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "threat-model.md").read_text()
PROMISES = (ROOT / "docs" / "appendix" / "promises.md").read_text()
SHOWN = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", PAGE + PROMISES)))
LISTENING = {"create_server", "bind", "listen", "request_port_forward", "Worker", "LocalCluster"}


def section(title: str, page: str = PAGE) -> str:
    return page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def rows(text: str) -> list[list[str]]:
    """Return the cells of all tables, without their heads."""
    tables = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    return [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for table in tables
        for line in table.splitlines()[2:]
    ]


def test_every_promise_names_a_test() -> None:
    promises = rows(section("Promises", PROMISES)) + rows(section("Light and heat", PROMISES))
    assert len(promises) > 30
    assert not [row for row in promises if not re.search(r"`tests/[\w/]+\.py::test_\w+`", row[-1])]


@pytest.mark.parametrize("file", sorted({file for file, _ in SHOWN}))
def test_every_test_that_is_named_exists(file: str) -> None:
    tree = ast.parse((ROOT / file).read_text())
    tests = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    assert {name for of, name in SHOWN if of == file} <= tests


def listening_modules() -> set[str]:
    """Return the modules that open a socket on which others may call."""
    found = set()
    for folder in ("harness", "instruments"):
        for file in (ROOT / folder).rglob("*.py"):
            source = file.read_text()
            if not re.search(r"socket|distributed", source):
                continue
            for node in ast.walk(ast.parse(source)):
                if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                    continue
                of = ast.unparse(node.func.value)
                if node.func.attr in LISTENING and re.search(
                    r"sock|listening|listener$|transport|distributed", of
                ):
                    found.add(file.relative_to(ROOT).as_posix())
            if re.search(r"socketserver\.|TCPStore\(", source):
                found.add(file.relative_to(ROOT).as_posix())
    return found


def test_every_listener_is_listed() -> None:
    listed = set(
        re.findall(r"`((?:harness|instruments)/[\w/]+\.py)`", section("Listeners", PROMISES))
    )
    assert listed == listening_modules()
