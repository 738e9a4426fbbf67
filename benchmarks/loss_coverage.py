"""Coverage of the 95 % intervals of insertion loss, by chain, and of each component seen alone.

    python -m benchmarks.loss_coverage [BENCHES [NAME...]]

Each bench has a seed of its own: its losses share references, so their number decides how well
the share is known. Beside the share stands its standard error over benches, the mean of the
deviations from the truth, and their spread, both in standard uncertainties as stated: a spread of
1 means that intervals are neither too narrow nor too wide. Everything here is simulated.
"""

import math
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from lightrig.harness.bench import Fabric, bind
from lightrig.harness.measure.insertion_loss.chains import chains
from lightrig.harness.measure.insertion_loss.matrix import measure_losses
from lightrig.harness.measure.insertion_loss.references import references_of
from lightrig.harness.measure.insertion_loss.rows import normalized_errors
from lightrig.testbeds import load

BENCHES = 400
MARGIN = 0.01

POLATIS = """
name: lossy
switches:
  ocs: {model: polatis, address: tl1://ocs.invalid, size: 8x8, options: OPTIONS}
servers:
  server[0-1]:
    address: ssh://bench@{name}.invalid
    nics: {nic0: {ports: 4, netdev: "ens1f{p}", rate: 100G, transceiver: lr4}}
transceivers:
  lr4: {wavelength: 1310 nm, launch: {min: -4 dBm, max: 4 dBm}, receive: {min: -14 dBm, max: 4 dBm}}
fibers:
  - server[0-1].nic0.p[0-3] <-> ocs
simulation:
  switches:
    ocs:
      acknowledge: {mean: 40 ms}
      settle: {mean: 24 ms}
      loss: {mean: 1.2 dB, sd: 0.05 dB, ingress: 0.05 dB, egress: 0.05 dB,
             repeatability: REPEATABILITY}
      monitor: {averaging: 10 ms, noise: NOISE, offset: 0.15 dB, drift: DRIFT}
  references: {uncertainty: REFERENCE}
"""
METERS = """
name: metered
switches:
  trx: {model: ocstrx, address: "serial:///dev/trx", size: 2x6}
instruments:
  laser[1-2]: {kind: light_source, model: keysight-n7776c, address: "scpi://{name}.invalid"}
  meter[1-COUNT]: {kind: power_meter, model: keysight-n7745a, address: "scpi://{name}.invalid",
                   channels: 4}
fibers:
  - laser[1-2] -> trx.[1-2]
  - {fiber: "trx.[3,4] -> meter1.[1-2]", loss: 0.4 dB, uncertainty: FIBER}
  - {fiber: "trx.[6,7] -> meterCOUNT.[CHANNELS]", loss: 0.4 dB, uncertainty: FIBER}
plans:
  one: {circuits: {trx: ["1>3", "2>6"]}}
  two: {circuits: {trx: ["1>4", "2>7"]}}
simulation:
  switches:
    trx:
      acknowledge: {mean: 75 us}
      settle: {mean: 70 us}
      loss: {mean: 3.3 dB, sd: 0.3 dB, repeatability: REPEATABILITY}
  references: {uncertainty: REFERENCE}
"""
USUAL = {
    "OPTIONS": "{rerouting: true, monitors: both}",
    "REPEATABILITY": "0.02 dB",
    "NOISE": "0.03 dB",
    "DRIFT": "0.01 dB",
    "REFERENCE": "0.04 dB",
    "COUNT": "1",
    "CHANNELS": "3-4",
    "FIBER": "0 dB",
}
EXACT = USUAL | {
    "REPEATABILITY": "0 dB",
    "NOISE": "0.0001 dB",
    "DRIFT": "0 dB",
    "REFERENCE": "0.0001 dB",
}
TWO = {"COUNT": "2", "CHANNELS": "1-2"}
CASES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "monitors": (POLATIS, USUAL),
    "source and monitors": (POLATIS, USUAL | {"OPTIONS": "{rerouting: true, monitors: egress}"}),
    "one meter": (METERS, USUAL),
    "two meters": (METERS, USUAL | TWO),
    "noise alone": (POLATIS, EXACT | {"NOISE": "0.03 dB"}),
    "repeatability alone": (POLATIS, EXACT | {"REPEATABILITY": "0.05 dB"}),
    "reference alone": (POLATIS, EXACT | {"REFERENCE": "0.04 dB"}),
    "reference of one meter alone": (METERS, EXACT | {"REFERENCE": "0.04 dB"}),
    "source alone": (METERS, EXACT),
    "fiber alone": (METERS, EXACT | {"FIBER": "0.1 dB"}),
    "two meters alone": (METERS, EXACT | TWO),
}
"""Testbed and its parameters."""


def deviations(text: str, given: Mapping[str, str], benches: int) -> list[list[float]]:
    """Return the deviations of each bench's losses, in standard uncertainties."""
    for word, value in given.items():
        text = text.replace(word, value)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lab.yaml"
        path.write_text(text)
        testbed = load(path)
        for seed in range(1, benches + 1):
            bench = bind(testbed, "simulated", seed)
            try:
                (chain,) = chains(bench, references_of(bench))
                losses = measure_losses(Fabric(bench), chain)
                found.append(
                    [
                        error * losses.losses[circuit].budget.factor
                        for circuit, error in normalized_errors(losses, bench)
                    ]
                )
                inside = [abs(error) <= 1 for _, error in normalized_errors(losses, bench)]
                _coverages.append(float(np.mean(inside)))
            finally:
                bench.close()
    return found


_coverages: list[float] = []


def main(benches: int = BENCHES, *names: str) -> None:
    print("| case | benches | losses | in their interval | mean | spread |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, (text, given) in CASES.items():
        if names and name not in names:
            continue
        _coverages.clear()
        found = deviations(text, given, benches)
        every = np.concatenate(found)
        error = float(np.std(_coverages, ddof=1)) / math.sqrt(len(_coverages))
        print(
            f"| {name} | {benches} | {len(every):,} | {np.mean(_coverages):.1%} ± {error:.1%} | "
            f"{np.mean(every):+.2f} | {np.sqrt(np.mean(every**2)):.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]), *sys.argv[2:])
