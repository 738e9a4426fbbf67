"""Mornings after faults: whether the right card stands on the page, since when, and false cards.

A laboratory of two servers and a switch is measured by the suites, night after night. Its testbed
file never changes: faults are in the simulated world alone, which also scatters by 3 % from night
to night. The kinds of faults of a seed share its healthy nights. What is recorded are the cards of
the nights' page; `table` scores them. A card is right if it names the part with the fault and no
part that the cabling tells from it; every other card is false.
"""

import datetime
import math
import os
import random
import re
import shutil
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import yaml

from lightrig import testbeds
from lightrig.harness.bench import simulation
from lightrig.harness.report.nights import judge_nights
from lightrig.instruments.simulated.lab import SimulatedLab
from lightrig.testbeds import Circuit
from tests.campaigns import preloaded, records
from tests.campaigns.planted_worlds import (
    UNPLANTED,
    Plant,
    Rewrite,
    lossy_circuit,
    misread_egress,
    noisy_receiver,
    planted,
    renamed_device,
    slow_links,
    slow_mirror,
    world,
)
from tests.mornings_page import lines_of, store

SEEDS = int(os.environ.get("MORNINGS_SEEDS", "10"))
FIRST_SEED = int(os.environ.get("MORNINGS_FIRST_SEED", "1"))
QUIET = int(os.environ.get("MORNINGS_QUIET", "600"))
"""Mornings without a fault."""
HEALTHY = int(os.environ.get("MORNINGS_HEALTHY", "60"))
"""Nights that are measured without a fault; each seed and each morning draws some of them."""
ONLY = os.environ.get("MORNINGS_ONLY", "")
"""A regular expression that the names of the kinds to be measured match."""
BEFORE = 10
"""Healthy nights before the first one with the fault."""
_NOT_AS_FOUND = 6
"""Status of a run that could not restore the lab: a switch was silent."""
FIRST_NIGHT = datetime.date(2026, 1, 1)
SCATTER = 0.03
"""Standard deviation of the level of a night, relative."""

LAB = """
name: lab
switches:
  ocs: {model: polatis, address: "tl1://ocs.invalid", size: 16x16}
servers:
  server[0-1]:
    address: "ssh://bench@{name}.invalid"
    nics:
      nic0:
        model: ConnectX-6 Dx
        ports: 2
        netdev: "ens1f{p}"
        rdma: "mlx5_{p}"
        rate: 100G
        transceiver: optics
transceivers:
  optics:
    wavelength: 1310 nm
    launch: {min: -4.3 dBm, max: 4.5 dBm}
    receive: {min: -10.6 dBm, max: 4.5 dBm}
    damage: 5.5 dBm
fibers:
  - server[0-1].nic0.p[0-1] <-> ocs
plans:
  straight:
    - server[0].nic0.p[0-1] <-> server[1].nic0.p[0-1]
  crossed:
    - server[0].nic0.p[0-1] <-> server[1].nic0.p[1,0]
limits:
  reconfiguration.signal_recovered: {p99: 150 ms, confidence: 95 %}
  insertion_loss: {max: 3 dB}
simulation:
  switches:
    ocs:
      acknowledge: {mean: 44 ms, sd: 2 ms}
      dark: {mean: 3 ms, sd: 0.4 ms}
      settle: {mean: 42 ms, sd: 3 ms}
      loss: {mean: 1.2 dB, sd: 0.036 dB, repeatability: 0.02 dB}
      monitor: {averaging: 10 ms, noise: 0.03 dB}
  nic:
    loss_detection: {mean: 50 ms, sd: 5 ms}
    bring_up: {mean: 3.2 s, sd: 0.1 s}
"""
CHOSEN = "every_fiber or every_circuit or between_plans or of_nic_ports and after and not around"
FILES = ("test_insertion_loss", "test_fiber_loss", "test_reconfiguration", "test_bit_error")

Fault = Mapping[str, object]


def fault(kind: str, *at: str, **more: object) -> Fault:
    return {"fault": kind, "at": list(at), **more}


def dirty(loss: str) -> Fault:
    return fault("dirty connector", "server0.nic0.p1", loss=loss)


def slow(factor: float) -> Fault:
    return fault("slow switch", "ocs", factor=factor)


def flap(lasting: str) -> Fault:
    return fault("interrupted fiber", "server1.nic0.p1", lasting=lasting, every="20 s")


