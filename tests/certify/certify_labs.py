"""Small labs with one switch each, of which no side and no number stands for another."""

# Six ingress and five egress ports of a 8 x 12 switch: no side, and no number, stands for another.
LAB = """
name: certified
switches:
  ocs: {model: polatis, address: tl1://ocs.invalid, size: 8x12, options: {rerouting: REROUTING}}
servers:
  server0:
    address: ssh://bench@server0.invalid
    nics: {nic0: {ports: 6, netdev: "ens1f{p}", rate: 100G, transceiver: lr4}}
transceivers:
  lr4: {wavelength: 1310 nm, launch: {min: -4 dBm, max: 4 dBm}, receive: {min: -14 dBm, max: 4 dBm}}
fibers:
  - server0.nic0.p[0-5] -> ocs.[2-7]
  - ocs.[10-14] -> server0.nic0.p[0-4]
limits: {crosstalk: {max: -48 dB}}
simulation:
  switches:
    ocs:
      acknowledge: {mean: ACKNOWLEDGE, sd: 1 ms}
      settle: {mean: SETTLE, sd: 1 ms}
      loss: {mean: 1.2 dB, sd: 0.2 dB}
      monitor: {averaging: 10 ms, noise: 0.03 dB}
"""

# A laser with a polarization controller before a 1 x 4 switch, and four power meters behind it.
OPTICS = """
name: optics
switches:
  ocs: {model: keysight-n773x, address: "scpi://ocs.invalid", size: 1x4}
instruments:
  laser:  {kind: light_source, model: keysight-n7776c, address: "scpi://laser.invalid"}
  plates: {kind: polarization_controller, model: agilent-8169a, address: "scpi://plates.invalid"}
  meter:  {kind: power_meter, model: keysight-n7745a, address: "scpi://meter.invalid", channels: 4}
fibers: [laser -> plates, plates -> ocs.1, "ocs.[2-5] -> meter.[1-4]"]
limits:
  polarization_dependent_loss: {max: 0.25 dB}
  wavelength_dependent_loss: {max: 0.6 dB}
  crosstalk: {max: -48 dB}
simulation:
  switches:
    ocs:
      loss: {mean: 1.2 dB, sd: 0.2 dB, polarization: POLARIZATION, per_nm: PER_NM, crosstalk: LEAK}
"""
SCOPE = """
name: scope
switches:
  ocs: {model: keysight-n773x, address: "scpi://ocs.invalid", size: 1x4}
instruments:
  laser: {kind: light_source, model: keysight-n7776c, address: "scpi://laser.invalid"}
  scope: {kind: oscilloscope, model: keysight-infiniivision, address: "scpi://scope.invalid",
          channels: 4, options: {volts_per_mw: 0.5, full_scale_mw: 2.0}}
fibers: [laser -> ocs.1, "ocs.[2-5] -> scope.[1-4]"]
plans: {near: {circuits: {ocs: ["1>2"]}}, far: {circuits: {ocs: ["1>5"]}}}
limits: {switching.time: {max: 35 ms}, switching.rise: {max: 3 ms}}
simulation:
  switches:
    ocs:
      acknowledge: {mean: 35 ms, sd: 1 ms}
      dark: {mean: 2 ms, sd: 0.3 ms}
      settle: {mean: 16 ms, sd: 1 ms}
      edge: {rise: RISE, fall: 0.8 ms}
"""
TRAFFIC = """
name: traffic
switches:
  ocs: {model: polatis, address: "tl1://ocs.invalid", size: 4x6, options: {rerouting: true}}
servers:
  server[0-2]:
    address: ssh://bench@{name}.invalid
    nics: {nic0: {netdev: ens1f0, rdma: mlx5_0, rate: 100G, transceiver: lr4}}
transceivers:
  lr4: {wavelength: 1310 nm, launch: {min: -4 dBm, max: 4 dBm}, receive: {min: -14 dBm, max: 4 dBm}}
fibers: ["server[0-2].nic0 -> ocs.[2-4]", "ocs.[6-8] -> server[0-2].nic0"]
plans:
  first: [server0.nic0 <-> server1.nic0]
  second: [server0.nic0 <-> server2.nic0]
limits: {outage.packets: {max: 5 s}, rdma.recovered: {max: 5 s}}
simulation:
  switches: {ocs: {acknowledge: {mean: ACKNOWLEDGE}, settle: {mean: SETTLE}}}
  nic: {bring_up: {mean: 3 s, sd: 0.2 s}, fec_histogram: true}
"""
# A laser before one ingress of a switch that states factory losses, and power meters behind it.
FACTORY = """
name: factory
switches:
  ocs: {model: sonic-ocs, address: "ssh://ocs.invalid", size: 4x4}
instruments:
  laser: {kind: light_source, model: keysight-n7776c, address: "scpi://laser.invalid"}
  meter: {kind: power_meter, model: keysight-n7745a, address: "scpi://meter.invalid", channels: 4}
fibers: [laser -> ocs.1, "ocs.[5-8] -> meter.[1-4]"]
"""


def optics_lab(
    *, polarization: str = "0.1 dB", per_nm: str = "0.005 dB", leak: str = "60 dB"
) -> str:
    """Return the lab with optical instruments, as its switch has to be."""
    text = OPTICS.replace("POLARIZATION", polarization).replace("PER_NM", per_nm)
    return text.replace("LEAK", leak)


def scope_lab(rise: str = "1.5 ms") -> str:
    """Return the lab with an oscilloscope, whose switch's light rises so fast."""
    return SCOPE.replace("RISE", rise)


def traffic_lab(settle_ms: int = 24) -> str:
    """Return the lab with traffic, whose switch settles and acknowledges so fast."""
    text = TRAFFIC.replace("SETTLE", f"{settle_ms} ms")
    return text.replace("ACKNOWLEDGE", f"{settle_ms + 16} ms")


def lab(*, rerouting: bool = True, acknowledge_ms: int = 40, settle_ms: int = 24) -> str:
    """Return the lab's file: when a change is acknowledged, and when its light is there."""
    text = LAB.replace("REROUTING", str(rerouting).lower())
    return text.replace("ACKNOWLEDGE", f"{acknowledge_ms} ms").replace("SETTLE", f"{settle_ms} ms")


def sonic_lab(wire: str = "ssh") -> str:
    """Return the lab with a switch that runs SONiC."""
    return (
        lab()
        .replace("model: polatis, address: tl1://", f"model: sonic-ocs, address: {wire}://")
        .replace(", options: {rerouting: true}", "")
    )


def timed_lab(dark_ms: float, settle_ms: float, *, acknowledge_ms: int = 40) -> str:
    """Return the lab whose changes all take exactly so long, by the command."""
    times = f"settle: {{mean: {settle_ms} ms}}\n      dark: {{mean: {dark_ms} ms}}"
    text = LAB.replace("REROUTING", "true").replace("settle: {mean: SETTLE, sd: 1 ms}", times)
    return text.replace("{mean: ACKNOWLEDGE, sd: 1 ms}", f"{{mean: {acknowledge_ms} ms}}")
