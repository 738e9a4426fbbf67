"""Run campaigns: `python -m tests.campaigns [--page] [NAME ...]`; without a name, list them.

Each ends with status 1 if a promise was broken: a lab shared or left changed, a row lost, an error
without a type, a bound that misses the truth. One that was ended goes on behind its last line
(`tests.campaigns.records`).
"""

import argparse
import ast
import os
import sys
from importlib import import_module
from pathlib import Path

from tests.campaigns.records import NAMES, print_page

CAMPAIGNS = {
    "suite_kills": "KILLS (1000), KILLS_TESTBEDS, KILLS_LANES (4)",
    "kills": "KILLS (1000)",
    "night_kills": "NIGHT_KILLS (60), NIGHT_KILLS_TESTBED (rings4); needs the extra dask",
    "process_kills": "PROCESS_KILLS (30) of each process, PROCESS_KILLS_LANES (2)",
    "command_kills": "COMMAND_KILLS (30) of COMMAND_KILLS_OF (a,b); namespaces, so root",
    "agent_kills": "AGENT_KILLS (30)",
    "lease_races": "RACES (1000), RACE_KINDS; a second account and namespaces only as root",
    "faulty_suites": "FAULTY_RUNS (500), FAULTY_LANES (4); every 20th needs namespaces",
    "fault_plans": "FAULT_PLANS (500)",
    "results_kills": "RESULTS_KILLS (30)",
    "bit_flips": "FLIPS (10000), FLIPS_SEED (1), FLIPS_KINDS, by commas",
    "mutations": "MUTATIONS (10000000), MUTATIONS_SEED, MUTATIONS_CORPUS, MUTATIONS_TARGETS (a,b)",
    "claim_mutations": "AGREEMENTS (20), AGREEMENTS_SEED (33), _TRIES (5), _SECONDS (240)",
    "orchestrations": "ORCHESTRATIONS (200)",
    "sequences": "SEQUENCES (500) of each, SEQUENCES_FIRST (0), SEQUENCES_SYSTEMS, by commas",
    "fault_trace": "FAULT_TRACES (40), FAULT_TRACES_SEED (0), FAULT_ORDERS (3)",
    "service_replays": "SERVICE_DRAWS (20); writes suites/claims/infinitehbd/data",
    "wire_sequences": "WIRE_SEQUENCES (60), WIRE_UNHURT (10), WIRE_SYSTEMS, WIRE_LANES (2) of each",
    "labs": "LABS_SEEDS (500) or --seeds, LABS or --lab, LABS_SECONDS (7000), LABS_STORE",
    "mornings": "MORNINGS_SEEDS (10), MORNINGS_FIRST_SEED, MORNINGS_HEALTHY, _QUIET, _STORE",
    "healthy_switches": "HEALTHY_SEEDS (100)",
    "meters": "METERS_SEEDS (24) of each plant, METERS_PLANTS (a;b)",
    "tcp_stalls": "CUTS (20) of each length; needs namespaces, so root",
    "light_faults": "LIGHT_LIBRARIES, LIGHT_FAULTS (67), LIGHT_OPENMPI; needs namespaces, so root",
    "predictions": "PREDICTIONS (5); needs the extra torch and namespaces, so root",
    "step_predictions": "as foreign_scripts, PREDICTION_ROUNDS (3), PREDICTION_SCRIPTS",
    "ntp_slews": "NTP_SLEWS_EVENTS (1000) in each cell",
    "growth": "GROWTH (5); needs the extra torch and namespaces, so root",
    "train_signals": "TRAIN_SIGNALS (20); needs the extra torch and namespaces, so root",
    "foreign_scripts": "LIGHTRIG_SCRIPTS, FOREIGN_ROUNDS (3); needs the extra torch, and root",
    "foreign_parts": "LIGHTRIG_SCRIPTS; needs the extra torch, and root",
    "wide_fabric": "WIDE_SIZE (16,7,9), WIDE_MINUTES (0), WIDE_PROCESSES (4); needs root",
    "interruptions": "INTERRUPTIONS (20), INTERRUPTIONS_TESTBEDS; needs namespaces, so root",
    "planted_soaks": "SOAK_MINUTES (30), SOAK_FLAPS (20), SOAK_KILLS (2); needs namespaces (root)",
    "bench_sequences": "BENCH_SEQUENCES (200), BENCH_STEPS (8); a second account only as root",
    "connection_flood": "FLOOD_SECONDS (120), FLOOD_CONNECTIONS (10000), FLOOD_REOPENED (1000)",
    "attack_variants": "VARIATIONS_SECONDS (20) of each, VARIATIONS_CONNECTIONS (1200)",
    "tls_flood": "TLS_FLOOD_SECONDS (120), _CONNECTIONS (10000), _REOPENED (100); needs root",
    "hostile_replies": "HOSTILE_REPLIES (10000) of each of HOSTILE_WIRES (a,b), HOSTILE_SEED (1)",
    "shared_trunk": "TRUNK_RUNS (20), TRUNK_SEED (1); needs namespaces, tc and nsenter, so root",
    "vendor_archives": "installs on a bare machine (.ci/bare_machine), so root and Debian",
    "disturbances": "DISTURBANCES (1000), DISTURBANCES_SEED (1); needs namespaces, so root",
}
"""Settings from the environment with their defaults, and needs, of each."""


def listing() -> str:
    """Return a paragraph for each campaign."""
    lines = []
    for name, settings in CAMPAIGNS.items():
        source = Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8")
        about = (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]
        lines += [f"{name:<17}{about}", f"{'':<17}{settings}"]
    return "\n".join(lines)


def main() -> int:
    """Run what the command line names; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaigns",
        description=f"Campaigns that take hours.\n\n{listing()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="campaigns to run")
    parser.add_argument(
        "--page", action="store_true", help=f"print what was done so far of {', '.join(NAMES)}"
    )
    parser.add_argument("--seeds", metavar="N", help="seeds of each lab, of the campaign labs")
    parser.add_argument("--lab", metavar="NAME", help="one lab, of the campaign labs")
    chosen = parser.parse_args()
    for setting, value in (("LABS_SEEDS", chosen.seeds), ("LABS", chosen.lab)):
        if value is not None:
            os.environ[setting] = value
    if chosen.page:
        return not print_page()
    if unknown := [name for name in chosen.names if name not in CAMPAIGNS]:
        parser.error(f"found {', '.join(unknown)}, expected names of {', '.join(CAMPAIGNS)}")
    if not chosen.names:
        parser.print_help()
    broken = 0
    for name in chosen.names:
        print(f"== {name}", flush=True)
        broken += not import_module(f"tests.campaigns.{name}").main()
    return min(broken, 1)


if __name__ == "__main__":
    sys.exit(main())
