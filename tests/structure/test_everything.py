"""`make everything`: each target is run, and the table has all counts and reasons."""

from pathlib import Path

import pytest

from tests import everything

MAKEFILE = """\
good: prepared
\t@echo pytest of $@
\tcp results.xml $(JUNIT)
prepared:
\ttouch prepared
bad:
\t.venv/bin/python -m pytest nothing; cp results.xml $(JUNIT); exit 3
broken:
\tno-such-program pytest all
"""
RESULTS = """\
<testsuites><testsuite tests="12" failures="1" errors="2" skipped="4">
<testcase/><testcase><skipped message="no ping on this machine"/></testcase>
<testcase><skipped message="no sshd on this machine&#10;try apt"/></testcase>
<testcase><skipped message="no ping on this machine"/></testcase>
<testcase><skipped type="lightrig.inconclusive" message="20 samples"/></testcase>
</testsuite></testsuites>
"""
TABLE = """\
make good
make bad
make broken

what                    passed  failed  skipped      time
good                         5       3        4   0 min 00 s
        2 skipped: no ping on this machine
        1 skipped: no sshd on this machine
        1 skipped: inconclusive: 20 samples
bad                          5       3        4   0 min 00 s
        2 skipped: no ping on this machine
        1 skipped: no sshd on this machine
        1 skipped: inconclusive: 20 samples
    status 2: see build/everything/bad.log
broken                          no test has run   0 min 00 s
    status 2: see build/everything/broken.log
"""


def test_the_table_has_every_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Makefile").write_text(MAKEFILE)
    (tmp_path / "results.xml").write_text(RESULTS)
    assert everything.targets_with_tests(MAKEFILE) == ["good", "bad", "broken"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(everything, "ROOT", tmp_path)
    monkeypatch.setattr(everything.time, "monotonic", lambda: 0.0)
    lines: list[str] = []
    assert everything.main([], lines.append) == 1
    assert "\n".join(lines) + "\n" == TABLE
    assert "no-such-program" in (tmp_path / "build/everything/broken.log").read_text()
    assert everything.main(["good"], lines.append) == 0
