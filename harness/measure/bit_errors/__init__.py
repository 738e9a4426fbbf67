"""Bit errors: gates planned from limit and confidence, curves over received power, verdicts."""
