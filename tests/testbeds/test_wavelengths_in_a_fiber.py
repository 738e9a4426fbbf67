"""Light of several wavelengths in one fiber against what destroys a receiver or a meter."""

import pytest

from lightrig.testbeds import TestbedError, load

LAB = """
name: wdm
switches:
  ocs: {{model: polatis, address: tl1://ocs.invalid, size: 4x4}}
servers:
  server0:
    address: ssh://bench@server0.invalid
    nics: {{nic0: {{netdev: eth0, rate: 100G, transceiver: type0}}}}
  server1:
    address: ssh://bench@server1.invalid
    nics: {{nic0: {{netdev: eth0, rate: 100G, transceiver: type1}}}}
instruments:
  meter: {{kind: power_meter, model: keysight-n7745a, address: "scpi://m.invalid", damage: {meter}}}
transceivers:
  type0: {{wavelength: 1310 nm, {first}launch: {{min: -4 dBm, max: 4.5 dBm}},
          receive: {{min: -10 dBm, max: 4.5 dBm}}, damage: 5.5 dBm}}
  type1: {{wavelength: 1310 nm, {second}launch: {{min: -4 dBm, max: 4.5 dBm}},
          receive: {{min: -10 dBm, max: 4.5 dBm}}, damage: 5.5 dBm}}
fibers:
  - server[0-1].nic0 <-> ocs
  - ocs.7 -> meter
"""
WDM, GREY, UNSTATED = "wavelengths: 4, ", "wavelengths: 1, ", ""


def lab(tmp_path, first, second, meter="16 dBm"):
    path = tmp_path / "wdm.yaml"
    path.write_text(LAB.format(first=first, second=second, meter=meter))
    return load(path)


@pytest.mark.parametrize("kind", [WDM, GREY, UNSTATED])
def test_four_wavelengths_arrive_one_a_lane(tmp_path, kind):
    """IEEE 802.3 clause 88: 4.5 dBm a lane of LR4, and its receiver withstands 5.5 dBm a lane."""
    lab(tmp_path, kind, kind)


def test_four_wavelengths_arrive_in_one_lane_of_a_receiver_of_one(tmp_path):
    """4.5 dBm and 10 lg 4 dB are 10.52 dBm, as table 88-7 of IEEE 802.3 has in total."""
    with pytest.raises(
        TestbedError, match=r"up to 10\.52 dBm from server0\.nic0 can reach server1"
    ):
        lab(tmp_path, WDM, GREY)


@pytest.mark.parametrize(
    ("kind", "withstands", "destroys"),
    [(GREY, "4.6 dBm", "4.4 dBm"), (WDM, "10.6 dBm", "10.4 dBm"), (UNSTATED, "4.6 dBm", "4.4 dBm")],
)
def test_a_meter_gets_the_sum(tmp_path, kind, withstands, destroys):
    lab(tmp_path, kind, kind, withstands)
    with pytest.raises(TestbedError, match=r"can reach meter\.1, expected no more than"):
        lab(tmp_path, kind, kind, destroys)
