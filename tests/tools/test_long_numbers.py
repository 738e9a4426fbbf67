"""Numbers that are longer than Python reads are output that cannot be read, not a crash."""

import pytest

from lightrig.instruments.servers.tools import infiniband_sysfs
from lightrig.instruments.servers.tools.output import ToolOutputError

LONG = "1" * 5000


@pytest.mark.parametrize(
    "line",
    [
        f"/sys/class/infiniband/mlx5_0/ports/{LONG}/state:4: ACTIVE",
        f"/sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data:{LONG}",
        f"/sys/class/infiniband/mlx5_0/ports/1/rate:{LONG} Gb/sec (4X EDR)",
        f"/sys/class/infiniband/mlx5_0/ports/1/hw_counters/lifespan:{LONG}",
    ],
)
def test_a_number_of_5000_digits_is_an_error_of_the_tool(line: str) -> None:
    with pytest.raises(ToolOutputError):
        infiniband_sysfs.parse(line + "\n")