def parts_of_fiber(port: str) -> frozenset[str]:
    """Return the components of the fiber that leaves a NIC port, or a port of the switch.

    By the testbed file, server0 is on ingress 1 and 2 and egress 17 and 18, server1 on 3, 4, 19
    and 20. The light of no other fiber passes them, so that nothing that is measured of light
    tells the connectors at its ends and the fiber from each other.
    """
    owner, _, rest = port.partition(".")
    if owner == "ocs":
        number = int(rest) - 17
        far = f"server{number // 2}.nic0.p{number % 2}"
        return frozenset([f"connector {port}", f"fiber {port} -> {far}", far])
    ingress = f"ocs.{1 + 2 * int(owner.removeprefix('server')) + int(rest[-1])}"
    return frozenset([port, f"fiber {port} -> {ingress}", f"connector {ingress}"])


@dataclass(frozen=True, slots=True)
class Kind:
    """Faults of a kind.

    named: for each fault the components of which a right card names some and no others.
    by: the morning by which it is asked for. pattern: of its nights, 1 with the faults, 0 without.
    plant: what else is other in its world. step: what the next step of a right card contains.
    """

    name: str
    faults: Sequence[Fault]
    named: Sequence[frozenset[str]]
    by: int = 2
    pattern: str = "11"
    plant: Plant = UNPLANTED
    step: str = ""


