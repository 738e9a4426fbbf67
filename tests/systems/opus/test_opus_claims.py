"""Claims of Opus that its mechanisms and its authors' recordings answer."""

import pytest

from lightrig.harness.systems.opus.planning.auditor import Confirmed, audit
from lightrig.suites.claims.opus import claims_mechanisms
from lightrig.suites.claims.opus.claims import COMPUTED
from lightrig.suites.claims.opus.claims_mechanisms import WINDOW


def test_the_delay_of_the_formula_is_that_of_provisioning(monkeypatch):
    """Without asking ahead no window hides anything, which is off by a whole window."""
    assert COMPUTED["delay"]().value == 0
    run = claims_mechanisms._run
    monkeypatch.setattr(
        claims_mechanisms, "_run", lambda job, tables, _, took: run(job, tables, "default", took)
    )
    assert COMPUTED["delay"]().value == WINDOW


def test_unconfirmed_changes_are_violations(monkeypatch):
    """Operations over circuits that no switch has confirmed are on a topology under change."""

    def unconfirmed(events, found, ports):
        return audit([one for one in events if not isinstance(one, Confirmed)], found, ports)

    monkeypatch.setattr(claims_mechanisms, "audit", unconfirmed)
    claims_mechanisms._broken.cache_clear()
    try:
        assert COMPUTED["safety"]().value > 0
    finally:
        claims_mechanisms._broken.cache_clear()


def test_operations_of_the_archived_rank():
    """Its calls overlap where circuits take 5 s, its traffic does not."""
    operations = claims_mechanisms._logged()
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
        ("digits", 2),
        ("disturbed", 0),
        ("pipeline-alone", 0),
    ],
)
def test_figures_by_hand(name, value):
    assert COMPUTED[name]().value == pytest.approx(value)
