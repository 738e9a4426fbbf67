"""Commands of orchestration."""
