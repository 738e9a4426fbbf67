"""A simulated world that breaks says so itself; the measurement is not blamed."""

from pathlib import Path

import pytest

from lightrig.harness.bench import Fabric, bind
from lightrig.harness.measure.bring_up import bring_up
from lightrig.harness.measure.links import LinkObservation
from lightrig.harness.measure.reconfiguration import measure_reconfiguration
from lightrig.harness.measure.recording import Recording
from lightrig.instruments.namespaces import namespaces as kernel
from lightrig.instruments.simulated.namespaces.kernel_links import KernelLinks, KernelLinksError
from lightrig.testbeds import Circuit, Plan, load

FILE = Path(__file__).parents[2] / "testbeds" / "namespaces.yaml"
OWN = "server0.nic0.p0"


@pytest.mark.long
def test_a_kernel_that_refuses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    if reason := kernel.available():
        pytest.skip(reason)
    bench = bind(load(FILE), "simulated")
    try:
        fabric = Fabric(bench)
        links = LinkObservation(bench)
        bring_up(fabric, links, fabric.plans["ring"])
        apply = KernelLinks.apply

        def refuse(links: KernelLinks, *state: frozenset[str]) -> None:
            apply(links, frozenset(), frozenset())
            raise KernelLinksError("the kernel refused")

        monkeypatch.setattr(KernelLinks, "apply", refuse)
        with pytest.raises(KernelLinksError, match="the kernel refused"):
            measure_reconfiguration(
                fabric, links, Recording([].extend), fabric.plans["crossed"], timeout=1_000_000_000
            )
    finally:
        bench.close()


@pytest.mark.long
def test_a_port_that_hears_itself_breaks_nothing() -> None:
    """As it does in a matrix of all circuits; it has carrier, and the next plan comes up."""
    if reason := kernel.available():
        pytest.skip(reason)
    bench = bind(load(FILE), "simulated")
    try:
        fabric = Fabric(bench)
        plan = fabric.plans["ring"]
        (switch,) = plan.circuits
        fibers = {fiber.source: fiber.sink for fiber in bench.testbed.fibers}
        (port,) = {fiber.source for fiber in bench.testbed.fibers if str(fiber.source) == OWN}
        ingress = int(fibers[port].name)
        (egress,) = (int(source.name) for source, sink in fibers.items() if sink == port)
        fabric.apply(Plan("to itself", {switch: frozenset({Circuit(ingress, egress)})}))
        bring_up(fabric, LinkObservation(bench), plan)
    finally:
        bench.close()
