"""A run's journal as HTML fragments and, in short, as lines for a terminal."""

from harness.report.frames import RunFrame, collect
from harness.report.page import sections
from harness.report.terminal import lines

__all__ = ["RunFrame", "collect", "lines", "sections"]
