"""As `test_polatis_defects`, for the other half."""

import pytest
from test_polatis_defects import OF_POLATIS
from trials import Simulated, fail_required, marked


@pytest.mark.parametrize("defect", marked(OF_POLATIS[len(OF_POLATIS) // 2 :]))
def test_a_defect_fails_the_clauses_that_it_must(
    simulated: Simulated, monkeypatch: pytest.MonkeyPatch, defect: str
) -> None:
    """All other clauses are tried by a long test."""
    fail_required(simulated, monkeypatch, defect)
