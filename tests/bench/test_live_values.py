"""Readings that go on: what they show, which end lost its carrier first, and to whom they yield."""

import contextlib
import threading

import pytest
from bench.served_lab import STRAIGHT, set_circuits
from real_time import until

from lightrig.harness.bench import bind_only, lease_queue
from lightrig.harness.bench.live_history import LiveHistory
from lightrig.harness.bench.live_values import SHARED, CarrierLoss, LiveLab, Seen, first_lost
from lightrig.harness.bench.named_values import NamedValue, SubjectError
from lightrig.instruments.clock import Span
from lightrig.testbeds import Circuit, load

EVERY = 200_000_000


@pytest.fixture
def live(lab):
    set_circuits(lab.switch, STRAIGHT)
    with contextlib.closing(LiveLab(lab.testbed, [], EVERY, "a live table")) as found:
        yield found


def values(live):
    return {seen.value.name: seen for reader in live.readers for seen in reader.values()}


def losses(live):
    return [loss for reader in live.readers for loss in reader.carrier_losses()]


def all_up(live):
    carriers = [seen for name, seen in values(live).items() if name.endswith(".carrier")]
    return len(carriers) == 4 and all(seen.value.value == "up" for seen in carriers)


def test_powers_circuits_and_carriers_are_read_again_and_again(lab, live):
    until(lambda: all_up(live), lab.clock)
    until(lambda: "ocs.11.power" in values(live), lab.clock)
    first = values(live)["ocs.11.power"]
    until(lambda: values(live)["ocs.11.power"].at > first.at, lab.clock)
    found = values(live)
    assert found["ocs.1.circuit"].value.value == "1>11"
    assert found["ocs.12.circuit"].value.value == "2>12"
    assert -12 < found["ocs.11.power"].value.value < 4  # of a launch from -4 to 4 dBm
    assert found["ocs.11.power"].simulated
    # Modules come one a period, and only once.
    until(lambda: "server1.nic0.p1.rx_power" in values(live), lab.clock)
    module = values(live)["server0.nic0.p0.temperature"]
    latest = values(live)["server0.nic0.p0.carrier"].at
    until(lambda: values(live)["server0.nic0.p0.carrier"].at > latest, lab.clock)
    assert values(live)["server0.nic0.p0.temperature"] == module


def test_the_end_that_lost_its_carrier_is_named(lab, live):
    until(lambda: all_up(live), lab.clock)
    before = lab.clock.now()
    set_circuits(lab.switch, STRAIGHT - {Circuit(1, 11)})  # server0's p0 to server1's p0
    until(lambda: losses(live), lab.clock)
    set_circuits(lab.switch, STRAIGHT)
    until(lambda: all_up(live), lab.clock)
    found = losses(live)
    # The receiver without light has its peer end the link (IEEE 802.3, 46.3.4: remote fault).
    assert {loss.port for loss in found} <= {"server1.nic0.p0", "server0.nic0.p0"}
    assert "server1.nic0.p0" in [loss.port for loss in first_lost(found)]
    assert before < found[0].at.latest < lab.clock.now()
    assert found[0].at.latest - found[0].at.earliest < 1_000_000_000


def test_a_run_has_the_instruments_and_live_has_them_back(lab, live):
    until(lambda: all_up(live), lab.clock)
    before = values(live)["ocs.1.circuit"].at
    with contextlib.closing(bind_only(lab.testbed, {"ocs", "server0", "server1"}, "a night")):
        until(lambda: all(reader.in_use for reader in live.readers), lab.clock)
        assert not values(live)
        assert all("for a night" in reader.state for reader in live.readers)
    until(lambda: all_up(live) and "ocs.1.circuit" in values(live), lab.clock)
    assert values(live)["ocs.1.circuit"].at > before


def test_only_what_is_wanted_is_freed(lab, live):
    until(lambda: all_up(live) and "ocs.11.power" in values(live), lab.clock)
    with contextlib.closing(bind_only(lab.testbed, {"ocs"}, "lightrig connect")):
        until(lambda: live.readers[0].in_use, lab.clock)
        assert all_up(live)
        assert not losses(live)


