"""Rails for `lightrig simulate`: ports divided by traffic, or switched between communications."""

from collections.abc import Mapping

from lightrig.harness.systems.railx.planning.allocation import split_ports
from lightrig.harness.workloads.fabrics import FabricError, Options, Rates, Selected
from lightrig.harness.workloads.graph import Workload


def rails(options: Options) -> Selected:
    """Return the fabric of `railx:ports=8,...`: ports of a rank, of equal parts of its rate.

    They are divided as whole numbers so that the sum of times is least (section 3.3.4), or those of
    all ranks are switched together from one communication to the next (section 5.2).
    """
    ports = int(options.number("ports", 8, 2))

    def divided(workload: Workload) -> Mapping[str, float]:
        traffic = {kind: sent for kind, sent in workload.traffic().items() if kind != "tp" and sent}
        if len(traffic) < 2:
            return {}
        if len(traffic) > 2:
            raise FabricError(
                f"railx: ports are divided between two kinds of communication, found "
                f"{', '.join(sorted(traffic))}"
            )
        (first, one), (second, two) = sorted(traffic.items())
        parts = split_ports(one, two, ports, "sum")
        return {first: parts[0] / ports, second: parts[1] / ports}

    found = Selected(Rates.of(options), divided, ("divided", "phases", "packet"))
    options.end()
    return found
