"""A small lab whose losses are measured: eight NIC ports on a Polatis, or a laser on a meter."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lightrig.harness.bench import Bench, Fabric, bind
from lightrig.harness.measure.insertion_loss.chains import chains
from lightrig.harness.measure.insertion_loss.matrix import Losses, measure_losses
from lightrig.harness.measure.insertion_loss.references import references_of
from lightrig.testbeds import load
from lightrig.testbeds.references import References

POLATIS = """
name: lossy
switches:
  ocs: {{model: polatis, address: tl1://ocs.invalid, size: {size}x{size},
        options: {{rerouting: true, monitors: {monitors}}}{switch}}}
servers:
  server[0-1]:
    address: ssh://bench@{{name}}.invalid
    nics: {{nic0: {{ports: {ports}, netdev: "ens1f{{p}}", rate: 100G, transceiver: lr4}}}}
transceivers:
  lr4:
    wavelength: 1310 nm
    launch: {{min: -4 dBm, max: 4 dBm}}
    receive: {{min: -14 dBm, max: 4 dBm}}
fibers:
  - server[0-1].nic0.p[0-{last}] <-> ocs
instruments: {{{instruments}}}
limits: {{insertion_loss: {{max: 4 dB}}}}
simulation:
  faults: [{faults}]
  switches:
    ocs:
      acknowledge: {{mean: 40 ms}}
      settle: {{mean: {settle}}}
      loss: {{mean: 1.2 dB, sd: 0.05 dB, ingress: 0.05 dB, egress: 0.05 dB, repeatability: 0.02 dB}}
      monitor: {{averaging: 10 ms, noise: 0.03 dB, offset: 0.15 dB, drift: 0.01 dB}}
  references: {{uncertainty: {uncertainty}}}
"""

METER = """
name: metered
switches:
  trx: {{model: ocstrx, address: "serial:///dev/trx", size: 3x9}}
instruments:
  laser[1-2]: {{kind: light_source, model: keysight-n7776c, address: "scpi://{{name}}.invalid"}}
  {meters}: {{kind: power_meter, model: keysight-n7745a, address: "scpi://{{name}}.invalid",
    channels: 4}}
  voa: {{kind: attenuator, model: keysight-n7764a, address: scpi://voa.invalid, channels: 4}}
fibers:
  - laser[1-2] -> trx.[1-2]
  - {{fiber: "trx.[4,5] -> {first}.[1-2]", loss: 0.4 dB}}
  - {{fiber: "trx.[7,8] -> {second}.[{channels}]", loss: 0.4 dB}}
  - voa.1 -> trx.3     # nobody reads the third module, which must be on some path all the same
  - trx.10 -> voa.2
plans:
  one: {{circuits: {{trx: ["1>4", "2>7", "3>10"]}}}}
  two: {{circuits: {{trx: ["1>5", "2>8", "3>10"]}}}}
simulation:
  faults: [{faults}]
  switches:
    trx:
      acknowledge: {{mean: 75 us}}
      settle: {{mean: 70 us}}
      loss: {{mean: 3.3 dB, sd: 0.3 dB}}
  references: {{uncertainty: {uncertainty}}}
"""


@contextmanager
def polatis(
    folder: Path,
    *faults: str,
    seed: int = 1,
    monitors: str = "both",
    ports: int = 4,
    settle: str = "24 ms",
    instruments: str = "",
    uncertainty: str = "0.04 dB",
    switch: str = "",
) -> Iterator[Bench]:
    """As many ingress and egress ports as two servers with `ports` NIC ports each need."""
    text = POLATIS.format(
        faults=", ".join(faults),
        monitors=monitors,
        size=2 * ports,
        ports=ports,
        last=ports - 1,
        settle=settle,
        instruments=instruments,
        switch=switch,
        uncertainty=uncertainty,
    )
    with _bound(folder / "lossy.yaml", text, seed) as bench:
        yield bench


@contextmanager
def metered(
    folder: Path, *faults: str, seed: int = 1, meters: int = 1, uncertainty: str = "0.04 dB"
) -> Iterator[Bench]:
    """Two modules that switch, each with a laser and two meter channels, and a third."""
    one = {"meters": "meter", "first": "meter", "second": "meter", "channels": "3-4"}
    two = {"meters": "meter[1-2]", "first": "meter1", "second": "meter2", "channels": "1-2"}
    named = one if meters == 1 else two
    text = METER.format(faults=", ".join(faults), uncertainty=uncertainty, **named)
    with _bound(folder / "metered.yaml", text, seed) as bench:
        yield bench


@contextmanager
def _bound(path: Path, text: str, seed: int) -> Iterator[Bench]:
    path.write_text(text)
    bench = bind(load(path), "simulated", seed)
    try:
        yield bench
    finally:
        bench.close()


def measured(bench: Bench, references: References | None = None, **options: Any) -> Losses:
    """Measure all losses of the one chain of `bench`, and put its circuits back."""
    fabric = Fabric(bench)
    (chain,) = chains(bench, references_of(bench) if references is None else references)
    losses = measure_losses(fabric, chain, **options)
    fabric.restore()
    return losses
