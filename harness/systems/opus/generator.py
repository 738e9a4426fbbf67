"""A testbed of any size: servers on photonic rails, with the plans of data and pipeline phases."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated

import typer

from lightrig.testbeds import LightrigError

MOST_PORTS = 512
"""Ports of the largest optical switch that the paper assumes on each side (§7)."""


class RailsError(LightrigError, ValueError):
    """Rails that no file describes."""


def generate(
    stages: Annotated[int, typer.Option(min=1, help="Stages of the pipeline.")] = 2,
    replicas: Annotated[int, typer.Option(min=1, help="Servers of a stage, in data parallel.")] = 2,
    rails: Annotated[int, typer.Option(min=1, help="GPUs of a server, each on its own rail.")] = 2,
    namespaces: Annotated[
        bool, typer.Option("--namespaces", help="Servers that are namespaces of this machine.")
    ] = False,
) -> str:
    """Write a testbed of Opus: servers whose GPUs have two ports each on the switch of their rail.

    Exit 0, or 2 for sizes that no switch has ports for.
    """
    return render(stages, replicas, rails, namespaces=namespaces)


def render(stages: int, replicas: int, rails: int, *, namespaces: bool = False) -> str:
    """Return the description as YAML; raises `RailsError`.

    Server s * replicas + r is replica r of stage s. One switch has all rails where its ports
    suffice, else each rail has one.
    """
    servers = stages * replicas
    if servers < 2:
        raise RailsError("found one server, expected at least two to join")
    if 2 * servers > MOST_PORTS:
        raise RailsError(
            f"found {servers} servers with two ports each on a rail, expected at most "
            f"{MOST_PORTS // 2}: a rail has one switch of {MOST_PORTS} ports"
        )
    one = 2 * servers * rails <= MOST_PORTS
    size = 2 * servers * (rails if one else 1)
    names = ["ocs"] if one else [f"ocs{rail}" for rail in range(rails)]
    last = servers - 1
    nic = (
        "model: veth, ports: 2, netdev: 'rail{n}p{p}', ip: '192.0.2.{k}/24', rate: 200M"
        if namespaces
        else "ports: 2, netdev: 'ens{n}f{p}np{p}', rdma: 'mlx5_{n}{p}', rate: 100G"
    )
    address = "netns://{name}" if namespaces else "ssh://bench@{name}.invalid"
    gpus = "" if namespaces else f"\n    gpus: {{count: {rails}}}"
    times = (
        "acknowledge: {mean: 20 ms, sd: 1 ms}, dark: {mean: 2 ms, sd: 0.1 ms}, "
        "settle: {mean: 18 ms, sd: 1 ms}"
        if namespaces
        else "acknowledge: {mean: 194 ms, sd: 6 ms}, dark: {mean: 3 ms, sd: 0.4 ms}, "
        "settle: {mean: 42 ms, sd: 3 ms}"
    )
    lines = [
        "# yaml-language-server: $schema=schema.json",
        f"name: opus-{stages}x{replicas}x{rails}",
        f"about: {stages} stages of {replicas} servers on {rails} photonic rails, generated"
        " (Opus, §4)",
        "system: opus",
        "",
        "switches:",
        *(
            f"  {name}: {{model: polatis, address: 'tl1://{{name}}.invalid', login: env:OCS_LOGIN, "
            f"size: {size}x{size}, loss: {{max: 3 dB}}, options: {{rerouting: true}}}}"
            for name in names
        ),
        "",
        "servers:",
        f"  server[0-{last}]:",
        f"    address: {address}{gpus}",
        "    nics:",
        f"      nic[0-{rails - 1}]: {{{nic}, transceiver: qsfp-100g-lr4}}",
        "",
        "transceivers:      # IEEE 802.3 clause 88, per lane",
        "  qsfp-100g-lr4: {wavelength: 1310 nm, wavelengths: 4, "
        "launch: {min: -4.3 dBm, max: 4.5 dBm}, receive: {min: -10.6 dBm, max: 4.5 dBm}, "
        "damage: 5.5 dBm}",
        "",
        "fibers:            # in order: to the next free ingress, from the next free egress",
        *(
            f"  - server[0-{last}].nic{rail}.p[0-1] <-> {names[0 if one else rail]}"
            for rail in range(rails)
        ),
        "",
        "plans:",
    ]
    data = [ring(stage * replicas, replicas) for stage in range(stages)]
    chains = [chain([s * replicas + r for s in range(stages)]) for r in range(replicas)]
    plans = {
        "data": [link for each in data for link in each],
        "pipeline": [link for each in chains for link in each],
        "giant-ring": list(ring(0, servers)),
    }
    for name, links in plans.items():
        if links:
            lines.append(f"  {name}:")
            nics = f"nic[0-{rails - 1}]"
            lines += [
                f"    - server{a}.{nics}.p{p} <-> server{b}.{nics}.p{q}" for a, p, b, q in links
            ]
    lines += ["", "simulation:        # Polatis as opus.yaml has it", "  switches:"]
    for name in names:
        lines.append(
            f"    {name}: {{{times}, loss: {{mean: 1.2 dB, sd: 0.2 dB}}, "
            "monitor: {averaging: 10 ms, noise: 0.03 dB}}"
        )
    return "\n".join([*lines, ""])


Link = tuple[int, int, int, int]
"""Server and port of both ends."""


def ring(first: int, count: int) -> Iterator[Link]:
    """Yield the links of a ring of servers from `first` on; two of them have both ports joined."""
    if count == 2:
        yield from ((first, port, first + 1, port) for port in (0, 1))
    elif count > 2:
        for at in range(count):
            yield first + at, 1, first + (at + 1) % count, 0


def chain(servers: list[int]) -> Iterator[Link]:
    """Yield the links of a pipeline; two stages have both ports joined."""
    if len(servers) == 2:
        yield from ((servers[0], port, servers[1], port) for port in (0, 1))
    else:
        yield from ((a, 1, b, 0) for a, b in pairwise(servers))
