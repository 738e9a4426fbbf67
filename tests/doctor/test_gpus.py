"""GPUs that are slowed down, on this machine with stand-ins of nvidia-smi and amd-smi."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from servers.program_host import Here

from lightrig.harness.components import Components
from lightrig.harness.doctor import Findings
from lightrig.harness.doctor.servers import examine_gpus
from lightrig.harness.host_limits import with_host
from lightrig.harness.record import Row
from lightrig.instruments.clock import SystemClock
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.testbeds import load

NEWER, OLDER = "clocks_event_reasons.active", "clocks_throttle_reasons.active"


class WithPrograms(Here):
    """This machine with further programs."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def local_command(self, command: Sequence[str]) -> list[str]:
        return ["env", f"PATH={self.folder}:{os.environ['PATH']}", *command]


@pytest.fixture
def examined(tmp_path: Path) -> Iterator[Callable[[str, str], list[tuple[str, str]]]]:
    """Examines a server whose nvidia-smi knows one field and prints a text."""
    server = LinuxServer("server0", WithPrograms(tmp_path), SystemClock(), {})

    def examine(field: str, text: str) -> list[tuple[str, str]]:
        script = f"""#!/bin/sh
case "$1" in
--query-gpu=index,{field}) printf '%s' '{text}' ;;
*) echo 'Field "${{1##*,}}" is not a valid field to query.'; exit 2 ;;
esac
"""
        if field:
            (tmp_path / "nvidia-smi").write_text(script, encoding="ascii")
            (tmp_path / "nvidia-smi").chmod(0o755)
        findings = Findings(Components(None))
        examine_gpus(server, findings)
        return [(check.grade, check.text) for check in findings.found]

    yield examine
    server.close()


HOT = "0, 0x0000000000000001\n1, 0x0000000000000048\n"


@pytest.mark.parametrize("field", [NEWER, OLDER])
def test_hot_gpus_are_named_by_drivers_of_any_age(
    examined: Callable[[str, str], list[tuple[str, str]]], field: str
) -> None:
    expected = "GPU 1 runs at lower clocks: hardware slowdown, hardware thermal slowdown"
    assert examined(field, HOT) == [("wrong", expected)]


def test_an_idle_gpu_and_one_at_its_power_limit_are_fine(
    examined: Callable[[str, str], list[tuple[str, str]]],
) -> None:
    text = "0, 0x0000000000000001\n1, 0x0000000000000004\n2, [N/A]\n"
    assert examined(NEWER, text) == [
        ("ok", "none of 2 is slowed by heat or lack of power"),
        ("note", "1 do not tell their clocks"),
    ]


def test_a_driver_that_is_not_reached_is_said(
    examined: Callable[[str, str], list[tuple[str, str]]],
) -> None:
    ((grade, text),) = examined("another", "")
    assert grade == "note"
    assert "not a valid field" in text


def test_without_nvidia_smi_nothing_is_said(
    examined: Callable[[str, str], list[tuple[str, str]]],
) -> None:
    assert examined("", "") == []


REASONS = ("prochot", "ppt", "socket_thermal", "vr_thermal", "hbm_thermal")


def amd(index: int, value: str = "NOT ACTIVE", **others: Any) -> dict[str, Any]:
    """Return a GPU as amd-smi has it: `value` for each reason, and others by name."""
    flags = {f"{name}_violation_status": value for name in REASONS}
    flags |= {f"{name}_violation_status": other for name, other in others.items()}
    activity = {"value": 0, "unit": "%"}
    counts = {"accumulation_counter": 4872059, "ppt_violation_activity": activity}
    return {"gpu": index, "throttle": counts | flags}


# As an idle MI300X has it, by partition: clocks below what the host permits are no fault.
IDLE = amd(
    0,
    gfx_clk_below_host_limit="N/A",
    total_gfx_clk_below_host_limit={"xcp_0": ["ACTIVE", "ACTIVE", "N/A"]},
    low_utilization={"xcp_0": ["ACTIVE", "ACTIVE", "N/A"]},
)
OLD = amd(1, "N/A") | {"power": {"throttle_status": "THROTTLED"}}
HOT_AMD = amd(2, socket_thermal="ACTIVE", ppt="ACTIVE", hbm_thermal="ACTIVE")
FORMS = {
    "--violation": lambda gpus: {"gpu_data": gpus},  # ROCm 7
    "--throttle": lambda gpus: gpus,  # ROCm 6.3
}


def put_amd_smi(folder: Path, option: str, gpus: list[dict[str, Any]]) -> None:
    (folder / "reply.json").write_text(json.dumps(FORMS[option](gpus), indent=4), "ascii")
    (folder / "amd-smi").write_text(
        f"""#!/bin/sh
[ "$1 $2 $3" = "metric {option} --json" ] && exec cat {folder}/reply.json
echo "amd-smi: error: unrecognized arguments: $2" >&2
exit 2
""",
        "ascii",
    )
    (folder / "amd-smi").chmod(0o755)


@pytest.mark.parametrize("option", list(FORMS))
def test_gpus_of_amd(
    examined: Callable[[str, str], list[tuple[str, str]]], tmp_path: Path, option: str
) -> None:
    put_amd_smi(tmp_path, option, [IDLE, OLD, HOT_AMD])
    hot = "GPU 2 runs at lower clocks: socket thermal limit, memory thermal limit"
    assert examined("", "") == [("wrong", hot), ("note", "1 do not tell their clocks")]
    put_amd_smi(tmp_path, option, [IDLE, OLD, amd(2, "FALSE", ppt="TRUE")])
    assert examined("", "")[0] == ("ok", "none of 2 is slowed by heat or lack of power")


def test_what_slows_a_host_is_a_condition_of_its_rows(tmp_path: Path) -> None:
    """Of the NICs' links to their processors, the one that carries least is stated."""
    testbed = load("testbeds/opus.yaml")
    port = next(spec for spec in testbed.nic_ports if spec.port.owner == "server0")
    paths = tmp_path / "devices"
    for device, (speed, width) in {
        "0000:16:01.0": ("32.0", 16),
        "0000:17:00.0": ("8.0", 4),
    }.items():
        folder = paths / "pci0000:16" / "0000:16:01.0" / device.removeprefix("0000:16:01.0")
        folder.mkdir(parents=True, exist_ok=True)
        for name, value in {"speed": f"{speed} GT/s PCIe", "width": str(width)}.items():
            for kind in ("current", "max"):
                (folder / f"{kind}_link_{name}").write_text(f"{value}\n", "ascii")
    (tmp_path / "readlink").write_text(
        f'#!/bin/sh\n[ "$2" = /sys/class/net/{port.netdev}/device ] || exit 1\n'
        f"echo {paths}/pci0000:16/0000:16:01.0/0000:17:00.0\n",
        "ascii",
    )
    (tmp_path / "readlink").chmod(0o755)
    put_amd_smi(tmp_path, "--violation", [IDLE, HOT_AMD])
    server = LinuxServer("server0", WithPrograms(tmp_path), SystemClock(), {})
    bench: Any = SimpleNamespace(servers={"server0": server}, testbed=testbed, simulated=set())
    row = Row("link", "rdma.bandwidth", 1e9, None, None, "bit/s", 1, {"plan": "ring"})
    (found,) = with_host([row], bench, [port.port])
    assert found.conditions == {"plan": "ring", "pcie": "8.0 GT/s x4", "gpus_slowed": 1}
    bench.simulated = {"server0"}
    assert with_host([row], bench, [port.port]) == [row]
    server.close()
