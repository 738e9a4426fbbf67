"""Suites of jobs: collectives, RDMA, and what becomes of both when light fails."""
