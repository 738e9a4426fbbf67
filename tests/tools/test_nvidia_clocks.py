"""Why GPUs are slow, by the bits of NVML's reference."""

import pytest

from lightrig.instruments.servers.tools import nvidia_clocks
from lightrig.instruments.servers.tools.nvidia_clocks import GpuClocks
from lightrig.instruments.servers.tools.output import ToolOutputError

# NvmlClocksEventReasons of the NVML API Reference Guide: name, bit, whether it is a lack of
# cooling or power.
REASONS = [
    ("idle", 0x1, False),
    ("application clocks", 0x2, False),
    ("software power cap", 0x4, False),
    ("hardware slowdown", 0x8, True),
    ("sync boost", 0x10, False),
    ("software thermal slowdown", 0x20, True),
    ("hardware thermal slowdown", 0x40, True),
    ("hardware power brake slowdown", 0x80, True),
    ("display clocks", 0x100, False),
]


@pytest.mark.parametrize(("name", "bit", "slow"), REASONS)
def test_each_reason(name: str, bit: int, slow: bool) -> None:
    (found,) = nvidia_clocks.parse(f"3, 0x{bit:016x}\n")
    assert found == GpuClocks(3, (name,), (name,) if slow else ())


def test_several_gpus_and_several_reasons() -> None:
    text = "0, 0x0000000000000000\n1, 0x0000000000000044\n2, [N/A]\n3, [Not Supported]\n"
    assert nvidia_clocks.parse(text) == (
        GpuClocks(0, ()),
        GpuClocks(1, ("hardware thermal slowdown", "software power cap"), (REASONS[6][0],)),
        GpuClocks(2, None),
        GpuClocks(3, None),
    )


def test_a_reason_of_a_newer_driver_is_not_lost() -> None:
    ((_, reasons, slow),) = [
        (each.index, each.reasons, each.slow) for each in nvidia_clocks.parse("0, 0x201\n")
    ]
    assert reasons == ("idle", "reason 0x200")
    assert slow == ()


@pytest.mark.parametrize(
    "text",
    [
        'Field "clocks_event_reasons.active" is not a valid field to query.',
        "0 0x1",
        "0, Active",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
    ],
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ToolOutputError):
        nvidia_clocks.parse(text)
