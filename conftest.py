"""A checkout: `pytest suites` measures a simulated testbed where no other is named."""

from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parent


def pytest_lightrig_testbeds(config: pytest.Config) -> Sequence[Path] | None:
    """The published Opus testbed, for the suites alone: the project's own tests measure nothing."""
    asked = (config.invocation_params.dir / name.partition("::")[0] for name in config.args)
    if any(path.resolve().is_relative_to(ROOT / "suites") for path in asked):
        return [ROOT / "testbeds" / "opus.yaml"]
    return None
