"""Values of NIC ports that tools take some time to read: module, FEC and RDMA state."""

from collections.abc import Callable, Iterator
from functools import partial

from lightrig.harness.bench.bench import Bench
from lightrig.harness.bench.named_values import NamedValue
from lightrig.instruments.core.capabilities import HasNic
from lightrig.instruments.core.errors import InstrumentError
from lightrig.instruments.servers.ports.nic import Nic
from lightrig.testbeds import NicPortSpec

PortReader = Callable[[], list[NamedValue]]


def port_readers(bench: Bench, name: str) -> Iterator[PortReader]:
    """Return for each NIC port of a server a function that reads its module, FEC and RDMA state.

    What a port's tools do not tell is a value that is None, with the reason as its remark.
    """
    server = bench.servers[name]
    if isinstance(server, HasNic):
        for nic in bench.testbed.servers[name].nics.values():
            for spec in nic.ports:
                yield partial(_of_port, server.nic, spec)


def _of_port(nic: Nic, spec: NicPortSpec) -> list[NamedValue]:
    found: list[NamedValue] = []
    parts: dict[str, Callable[[Nic, NicPortSpec], Iterator[NamedValue]]] = {
        "module": _module,
        "fec": _fec,
    }
    if spec.rdma is not None:
        parts["rdma"] = _rdma
    for part, read in parts.items():
        try:
            found += read(nic, spec)
        except InstrumentError as error:
            why = str(error).partition("\n")[0]
            found.append(NamedValue(f"{spec.port}.{part}", None, remark=why))
    return found


def _module(nic: Nic, spec: NicPortSpec) -> Iterator[NamedValue]:
    module = nic.module(spec.netdev).value
    lanes = module.lanes_in_use
    for kind in ("tx_power", "rx_power"):
        powers = [power for lane in lanes if (power := getattr(lane, f"{kind}_dbm")) is not None]
        if powers:
            remark = f"lowest of {len(powers)} lanes" if len(powers) > 1 else "one reading"
            yield NamedValue(f"{spec.port}.{kind}", min(powers), "dBm", remark)
    if module.temperature_c is not None:
        yield NamedValue(f"{spec.port}.temperature", module.temperature_c, "°C", "one reading")


def _fec(nic: Nic, spec: NicPortSpec) -> Iterator[NamedValue]:
    yield NamedValue(f"{spec.port}.fec", "+".join(nic.fec(spec.netdev).value.active) or "none")


def _rdma(nic: Nic, spec: NicPortSpec) -> Iterator[NamedValue]:
    assert spec.rdma is not None
    yield NamedValue(f"{spec.port}.rdma", nic.infiniband(spec.rdma).value.state or "not known")
