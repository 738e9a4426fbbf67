"""Changes of topology that servers made for the operations of a training script, as rows."""

from collections.abc import Iterable, Iterator

from lightrig.harness.record import Row, Scalar
from lightrig.harness.systems.acos.runtime.gates import TopologyChange
from lightrig.harness.systems.acos.runtime.training import RingTrained
from lightrig.instruments.clock import Span


def change_rows(changes: Iterable[TopologyChange]) -> Iterator[Row]:
    """Yield how long each server drained its connections, switched, and waited for its links."""
    for event, change in enumerate(changes):
        conditions: dict[str, Scalar] = {
            "event": event,
            "topology": change.topology,
            "operation": change.number,
        }
        done = change.switched.latest
        spans = {
            "selection.drained": Span(change.drained - change.idle, change.drained - change.idle),
            "selection.switched": Span(done - change.sent.latest, done - change.sent.earliest),
            "selection.links_up": Span(
                max(change.linked - change.sent.latest, 0), change.linked - change.sent.earliest
            ),
        }
        for quantity, (low, high) in spans.items():
            middle = (low + high) // 2
            at = change.sent.earliest
            yield Row(change.server, quantity, middle, low, high, "ns", at, conditions)


def losses(trained: RingTrained) -> list[tuple[int, str]]:
    """Return the lines with a step's loss that each rank has printed."""
    return [
        (rank, line)
        for rank, lines in sorted(trained.printed.items())
        for _, line in lines
        if line.startswith("step ")
    ]
