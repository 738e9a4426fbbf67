"""Kill -9 at random moments: the lab is as found after a restore, and no acknowledged row is lost.

`KILLS` times (default 1,000) a process leases a served lab, switches its laser on, sets attenuator
and chamber, moves circuits and records rows, until it is killed after up to a second. Then what it
has left is restored as `lightrig restore` does, and compared with the ground truth; its journal is
compared with the rows whose append had returned. Every tenth time circuits are made by hand before:
then the restore must stop, and say so. Every kill is a line of the campaign's file
(`tests.campaigns.records`), behind which a campaign that was ended goes on.
"""

import mmap
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lightrig.harness.bench import Fabric, bind_only, leftovers
from lightrig.harness.bench.settings import SavedInstruments
from lightrig.harness.record import Context, Journal, Row, read_journal
from lightrig.instruments.clock import SystemClock
from lightrig.instruments.simulated.lab import SimulatedLab
from lightrig.testbeds import Circuit, Plan, Testbed, load
from lightrig.testbeds.readdressing import readdressed
from tests.campaigns.records import log, reported

LAB = """
name: lab
switches:
  ocs: {model: polatis, address: tl1://ocs.invalid, login: env:X, size: 8x8}
servers:
  server[0-3]:
    address: ssh://{name}.invalid
    nics: {nic0: {netdev: e0, rate: 100G, transceiver: lr4}}
instruments:
  laser: {kind: light_source, model: keysight-n7776c, address: scpi://laser.invalid}
  voa: {kind: attenuator, model: keysight-n7764a, address: scpi://voa.invalid, channels: 4}
  chamber: {kind: climate_chamber, model: weiss-simserv, address: simserv://chamber.invalid}
transceivers:
  lr4:
    wavelength: 1310 nm
    launch: {min: -4 dBm, max: 4 dBm}
    receive: {min: -10 dBm, max: 4 dBm}
fibers:
  - server[0-3].nic0 <-> ocs
simulation:
  switches:
    ocs: {acknowledge: {mean: 5 ms}, dark: {mean: 1 ms}, settle: {mean: 4 ms}}
"""
NAMES = {"ocs", "laser", "voa", "chamber"}
WITHIN_S = 1.0


def matching(dice: random.Random) -> frozenset[Circuit]:
    """Draw circuits between the lab's own ports."""
    ingress, egress = dice.sample(range(1, 5), dice.randint(1, 4)), dice.sample(range(9, 13), 4)
    return frozenset(map(Circuit, ingress, egress))


def use(file: Path, folder: Path, seed: int) -> None:
    """Use the lab until killed; the number of acknowledged rows stands in a file."""
    dice = random.Random(seed)
    bench = bind_only(load(file), NAMES, f"kill {seed}")
    fabric, settings = Fabric(bench), SavedInstruments(bench)
    settings.save_initial_state()
    instruments: Any = bench.instruments
    journal = Journal(folder / "journal.jsonl", {"run": f"k{seed}", "night": "2026-03-14"})
    context = Context("lab", "kills", bench.participants(), True, {})
    with (folder / "acknowledged").open("r+b") as shared:
        count = mmap.mmap(shared.fileno(), 8)
    instruments["laser"].set_emission(1, on=True)
    instruments["chamber"].set_temperature(60.0)
    for number in range(10**9):
        fabric.apply(Plan("drawn", {"ocs": matching(dice)}))
        instruments["voa"].set_attenuation(1, float(number % 20))
        for _ in range(20):
            journal.append(context, Row("ocs", "reconfiguration.control", 1, 1, 1, "ns", number))
            acknowledged = int.from_bytes(count[:], sys.byteorder) + 1
            count[:] = acknowledged.to_bytes(8, sys.byteorder)


