"""Tests name no private part of the product as a string of setattr; ruff refuses all other ways."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]


def patched_privates(text: str) -> Iterator[str]:
    """Yield each private name that a call of setattr or delattr is given as a string."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            name = node.func.id if isinstance(node.func, ast.Name) else name
            if name in ("setattr", "delattr", "__setattr__"):
                for argument in node.args[:2]:
                    value = argument.value if isinstance(argument, ast.Constant) else None
                    if isinstance(value, str) and re.search(r"^(lightrig\..*\.)?_[a-z]\w*$", value):
                        yield value


def test_no_test_patches_a_private_name() -> None:
    found = {
        str(file.relative_to(ROOT)): names
        for file in sorted((ROOT / "tests").rglob("*.py"))
        if (names := list(patched_privates(file.read_text(encoding="utf-8"))))
    }
    assert found == {}


def test_patches_of_private_names_are_found() -> None:
    text = (
        'monkeypatch.setattr("lightrig.harness.run._NAME", 1)\n'
        'monkeypatch.setattr("lightrig.harness.run._name", 1)\n'
        'setattr(lab, "_box", 1); setattr(lab, "box_", 1); object.__setattr__(lab, "_port", 2)\n'
        'monkeypatch.delattr(lab, "__init__")\n'
    )
    assert list(patched_privates(text)) == ["lightrig.harness.run._name", "_box", "_port"]
