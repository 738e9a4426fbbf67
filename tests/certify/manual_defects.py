"""Simulated switches with the defects of `manual_defects.yaml`."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from certify_labs import lab, sonic_lab
from light_defects import cross_ingress_ports
from sonic_defects import RUN

from lightrig.instruments.simulated.devices.simulated_polatis import SimulatedPolatis
from lightrig.instruments.simulated.devices.simulated_sonic_ocs import SimulatedSonicOcs
from lightrig.instruments.simulated.protocols.ssh_server import ProgramOutcome
from lightrig.instruments.simulated.protocols.tl1_device import (
    Tl1Denial,
    Tl1Reply,
    Tl1Request,
    Tl1ServerSession,
)
from lightrig.instruments.simulated.world.optics import DARK_DBM, Matrix
from lightrig.testbeds import Circuit

Execute = Callable[[Tl1Request], Tl1Reply]
Answer = Callable[[SimulatedPolatis, Tl1Request, Execute, list[Any]], Tl1Reply]
_MS = 1_000_000


def pairs_of(request: Tl1Request) -> list[Circuit]:
    """Return the circuits that a request asks to be made."""
    if request.verb != "ENT-PATCH":
        return []
    sides = [[int(port) for port in side.split("&")] for side in request.aid.split(",")]
    return [Circuit(*pair) for pair in zip(*sides, strict=True)]


def limit_sessions(patch: pytest.MonkeyPatch, most: int) -> None:
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


def _end_the_oldest(patch: pytest.MonkeyPatch, most: int) -> None:
    received, closed = Tl1ServerSession.received, Tl1ServerSession.closed
    served: list[Tl1ServerSession] = []

    def receive(session: Tl1ServerSession, data: bytes) -> None:
        if session not in served:
            served.append(session)
        if len(served) == most:
            served.pop(0).connection.close()
        received(session, data)

    def close(session: Tl1ServerSession) -> None:
        if session in served:
            served.remove(session)
        closed(session)

    patch.setattr(Tl1ServerSession, "received", receive)
    patch.setattr(Tl1ServerSession, "closed", close)


def _show(patch: pytest.MonkeyPatch, change: Callable[[Matrix, dict[int, float]], None]) -> None:
    """Let `change` alter what egress ports show."""
    readings = Matrix.readings

    def read(matrix: Matrix, egresses: Iterable[int], ingresses: Iterable[int] = ()) -> list[float]:
        ports, entering = tuple(egresses), tuple(ingresses)
        shown = readings(matrix, ports, entering)
        powers = dict(zip(ports, shown, strict=False))
        change(matrix, powers)
        return [*powers.values(), *shown[len(ports) :]]

    patch.setattr(Matrix, "readings", read)


def _split(matrix: Matrix, powers: dict[int, float]) -> None:
    if 11 in powers and 10 in matrix.ingress_of and 11 not in matrix.ingress_of:
        powers[11] = powers.get(10, DARK_DBM)


def _dark_egress(matrix: Matrix, powers: dict[int, float]) -> None:
    if 12 in powers:
        powers[12] = DARK_DBM


def _never_freed(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    if request.verb == "ACT-USER":
        if len(memory) == 100:
            raise Tl1Denial("SROF", "Too many sessions")
        memory.append(request.session)
    return execute(request)


def _reported_open(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    reply = execute(request)
    if request.verb != "RTRV-PORT-SHUTTER":
        return reply
    return Tl1Reply([line.replace("CLOSED", "OPEN") for line in reply.lines])


def _block_of_a_neighbour(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    reply = execute(request)
    if request.verb in {"OPR-PORT-SHUTTER", "RLS-PORT-SHUTTER"}:
        for port in map(int, request.aid.split("&")):
            if port in device.box.egress_ports and port + 1 in device.box.egress_ports:
                device.box.matrix.shutter(port + 1, shut=request.verb.startswith("OPR"))
    return reply


def _cut_label(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    reply = execute(request)
    if request.verb == "ED-PORT-LABEL":
        port = int(request.aid)
        device.box.label(port, device.box.labels.get(port, "")[:8])
    return reply


def _firmware_left_out(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    reply = execute(request)
    if not any(device.box.software in line for line in reply.lines):
        return reply
    memory.append(request)
    if len(memory) % 2:
        return reply
    return Tl1Reply([line.replace(device.box.software, "") for line in reply.lines])


def _fifth_dropped(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    pairs, box = pairs_of(request), device.box
    if len(pairs) < 5 or not set().union(*pairs) <= set(box.ports):
        return execute(request)
    return Tl1Reply((), box.connect(pairs[:4]), box.acknowledge)


def _exchange_by_half(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    pairs, box = pairs_of(request), device.box
    made = box.matrix.egress_of
    exchanged = [
        (a, b)
        for a in pairs
        for b in pairs
        if a < b and made.get(a.ingress) == b.egress and made.get(b.ingress) == a.egress
    ]
    if not exchanged:
        return execute(request)
    box.connect([each for each in pairs if each != exchanged[0][1]])
    return Tl1Reply((), 40 * _MS, box.acknowledge)


def _first_of_two(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    pairs, box = pairs_of(request), device.box
    kept: list[Circuit] = []
    for pair in pairs if all(set(pair) <= set(box.ports) for pair in pairs) else ():
        if all(each[0] != pair[0] and each[1] != pair[1] for each in kept):
            kept.append(pair)
    if kept and len(kept) < len(pairs):
        return Tl1Reply((), box.connect(kept), box.acknowledge)
    return execute(request)


def _others_only_view(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    if request.verb not in {"ENT-PATCH", "DLT-PATCH"}:
        return execute(request)
    if not memory or memory[0].user is None:
        memory[:] = [request.session]
    if request.session is not memory[0]:
        raise Tl1Denial("PIUC", "User may not change")
    return execute(request)


def _late_end(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    box = device.box
    before = dict(box.matrix.egress_of)
    reply = execute(request)
    if request.verb != "ENT-PATCH":
        return reply

    def take_back() -> None:
        made = dict(box.matrix.egress_of)
        box.disconnect([port for port in made if made[port] != before.get(port)])
        box.connect([Circuit(*each) for each in before.items()])

    def look() -> None:
        if request.session.user is None:
            at = box.clock.now() + 1060 * _MS
            box.clock.schedule(at, f"{box.name}!taken back", take_back)

    box.clock.schedule(box.clock.now() + 39 * _MS, f"{box.name}!client", look)
    return reply


def _early_in_batches(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    pairs = pairs_of(request)
    if not pairs:
        return execute(request)
    device.box.matrix.set_switching_time((100 if len(pairs) >= 5 else 24) * _MS)
    reply = execute(request)
    return Tl1Reply(reply.lines, (20 if len(pairs) >= 5 else 40) * _MS, reply.then)


def _lower_case(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    try:
        return execute(request)
    except Tl1Denial as denial:
        raise Tl1Denial(denial.code.lower(), denial.text) from denial


def _removal_takes_one(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    matrix = device.box.matrix
    if request.verb == "DLT-PATCH":
        ports = set(map(int, request.aid.split("&")))
        if not ports <= {*matrix.egress_of, *matrix.ingress_of}:
            device.box.disconnect([min(matrix.egress_of)])
            raise Tl1Denial("SRCN", "No such patch")
    return execute(request)


def _denied_and_made(
    device: SimulatedPolatis, request: Tl1Request, execute: Execute, memory: list[Any]
) -> Tl1Reply:
    try:
        return execute(request)
    except Tl1Denial as denial:
        pairs = pairs_of(request)
        if denial.code == "SRCN" and len({p for pair in pairs for p in pair}) == 2 * len(pairs):
            matrix = device.box.matrix
            made = {*matrix.egress_of, *matrix.ingress_of}
            device.box.disconnect([port for pair in pairs for port in pair if port in made])
            device.box.connect(pairs)
        raise


def _save_without_effect(patch: pytest.MonkeyPatch) -> None:
    def run(device: SimulatedSonicOcs, tokens: Sequence[str]) -> ProgramOutcome:
        if [each for each in tokens if each not in {"sudo", "-n"}] == ["config", "save", "-y"]:
            return ProgramOutcome("Running command: /usr/local/bin/sonic-cfggen -d --print-data\n")
        return RUN(device, tokens)

    patch.setattr(SimulatedSonicOcs, "run", run)


ANSWERS: dict[str, Answer] = {
    "sessions never freed": _never_freed,
    "block reported open": _reported_open,
    "block of a neighbour": _block_of_a_neighbour,
    "label cut short": _cut_label,
    "firmware left out": _firmware_left_out,
    "fifth circuit dropped": _fifth_dropped,
    "exchange by half": _exchange_by_half,
    "first of two": _first_of_two,
    "second client only views": _others_only_view,
    "late end of a lost change": _late_end,
    "whole batch acknowledged early": _early_in_batches,
    "code in lower case": _lower_case,
    "removal of nothing takes one": _removal_takes_one,
    "denied and made": _denied_and_made,
}
OTHERS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "crossed ingress ports": lambda patch: cross_ingress_ports(patch, 3, 5),
    "split light": lambda patch: _show(patch, _split),
    "dark egress": lambda patch: _show(patch, _dark_egress),
    "oldest session ended": lambda patch: _end_the_oldest(patch, 30),
    "thirtieth session hangs": lambda patch: limit_sessions(patch, 29),
    "save without effect": _save_without_effect,
}


def introduce_other(defect: str, patch: pytest.MonkeyPatch) -> str:
    """Give simulated switches a defect of `OTHERS`; return the file of the lab with them."""
    OTHERS[defect](patch)
    return sonic_lab() if defect == "save without effect" else lab()
