"""Numbers of circuits that can be moved, of the shipped files and of many links."""

import itertools
import random
from pathlib import Path

import pytest

from lightrig.testbeds import Circuit, Plan, PlanPair, Testbed, load, partial_move, plan_pairs

FILES = [file for file in sorted(Path("testbeds").glob("*.yaml")) if len(file.suffixes) == 1]
COUNTS = 60


def whole(testbed: Testbed, plan: Plan) -> bool:
    """Whether each circuit is one direction of a link."""
    return 2 * len(testbed.links(plan)) == len(plan)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_after_these_counts_no_link_has_one_direction(file: Path) -> None:
    testbed = load(file)
    for pair in plan_pairs(testbed):
        counts = pair.counts()[:COUNTS]
        moved = {count: partial_move(pair.before, pair.after, count) for count in counts}
        found = [count for count, plan in moved.items() if whole(testbed, plan)]
        known = list(itertools.islice(pair.link_counts(testbed), len(found) + 1))
        assert known[: len(found)] == found
        assert all(count > counts[-1] for count in known[len(found) :])


@pytest.mark.parametrize("seed", range(40))
def test_they_are_so_for_circuits_at_random(seed: int) -> None:
    """Also where circuits have no way back, or end at a port without a fiber."""
    chance = random.Random(seed)
    testbed = load(Path("testbeds/opus.yaml"))
    pair = PlanPair(*(Plan(name, {"ocs": drawn(testbed, chance)}) for name in ("one", "two")))
    moved = {count: partial_move(pair.before, pair.after, count) for count in pair.counts()}
    found = [count for count, plan in moved.items() if whole(testbed, plan)]
    assert list(pair.link_counts(testbed)) == found


def drawn(testbed: Testbed, chance: random.Random) -> frozenset[Circuit]:
    """Links between ports at random, of some of which one direction is absent."""
    ports = [spec.port for spec in testbed.nic_ports]
    left = chance.sample(ports, chance.randrange(0, len(ports) + 1))
    circuits = {Circuit(300, 301)} if chance.random() < 0.2 else set()
    for a, b in zip(left[::2], left[1::2], strict=False):
        both = sorted(testbed.cabling.circuits_for_link(a, b).circuits["ocs"])
        circuits.update(both[: 2 if chance.random() < 0.95 else 1])
    return frozenset(circuits)


def text() -> str:
    """16 servers of 64 ports at one switch, straight and with neighbours exchanged."""
    exchanged = ",".join(str(port ^ 1) for port in range(64))
    plans = {"straight": "0-63", "exchanged": exchanged}
    lines = [
        "name: wide",
        "switches: {ocs: {model: polatis, address: tl1://ocs.invalid, size: 1024x1024}}",
        "servers:",
        "  server[0-15]:",
        "    address: ssh://{name}.invalid",
        '    nics: {nic0: {ports: 64, netdev: "ens1f{p}", rate: 100G, transceiver: lr4}}',
        "transceivers:",
        "  lr4:",
        "    wavelength: 1310 nm",
        "    launch: {min: -4.3 dBm, max: 4.5 dBm}",
        "    receive: {min: -10.6 dBm, max: 4.5 dBm}",
        "    damage: 5.5 dBm",
        'fibers: ["server[0-15].nic0.p[0-63] <-> ocs"]',
        "plans:",
    ]
    for name, ports in plans.items():
        lines.append(f"  {name}:")
        lines += [
            f"    - server{n}.nic0.p[0-63] <-> server{n + 8}.nic0.p[{ports}]" for n in range(8)
        ]
    return "\n".join(lines)


def test_many_links_of_which_none_moves_alone(tmp_path: Path) -> None:
    """The circuits there stand before those back, so only all together leave no direction."""
    (tmp_path / "wide.yaml").write_text(text())
    testbed = load(tmp_path / "wide.yaml")
    (pair,) = plan_pairs(testbed)
    assert list(pair.link_counts(testbed)) == [1_024]
