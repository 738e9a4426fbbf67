"""The quantities of the generic measurements, in the order in which they are shown."""

from collections.abc import Iterator
from dataclasses import replace

from lightrig.harness.quantities.module_signals import module_signals
from lightrig.harness.quantities.quantity import Combination, Quantity, duration
from lightrig.testbeds.baselines import Rule

RECONFIGURATION = "Reconfiguration"
OUTAGE = "Outage"
INSERTION_LOSS = "Insertion loss"
BIT_ERRORS = "Bit errors"
PATH_CHANGES = "Path changes"
TRANSCEIVERS = "Transceivers"
SIGNAL_QUALITY = "Signal quality of NIC ports"
SWITCHING = "Switching times"
SWITCH_OPTICS = "Switch optics"
COLLECTIVES = "Collectives"
RECOVERY = "Traffic under reconfiguration"
RDMA = "RDMA"
CLOSURE = "Closure"
HARNESS = "Cost of the harness"

STAGES: tuple[tuple[str, str, Combination, tuple[str, ...]], ...] = (
    ("acknowledged", "every switch acknowledged its commands", "greatest", ()),
    ("los", "loss of signal on the first egress", "least", ("light_gone",)),
    ("datagrams_lost", "first datagram that did not arrive", "least", ()),
    ("firmware_down", "firmware reports the link down, on the first NIC port", "least", ()),
    ("carrier_down", "the kernel reports no carrier, on the first NIC port", "least", ()),
    ("signal_recovered", "optical power is back, on the last egress", "greatest", ("light_back",)),
    ("firmware_up", "firmware reports the link up, on the last NIC port", "greatest", ()),
    ("carrier_up", "the kernel reports carrier, on the last NIC port", "greatest", ()),
    ("first_datagram", "first datagram after the loss, on the last NIC port", "greatest", ()),
)
"""The stages of a reconfiguration in their usual order: name, meaning, combination, aliases.

Losses count from the first subject and recoveries until the last, so that the time between the
two is the whole interruption.
"""

_HEADLINES = frozenset(("acknowledged", "signal_recovered", "carrier_up", "first_datagram"))


def _stages() -> Iterator[Quantity]:
    for stage, meaning, combine, aliases in STAGES:
        yield Quantity(
            name=f"reconfiguration.{stage}",
            unit="ns",
            meaning=f"from the command until {meaning}",
            better="lower" if combine == "greatest" else None,
            combine=combine,
            section=RECONFIGURATION,
            terminal="headline" if stage in _HEADLINES else "shown",
            aliases=tuple(f"reconfiguration.{alias}" for alias in aliases),
        )
    for stage, meaning, combine, aliases in STAGES:
        yield Quantity(
            name=stage,
            unit="ns",
            meaning=f"{meaning.partition(', ')[0]}: one switch, egress or NIC port",
            better="lower" if combine == "greatest" else None,
            combine=combine,
            section=RECONFIGURATION,
            terminal="hidden",
            aliases=aliases,
        )


def _closure(name: str, meaning: str, *aliases: str) -> Quantity:
    return Quantity(
        name=name,
        unit="1",
        meaning=meaning,
        better="higher",
        section=CLOSURE,
        baseline=None,
        terminal="hidden",
        aliases=aliases,
    )


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


_SWITCH_OPTICS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
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


def _switch_optics() -> Iterator[Quantity]:
    for name, meaning, components in _SWITCH_OPTICS:
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


