"""MixNet: circuits between servers that follow the demand of a mixture of experts."""

from pathlib import Path

from lightrig.harness.system_registry import System

_PACKAGE = "lightrig.harness.systems.mixnet"

SYSTEM = System(
    name="mixnet",
    title="MixNet",
    published=Path(__file__).parents[3] / "published" / "mixnet.yaml",
    claims="lightrig.suites.claims.mixnet.claims:COMPUTED",
    figures="lightrig.suites.claims.mixnet.figures:FIGURES",
    quantities=f"{_PACKAGE}.quantities:QUANTITIES",
    fixtures=f"{_PACKAGE}.fixtures",
    trainer=f"{_PACKAGE}.measurements.train_script:train",
    generator=f"{_PACKAGE}.generator:generate",
    orchestrator=f"{_PACKAGE}.runtime.region_layout:RegionLayout",
    rank_messages=f"{_PACKAGE}.runtime.region_controllers:RegionControllers",
    served_fabric=f"{_PACKAGE}.runtime.served_regions:served_fabric",
    simulated_fabric=f"{_PACKAGE}.planning.simulated_fabric:regions",
)
