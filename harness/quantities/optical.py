"""The optical quantities: losses, bit errors, switching times, and transceivers."""

from collections.abc import Iterator
from dataclasses import replace

from lightrig.harness.quantities.module_signals import module_signals
from lightrig.harness.quantities.quantity import Quantity, duration
from lightrig.testbeds.baselines import Rule

INSERTION_LOSS = "Insertion loss"
BIT_ERRORS = "Bit errors"
PATH_CHANGES = "Path changes"
TRANSCEIVERS = "Transceivers"
SIGNAL_QUALITY = "Signal quality of NIC ports"
SWITCHING = "Switching times"
SWITCH_OPTICS = "Switch optics"


def _budget(name: str, meaning: str) -> Quantity:
    return Quantity(
        name=f"loss.budget.{name}",
        unit="dB",
        meaning=f"standard uncertainty: {meaning}",
        better="lower",
        section=INSERTION_LOSS,
        baseline=None,
        terminal="hidden",
    )


MATRIX_LOSSES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "polarization_dependent_loss",
        "greatest less least loss of one circuit over all polarizations (IEC 61300-3-2)",
        ("noise", "controller", "meter"),
    ),
    (
        "wavelength_dependent_loss",
        "greatest less least loss of one circuit over stated wavelengths (IEC 61300-3-7)",
        ("noise", "source", "meter"),
    ),
    (
        "crosstalk",
        "power at a dark egress over that at the egress of a circuit (IEC 61300-3-50)",
        ("noise", "meter", "linearity", "dark"),
    ),
)
"""Losses that a switch's optics are measured for: name, meaning, uncertainty components."""


def _switch_optics() -> Iterator[Quantity]:
    for name, meaning, components in MATRIX_LOSSES:
        yield Quantity(
            name=name,
            unit="dB",
            meaning=meaning,
            better="lower",
            section=SWITCH_OPTICS,
            baseline=Rule(test="interval", minimum=5, direction="up", effect="difference"),
        )
        for component in components:
            yield Quantity(
                name=f"{name}.budget.{component}",
                unit="dB",
                meaning=f"standard uncertainty of the {name.replace('_', ' ')}: {component}",
                better="lower",
                section=SWITCH_OPTICS,
                baseline=None,
                terminal="hidden",
            )


def _error_ratio(name: str, meaning: str) -> Quantity:
    return Quantity(
        name=name,
        unit="1",
        meaning=meaning,
        better="lower",
        section=BIT_ERRORS,
        # A ratio of bits without an error is a bound, of which there is no median.
        terminal="hidden",
        baseline=Rule(minimum=8, direction="up", ratio=10),
    )


