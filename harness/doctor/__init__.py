"""Does the lab answer as its file describes it? Findings, each with what to do."""

from harness.doctor.examination import examine
from harness.doctor.findings import Finding, Findings

__all__ = ["Finding", "Findings", "examine"]
