"""Suites: what is measured, by quantity; `claims/` by published system."""
