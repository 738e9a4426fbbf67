"""Every circuit of a simulated 32 x 32 switch, for twenty seeds: does the truth lie inside?

Of the 95 % intervals of all losses, 95 ± 1 % must hold the loss that was put in; that takes 32
settings, not 1,024, and no more than 1.05 times what the switch and its monitors take
themselves. Beside it, the same circuits made one at a time. Everything here is simulated.
"""

import tempfile
import time
from pathlib import Path

from lightrig.harness.bench import Bench, Fabric, bind
from lightrig.harness.measure.insertion_loss.chains import chains
from lightrig.harness.measure.insertion_loss.matrix import Losses, measure_losses
from lightrig.harness.measure.insertion_loss.references import references_of
from lightrig.harness.measure.insertion_loss.rows import inside
from lightrig.testbeds import Circuit, Plan, load

SEEDS = range(20)
LEAST, MOST = 0.94, 0.96
MOST_RATIO = 1.05
SETTINGS = 32
CHANGE_NS, PER_PAIR_NS, WINDOW_NS, ANSWER_NS = 41_440_000, 354_000, 10_000_000, 400_000

YAML = """
name: losses
switches:
  ocs: {model: polatis, address: tl1://ocs.invalid, size: 32x32,
        options: {rerouting: true, monitors: both}}
servers:
  server[0-7]:
    address: ssh://bench@{name}.invalid
    nics: {nic0: {ports: 4, netdev: "ens1f{p}", rate: 100G, transceiver: lr4}}
transceivers:
  lr4:
    wavelength: 1310 nm
    launch: {min: -4 dBm, max: 4 dBm}
    receive: {min: -14 dBm, max: 4 dBm}
fibers:
  - server[0-7].nic0.p[0-3] <-> ocs
simulation:
  switches:
    ocs:
      acknowledge: {mean: 41.44 ms, sd: 3 ms, per_pair: 0.354 ms}
      settle: {mean: 24 ms, sd: 2 ms, per_pair: 0.354 ms}
      loss: {mean: 1.2 dB, sd: 0.1 dB, ingress: 0.1 dB, egress: 0.1 dB, repeatability: 0.02 dB}
      monitor: {averaging: 10 ms, noise: 0.03 dB, offset: 0.15 dB, drift: 0.01 dB}
  references: {uncertainty: 0.04 dB}
"""


def measured(bench: Bench) -> tuple[Losses, int]:
    """All losses, and how long that took, in virtual ns."""
    (chain,) = chains(bench, references_of(bench))
    fabric = Fabric(bench)
    began = bench.clock.now()
    losses = measure_losses(fabric, chain)
    return losses, bench.clock.now() - began


def fixed_delays(losses: Losses) -> float:
    """Return the switch's own share, by its ground truth: changes, windows and replies.

    Reading its circuits before and after each change is the harness's own caution, and is not
    counted.
    """
    settings = losses.settings + losses.remade
    readings = losses.entered.shape[1] + (settings - 1) * losses.readings
    return settings * (CHANGE_NS + 31 * PER_PAIR_NS) + readings * (WINDOW_NS + ANSWER_NS)


def one_at_a_time(bench: Bench, readings: int) -> int:
    """Return the duration of 1,024 circuits, made and read one by one, in virtual ns."""
    fabric, switch = Fabric(bench), bench.switches["ocs"]
    began = bench.clock.now()
    for ingress in range(1, 33):
        for egress in range(33, 65):
            circuit = Circuit(ingress, egress)
            fabric.apply(Plan("one", {"ocs": frozenset({circuit})}))
            for _ in range(readings):
                bench.clock.sleep(WINDOW_NS)
                switch.power(list(circuit))  # type: ignore[attr-defined]
    return bench.clock.now() - began


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "losses.yaml"
        path.write_text(YAML)
        testbed = load(path)
        covered: list[bool] = []
        widths: list[float] = []
        ratios: list[float] = []
        start = time.perf_counter()
        for seed in SEEDS:
            bench = bind(testbed, "simulated", seed)
            try:
                losses, took = measured(bench)
                covered += inside(losses, bench)
            finally:
                bench.close()
            assert losses.settings == SETTINGS, losses.settings
            ratios.append(took / fixed_delays(losses))
            widths += [loss.budget.expanded for loss in losses.losses.values()]
        seconds = time.perf_counter() - start
        bench = bind(testbed, "simulated", 0)
        try:
            naive = one_at_a_time(bench, losses.readings)
        finally:
            bench.close()
    share = sum(covered) / len(covered)
    print(f"intervals that hold the truth  {share:.2%} of {len(covered):,}, ± {max(widths):.3f} dB")
    print(f"settings                       {losses.settings}, and {losses.remade} made again")
    mean = sum(ratios) / len(ratios)
    print(f"lab time / the switch's own    {mean:.4f} on average, {max(ratios):.4f} at most")
    print(f"lab time (simulated)           {took / 1e9:.2f} s; one at a time {naive / 1e9:.2f} s")
    print(f"real time                      {seconds / len(SEEDS):.2f} s a switch")
    assert LEAST <= share <= MOST, f"{share:.2%} of intervals hold the truth"
    assert max(ratios) <= MOST_RATIO, f"lab time is {max(ratios):.4f} of the switch's own"


if __name__ == "__main__":
    main()
