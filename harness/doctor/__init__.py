"""Comparison of a lab with its testbed file: findings, each with a fix."""

from lightrig.harness.doctor.examination import examine, examine_by_reading
from lightrig.harness.doctor.findings import Findings

__all__ = ["Findings", "examine", "examine_by_reading"]
