"""The attenuators of a Polatis in the light, over every wire that reaches them."""

import math
from dataclasses import replace

import pytest
from instrument_rig import LOGIN, MS, Rig

from lightrig.harness.bench import bind
from lightrig.instruments.attenuators.polatis_voa import PolatisVoa
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.errors import CANNOT, DeniedError
from lightrig.instruments.simulated.devices.simulated_polatis_voa import SimulatedPolatisVoa
from lightrig.instruments.simulated.protocols.listeners import serve
from lightrig.instruments.simulated.registry import DeviceContext, NoSimulatedDeviceError
from lightrig.instruments.simulated.world.light import Channels
from lightrig.instruments.simulated.world.randomness import Chance
from lightrig.testbeds import LightrigError, load

SCHEMES = ("tl1", "netconf", "restconf")


@pytest.fixture(params=SCHEMES)
def scheme(request):
    return request.param


@pytest.fixture
def voa(in_virtual_time, tmp_path):
    """An attenuator in the light, and its driver on the wire that is asked for."""

    def make(scheme="tl1", **options) -> tuple[Rig, PolatisVoa]:
        rig = in_virtual_time(
            SimulatedPolatisVoa, kind="attenuator", name="voa", channels=4, options=options
        )
        at = serve("voa", rig.peer, scheme, rig.server, LOGIN)
        known_hosts = tmp_path / "known_hosts"
        known_hosts.write_text(at.known_hosts)
        way = Endpoint(scheme, at.host, at.port, LOGIN, known_hosts=known_hosts)
        driver = PolatisVoa.open(rig.spec, way, rig.clock)
        rig.closers.append(driver.close)
        rig.clock.sleep(100 * MS)  # its circuits are made when it is switched on
        return rig, driver

    return make


def loss(rig, channel, entering=1.0):
    rig.clock.sleep(MS)
    return 10 * math.log10(entering / rig.leaving(channel))


def test_identity(voa, scheme):
    _, driver = voa(scheme)
    identity = driver.identity()
    assert identity.model == "N-VST-4x4-LU1-DMHNV-801"
    assert identity.serial == "SIM-voa"
    assert driver.name == "voa"
    assert driver.schemes == SCHEMES


def test_light_loses_what_is_set_from_ingress_to_egress(voa, scheme):
    rig, driver = voa(scheme)
    rig.shine(2, 1.0)
    own = loss(rig, 2)
    assert 0.3 <= own < 3
    assert driver.attenuation(2) == 0.0
    began = rig.clock.now()
    driver.set_attenuation(2, 12.5)
    assert rig.clock.now() - began > PolatisVoa.settling.default
    assert driver.attenuation(2) == 12.5
    assert loss(rig, 2) == pytest.approx(12.5)
    rig.shine(2, 0.25)  # a ratio, not a power, is what is held
    assert loss(rig, 2, 0.25) == pytest.approx(12.5)
    driver.set_attenuation(2, own / 2)  # less than it loses anyway
    assert loss(rig, 2, 0.25) == pytest.approx(own)
    driver.set_attenuation(2, 0)
    assert driver.attenuation(2) == 0.0
    assert loss(rig, 2, 0.25) == pytest.approx(own)
    assert rig.leaving(1) == 0.0
    assert "hunter2" not in "\n".join(driver.wire())


def test_shutters(voa, scheme):
    rig, driver = voa(scheme)
    rig.shine(1, 1.0)
    rig.shine(3, 1.0)
    driver.set_shutter(3, is_open=False)
    assert rig.leaving(3) == 0.0
    assert rig.leaving(1) > 0.3
    driver.set_shutter(3, is_open=True)
    assert rig.leaving(3) > 0.3


@pytest.mark.parametrize(
    ("ports", "size"), [("33-36", "32x4"), ("33,40,35-36", "32x8"), ("5-8", "4x4"), ("9-40", "8x4")]
)
def test_channels_are_the_egress_ports_that_the_testbed_names(voa, ports, size):
    rig, driver = voa(ports=ports)
    assert driver.identity().model == f"N-VST-{size}-LU1-DMHNV-801"
    rig.shine(4, 1.0)
    driver.set_attenuation(4, 6)
    assert loss(rig, 4) == pytest.approx(6.0)
    fourth = {"33-36": 36, "33,40,35-36": 36, "5-8": 8, "9-40": 12}[ports]
    assert any(f"SET-PORT-ATTEN::{fourth}:" in line for line in driver.wire())


@pytest.mark.parametrize(("channel", "decibel"), [(0, 1.0), (5, 1.0), (1, -1.0), (1, math.nan)])
def test_an_impossible_setting_is_never_sent(voa, channel, decibel):
    _, driver = voa(ports="5-8")
    with pytest.raises(DeniedError) as raised:
        driver.set_attenuation(channel, decibel)
    assert raised.value.code == CANNOT
    assert driver.wire() == []


@pytest.mark.parametrize("ports", ["x", "8-5", "5;6", "5,5-6"])
def test_ports_that_make_no_sense(voa, ports):
    rig, _ = voa()
    spec = replace(rig.spec, options={"ports": ports})
    with pytest.raises(LightrigError, match="voa: options: ports: found"):
        PolatisVoa.open(spec, Endpoint("tl1", "voa.invalid"), rig.clock)


@pytest.mark.parametrize("ports", ["2-5", "33-34"])
def test_a_switch_that_cannot_be(voa, ports):
    rig, _ = voa()
    spec = replace(rig.spec, options={"ports": ports})
    light = Channels("voa", rig.field)
    context = DeviceContext(spec, rig.clock, Chance(1), rig.truth, LOGIN, "SIM-voa", None, light)
    with pytest.raises(NoSimulatedDeviceError, match="voa: 4 channels"):
        SimulatedPolatisVoa(context)


def test_between_a_laser_and_a_meter(tmp_path):
    """In a testbed's own light, from the file to the reading."""
    file = tmp_path / "chain.yaml"
    file.write_text(
        """
name: chain
switches:
  ocs: {model: polatis, address: scpi://ocs.invalid, size: 4x4}
instruments:
  laser: {kind: light_source, model: keysight-n7776c, address: scpi://laser.invalid,
          launch: {max: 13 dBm}}
  voa: {kind: attenuator, model: polatis-voa, address: netconf://voa.invalid, login: env:VOA,
        channels: 2, options: {ports: 33-34}}
  meter: {kind: power_meter, model: keysight-n7745a, address: scpi://meter.invalid, channels: 8}
fibers:
  - laser.1 -> voa.1
  - voa.1 -> meter.1
"""
    )
    bench = bind(load(file), "simulated", seed=4)
    laser, voa, meter = (bench.instruments[name] for name in ("laser", "voa", "meter"))
    laser.set_wavelength(1, 1550.0)
    laser.set_power(1, 6.0)
    laser.set_emission(1, on=True)
    meter.prepare([1], wavelength_nm=1550.0)
    bench.clock.sleep(1_000 * MS)
    plain = meter.power([1]).dbm[1]
    voa.set_attenuation(1, 15.0)
    bench.clock.sleep(1_000 * MS)
    less = meter.power([1]).dbm[1]
    bench.close()
    assert 2 < plain < 6
    assert less == pytest.approx(6.0 - 15.0, abs=0.5)
