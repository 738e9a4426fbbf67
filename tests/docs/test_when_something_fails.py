"""The page of messages shows what the code prints: each of its first cells is in a string of it."""

import ast
import re
from functools import cache

import pytest
from pages import ROOT

PAGE = (ROOT / "docs" / "how-to" / "when-something-fails.md").read_text(encoding="utf-8")
PLACEHOLDER = re.compile(r"\b(?:FILE|NAME|PORT|HOST|DIR|N)\b")
ROWS = re.findall(r"^\| (`[^|]+`) \|", PAGE, re.MULTILINE)


@cache
def printed():
    """Return all texts of the code, one a line."""
    found = set()
    for folder in ("harness", "instruments", "testbeds"):
        for file in (ROOT / folder).rglob("*.py"):
            nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
            docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
            found |= {
                node.value
                for node in nodes
                if isinstance(node, ast.Constant) and isinstance(node.value, str)
                if id(node) not in docstrings
            }
    return "\n".join(found)


def test_the_page_has_the_messages():
    assert len(ROWS) >= 30


@pytest.mark.parametrize("row", ROWS)
def test_the_message_is_one_of_the_code(row):
    for message in re.findall(r"`([^`]+)`", row):
        for fragment in PLACEHOLDER.split(message):
            assert fragment.strip(" :") in printed(), fragment
