"""Programs by others: `make public-sources` fetches those whose repository and commit are known.

`python tests/public_sources.py FOLDER [BASE]` puts each file of tests/public_clients/programs.yaml
at FOLDER/OWNER/NAME/PATH, from BASE/OWNER/NAME. Tests find them by LIGHTRIG_PUBLIC_SOURCES, which
names that folder. Of `LIBRARIES` a folder is put there. They are programs of others: nothing of
them is part of Lightrig.
"""

import io
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import yaml

FILE = Path(__file__).parent / "public_clients" / "programs.yaml"
VARIABLE = "LIGHTRIG_PUBLIC_SOURCES"
GITHUB = "https://github.com"
PROGRAMS: list[dict[str, Any]] = yaml.safe_load(FILE.read_text())

LIBRARIES = (
    (
        "sonic-net/sonic-platform-common",
        "sonic_platform_base",
        "8607c9f3f3d2bfd895b5b9b4c741c0077ce78ebe",
    ),
)
"""Folders of libraries by others: repository, folder, commit. Apache-2.0."""


def share_done(entry: dict[str, Any]) -> str:
    """Return what a program does of its job: whole, part or none."""
    left = sum(not operation.keys() & {"exchange", "test"} for operation in entry["operations"])
    return "whole" if not left else "part" if left < len(entry["operations"]) else "none"


def fetched(repository: str, path: str) -> Path | None:
    """Return the fetched file, None where `make public-sources` has not fetched it."""
    folder = os.environ.get(VARIABLE)
    file = Path(folder, repository, path) if folder else None
    return file if file and file.is_file() else None


def content_at(
    repository: str, path: str, commit: str, base: str = GITHUB, *, as_archive: bool = False
) -> bytes:
    """Return one file of a repository, or with `as_archive` a folder as tar.

    Raises `subprocess.SubprocessError` where it cannot be had. A call of git ends after a minute at
    the latest.
    """
    with tempfile.TemporaryDirectory() as clone:

        def git(*arguments: str) -> bytes:
            command = ["git", "-C", clone, *arguments]
            ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=60)
            return ran.stdout

        git("init", "--quiet", "--bare")
        git("remote", "add", "origin", f"{base}/{repository}")
        git("fetch", "--quiet", "--depth=1", "--filter=blob:none", "origin", commit)
        if as_archive:
            return git("archive", "--format=tar", commit, path)
        return git("show", f"{commit}:{path}")


def fetch(folder: Path, base: str) -> int:
    """Fetch every program's file into `folder`; return how many could not be had."""
    missing = 0
    for entry in PROGRAMS:
        source = entry["source"]
        if "repository" not in source:
            continue
        repository, path, commit = source["repository"], source["path"], source["commit"]
        try:
            content = content_at(repository, path, commit, base)
        except subprocess.SubprocessError as error:
            print(f"{repository}: {path} at {commit} could not be fetched: {error}")
            missing += 1
            continue
        file = folder / repository / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        print(file)
    for repository, path, commit in LIBRARIES:
        try:
            archive = content_at(repository, path, commit, base, as_archive=True)
        except subprocess.SubprocessError as error:
            print(f"{repository}: {path} at {commit} could not be fetched: {error}")
            missing += 1
            continue
        # Python 3.11 before 3.11.4 has no filters.
        filters: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(folder / repository, **filters)
        print(folder / repository / path)
    return missing


if __name__ == "__main__":
    sys.exit(fetch(Path(sys.argv[1]), *(sys.argv[2:] or [GITHUB])) > 0)
