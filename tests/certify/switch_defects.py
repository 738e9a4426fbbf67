"""Simulated switches with the defects of `defects.yaml`; those of SONiC are in `sonic_defects`."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml
from certify_labs import FACTORY, lab, optics_lab, scope_lab, sonic_lab, traffic_lab
from light_defects import cross_egress_ports, slow_to_distant_ports
from manual_defects import (
    ANSWERS,
    OTHERS,
    Execute,
    introduce_other,
    limit_sessions,
    pairs_of,
)
from sonic_defects import SONIC, cut_power, install_firmware, state_factory_losses

from lightrig.harness.certify.requirements import requirements
from lightrig.instruments.simulated.devices.simulated_polatis import SimulatedPolatis
from lightrig.instruments.simulated.protocols.tl1_device import (
    Tl1Denial,
    Tl1Reply,
    Tl1Request,
)
from lightrig.testbeds import Circuit

DEFECTS: dict[str, dict[str, Any]] = {
    name: each
    for file in ("defects.yaml", "manual_defects.yaml")
    for name, each in yaml.safe_load((Path(__file__).parent / file).read_text()).items()
}


def limit_profile(patch: pytest.MonkeyPatch, numbers: Iterable[str]) -> None:
    """Let the profile `polatis` require these clauses and no others."""
    profiles = requirements().profiles
    assert isinstance(profiles, dict)
    changes = {"required": tuple(numbers), "optional": ()}
    patch.setitem(profiles, "polatis", profiles["polatis"].model_copy(update=changes))


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
        slow_to_distant_ports(patch)
        return lab(acknowledge_ms=140)
    if defect == "crossed egress ports":
        cross_egress_ports(patch, 12, 14)
        return lab()
    if defect == "worn light paths":
        state_factory_losses(patch, less_db=1.5)
        return FACTORY
    if defect in OTHERS:
        return introduce_other(defect, patch)
    if defect in _LABS:
        return _LABS[defect]
    if DEFECTS[defect].get("lab", "").startswith("sonic"):
        SONIC[defect](patch)
        return sonic_lab("gnmi" if DEFECTS[defect]["lab"] == "sonic-gnmi" else "ssh")
    answer = {**_ANSWERS, **ANSWERS}[defect]
    execute = SimulatedPolatis.execute
    memory: list[Any] = []

    def with_defect(device: SimulatedPolatis, request: Tl1Request) -> Tl1Reply:
        return answer(device, request, lambda each: execute(device, each), memory)

    patch.setattr(SimulatedPolatis, "execute", with_defect)
    if defect == "no answer beyond the limit":
        limit_sessions(patch, 6)
    return lab(rerouting=defect not in {"refused and removed", "denied and made"})


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
        made = sorted(device.box.matrix.egress_of.items())
        memory[:] = [Tl1Reply([f"{ingress},{egress}" for ingress, egress in made])]
    return memory[0] if memory and request.verb == "RTRV-PATCH" else execute(request)


def _silent_port(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    pairs = pairs_of(request)
    known = [pair for pair in pairs if set(pair) <= set(device.box.ports)]
    if len(known) == len(pairs):
        return execute(request)
    return Tl1Reply((), device.box.connect(known) if known else 0, device.box.acknowledge)


def _batch_in_part(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    pairs = pairs_of(request)
    good = [set(pair) <= set(device.box.ports) for pair in pairs]
    if not all(good) and (before := pairs[: good.index(False)]):
        device.box.connect(before)
        raise Tl1Denial("IDNV", "Invalid OXC port")
    return execute(request)


def _label_of_a_neighbour(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    reply = execute(request)
    if request.verb == "ED-PORT-LABEL":
        device.box.label(int(request.aid) + 1, device.box.labels[int(request.aid)])
    return reply


def _refused_and_removed(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    try:
        return execute(request)
    except Tl1Denial as denial:
        if denial.code == "SRCN":
            ports = {port for pair in pairs_of(request) for port in pair}
            device.box.disconnect(sorted(ports))
        raise


def _stale_view(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    memory[:] = memory or [{}]
    views: dict[int, list[str]] = memory[0]
    client = id(request.session)
    reply = execute(request)
    if client not in views or request.verb in {"ACT-USER", "ENT-PATCH", "DLT-PATCH", "INIT-SYS"}:
        made = sorted(device.box.matrix.egress_of.items())
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
    taken = {pair.ingress for pair in pairs_of(request)}
    taken |= {device.box.matrix.ingress_of.get(pair.egress, 0) for pair in pairs_of(request)}
    reply = execute(request)
    hidden -= taken  # a port that is taken for a new circuit leaves the hidden one
    if request.verb != "RTRV-PATCH":
        return reply
    return Tl1Reply([line for line in reply.lines if int(line.partition(",")[0]) not in hidden])


def _two_circuits_at_a_port(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    for pair in pairs_of(request):
        before = device.box.matrix.egress_of.get(pair.ingress)
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
    pairs = pairs_of(request)
    good = [pair for pair in pairs if set(pair) <= set(device.box.ports)]
    if good and len(good) < len(pairs) and len(pairs) > 1:
        device.box.connect(good)
        raise Tl1Denial("IDNV", "Invalid OXC port")
    return execute(request)


def _error_as_success(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    pairs = pairs_of(request)
    if any(len({pair[side] for pair in pairs}) < len(pairs) for side in (0, 1)):
        return Tl1Reply()
    return execute(request)


def _absent_port_listed(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    pairs = pairs_of(request)
    bad = [pair for pair in pairs if not set(pair) <= set(device.box.ports)]
    if bad:
        memory.extend(f"{ingress},{egress}" for ingress, egress in bad)
        good = [pair for pair in pairs if pair not in bad]
        return Tl1Reply((), device.box.connect(good) if good else 0, device.box.acknowledge)
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
    pairs, box = pairs_of(request), device.box
    if all(set(pair) <= set(box.ports) for pair in pairs):
        return execute(request)
    greatest = box.ingress_ports[-1], box.egress_ports[-1]
    known = [Circuit(min(pair[0], greatest[0]), min(pair[1], greatest[1])) for pair in pairs]
    return Tl1Reply((), box.connect(known), box.acknowledge)


def _last_of_two(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    pairs, box = pairs_of(request), device.box
    kept: list[Circuit] = []
    for pair in pairs if all(set(pair) <= set(box.ports) for pair in pairs) else ():
        kept = [each for each in kept if each[0] != pair[0] and each[1] != pair[1]] + [pair]
    if kept and len(kept) < len(pairs):
        return Tl1Reply((), box.connect(kept), box.acknowledge)
    return execute(request)


def _removal_takes_all(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    matrix = device.box.matrix
    if request.verb == "DLT-PATCH":
        ports = set(map(int, request.aid.split("&")))
        if not ports <= {*matrix.egress_of, *matrix.ingress_of}:
            return Tl1Reply((), device.box.disconnect(list(matrix.egress_of)))
    return execute(request)


def _half_of_a_lost_change(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    pairs, box = pairs_of(request), device.box
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
            device.box.disconnect(list(device.box.matrix.egress_of))
    return reply


def _block_takes_the_circuit(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    if request.verb == "OPR-PORT-SHUTTER":
        device.box.disconnect(map(int, request.aid.split("&")))
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
    made = sorted(device.box.matrix.egress_of)
    return Tl1Reply((), device.box.disconnect(made[1:]))


def _as_ever(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    return execute(request)


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
    pairs, box = pairs_of(request), device.box
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
    made = device.box.matrix.ingress_of
    powers = {int(p): float(dbm) for p, dbm in (line.split(":") for line in reply.lines)}
    weakest = min((dbm for port, dbm in powers.items() if port in made), default=-20.0)
    shown = {p: max(dbm, weakest - 42) if made else dbm for p, dbm in powers.items()}
    return Tl1Reply([f"{port}:{dbm:.2f}" for port, dbm in shown.items()])


def _drifting_monitors(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    reply = execute(request)
    if request.verb != "RTRV-PORT-POWER":
        return reply
    memory.append(request)
    powers = {int(p): float(dbm) for p, dbm in (line.split(":") for line in reply.lines)}
    egress, drifted = set(device.box.egress_ports), abs(len(memory) % 4000 - 2000)
    return Tl1Reply(
        [f"{p}:{dbm - (0.004 * drifted if p in egress else 0):.2f}" for p, dbm in powers.items()]
    )


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
    "drifting monitors": _drifting_monitors,
}
