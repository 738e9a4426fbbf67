"""Campaigns of faults, kills, races and changed inputs, which take hours: they pass or fail."""
