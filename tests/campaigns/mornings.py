"""Mornings after faults: rank of the card that names each, when it appears, and false cards.

A laboratory of two servers and a switch is measured by the suites, night after night. Its testbed
file never changes: faults are in the simulated world alone. The cards are those of the page of the
nights, as it is written. A card is right if it names the component with the fault and at most three
others; every other card is false. Seeds draw the losses of the circuits anew on each night.
"""

import contextlib
import multiprocessing
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from unittest import mock

import pytest
import yaml

from lightrig import testbeds
from lightrig.harness.bench import simulation
from lightrig.harness.report.nights import write_nights
from lightrig.instruments.simulated.lab import SimulatedLab

SEEDS = int(os.environ.get("MORNINGS_SEEDS", "2"))
BEFORE = int(os.environ.get("MORNINGS_NIGHTS", "6"))
"""Nights before the first one with the fault."""
AFTER = 4
"""Nights with the fault."""
MOST_NAMED = 4

LAB = """
name: lab
switches:
  ocs: {model: polatis, address: "tl1://ocs.invalid", size: 16x16}
servers:
  server[0-1]:
    address: "ssh://bench@{name}.invalid"
    nics:
      nic0: {ports: 2, netdev: "ens1f{p}", rdma: "mlx5_{p}", rate: 100G, transceiver: optics}
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
      loss: {mean: 1.2 dB, sd: 0.05 dB, repeatability: 0.02 dB}
      monitor: {averaging: 10 ms, noise: 0.03 dB}
"""
CHOSEN = "every_circuit or between_plans or of_nic_ports or each_link"


def dirty(port: str, loss: str) -> dict[str, object]:
    return {"fault": "dirty connector", "at": [port], "loss": loss}


def slow(factor: float) -> dict[str, object]:
    return {"fault": "slow switch", "at": ["ocs"], "factor": factor}


def flap(lasting: str) -> dict[str, object]:
    at = ["server1.nic0.p1"]
    return {"fault": "interrupted fiber", "at": at, "lasting": lasting, "every": "20 s"}


@dataclass(frozen=True)
class Kind:
    """Faults of a kind, and for each a set of components of which a right card names one.

    By the file, server0 is on ingress 1 and 2 and egress 17 and 18, server1 on 3, 4, 19 and 20.
    """

    name: str
    faults: Sequence[Mapping[str, object]]
    named: Sequence[frozenset[str]]


P1 = frozenset(["ocs.2"])
SWITCH = frozenset(["ocs"])
FLAPPING = frozenset(["server1.nic0.p1", "fiber server1.nic0.p1 -> ocs.4", "ocs.4"])
FLAPPING |= {"link server0.nic0.p1 - server1.nic0.p1", "link server0.nic0.p0 - server1.nic0.p1"}
KINDS = (
    Kind("dirty connector, 1.2 dB", [dirty("server0.nic0.p1", "1.2 dB")], [P1]),
    Kind("dirty connector, 0.8 dB", [dirty("server0.nic0.p1", "0.8 dB")], [P1]),
    Kind("switch 2 times slower", [slow(2)], [SWITCH]),
    Kind("switch 1.5 times slower", [slow(1.5)], [SWITCH]),
    Kind("switch 1.3 times slower", [slow(1.3)], [SWITCH]),
    Kind("flap of 3 s each 20 s", [flap("3 s")], [FLAPPING]),
    Kind("flap of 0.3 s each 20 s", [flap("0.3 s")], [FLAPPING]),
    Kind(
        "dark laser",
        [{"fault": "dark laser", "at": ["server1.nic0.p0"]}],
        [frozenset(["server1.nic0.p0", "fiber server1.nic0.p0 -> ocs.3", "ocs.3"])],
    ),
    Kind(
        "swapped fibers",
        [{"fault": "swapped fibers", "at": ["server0.nic0.p0", "server0.nic0.p1"]}],
        [frozenset(["ocs.1", "ocs.2", "server0.nic0.p0", "server0.nic0.p1"])],
    ),
    Kind(
        "dirty connector and slow switch",
        [dirty("server0.nic0.p1", "1.2 dB"), slow(1.5)],
        [P1, SWITCH],
    ),
)


