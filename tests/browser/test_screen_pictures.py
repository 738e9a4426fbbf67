"""Pictures of pages show what their first screens show now."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pictures
import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser


STORED = json.loads(pictures.SHOWN.read_text(encoding="utf-8"))
LAST = 6
"""Lines at the lower edge, which depend on the fonts of a machine."""


def recorded_run(folder: Path) -> Path:
    pictures.record(folder)
    return pictures.run_page(folder)


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("nights.png", pictures.nights_page),
        pytest.param("report.png", recorded_run, marks=pytest.mark.long),
    ],
)
def test_a_picture_is_as_the_page_is_now(
    chromium: "Browser", tmp_path: Path, name: str, made: Callable[[Path], Path]
) -> None:
    lines = pictures.visible_text(chromium, made(tmp_path))
    stored = STORED[name]["shows"]
    count = min(len(lines), len(stored)) - LAST
    assert count > LAST
    assert lines[:count] == stored[:count], f"{name} is stale; run: make pictures"