OPTICAL: tuple[Quantity, ...] = (
    Quantity(
        name="insertion_loss",
        unit="dB",
        meaning="optical power lost in one circuit, against a stored reference",
        better="lower",
        section=INSERTION_LOSS,
        # The loss of a circuit differs more between nights than within one.
        baseline=Rule(test="interval", minimum=5, direction="up"),
    ),
    Quantity(
        name="insertion_loss.relative",
        unit="dB",
        meaning="optical power lost in one circuit, against the median circuit",
        better="lower",
        section=INSERTION_LOSS,
        baseline=Rule(test="interval", minimum=5, direction="up"),
    ),
    Quantity(
        name="insertion_loss.repeatability",
        unit="dB",
        meaning="standard deviation of the loss of a circuit that is made again",
        better="lower",
        section=INSERTION_LOSS,
        baseline=Rule(test="interval", minimum=1, direction="up"),
    ),
    Quantity(
        name="insertion_loss.factory_en",
        unit="1",
        meaning="En number of a loss against the factory value that the switch stores",
        better="lower",
        section=INSERTION_LOSS,
        baseline=Rule(test="interval", minimum=5, direction="up"),
    ),
    Quantity(
        name="path_loss",
        unit="dB",
        meaning="optical power lost from transceiver to transceiver, through all switches",
        better="lower",
        section=INSERTION_LOSS,
        baseline=Rule(test="interval", minimum=5, direction="up"),
    ),
    Quantity(
        name="loss.remade",
        unit="dB",
        meaning="loss of one making of a circuit, less the mean of its makings",
        combine="none",
        section=INSERTION_LOSS,
        baseline=None,
        terminal="hidden",
    ),
    Quantity(
        name="loss.fault",
        unit="dB",
        meaning="loss in excess of what the circuit should have",
        better="lower",
        section=INSERTION_LOSS,
        baseline=None,
        terminal="hidden",
    ),
    _budget("noise", "noise of the readings"),
    _budget("repeatability", "repeatability of the circuit"),
    _budget("linearity", "linearity of the power meter"),
    _budget("polarization", "polarization dependence of the power meter"),
    _budget("meter_calibration", "calibration of the power meter"),
    _budget("source", "stability of the light source"),
    _budget("fiber", "stated loss of the fiber to a power meter, with its connectors"),
    _budget("drift", "drift since the reference was taken"),
    _budget("module", "accuracy of transceiver readings"),
    _budget("reference", "stored reference"),
    _budget("combined", "all contributions combined"),
    _error_ratio("bit_error_ratio", "bit errors per bit, at full received power"),
    Quantity(
        name="bit_error_ratio.over_power",
        unit="1",
        meaning="bit errors per bit at a stated attenuation",
        better="lower",
        combine="none",
        section=BIT_ERRORS,
        baseline=None,
        terminal="hidden",
    ),
    Quantity(
        name="bit_errors",
        unit="1",
        meaning="bit errors counted in one gate",
        better="lower",
        section=BIT_ERRORS,
        baseline=None,
        terminal="hidden",
    ),
    Quantity(
        name="bit_errors.void",
        unit="1",
        meaning="share of the bits of a gate that were not compared",
        better="lower",
        section=BIT_ERRORS,
        baseline=None,
        terminal="hidden",
    ),
    _error_ratio("nic_error_ratio.before_fec", "pre-FEC BER by the counters of a NIC port"),
    _error_ratio("nic_error_ratio.after_fec", "post-FEC BER by the counters of a NIC port"),
    _error_ratio(
        "nic_error_ratio.symbols_after_fec", "FEC symbol errors per symbol that were not corrected"
    ),
    _error_ratio(
        "nic_error_ratio.symbols_before_fec", "FEC symbol errors per symbol before correction"
    ),
    _error_ratio(
        "nic_error_ratio.codewords_before_fec", "FEC code words with errors, all corrected"
    ),
    _error_ratio(
        "nic_error_ratio.codewords_after_fec", "FEC code words that could not be corrected"
    ),
    replace(
        _error_ratio(
            "frame_loss_ratio", "64-octet frames lost behind FEC, by its histogram of symbol errors"
        ),
        section=SIGNAL_QUALITY,
    ),
    _error_ratio("nic_error_ratio.pattern", "bit errors per bit of a test pattern between ports"),
    Quantity(
        name="sensitivity",
        unit="dBm",
        meaning="received power at which the bit error ratio reaches its limit",
        better="lower",
        section=BIT_ERRORS,
        baseline=Rule(minimum=1),
    ),
    Quantity(
        name="sensitivity.oma",
        unit="dBm",
        meaning="received OMA at which the bit error ratio reaches its limit",
        better="lower",
        section=BIT_ERRORS,
        baseline=Rule(minimum=1),
    ),
    Quantity(
        name="temperature",
        unit="°C",
        meaning="temperature of a climate chamber once it has settled",
        combine="none",
        section=BIT_ERRORS,
        baseline=None,
    ),
    duration(
        "path_change.dark",
        "time without optical power while a transceiver changes its path",
        PATH_CHANGES,
        title="loss of signal",
    ),
    duration(
        "path_change.end_to_end",
        "from the driver's call until optical power is on all new paths",
        PATH_CHANGES,
        title="call to light",
    ),
    duration(
        "path_change.done",
        "from the driver's call until the transceivers acknowledged",
        PATH_CHANGES,
        title="call to acknowledgement",
    ),
    *(
        Quantity(
            name=f"switching.{name}",
            unit="ns",
            meaning=meaning,
            better="lower",
            section=SWITCHING,
        )
        for name, meaning in (
            ("rise", "light of one circuit from 10 % to 90 % of its level"),
            ("fall", "light of one circuit from 90 % to 10 % of its level"),
            ("bounce", "light of one circuit from 90 % until it stays within 0.5 dB of its level"),
            ("time", "from the command until light stays within 0.5 dB of its level"),
        )
    ),
    Quantity(
        name="switching.repeatability",
        unit="dB",
        meaning="range of the optical power of one circuit over all times that it was made",
        better="lower",
        combine="none",
        section=SWITCHING,
        baseline=Rule(minimum=1, direction="up", effect="difference"),
    ),
    *_switch_optics(),
    Quantity(
        name="module_power.core",
        unit="W",
        meaning="power of the switching core of one transceiver",
        better="lower",
        combine="none",  # transceivers are independent of each other
        section=TRANSCEIVERS,
        title="power of the switching core",
        baseline=Rule(minimum=1, direction="up"),
    ),
    Quantity(
        name="module_power.total",
        unit="W",
        meaning="power of one transceiver",
        better="lower",
        combine="none",  # transceivers are independent of each other
        section=TRANSCEIVERS,
        title="power of the whole transceiver",
        baseline=Rule(minimum=1, direction="up"),
    ),
    Quantity(
        name="module_temperature",
        unit="°C",
        meaning="temperature inside one transceiver",
        better="lower",
        combine="none",  # transceivers are independent of each other
        section=TRANSCEIVERS,
        title="temperature inside",
        baseline=Rule(minimum=1, direction="up", effect="difference"),
    ),
    *module_signals(SIGNAL_QUALITY),
)
