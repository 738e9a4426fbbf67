"""Device side of the wire protocols: TCP, serial lines, SCPI, TL1, HTTP, NETCONF, SSH, HiSLIP."""
