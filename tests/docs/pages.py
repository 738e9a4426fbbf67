"""Commands of the documentation: the lines of its shell blocks."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

_SHELL = re.compile(r"^( *)```sh\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(
    r"^`(?P<above>[\w./-]+)`[^\n`]*\n\n```(?!sh)\w+\n(?P<below>.*?)^```$"
    r"|^```(?!sh)\w+\n# (?P<first>[\w./-]+\.\w+)\b.*?\n(?P<rest>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


def shell_commands(page: Path) -> list[str]:
    """Return each command of a page's shell blocks in order, without its comment."""
    lines = [
        line
        for _, block in _SHELL.findall(page.read_text(encoding="utf-8"))
        for line in block.splitlines()
    ]
    without_comment = (re.sub(r"(^|\s+)#\s.*$", "", line).strip() for line in lines)
    return [command for command in without_comment if command]


def named_files(page: Path) -> dict[str, str]:
    """Return the files that a page shows: blocks below their name, or with it as first comment."""
    found = _NAMED.finditer(page.read_text(encoding="utf-8"))
    return {one["above"] or one["first"]: one["below"] or one["rest"] for one in found}


def path_of(page: Path) -> str:
    """Return the path of a page in the repository."""
    return page.relative_to(ROOT).as_posix()
