"""The switch restarts in the middle of a change, and has lost its circuits."""

from lightrig.testbeds.fault_plan import RunningFault
from tests.campaigns.hard_labs.lab_faults import SECOND, at_command
from tests.campaigns.hard_labs.timing import ALL, Timing


def _inject(bench, draws):
    def begin():
        end = bench.world.inject(RunningFault("instrument restarts", ("ocs",)))
        bench.clock.schedule(bench.clock.now() + 2 * SECOND, "back", end)

    at_command(bench, 3, round(draws.uniform(1e6, 100e6)), begin)


LAB = Timing(
    inject=_inject,
    declined=ALL,
    named=r"ocs closed the connection|changed, and not by this run: ocs|did not complete.*ocs",
)
