"""Names for suites, conftests and notebooks to import.

    from lightrig.api import Quantity, Row, declare

Fixtures of pytest give the rest. docs/public-modules.md has a complete example.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lightrig.harness.quantities.quantity import Quantity
from lightrig.harness.quantities.registry import declare
from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import (
    Attenuator,
    BitErrorTester,
    ClimateChamber,
    HasNic,
    LightSource,
    OpticalSwitch,
    PolarizationController,
    PowerMeter,
    PowerMonitor,
    Server,
)
from lightrig.instruments.core.errors import InstrumentError
from lightrig.testbeds import Circuit, LightrigError, Link, Plan, Port, Testbed, load
from lightrig.testbeds.baselines import Rule

if TYPE_CHECKING:
    from lightrig.harness.bench import Bench, Fabric
    from lightrig.harness.findings import Finding
    from lightrig.harness.measure.measured import Measured
    from lightrig.harness.measure.recording import Recording
    from lightrig.harness.measure.setting_trials import TrialResult
    from lightrig.harness.notebook.lab import Lab, LabClosedError, LabOpenError, open_lab
    from lightrig.harness.record import Results, Row
    from lightrig.harness.report.plots import bit_error_curve, latency, loss_matrix
    from lightrig.harness.statistics.quantiles import NotEnough, quantile

__all__ = [
    "Attenuator",
    "Bench",
    "BitErrorTester",
    "Circuit",
    "ClimateChamber",
    "Fabric",
    "Finding",
    "HasNic",
    "InstrumentError",
    "Lab",
    "LabClosedError",
    "LabOpenError",
    "LightSource",
    "LightrigError",
    "Link",
    "Measured",
    "NotEnough",
    "OpticalSwitch",
    "Plan",
    "PolarizationController",
    "Port",
    "PowerMeter",
    "PowerMonitor",
    "Quantity",
    "Recording",
    "Results",
    "Row",
    "Rule",
    "Server",
    "Span",
    "Testbed",
    "TrialResult",
    "bit_error_curve",
    "declare",
    "latency",
    "load",
    "loss_matrix",
    "open_lab",
    "quantile",
]

_LOADED_AT_FIRST_USE = {
    "Bench": "lightrig.harness.bench",
    "Fabric": "lightrig.harness.bench",
    "NotEnough": "lightrig.harness.statistics.quantiles",
    "Lab": "lightrig.harness.notebook.lab",
    "LabClosedError": "lightrig.harness.notebook.lab",
    "LabOpenError": "lightrig.harness.notebook.lab",
    "Measured": "lightrig.harness.measure.measured",
    "open_lab": "lightrig.harness.notebook.lab",
    "Recording": "lightrig.harness.measure.recording",
    "TrialResult": "lightrig.harness.measure.setting_trials",
    "Results": "lightrig.harness.record",
    "Finding": "lightrig.harness.findings",
    "Row": "lightrig.harness.record",
    "bit_error_curve": "lightrig.harness.report.plots",
    "latency": "lightrig.harness.report.plots",
    "loss_matrix": "lightrig.harness.report.plots",
    "quantile": "lightrig.harness.statistics.quantiles",
}
"""Names that load large parts, NumPy, SciPy, pandas, DuckDB and matplotlib, by module."""


def __getattr__(name: str) -> Any:
    if name in _LOADED_AT_FIRST_USE:
        return getattr(import_module(_LOADED_AT_FIRST_USE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
