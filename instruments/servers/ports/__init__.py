"""NIC ports of a server: what its tools read, and its error counters."""
