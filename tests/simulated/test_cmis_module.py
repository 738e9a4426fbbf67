"""The simulated CMIS module: its state machine under a host's orders, and its receiver's flags.

Codes and places: sonic-net/sonic-platform-common, `codes/public/cmis.py` and the memory maps; the
bring-up of a host as SONiC's doc/sfp-cmis/cmis-init.md has it.
"""

import random

import pytest

from lightrig.instruments.simulated.hosts.cmis_module import CmisModule
from lightrig.instruments.simulated.world.randomness import Chance

MS = 1_000_000
S = 1000 * MS

NAMES = {
    1: "DPDeactivated",
    2: "DPInit",
    3: "DPDeinit",
    4: "DPActivated",
    5: "DPTxTurnOn",
    6: "DPTxTurnOff",
    7: "DPInitialized",
}
UPPER_MS = (1, 5, 10, 50, 100, 500, 1000, 5000, 10_000, 60_000, 300_000, 600_000, 3_000_000)
UPPER_MS = (*UPPER_MS, 6_000_000)


def module(seed: int = 1, *, lit: bool = True) -> CmisModule:
    return CmisModule(Chance(seed).stream("m"), 0, lit=lit)


def state(of: CmisModule, at: int, lane: int = 0) -> str:
    (byte,) = of.read(0x11, 128 + lane // 2, 1, at)
    return NAMES[byte >> 4 * (lane % 2) & 0x0F]


def maxima(of: CmisModule) -> dict[str, int]:
    (init,) = of.read(0x01, 144, 1, 0)
    (transmit,) = of.read(0x01, 168, 1, 0)
    codes = {
        "DPInit": init & 15,
        "DPDeinit": init >> 4,
        "DPTxTurnOn": transmit & 15,
        "DPTxTurnOff": transmit >> 4,
    }
    return {name: UPPER_MS[code] * MS for name, code in codes.items()}


def followed(of: CmisModule, at: int, until: int, step: int = MS // 4) -> dict[str, int]:
    """The states in order, each with the time for which it was read."""
    lasted: dict[str, int] = {}
    for moment in range(at, until, step):
        name = state(of, moment)
        lasted[name] = lasted.get(name, 0) + step
    return lasted


def test_a_host_brings_a_module_up_state_by_state() -> None:
    of = module()
    assert state(of, 0) == "DPActivated"
    of.write(128, b"\xff", S)
    down = followed(of, S, 2 * S)
    # DPInitialized is left at once.
    assert list(down) == ["DPTxTurnOff", "DPDeinit", "DPDeactivated"]
    of.write(130, b"\xff", 2 * S)
    of.write(145, bytes([0x20] * 8), 2 * S)
    of.write(143, b"\xff", 2 * S)
    assert of.read(0x11, 202, 4, 2 * S) == b"\x11" * 4
    assert of.read(0x11, 235, 1, 2 * S) == b"\xff"
    assert of.read(0x11, 206, 1, 2 * S) == b"\x20"
    of.write(128, b"\x00", 3 * S)
    up = followed(of, 3 * S, 9 * S, 10 * MS)
    assert list(up) == ["DPInit", "DPInitialized"]
    assert of.read(0x11, 235, 1, 9 * S) == b"\x00"
    assert of.read(0x11, 133, 1, 9 * S) == b"\x00"
    of.write(130, b"\x00", 10 * S)
    assert list(followed(of, 10 * S, 11 * S, MS)) == ["DPTxTurnOn", "DPActivated"]
    assert of.read(0x11, 133, 1, 11 * S) == b"\xff"


def test_lanes_have_their_own_controls_and_a_strange_application_is_rejected() -> None:
    of = module()
    of.write(130, b"\x04", S)
    assert [state(of, 2 * S, lane) for lane in range(4)] == [
        *("DPActivated", "DPActivated", "DPInitialized", "DPActivated")
    ]
    of.write(145 + 3, b"\x90", 2 * S)
    of.write(143, b"\x08", 2 * S)
    assert of.read(0x11, 203, 1, 2 * S) == b"\x31"


@pytest.mark.parametrize("seed", range(4))
def test_states_pass_within_the_advertised_maxima(seed: int) -> None:
    of, chance = module(seed), random.Random(seed)
    longest, at = maxima(of), 0
    assert longest == {
        "DPInit": 5 * S,
        "DPDeinit": 100 * MS,
        "DPTxTurnOn": 500 * MS,
        "DPTxTurnOff": 50 * MS,
    }
    for _ in range(20):
        place, value = chance.choice([(128, 255), (128, 0), (130, 255), (130, 0), (143, 255)])
        of.write(place, bytes([value]), at)
        lasted, name, since = {}, state(of, at), at
        end = at + 6 * S
        while at < end:
            at += 3 * MS
            if (now := state(of, at)) != name:
                lasted[name] = at - since
                name, since = now, at
        for passed, took in lasted.items():
            assert took <= longest.get(passed, end) + 3 * MS
        assert name in ("DPDeactivated", "DPActivated", "DPInitialized")


def test_light_moves_no_data_path_and_firmware_that_begins_anew_does() -> None:
    of = module()
    of.light(S, lit=False, before=0)
    of.light(2 * S, lit=True, before=6 * S)
    assert list(followed(of, 0, 8 * S, 10 * MS)) == ["DPActivated"]
    of.begin_anew(9 * S)
    seen = followed(of, 9 * S, 16 * S, MS)
    assert set(seen) >= {"DPDeinit", "DPInit", "DPTxTurnOn"}
    assert state(of, 16 * S) == "DPActivated"


def flag(of: CmisModule, at: int, place: int = 147) -> bool:
    return of.read(0x11, place, 1, at) == b"\xff"


def test_flags_stay_set_until_they_are_read_and_come_late() -> None:
    of = module()
    of.light(S, lit=False, before=0)
    change = of.light(S + 100 * MS, lit=True, before=4 * S)
    assert S + 100 * MS < change.signal < change.lock < change.output < 4 * S
    assert flag(of, 3 * S)  # long after, since nobody has read it
    assert not flag(of, 3 * S)
    assert flag(of, 3 * S, 148)
    again = module()
    again.light(S, lit=False, before=0)
    change = again.light(S + 100 * MS, lit=True, before=4 * S)
    assert flag(again, change.signal - MS)
    assert flag(again, change.signal + MS)  # it is late by 4 ms
    assert flag(again, change.signal + 5 * MS)  # what it had latched since
    assert not flag(again, change.signal + 6 * MS)
    assert again.read(0x11, 132, 1, change.output - 1) == b"\x00"
    assert again.read(0x11, 132, 1, change.output) == b"\xff"


def test_a_reading_of_nearby_bytes_clears_no_flag() -> None:
    of = module(lit=False)
    assert of.read(0x11, 128, 19, S) != b""
    of.light(2 * S, lit=True, before=6 * S)
    assert flag(of, 5 * S)
