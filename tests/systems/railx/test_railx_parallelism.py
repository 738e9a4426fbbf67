"""Jobs that are stated by their parallelism: rails as equations 10 and 11 divide them, by light.

What is expected is enumerated here from the equations; what is set is read from the circuits.
"""

import itertools
import json
import math
import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from lightrig.harness.orchestration.jobs import OrchestrationError
from lightrig.harness.orchestration.orchestrator import Orchestrator
from lightrig.harness.systems.railx.generator import render
from lightrig.harness.systems.railx.runtime.layout import GridLayout
from lightrig.testbeds import load
from tests.campaigns.switchroom import Switchroom, beams

SEED, JOBS = 61, 30
NAMES = ("cp", "ep", "dp", "pp")
COLUMNS, ROWS, MESH, PORTS = 10, 9, 2, 4
BPS = 400e9
CHIPS = MESH**2


@pytest.fixture(scope="module")
def fabric(tmp_path_factory):
    file = tmp_path_factory.mktemp("railx") / "grid.yaml"
    file.write_text(render(COLUMNS, ROWS, mesh=MESH, ports=PORTS))
    return load(file)


@pytest.fixture
def service(fabric, tmp_path):
    room = Switchroom(fabric, "ingress")
    running = Orchestrator(fabric, GridLayout(fabric), room, tmp_path / "state.json")
    running.start()
    return running, room


def submit(running, job="moe", **shape):
    return running.request({"do": "submit", "job": job, "shape": shape})["jobs"][job]


def needed(kind: str, size: int) -> int | None:
    """Rails of one all-to-all (Lemma 3.1, and its undirected half); None where there is none."""
    if kind == "ring":
        return 1
    if kind == "single-link":
        return size // 2
    return None if size in (4, 6) else size - 1


def least_time(degrees: Mapping[str, int], volumes, overlap_ms, *, even: bool) -> float:
    """Equation 11 for both physical dimensions, in s: the least of all pairings and divisions."""
    best = math.inf
    step = MESH if even else 1
    units = MESH * PORTS // step

    def term(name: str, kind: str, given: int) -> float:
        need = needed(kind, degrees[name])
        copies = given // need if need else 0
        if not copies:
            return math.inf
        links = {"ring": 2, "single-link": degrees[name] - 1}  # of a node; else two a pair
        ports = copies * links.get(kind, 2 * (degrees[name] - 1))
        sent = 8 * volumes[name] * CHIPS / (ports * BPS)
        return max(overlap_ms.get(name, 0) / 1e3, sent)

    def physical(names: tuple[str, ...]) -> float:
        used = [name for name in names if degrees[name] > 1]
        for kind in ("all-to-all", "single-link", "ring"):  # of EP, the first that is possible
            found = []
            for n in range(1, units) if len(used) > 1 else [units]:
                given = [n * step, (units - n) * step]
                terms = (
                    term(name, kind if name == "ep" else "ring", rails)
                    for name, rails in zip(used, given, strict=False)
                )
                found.append(sum(terms))
            if min(found) < math.inf:
                return min(found)
        return math.inf

    for x in itertools.chain.from_iterable(itertools.combinations(NAMES, n) for n in (2,)):
        y = tuple(name for name in NAMES if name not in x)
        sizes = [math.prod(degrees[name] for name in side) for side in (x, y)]
        if sizes[0] <= COLUMNS and sizes[1] <= ROWS:
            best = min(best, physical(x) + physical(y))
    return best


def ports_by_dimension(room: Switchroom, job: Mapping[str, Any]) -> list[Counter[str]]:
    """How many ports of each node have the light of a node that differs in a dimension alone."""
    nodes = job["groups"][0]["nodes"]
    degrees = job["shape"]["parallelism"]
    at = {}
    for rank, node in enumerate(nodes):
        stride = 1
        for name in NAMES:  # [C, E, De, P], the first fastest
            at[node, name] = rank // stride % degrees[name]
            stride *= degrees[name]
    found = {node: Counter() for node in nodes}
    for source, sink in beams(room.testbed, room.circuits):
        if source.owner in found:
            apart = [n for n in NAMES if at[source.owner, n] != at[sink.owner, n]]
            assert len(apart) == 1, f"{source} to {sink} differs in {apart}"
            found[source.owner][apart[0]] += 1
    return list(found.values())


