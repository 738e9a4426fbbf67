"""Opus: photonic rails whose circuits follow the phases of training."""

from pathlib import Path

from lightrig.harness.system_registry import System

_PACKAGE = "lightrig.harness.systems.opus"

SYSTEM = System(
    name="opus",
    title="Opus",
    published=Path(__file__).parents[3] / "published" / "opus.yaml",
    claims="lightrig.suites.claims.opus.claims:COMPUTED",
    figures="lightrig.suites.claims.opus.figures:FIGURES",
    quantities=f"{_PACKAGE}.quantities:QUANTITIES",
    sections=f"{_PACKAGE}.report:SECTIONS",
    generator=f"{_PACKAGE}.generator:generate",
    orchestrator=f"{_PACKAGE}.runtime.rail_layout:RailLayout",
    rank_messages=f"{_PACKAGE}.runtime.job_controllers:JobControllers",
    trainer=f"{_PACKAGE}.measurements.train_script:train",
    served_fabric=f"{_PACKAGE}.runtime.served_rails:served_fabric",
    simulated_fabric=f"{_PACKAGE}.planning.simulated_fabric:rails",
)
