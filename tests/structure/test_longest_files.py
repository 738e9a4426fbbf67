"""Files of tests that workers take first."""

from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_the_longest_files_are_there_and_in_order() -> None:
    lines = (TESTS / "longest_files.txt").read_text(encoding="utf-8").splitlines()
    rows = [line.split() for line in lines if not line.startswith("#")]
    seconds, files = [int(row[0]) for row in rows], [row[1] for row in rows]
    assert [file for file in files if not (TESTS.parent / file).is_file()] == []
    assert len(set(files)) == len(files) > 20
    assert seconds == sorted(seconds, reverse=True)