def main() -> bool:
    """Print the table; return whether no card was false and each fault had one at last."""
    context = multiprocessing.get_context("fork")
    print(
        f"{SEEDS} seeds, {BEFORE} nights before the fault; rank of the card on nights 1 to {AFTER}"
    )
    rows: dict[str, list[str]] = {kind.name: [] for kind in KINDS}
    false = dict.fromkeys(rows, 0)
    quiet = mornings = 0
    with tempfile.TemporaryDirectory(prefix="mornings-") as name:
        folder = Path(name)
        (folder / "lab.yaml").write_text(LAB, encoding="utf-8")
        for seed in range(SEEDS):
            healthy = folder / f"healthy{seed}"
            for night in range(BEFORE):
                _measure(context, folder, healthy, seed, night, ())
                mornings += 1
                wrong = _cards(healthy)
                quiet += len(wrong)
                for card in wrong:
                    print(f"  seed {seed}, healthy night {night}: {sorted(card)}", file=sys.stderr)
            for kind in KINDS:
                results = folder / "results"
                shutil.copytree(healthy, results)
                ranks = []
                for night in range(BEFORE, BEFORE + AFTER):
                    _measure(context, folder, results, seed, night, kind.faults)
                    cards = _cards(results)
                    at = [_rank(cards, named) for named in kind.named]
                    ranks.append("+".join(str(one or "-") for one in at))
                    false[kind.name] += len(cards) - sum(one > 0 for one in at)
                    print(
                        f"  seed {seed}, {kind.name}, {night}: {ranks[-1]}",
                        *map(sorted, cards),
                        file=sys.stderr,
                    )
                shutil.rmtree(results)
                rows[kind.name].append(" ".join(ranks))
    print(f"| fault | {' | '.join(f'seed {seed}' for seed in range(SEEDS))} | false cards |")
    print("| --- " * (SEEDS + 2) + "|")
    for kind_name, each in rows.items():
        print(f"| {kind_name} | {' | '.join(each)} | {false[kind_name]} |")
    print(f"false cards on {mornings} mornings without a fault: {quiet}")
    last = [ranks.split()[-1] for each in rows.values() for ranks in each]
    return not quiet and not any("-" in rank for rank in last)


def _measure(
    context: multiprocessing.context.ForkContext,
    folder: Path,
    results: Path,
    seed: int,
    night: int,
    faults: Sequence[Mapping[str, object]],
) -> None:
    """Measure a night in a process of its own, which the simulated world shares with nothing."""
    child = context.Process(target=_night, args=(folder, results, seed, night, faults))
    child.start()
    child.join()
    if child.exitcode not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise SystemExit(f"night {night} of seed {seed} ended with {child.exitcode}")


def _night(
    folder: Path, results: Path, seed: int, night: int, faults: Sequence[Mapping[str, object]]
) -> None:
    described = yaml.safe_load(LAB)
    described["simulation"]["faults"] = list(faults)
    world = folder / "world.yaml"
    world.write_text(yaml.safe_dump(described, sort_keys=False), encoding="utf-8")
    faulty = testbeds.load(world)

    def lab(_testbed: testbeds.Testbed, *arguments: object) -> SimulatedLab:
        return SimulatedLab(faulty, *arguments)  # type: ignore[arg-type]

    options = ["--testbed", str(folder / "lab.yaml"), "--instruments", "simulated", "-k", CHOSEN]
    options += ["--seed", str(1000 * seed + night), "--samples", "30", "--results", str(results)]
    options += ["--run-name", f"202611{night + 1:02}-020000-lab", "-p", "no:cacheprovider", "-n0"]
    with (
        open(os.devnull, "w", encoding="utf-8") as nowhere,
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
        mock.patch.object(simulation, "SimulatedLab", lab),
    ):
        code = pytest.main(["--pyargs", "lightrig.suites", "-q", *options])
    os._exit(code)


def _cards(results: Path) -> list[frozenset[str]]:
    """Return the components of each card, from the page."""
    page = write_nights(results, results / "nights.html").read_text(encoding="utf-8")
    titles = re.findall(r'<article class="lr-cause"><h3>(.*?) <span', page, re.DOTALL)
    return [
        frozenset(one.removeprefix("connector ") for one in unescape(title).split(" or "))
        for title in titles
    ]


def _rank(cards: Sequence[frozenset[str]], named: frozenset[str]) -> int:
    """Return the rank of the first right card, from 1; 0 without one."""
    right = (at for at, card in enumerate(cards, 1) if card & named and len(card) <= MOST_NAMED)
    return next(right, 0)
