"""Run every benchmark: `python -m benchmarks [NAME ...]`."""

import sys
from importlib import import_module

ALL = (
    "reconfigurations",
    "queries",
    "journal",
    "gates",
    "error_rates",
    "report",
    "nights",
    "first_mornings",
    "flows",
    "bit_errors",
    "insertion_loss",
    "loss_coverage",
    "infinitehbd",
    "mixnet",
    "mixnet_training",
    "railx",
    "acos",
    "opus",
    "sonic_ocs",
    "nic_errors",
    "startup",
    "many_instruments",
    "results_at_size",
    "nights_over_hosts",
)

for name in sys.argv[1:] or ALL:
    print(f"== {name}", flush=True)
    import_module(f"benchmarks.{name}").main()
