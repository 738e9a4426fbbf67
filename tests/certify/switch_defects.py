"""A small lab, and simulated switches with the defects of `defects.yaml`."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from lightrig.instruments.simulated.devices.simulated_polatis import SimulatedPolatis
from lightrig.instruments.simulated.protocols.tl1_device import Tl1Denial, Tl1Reply, Tl1Request
from lightrig.testbeds import Circuit

DEFECTS: dict[str, dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parent / "defects.yaml").read_text()
)

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
simulation:
  switches:
    ocs:
      acknowledge: {mean: ACKNOWLEDGE, sd: 1 ms}
      settle: {mean: SETTLE, sd: 1 ms}
      loss: {mean: 1.2 dB, sd: 0.2 dB}
      monitor: {averaging: 10 ms, noise: 0.03 dB}
"""


def lab(*, rerouting: bool = True, acknowledge_ms: int = 40, settle_ms: int = 24) -> str:
    """Return the lab's file: when a change is acknowledged, and when its light is there."""
    text = LAB.replace("REROUTING", str(rerouting).lower())
    return text.replace("ACKNOWLEDGE", f"{acknowledge_ms} ms").replace("SETTLE", f"{settle_ms} ms")


Execute = Callable[[Tl1Request], Tl1Reply]


def introduce(defect: str, patch: pytest.MonkeyPatch) -> str:
    """Give simulated switches a defect; return the file of the lab with them."""
    if defect == "early acknowledgement":
        return lab(acknowledge_ms=20, settle_ms=80)
    answer = _ANSWERS[defect]
    execute = SimulatedPolatis.execute
    memory: list[Tl1Reply] = []

    def with_defect(device: SimulatedPolatis, request: Tl1Request) -> Tl1Reply:
        return answer(device, request, lambda each: execute(device, each), memory)

    patch.setattr(SimulatedPolatis, "execute", with_defect)
    return lab()


def _changing_serial(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Tl1Reply]
) -> Tl1Reply:
    reply = execute(request)
    if request.verb != "RTRV-INV":
        return reply
    memory.append(reply)
    return Tl1Reply([re.sub(r"SN=\S[^,:\"]*", f"SN=SIM-{len(memory)}", x) for x in reply.lines])


def _late_list(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Tl1Reply]
) -> Tl1Reply:
    if request.verb == "ENT-PATCH":
        made = sorted(device._box.matrix.egress_of.items())
        memory[:] = [Tl1Reply([f"{ingress},{egress}" for ingress, egress in made])]
    return memory[0] if memory and request.verb == "RTRV-PATCH" else execute(request)


def _silent_port(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Tl1Reply]
) -> Tl1Reply:
    pairs = _pairs(request)
    known = [pair for pair in pairs if set(pair) <= set(device._box.ports)]
    if len(known) == len(pairs):
        return execute(request)
    return Tl1Reply((), device._box.connect(known) if known else 0, device._box.acknowledge)


def _batch_in_part(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Tl1Reply]
) -> Tl1Reply:
    pairs = _pairs(request)
    good = [set(pair) <= set(device._box.ports) for pair in pairs]
    if not all(good) and (before := pairs[: good.index(False)]):
        device._box.connect(before)
        raise Tl1Denial("IDNV", "Invalid OXC port")
    return execute(request)


def _pairs(request: Tl1Request) -> list[Circuit]:
    if request.verb != "ENT-PATCH":
        return []
    sides = [[int(port) for port in side.split("&")] for side in request.aid.split(",")]
    return [Circuit(*pair) for pair in zip(*sides, strict=True)]


_ANSWERS = {
    "changing serial": _changing_serial,
    "late list": _late_list,
    "silent port": _silent_port,
    "batch in part": _batch_in_part,
}

INTRODUCED = [name for name in DEFECTS if name in {*_ANSWERS, "early acknowledgement"}]
"""Defects that a simulated switch can be given so far."""
