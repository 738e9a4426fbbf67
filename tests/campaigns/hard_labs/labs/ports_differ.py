"""The links of one NIC port take 30 % longer than the others'."""

from tests.campaigns.hard_labs.lab_faults import slow_links
from tests.campaigns.hard_labs.timing import Timing

LAB = Timing(inject=lambda bench, draws: slow_links(bench, ["server1.nic0.p1"], 1.3))
