"""From a run's journal to HTML."""

from harness.report.page import sections

__all__ = ["sections"]
