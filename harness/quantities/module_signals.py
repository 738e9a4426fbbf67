"""Quantities of the signals at a transceiver's two sides, as the module measures them itself."""

from collections.abc import Iterator

from lightrig.harness.quantities.quantity import Quantity
from lightrig.testbeds.baselines import Rule

_SIDES = (("", "at the fiber"), ("host_", "at the host's side"))

_STATISTICS = (
    ("", "latest"),
    ("_minimum", "least"),
    ("_average", "average"),
    ("_maximum", "greatest"),
)


def module_signals(section: str) -> Iterator[Quantity]:
    """Declare what CMIS calls versatile diagnostics: signal to noise, levels, pre-FEC BER."""
    for prefix, where in _SIDES:
        for name, meaning in (
            ("esnr", "electrical signal-to-noise ratio"),
            ("pam4_level_transition", "PAM4 level transition parameter"),
        ):
            yield Quantity(
                name=f"module_signal.{prefix}{name}",
                unit="dB",
                meaning=f"{meaning} of one lane {where}, as the module measures it",
                better="higher",
                section=section,
                terminal="hidden",
                baseline=Rule(minimum=5, direction="down", effect="difference"),
            )
        for suffix, statistic in _STATISTICS:
            yield Quantity(
                name=f"module_signal.{prefix}prefec_ber{suffix}",
                unit="1",
                meaning=f"{statistic} pre-FEC BER of one lane {where}, as the module measures it",
                better="lower",
                section=section,
                terminal="hidden",
                baseline=Rule(minimum=8, direction="up", ratio=10),
            )
