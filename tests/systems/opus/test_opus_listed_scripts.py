"""Scripts that LIGHTRIG_SCRIPTS lists: what runs before them."""

import json
import os
from pathlib import Path

import pytest

from lightrig.suites.claims import test_opus_scripts as listed

PLAIN = '"""A script."""\nimport os\nfound = (os.name, before)\n'
FUTURE = (
    '"""A script."""\nfrom __future__ import (\n    annotations,\n)\nimport os\n'
    "def typed(of: Unknown) -> None: ...\nfound = (os.name, before)\n"
)


@pytest.mark.parametrize("source", [PLAIN, FUTURE], ids=["plain", "from-the-future"])
def test_a_prelude_runs_before_a_script(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where its first statements may follow nothing but each other."""
    (tmp_path / "train.py").write_text(source)
    entries = [{"script": "train.py", "prelude": "before = 7"}]
    (tmp_path / "list.json").write_text(json.dumps(entries))
    monkeypatch.setattr(listed, "LISTED", str(tmp_path / "list.json"))
    names: dict[str, object] = {}
    exec(compile(listed.source_of(listed.entries()[0]), "train.py", "exec"), names)
    assert names["found"] == (os.name, 7)
