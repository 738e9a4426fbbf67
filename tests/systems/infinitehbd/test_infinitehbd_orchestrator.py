"""The service that orchestrates rings: it drives modules, and continues after it was killed."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from lightrig.harness.bench import Bench, Fabric, bind
from lightrig.harness.systems.infinitehbd.generator import render
from lightrig.harness.systems.infinitehbd.planning.rings import circuits
from lightrig.harness.systems.infinitehbd.planning.wiring import InfiniteHbdError
from lightrig.harness.systems.infinitehbd.runtime.orchestrator import Orchestrator, orchestrator
from lightrig.testbeds import LightrigError, Plan, load
from tests.campaigns import orchestrations

RING = {"do": "submit", "job": "ring", "size": 0}
FAILED = {"do": "failed", "nodes": ["node1"]}
PAST = [["node0", "node2", "node3", "node4"]]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    path = tmp_path / "five.yaml"
    path.write_text(render(5))
    made = bind(load(path), "simulated", 1)
    yield made
    made.close()


def service(bench: Bench, state: Path) -> tuple[Orchestrator, Fabric]:
    fabric = Fabric(bench)
    return Orchestrator(bench.testbed, lambda _: fabric, state), fabric


def astray(bench: Bench, running: Orchestrator) -> list[str]:
    """Return the modules that are not on their paths."""
    return [
        f"trx{bundle}-node{node}"
        for node, paths in running.cluster.paths().items()
        for bundle, path in enumerate(paths)
        if bench.switches[f"trx{bundle}-node{node}"].circuits() != circuits(path, 1)
    ]


def test_a_ring_closes_past_a_failed_node(bench: Bench, tmp_path: Path) -> None:
    running, _ = service(bench, tmp_path / "state.json")
    running.start()
    assert running.request(RING)["jobs"]["ring"]["groups"] == [[f"node{n}" for n in range(5)]]
    status = running.request(FAILED)
    assert status["jobs"]["ring"]["groups"] == PAST
    assert status["faulty"] == {"node1": "reported"}
    assert status["settled"]
    assert not astray(bench, running)
    assert running.request({"do": "status"}) == status


def test_a_node_that_takes_no_order_has_failed(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, fabric = service(bench, tmp_path / "state.json")
    running.start()
    sent = fabric.apply

    def apply(plan: Plan) -> None:
        if "node3" in str(plan.circuits):
            raise LightrigError("trx0-node3 did not answer\nwithin 1 s")
        sent(plan)

    monkeypatch.setattr(fabric, "apply", apply)
    status = running.request(RING)
    assert status["faulty"] == {"node3": "trx0-node3 did not answer; within 1 s"}
    assert status["jobs"]["ring"]["groups"] == [["node0", "node1", "node2", "node4"]]
    assert not astray(bench, running)


class Cut(BaseException):
    """The end of a process, between two orders."""


def test_a_service_that_ends_between_any_two_orders_continues(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in itertools.count(1):
        state = tmp_path / f"{limit}.json"
        running, fabric = service(bench, state)
        orders, sent = itertools.count(1), fabric.apply

        def apply(plan: Plan, orders=orders, sent=sent, limit=limit) -> None:
            if next(orders) == limit:
                raise Cut
            sent(plan)

        monkeypatch.setattr(fabric, "apply", apply)
        ended = False
        try:
            running.start()
            running.request(RING)
            running.request(FAILED)
        except Cut:
            ended = True
        again, _ = service(bench, state)
        assert again.cluster == running.cluster
        again.start()
        assert not astray(bench, again)
        again.request(RING)
        status = again.request(FAILED)
        assert status["jobs"]["ring"]["groups"] == PAST
        assert not astray(bench, again)
        if not ended:
            break
    assert limit > 10  # five nodes into the ring, and three past the failed one, at the least


@pytest.mark.long
def test_a_killed_service_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `python -m tests.campaigns orchestrations` 200 times."""
    for name in ("LIGHTRIG_STATE", "LIGHTRIG_SERVED"):
        monkeypatch.setenv(name, "")  # restored afterwards
    state = tmp_path / "cluster.json"
    with orchestrations.served(tmp_path) as (world, file):
        status, kills = orchestrations.kill_and_continue(
            world, file, state, [RING, FAILED], limits=[3, 4]
        )
        assert kills == 2
        assert status["jobs"]["ring"]["groups"] == PAST
        assert orchestrations.astray(world, state) == []


def test_a_plan_is_noted_before_somebody_else_carries_it_out(bench: Bench, tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    running, fabric = service(bench, state)
    running.start()
    fabric.apply(running.plan(RING))
    running.done()
    past = running.plan(FAILED)
    assert json.loads(state.read_text())["faulty"] == [1]
    fabric.apply(past)
    running.done()
    assert running.request({"do": "status"})["settled"]
    assert not astray(bench, running)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"do": "nothing"}, "expected one of status"),
        ({"do": "failed", "nodes": ["node9"]}, "found node 'node9'"),
        ({"do": "submit", "job": "a"}, "is not complete: KeyError"),
        ({"do": "submit", "job": "a", "size": "x"}, "is not complete: ValueError"),
    ],
)
def test_an_invalid_request_is_refused(bench: Bench, tmp_path: Path, request_, message) -> None:
    running, _ = service(bench, tmp_path / "state.json")
    with pytest.raises(InfiniteHbdError, match=message):
        running.request(request_)


def test_a_state_of_another_row_is_refused(bench: Bench, tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    state.write_text("{}")
    with pytest.raises(InfiniteHbdError, match="no state of a cluster"):
        service(bench, state)
    state.write_text('{"nodes": 9, "hops": [1, 2], "closed": true, "faulty": [], "jobs": []}')
    with pytest.raises(InfiniteHbdError, match="state of another row"):
        service(bench, state)


def test_without_any_answer_nothing_is_marked_as_failed(bench: Bench, tmp_path: Path) -> None:
    running = orchestrator(bench.testbed, tmp_path / "state.json")
    with pytest.raises(LightrigError, match="did not answer"):
        running.start()
    assert not running.cluster.faulty
    running.close()