def drawn(dice: random.Random) -> dict[str, Any]:
    while True:
        degrees = {name: dice.choice([1, 1, 2, 3, 4, 5]) for name in NAMES}
        volumes = {name: 10 ** dice.uniform(6, 10) if degrees[name] > 1 else 0 for name in NAMES}
        overlap = {n: dice.uniform(0, 20) for n in NAMES if dice.random() < 0.3}
        even = dice.random() < 0.6
        used = sum(size > 1 for size in degrees.values())
        if used and least_time(degrees, volumes, overlap, even=even) < math.inf:
            return {
                "parallelism": {"tp": CHIPS, **degrees},
                "volumes": volumes,
                "overlap_ms": overlap or None,
                "even": even,
            }


def test_the_bandwidth_of_each_dimension_as_set_is_the_allocation_s(service):
    """30 jobs drawn at random: rails counted by light give equation 11's least time."""
    running, room = service
    dice = random.Random(SEED)
    for number in range(JOBS):
        shape = drawn(dice)
        job = submit(running, f"job{number}", **shape)
        degrees, volumes = shape["parallelism"], shape["volumes"]
        overlap = shape["overlap_ms"] or {}
        counted = ports_by_dimension(room, job)
        assert all(each == counted[0] for each in counted), shape
        stated = {
            share["name"]: share["ports"]
            for d in ("x", "y")
            for share in job["groups"][0]["details"][d]
        }
        ports = dict(counted[0])
        assert ports == stated, shape
        assert ports.keys() == {name for name in NAMES if degrees[name] > 1}
        time = sum(
            max(overlap.get(n, 0) / 1e3, 8 * volumes[n] * CHIPS / (ports[n] * BPS)) for n in ports
        )
        expected = least_time(degrees, volumes, overlap, even=shape["even"])
        assert time == pytest.approx(expected, rel=1e-9), shape
        assert job["measures"]["exchange_ms"] == pytest.approx(1e3 * expected, rel=1e-9)
        assert job["ready"]
        running.request({"do": "withdraw", "job": f"job{number}"})
        assert not any(room.circuits.values())


FIGURE_9 = {"tp": 4, "cp": 3, "ep": 3, "dp": 2, "pp": 2}


def test_figure_9_is_a_network_of_five_dimensions(service):
    """4 x 3 x 3 x D x P chips: an all-to-all of EP beside rings, half of the rails each."""
    running, room = service
    job = submit(running, parallelism=FIGURE_9, volumes=dict.fromkeys(NAMES, 1e9))
    assert len(job["groups"][0]["nodes"]) * CHIPS == 4 * 3 * 3 * 2 * 2
    assert {*ports_by_dimension(room, job)[0].values()} == {MESH * PORTS}
    kinds = {
        share["name"]: share["kind"] for d in ("x", "y") for share in job["groups"][0]["details"][d]
    }
    assert kinds == {"cp": "ring", "ep": "all-to-all", "dp": "ring", "pp": "ring"}


def test_a_phase_gives_one_dimension_all_rails_and_the_nodes_stay(service):
    running, room = service
    shape = {"parallelism": FIGURE_9, "volumes": {"cp": 2e9, "ep": 1e9, "dp": 1e9, "pp": 1e9}}
    before = submit(running, **shape)
    (cp_line,) = [
        d
        for d in ("x", "y")
        if "cp" in [share["name"] for share in before["groups"][0]["details"][d]]
    ]
    beside = next(
        share["name"] for share in before["groups"][0]["details"][cp_line] if share["name"] != "cp"
    )
    steady = {s: c for s, c in room.circuits.items() if not s.startswith(cp_line)}
    running.request({"do": "submit", "job": "big", "shape": {"columns": 2, "rows": 2}})
    room.commands.clear()
    after = submit(running, **shape, phase="cp")
    assert after["groups"][0]["nodes"] == before["groups"][0]["nodes"]
    assert (after["moved"], after["ready"]) == ([], True)
    assert after["epoch"] > before["epoch"]
    counted = ports_by_dimension(room, {**after, "groups": after["groups"]})[0]
    assert (counted["cp"], counted[beside]) == (2 * MESH * PORTS, 0)
    assert {switch[0] for switch, _ in room.commands} == {cp_line}
    others = set(running.status()["jobs"]["big"]["groups"][0]["nodes"])
    assert others.isdisjoint(after["groups"][0]["nodes"])
    for switch, circuits in steady.items():
        assert circuits <= room.circuits[switch]
    submit(running, **shape)
    assert ports_by_dimension(room, running.status()["jobs"]["moe"]) == [
        Counter({share["name"]: 2 * len(share["rails"]) for d in ("x", "y")
                 for share in before["groups"][0]["details"][d]})
    ] * 36  # fmt: skip


