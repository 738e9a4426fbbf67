"""SONiC's CmisApi reads and drives the simulated module: a host that is not ours.

With stand-ins for sonic_py_common, which logs and knows the platform of a SONiC switch.
"""

import random
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from public_sources import fetched

from lightrig.instruments.simulated.hosts.cmis_module import PAGES, CmisModule
from lightrig.instruments.simulated.world.randomness import Chance

MS = 1_000_000
SONIC = "sonic-net/sonic-platform-common"
API = "sonic_platform_base/sonic_xcvr/api/public/cmis.py"
NAMES = {
    1: "DataPathDeactivated",
    2: "DataPathInit",
    3: "DataPathDeinit",
    4: "DataPathActivated",
    5: "DataPathTxTurnOn",
    6: "DataPathTxTurnOff",
    7: "DataPathInitialized",
}


class Silent:
    """Stands for a logger."""

    def __init__(self, *_: object, **__: object) -> None:
        """Take whatever a logger takes."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


class Memory:
    """A module's memory as SONiC addresses it: the pages one behind another."""

    def __init__(self, seed: int) -> None:
        self.now = 0
        self.module = CmisModule(Chance(seed).stream("module"), 0, lit=True)
        self._lower = bytes([0x18, 0x52, 0x00, 0x07]).ljust(256, b"\0")

    def read(self, address: int, size: int) -> bytes:
        page, offset = address // 128 - 1, address % 128 + 128
        if address < 256:
            return self._lower[address : address + size]
        return self.module.read(page, offset, size, self.now) if page in PAGES else bytes(size)

    def write(self, address: int, size: int, data: bytes) -> bool:
        assert address // 128 - 1 == 0x10
        self.module.write(address % 128 + 128, bytes(data[:size]), self.now)
        return True


@pytest.fixture
def sonic(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what makes a CmisApi of a memory."""
    path = fetched(SONIC, API)
    if path is None:
        pytest.skip("needs a public program: `make public-sources`")
    monkeypatch.syspath_prepend(Path(str(path).removesuffix(API)))
    names = "", ".syslogger", ".logger", ".device_info"
    modules = [ModuleType(f"sonic_py_common{name}") for name in names]
    _, syslogger, logger, info = modules
    vars(syslogger)["SysLogger"] = vars(logger)["Logger"] = Silent
    vars(info).update(get_platform=lambda: None, get_path_to_platform_dir=lambda: "/nonexistent")
    for module in modules:
        monkeypatch.setitem(sys.modules, module.__name__, module)
    api, codes, maps, eeprom = (
        import_module(f"sonic_platform_base.sonic_xcvr.{name}")
        for name in (
            "api.public.cmis",
            "codes.public.cmis",
            "mem_maps.public.cmis.cmis",
            "xcvr_eeprom",
        )
    )

    def of(memory: Memory) -> Any:
        pages = maps.CmisMemMap(codes.CmisCodes)
        return api.CmisApi(eeprom.XcvrEeprom(memory.read, memory.write, pages))

    return of


def order(api: Any, chance: random.Random) -> None:
    lanes = chance.choice([0xFF, 0x0F, 0xF0, 1 << chance.randrange(8)])
    match chance.choice(["deinit", "init", "off", "on", "application"]):
        case "deinit":
            api.set_datapath_deinit(lanes)
        case "init":
            api.set_datapath_init(lanes)
        case "application":
            api.set_application(lanes, chance.choice([1, 2]), 0)
            api.scs_apply_datapath_init(lanes)
            status = api.get_config_datapath_hostlane_status()
            asked = [lane for lane in range(8) if lanes >> lane & 1]
            assert {status[f"ConfigStatusLane{lane + 1}"] for lane in asked} == {"ConfigSuccess"}
        case switch:
            api.tx_disable_channel(lanes, switch == "off")


@pytest.mark.long
def test_states_are_the_worlds_and_pass_within_the_maxima(sonic: Any) -> None:
    passed = Counter[str]()
    for seed in range(50):
        memory, chance = Memory(seed), random.Random(seed)
        api = sonic(memory)
        longest = {
            "DataPathInit": api.get_datapath_init_duration(),
            "DataPathDeinit": api.get_datapath_deinit_duration(),
            "DataPathTxTurnOn": api.get_datapath_tx_turnon_duration(),
            "DataPathTxTurnOff": api.get_datapath_tx_turnoff_duration(),
        }
        assert list(longest.values()) == [5000, 100, 500, 50]
        last = dict.fromkeys(range(8), ("", 0))
        for _ in range(20):
            order(api, chance)
            end = memory.now + chance.choice([20, 200, 1000, 7000]) * MS
            while memory.now < end:
                memory.now += 10 * MS
                shown = [api.get_datapath_state()[f"DP{lane}State"] for lane in range(1, 9)]
                assert shown == [NAMES[each] for each in memory.module.states(memory.now)]
                for lane, name in enumerate(shown):
                    before, since = last[lane]
                    if name != before:
                        last[lane] = name, memory.now
                        if before in longest:
                            passed[before] += 1
                            assert (memory.now - since) / MS <= longest[before] + 10
    assert all(passed[name] > 100 for name in longest), passed
