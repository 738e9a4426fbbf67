"""All monitors at egress ports show 0.2 dB more than when their references were taken."""

from tests.campaigns.hard_labs.losses import Losses


def _inject(bench, draws):
    matrix = bench.world.matrices["ocs"]
    offset = matrix.offset
    matrix.offset = lambda port: offset(port) + (0.2 if port > 8 else 0.0)


LAB = Losses(
    inject=_inject,
    declined=("insertion_loss",),
    named="check standard: .*the monitors at egress ports show 0.[12][0-9]* dB more",
)
