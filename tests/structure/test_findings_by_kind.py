"""What is wrong is recognised by the kind of a finding, never by words in a sentence."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "harness"
READERS = [
    *(ROOT / name for name in ("components.py", "findings.py")),
    *(path for room in ("doctor", "report", "statistics") for path in (ROOT / room).rglob("*.py")),
]
WITHOUT_PATTERNS = ("causes.py", "components.py", "findings.py", "last_night.py", "night_causes.py")
"""Files that decide what is wrong and where: these have no use for a regular expression."""
SENTENCES = {"case", "evidence", "message", "reason", "sentence", "subject", "text", "why"}
SEARCHES = {"count", "endswith", "find", "index", "search", "startswith"}


def _names(node: ast.expr) -> set[str]:
    """Return the names of which the value of an expression is a part, or one of several."""
    return {
        each.attr if isinstance(each, ast.Attribute) else each.id
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute | ast.Name)
    }


def searches_in(source: str, *, patterns: bool) -> Iterator[str]:
    """Yield the lines that look for words in a sentence; `patterns`: also those that import re."""
    for node in ast.walk(ast.parse(source)):
        found = False
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            right = node.comparators[0]
            found = isinstance(right, ast.Attribute | ast.Name) and bool(_names(right) & SENTENCES)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            found = node.func.attr in SEARCHES and bool(_names(node.func.value) & SENTENCES)
        elif isinstance(node, ast.Import) and patterns:
            found = any(each.name == "re" for each in node.names)
        if found:
            yield f"{node.lineno}: {ast.unparse(node)}"  # type: ignore[attr-defined]


@pytest.mark.parametrize("path", READERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_fault_is_recognised_by_words(path: Path) -> None:
    patterns = path.name in WITHOUT_PATTERNS
    assert list(searches_in(path.read_text(encoding="utf-8"), patterns=patterns)) == []


@pytest.mark.parametrize(
    "line",
    [
        "SWAPPED in reason",
        '"no light" not in one.finding.evidence',
        'any("method monitors" in one.case for one in board.lab.series)',
        'reason.startswith("the harness measured")',
        'str(one.text).find("stuck")',
        "import re",
    ],
)
def test_a_search_in_a_sentence_is_noticed(line: str) -> None:
    assert len(list(searches_in(line, patterns=True))) == 1


@pytest.mark.parametrize(
    "line", ["kind in KINDS", 'one.kind == "no light"', '"fault" in conditions']
)
def test_a_comparison_of_values_is_none(line: str) -> None:
    assert not list(searches_in(line, patterns=True))