def test_a_phase_goes_on_after_a_restart_and_a_failed_node(service, fabric, tmp_path):
    running, room = service
    shape = {"parallelism": FIGURE_9, "volumes": dict.fromkeys(NAMES, 1e9), "phase": "ep"}
    submit(running, **shape)
    circuits = dict(room.circuits)
    again = Orchestrator(fabric, GridLayout(fabric), room, tmp_path / "state.json")
    again.start()
    assert room.circuits == circuits
    job = again.request({"do": "failed", "nodes": ["node0-0"]})["jobs"]["moe"]
    assert "node0-0" not in job["groups"][0]["nodes"]
    assert ports_by_dimension(room, job)[0]["ep"] == 2 * MESH * PORTS


def test_sizes_of_a_model_give_the_volumes_of_table_4(service):
    """CP: BSH (2 h_KV/h_A) / T, twice N_B L / P an iteration; by hand for a small model."""
    running, _ = service
    sizes = {
        "batch": 1, "micro_batches": 2, "sequence": 1024, "hidden": 512, "layers": 4,
        "vocabulary": 1000, "heads": 8, "kv_heads": 2, "intermediate": 2048,
    }  # fmt: skip
    degrees = {"tp": 4, "cp": 5, "pp": 2}
    by_model = submit(running, "a", parallelism=degrees, model=sizes)
    context = 1024 * 512 * (2 * 2 / 8) / 4 * (2 * 2 * 4 / 2) * 2  # bytes of bfloat16
    pipeline = 1024 * 512 / (4 * 5) * (2 * 2) * 2
    by_volumes = submit(running, "b", parallelism=degrees, volumes={"cp": context, "pp": pipeline})
    for d in ("x", "y"):
        assert by_model["groups"][0]["details"][d] == by_volumes["groups"][0]["details"][d]
    assert by_model["measures"] == pytest.approx(by_volumes["measures"])
    assert by_model["measures"]["exchange_ms"] > 0


def test_a_running_job_is_divided_anew_by_other_volumes(service):
    """Llama 3's context grows in stages (section 5.1): what CP sends more gives it more rails."""
    running, _ = service
    degrees = {"tp": 4, "cp": 5, "dp": 2, "ep": 3, "pp": 3}
    low = {"ep": 1e9, "cp": 1e7, "dp": 1e9, "pp": 1e9}
    first = submit(running, parallelism=degrees, volumes=low)
    dry = running.request(
        {
            "do": "submit",
            "job": "moe",
            "shape": {"parallelism": degrees, "volumes": {**low, "cp": 1e10}},
            "dry_run": True,
        }
    )["jobs"]["moe"]
    after = submit(running, parallelism=degrees, volumes={**low, "cp": 1e10})
    assert dry["measures"]["after"] == pytest.approx(after["measures"])
    assert dry["moved"] == []

    def rails(job):
        return next(
            len(share["rails"])
            for d in ("x", "y")
            for share in job["groups"][0]["details"][d]
            if share["name"] == "cp"
        )

    assert rails(after) > rails(first)
    assert after["groups"][0]["nodes"] == first["groups"][0]["nodes"]


