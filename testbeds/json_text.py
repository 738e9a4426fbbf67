"""JSON from outside: files that may have been changed, replies of programs and instruments."""

import json
from typing import Any


def from_json(text: str | bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: it is no JSON, or nested deeper than Python can read, for which `json.loads`
            raises `RecursionError`.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("JSON that is nested too deeply to be read") from None
