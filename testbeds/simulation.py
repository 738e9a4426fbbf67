"""Section `simulation` of a testbed file: ground truth, for the simulated world only.

What a file leaves out has the default that its field states here.
"""

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field, Strict

from lightrig.testbeds.base import Stated
from lightrig.testbeds.findings import Findings, did_you_mean
from lightrig.testbeds.quantities import Decibels, Duration, Offset, Share
from lightrig.testbeds.ranges import RangeError, expand
from lightrig.testbeds.yaml_positions import Keys


@dataclass(frozen=True, slots=True)
class Slow(Stated):
    """A component of a latent delay, for a share of all cases."""

    share: Share
    mean: Duration
    sd: Duration = 0


@dataclass(frozen=True, slots=True)
class Delay(Stated):
    """A latent delay; `per_pair` is added for each circuit moved at once after the first.

    The standard deviation grows with the mean.
    """

    mean: Duration
    sd: Duration = 0
    per_pair: Duration = 0
    slow: Annotated[Slow | None, Field(description="What it is instead, now and then")] = None

    def times(self, factor: float) -> "Delay":
        """Return the delay with its mean and all that is added to it `factor` times as long."""
        mean, sd, per_pair = (round(factor * one) for one in (self.mean, self.sd, self.per_pair))
        return Delay(mean, sd, per_pair, self.slow)


