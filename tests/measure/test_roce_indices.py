"""RoCE addresses that move between two readings of a bench's ports, as findings."""

from pathlib import Path
from typing import Any, cast

from lightrig.harness.bench.roce_indices import RoceIndices
from lightrig.harness.host_limits import roce_moves
from lightrig.instruments.clock import Span
from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.instruments.servers.host.commands import Reading
from lightrig.instruments.servers.tools.roce_addresses import RoceAddress
from lightrig.testbeds import load

LAB = (Path(__file__).parents[1] / "report" / "causes_lab.yaml").read_text(encoding="utf-8")
ONE, TWO = (
    RoceAddress(f"::ffff:{last}", "RoCE v2", "ens1f0") for last in ("c000:207", "c633:6409")
)


class Server:
    """A server whose table a test writes; its second device is not there."""

    def __init__(self) -> None:
        self.table: dict[int, RoceAddress] = {3: ONE, 5: TWO}

    @property
    def nic(self) -> Any:
        return self

    def roce_addresses(self, device: str) -> Any:
        return Reading(dict(self.table) if device == "mlx5_0" else {}, Span(0, 0))


def test_moves_are_findings_of_their_port(tmp_path: Path) -> None:
    file = tmp_path / "lab.yaml"
    file.write_text(LAB.replace('"ens1f{p}"', '"ens1f{p}", rdma: "mlx5_{p}"'), encoding="utf-8")
    servers = {"server0": Server(), "server1": Server()}
    clock = VirtualClock()
    indices = RoceIndices(load(file), cast("Any", servers), clock)
    assert indices.moved() == {}
    servers["server1"].table = {3: TWO, 5: ONE}
    (found,) = roce_moves(indices.moved())
    clock.close()
    assert found.kind == "RoCE address moved"
    assert found.subjects == ("server1.nic0.p0",)
    assert "c000:207 (RoCE v2 of ens1f0) has moved from index 3 to 5" in found.evidence
    assert "c633:6409 (RoCE v2 of ens1f0) has moved from index 5 to 3" in found.evidence
