"""The ways to run: which instruments, and how much."""

from typing import Literal, get_args

Mode = Literal["auto", "hardware", "simulated"]
MODES: tuple[Mode, ...] = get_args(Mode)

SAMPLES = {"quick": {"virtual": 60, "system": 20}, "night": {"virtual": 300, "system": 100}}
"""Events of a test on which no limit states a quantile, by profile and clock."""
