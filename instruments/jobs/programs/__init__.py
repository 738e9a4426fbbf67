"""Programs of jobs that are sent to servers."""
