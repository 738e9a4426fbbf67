"""Published values of papers, compared with measurements of this harness."""

from lightrig.harness.claims.checking import CheckedClaim, ClaimResult, check_claims
from lightrig.harness.claims.page import write_claims
from lightrig.harness.claims.published import (
    Claim,
    ClaimContext,
    Figure,
    Lookup,
    Published,
    load_published,
    published_files,
)
from lightrig.harness.claims.verdicts import ClaimOutcome, Estimate, compare

__all__ = [
    "CheckedClaim",
    "Claim",
    "ClaimContext",
    "ClaimOutcome",
    "ClaimResult",
    "Estimate",
    "Figure",
    "Lookup",
    "Published",
    "check_claims",
    "compare",
    "load_published",
    "published_files",
    "write_claims",
]
