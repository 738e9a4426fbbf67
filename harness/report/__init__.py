"""A run's journal as HTML: fragments, whole pages, and a summary for a terminal."""

from lightrig.harness.report.frames import RunFrame, collect
from lightrig.harness.report.reconfiguration_section import summary_lines
from lightrig.harness.report.run_page import card_ids, sections, write_page

__all__ = ["RunFrame", "card_ids", "collect", "sections", "summary_lines", "write_page"]