EXPECTED: Mapping[str, Mapping[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("mornings_expected.yaml").read_text(encoding="utf-8")
)


def further(name: str, *faults: Fault, plant: Plant = UNPLANTED) -> Kind:
    """Return a kind of which the file of what is expected says what a right card has.

    It is asked for by the third morning, of four.
    """
    asked = EXPECTED[name]
    named = frozenset([*asked["part"], *asked.get("beside", ())])
    return Kind(name, faults, [named], by=3, pattern="1111", plant=plant, step=asked["next"])


SWITCH = frozenset(["ocs"])
P1 = parts_of_fiber("server0.nic0.p1")
# Both ends of a link lose their carriers, whichever of its two fibers is dark.
FLAPPING = parts_of_fiber("server1.nic0.p1") | parts_of_fiber("ocs.20")
# A short flap may meet events of one plan alone, by its phase; then nothing tells the link's ends.
EITHER_END = FLAPPING | {"link server0.nic0.p1 - server1.nic0.p1"}
DARK = fault("dark laser", "server1.nic0.p0")
LEAVING = [f"server{server}.nic0.p{port}" for server in (0, 1) for port in (0, 1)]
# Each light leads to a port, but none to its own: whichever two fibers of an end were exchanged.
SWAPPED = frozenset().union(*map(parts_of_fiber, [*LEAVING, *(f"ocs.{n}" for n in range(17, 21))]))
WRONG = parts_of_fiber("server0.nic0.p0") | {"connector ocs.7"}
KINDS = (
    Kind("dirty connector, 1.2 dB", [dirty("1.2 dB")], [P1]),
    Kind("dirty connector, 0.8 dB", [dirty("0.8 dB")], [P1]),
    Kind(
        "dirty egress of the switch, 1.2 dB",
        [fault("dirty connector", "ocs", "19", loss="1.2 dB")],
        [parts_of_fiber("ocs.19")],
    ),
    Kind(
        "bent fiber, 1.5 dB",
        [fault("bent fiber", "server1.nic0.p0", loss="1.5 dB")],
        [parts_of_fiber("server1.nic0.p0")],
    ),
    Kind("switch 2 times slower", [slow(2)], [SWITCH]),
    Kind("switch 1.5 times slower", [slow(1.5)], [SWITCH]),
    Kind("switch 1.3 times slower", [slow(1.3)], [SWITCH], by=4, pattern="1111"),
    Kind("flap of 3 s each 20 s", [flap("3 s")], [FLAPPING]),
    Kind("flap of 0.3 s each 20 s", [flap("0.3 s")], [EITHER_END]),
    Kind("dark laser", [DARK], [parts_of_fiber("server1.nic0.p0")]),
    Kind(
        "swapped fibers",
        [fault("swapped fibers", "server0.nic0.p0", "server0.nic0.p1")],
        [SWAPPED],
    ),
    Kind("fiber in a wrong port", [fault("wrong port", "server0.nic0.p0", "ocs.7")], [WRONG]),
    Kind("stuck monitor", [fault("stuck monitor", "ocs", "19")], [frozenset(["connector ocs.19"])]),
    Kind("silent switch", [fault("silent instrument", "ocs", answers=40)], [SWITCH]),
    Kind(
        "server without ethtool",
        [fault("missing tool", "server1", tool="ethtool")],
        [frozenset(["server1"])],
    ),
    Kind("other host key", [fault("wrong host key", "server0")], [frozenset(["server0"])]),
    Kind(
        "clock set 0.2 s ahead",
        [fault("clock step", "server0", after="15 s", step="0.2 s")],
        [frozenset(["server0"])],
    ),
    Kind(
        "counters that begin anew",
        [fault("counter reset", "server1.nic0.p0", after="100 s")],
        [parts_of_fiber("server1.nic0.p0") | parts_of_fiber("ocs.19")],
    ),
    Kind("dirty connector and slow switch", [dirty("1.2 dB"), slow(1.5)], [P1, SWITCH]),
    Kind(
        "dirty connector and dark laser",
        [dirty("1.2 dB"), DARK],
        [P1, parts_of_fiber("server1.nic0.p0")],
    ),
    Kind("dirty connector that heals", [dirty("1.2 dB")], [P1], pattern="110"),
    Kind("dirty connector that returns", [dirty("1.2 dB")], [P1], pattern="1011"),
    further(
        "pairs of fibers exchanged",
        fault("swapped fibers", "server0.nic0.p0", "server0.nic0.p1"),
        fault("swapped fibers", "ocs.17", "ocs.18"),
    ),
    further(
        "kernel of another version, with another MTU",
        plant=Plant(
            [
                Rewrite("server1", "ip", r'("mtu":|mtu )1500', r"\g<1>4200"),
                Rewrite("server1", "uname", r"6\.8\.0", "6.14.0-37-generic"),
            ],
            [("server1", "6.14.0-37-generic")],
        ),
    ),
    further("slow mirror, 2.4 times", plant=Plant(change=slow_mirror(18, 2.4))),
    further("dirty receiver, 1.8 dB", fault("dirty connector", "ocs.19", loss="1.8 dB")),
    further("monitors at egress ports, 0.4 dB less", plant=Plant(change=misread_egress(0.4))),
    further(
        "clock set ahead by 4 ms each 30 s",
        *(fault("clock step", "server1", after=f"{30 * n} s", step="4 ms") for n in range(1, 61)),
    ),
    further(
        "other FEC",
        plant=Plant(
            [
                Rewrite(
                    *("server1", "ethtool", r'(config": \["Auto", "|active": \[")RS'),
                    *(r"\1BaseR", "ens1f1"),
                )
            ]
        ),
    ),
    further(
        "NIC firmware of another version, links 1.5 times slower",
        plant=Plant(
            [Rewrite("server1", "ethtool", r"(firmware-version: )\S+", r"\g<1>22.41.1000")],
            change=slow_links(["server1.nic0.p0", "server1.nic0.p1"], factor=1.5),
        ),
    ),
    further(
        "device of another name",
        plant=Plant(change=renamed_device("server1.nic0.p1", "enp1s0f1np1")),
    ),
    further("stale cross-connect", fault("stale cross-connect", "ocs", "1>17")),
    further(
        "flow control off",
        plant=Plant([Rewrite("server0", "ethtool", r"([RT]X:\t+)on", r"\1off", "ens1f0")]),
    ),
    further(
        "circuit that loses 1 dB more",
        plant=Plant(change=lossy_circuit(Circuit(1, 19), 1.0)),
    ),
    further(
        "port that trains its link twice",
        plant=Plant(change=slow_links(["server1.nic0.p1"], more_ns=2_000_000_000)),
    ),
    further(
        "receiver with errors",
        plant=Plant(change=noisy_receiver("server0.nic0.p0", 1e-4)),
    ),
)


# ------------------------------------------------------------------------------- measuring


def main() -> bool:
    """Measure what is not in the file yet, print the table; return whether it is as asked."""
    preloaded.preload(simulation=True)
    healthy = records.folder() / "mornings" / "healthy"
    healthy.parent.mkdir(exist_ok=True)
    (healthy.parent / "lab.yaml").write_text(LAB, encoding="utf-8")
    for night in range(HEALTHY):
        _measure(healthy, 0, night, (), UNPLANTED)
    with records.log("mornings") as log:
        known = {(one["seed"], one["kind"]) for one in log.done}
        for seed in range(FIRST_SEED, FIRST_SEED + SEEDS):
            for kind in KINDS:
                if (seed, kind.name) not in known and re.search(ONLY, kind.name):
                    mornings = _mornings(healthy, seed, kind)
                    log.add({"seed": seed, "kind": kind.name, "mornings": mornings})
        for draw in range(QUIET):
            if (draw, "") not in known:
                log.add({"seed": draw, "kind": "", "mornings": [_quiet_morning(healthy, draw)]})
        printed, good = table(log.done)
    print("\n".join(printed))
    if os.environ.get("MORNINGS_STORE"):
        store(summary(log.done), datetime.datetime.now(datetime.UTC).date().isoformat())
    return good


def _quiet_morning(healthy: Path, draw: int) -> list[dict[str, Any]]:
    """Return the cards of a healthy night after ten others."""
    nights = random.Random(f"quiet {draw}").sample(range(HEALTHY), BEFORE + 1)
    results = _copied(healthy, nights)
    cards = _cards(results)
    shutil.rmtree(results)
    return cards


def _mornings(healthy: Path, seed: int, kind: Kind) -> list[list[dict[str, Any]]]:
    """Measure the nights of a kind after healthy ones; return the cards of each morning.

    Where the kind ends with the fault, no night follows that on which the right cards are there.
    """
    results = _copied(healthy, random.Random(seed).sample(range(HEALTHY), BEFORE))
    found: list[list[dict[str, Any]]] = []
    for number, faulty in enumerate(kind.pattern):
        faults = kind.faults if faulty == "1" else ()
        plant = kind.plant if faulty == "1" else UNPLANTED
        _measure(results, seed, HEALTHY + number, faults, plant)
        found.append(_cards(results))
        print(seed, kind.name, number + 1, *found[-1], file=sys.stderr, flush=True)
        if "0" not in kind.pattern and not kind.step and _score(kind, found)[0]:
            break
    shutil.rmtree(results)
    return found


def _copied(healthy: Path, nights: Sequence[int]) -> Path:
    """Return a folder of results with these healthy nights."""
    results = healthy.with_name("results")
    shutil.rmtree(results, ignore_errors=True)
    for night in nights:
        shutil.copytree(healthy / "runs" / _run(night), results / "runs" / _run(night))
        for rows in healthy.glob(f"rows/**/*{_run(night)}*.parquet"):
            target = results / rows.relative_to(healthy)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(rows, target)
    return results


def _run(night: int) -> str:
    return f"{FIRST_NIGHT + datetime.timedelta(night):%Y%m%d}-020000-lab"


def _measure(results: Path, seed: int, night: int, faults: Sequence[Fault], plant: Plant) -> None:
    """Measure a night that is not there yet, in a process of its own."""
    run = results / "runs" / _run(night)
    if (run / "measured").exists():
        return
    shutil.rmtree(run, ignore_errors=True)
    for rows in results.glob(f"rows/**/*{_run(night)}*"):
        rows.unlink()
    described = _world(seed, night)
    described["simulation"]["faults"] = list(faults)
    folder = results.parent
    (folder / "world.yaml").write_text(yaml.safe_dump(described, sort_keys=False), encoding="utf-8")
    output = folder / "output"
    output.unlink(missing_ok=True)
    child = preloaded.forked(lambda: _night(results, seed, night, plant), output)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, _NOT_AS_FOUND):
        raise SystemExit(f"night {night} of seed {seed}: status {status}, see {output}")
    (run / "measured").touch()


