"""How it is measured: benches, measurements, statistics, records, reports, and two faces."""
