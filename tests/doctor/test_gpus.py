"""GPUs that are slowed down, on this machine with a stand-in of nvidia-smi."""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from servers.program_host import Here

from lightrig.harness.components import Components
from lightrig.harness.doctor import Findings
from lightrig.harness.doctor.servers import examine_gpus
from lightrig.instruments.clock import SystemClock
from lightrig.instruments.servers.host.linux import LinuxServer

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
