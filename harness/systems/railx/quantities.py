"""The quantities that only RailX records: traffic over rails, and changes between phases."""

from lightrig.harness.quantities.table import table

RAILS = "Traffic over rails"
PHASES = "Changes between phases"
TOPOLOGY = "Topologies that the switches report"

QUANTITIES = table(f"""
[{TOPOLOGY}] share higher unjudged
rail_topology.isomorphic  title="the topology asked for"
    1 where the links that the switches report are the topology asked for, else 0
rail_topology.twice_joined  title="pairs with two links"
    share of the node pairs of a row or column that have two links
[{RAILS}]
rail_traffic.time  ns lower
    duration of one exchange over all rails
rail_traffic.utilization  share higher title="share of line rate"
    payload sent by a node in one exchange, as a share of the line rate of its ports
rail_traffic.relative  share higher title="share of the port bound"
    the same as a share of the most that the busiest port allows
[{PHASES}]
phase_change.total  ns lower title="until all links of the next phase carry datagrams"
    from the command until datagrams run on every link of the next phase
phase_change.unaffected  share higher \
title="ports outside the switched rails that kept their carrier"
    share of the ports outside the switched rails that kept their carrier
""")
