"""Rails for `lightrig simulate`: packet switches, a fabric that never changes, circuits that do."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace

from lightrig.harness.systems.opus.planning.archived_simulation import (
    on_demand,
    one_shot,
    packet,
    provisioned,
)
from lightrig.harness.systems.opus.planning.costs import (
    GB200,
    H200,
    packet_network,
    photonic_rails,
)
from lightrig.harness.systems.opus.planning.gathering import GATHERING
from lightrig.harness.systems.opus.planning.operations import OpusError
from lightrig.harness.systems.opus.planning.simulated_control import controlled
from lightrig.harness.workloads.fabrics import Bill, Options, Rates
from lightrig.harness.workloads.graph import Workload
from lightrig.harness.workloads.networks import DedicatedLinks, Switching
from lightrig.harness.workloads.simulator import Simulator, StepTimes

_PRICED = {(8, 400): H200, (32, 800): GB200}
"""Parts by GPUs of a server and Gbit/s of one: switches of 64 x 400G and of 144 x 800G."""


@dataclass(frozen=True, slots=True)
class Rails:
    """Photonic rails, on which a rank's whole rate is its ring's or its neighbours'."""

    rates: Rates
    gathering: int = GATHERING
    modes: tuple[str, ...] = (
        "provisioned",
        "on-demand",
        "archived-provisioned",
        "archived-on-demand",
        "one-shot",
        "packet",
    )

    def folds(self, mode: str) -> bool:
        """Circuits are asked for by each rank, so that these are simulated one by one."""
        return mode in {"one-shot", "packet"}

    def changes(self, mode: str) -> bool:
        """Whether the switching time matters."""
        return not self.folds(mode)

    def assumptions(self, mode: str) -> tuple[str, ...]:
        """Return what else the answer rests on."""
        match mode:
            case "packet":
                return ("packet switches give each kind of link its full rate at once",)
            case "one-shot":
                return (
                    "links out of and within servers share one budget by the root of their traffic",
                )
            case "archived-provisioned" | "archived-on-demand":
                return (
                    "the released simulation's rules: rings at first, ranks vote and are polled, "
                    "and no circuits change while a ring is in use anywhere",
                )
        return (
            "circuits are changed by the control plane of `lightrig train`: a send and its receive "
            "begin together, and what ranks and controller tell each other takes no time",
        )

    def scaled(self, factor: float) -> Rails:
        """Return the same with other rates out of servers."""
        return replace(self, rates=self.rates.scaled(factor))

    @property
    def carried(self) -> Mapping[Hashable, float]:
        """No link is shared."""
        return {}

    def bill(self, workload: Workload, mode: str) -> Bill | None:
        """Return the released script's bill, of servers and rates that it has prices of."""
        rate = round(self.rates.scale_out * 8)
        parts = _PRICED.get((workload.folded.get("TP", 1), rate))
        if parts is None or mode == "one-shot":
            return None
        if mode != "packet":
            dollars, watts = photonic_rails(parts, workload.ranks)
            return Bill(dollars, watts, "a transceiver and two optical ports a GPU")
        try:
            dollars, watts = packet_network(parts, workload.ranks)
        except OpusError:
            return None
        return Bill(dollars, watts, "a folded Clos of packet switches")

    def simulate(self, workload: Workload, mode: str, switching: Switching) -> StepTimes:
        """Return the step."""
        bandwidths, timing = self.rates.bandwidths, self.rates.timing
        match mode:
            case "packet":
                network = DedicatedLinks(bandwidths, timing, switched=True)
                return Simulator(workload, network).run()
            case "one-shot":
                split = one_shot(workload, self.rates.scale_out, self.rates.scale_up)
                return packet(workload, split, timing)
            case "provisioned":
                return controlled(
                    workload, bandwidths, timing, switching, "provisioning", self.gathering
                )
            case "on-demand":
                return controlled(
                    workload, bandwidths, timing, switching, "default", self.gathering
                )
        times, ahead = on_demand(workload, bandwidths, timing, switching)
        if mode == "archived-on-demand":
            return times
        return provisioned(workload, bandwidths, timing, switching, ahead)


def rails(options: Options) -> Rails:
    """Return the fabric of `opus:scale_out=400G,...`."""
    found = Rails(Rates.of(options), options.duration("gathering", f"{GATHERING}ns"))
    options.end()
    return found
