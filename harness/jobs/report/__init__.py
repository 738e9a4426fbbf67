"""Pages and sections of jobs."""
