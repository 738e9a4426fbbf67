"""What a certification announces to take, against what it takes by the clock of the simulation."""

from collections.abc import Callable

import pytest
from certify_labs import lab, sonic_lab, traffic_lab
from trials import KNOWN, certification_of

from lightrig.harness.bench import Bench
from lightrig.harness.certify.estimate import estimated_seconds
from lightrig.harness.certify.subject import Trial

CLASSES = frozenset({"harmless", "interrupting"})


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(lab(), id="polatis"),
        pytest.param(sonic_lab(), id="sonic"),
        pytest.param(sonic_lab("gnmi"), id="sonic-gnmi", marks=pytest.mark.long),
        pytest.param(traffic_lab(), id="servers"),
    ],
)
def test_the_estimate_is_within_a_factor_of_two(simulated: Callable[..., Bench], text: str) -> None:
    bench = simulated(text)
    certification = certification_of(bench, Trial(permitted=CLASSES))
    wanted = KNOWN.of(certification.subject.profile)
    numbers = [each.number for each in wanted if each.effect in CLASSES]
    least = min(map(len, bench.testbed.cabling.cabled_ports("ocs")))
    estimated = estimated_seconds(bench.testbed, "ocs", numbers, least)
    began = bench.clock.now()
    for number in numbers:
        certification.outcome(number)
    took = (bench.clock.now() - began) / 1e9
    assert took / 2 <= estimated <= 2 * took, (estimated, took)