@dataclass(frozen=True, slots=True)
class SimulatedLoss(Stated):
    """A latent loss, drawn once for each circuit; standard deviations say by how much."""

    mean: Decibels
    sd: Annotated[Decibels, Field(description="From circuit to circuit")] = 0.0
    ingress_db: Annotated[Decibels, Field(description="From ingress port to ingress port")] = 0.0
    egress_db: Annotated[Decibels, Field(description="From egress port to egress port")] = 0.0
    repeatability_db: Annotated[Decibels, Field(description="Each time a circuit is made anew")] = (
        0.0
    )
    polarization_db: Annotated[
        Decibels,
        Field(
            description="Between best and worst polarization, of which one is drawn each time a "
            "circuit is made (IEC 61300-3-2)",
            examples=["0.1 dB"],
        ),
    ] = 0.0
    per_kelvin_db: Annotated[
        Decibels,
        Field(
            description="Standard deviation of a circuit's slope around 25 °C; a guide to data "
            "sheets (Opelink, Optical Switch Specifications) reckons with 0.005 dB",
            examples=["0.005 dB"],
        ),
    ] = 0.0
    per_nm_db: Annotated[
        Decibels,
        Field(
            description="Standard deviation of a circuit's slope around 1550 nm (IEC 61300-3-7)",
            examples=["0.005 dB"],
        ),
    ] = 0.0
    crosstalk_db: Annotated[
        Decibels | None,
        Field(
            description="By how much less light leaves a dark egress than that of a circuit, in "
            "the mean, with 3 dB standard deviation (IEC 61300-3-50); none without it",
            examples=["55 dB"],
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class Ringing(Stated):
    """Swings of the loss after light has come; the values are chosen, not from a data sheet.

    A mirror that passes its place loses light on either side of it, so power only dips.
    """

    depth_db: Annotated[Decibels, Field(description="Loss of the first swing")] = 1.5
    period_ns: Annotated[Duration, Field(description="From dip to dip: a resonance at 500 Hz")] = (
        1_000_000
    )
    decay_ns: Annotated[Duration, Field(description="Time constant of the depth")] = 1_000_000


@dataclass(frozen=True, slots=True)
class SimulatedEdge(Stated):
    """Shape of light that comes or goes; the times are chosen, a tenth of a switch's 10 ms."""

    rise_ns: Annotated[
        Duration, Field(description="From 10 % to 90 % of the level (IEC 61300-3-21)")
    ] = 1_000_000
    fall_ns: Annotated[Duration, Field(description="From 90 % to 10 %")] = 1_000_000
    ringing: Ringing | None = None


@dataclass(frozen=True, slots=True)
class SimulatedMonitor(Stated):
    """Power monitors of a simulated switch."""

    averaging_ns: Annotated[Duration, Field(description="The window that a reading averages")] = (
        10_000_000
    )
    noise_db: Annotated[Decibels, Field(description="Standard deviation of a reading")] = 0.03
    offset_db: Annotated[
        Decibels, Field(description="Standard deviation of what a port's monitor shows too much")
    ] = 0.0
    drift_db: Annotated[
        Decibels, Field(description="Standard deviation of what that grows by in an hour")
    ] = 0.0


@dataclass(frozen=True, slots=True)
class SimulatedSwitch(Stated):
    """Ground truth of one simulated switch."""

    acknowledge: Annotated[Delay, Field(description="From command to its completion reply")] = (
        Delay(40_000_000, 1_000_000, 350_000)
    )
    dark: Annotated[Delay, Field(description="From command until the light begins to go")] = Delay(
        3_000_000, 400_000
    )
    settle: Annotated[
        Delay, Field(description="From command until the light begins to come back")
    ] = Delay(20_000_000, 1_000_000)
    loss: SimulatedLoss = SimulatedLoss(1.2, 0.2)
    monitor: SimulatedMonitor = SimulatedMonitor()
    edge: Annotated[
        SimulatedEdge, Field(description="Left out, light comes and goes in a step")
    ] = SimulatedEdge(0, 0)


@dataclass(frozen=True, slots=True)
class SimulatedNic(Stated):
    """Ground truth of simulated NICs.

    Defaults follow what is published of ConnectX NICs without auto-negotiation: about 3 s until the
    firmware reports link up, 70 to 80 us to the carrier, 100 to 200 ms until RDMA sends again. With
    it the firmware took about 6 s there, which is 3 s of `negotiation`. How soon a loss is detected
    is assumed. Sources: docs/appendix/relock.md.
    """

    loss_detection: Annotated[Delay, Field(description="From light gone to link down")] = Delay(
        1_000_000, 200_000
    )
    bring_up: Annotated[Delay, Field(description="From light back to firmware link up")] = Delay(
        3_000_000_000, 300_000_000
    )
    negotiation: Annotated[
        Delay,
        Field(
            description="What auto-negotiation adds to that, at ports where it is on",
            examples=[{"mean": "3 s", "sd": "300 ms"}],
        ),
    ] = Delay(0)
    carrier: Annotated[Delay, Field(description="From firmware link up to carrier")] = Delay(
        75_000, 2_000
    )
    resume: Annotated[Delay, Field(description="From carrier to traffic")] = Delay(
        150_000_000, 20_000_000
    )
    driver: Annotated[
        Literal["mlx5_core", "bnxt_en", "ice", "ionic"],
        Field(description="The kernel's driver, which decides what is counted"),
    ] = "mlx5_core"
    fec_histogram: Annotated[
        bool,
        Field(description="mlx5_core counts code words by symbol errors (Linux 6.18)"),
    ] = False


@dataclass(frozen=True, slots=True)
class SimulatedNetwork(Stated):
    """The management network of the simulated world."""

    delay: Annotated[Delay, Field(description="One way between harness and server")] = Delay(
        120_000, 20_000
    )
    write: Annotated[
        Delay,
        Field(
            description="Before, and again after, a command leaves the harness; a system call "
            "takes microseconds, a busy machine milliseconds. In virtual time only",
            examples=[{"mean": "50 us", "sd": "30 us"}],
        ),
    ] = Delay(0)


@dataclass(frozen=True, slots=True)
class ClockOffset(Stated):
    """A latent offset between clocks."""

    mean: Offset = 0
    sd: Duration = 0


@dataclass(frozen=True, slots=True)
class SimulatedClocks(Stated):
    """The clocks of the simulated servers."""

    offset: Annotated[ClockOffset, Field(description="Against the harness")] = ClockOffset(
        0, 2_000_000
    )
    drift_ppm: Annotated[
        float,
        Field(
            ge=0,
            description="Standard deviation of their rates; NTP reckons with 15 ppm (RFC 5905), "
            "and slews by up to 500 ppm",
            examples=[15.0],
        ),
    ] = 0.0
    wander_ppm: Annotated[
        float,
        Field(
            ge=0,
            description="Standard deviation of the change of a rate in a second, a random walk; "
            "maps of clocks allow for 0.1",
            examples=[0.1],
        ),
    ] = 0.0
    quartz_ppm: Annotated[
        float,
        Field(
            ge=0,
            description="Standard deviation of the errors of their quartz, and of the harness's, "
            "which each one's kernel corrects at a steady rate and reports",
            examples=[20.0],
        ),
    ] = 20.0
    slew_ppm: Annotated[
        float,
        Field(
            ge=0,
            description="Standard deviation of the rates of NTP's slews, each of 10 to 100 s, of "
            "which one begins every 200 s; NTP slews by up to 500 ppm",
            examples=[1.0],
        ),
    ] = 1.0


@dataclass(frozen=True, slots=True)
class Connectors(Stated):
    """Loss of the two connectors of a fiber together, beyond its stated loss.

    A pair of grade B loses 0.12 dB in the mean and 0.25 dB at most in 97 % (IEC 61753-1).
    """

    mean: Decibels = 0.24
    sd: Decibels = 0.1


@dataclass(frozen=True, slots=True)
class SimulatedReceiver(Stated):
    """Receivers of the bit error testers."""

    modulation: Annotated[
        Literal["NRZ", "PAM4"] | None,
        Field(
            description="That of the pattern, where it is not stated. A receiver made for NRZ "
            "needs 4.8 dB more light for PAM4, whose eyes are a third as high",
        ),
    ] = None
    propagation: Annotated[
        Share,
        Field(
            description="Probability that an error causes the next; 75 % is what analyses of a "
            "one-tap DFE suppose (DesignCon 2025, error propagation factor)",
            examples=["75 %"],
        ),
    ] = 0.0


@dataclass(frozen=True, slots=True)
class SimulatedFault(Stated):
    """A fault injected into a simulated lab, which its description does not mention."""

    kind: Annotated[
        Literal[
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
            "slow switch",
        ],
        Field(alias="fault"),
    ]
    at: Annotated[
        tuple[str, ...],
        Strict(False),  # a file writes a list
        Field(
            description="Where: NIC ports, a port that a fiber leaves, a switch and its port or "
            "circuit, a server, an instrument",
            examples=[["server0.nic0.p0", "server1.nic0.p0"], ["ocs", "5>40"], ["ocs", "5"]],
        ),
    ]
    loss_db: Annotated[
        Decibels, Field(description="What a dirty connector or a bent fiber loses")
    ] = 0.0
    drift_db: Annotated[Decibels, Field(description="What a drifting laser loses in a minute")] = (
        0.0
    )
    after_ns: Annotated[
        Duration,
        Field(
            description="When counters begin anew, a fiber is dark for the first time, an "
            "instrument falls silent, or a clock is set or slewed",
        ),
    ] = 0
    answers: Annotated[
        Annotated[int, Field(ge=0)] | None,
        Field(description="After how many answers an instrument falls silent"),
    ] = None
    lasting_ns: Annotated[
        Duration | None,
        Field(
            description="For how long an instrument is silent; left out, for good. For how long a "
            "clock is slewed, or a fiber is dark (0.1 s)",
        ),
    ] = None
    every_ns: Annotated[
        Annotated[Duration, Field(gt=0)] | None,
        Field(description="After how long a fiber is dark again; left out, it is dark once"),
    ] = None
    factor: Annotated[
        Annotated[float, Field(gt=0)],
        Field(description="By how much a slow switch takes longer to settle and to acknowledge"),
    ] = 1.0
    ppm: Annotated[
        float,
        Field(description="By how much a clock runs too fast, or is slewed, which it reports"),
    ] = 0.0
    step_ns: Annotated[Offset, Field(description="By how much a clock is set ahead")] = 0
    tool: Annotated[str, Field(description="The program that is missing")] = ""


@dataclass(frozen=True, slots=True)
class SimulatedReferences(Stated):
    """The person who takes references in a simulated lab."""

    uncertainty_db: Annotated[Decibels, Field(description="Standard deviation of each value taken")]
    polarization_db: Annotated[
        Decibels, Field(description="Standard uncertainty stated for the light's polarization")
    ] = 0.0
    wavelength_db: Annotated[
        Decibels, Field(description="Standard uncertainty stated for the light's wavelength")
    ] = 0.0


@dataclass(frozen=True, slots=True)
class Simulation(Stated):
    """Ground truth of a simulated world; hardware never uses it.

    Once loaded, `switches` has a part for every optical switch.
    """

    faults: Annotated[tuple[SimulatedFault, ...], Strict(False)] = ()
    switches: Mapping[str, SimulatedSwitch] = field(default_factory=dict)
    nic: SimulatedNic = SimulatedNic()
    network: SimulatedNetwork = SimulatedNetwork()
    clocks: SimulatedClocks = SimulatedClocks()
    references: SimulatedReferences = SimulatedReferences(0.03)
    connectors: Annotated[
        Connectors, Field(description="Left out, connectors lose nothing more")
    ] = Connectors(0.0, 0.0)
    receiver: SimulatedReceiver = SimulatedReceiver()


def expanded(stated: Simulation | None, optical: Collection[str], findings: Findings) -> Simulation:
    """Return the ground truth of a world with these `optical` switches, ranges written out."""
    stated = stated or Simulation()
    switches: dict[str, SimulatedSwitch] = {}
    for stated_name, part in stated.switches.items():
        at: Keys = ("simulation", "switches", stated_name)
        try:
            names = expand(stated_name)
        except RangeError as error:
            findings.add(at, str(error), of_key=True)
            continue
        unknown = next((name for name in names if name not in optical), None)
        if unknown is not None:
            hint = did_you_mean(unknown, optical)
            findings.add(at, f"found the unknown optical switch {unknown!r}{hint}", of_key=True)
        if twice := switches.keys() & set(names):
            findings.add(at, f"{min(twice)} has parameters twice", of_key=True)
        switches |= dict.fromkeys(names, part)
    default = SimulatedSwitch()
    return dataclasses.replace(
        stated, switches={name: switches.get(name, default) for name in optical}
    )
