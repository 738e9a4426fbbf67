"""The ways to run: which instruments, and how much."""

from typing import Literal, get_args

Mode = Literal["auto", "hardware", "simulated"]
MODES: tuple[Mode, ...] = get_args(Mode)

SAMPLES = {"quick": {"virtual": 60, "system": 20}, "night": {"virtual": 300, "system": 100}}
"""Events a test, by profile and clock; a p99 needs 299 for an upper bound at 95 %."""
