"""Output of `ibstat` and `ibdev2netdev` for simulated ports.

Sources: infiniband-diags, src/ibstat.c; MLNX_OFED's ibdev2netdev script.
"""

from collections.abc import Iterable

from lightrig.instruments.simulated.hosts.host_ports import SimulatedPort


def names(ports: Iterable[SimulatedPort]) -> str:
    """`ibstat -l`."""
    return "".join(f"{port.spec.rdma}\n" for port in ports if port.spec.rdma is not None)


def ibstat(ports: Iterable[SimulatedPort], wanted: str | None) -> str | None:
    """`ibstat [CA]`; None where there is no such device."""
    found = [
        _device(index, port.spec.rdma, port)
        for index, port in enumerate(ports, 2)
        if port.spec.rdma is not None and wanted in (None, port.spec.rdma)
    ]
    return "".join(found) if found or wanted is None else None


def ibdev2netdev(ports: Iterable[SimulatedPort]) -> str:
    """`ibdev2netdev`."""
    return "".join(
        f"{port.spec.rdma} port 1 ==> {port.spec.netdev} "
        f"({'Up' if port.is_up('carrier') else 'Down'})\n"
        for port in ports
        if port.spec.rdma is not None
    )


def _device(index: int, name: str, port: SimulatedPort) -> str:
    guid = f"0x0200000000000{index:03x}"
    lines = [
        f"CA '{name}'",
        "\tCA type: MT4129",
        "\tNumber of ports: 1",
        "\tFirmware version: 28.41.1000",
        "\tHardware version: 0",
        f"\tNode GUID: {guid}",
        f"\tSystem image GUID: {guid}",
        "\tPort 1:",
        f"\t\tState: {'Active' if port.is_up('carrier') else 'Down'}",
        f"\t\tPhysical state: {'LinkUp' if port.is_up('firmware') else 'Polling'}",
        f"\t\tRate: {port.spec.rate_bps // 10**9}",
        "\t\tBase lid: 0",
        "\t\tLMC: 0",
        "\t\tSM lid: 0",
        "\t\tCapability mask: 0x00010000",
        f"\t\tPort GUID: {guid}",
        "\t\tLink layer: Ethernet",
    ]
    return "".join(f"{line}\n" for line in lines)
