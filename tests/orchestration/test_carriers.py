"""Nodes whose light is lost, told from the carriers at the far ends of their links."""

import pytest

from lightrig.harness.orchestration.carriers import UNNOTICED_NS, Carrier, LinkLight, Look
from lightrig.instruments.clock import Span
from lightrig.testbeds import Link, Port

S = 1_000_000_000
RING = "abcde"


def port(node: str, lane: int) -> Port:
    return Port(node, f"p{lane}")


def ring(nodes: str) -> list[Link]:
    """Port 0 of each node is joined to port 1 of the next one."""
    return [
        Link(port(near, 0), port(far, 1))
        for near, far in zip(nodes, nodes[1:] + nodes[0], strict=True)
    ]


def look(at_s: float, dark: str, since: dict[str, tuple[float, float]] | None = None) -> Look:
    """Every port has a carrier but those named in `dark`, such as "a0 e1"; since, in s."""
    carriers = {}
    for node in RING:
        for lane in (0, 1):
            name = f"{node}{lane}"
            spans = (since or {}).get(name)
            at = spans and Span(round(spans[0] * S), round(spans[1] * S))
            carriers[port(node, lane)] = Carrier(name not in dark.split(), at)
    return Look(Span(round(at_s * S), round(at_s * S) + 2_000_000), carriers)


@pytest.fixture
def light() -> LinkLight:
    made = LinkLight()
    made.note(ring(RING), look(10, ""))
    made.note(ring(RING), look(12, ""))
    return made


def test_a_node_is_lost_where_both_neighbours_miss_its_light(light: LinkLight) -> None:
    # c is joined to b's port 0 and d's port 1; its own ports stay lit by b and d.
    misses, lit = light.note(ring(RING), look(13, "b0 d1"))
    assert misses == {"c": "its light arrives no more at b.p0, d.p1"}
    assert lit == set("abde")
    misses, lit = light.note(ring(RING), look(14, "b0"))
    assert (misses, lit) == ({}, set("abcde"))


def test_what_a_dark_node_does_not_see_says_nothing_of_its_neighbour(light: LinkLight) -> None:
    # a and c are off: nobody but they sees b, whose light may be well.
    misses, lit = light.note(ring(RING), look(13, "e0 b1 b0 d1 a0 a1 c0 c1"))
    assert set(misses) == {"a", "c"}
    assert lit == {"d", "e"}
    assert light.doubt is None


def test_where_no_port_has_light_no_node_is_lost(light: LinkLight) -> None:
    every = " ".join(f"{node}{lane}" for node in RING for lane in (0, 1))
    misses, lit = light.note(ring(RING), look(13, every))
    assert (misses, lit) == ({}, set())
    assert light.doubt is not None
    assert light.doubt.startswith("no link of any job has light any more, a.p0 and 9 others")
    light.note(ring(RING), look(14, ""))
    assert light.doubt is None


def test_a_link_counts_once_its_light_has_arrived() -> None:
    """A NIC takes seconds for a link; a carrier of before may be of other circuits."""
    light = LinkLight()
    assert light.note(ring(RING), look(10, "b0 d1")) == ({}, set())
    assert light.note(ring(RING), look(10.5, "b0 d1")) == ({}, set())
    later = 10 + 2 * UNNOTICED_NS / S
    misses, lit = light.note(ring(RING), look(later, "b0 d1"))
    assert (misses, lit) == ({}, set("abde"))


def test_a_carrier_that_came_up_behind_the_circuits_is_of_them() -> None:
    light = LinkLight()
    light.note(ring(RING), look(10, ""))
    _, lit = light.note(ring(RING), look(10.3, "", {"b0": (10.1, 10.101), "a0": (9.7, 9.9)}))
    assert lit == {"c"}


def test_ports_that_no_agent_reads_say_nothing(light: LinkLight) -> None:
    seen = look(13, "b0 d1")
    carriers = {at: each for at, each in seen.carriers.items() if at.owner not in "bd"}
    misses, lit = light.note(ring(RING), Look(seen.at, carriers))
    assert (misses, lit) == ({}, {"a", "b", "d", "e"})


def test_a_recovery_lasts_from_the_first_dark_port_to_the_last_new_light(light: LinkLight) -> None:
    cut = {"b0": (12.50, 12.51), "d1": (12.49, 12.53)}
    light.note(ring(RING), look(13, "b0 d1", cut))
    light.lose("c")
    assert light.recovered(look(13, "b0 d1", cut)) == []
    light.note(ring("abde"), look(13.5, "b0 d1", cut))
    assert light.recovered(look(13.5, "b0 d1", cut)) == []
    back = {"b0": (14.1, 14.12), "d1": (14.3, 14.31)}
    light.note(ring("abde"), look(15, "", back))
    (found,) = light.recovered(look(15, "", back))
    assert found.node == "c"
    assert found.began == (12_490_000_000, 12_510_000_000)
    assert found.ended == (14_300_000_000, 14_310_000_000)
    assert found.seconds == (pytest.approx(1.79), pytest.approx(1.82))
    assert light.recovered(look(15, "", back)) == []


def test_a_loss_that_no_agent_dated_is_between_two_looks(light: LinkLight) -> None:
    light.note(ring(RING), look(13, "b0 d1"))
    light.lose("c")
    back = {"b0": (14.1, 14.12), "d1": (14.3, 14.31)}
    light.note(ring("abde"), look(13.5, "b0 d1"))
    light.note(ring("abde"), look(15, "", back))
    (found,) = light.recovered(look(15, "", back))
    assert found.began == (12_000_000_000, 13_002_000_000)
