"""Run benchmarks: `python -m benchmarks NAME ...`, or `--all`; without a name, list them."""

import argparse
import ast
import sys
from pathlib import Path

from benchmarks.figures import run, verdict

NEEDS = {
    "reconfigurations": "",
    "gnmi_tables": "extra gnmi; LIGHTRIG_ROUNDS (5)",
    "queries": "pymeasure, qcodes as peers (LIGHTRIG_PEERS: the Python that has them)",
    "journal": "",
    "startup": "",
    "baseline": "git history; LIGHTRIG_BASELINE (a commit), LIGHTRIG_REPETITIONS (5)",
    "collection": "LIGHTRIG_REPETITIONS (5)",
    "many_instruments": "LIGHTRIG_ROUNDS",
    "plans": "LIGHTRIG_REPETITIONS (5)",
    "report": "pytest-html",
    "nights": "",
    "first_mornings": "",
    "notes": "LIGHTRIG_PAIRS (9)",
    "nights_over_hosts": "extra dask; LIGHTRIG_HOSTS (1,2,4), LIGHTRIG_SAMPLES (20)",
    "results_at_size": "25 GB of disk; LIGHTRIG_ROWS (1e7), LIGHTRIG_NIGHTS (365), more there",
    "alarms": "",
    "gates": "",
    "relock_carriers": "LIGHTRIG_EVENTS (200)",
    "error_rates": "statsmodels as a peer",
    "bit_errors": "",
    "port_counters": "",
    "insertion_loss": "",
    "loss_coverage": "",
    "flows": "",
    "acos": "",
    "acos_actuation": "512 pseudo-terminals",
    "infinitehbd": "",
    "mixnet": "MIXNET_TOKENS: a recorded trace, optional",
    "mixnet_baselines": "root (namespaces), PyTorch; ten minutes",
    "mixnet_training": "root (namespaces), PyTorch; half an hour",
    "opus": "",
    "train_beside_torchrun": "root (namespaces), PyTorch",
    "slowed_host": "root (namespaces), PyTorch, a quiet machine",
    "gpu": "root (namespaces), a GPU, PyTorch with NCCL; LIGHTRIG_GPU=gloo tries it without",
    "workloads": "",
    "railx": "extra flits for the flit simulation",
    "lab_in_a_box": "root (namespaces); TESTBED, SAMPLES (20)",
}
"""Settings from the environment with their defaults, and needs, of each."""
APART = (
    "baseline",
    "lab_in_a_box",
    "mixnet_training",
    "acos_actuation",
    "train_beside_torchrun",
    "slowed_host",
    "gpu",
)
"""Run only by name: they take long, or need a quiet machine."""


def listing() -> str:
    """Return a paragraph for each benchmark."""
    lines = []
    for name, needs in NEEDS.items():
        source = Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8")
        about = (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]
        lines += [f"{name:<22}{about}", *([f"{'':<22}{needs}"] if needs else [])]
    return "\n".join(lines)


def main() -> int:
    """Run what the command line names; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=f"Ratios to a peer or a limit, printed.\n\n{listing()}",
        epilog="`python -m benchmarks.figures [NAME ...]` writes docs/appendix/benchmarks.md.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks to run")
    parser.add_argument("--all", action="store_true", help=f"all but {', '.join(APART)}")
    parser.add_argument(
        "--judge",
        action="store_true",
        help="end with status 1 where a ratio or a count is beyond its limit; times are not judged",
    )
    chosen = parser.parse_args()
    names = chosen.names + [name for name in NEEDS if chosen.all and name not in APART]
    if unknown := [name for name in names if name not in NEEDS]:
        parser.error(f"found {', '.join(unknown)}, expected names of {', '.join(NEEDS)}")
    if not names:
        parser.print_help()
    for name in names:
        run(name)
    return 0 if verdict() or not chosen.judge else 1


if __name__ == "__main__":
    sys.exit(main())
