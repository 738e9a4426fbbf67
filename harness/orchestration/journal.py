"""The file of what is wanted: one strict form, with a digest of its content.

A file is read whole or refused with the reason: one that was cut, changed by hand, or written by a
version with another form. `format` 1 had no digest, and jobs without `within` and `moved`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lightrig.harness.orchestration.jobs import OrchestrationError
from lightrig.harness.orchestration.layout import Layout
from lightrig.harness.orchestration.wanted import Wanted
from lightrig.testbeds.json_text import from_strict_json

FORMAT = 2
"""Of the files that are written."""

_WITHOUT_DIGEST = 1


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Group(_Part):
    nodes: list[str] = Field(min_length=1)
    details: dict[str, Any]


class _Job(_Part):
    job: str
    shape: dict[str, Any]
    priority: int
    gang: bool
    reserved: bool
    missing: int
    epoch: int = Field(ge=0)
    within: list[str] | None = None
    moved: list[int] = []
    keep_alive: float | None = Field(default=None, gt=0)
    groups: list[_Group | None] = Field(min_length=1)


class _Event(BaseModel):
    model_config = ConfigDict(strict=True)  # some have details

    epoch: int = Field(ge=1)
    time: str
    event: str


class _Journal(_Part):
    format: int
    sha256: str | None = None
    nodes: list[str]
    epoch: int = Field(ge=0)
    reported: list[str]
    drained: list[str]
    silent: dict[str, str]
    dark: dict[str, str]
    jobs: list[_Job]
    history: list[_Event]


def journal_text(wanted: Wanted, layout: Layout) -> str:
    """Return the file of what is wanted."""
    content = {"format": FORMAT, **wanted.document(layout)}
    return json.dumps({**content, "sha256": digest_of(content)})


def read_journal(text: str | bytes, layout: Layout, switches: Collection[str]) -> Wanted:
    """Return what a file of a fabric has; raises `OrchestrationError` for any other text."""
    try:
        document = from_strict_json(text)
    except ValueError as error:
        raise OrchestrationError(f"it is cut or damaged: {error}") from error
    found = document.get("format") if isinstance(document, dict) else None
    if found not in (_WITHOUT_DIGEST, FORMAT) or isinstance(found, bool):
        raise OrchestrationError(
            f"its format is {found!r}, this version reads {_WITHOUT_DIGEST} and {FORMAT}: start "
            "the version that wrote it, withdraw its jobs and move the file away"
        )
    try:
        # By JSON's own types: `true` is no number, and 2.0 is none of groups.
        _Journal.model_validate_json(json.dumps(document))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise OrchestrationError(f"{where}: {first['msg']}") from error
    stated = document.pop("sha256", None)
    if found == FORMAT and stated != digest_of(document):
        raise OrchestrationError("its digest is that of another content: it was cut or changed")
    return Wanted.of_document(document, layout, switches)


def digest_of(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a JSON object, with its keys in order and no white space."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