def kill_once(
    world: SimulatedLab, file: Path, root: Path, number: int, found: Counter[str]
) -> None:
    """Kill a process that uses the lab, and restore the lab."""
    dice = random.Random(number)
    matrix = world.matrices["ocs"]
    matrix.disconnect(list(matrix.egress_of))
    initial = matching(dice)
    matrix.connect(initial)
    folder = root / str(number)
    folder.mkdir()
    (folder / "acknowledged").write_bytes(bytes(8))
    process = multiprocessing.get_context("forkserver").Process(
        target=use, args=(file, folder, number), daemon=True
    )
    process.start()
    ends = time.monotonic() + 60
    # From the first state on disk, or from the first row on: half of the kills each.
    first = (lambda: list(root.glob("state/*.json"))) if dice.random() < 0.5 else None
    while not (first() if first else any((folder / "acknowledged").read_bytes())):
        if time.monotonic() > ends or not process.is_alive():
            found["NEVER BEGAN"] += 1
            break
        time.sleep(0.001)
    time.sleep(dice.uniform(0, WITHIN_S))
    process.kill()
    process.join()
    found["kills"] += 1
    _check_rows(folder, found)
    testbed = load(file)
    if by_hand := number % 10 == 9:
        matrix.disconnect(list(matrix.egress_of))
        matrix.connect([Circuit(1, 9), Circuit(2, 10), Circuit(3, 11), Circuit(4, 12)])
    changed = {Circuit(*pair) for pair in matrix.egress_of.items()}
    found["found changed"] += changed != initial
    restored = _restore(testbed, found, force=False)
    if restored.conflicts:
        found["stopped by hand" if by_hand else "STOPPED"] += 1
        found["CHANGED BY HAND, OVERWRITTEN"] += changed != _now(matrix)
        restored = _restore(testbed, found, force=True)
    if restored.restored:
        found["LEFT CHANGED"] += _now(matrix) != initial
        _check_off(testbed, found)


def _now(matrix: Any) -> frozenset[Circuit]:
    return frozenset(Circuit(*pair) for pair in matrix.egress_of.items())


def _check_rows(folder: Path, found: Counter[str]) -> None:
    acknowledged = int.from_bytes((folder / "acknowledged").read_bytes(), sys.byteorder)
    journal = folder / "journal.jsonl"
    rows = sum(1 for _ in read_journal(journal).rows()) if journal.exists() else 0
    found["rows acknowledged"] += acknowledged
    found["ROWS LOST"] += max(0, acknowledged - rows)


def _restore(testbed: Testbed, found: Counter[str], *, force: bool) -> leftovers.Restoration:
    """Restore what was left, if anything was."""
    left = leftovers.leftovers(testbed)
    done = leftovers.restore_left(testbed, left, force=force)
    found["NOT RESTORED"] += bool(done.failures)
    return done


def _check_off(testbed: Testbed, found: Counter[str]) -> None:
    bench = bind_only(testbed, NAMES - {"ocs"}, "a check")
    try:
        laser: Any = bench.instruments["laser"]
        voa: Any = bench.instruments["voa"]
        chamber: Any = bench.instruments["chamber"]
        found["LASER LEFT ON"] += laser.emission(1)
        found["ATTENUATION LEFT"] += voa.attenuation(1) != 0.0
        found["CHAMBER LEFT RUNNING"] += bool(chamber.read_settings([1])["running 1"])
    finally:
        bench.close()


def table(done: list[dict[str, Any]]) -> tuple[list[str], bool]:
    """Return how often each thing has happened, and whether all is as it should be."""
    total: Counter[str] = Counter()
    for each in done:
        total.update(each["found"])
    printed = [f"{name:<30}{count:>12,}" for name, count in sorted(total.items())]
    return printed, not any(count for name, count in total.items() if name.isupper())


def main(report: Callable[[str], object] = print) -> bool:
    """Kill and restore; returns whether everything was as found and no row was lost."""
    kills = int(os.environ.get("KILLS", "1000"))
    multiprocessing.get_context("forkserver").set_forkserver_preload(["tests.campaigns.kills"])
    with tempfile.TemporaryDirectory(prefix="lightrig-kills-") as name, log("kills") as lines:
        root = Path(name)
        os.environ["LIGHTRIG_STATE"] = str(root / "state")
        (root / "lab.yaml").write_text(LAB)
        clock = SystemClock()
        world = SimulatedLab(load(root / "lab.yaml"), clock, 1)
        addresses = {name: world.services[name].address for name in NAMES}
        os.environ["LIGHTRIG_SERVED"] = ":".join(world.services["ocs"].login)
        file, known = root / "served.yaml", root / "known_hosts"
        known.touch()
        login = "env:LIGHTRIG_SERVED"
        file.write_text(
            readdressed(root / "lab.yaml", addresses, login=login, known_hosts=known, target=file)
        )
        try:
            for number in range(len(lines.done), kills):
                found: Counter[str] = Counter()
                kill_once(world, file, root, number, found)
                lines.add({"number": number, "found": found})
        finally:
            world.close()
            clock.close()
        return reported(*table(lines.done), report)
