"""Links of simulated NICs: light both ways makes one, light lost either way breaks both ends."""

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from lightrig.instruments.clock import Span
from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.instruments.simulated.world.ground_truth import GroundTruth
from lightrig.instruments.simulated.world.links import NicLinks
from lightrig.instruments.simulated.world.randomness import Chance
from lightrig.testbeds import Delay, Port, SimulatedNic

MS = 1_000_000
S = 1000 * MS
A, B, C = (Port(f"server{n}", "nic0") for n in range(3))
STAGES = ("firmware", "carrier", "datagram")
EXACT = SimulatedNic(
    loss_detection=Delay(MS),
    bring_up=Delay(3 * S),
    carrier=Delay(MS),
    resume=Delay(100 * MS),
)


class Plant:
    def __init__(self, nic=EXACT, seed=1):
        self.clock = VirtualClock()
        self.truth = GroundTruth()
        self.links = NicLinks(nic, self.clock, Chance(seed), self.truth)

    def up(self, port, now):
        return [self.links.timeline(port).is_up(stage, now) for stage in STAGES]

    def first(self, port, stage, *, up, since=0):
        span = self.truth.first(str(port), stage, up=up, since=since)
        assert span is None or span.earliest == span.latest
        return None if span is None else span.earliest

    def join(self, one, other, at):
        self.links.hears(one, other, at)
        self.links.hears(other, one, at)


@pytest.fixture
def plant():
    return Plant()


def test_light_in_one_direction_is_no_link(plant):
    plant.links.hears(A, B, 5)
    assert plant.up(A, 100 * S) == plant.up(B, 100 * S) == [False] * 3
    assert plant.first(A, "firmware", up=True) is None


def test_a_link_comes_up_in_order(plant):
    plant.links.hears(A, B, 0)
    plant.links.hears(B, A, 10 * MS)
    for port in (A, B):
        assert plant.first(port, "firmware", up=True) == 3 * S + 10 * MS
        assert plant.first(port, "carrier", up=True) == 3 * S + 11 * MS
        assert plant.first(port, "datagram", up=True) == 3 * S + 111 * MS
        assert plant.up(port, 3 * S + 10 * MS - 1) == [False, False, False]
        assert plant.up(port, 3 * S + 10 * MS) == [True, False, False]
        assert plant.up(port, 3 * S + 11 * MS) == [True, True, False]
        assert plant.up(port, 3 * S + 111 * MS) == [True, True, True]


@pytest.mark.parametrize("deaf", [A, B])
def test_light_lost_in_one_direction_takes_both_ends_down(plant, deaf):
    plant.join(A, B, 0)
    plant.links.hears(deaf, None, 10 * S)
    for port in (A, B):
        assert plant.up(port, 10 * S - 1) == [True, True, True]
        assert plant.up(port, 10 * S) == [True, True, False]
        assert plant.up(port, 10 * S + MS) == [False, True, False]
        assert plant.up(port, 10 * S + 2 * MS) == [False, False, False]
        assert plant.first(port, "datagram", up=False) == 10 * S
        assert plant.first(port, "firmware", up=False) == 10 * S + MS
        assert plant.first(port, "carrier", up=False) == 10 * S + 2 * MS
    plant.links.hears(A if deaf == B else B, None, 10 * S + 5 * MS)
    assert plant.first(A, "datagram", up=False, since=10 * S + 1) is None


def test_light_lost_again_during_bring_up_ends_it(plant):
    plant.join(A, B, 0)
    plant.links.hears(A, None, 2 * S)
    for port in (A, B):
        assert plant.up(port, 100 * S) == [False] * 3
        for stage in STAGES:
            assert plant.first(port, stage, up=True) is None
            assert plant.first(port, stage, up=False) is None
    plant.links.hears(A, B, 5 * S)
    assert plant.first(B, "firmware", up=True) == 8 * S
    assert plant.up(A, 9 * S) == [True] * 3


