"""Each picture of the documentation is made by `make pictures`, and shows what is printed now."""

import json
import re

import pictures
import pytest
from pages import ROOT

BY_HAND = {"architecture.svg"}
STORED = json.loads(pictures.SHOWN.read_text(encoding="utf-8"))


def test_every_picture_has_a_command() -> None:
    found = {path.name for path in pictures.PICTURES.iterdir()} - {pictures.SHOWN.name}
    assert found == {*pictures.DRAWN, *STORED} | BY_HAND


@pytest.mark.parametrize("name", STORED)
def test_a_picture_is_the_one_whose_text_is_stored(name: str) -> None:
    stale = f"{name} was changed by other means; run: make pictures"
    assert pictures.digest(pictures.PICTURES / name) == STORED[name]["sha256"], stale


@pytest.mark.parametrize("name", pictures.DRAWN)
def test_a_drawing_is_up_to_date(name: str) -> None:
    stored = (pictures.PICTURES / name).read_text(encoding="utf-8")
    assert stored == pictures.DRAWN[name](), f"{name} is stale; run: make pictures"


def test_a_recording_shows_each_command_once_and_cuts_long_lines() -> None:
    drawn = pictures.terminal_picture(["$ lightrig check a<b.yaml", "x" * 200])
    assert drawn.count("lightrig check a&lt;b.yaml") == 1
    assert "x" * (pictures.COLUMNS - 1) + "…<" in drawn


def test_numbers_of_a_run_make_no_picture_stale() -> None:
    early = " 1/13  passed  test_a.py  light 21 ms [13 … 37]  52.7 ms  about 9 s left"
    late = " 1/13  passed  test_a.py  light 9.1 ms [8.2 … 37]  1.2 s"
    other = " 1/13  passed  test_a.py  power 21 ms [13 … 37]  52.7 ms  about 9 s left"
    first, second, third = pictures.without_numbers([early, late, other])
    assert first == second
    assert first != third


@pytest.mark.long
def test_the_recording_is_up_to_date(tmp_path) -> None:
    lines = pictures.without_numbers(pictures.record(tmp_path))
    assert lines == STORED["terminal.svg"]["shows"], "terminal.svg is stale; run: make pictures"


def test_pages_show_every_picture() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    shown = {
        name
        for page in pages
        for name in re.findall(r"!\[[^]]*\]\(\S*pictures/([\w.]+)\)", page.read_text("utf-8"))
    }
    assert shown == {*pictures.DRAWN, *STORED} | BY_HAND
