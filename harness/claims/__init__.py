"""What papers publish, held against what was measured here."""

from harness.claims.checking import Checked, Told, check_claims
from harness.claims.page import write_claims
from harness.claims.published import (
    Beside,
    Claim,
    Figure,
    Lookup,
    Published,
    known_systems,
    load_published,
)
from harness.claims.verdicts import ClaimOutcome, Estimate, compare

__all__ = [
    "Beside",
    "Checked",
    "Claim",
    "ClaimOutcome",
    "Estimate",
    "Figure",
    "Lookup",
    "Published",
    "Told",
    "check_claims",
    "compare",
    "known_systems",
    "load_published",
    "write_claims",
]