def _world(seed: int, night: int) -> dict[str, Any]:
    """Return the description of the world of a night, whose delays scatter with the night."""
    described: dict[str, Any] = yaml.safe_load(LAB)
    draws = random.Random(f"{seed} {night}")
    for delays in (described["simulation"]["switches"]["ocs"], described["simulation"]["nic"]):
        factor = math.exp(draws.gauss(0, SCATTER))
        for delay in delays.values():
            if isinstance(delay, dict) and "mean" in delay and delay["mean"].endswith("s"):
                value, unit = delay["mean"].split()
                delay["mean"] = f"{float(value) * factor:.6g} {unit}"
    return described


def _night(results: Path, seed: int, night: int, plant: Plant) -> int:
    folder = results.parent
    faulty = testbeds.load(folder / "world.yaml")

    def lab(_testbed: testbeds.Testbed, *arguments: object, **more: object) -> SimulatedLab:
        return world(faulty, plant, arguments, more)

    options = ["--testbed", str(folder / "lab.yaml"), "--instruments", "simulated", "-k", CHOSEN]
    options += ["--profile", "night", "--samples", "8", "--results", str(results)]
    options += ["--seed", str(1000 * seed + night)]
    options += ["--run-name", _run(night), "-q"]
    options += ["--pyargs", *(f"lightrig.suites.{name}" for name in FILES)]
    os.chdir(folder)
    with mock.patch.object(simulation, "SimulatedLab", lab), planted(plant):
        return int(pytest.main([*options, *preloaded.RUN_OPTIONS]))


