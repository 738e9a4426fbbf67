"""A fast link comes up, is lost 250 ms behind its light for 30 ms, and comes up again."""

from tests.campaigns.hard_labs.lab_faults import MS, flapping, slow_links
from tests.campaigns.hard_labs.timing import Timing

PORTS = [f"server{server}.nic0.p0" for server in (0, 1)]


def _inject(bench, draws):
    slow_links(bench, PORTS, 0.4)
    flapping(bench, PORTS[0], 250 * MS, 30 * MS)


LAB = Timing(inject=_inject, named="carrier came up and was lost again|flap of")
