"""The quantities that only MixNet records: all-to-alls over its plans, and failovers."""

from lightrig.harness.quantities.quantity import Quantity, duration
from lightrig.testbeds.baselines import Rule

EXCHANGE = "All-to-all"
FAILOVER = "Failover"

QUANTITIES = (
    Quantity(
        name="exchange.links",
        unit="1",
        meaning="optical links of the plan that an all-to-all ran over",
        combine="none",
        section=EXCHANGE,
        baseline=None,
    ),
    duration("exchange.time", "duration of one all-to-all", EXCHANGE),
    Quantity(
        name="exchange.speedup",
        unit="1",
        meaning="duration of an all-to-all over one plan by that over another",
        better="higher",
        section=EXCHANGE,
        baseline=Rule(minimum=1),
    ),
    Quantity(
        name="failover.survived",
        unit="1",
        meaning="1 where every rank continued after the failure, else 0",
        better="higher",
        section=FAILOVER,
        title="survived",
        baseline=None,
    ),
    duration(
        "failover.noticed", "from the failure until it is detected", FAILOVER, title="detected"
    ),
    duration(
        "failover.rerouted", "from the failure until packets take the links that are left", FAILOVER
    ),
    duration(
        "failover.replanned", "time that planning without the failed component takes", FAILOVER
    ),
    duration(
        "failover.first_collective",
        "from the failure until the first collective operation that began after it is done",
        FAILOVER,
        title="first collective",
    ),
)
