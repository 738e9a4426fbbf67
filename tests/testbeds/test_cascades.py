"""Light through several switches in a row: its paths, and whether its budget can close."""

import re

import pytest

from lightrig.testbeds import Circuit, Plan, Port, TestbedError, load
from lightrig.testbeds.light_paths import light_paths

LAB = """
name: cascade
switches:
  selector: {{model: polatis, address: tl1://a.invalid, size: 4x4, loss: {{max: {first} dB}}}}
  ring:     {{model: polatis, address: tl1://b.invalid, size: 4x4, loss: {{max: 2 dB}}}}
servers:
  server[0-1]:
    address: ssh://bench@{{name}}.invalid
    nics: {{nic0: {{netdev: eth0, rate: 100G, transceiver: lr4}}}}
transceivers:
  lr4:
    wavelength: 1310 nm
    launch: {{min: -4 dBm, max: {most} dBm}}
    receive: {{min: -10 dBm, max: 4 dBm}}
    damage: 5 dBm
fibers:
  - server[0-1].nic0 -> selector.[1-2]
  - {{fiber: "selector.[5-6] -> ring.[1-2]", loss: 0.5 dB}}
  - ring.[5-6] -> server[0-1].nic0
{more}
"""


def lab(tmp_path, first=2, most=4, more=""):
    path = tmp_path / "cascade.yaml"
    path.write_text(LAB.format(first=first, most=most, more=more))
    return load(path)


def test_a_path_leads_through_every_stage(tmp_path):
    testbed = lab(tmp_path)
    plan = Plan(
        "both", {"selector": {Circuit(1, 6), Circuit(2, 5)}, "ring": {Circuit(2, 6), Circuit(1, 5)}}
    )
    paths = {path.source: path for path in light_paths(testbed.cabling, plan)}
    one = paths[Port("server0", "nic0")]
    assert one.sink == Port("server1", "nic0")
    assert one.crossings == (("selector", Circuit(1, 6)), ("ring", Circuit(2, 6)))
    assert sum(fiber.loss_db for fiber in one.fibers) == 0.5
    assert str(one) == "server0.nic0 - selector 1>6 - ring 2>6 - server1.nic0"
    assert len(paths) == 2


def test_light_that_ends_on_a_switch_has_no_path(tmp_path):
    plan = Plan("half", {"selector": {Circuit(1, 5)}, "ring": set()})
    assert list(light_paths(lab(tmp_path).cabling, plan)) == []


def test_a_budget_counts_every_stage(tmp_path):
    lab(tmp_path, first=3.5)
    message = (
        "the loss budget cannot close: -4 dBm from server0.nic0 - fibers 0.5 dB - selector 3.6 dB"
        " - ring 2 dB = -10.1 dBm, expected at least -10 dBm at server0.nic0 (and 1 more like it)"
    )
    with pytest.raises(TestbedError, match=re.escape(message)):
        lab(tmp_path, first=3.6)


def test_no_loss_in_a_switch_protects_a_receiver(tmp_path):
    lab(tmp_path, most=5.5)
    with pytest.raises(TestbedError, match=r"up to 5\.1 dBm from server0\.nic0 can reach"):
        lab(tmp_path, most=5.6)


def test_switches_in_a_circle_end(tmp_path):
    more = "  - ring.[7-8] -> selector.[3-4]\n  - selector.[7-8] -> ring.[3-4]"
    assert lab(tmp_path, more=more).name == "cascade"
