"""Names of the product use the field's words: a list of words that no name may contain."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("harness", "instruments", "testbeds", "suites", "benchmarks", "examples")

_LIST = """
told held gone lent own other others kept said says words lie lies liar lying planted way eyes
nobody everybody whoever patience trouble troubles troubled happening happenings occasion meddle
moods
"""
WORDS = frozenset(_LIST.split())
"""Words that a name must not contain: a reader finds the field's term, not these."""

_STRING = (
    r'"""(?:\\.|.)*?"""|"(?:\\.|[^"\\\n])*"|'
    r"'''(?:\\.|.)*?'''|'(?:\\.|[^'\\\n])*'"
)
_NO_CODE = re.compile(rf"\b((?:f|rf|fr)(?:{_STRING}))|{_STRING}|#[^\n]*", re.DOTALL | re.IGNORECASE)
"""Strings and comments; the first group is a string that may hold code."""
_IN_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


@functools.cache
def words_of(name: str) -> frozenset[str]:
    """Return the words that a name is made of, in lower case."""
    return frozenset(part.lower() for part in _IN_PARTS.findall(name))


def names_in(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Return each name that a module defines, with its line: classes, functions, variables."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.ClassDef() | ast.AsyncFunctionDef():
                yield node.lineno, node.name
                if isinstance(node, ast.ClassDef) or re.fullmatch("__.*__", node.name):
                    continue  # `other` is the customary argument of a comparison
                arguments = node.args
                for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
                    yield argument.lineno, argument.arg
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.lineno, node.attr


def wordy_names(text: str) -> list[str]:
    """Return `line: name` for each name of a module that contains a word of the list."""
    code = _NO_CODE.sub(lambda found: found[1] or " ", text)
    if not any(words_of(name) & WORDS for name in set(re.findall(r"\w+", code))):
        return []  # without a syntax tree: those of all modules take six seconds
    return [f"{line}: {name}" for line, name in names_in(ast.parse(text)) if words_of(name) & WORDS]


def modules() -> list[Path]:
    """Return every module of the product, of the suites, the benchmarks and the examples."""
    return sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("folder", FOLDERS)
def test_names_use_the_words_of_the_field(folder: str) -> None:
    found = {
        str(path.relative_to(ROOT)): wordy
        for path in modules()
        if path.relative_to(ROOT).parts[0] == folder
        and (wordy := wordy_names(path.read_text(encoding="utf-8")) + _wordy_stem(path))
    }
    assert not found, "\n".join(f"{path}:{name}" for path, names in found.items() for name in names)


def _wordy_stem(path: Path) -> list[str]:
    return [f"1: {path.stem}"] if words_of(path.stem) & WORDS else []


@pytest.mark.parametrize(
    "text",
    [
        "def _tell_words(): ...",
        'f"{[own for own in ports]}"',
        "class Liar: ...",
        "def f(own_ports): ...",
        "held = 1",
        "a.kept = 2",
    ],
)
def test_a_name_with_a_word_of_the_list_is_found(text: str) -> None:
    assert wordy_names(text)


def test_customary_names_are_allowed() -> None:
    assert not wordy_names(
        "class A:\n    def __eq__(self, other): return self.always is other.runway"
    )


def test_no_two_test_files_share_a_name() -> None:
    """pytest imports a test file by its bare name: of two that share it, one is not collected."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    names = [path.name for path in files]
    assert [str(path) for path in files if names.count(path.name) > 1] == []
