"""Bit errors before FEC around reconfigurations, on simulated NICs of every driver.

On testbeds/opus.yaml a port's errors are counted before and after each of `CHANGES` changes between
two plans (default: 2), for as long as half a minute of virtual time each. The last line of a driver
is its frame loss ratio by the FEC histogram, where it has one.
"""

import os
import tempfile
from pathlib import Path

from lightrig.harness.bench import Fabric, bind
from lightrig.harness.measure.bit_errors.frame_loss import measure_frame_loss
from lightrig.harness.measure.bit_errors.setup import NoCountersError, measure_errors_around
from lightrig.harness.measure.links import LinkObservation
from lightrig.harness.measure.reconfiguration import bring_up
from lightrig.harness.measure.recording import Recording
from lightrig.harness.record import Row
from lightrig.testbeds import load

OPUS = Path(__file__).parents[1] / "testbeds" / "opus.yaml"
DRIVERS = ("mlx5_core", "bnxt_en", "ice", "ionic")


def count(driver: str, changes: int) -> None:
    """Print the ratios of one port, with their intervals."""
    text = OPUS.read_text(encoding="utf-8")
    text = text.replace("\n  nic:\n", f"\n  nic:\n    driver: {driver}\n")
    text = text.replace("file: opus/", f"file: {OPUS.parent}/opus/")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "opus.yaml")
        file.write_text(text, encoding="utf-8")
        bench = bind(load(file), "simulated", 1)
        try:
            fabric, links, rows = Fabric(bench), LinkObservation(bench), list[Row]()
            plans = list(bench.testbed.plans.values())[:2]
            ends = [{p for e in bench.testbed.links(plan) for p in (e.a, e.b)} for plan in plans]
            port = min(ends[0] & ends[1])
            recording = Recording(rows.extend, bench.testbed.limits)
            bring_up(fabric, links, plans[0])
            for number in range(changes):
                plan = plans[(number + 1) % 2]
                measure_errors_around(fabric, links, recording, plan, [port])
            try:
                measure_frame_loss(bench, recording, [port])
            except NoCountersError as error:
                print(f"{driver:<10} {'frame_loss_ratio':<38} {error}")
        finally:
            bench.close()
    for row in rows:
        if row.quantity.startswith(("nic_error_ratio.", "frame_loss_ratio")):
            moment = str(row.conditions.get("moment", ""))
            interval = f"({row.lower:.2g} to {row.upper:.2g})"
            print(f"{driver:<10} {row.quantity:<38} {moment:<28} {row.value:.3g} {interval}")


def main() -> None:
    """Print all drivers, simulated."""
    for driver in DRIVERS:
        count(driver, int(os.environ.get("CHANGES", "2")))


if __name__ == "__main__":
    main()
