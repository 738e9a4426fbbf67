"""Published values of papers, compared with measurements of this harness."""

from lightrig.harness.claims.checking import CheckedClaim, ClaimResult, check_claims
from lightrig.harness.claims.counts import counts_by_kind, measured_sentence
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
    "counts_by_kind",
    "load_published",
    "measured_sentence",
    "published_files",
    "write_claims",
]
