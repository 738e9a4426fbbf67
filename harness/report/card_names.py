"""Names of cards: what a person types, the same each night."""

import hashlib
import re
from collections.abc import Iterable

_NOT_PLAIN = re.compile(r"[^\w.~]+")
_LONGEST = 40
"""Characters of the components in a name."""


def card_name(kind: str, components: Iterable[str]) -> str:
    """Return a name made of a finding's kind and components, without spaces.

    Of components that would take too long it has the first, their number, and a digest of all.
    """
    parts = sorted(components)
    plain = [_plain(part.replace(" -> ", "~")) for part in parts]
    where = "+".join(plain)
    if len(where) > _LONGEST:
        digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:6]
        more = f"+{len(parts) - 1}" if len(parts) > 1 else ""
        where = f"{plain[0][:_LONGEST]}{more}-{digest}"
    return f"{_plain(kind)}/{where}"


def _plain(text: str) -> str:
    return _NOT_PLAIN.sub("-", text).strip("-")
