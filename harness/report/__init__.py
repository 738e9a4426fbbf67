"""A run's journal as HTML: fragments, whole pages, and in short as lines for a terminal."""

from harness.report.frames import RunFrame, collect
from harness.report.page import card_ids, sections
from harness.report.standalone import write_page
from harness.report.terminal import lines

__all__ = ["RunFrame", "card_ids", "collect", "lines", "sections", "write_page"]
