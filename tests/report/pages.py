"""A page read back: the tests that it carries, packed."""

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any


def packed(page: str | Path) -> dict[str, Any]:
    """Return the data that the page's script unpacks: `html`, of pytest-html, and `added`."""
    text = page.read_text(encoding="utf-8") if isinstance(page, Path) else page
    (data,) = re.findall(r'<script id="lr-data" type="text/plain">([^<]*)</script>', text)
    found: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(data)))
    return found


def above(page: Path) -> str:
    """The words of the page, without its script, its style and the packed tests."""
    text = re.sub(r"<(script|style)\b.*?</\1>", "", page.read_text(encoding="utf-8"), flags=re.S)
    return " ".join(re.sub(r"<[^>]+>", " ", text).split())
