"""Benches, measurements, statistics, quantities, records, reports, systems, pytest and CLI."""
