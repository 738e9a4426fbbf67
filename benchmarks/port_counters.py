"""Price of the counters around tests: time of the collection, as a share of the tests' time.

Virtual time of two simulated labs, in which ethtool takes 2 ms, mlxlink 350 ms and a module 60 ms;
the limit is 2 % of a test. Then the processor time that collecting takes this program, a test.
"""

import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from benchmarks.figures import beside_limit
from lightrig.harness.bench import bind
from lightrig.harness.measure.port_counters import MOST_COST, PortCounters
from lightrig.harness.measure.recording import Recording
from lightrig.harness.record import Row
from lightrig.testbeds import load, parse_limit

LABS = ("opus", "mixnet")
TESTS = 60
SECONDS = (5, 30, 120)
_ASKED = "port_counter.link_downed"
"""A limit on it has a simulation's counters read."""


def main() -> None:
    """Print a line for each lab and length of its tests."""
    for name in LABS:
        for seconds in SECONDS:
            _print(name, seconds)


def _print(name: str, seconds: int) -> None:
    testbed = load(Path(__file__).parents[1] / "testbeds" / f"{name}.yaml")
    limit = parse_limit(_ASKED, {"max": 100})
    with closing(bind(replace(testbed, limits={_ASKED: limit}), "simulated", seed=1)) as bench:
        rows: list[Row] = []
        counters, clock = PortCounters(bench), bench.clock
        counters.begin()
        shares, modules, began, spent = list[float](), list[float](), clock.now(), 0.0
        for _ in range(TESTS):
            clock.sleep(seconds * 1_000_000_000)
            before, first, processor = clock.now(), len(rows), time.process_time()
            counters.record(Recording(rows.extend))
            spent += time.process_time() - processor
            took = (clock.now() - before) / (seconds * 1e9)
            of_modules = any(row.quantity.startswith("transceiver.") for row in rows[first:])
            shares.append(took)
            modules += [took] if of_modules else []
        ports = len(bench.testbed.nic_ports)
        of_firmware = sum(row.quantity == "port_counter.firmware_link_downs" for row in rows)
        worst = max(shares)
        whole = (clock.now() - began) / (TESTS * seconds * 1e9) - 1
    beside_limit(
        f"{name}, {ports} ports, tests of {seconds} s: readings, share of a test, most",
        worst,
        MOST_COST,
        spread=f"with modules {max(modules, default=0.0):.2%}; {whole:.2%} of all; firmware of "
        f"{of_firmware / TESTS:.1f} ports a test; {1e3 * spent / TESTS:.1f} ms of processor a test",
    )
