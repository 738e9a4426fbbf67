"""Debian's ethtool decodes the pages of the simulated CMIS module: a decoder that is not ours.

This kernel's devices have no transceivers, so that ethtool's request for a page is answered by a
library that is loaded before the C library (module_pages.c): all else of the program is unchanged.
"""

import os
import random
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from lightrig.harness.bench import Bench
from lightrig.instruments.servers.tools import ethtool_module
from lightrig.instruments.simulated.hosts.cmis_memory import page
from lightrig.instruments.simulated.hosts.cmis_module import PAGES
from lightrig.testbeds import Port

LIBRARY = Path(__file__).with_name("module_pages.c")
LAB = """
name: small
switches: {ocs: {model: polatis, address: "tl1://ocs.invalid", login: env:X, size: 2x2}}
servers:
  server[0-1]: {address: "ssh://{name}.invalid", nics: {nic0: {
    netdev: ens1f0, rate: 400G, transceiver: fr4}}}
transceivers:
  fr4: {wavelength: 1310 nm, launch: {min: -4 dBm, max: 4 dBm}, receive: {min: -10 dBm, max: 4 dBm}}
fibers: ["server[0-1].nic0 <-> ocs"]
plans: {joined: [server0.nic0 <-> server1.nic0]}
"""
CONTROLS = {"deinit": 128, "transmit off": 130}


class Decoded:
    """A simulated port's transceiver, as Debian's ethtool prints it."""

    def __init__(self, bench: Bench, folder: Path, library: Path) -> None:
        assert bench.world is not None
        self.clock = bench.clock
        self.port = bench.world.roster[Port("server0", "nic0")]
        self._folder = folder
        more = {"LD_PRELOAD": str(library), "MODULE_PAGES": str(folder)}
        self._environment = {**os.environ, **more}

    def print(self, *arguments: str) -> str:
        """Write all pages as they are now, and let ethtool print them."""
        for number in (0x00, 0x01, 0x02, 0x10, 0x11):
            memory = bytearray(page(self.port, number))
            if number in PAGES:
                changing = self.port.module.read(number, 128, 128, self.clock.now())
                memory[128:] = (a | b for a, b in zip(memory[128:], changing, strict=True))
            (self._folder / f"{number:02x}").write_bytes(memory)
        command = ["ethtool", "-m", "lo", *arguments]
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, env=self._environment
        )
        return done.stdout

    def bytes_of(self, number: int, offset: int, length: int) -> bytes:
        """Return a part of a page as ethtool dumps it in hexadecimal."""
        dump = self.print(
            "hex", "on", "page", hex(number), "offset", str(offset), "length", str(length)
        )
        rows = re.findall(r"^0x[0-9a-f]+:\s+(.*)$", dump, re.MULTILINE)
        return bytes.fromhex(" ".join(rows))


@pytest.fixture
def decoded(simulated: Callable[..., Bench], tmp_path: Path) -> Callable[[int], Decoded]:
    for program in ("gcc", "ethtool"):
        if shutil.which(program) is None:
            pytest.skip(f"no {program} on this machine")
    library = tmp_path / "module_pages.so"
    built = ["gcc", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, LIBRARY]
    subprocess.run(built, check=True)

    def of(seed: int) -> Decoded:
        return Decoded(simulated(LAB, seed), tmp_path, library)

    return of


def test_identity_and_state_are_the_worlds(decoded: Callable[[int], Decoded]) -> None:
    one = decoded(1)
    text = one.print()
    printed = dict(
        re.findall(r"^\s*(\S.*?)\s*: (.*?)\s*$", text, re.MULTILINE),
    )
    assert printed["Identifier"].startswith("0x18 (QSFP-DD")
    assert printed["Revision compliance"] == "Rev. 5.2"
    assert printed["Module State"] == "0x03 (ModuleReady)"
    assert printed["Vendor name"] == "Lightrig"
    assert printed["Vendor PN"] == "FR4"
    assert printed["Vendor SN"] == one.port.serial
    # Each reading of the world's sensors has its own noise.
    now = one.port.registers()
    celsius = float(printed["Module temperature"].split()[0])
    assert celsius == pytest.approx(now.temperature / 256, abs=1)
    assert float(printed["Module voltage"].split()[0]) == pytest.approx(now.voltage / 1e4, abs=0.05)
    read = ethtool_module.parse(text)
    assert (read.identifier, read.state) == (0x18, "ModuleReady")


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_data_paths_are_the_worlds_under_a_hosts_orders(
    decoded: Callable[[int], Decoded], seed: int
) -> None:
    one, chance = decoded(seed), random.Random(seed)
    module, seen = one.port.module, set[int]()
    for _ in range(40):
        offset = CONTROLS[chance.choice([*CONTROLS])]
        module.write(offset, bytes([chance.choice([0x00, 0x0F, 0xF0, 0xFF])]), one.clock.now())
        one.clock.sleep(round(10 ** chance.uniform(5.5, 10)))
        true = module.states(one.clock.now())
        dumped = one.bytes_of(0x11, 128, 4)
        lanes = [dumped[lane // 2] >> 4 * (lane % 2) & 0x0F for lane in range(8)]
        assert lanes == true
        seen |= set(true)
    assert len(seen) >= 5


def test_a_latched_loss_of_light_is_shown_once_more_when_it_has_ended(
    decoded: Callable[[int], Decoded],
) -> None:
    one = decoded(4)
    module = one.port.module
    flags = []
    for lit in (True, False, True):
        module.light(one.clock.now(), lit=lit, before=one.clock.now() + 5_000_000_000)
        for _ in range(2):
            one.clock.sleep(6_000_000_000)
            flags.append(one.bytes_of(0x11, 147, 2).hex())
    # Dark from the world's begin: what ended is shown once more, and what lasts always.
    assert flags == ["ffff", "0000", "ffff", "ffff", "ffff", "0000"]