@pytest.mark.parametrize("even", [True, False])
def test_rails_whose_switches_are_silent_get_no_dimension(service, even):
    running, room = service
    room.silent = {"xocs0-0", "yocs0-1"}
    for _ in range(2):
        running.step()
    shape = {"parallelism": FIGURE_9, "volumes": dict.fromkeys(NAMES, 1e9), "even": even}
    job = submit(running, **shape)
    details = job["groups"][0]["details"]
    for d in ("x", "y"):
        lines = details["rows"] if d == "x" else details["columns"]
        used = {f"{d}ocs{line}-{r}" for s in details[d] for r in s["rails"] for line in lines}
        assert used.isdisjoint(room.silent)
        if even:  # each chip row gives a dimension as many rails
            for share in details[d]:
                assert {*Counter(rail // PORTS for rail in share["rails"]).values()} == {
                    len(share["rails"]) // MESH
                }
    assert job["ready"]


EQUAL = {"volumes": dict.fromkeys(NAMES, 1e9)}


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ({"parallelism": {"tp": 2, "cp": 3}, **EQUAL}, "found tp 2, expected 4"),
        ({"parallelism": {"tp": 4, "cp": 3}}, "one of volumes and model"),
        ({"parallelism": {"tp": 4, "cp": 3}, "volumes": {"ep": 1e9}}, "no volume of cp"),
        ({"parallelism": {"tp": 4, "cp": 11}, **EQUAL}, "no pairing fits 10 x 9"),
        ({"parallelism": {"tp": 4}, **EQUAL}, "no pairing fits"),
        ({"parallelism": {"tp": 4, "cp": 3}, **EQUAL, "phase": "ep"}, "phase ep of degree 1"),
        ({"parallelism": {"tp": 4, "cp": 3}, **EQUAL, "columns": 2, "rows": 2}, "expected one of"),
        ({"columns": 2, "rows": 2, **EQUAL}, "belong to a job that states parallelism"),
        ({"columns": 2}, "expected one of columns with rows"),
        ({}, "expected one of columns with rows"),
        ({"parallelism": {"tp": 4, "cp": 3}, "volumes": {"cp": -1}}, "volumes.cp"),
        ({"parallelism": {"tp": 4, "cp": 3}, "volumes": {"cp": "1"}}, "volumes.cp"),
        ({"parallelism": {"cp": 3}, **EQUAL}, "parallelism.tp"),
        ({"parallelism": {"tp": 4, "ep": 4}, **EQUAL, "topology": "hyperx"}, "no Hamiltonian"),
        ({"parallelism": FIGURE_9, **EQUAL, "topology": "dragonfly"}, "stated by columns and rows"),
    ],
)  # fmt: skip
def test_what_the_fabric_cannot_do_is_refused(service, shape, message):
    running, room = service
    with pytest.raises(OrchestrationError, match=message):
        submit(running, **shape)
    assert not any(room.circuits.values())


def test_more_experts_than_rails_make_two_links_get_one_link_a_pair(service):
    """Nine nodes need eight rails for two links a pair: with a ring beside, they get one."""
    running, room = service
    degrees = {"tp": 4, "ep": 9, "pp": 2, "cp": 2, "dp": 2}
    with pytest.raises(OrchestrationError):  # 18 nodes fit no line
        submit(running, parallelism=degrees, **EQUAL)
    job = submit(running, parallelism={"tp": 4, "ep": 5, "pp": 2}, **EQUAL, even=False)
    shares = [share for d in ("x", "y") for share in job["groups"][0]["details"][d]]
    assert {share["name"]: len(share["rails"]) for share in shares} == {"ep": 8, "pp": 8}
    assert all(each == {"ep": 16, "pp": 16} for each in ports_by_dimension(room, job))


def test_a_damaged_division_in_the_journal_is_refused(service, fabric, tmp_path):
    running, room = service
    submit(running, parallelism=FIGURE_9, **EQUAL)
    file = tmp_path / "state.json"
    document = json.loads(file.read_text())
    shares = document["jobs"][0]["groups"][0]["details"]["x"]
    shares[0]["rails"] = shares[-1]["rails"]  # two dimensions on the same rails
    del document["sha256"]
    document["format"] = 1  # of before there was a digest
    file.write_text(json.dumps(document))
    with pytest.raises(OrchestrationError, match="rails of its own"):
        Orchestrator(fabric, GridLayout(fabric), room, file)
