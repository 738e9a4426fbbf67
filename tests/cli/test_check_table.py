"""The table that `lightrig check` prints, in columns and lines counted by hand."""

import pytest

from lightrig.harness.cli.checked_file import parts_table

PARTS = [
    ("servers", 2, ["server0", "server1"]),
    ("fibers", 128, [f"server{n}.nic0 -> ocs.{n}" for n in range(3)]),
    ("plans", 9, []),
]


def test_names_and_counts_are_in_columns_of_the_widest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert parts_table(PARTS).splitlines() == [
        "servers    2  server0, server1",
        # 60 columns less 14: two names of 22 letters, with a comma, are 45.
        "fibers   128  server0.nic0 -> ocs.0, server1.nic0 -> ocs.1,",
        "              server2.nic0 -> ocs.2",
        "plans      9",
    ]


def test_narrow_terminals_have_forty_columns_of_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    lines = parts_table(
        [("a", 1, ["x" * 19, "y" * 18, "z"]), ("bb", 10, ["one two " * 6])]
    ).splitlines()
    # "x…, y…," are 40 columns; a name of more than 40 letters is broken at its words.
    assert lines[:2] == [f"a    1  {'x' * 19}, {'y' * 18},", "        z"]
    assert lines[2:] == ["bb  10  one two one two one two one two one two", "        one two"]
