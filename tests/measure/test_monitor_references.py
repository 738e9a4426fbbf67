"""A meter in hand finds what is launched into a switch and what its monitors show too much."""

import numpy as np
import pytest
from lossy_lab import polatis

from lightrig.harness.bench import Fabric
from lightrig.harness.measure.insertion_loss.chains import chains
from lightrig.harness.measure.insertion_loss.matrix import measure_losses
from lightrig.harness.measure.insertion_loss.monitor_references import (
    Hands,
    take_monitor_references,
)
from lightrig.harness.measure.insertion_loss.references import NoReferenceError
from lightrig.harness.measure.insertion_loss.rows import inside
from lightrig.testbeds import Circuit, Plan, Port
from lightrig.testbeds.references import References

METER = "meter: {kind: power_meter, model: keysight-n7745a, address: scpi://meter.invalid}"
CHANNEL = Port("meter", "1")


class Person:
    """Plugs as well as people do, and remembers what is out of its place."""

    def __init__(self, bench, error_db=0.02, seed=1):
        self.world = bench.world
        self.draws = np.random.default_rng(seed)
        self.error_db = error_db
        self.moved, self.out = [], set()

    def __call__(self, source, sink):
        self.moved.append(source)
        self.out.add(source)
        undo = self.world.replug(source, sink, self.draws.normal(0.0, self.error_db))

        def put_back():
            self.out.remove(source)
            undo()

        return put_back

    @property
    def hands(self):
        return Hands(self, self)


def taken(bench, person, **options):
    fabric = Fabric(bench)
    (chain,) = chains(bench, References())
    try:
        return take_monitor_references(fabric, chain, CHANNEL, person.hands, **options)
    finally:
        fabric.restore()


def test_offsets_and_launches_are_as_they_are_in_truth(tmp_path):
    with polatis(tmp_path, instruments=METER, uncertainty="0 dB") as bench:
        person = Person(bench, error_db=0.0)
        found = taken(bench, person, connector_db=0.0)
        truth = bench.world.references
        assert found.offsets.keys() == {Port("ocs", str(n)) for n in range(1, 17)}
        wrong = {p: o - truth.offset("ocs", int(p.name)) for p, o in found.offsets.items()}
        meter = float(np.mean(list(wrong.values())))
        assert 0 < abs(meter) < 3 * found.common_db  # it is as wrong for one port as for another
        assert max(abs(each - meter) for each in wrong.values()) < 6 * found.each_db
        assert 0 < found.each_db < 0.02
        assert found.launches.keys() == {Port("ocs", str(n)) for n in range(1, 9)}
        assert len(person.moved) == 16
        assert not person.out
        assert bench.switches["ocs"].circuits() == frozenset()


def test_losses_of_the_check_standard_are_those_of_the_first_setting(tmp_path):
    """Without errors of connectors the loss by the new references is the true one."""
    with polatis(tmp_path, instruments=METER, uncertainty="0 dB") as bench:
        found = taken(bench, Person(bench, error_db=0.0), connector_db=0.0)
        true = {f"ocs {n}>{n + 8}": bench.world.loss("ocs", Circuit(n, n + 8)) for n in range(1, 9)}
    assert found.checks.keys() == true.keys()
    wrong = [found.checks[name] - true[name] for name in true]
    assert 0 < max(map(abs, wrong)) < 0.12  # noise, and 0.02 dB from making to making
    stated = ", check_standard: {circuit: 3>14}"
    with polatis(tmp_path, instruments=METER, switch=stated) as bench:
        assert taken(bench, Person(bench)).checks.keys() == {"ocs 3>14"}


@pytest.mark.long
def test_losses_against_them_hold_the_truth(tmp_path):
    held = []
    for seed in range(4):
        with polatis(tmp_path, seed=seed, instruments=METER) as bench:
            found = taken(bench, Person(bench, seed=seed))
            fabric = Fabric(bench)
            (chain,) = chains(bench, References((found,)))
            assert chain.relative(1, 9) is None
            held += inside(measure_losses(fabric, chain), bench)
            fabric.restore()
    assert np.mean(held) == pytest.approx(0.97, abs=0.03)


def test_a_port_without_light_is_left_out_without_a_prompt(tmp_path):
    dark = "{fault: dark laser, at: [server0.nic0.p1]}"
    with polatis(tmp_path, dark, instruments=METER) as bench:
        person = Person(bench)
        found = taken(bench, person)
    assert Port("ocs", "2") not in found.launches | found.offsets
    assert len(found.offsets) == 15
    assert "server0.nic0.p1" not in map(str, person.moved)
    assert "server0.nic0.p0" in map(str, person.moved)


def test_an_aborted_reference_stores_nothing(tmp_path):
    with polatis(tmp_path, instruments=METER) as bench:
        fabric = Fabric(bench)
        fabric.apply(Plan("found", {"ocs": frozenset({Circuit(1, 12)})}), check_budget=False)

        def goes_away(source, sink):
            raise KeyboardInterrupt

        (chain,) = chains(bench, References())
        found = bench.switches["ocs"].circuits()
        mine = Fabric(bench)
        with pytest.raises(KeyboardInterrupt):
            take_monitor_references(mine, chain, CHANNEL, Hands(goes_away, goes_away))
        mine.restore()
        assert bench.switches["ocs"].circuits() == found


@pytest.mark.parametrize(
    ("monitors", "meter", "why"),
    [
        ("none", CHANNEL, "no monitors at cabled egress ports"),
        ("both", Port("ocs", "1"), "ocs is no power meter of testbed lossy"),
    ],
)
def test_a_reference_that_cannot_be_taken_is_reported(tmp_path, monitors, meter, why):
    with polatis(tmp_path, instruments=METER, monitors=monitors) as bench:
        (chain,) = chains(bench, References())
        with pytest.raises(NoReferenceError, match=why):
            take_monitor_references(Fabric(bench), chain, meter, Person(bench).hands)


@pytest.mark.parametrize(("failures", "succeeds"), [(2, True), (3, False)])
def test_a_badly_plugged_fiber_is_requested_again(tmp_path, failures, succeeds):
    with polatis(tmp_path, instruments=METER, ports=2) as bench:
        world, tries = bench.world, []

        def hand(source, sink):
            tries.append(source)
            lost = 60.0 if tries.count(source) <= failures else 0.0
            return world.replug(source, sink, lost)

        (chain,) = chains(bench, References())
        if succeeds:
            found = take_monitor_references(Fabric(bench), chain, CHANNEL, Hands(hand, hand))
            assert len(found.offsets) == 8
            assert len(tries) == 3 * 8
        else:
            with pytest.raises(NoReferenceError, match=r"meter\.1 showed no light of server0"):
                take_monitor_references(Fabric(bench), chain, CHANNEL, Hands(hand, hand))
