"""A switch of some 10 µs, watched by a power meter's log: a laser, a switch, a meter."""

from collections.abc import Callable

import pytest

from lightrig.harness.bench import Bench
from lightrig.harness.measure.edges import edges
from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import FastLog, PowerLog, PowerMeter
from lightrig.testbeds import Circuit

US = 1_000
MS = 1_000_000
WITHIN = 2 * US

TESTBED = """
name: fast
switches:
  ocs: {model: keysight-n773x, address: "scpi://ocs.invalid", size: 1x4}
instruments:
  laser: {kind: light_source, model: keysight-n7776c, address: "scpi://laser.invalid",
          launch: {max: 3 dBm}}
  meter: {kind: power_meter, model: keysight-n7745a, address: "scpi://meter.invalid", channels: 4}
fibers:
  - laser.1 -> ocs.1
  - ocs.[2-5] -> meter.[1-4]
simulation:
  switches:
    ocs:   # published for OCSTrx: a switch in a transceiver moves within 60 to 80 us
      acknowledge: {mean: 90 us}
      dark:        {mean: 5 us, sd: 0.5 us}
      settle:      {mean: 70 us, sd: 5 us}
      loss:        {mean: 1.5 dB, sd: 0.5 dB}
"""


@pytest.fixture
def seed() -> int:
    return 0


@pytest.fixture
def bench(simulated: Callable[..., Bench], seed: int) -> Bench:
    bench = simulated(TESTBED, seed)
    laser = bench.instruments["laser"]
    laser.set_power(1, 0.0)
    laser.set_emission(1, on=True)
    return bench


def truth(bench: Bench, egress: int, *, up: bool, since: int) -> int:
    moment = bench.world.truth.first(f"ocs.{egress}", "light", up=up, since=since)
    return moment.earliest


def moved(bench: Bench, channels: list[int], egress: int) -> tuple[int, dict[int, PowerLog]]:
    """Log `channels` while the switch goes to `egress`."""
    switch, meter = bench.switches["ocs"], bench.instruments["meter"]
    before = switch.circuits()
    since = bench.clock.now()
    pending = meter.log_together(channels, samples=10_000, period=US)
    bench.clock.sleep(MS)
    switch.change(before, [Circuit(1, egress)]).done()
    return since, pending.result()


def test_the_dark_between_two_circuits_is_known_within_two_microseconds(bench):
    since, logs = moved(bench, [1, 3], 4)
    (gone,) = edges(logs[1])
    (back,) = edges(logs[3])
    assert (gone.rising, back.rising) == (False, True)
    dark = back.at.since(gone.at)
    true = truth(bench, 4, up=True, since=since) - truth(bench, 2, up=False, since=since)
    assert 40 * US < true < 90 * US
    assert dark.earliest <= true <= dark.latest
    assert abs(sum(dark) / 2 - true) <= WITHIN


@pytest.mark.parametrize("seed", range(1, 4))
def test_every_move_there_and_back_is(bench, seed):
    worst = 0.0
    for egress in (4, 2, 5, 2, 3):
        came_from = next(iter(bench.switches["ocs"].circuits())).egress
        since, logs = moved(bench, [came_from - 1, egress - 1], egress)
        gone, back = edges(logs[came_from - 1])[-1], edges(logs[egress - 1])[-1]
        true = truth(bench, egress, up=True, since=since)
        true -= truth(bench, came_from, up=False, since=since)
        worst = max(worst, abs(sum(back.at.since(gone.at)) / 2 - true))
    assert worst <= WITHIN


def test_the_time_of_an_event_has_the_width_of_the_trigger(bench):
    since, logs = moved(bench, [1, 2], 3)
    (gone,), (back,) = edges(logs[1]), edges(logs[2])
    for edge, egress, log in ((gone, 2, logs[1]), (back, 3, logs[2])):
        at = edge.on_clock(log)
        true = truth(bench, egress, up=edge.rising, since=since)
        assert at.earliest <= true <= at.latest
        assert at.latest - at.earliest < 2 * MS


def test_in_one_log_a_blink_is_known_to_the_sample(bench):
    meter, switch = bench.instruments["meter"], bench.switches["ocs"]
    since = bench.clock.now()
    pending = meter.log(1, samples=60_000, period=US)
    switch.change([Circuit(1, 2)], [Circuit(1, 5)]).done()
    switch.change([Circuit(1, 5)], [Circuit(1, 2)]).done()
    log = pending.result()
    gone, back = edges(log)
    true = Span(*(truth(bench, 2, up=up, since=since) for up in (False, True)))
    blink = true.latest - true.earliest
    measured = back.at.since(gone.at)
    assert measured.earliest <= blink <= measured.latest
    assert abs(sum(measured) / 2 - blink) <= WITHIN


def test_the_meter_is_what_measurements_know(bench):
    meter: PowerMeter = bench.instruments["meter"]
    assert isinstance(meter, FastLog)
    meter.prepare([1], wavelength_nm=1550, averaging=10 * MS)
    assert -3.5 < meter.power([1]).dbm[1] < 0
