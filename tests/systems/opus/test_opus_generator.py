"""Generated testbeds of Opus: servers of each phase are joined, on every rail."""

import pytest

from lightrig.harness.systems.opus.generator import RailsError, render
from lightrig.testbeds import Testbed, load


def made(tmp_path, *sizes: int, namespaces: bool = False) -> Testbed:
    (tmp_path / "rails.yaml").write_text(render(*sizes, namespaces=namespaces))
    return load(tmp_path / "rails.yaml")


@pytest.mark.parametrize(
    ("stages", "replicas", "rails"), [(2, 2, 2), (4, 2, 2), (2, 4, 3), (3, 5, 1)]
)
def test_phases_join_the_servers_of_their_groups(tmp_path, stages, replicas, rails) -> None:
    import networkx as nx

    testbed = made(tmp_path, stages, replicas, rails)
    assert len(testbed.servers) == stages * replicas
    for rail in range(rails):
        for plan, size, count in (
            ("data", replicas, stages),
            ("pipeline", stages, replicas),
            ("giant-ring", stages * replicas, 1),
        ):
            links = [
                (link.a.owner, link.b.owner)
                for link in testbed.links(plan)
                if link.a.name.startswith(f"nic{rail}.")
            ]
            graph = nx.MultiGraph(links)
            parts = list(nx.connected_components(graph))
            assert [len(part) for part in parts] == [size] * count
            if plan != "pipeline":
                assert {degree for _, degree in graph.degree()} == {2}
        stage = [{f"server{s * replicas + r}" for r in range(replicas)} for s in range(stages)]
        graph = nx.Graph((link.a.owner, link.b.owner) for link in testbed.links("data"))
        assert sorted(map(sorted, nx.connected_components(graph))) == sorted(map(sorted, stage))


def test_rails_that_one_switch_cannot_hold_have_one_each(tmp_path) -> None:
    assert list(made(tmp_path, 8, 16, 2).optical_switches) == ["ocs"]  # 2 x 128 x 2 = 512 ports
    assert list(made(tmp_path, 8, 32, 2).optical_switches) == ["ocs0", "ocs1"]


def test_servers_may_be_namespaces(tmp_path) -> None:
    assert made(tmp_path, 2, 2, 2, namespaces=True).only_local_namespaces


@pytest.mark.parametrize(
    ("sizes", "why"),
    [((1, 1, 2), "expected at least two to join"), ((16, 17, 1), "at most 256: a rail has one")],
)
def test_sizes_that_no_switch_has_ports_for_are_refused(sizes, why: str) -> None:
    with pytest.raises(RailsError, match=why):
        render(*sizes)
