"""Ten random sequences of bench commands by two accounts; nightly jobs run two hundred."""

import os
from pathlib import Path

import preloaded
from bench.accounts import needs_accounts

ROOT = Path(__file__).parents[2]


@needs_accounts
def test_ten_sequences_are_as_the_model_says(tmp_path: Path) -> None:
    settings = {"CAMPAIGNS": str(tmp_path), "BENCH_SEQUENCES": "10", "BENCH_STEPS": "5"}
    ended = preloaded.run(
        ["python", "-m", "tests.campaigns", "bench_sequences"],
        ROOT,
        {**os.environ, **settings},
        timeout=900,
    )
    assert ended.returncode == 0, ended.stdout
    assert "10 of 10 sequences as the model says" in ended.stdout
