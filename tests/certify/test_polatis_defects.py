"""Switches of the default lab with a defect fail the clauses that they must."""

import pytest
from switch_defects import DEFECTS
from trials import Simulated, fail_required, marked

OF_POLATIS = [defect for defect in DEFECTS if "lab" not in DEFECTS[defect]]


@pytest.mark.parametrize("defect", marked(OF_POLATIS[: len(OF_POLATIS) // 2]))
def test_a_defect_fails_the_clauses_that_it_must(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch, defect: str
) -> None:
    """All other clauses are tried by a long test."""
    fail_required(simulated, monkeypatch, defect)