def test_light_lost_between_carrier_and_traffic(plant):
    plant.join(A, B, 0)
    plant.links.hears(A, None, 3 * S + 50 * MS)
    assert plant.up(B, 3 * S + 49 * MS) == [True, True, False]
    assert plant.up(B, 4 * S) == [False, False, False]
    assert plant.first(B, "datagram", up=True) is None
    assert plant.first(B, "datagram", up=False) is None


def test_a_partner_that_changes_breaks_the_old_link_and_makes_the_new(plant):
    plant.join(A, B, 0)
    plant.links.hears(C, A, 10 * S)
    assert plant.up(B, 20 * S) == [True] * 3
    plant.links.hears(A, C, 20 * S)
    assert plant.up(B, 30 * S) == [False] * 3
    assert plant.up(A, 21 * S) == [False] * 3
    assert plant.up(A, 24 * S) == plant.up(C, 24 * S) == [True] * 3


def test_listeners_of_both_ends_are_called(plant):
    told = []
    for port in (A, B):
        plant.links.timeline(port).listeners.append(lambda port=port: told.append(port))
    plant.links.hears(A, B, 0)
    assert told == []
    plant.links.hears(B, A, 0)
    assert set(told) == {A, B}
    told.clear()
    plant.links.hears(B, None, 10 * S)
    assert set(told) == {A, B}


_CHANGES = st.lists(
    st.tuples(
        st.sampled_from([A, B, C]), st.sampled_from([A, B, C, None]), st.integers(0, 5_000 * MS)
    ),
    max_size=20,
)


@settings(max_examples=50)
@given(_CHANGES)
def test_transitions_alternate_for_random_light(changes):
    plant = Plant(SimulatedNic())
    heard: dict[Port, Port | None] = {A: None, B: None, C: None}
    now = 0
    for port, source, pause in changes:
        if port == source:
            continue
        now += pause
        heard[port] = source
        plant.links.hears(port, source, now)
    end = now + 100 * S
    for port, source in heard.items():
        linked = source is not None and heard[source] == port
        assert plant.up(port, end) == [linked] * 3
        timeline = plant.links.timeline(port).transitions
        assert [t.at for t in timeline] == sorted(t.at for t in timeline)
        for stage in STAGES:
            ups = [t.up for t in timeline if t.stage == stage]
            assert ups == [index % 2 == 0 for index in range(len(ups))]
            for t in timeline:
                if t.stage == stage:
                    assert plant.first(port, stage, up=t.up, since=t.at) == t.at
        state = dict.fromkeys(STAGES, False)
        for t in timeline:
            state[t.stage] = t.up
            if t.up and t.stage == "carrier":
                assert state["firmware"]
            if t.up and t.stage == "datagram":
                assert state["carrier"]


def test_one_seed_gives_one_timeline_beside_further_ports():
    def timeline(seed, *, others):
        plant = Plant(SimulatedNic(), seed)
        if others:
            plant.join(C, Port("server9", "nic0"), 0)
        plant.join(A, B, 7)
        plant.links.hears(A, None, 20 * S)
        return plant.links.timeline(A).transitions

    assert timeline(1, others=False) == timeline(1, others=True)
    assert timeline(1, others=False) != timeline(2, others=False)
    assert len(timeline(1, others=False)) == 6


def test_ground_truth_finds_the_first_moment_since():
    truth = GroundTruth()
    for at in (10, 20, 30):
        truth.note("ocs.17", "light", up=True, at=Span(at - 2, at))
    assert truth.first("ocs.17", "light", up=True, since=0) == (8, 10)
    assert truth.first("ocs.17", "light", up=True, since=10) == (8, 10)
    assert truth.first("ocs.17", "light", up=True, since=11) == (18, 20)
    assert truth.first("ocs.17", "light", up=True, since=31) is None
    assert truth.first("ocs.17", "light", up=False, since=0) is None
    assert truth.first("ocs.18", "light", up=True, since=0) is None
    truth.withdraw("ocs.17", "light", up=True)
    assert truth.first("ocs.17", "light", up=True, since=21) is None
