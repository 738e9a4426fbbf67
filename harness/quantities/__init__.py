"""Quantities: what a measurement records, declared once and read by every other part.

Limits take the unit from here, the terminal what it shows, the report titles and sections, and
the comparison of nights its default rule. `measure.record` takes any declared quantity.
docs/quantities.md says how to declare one.
"""
