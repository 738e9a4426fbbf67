"""Claims of Opus that its mechanisms and its authors' recordings answer."""

import pytest

from lightrig.suites.claims.opus import further_claims
from lightrig.suites.claims.opus.claims import COMPUTED


def test_operations_of_the_archived_rank():
    """Its calls overlap where circuits take 5 s, its traffic does not."""
    operations = further_claims.logged_operations()
    assert len(operations) == 83
    assert [pipeline for pipeline, *_ in operations].count(True) == 19
    assert COMPUTED["overlaps"]().value == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("estimate", (10.1775 + 6) / 15.400833),
        ("window-bound", 18 / 16),
        ("giant-ring-rate", 0.5),
        ("always-on", 72 / 24),
    ],
)
def test_figures_by_hand(name, value):
    assert COMPUTED[name]().value == pytest.approx(value)
