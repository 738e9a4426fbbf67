"""The quantities that only RailX records: traffic over rails, and changes between phases."""

from lightrig.harness.quantities.quantity import Quantity, duration
from lightrig.testbeds.baselines import Rule

RAILS = "Traffic over rails"
PHASES = "Changes between phases"
TOPOLOGY = "Topologies that the switches report"

QUANTITIES = (
    Quantity(
        name="rail_topology.isomorphic",
        unit="share",
        meaning="1 where the links that the switches report are the topology asked for, else 0",
        better="higher",
        section=TOPOLOGY,
        title="the topology asked for",
        baseline=None,
    ),
    Quantity(
        name="rail_topology.twice_joined",
        unit="share",
        meaning="share of the node pairs of a row or column that have two links",
        better="higher",
        section=TOPOLOGY,
        title="pairs with two links",
        baseline=None,
    ),
    duration("rail_traffic.time", "duration of one exchange over all rails", RAILS),
    Quantity(
        name="rail_traffic.utilization",
        unit="share",
        meaning="payload sent by a node in one exchange, as a share of the line rate of its ports",
        better="higher",
        section=RAILS,
        title="share of line rate",
    ),
    Quantity(
        name="rail_traffic.relative",
        unit="share",
        meaning="the same as a share of the most that the busiest port allows",
        better="higher",
        section=RAILS,
        title="share of the port bound",
    ),
    duration(
        "phase_change.total",
        "from the command until datagrams run on every link of the next phase",
        PHASES,
        title="until all links of the next phase carry datagrams",
    ),
    Quantity(
        name="phase_change.unaffected",
        unit="share",
        meaning="share of the ports outside the switched rails that kept their carrier",
        better="higher",
        section=PHASES,
        title="ports outside the switched rails that kept their carrier",
        baseline=Rule(minimum=1),
    ),
)
