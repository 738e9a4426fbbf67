"""Archives of `lightrig results bundle`, as they are opened elsewhere: bounded, and nowhere else.

What an archive says of itself is not trusted: it comes from another lab.
"""

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightrig.testbeds.errors import LightrigError
from lightrig.testbeds.json_text import from_json
from lightrig.testbeds.regular_files import read_regular

MANIFEST = "manifest.json"
FORMAT = "lightrig bundle"
VERSION = 1

MOST_BYTES = 1_000_000_000
"""Of all files of an archive, unpacked."""

MOST_FILES = 100_000
_BLOCK = 1 << 20


class ArchiveError(LightrigError):
    """A file is no bundle, is damaged, or is larger than one may be."""


def is_archive(path: Path) -> bool:
    """Whether a file is an archive, and no recording."""
    return path.is_file() and zipfile.is_zipfile(path)


def unpack(path: Path, folder: Path) -> Mapping[str, Any]:
    """Unpack an archive into an empty folder; return its manifest.

    Raises `ArchiveError`, and `OSError` for what cannot be read or written.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if len(members) > MOST_FILES or sum(one.file_size for one in members) > MOST_BYTES:
                raise _large(path)
            left = MOST_BYTES
            for member in members:
                target = folder / member.filename
                if not target.resolve().is_relative_to(folder.resolve()) or member.is_dir():
                    raise ArchiveError(f"{path}: no bundle has a file {member.filename!r}")
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(member) as source, target.open("xb") as file:
                    while block := source.read(_BLOCK):
                        left -= len(block)  # the size that is stated may be another
                        if left < 0:
                            raise _large(path)
                        file.write(block)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise ArchiveError(f"{path} is damaged: {error}") from error
    except (FileExistsError, NotADirectoryError, IsADirectoryError, ValueError) as error:
        raise ArchiveError(f"{path} is damaged: two of its files have one name") from error
    try:
        manifest = from_json(read_regular(MANIFEST, below=folder))
        found = manifest[FORMAT]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArchiveError(f"{path} is no archive of `lightrig results bundle`") from error
    if found != VERSION or not isinstance(manifest, dict):
        raise ArchiveError(f"{path} is of format {found}, which a newer Lightrig reads")
    return manifest


def _large(path: Path) -> ArchiveError:
    return ArchiveError(f"{path}: more than {MOST_BYTES / 1e9:.0f} GB when unpacked: no bundle")