def test_who_waits_in_the_queue_does_not_wait_for_live(lab, live):
    until(lambda: all_up(live), lab.clock)
    opened = lease_queue.in_turn(
        lab.testbed, 60_000_000_000, lambda: bind_only(lab.testbed, {"ocs"}, "a night"), print
    )
    opened.close()


def test_a_reading_that_does_not_end_is_cut_off(lab, live, monkeypatch):
    until(lambda: all_up(live), lab.clock)
    stuck, ended = threading.Event(), threading.Event()

    def read(_bench, _name, _unmonitored):
        stuck.set()
        ended.wait()
        return iter(())

    with monkeypatch.context() as patch:
        patch.setattr("lightrig.harness.bench.live_values.momentary_values", read)
        stuck.wait()
        bind_only(lab.testbed, {"ocs"}, "a night").close()
        ended.set()
    until(lambda: "ocs.1.circuit" in values(live), lab.clock)


def test_a_lab_of_several_hosts_is_not_contacted(tmp_path):
    file = tmp_path / "lab.yaml"
    file.write_text(
        "name: lab\nlab_folder: shared\n"
        'switches: {ocs: {model: polatis, address: "tl1://127.0.0.1:1", size: 4x4}}\n'
    )
    (tmp_path / "shared").mkdir()
    with contextlib.closing(LiveLab(load(file), [], EVERY, "a live table")) as live:
        assert [reader.state for reader in live.readers] == [SHARED]
        assert not any(reader.is_silent for reader in live.readers)
    assert not any((tmp_path / "shared").iterdir())


def test_a_name_that_is_not_there_is_refused(lab):
    with pytest.raises(SubjectError, match="did you mean 'server1'"):
        LiveLab(lab.testbed, ["servr1"], EVERY, "a live table")


@pytest.mark.parametrize(
    ("spans", "first"),
    [
        ({"a": (30, 40), "b": (10, 20), "c": (21, 22)}, ["b"]),
        ({"a": (15, 40), "b": (10, 20), "c": (21, 22)}, ["b", "a"]),
        ({"a": (20, 40), "b": (10, 20)}, ["b", "a"]),
        ({"a": (7, 7)}, ["a"]),
        ({}, []),
    ],
)
def test_which_end_was_first(spans, first):
    assert [
        each.port for each in first_lost([CarrierLoss(p, Span(*s)) for p, s in spans.items()])
    ] == first


def readings(*values, unit="dBm", name="ocs.3.power"):
    return [Seen(NamedValue(name, value, unit), at) for at, value in enumerate(values)]


def test_least_greatest_and_changes_of_a_power():
    history, noticed = LiveHistory(), []
    for at, seen in enumerate(readings(-3.0, -3.3, -2.9, -3.6, -3.2, float("-inf"), -3.2)):
        noticed += [at for _ in history.add([seen])]
        history.add([seen])  # the same reading, shown again
    found = history.values["ocs.3.power"]
    # From -3.0 on, -3.6 is the first that differs by half a dB; -3.2 is within that of it.
    assert noticed == [0, 3, 5, 6]
    assert found.summary()["least"] == "no light"
    assert found.summary() | {"least": 0} == {
        "name": "ocs.3.power",
        "unit": "dBm",
        "least": 0,
        "greatest": -2.9,
        "last": -3.2,
        "readings": 7,
        "changes": 3,
        "remark": "",
    }
    assert found.changed == 6


def test_powers_are_shown_from_zero_on():
    history = LiveHistory()
    history.add(readings(-3.25))
    history.add(readings("up", unit="", name="server0.nic0.carrier"))
    history.set_zero()
    history.add([Seen(NamedValue("ocs.3.power", -4.0, "dBm"), 5)])
    assert history.values["ocs.3.power"].text == "-4.00 dBm (-0.75 dB)"
    assert history.values["server0.nic0.carrier"].text == "up"
