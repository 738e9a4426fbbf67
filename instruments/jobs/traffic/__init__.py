"""Traffic between servers: collectives, RDMA pairs and training jobs."""
