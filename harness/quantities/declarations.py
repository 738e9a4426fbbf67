"""The quantities of the generic measurements, in the order in which they are shown."""

from collections.abc import Iterator

from lightrig.harness.quantities.optical import OPTICAL
from lightrig.harness.quantities.quantity import Quantity
from lightrig.harness.quantities.table import table
from lightrig.instruments.core.stages import STAGES

RECONFIGURATION = "Reconfiguration"
OUTAGE = "Outage"
SOAK = "Soak"
RELOCK = "Relock"
CLOSURE = "Closure"
HARNESS = "Time that measuring takes"

PORT_EXCESS = "port.excess"
"""Quantity of ports whose time differs from that of the others of the same events."""

LOOK = "sampling.look"
"""Quantity of the looks of a sample plan, by which a report judges as the test did."""

PORTS_IN_SERVICE = "ports.in_service"
"""Quantity of tests that were not over all ports: how many they were over."""

_HEADLINES = frozenset(("acknowledged", "signal_recovered", "carrier_up", "first_datagram"))


def _stages() -> Iterator[Quantity]:
    for stage in STAGES.values():
        yield Quantity(
            name=f"reconfiguration.{stage.name}",
            unit="ns",
            meaning=f"from the command until {stage.whole}",
            better="lower" if stage.up else None,
            combine="greatest" if stage.up else "least",
            section=RECONFIGURATION,
            terminal="headline" if stage.name in _HEADLINES else "shown",
            aliases=tuple(f"reconfiguration.{alias}" for alias in stage.aliases),
            title=stage.title,
        )
    for stage in STAGES.values():
        yield Quantity(
            name=stage.name,
            unit="ns",
            meaning=f"one {stage.subject}: {stage.meaning}",
            better="lower" if stage.up else None,
            combine="greatest" if stage.up else "least",
            section=RECONFIGURATION,
            terminal="hidden",
            aliases=stage.aliases,
            title=stage.title,
        )


def _closures() -> Iterator[Quantity]:
    for stage in STAGES.values():
        yield Quantity(
            name=f"closure.{stage.name}",
            unit="1",
            meaning=f"share of the intervals of {stage.name} that contain the true time",
            better="higher",
            section=CLOSURE,
            baseline=None,
            terminal="hidden",
            aliases=tuple(f"closure.{alias}" for alias in stage.aliases),
        )


