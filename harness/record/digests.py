"""SHA-256 digests of files of results, by which damage is found before anything is used.

Rows files are named with their digests in `run.json` and `rows/compacted.json`; these two have
their own digest as their last field. A digest shows damage, not forgery: whoever can write a file
can write its digest too.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightrig.testbeds.json_text import from_json
from lightrig.testbeds.regular_files import open_regular

_FIELD = "sha256"
_DIGEST = re.compile(r"[0-9a-f]{64}")


def digest_of(file: str | Path, below: str | Path | None = None) -> str:
    """Return the SHA-256 digest of a file's content, in hexadecimal; raises `OSError`.

    below: as for `open_regular`.
    """
    with open_regular(file, below) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def digest_of_bytes(data: bytes) -> str:
    """Return the SHA-256 digest of `data`, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def checked_digests(digests: object) -> dict[str, str]:
    """Return `digests`, by name, as read from a file; raises `ValueError` if they are none."""
    if not isinstance(digests, dict) or not all(
        isinstance(each, str) and _DIGEST.fullmatch(each) for each in digests.values()
    ):
        raise ValueError("its digests are not SHA-256 digests by name")
    return digests


def with_digest(document: Mapping[str, Any]) -> str:
    """Return a JSON object as text, with the digest of the text without it as its last field."""
    body = json.dumps(document, indent=1, ensure_ascii=False)
    return _closed(body.encode(), digest_of_bytes(body.encode())).decode()


def without_digest(text: bytes) -> Any:
    """Return the JSON value that `with_digest` wrote, without the digest.

    Files of earlier versions have no digest. Raises `ValueError` for what is no JSON, or is not
    what was written.
    """
    document = from_json(text)
    if isinstance(document, dict) and _FIELD in document:
        digest = document.pop(_FIELD)
        body = text.rpartition(f',\n "{_FIELD}": "'.encode())[0] + b"\n}"
        if digest != digest_of_bytes(body) or text != _closed(body, digest):
            raise ValueError("it is not what was written: its SHA-256 digest differs")
    return document


def _closed(body: bytes, digest: str) -> bytes:
    return body[:-2] + f',\n "{_FIELD}": "{digest}"\n}}\n'.encode()
