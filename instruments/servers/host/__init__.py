"""A Linux server: its programs, the probe that watches it, its clock, routes and queues."""