DECLARED: tuple[Quantity, ...] = (
    *_stages(),
    Quantity(
        name="outage.carrier",
        unit="ns",
        meaning="time without carrier at one NIC port",
        better="lower",
        section=OUTAGE,
        terminal="hidden",
    ),
    Quantity(
        name="outage.datagram",
        unit="ns",
        meaning="time without datagrams at one NIC port, by stages",
        better="lower",
        section=OUTAGE,
        terminal="hidden",
    ),
    Quantity(
        name="outage.packets",
        unit="ns",
        meaning="longest interruption of numbered datagrams in any link direction",
        better="lower",
        section=OUTAGE,
        terminal="hidden",
    ),
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
    duration("collective.time", "duration of one operation", COLLECTIVES),
    Quantity(
        name="collective.algorithm_bandwidth",
        unit="bit/s",
        meaning="size of an operation by its duration",
        better="higher",
        section=COLLECTIVES,
    ),
    Quantity(
        name="collective.bus_bandwidth",
        unit="bit/s",
        meaning="rate on each link of a ring that explains the duration, as in nccl-tests",
        better="higher",
        section=COLLECTIVES,
    ),
    Quantity(
        name="collective.fitted_bus_bandwidth",
        unit="bit/s",
        meaning="bus bandwidth of unlimited size, from a line through all sizes",
        better="higher",
        section=COLLECTIVES,
        baseline=Rule(minimum=1),
    ),
    Quantity(
        name="collective.latency",
        unit="ns",
        meaning="duration of an operation of size zero, from a line through all sizes",
        better="lower",
        section=COLLECTIVES,
        baseline=Rule(minimum=1),
    ),
    Quantity(
        name="collective.utilization",
        unit="share",
        meaning="bus bandwidth of the largest size as a share of the line rate",
        better="higher",
        section=COLLECTIVES,
        aliases=("collective.use",),
    ),
    Quantity(
        name="recovery.survived",
        unit="1",
        meaning="1 where every rank continued through the change, else 0",
        better="higher",
        section=RECOVERY,
        title="survived",
        baseline=None,
    ),
    duration(
        "recovery.routed",
        "from the command until the servers have routes over the new links",
        RECOVERY,
        title="routes set",
    ),
    duration(
        "recovery.first_collective",
        "from the command until the first all-reduce that began after it is done",
        RECOVERY,
        title="first all-reduce",
    ),
    duration("recovery.interruption", "longest time between two all-reduces that ended", RECOVERY),
    Quantity(
        name="recovery.bus_bandwidth",
        unit="bit/s",
        meaning="bus bandwidth of one all-reduce around the change",
        better="higher",
        combine="none",
        section=RECOVERY,
        baseline=None,
        terminal="hidden",
    ),
    duration("rdma.latency", "median latency of RDMA messages in one direction", RDMA),
    duration(
        "rdma.latency_p99", "99th percentile of the latency of RDMA messages in one direction", RDMA
    ),
    Quantity(
        name="rdma.bandwidth",
        unit="bit/s",
        meaning="average bandwidth of RDMA over one link",
        better="higher",
        section=RDMA,
    ),
    Quantity(
        name="rdma.utilization",
        unit="share",
        meaning="bandwidth of RDMA over one link as a share of the line rate",
        better="higher",
        section=RDMA,
        aliases=("rdma.use",),
    ),
    duration(
        "rdma.recovered", "from the command until the first RDMA operation over a new link", RDMA
    ),
    *(
        _closure(
            f"closure.{stage}",
            f"share of the intervals of {stage} that contain the true time",
            *(f"closure.{alias}" for alias in aliases),
        )
        for stage, _, _, aliases in STAGES
    ),
    _closure("closure.latency", "share of the times after the command that contain the true one"),
    _closure("closure.outage_packets", "share of the outages that contain the true one"),
    _closure("closure.switching", "share of the switching times that contain the true one"),
    *(
        _closure(f"closure.{name}", f"share of the intervals of {name} that contain the true one")
        for name, _, _ in _SWITCH_OPTICS
    ),
    _closure("closure.path_change", "share of the dark times that contain the true one"),
    *(
        _closure(
            f"closure.outage_{kind}", f"share of the outages of {kind}s that contain the true one"
        )
        for kind in ("carrier", "datagram")
    ),
    _closure("closure.bit_errors", "share of the counts that agree with the true error ratio"),
    _closure("closure.frame_loss_ratio", "share of the bounds that hold the true frame loss"),
    _closure("loss.closure", "share of the losses whose interval contains the true one"),
    _closure("loss.path_closure", "share of the path losses whose interval contains the true one"),
    Quantity(
        name="harness.carrier_stamp",
        unit="ns",
        meaning="from a change of carrier in the kernel until its time stamp",
        better="lower",
        section=HARNESS,
        baseline=None,
        terminal="hidden",
    ),
    Quantity(
        name="harness.netlink_delay",
        unit="ns",
        meaning="delay of netlink's announcement of a carrier after its reading in sysfs",
        better="lower",
        section=HARNESS,
        baseline=None,
        terminal="hidden",
    ),
    Quantity(
        name="harness.outage_error",
        unit="ns",
        meaning="difference of an outage by datagrams from that of the true links or carriers",
        better="lower",
        section=HARNESS,
        baseline=None,
        terminal="hidden",
    ),
)
