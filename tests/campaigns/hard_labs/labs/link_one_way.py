"""The light of one NIC port is cut on its way to the switch: its links stay down."""

from lightrig.testbeds import Port
from tests.campaigns.hard_labs.lab_faults import SECOND
from tests.campaigns.hard_labs.timing import ALL, Timing


def _inject(bench, draws):
    def cut():
        bench.world.light.fade(Port("server0", "nic0.p1"), 0.0, bench.clock.now())

    bench.clock.schedule(bench.clock.now() + 3 * SECOND, "cut", cut)


LAB = Timing(
    inject=_inject,
    events=4,
    pause_s=1,
    declined=ALL,
    named="did not complete; not seen: .*server[01].nic0.p[01]|did not come up",
)