def _cards(results: Path) -> list[dict[str, Any]]:
    """Return the cards of the page of the nights."""
    return [
        {
            "components": [*map(str, one.components)],
            "title": one.title,
            "since": one.since,
            "evidence": [f"{part.text}: {part.size}" for part in one.evidence],
            "next": one.next_step,
            "news": [*one.news],
        }
        for _, causes in judge_nights(results).causes
        for one in causes
    ]


# --------------------------------------------------------------------------------- scoring


def table(done: Sequence[Mapping[str, Any]]) -> tuple[list[str], bool]:
    """Return the table of kinds, and whether it is as asked: 95 % on time, 8 of 10 of each kind."""
    found = summary(done)
    kinds = found["kinds"].values()
    timely, total = sum(one["on time"] for one in kinds), sum(one["seeds"] for one in kinds)
    good = timely >= 0.95 * total and found["false"] <= found["quiet"] / 60
    good &= all(one["on time"] >= 0.8 * one["seeds"] for one in kinds)
    return lines_of(found), good


def summary(done: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the counts of each kind, and of the cards on mornings without a fault.

    There also what is not located counts as a false card.
    """
    by_kind: dict[str, list[list[Any]]] = defaultdict(list)
    for one in done:
        by_kind[one["kind"]].append(one["mornings"])
    kinds = {}
    for kind in KINDS:
        scored = [_score(kind, mornings) for mornings in by_kind[kind.name]]
        if scored:
            kinds[kind.name] = {
                "by": kind.by,
                "seeds": len(scored),
                "on time": sum(0 < at <= kind.by for at, _, _ in scored),
                "mornings": [at for at, _, _ in scored],
                "right since": sum(right for _, right, _ in scored),
                "false": sum(false for _, _, false in scored),
            }
    quiet = [cards for mornings in by_kind[""] for cards in mornings]
    return {"kinds": kinds, "quiet": len(quiet), "false": sum(map(len, quiet))}


def _is_right(kind: Kind, names: frozenset[str], card: Mapping[str, Any]) -> bool:
    """Whether a card names the part, nothing else, and the next step that was written down."""
    part = frozenset(EXPECTED.get(kind.name, {}).get("part", names))
    named = frozenset(card["components"])
    return named <= names and bool(named & part) and kind.step in card.get("next", "")


def _score(kind: Kind, mornings: Sequence[Sequence[Mapping[str, Any]]]) -> tuple[int, bool, int]:
    """Return the first morning with all right cards, or 0; whether their dates are right; others.

    The date is that of the first night of the nights in a row with the fault, on each morning
    from the first one with the right cards on.
    """
    first = false = 0
    dated = True
    begun = None
    for number, (faulty, cards) in enumerate(zip(kind.pattern, mornings, strict=False), 1):
        begun = (number if begun is None else begun) if faulty == "1" else None
        located = [one for one in cards if one["components"]]
        right: list[Mapping[str, Any]] = []
        for names in kind.named if begun is not None else ():
            right += [one for one in located if _is_right(kind, names, one)][:1]
        false += len(located) - len(right)
        if begun is None or len(right) < len(kind.named):
            continue
        first = first or number
        date = FIRST_NIGHT + datetime.timedelta(HEALTHY + begun - 1)
        dated &= all(one["since"] == str(date) for one in right)
    return first, dated and first > 0, false
