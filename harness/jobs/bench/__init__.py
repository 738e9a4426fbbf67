"""Collectives, RDMA and streams between the servers of a bench."""
