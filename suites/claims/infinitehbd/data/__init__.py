"""Data of others and of ours, each with its source in SOURCES.md."""
