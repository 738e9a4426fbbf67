"""The chamber's temperature reaches the modules in it and their light."""

from collections.abc import Callable
from typing import Any

import pytest

from lightrig.harness.bench import Bench
from lightrig.instruments.core.capabilities import ModuleTelemetry
from lightrig.instruments.simulated.world.ambient import ROOM_C, Ambient
from lightrig.instruments.simulated.world.bit_receiver import Receiver

HOUR = 3_600_000_000_000
FILE = """
name: warm
switches:
  trx: {model: ocstrx, address: "serial:///dev/trx", size: 2x6}
"""
CHAMBER = """
instruments:
  chamber: {kind: climate_chamber, model: weiss-simserv, address: "simserv://c.invalid"}
"""


@pytest.fixture(params=["", CHAMBER], ids=["room", "chamber"])
def bench(request: pytest.FixtureRequest, simulated: Callable[..., Bench]) -> Bench:
    return simulated(FILE + request.param)


def test_modules_are_as_warm_as_what_is_around_them(bench: Bench) -> None:
    switch: Any = bench.switches["trx"]
    assert isinstance(switch, ModuleTelemetry)
    assert switch.modules == 2
    room = switch.telemetry(1)
    assert room.temperature_c == pytest.approx(ROOM_C + 19.2)
    if "chamber" not in bench.instruments:
        return
    chamber: Any = bench.instruments["chamber"]
    chamber.set_temperature(75.0)
    bench.clock.sleep(HOUR)
    hot = switch.telemetry(1)
    assert hot.temperature_c - room.temperature_c == pytest.approx(75 - ROOM_C, abs=0.1)
    assert room.core_w < hot.core_w < 3.2
    assert hot.total_w < 12


def test_without_a_chamber_it_is_as_warm_as_the_room() -> None:
    ambient = Ambient()
    assert ambient.celsius == ROOM_C
    ambient.follow(lambda: -5.0)
    assert ambient.celsius == -5.0


@pytest.mark.parametrize("celsius", [-40.0, -5.0, 25.0])
def test_cold_makes_no_errors(celsius: float) -> None:
    assert Receiver().ratio(0.1, celsius) == Receiver().ratio(0.1)


def test_heat_takes_more_light_for_the_same_ratio() -> None:
    receiver = Receiver()
    warmer = receiver.penalty_db_per_k * 50
    assert receiver.ratio(0.1 * 10 ** (warmer / 10), 75.0) == pytest.approx(receiver.ratio(0.1))
    assert receiver.ratio(0.1, 75.0) > receiver.ratio(0.1)
