"""One link takes 15 s to come up."""

from tests.campaigns.hard_labs.lab_faults import slow_links
from tests.campaigns.hard_labs.timing import Timing

LAB = Timing(inject=lambda bench, draws: slow_links(bench, ["server0.nic0.p0"], 50), events=3)
