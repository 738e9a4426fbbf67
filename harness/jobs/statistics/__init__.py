"""Statistics of jobs: functions on plain values."""