DECLARED: tuple[Quantity, ...] = (
    *_stages(),
    *table(f"""
[{RECONFIGURATION}]
watched  ns none unjudged hidden title="end of the watch"
    from the command until the watch of a server's links or a switch's light ended
{PORT_EXCESS}  ns none unjudged hidden
    one port that differs: median over events of its time less the median of the other ports
[{OUTAGE}] ns lower hidden
outage.carrier
    from the first loss of carrier at one NIC port to its last return, with its flaps
outage.datagram
    time without datagrams at one NIC port, by stages
outage.flap
    time without carrier at one NIC port whose link had come up before in the event
outage.packets
    longest interruption of numbered datagrams in any link direction
datagrams.loss  1 lower hidden
    share of numbered datagrams that a link direction loses besides its interruptions
datagrams.reordered  1 none unjudged hidden
    number of datagrams that were overtaken by later ones in a link direction
"""),
    *table(f"""
[{SOAK}] ns none unjudged hidden
soak.flap  lower
    time for which one link was lost and came back while a plan was held
soak.rdma_flap  lower
    the same of the link as the firmware of its NIC ports reports it
soak.down
    time for which one link that is down has been down so far
soak.watched
    time for which the links of a plan, or one of them, were watched without a break
soak.gap
    time in which the ports of one server, or all, were not watched
soak.begun
    calendar time at which a soak began, since 1970, in UTC
soak.turn  1
    number of the turn in which a plan began to be held
soak.datagrams  1
    datagrams that all ports have sent since the last checkpoint
soak.datagrams_lost  1
    datagrams that one NIC port missed since the last checkpoint
soak.fec_corrected  1
    code words that one NIC port corrected since the reading before
soak.fec_uncorrectable  1
    code words that one NIC port could not correct since the reading before
soak.power  dBm
    power at an egress of a switch while a plan was held: mean, least and greatest reading
soak_before.flap
    a flap of the soak that this one goes on with
soak_before.rdma_flap
    a flap by the firmware of the soak that this one goes on with
soak_before.watched
    time for which links were watched in the soak that this one goes on with
soak_before.gap
    time in which ports were not watched in the soak that this one goes on with
soak_before.turn  1
    number of a turn in the soak that this one goes on with
soak_before.datagrams  1
    datagrams that were sent in the soak that this one goes on with
soak_before.datagrams_lost  1
    datagrams that one NIC port missed in the soak that this one goes on with
soak_before.fec_corrected  1
    code words that one NIC port corrected in the soak that this one goes on with
soak_before.fec_uncorrectable  1
    code words that one NIC port could not correct in the soak that this one goes on with
"""),
    *table(f"""
[{RELOCK}] ns none unjudged hidden
relock.whole  lower
    from light at one NIC port until its carrier, of one event of a run with --relock
relock.signal_detection
    from light at the switch until the receiver's loss of signal ended
relock.clock_recovery
    from the end of the receiver's loss of signal until that of its loss of lock
relock.module_output
    from the receiver's lock until its output is valid
relock.nic_input
    from valid output until the NIC's firmware detects the signal
relock.phy
    from the NIC's signal until its physical layer is up, by the firmware's timer
relock.firmware
    from the physical layer up until firmware has the link up, by the firmware's timer
relock.driver
    from firmware's link up until the driver writes so to the kernel's log
relock.carrier
    from the driver's line until the kernel has carrier
relock.address
    from carrier until the port's address is usable
relock.first_datagram
    from a usable address until the first datagram
relock.first_rdma_operation
    from the first datagram until the first RDMA operation
relock.between
    stages between two moments that were seen, with none seen between: its conditions name them
relock.moment
    when a moment between two stages was, after the command: its conditions name it
relock.port  1
    changes whose relock was divided at one port: its conditions name transceiver, NIC and firmware
relock.price
    by how much reading a source lengthens the relock: difference of medians of events in turns
"""),
    *OPTICAL,
    *_closures(),
    *table(f"""
[{CLOSURE}] 1 higher unjudged hidden
closure.latency
    share of the times after the command that contain the true one
closure.outage_packets
    share of the outages that contain the true one
closure.switching
    share of the switching times that contain the true one
closure.polarization_dependent_loss
    share of the intervals of polarization_dependent_loss that contain the true one
closure.wavelength_dependent_loss
    share of the intervals of wavelength_dependent_loss that contain the true one
closure.crosstalk
    share of the intervals of crosstalk that contain the true one
closure.path_change
    share of the dark times that contain the true one
closure.outage_carrier
    share of the outages of carriers that contain the true one
closure.outage_datagram
    share of the outages of datagrams that contain the true one
closure.outage_flap
    share of the flaps whose ends contain true moments
closure.bit_errors
    share of the counts that agree with the true error ratio
closure.frame_loss_ratio
    share of the bounds that hold the true frame loss
loss.closure
    share of the losses whose interval contains the true one
loss.path_closure
    share of the path losses whose interval contains the true one
[{HARNESS}] ns lower unjudged hidden
harness.carrier_stamp
    from a change of carrier in the kernel until its time stamp
harness.netlink_delay
    delay of netlink's announcement of a carrier after its reading in sysfs
harness.outage_error
    difference of an outage by datagrams from that of the true links or carriers
[{HARNESS}] none unjudged hidden
set_aside.delay  ns
    delay of a simulation's own links behind its light, in an event that is set aside
set_aside.stage  ns
    duration of a stage in an event that is set aside, which no limit judges
set_aside.clock  1
    event that is set aside since the clock of its subject tells no times of it
late_light.los  ns
    from the command until a monitor that is late showed loss of signal: an upper bound
late_light.signal_recovered  ns
    from the command until a monitor that is late showed the signal back: an upper bound
{LOOK}  1
    number of samples at which a plan of two stages judges the limit on a quantity
{PORTS_IN_SERVICE}  1
    number of NIC ports that took part in a test, where others are out of service or down
"""),
)
