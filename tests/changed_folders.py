"""Print the folders of tests whose long tests a merge runs.

    python tests/changed_folders.py [SINCE]

These are tests/docs, and the folders of tests/ that are named like a package, or that are a folder
of tests, in which a file has changed since the commit SINCE: the last one that is older than a day,
where none is named. Without such a commit all files count.
"""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

ALWAYS = "docs"
_A_DAY = "26 hours ago"
_NO_FILES = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
"""The tree without files, which git knows in every repository."""


def changed_files(since: str | None, root: Path) -> list[str]:
    """Return the paths of files that differ from those of a commit."""

    def git(*arguments: str) -> list[str]:
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split(
            "\n"
        )

    commit = since or git("rev-list", "-1", f"--before={_A_DAY}", "HEAD")[0] or _NO_FILES
    return [path for path in git("diff", "--name-only", "--no-renames", commit, "HEAD") if path]


def folders_of(changed: Iterable[str], tests: Path) -> list[str]:
    """Return the folders of tests that belong to these files, in alphabetical order."""
    packages = {part for path in changed for part in PurePosixPath(path).parent.parts}
    with_tests = {folder.name for folder in tests.iterdir() if any(folder.glob("**/test_*.py"))}
    return sorted((packages & with_tests) | {ALWAYS})


if __name__ == "__main__":
    root = Path(__file__).parents[1]
    files = changed_files(sys.argv[1] if sys.argv[1:] else None, root)
    print(*(f"tests/{folder}" for folder in folders_of(files, root / "tests")))
