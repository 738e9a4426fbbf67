"""Format of the section `simulation`: ground truth for the simulated world only."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from lightrig.testbeds.base import Part
from lightrig.testbeds.quantities import Decibels, Duration, Offset, Share


class SlowPart(Part):
    """A component of a latent delay, for a share of all cases."""

    share: Share
    mean: Duration
    sd: Duration | None = None


class DelayPart(Part):
    """A latent delay; `per_pair` is added for each circuit moved at once after the first.

    The standard deviation grows with the mean.
    """

    mean: Duration
    sd: Duration | None = None
    per_pair: Duration | None = None
    slow: SlowPart | None = Field(None, description="What it is instead, now and then")


class OffsetPart(Part):
    """A latent offset between clocks."""

    mean: Offset | None = None
    sd: Duration | None = None


class SpreadLossPart(Part):
    """A latent loss, drawn once for each circuit; standard deviations say by how much."""

    mean: Decibels
    sd: Decibels | None = Field(None, description="From circuit to circuit")
    ingress: Decibels | None = Field(None, description="From ingress port to ingress port")
    egress: Decibels | None = Field(None, description="From egress port to egress port")
    repeatability: Decibels | None = Field(None, description="Each time a circuit is made anew")
    polarization: Decibels | None = Field(
        None,
        description="Between best and worst polarization, of which one is drawn each time a "
        "circuit is made (IEC 61300-3-2)",
        examples=["0.1 dB"],
    )
    per_kelvin: Decibels | None = Field(
        None,
        description="Standard deviation of a circuit's slope around 25 °C; a guide to data sheets "
        "(Opelink, Optical Switch Specifications) reckons with 0.005 dB",
        examples=["0.005 dB"],
    )
    per_nm: Decibels | None = Field(
        None,
        description="Standard deviation of a circuit's slope around 1550 nm (IEC 61300-3-7)",
        examples=["0.005 dB"],
    )
    crosstalk: Decibels | None = Field(
        None,
        description="By how much less light leaves a dark egress than that of a circuit "
        "(IEC 61300-3-50); none without it",
        examples=["55 dB"],
    )


class RingingPart(Part):
    """Swings of the loss after light has come; the values are chosen, not from a data sheet.

    A mirror that passes its place loses light on either side of it, so power only dips.
    """

    depth: Decibels = Field("1.5 dB", validate_default=True, description="Loss of the first swing")
    period: Duration = Field(
        "1 ms", validate_default=True, description="From dip to dip: a resonance at 500 Hz"
    )
    decay: Duration = Field("1 ms", validate_default=True, description="Time constant of the depth")


class EdgePart(Part):
    """Shape of light that comes or goes; the times are chosen, a tenth of a switch's 10 ms."""

    rise: Duration = Field(
        "1 ms", validate_default=True, description="From 10 % to 90 % (IEC 61300-3-21)"
    )
    fall: Duration = Field("1 ms", validate_default=True, description="From 90 % to 10 %")
    ringing: RingingPart | None = None


class MonitorPart(Part):
    """Power monitors of a simulated switch."""

    averaging: Duration | None = Field(None, description="The window that a reading averages")
    noise: Decibels | None = Field(None, description="Standard deviation of a reading")
    offset: Decibels | None = Field(
        None, description="Standard deviation of what a port's monitor shows too much"
    )
    drift: Decibels | None = Field(
        None, description="Standard deviation of what that grows by in an hour"
    )


class SimulatedSwitchPart(Part):
    """Ground truth of one simulated switch."""

    acknowledge: DelayPart | None = Field(None, description="From command to its completion reply")
    dark: DelayPart | None = Field(None, description="From command to light gone")
    settle: DelayPart | None = Field(None, description="From command to light back")
    loss: SpreadLossPart | None = None
    monitor: MonitorPart | None = None
    edge: EdgePart | None = Field(None, description="Left out, light comes and goes in a step")


class SimulatedNicPart(Part):
    """Ground truth of simulated NICs."""

    loss_detection: DelayPart | None = Field(None, description="From light gone to link down")
    bring_up: DelayPart | None = Field(None, description="From light back to firmware link up")
    carrier: DelayPart | None = Field(None, description="From firmware link up to carrier")
    resume: DelayPart | None = Field(None, description="From carrier to traffic")
    driver: Literal["mlx5_core", "bnxt_en", "ice", "ionic"] | None = Field(
        None, description="The kernel's driver, which decides what is counted"
    )
    fec_histogram: bool | None = Field(
        None, description="mlx5_core counts code words by symbol errors (Linux 6.18)"
    )


