"""A small lab, and simulated switches with the defects of `defects.yaml`."""

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from lightrig.harness.certify.requirements import requirements
from lightrig.instruments.simulated.devices.simulated_polatis import SimulatedPolatis
from lightrig.instruments.simulated.devices.simulated_sonic_ocs import SimulatedSonicOcs
from lightrig.instruments.simulated.protocols.ssh_server import ProgramOutcome
from lightrig.instruments.simulated.protocols.tl1_device import (
    Tl1Denial,
    Tl1Reply,
    Tl1Request,
    Tl1ServerSession,
)
from lightrig.instruments.simulated.world.optics import Matrix
from lightrig.testbeds import Circuit
from lightrig.testbeds.simulation import Delay

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
    nics: {nic0: {netdev: ens1f0, rate: 100G, transceiver: lr4}}
transceivers:
  lr4: {wavelength: 1310 nm, launch: {min: -4 dBm, max: 4 dBm}, receive: {min: -14 dBm, max: 4 dBm}}
fibers: ["server[0-2].nic0 -> ocs.[2-4]", "ocs.[6-8] -> server[0-2].nic0"]
plans:
  first: [server0.nic0 <-> server1.nic0]
  second: [server0.nic0 <-> server2.nic0]
limits: {outage.packets: {max: 5 s}}
simulation:
  switches: {ocs: {acknowledge: {mean: ACKNOWLEDGE}, settle: {mean: SETTLE}}}
  nic: {bring_up: {mean: 3 s, sd: 0.2 s}, fec_histogram: true}
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


def limit_profile(patch: pytest.MonkeyPatch, numbers: Iterable[str]) -> None:
    """Let the profile `polatis` require these clauses and no others."""
    profiles = requirements().profiles
    assert isinstance(profiles, dict)
    changes = {"required": tuple(numbers), "optional": ()}
    patch.setitem(profiles, "polatis", profiles["polatis"].model_copy(update=changes))


Execute = Callable[[Tl1Request], Tl1Reply]


def sonic_lab(wire: str = "ssh") -> str:
    """Return the lab with a switch that runs SONiC."""
    return (
        lab()
        .replace("model: polatis, address: tl1://", f"model: sonic-ocs, address: {wire}://")
        .replace(", options: {rerouting: true}", "")
    )


def introduce(defect: str, patch: pytest.MonkeyPatch) -> str:
    """Give simulated switches a defect; return the file of the lab with them."""
    if defect == "early acknowledgement":
        return lab(acknowledge_ms=20, settle_ms=80)
    if defect == "slow settling":
        return lab(acknowledge_ms=280, settle_ms=250)
    if defect == "loose mirrors":
        return lab().replace("sd: 0.2 dB}", "sd: 0.2 dB, repeatability: 0.4 dB}")
    if defect == "slow now and then":
        slow = "slow: {share: 30 %, mean: 224 ms}"
        return lab().replace("settle: {mean: 24 ms, sd: 1 ms}", f"settle: {{mean: 24 ms, {slow}}}")
    if defect == "slow to distant ports":
        _slow_to_distant_ports(patch)
        return lab(acknowledge_ms=140)
    if defect in _LABS:
        return _LABS[defect]
    if DEFECTS[defect].get("lab", "").startswith("sonic"):
        _SONIC[defect](patch)
        return sonic_lab("gnmi" if DEFECTS[defect]["lab"] == "sonic-gnmi" else "ssh")
    answer = _ANSWERS[defect]
    execute = SimulatedPolatis.execute
    memory: list[Any] = []

    def with_defect(device: SimulatedPolatis, request: Tl1Request) -> Tl1Reply:
        return answer(device, request, lambda each: execute(device, each), memory)

    patch.setattr(SimulatedPolatis, "execute", with_defect)
    if defect == "no answer beyond the limit":
        _limit_sessions(patch, 6)
    return lab(rerouting=defect != "refused and removed")


