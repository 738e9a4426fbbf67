"""`amd-smi metric --violation`: what limits the clocks of AMD's GPUs.

Sources: ROCm's documentation of AMD SMI, "GPU violations" and amdsmi_violation_status_t. Instinct
MI300 and newer have an active flag for each reason; older GPUs have "N/A" in all of them. Their
`throttle_status` is not used: on some boards it is THROTTLED for ever (ROCm/rocm-systems issue
11781). Until ROCm 7 the option is `--throttle`, and its list of GPUs is not in an object. The tool
for hosts of virtual machines writes TRUE and FALSE.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lightrig.instruments.servers.tools.gpu_clocks import GpuClocks
from lightrig.instruments.servers.tools.output import ToolOutputError

TOOL = "amd-smi"

OPTIONS = ("--violation", "--throttle")
"""The names of the option, the newer one first."""

_SLOW = {
    "prochot": "processor hot",
    "socket_thermal": "socket thermal limit",
    "vr_thermal": "voltage regulator thermal limit",
    "hbm_thermal": "memory thermal limit",
}
_ALLOWED = {"ppt": "package power limit"}
"""What a working GPU does. Clocks below the host's limit are those of an idle GPU, too."""

_ACTIVE = {"ACTIVE": True, "TRUE": True, "NOT ACTIVE": False, "FALSE": False, "N/A": None}


def command(option: str) -> list[str]:
    """Return the command whose output `parse` reads."""
    return [TOOL, "metric", option, "--json"]


def parse(text: str) -> tuple[GpuClocks, ...]:
    """Parse the output of `command`.

    Raises:
        ToolOutputError: it is something else.
    """
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ToolOutputError(TOOL, "JSON", text.partition("\n")[0]) from error
    gpus = document.get("gpu_data") if isinstance(document, dict) else document
    if not isinstance(gpus, list):
        raise ToolOutputError(TOOL, "a list of GPUs, or one in `gpu_data`", text[:80])
    return tuple(map(_gpu, gpus))


def _gpu(gpu: Any) -> GpuClocks:
    section = gpu.get("throttle", gpu.get("violation")) if isinstance(gpu, dict) else None
    index = gpu.get("gpu") if isinstance(gpu, dict) else None
    if type(index) is not int or not isinstance(section, Mapping):
        raise ToolOutputError(TOOL, "the number of a GPU, and its `throttle`", str(gpu)[:80])
    flags = {name: _is_active(section, name) for name in (*_SLOW, *_ALLOWED)}
    if all(flag is None for flag in flags.values()):
        return GpuClocks(index, None)
    slow = tuple(text for name, text in _SLOW.items() if flags[name])
    return GpuClocks(index, (*slow, *(t for name, t in _ALLOWED.items() if flags[name])), slow)


def _is_active(section: Mapping[str, Any], name: str) -> bool | None:
    found = section.get(f"{name}_violation_status", "N/A")
    if found not in _ACTIVE:
        raise ToolOutputError(TOOL, f"ACTIVE, NOT ACTIVE or N/A as {name}", str(found)[:80])
    return _ACTIVE[found]