class SimulatedNetworkPart(Part):
    """The management network of the simulated world."""

    delay: DelayPart | None = Field(None, description="One way between harness and server")
    write: DelayPart | None = Field(
        None,
        description="Before, and again after, a command leaves the harness; a system call takes "
        "microseconds, a busy machine milliseconds. In virtual time only",
        examples=[{"mean": "50 us", "sd": "30 us"}],
    )


class SimulatedClocksPart(Part):
    """The clocks of the simulated servers."""

    offset: OffsetPart | None = Field(None, description="Against the harness")
    drift_ppm: float | None = Field(
        None,
        ge=0,
        description="Standard deviation of their rates; NTP reckons with 15 ppm (RFC 5905), "
        "and slews by up to 500 ppm",
        examples=[15.0],
    )
    wander_ppm: float | None = Field(
        None,
        ge=0,
        description="Standard deviation of the change of a rate in a second, a random walk; maps "
        "of clocks allow for 0.1",
        examples=[0.1],
    )


class ConnectorsPart(Part):
    """Loss of the two connectors of a fiber together, beyond its stated loss.

    A pair of grade B loses 0.12 dB in the mean and 0.25 dB at most in 97 % (IEC 61753-1).
    """

    mean: Decibels = Field("0.24 dB", validate_default=True)
    sd: Decibels = Field("0.1 dB", validate_default=True)


class ReceiverPart(Part):
    """Receivers of the bit error testers."""

    modulation: Literal["NRZ", "PAM4"] = Field(
        "NRZ", description="The eyes of PAM4 are a third as high: it needs 4.8 dB more light"
    )
    propagation: Share = Field(
        "0 %",
        validate_default=True,
        description="Probability that an error causes the next; 75 % is what analyses of a "
        "one-tap DFE suppose (DesignCon 2025, error propagation factor)",
        examples=["75 %"],
    )


class FaultPart(Part):
    """A fault injected into a simulated lab, which its description does not mention."""

    fault: Literal[
        "swapped fibers",
        "dirty connector",
        "wrong port",
        "dark laser",
        "wrong host key",
        "clock skew",
        "clock step",
        "clock slew",
        "stale cross-connect",
        "full error queue",
        "missing tool",
        "bent fiber",
        "drifting laser",
        "stuck monitor",
        "counter reset",
        "interrupted fiber",
        "silent instrument",
    ]
    at: list[str] = Field(
        description="Where: NIC ports, a port that a fiber leaves, a switch and its port or "
        "circuit, a server, an instrument",
        examples=[["server0.nic0.p0", "server1.nic0.p0"], ["ocs", "5>40"], ["ocs", "5"]],
    )
    loss: Decibels | None = Field(None, description="What a dirty connector or a bent fiber loses")
    drift: Decibels | None = Field(None, description="What a drifting laser loses in a minute")
    after: Duration | None = Field(
        None,
        description="When counters begin anew, a fiber is dark for a tenth of a second, an "
        "instrument falls silent, or a clock is set or slewed",
    )
    answers: Annotated[int, Field(ge=0)] | None = Field(
        None, description="After how many answers an instrument falls silent"
    )
    lasting: Duration | None = Field(
        None,
        description="For how long an instrument is silent; left out, for good. For how long a "
        "clock is slewed",
    )
    ppm: float | None = Field(
        None, description="By how much a clock runs too fast, or is slewed, which it reports"
    )
    step: Offset | None = Field(None, description="By how much a clock is set ahead")
    tool: str | None = Field(None, description="The program that is missing")


class SimulatedReferencesPart(Part):
    """The person who takes references in a simulated lab."""

    uncertainty: Decibels = Field(description="Standard deviation of each value taken")


class SimulationPart(Part):
    """Ground truth of a simulated world; hardware never uses it."""

    faults: list[FaultPart] = Field(default_factory=list)
    switches: dict[str, SimulatedSwitchPart] = Field(default_factory=dict)
    nic: SimulatedNicPart | None = None
    network: SimulatedNetworkPart | None = None
    clocks: SimulatedClocksPart | None = None
    references: SimulatedReferencesPart | None = None
    connectors: ConnectorsPart | None = None
    receiver: ReceiverPart | None = None