def _changing_serial(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    reply = execute(request)
    if request.verb != "RTRV-INV":
        return reply
    memory.append(reply)
    return Tl1Reply([re.sub(r"SN=\S[^,:\"]*", f"SN=SIM-{len(memory)}", x) for x in reply.lines])


def _late_list(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    if request.verb == "ENT-PATCH":
        made = sorted(device._box.matrix.egress_of.items())
        memory[:] = [Tl1Reply([f"{ingress},{egress}" for ingress, egress in made])]
    return memory[0] if memory and request.verb == "RTRV-PATCH" else execute(request)


def _silent_port(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    pairs = _pairs(request)
    known = [pair for pair in pairs if set(pair) <= set(device._box.ports)]
    if len(known) == len(pairs):
        return execute(request)
    return Tl1Reply((), device._box.connect(known) if known else 0, device._box.acknowledge)


def _batch_in_part(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
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


def _label_of_a_neighbour(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    reply = execute(request)
    if request.verb == "ED-PORT-LABEL":
        device._box.label(int(request.aid) + 1, device._box.labels[int(request.aid)])
    return reply


def _refused_and_removed(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    try:
        return execute(request)
    except Tl1Denial as denial:
        if denial.code == "SRCN":
            ports = {port for pair in _pairs(request) for port in pair}
            device._box.disconnect(sorted(ports))
        raise


def _stale_view(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    memory[:] = memory or [{}]
    views: dict[int, list[str]] = memory[0]
    client = id(request.session)
    reply = execute(request)
    if client not in views or request.verb in {"ACT-USER", "ENT-PATCH", "DLT-PATCH", "INIT-SYS"}:
        made = sorted(device._box.matrix.egress_of.items())
        views[client] = [f"{ingress},{egress}" for ingress, egress in made]
    return Tl1Reply(views[client]) if request.verb == "RTRV-PATCH" else reply


def _light_after_removal(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    memory[:] = memory or [set()]
    hidden: set[int] = memory[0]
    if request.verb == "DLT-PATCH":
        hidden.update(int(port) for port in request.aid.split("&"))
        return Tl1Reply((), 40_000_000)
    taken = {pair.ingress for pair in _pairs(request)}
    taken |= {device._box.matrix.ingress_of.get(pair.egress, 0) for pair in _pairs(request)}
    reply = execute(request)
    hidden -= taken  # a port that is taken for a new circuit leaves the hidden one
    if request.verb != "RTRV-PATCH":
        return reply
    return Tl1Reply([line for line in reply.lines if int(line.partition(",")[0]) not in hidden])


def _two_circuits_at_a_port(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    for pair in _pairs(request):
        before = device._box.matrix.egress_of.get(pair.ingress)
        if before not in (None, pair.egress):
            memory.append(f"{pair.ingress},{before}")
    reply = execute(request)
    return Tl1Reply([*reply.lines, *memory]) if request.verb == "RTRV-PATCH" else reply


def _edit_without_effect(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    return Tl1Reply((), 40_000_000) if request.verb == "ENT-PATCH" else execute(request)


def _failed_batch_made(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    pairs = _pairs(request)
    good = [pair for pair in pairs if set(pair) <= set(device._box.ports)]
    if good and len(good) < len(pairs) and len(pairs) > 1:
        device._box.connect(good)
        raise Tl1Denial("IDNV", "Invalid OXC port")
    return execute(request)


def _error_as_success(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    pairs = _pairs(request)
    if any(len({pair[side] for pair in pairs}) < len(pairs) for side in (0, 1)):
        return Tl1Reply()
    return execute(request)


def _absent_port_listed(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    pairs = _pairs(request)
    bad = [pair for pair in pairs if not set(pair) <= set(device._box.ports)]
    if bad:
        memory.extend(f"{ingress},{egress}" for ingress, egress in bad)
        good = [pair for pair in pairs if pair not in bad]
        return Tl1Reply((), device._box.connect(good) if good else 0, device._box.acknowledge)
    if request.verb == "DLT-PATCH":
        memory.clear()
    reply = execute(request)
    return Tl1Reply([*reply.lines, *memory]) if request.verb == "RTRV-PATCH" else reply


def _light_at_a_blocked_port(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    memory[:] = memory or [set()]
    if request.verb in {"OPR-PORT-SHUTTER", "RLS-PORT-SHUTTER"}:
        ports = set(map(int, request.aid.split("&")))
        memory[0] = memory[0] | ports if request.verb.startswith("OPR") else memory[0] - ports
        return Tl1Reply()
    if request.verb == "RTRV-PORT-SHUTTER":
        ports = map(int, request.aid.split("&"))
        return Tl1Reply([f"{p}:{'CLOSED' if p in memory[0] else 'OPEN'}" for p in ports])
    return execute(request)


def _clamped_port(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    pairs, box = _pairs(request), device._box
    if all(set(pair) <= set(box.ports) for pair in pairs):
        return execute(request)
    greatest = box.ingress_ports[-1], box.egress_ports[-1]
    known = [Circuit(min(pair[0], greatest[0]), min(pair[1], greatest[1])) for pair in pairs]
    return Tl1Reply((), box.connect(known), box.acknowledge)


def _last_of_two(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    pairs, box = _pairs(request), device._box
    kept: list[Circuit] = []
    for pair in pairs if all(set(pair) <= set(box.ports) for pair in pairs) else ():
        kept = [each for each in kept if each[0] != pair[0] and each[1] != pair[1]] + [pair]
    if kept and len(kept) < len(pairs):
        return Tl1Reply((), box.connect(kept), box.acknowledge)
    return execute(request)


def _removal_takes_all(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    matrix = device._box.matrix
    if request.verb == "DLT-PATCH":
        ports = set(map(int, request.aid.split("&")))
        if not ports <= {*matrix.egress_of, *matrix.ingress_of}:
            return Tl1Reply((), device._box.disconnect(list(matrix.egress_of)))
    return execute(request)


def _half_of_a_lost_change(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    pairs, box = _pairs(request), device._box
    if len(pairs) < 3 or not all(set(pair) <= set(box.ports) for pair in pairs):
        return execute(request)
    if any(len({pair[side] for pair in pairs}) < len(pairs) for side in (0, 1)):
        return execute(request)
    box.connect(pairs[: len(pairs) // 2])

    def go_on() -> None:
        if request.session.user is not None:
            box.connect(pairs[len(pairs) // 2 :])

    box.clock.schedule(box.clock.now() + 7_000_000, f"{box.name}!second half", go_on)
    return Tl1Reply((), 60_000_000, box.acknowledge)


def _login_clears(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    reply = execute(request)
    if request.verb == "ACT-USER":
        memory.append(request.session)
        if len(memory) > 2:  # the driver has two of its own
            device._box.disconnect(list(device._box.matrix.egress_of))
    return reply


def _block_takes_the_circuit(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    if request.verb == "OPR-PORT-SHUTTER":
        device._box.disconnect(map(int, request.aid.split("&")))
    return execute(request)


def _bright_neighbours(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    reply = execute(request)
    if request.verb != "RTRV-PORT-POWER":
        return reply
    powers = dict(line.split(":") for line in reply.lines)
    weakest = min((float(dbm) for dbm in powers.values() if float(dbm) > -40), default=-60.0)
    shown = {port: max(float(dbm), weakest - 15) for port, dbm in powers.items()}
    return Tl1Reply([f"{port}:{dbm:.2f}" for port, dbm in shown.items()])


def _transposed_size(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    reply = execute(request)
    turned = [re.sub(r"SIZE=(\d+)x(\d+)", r"SIZE=\2x\1", line) for line in reply.lines]
    return Tl1Reply(turned) if request.verb == "RTRV-EQPT" else reply


def _reset_leaves_a_circuit(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    if request.verb != "INIT-SYS":
        return execute(request)
    made = sorted(device._box.matrix.egress_of)
    return Tl1Reply((), device._box.disconnect(made[1:]))


def _as_ever(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    return execute(request)


def _limit_sessions(patch: pytest.MonkeyPatch, most: int) -> None:
    """Leave TL1 clients beyond `most` at a time without an answer."""
    received, closed = Tl1ServerSession.received, Tl1ServerSession.closed
    served: list[Tl1ServerSession] = []

    def receive(session: Tl1ServerSession, data: bytes) -> None:
        if session not in served and len(served) < most:
            served.append(session)
        if session in served:
            received(session, data)

    def close(session: Tl1ServerSession) -> None:
        if session in served:
            served.remove(session)
        closed(session)

    patch.setattr(Tl1ServerSession, "received", receive)
    patch.setattr(Tl1ServerSession, "closed", close)


def _restored_in_part(patch: pytest.MonkeyPatch) -> None:
    restart = SimulatedSonicOcs._restart

    def restart_in_part(device: SimulatedSonicOcs) -> None:
        circuits, labels, blocked = device._saved
        device._saved = set(sorted(circuits)[::2]), labels, blocked
        restart(device)

    patch.setattr(SimulatedSonicOcs, "_restart", restart_in_part)


def _lost_in_a_warm_restart(patch: pytest.MonkeyPatch) -> None:
    carry_out = SimulatedSonicOcs._carry_out

    def carry_out_and_lose(device: SimulatedSonicOcs, tokens: list[str]) -> ProgramOutcome:
        if tokens == ["warm-reboot"]:
            device._remove(set(device._tuned_at))
        return carry_out(device, tokens)

    patch.setattr(SimulatedSonicOcs, "_carry_out", carry_out_and_lose)


def _settings_missed(patch: pytest.MonkeyPatch) -> None:
    restart = SimulatedSonicOcs._restart

    def restart_without_labels(device: SimulatedSonicOcs) -> None:
        restart(device)
        device._labels.clear()

    patch.setattr(SimulatedSonicOcs, "_restart", restart_without_labels)


def _silent_subscription(patch: pytest.MonkeyPatch) -> None:
    from lightrig.instruments.simulated.devices import sonic_gnmi

    follow = sonic_gnmi._Stream.follow

    def follow_alone(stream: Any, subscription: Any, owner: str) -> None:
        observers = stream._service.switch.observers
        of_this_call = [each for each in observers if each.__self__._send == stream._send]
        observers[:] = of_this_call
        follow(stream, subscription, owner)

    patch.setattr(sonic_gnmi._Stream, "follow", follow_alone)


def _late_notification(patch: pytest.MonkeyPatch) -> None:
    from lightrig.instruments.simulated.devices import sonic_gnmi

    changed = sonic_gnmi._Stream._changed

    def change_late(stream: Any) -> None:
        clock = stream._service.clock
        clock.schedule(clock.now() + 8_000_000_000, "late", lambda: changed(stream))

    patch.setattr(sonic_gnmi._Stream, "_changed", change_late)


def cut_power(patch: pytest.MonkeyPatch, *, mixture: bool = False) -> Callable[[str], None]:
    """Return an operator who has the power of a SONiC switch cut in its third change from then."""
    carry_out = SimulatedSonicOcs._carry_out
    left: list[int] = []

    def carry_out_or_lose(device: SimulatedSonicOcs, tokens: list[str]) -> ProgramOutcome:
        if left and tokens[:4] == ["config", "ocs", "cross-connect", "add"]:
            left[0] -= 1
            if not left[0]:
                left.clear()
                saved, labels, blocked = device._saved
                made = sorted(device._configured)
                carry_out(device, tokens)
                if mixture:
                    first = {c for c in saved if c.ingress < 4}
                    ports = {port for circuit in first for port in circuit}
                    other = {c for c in device._configured if ports.isdisjoint(c)}
                    device._saved = first | other, labels, blocked
                assert made
                outcome = carry_out(device, ["reboot"])
                device._saved = saved, labels, blocked
                return outcome
        return carry_out(device, tokens)

    patch.setattr(SimulatedSonicOcs, "_carry_out", carry_out_or_lose)
    return lambda text: left.append(3) if "cut the power" in text else None


def install_firmware(patch: pytest.MonkeyPatch, *, loses: bool = False) -> Callable[[str], None]:
    """Return an operator who installs another firmware on a SONiC switch, and the first again."""
    version, devices = SimulatedSonicOcs.version, list[SimulatedSonicOcs]()
    further: list[str] = []

    def stated(device: SimulatedSonicOcs) -> str:
        devices[:] = [device]
        return further[-1] if further else version(device)

    def install(text: str) -> None:
        if "Install" not in text:
            return
        if "another" in text:
            further.append("SONiC.OCS-202611.2")
        else:
            further.clear()
        if loses:
            devices[0]._remove(set(devices[0]._tuned_at))

    patch.setattr(SimulatedSonicOcs, "version", stated)
    return install


def _slow_to_distant_ports(patch: pytest.MonkeyPatch) -> None:
    connect = Matrix.connect

    def connect_by_distance(matrix: Matrix, circuits: Collection[Circuit]) -> int:
        truth_of = matrix._truth_of
        distance = max(
            (abs(matrix.egress_of.get(c.ingress, c.egress) - c.egress) for c in circuits), default=0
        )
        settle = Delay(24_000_000 + 25_000_000 * distance, 1_000_000)
        matrix._truth_of = replace(truth_of, settle=settle)
        try:
            return connect(matrix, circuits)
        finally:
            matrix._truth_of = truth_of

    patch.setattr(Matrix, "connect", connect_by_distance)


def operator(defect: str, patch: pytest.MonkeyPatch) -> Callable[[str], None] | None:
    """Return the operator that a defect needs, whose other steps show none; None for none."""
    required = DEFECTS[defect]["required"]
    if not {"4.4", "4.5"} & set(required):
        return None
    cut = cut_power(patch, mixture="4.4" in required)
    install = install_firmware(patch, loses="4.5" in required)

    def act(text: str) -> None:
        cut(text)
        install(text)

    return act


def _another_code_each_time(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    try:
        return execute(request)
    except Tl1Denial as denial:
        memory.append(denial)
        code = f"SX{chr(65 + len(memory) // 26 % 26)}{chr(65 + len(memory) % 26)}"
        raise Tl1Denial(code, denial.text) from denial


def _malformed_code(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    try:
        return execute(request)
    except Tl1Denial as denial:
        raise Tl1Denial("E7", denial.text) from denial


def _lost_after_many_changes(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    pairs, box = _pairs(request), device._box
    memory.extend(pairs[:1])
    if len(memory) < 400 or len(pairs) < 2 or not set().union(*pairs) <= set(box.ports):
        return execute(request)
    return Tl1Reply((), box.connect(pairs[:-1]), box.acknowledge)


def _faint_neighbours(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    reply = execute(request)
    if request.verb != "RTRV-PORT-POWER":
        return reply
    made = device._box.matrix.ingress_of
    powers = {int(p): float(dbm) for p, dbm in (line.split(":") for line in reply.lines)}
    weakest = min((dbm for port, dbm in powers.items() if port in made), default=-20.0)
    shown = {p: max(dbm, weakest - 42) if made else dbm for p, dbm in powers.items()}
    return Tl1Reply([f"{port}:{dbm:.2f}" for port, dbm in shown.items()])


_LABS = {
    "leaking light": optics_lab(leak="40 dB"),
    "colored light path": optics_lab(per_nm="0.2 dB"),
    "polarized light path": optics_lab(polarization="0.8 dB"),
    "slow edge": scope_lab("9 ms"),
    "long outage": traffic_lab(settle_ms=2500),
    "errors after a move": traffic_lab(),
    "uncorrected code words": traffic_lab(),
}
ERROR_RATIOS = {"errors after a move": 2e-3, "uncorrected code words": 2e-3}
"""Bit error ratios before FEC of the NIC ports of a lab, by defect."""


_SONIC: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "restored in part": _restored_in_part,
    "lost in a warm restart": _lost_in_a_warm_restart,
    "settings missed after a restart": _settings_missed,
    "silent subscription": _silent_subscription,
    "late notification": _late_notification,
    "mixture after a power loss": lambda patch: None,
    "upgrade loses circuits": lambda patch: None,
}
_ANSWERS = {
    "changing serial": _changing_serial,
    "late list": _late_list,
    "silent port": _silent_port,
    "batch in part": _batch_in_part,
    "label of a neighbour": _label_of_a_neighbour,
    "refused and removed": _refused_and_removed,
    "stale view": _stale_view,
    "light after removal": _light_after_removal,
    "two circuits at a port": _two_circuits_at_a_port,
    "edit without effect": _edit_without_effect,
    "failed batch made": _failed_batch_made,
    "no answer beyond the limit": _as_ever,
    "error as success": _error_as_success,
    "absent port listed": _absent_port_listed,
    "light at a blocked port": _light_at_a_blocked_port,
    "clamped port": _clamped_port,
    "last of two": _last_of_two,
    "removal takes all": _removal_takes_all,
    "half of a lost change": _half_of_a_lost_change,
    "login clears": _login_clears,
    "block takes the circuit": _block_takes_the_circuit,
    "bright neighbours": _bright_neighbours,
    "transposed size": _transposed_size,
    "reset leaves a circuit": _reset_leaves_a_circuit,
    "another code each time": _another_code_each_time,
    "malformed code": _malformed_code,
    "lost after many changes": _lost_after_many_changes,
    "faint neighbours": _faint_neighbours,
}
