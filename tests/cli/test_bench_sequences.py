"""Ten random sequences of bench commands by two accounts; nightly jobs run two hundred."""

import os
import subprocess
import sys
from pathlib import Path

from bench.accounts import needs_accounts

ROOT = Path(__file__).parents[2]


@needs_accounts
def test_ten_sequences_are_as_the_model_says(tmp_path: Path) -> None:
    settings = {"CAMPAIGNS": str(tmp_path), "BENCH_SEQUENCES": "10", "BENCH_STEPS": "5"}
    ended = subprocess.run(
        [sys.executable, "-m", "tests.campaigns", "bench_sequences"],
        cwd=ROOT,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
    assert "10 of 10 sequences as the model says" in ended.stdout
