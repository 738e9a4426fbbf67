"""The optical quantities: losses, bit errors, switching times, and transceivers."""

from lightrig.harness.quantities.table import table

INSERTION_LOSS = "Insertion loss"
BIT_ERRORS = "Bit errors"
PATH_CHANGES = "Path changes"
TRANSCEIVERS = "Transceivers"
SIGNAL_QUALITY = "Signal quality of NIC ports"
PORT_COUNTERS = "Counters of NIC ports"
SWITCHING = "Switching times"
SWITCH_OPTICS = "Switch optics"

_LIGHT = "wavelength_nm,temperature_c"
_WAVELENGTHS = "wavelengths_nm,temperature_c"

OPTICAL = table(f"""
[{INSERTION_LOSS}]
# The loss of a circuit differs more between nights than within one.
insertion_loss  least=0 dB lower direction=up beside={_LIGHT}
    optical power lost in one circuit, against a stored reference
insertion_loss.relative  dB lower direction=up beside={_LIGHT} title="loss without references"
    optical power lost in one circuit, against the median circuit
insertion_loss.repeatability  least=0 dB lower direction=up beside={_LIGHT}
    standard deviation of the loss of a circuit that is made again
insertion_loss.factory_en  1 lower direction=up
    En number of a loss against the factory value that the switch stores
path_loss  least=0 dB lower direction=up beside={_LIGHT}
    optical power lost from transceiver to transceiver, through all switches
fiber_loss  dB lower direction=up effect=difference
    optical power lost in one fiber, between a switch's monitor and a transceiver, by its readings
fiber_loss.relative  dB lower direction=up effect=difference hidden
    the same, but for a constant: how many lanes share the fiber is not known
check_standard.shift  dB none effect=difference hidden
    change of the loss of the check standard since the references were taken, median of its circuits
check_standard.loss  dB none effect=difference hidden
    loss of one circuit of the check standard, before, during or after a loss matrix
check_standard.power  dBm none unjudged hidden
    power that enters one circuit of the check standard, by the observer there
loss.remade  dB none unjudged hidden title="loss, circuit made again"
    loss of one making of a circuit, less the mean of its makings
loss.fault  dB lower unjudged hidden
    loss in excess of what the circuit should have
loss.budget.noise  dB lower unjudged hidden
    standard uncertainty: noise of the readings
loss.budget.repeatability  dB lower unjudged hidden
    standard uncertainty: repeatability of the circuit
loss.budget.linearity  dB lower unjudged hidden
    standard uncertainty: linearity of the power meter
loss.budget.polarization  dB lower unjudged hidden
    standard uncertainty: polarization dependence of the power meter
loss.budget.wavelength  dB lower unjudged hidden
    standard uncertainty: wavelength of the light, beside that of the references
loss.budget.meter_calibration  dB lower unjudged hidden
    standard uncertainty: calibration of the power meter
loss.budget.source  dB lower unjudged hidden
    standard uncertainty: stability of the light source
loss.budget.fiber  dB lower unjudged hidden
    standard uncertainty: stated loss of the fiber to a power meter, with its connectors
loss.budget.drift  dB lower unjudged hidden
    standard uncertainty: drift since the reference was taken
loss.budget.module  dB lower unjudged hidden
    standard uncertainty: accuracy of transceiver readings
loss.budget.reference  dB lower unjudged hidden
    standard uncertainty: stored reference
loss.budget.check_standard  dB lower unjudged hidden
    standard uncertainty: change of the check standard since its references, not corrected
loss.budget.meter_scatter  dB lower unjudged hidden
    standard uncertainty: scatter of the check standard's circuits since their references
loss.budget.combined  dB lower unjudged hidden
    standard uncertainty: all contributions combined
[{BIT_ERRORS}] 1 lower hidden
# A ratio of bits without an error is a bound, of which there is no median: hidden.
bit_error_ratio  greatest=1 direction=up ratio=10 beside=pattern
    bit errors per bit, at full received power
bit_error_ratio.over_power  greatest=1 none unjudged beside=pattern
    bit errors per bit at a stated attenuation
bit_errors  unjudged beside=pattern
    bit errors counted in one gate
bit_errors.void  unjudged beside=pattern
    share of the bits of a gate that were not compared
nic_error_ratio.before_fec  greatest=1 direction=up ratio=10 beside=pattern
    pre-FEC BER by the counters of a NIC port
nic_error_ratio.after_fec  greatest=1 direction=up ratio=10 beside=pattern
    post-FEC BER by the counters of a NIC port
nic_error_ratio.symbols_after_fec  greatest=1 direction=up ratio=10 beside=pattern
    FEC symbol errors per symbol that were not corrected
nic_error_ratio.symbols_before_fec  greatest=1 direction=up ratio=10 beside=pattern
    FEC symbol errors per symbol before correction
nic_error_ratio.codewords_before_fec  greatest=1 direction=up ratio=10 beside=pattern
    FEC code words with errors, all corrected
nic_error_ratio.codewords_after_fec  greatest=1 direction=up ratio=10 beside=pattern
    FEC code words that could not be corrected
[{SIGNAL_QUALITY}]
frame_loss_ratio  greatest=1 1 lower direction=up ratio=10 hidden
    64-octet frames lost behind FEC, by its histogram of symbol errors
[{BIT_ERRORS}]
nic_error_ratio.pattern  greatest=1 1 lower direction=up ratio=10 hidden beside=pattern
    bit errors per bit of a test pattern between ports
sensitivity  dBm lower beside=pattern
    received power at which the bit error ratio reaches its limit
sensitivity.oma  dBm lower beside=pattern
    received OMA at which the bit error ratio reaches its limit
temperature  °C none unjudged
    temperature of a climate chamber once it has settled
[{PATH_CHANGES}] ns lower
path_change.dark  title="loss of signal"
    time without optical power while a transceiver changes its path
path_change.end_to_end  title="call to light"
    from the driver's call until optical power is on all new paths
path_change.done  title="call to acknowledgement"
    from the driver's call until the transceivers acknowledged
[{SWITCHING}] lower
switching.rise  ns
    light of one circuit from 10 % to 90 % of its level
switching.fall  ns
    light of one circuit from 90 % to 10 % of its level
switching.bounce  ns
    light of one circuit from 90 % until it stays within 0.5 dB of its level
switching.time  ns
    from the command until light stays within 0.5 dB of its level
switching.repeatability  least=0 dB none direction=up effect=difference
    range of the optical power of one circuit over all times that it was made
[{SWITCH_OPTICS}] dB lower
polarization_dependent_loss  least=0 direction=up effect=difference beside={_LIGHT}
    greatest less least loss of one circuit over all polarizations (IEC 61300-3-2)
polarization_dependent_loss.budget.noise  unjudged hidden
    standard uncertainty of the polarization dependent loss: noise
polarization_dependent_loss.budget.controller  unjudged hidden
    standard uncertainty of the polarization dependent loss: controller
polarization_dependent_loss.budget.meter  unjudged hidden
    standard uncertainty of the polarization dependent loss: meter
wavelength_dependent_loss  least=0 direction=up effect=difference beside={_WAVELENGTHS}
    greatest less least loss of one circuit over stated wavelengths (IEC 61300-3-7)
wavelength_dependent_loss.budget.noise  unjudged hidden
    standard uncertainty of the wavelength dependent loss: noise
wavelength_dependent_loss.budget.source  unjudged hidden
    standard uncertainty of the wavelength dependent loss: source
wavelength_dependent_loss.budget.meter  unjudged hidden
    standard uncertainty of the wavelength dependent loss: meter
crosstalk  direction=up effect=difference beside={_LIGHT}
    power at a dark egress over that at the egress of a circuit (IEC 61300-3-50)
crosstalk.budget.noise  unjudged hidden
    standard uncertainty of the crosstalk: noise
crosstalk.budget.meter  unjudged hidden
    standard uncertainty of the crosstalk: meter
crosstalk.budget.linearity  unjudged hidden
    standard uncertainty of the crosstalk: linearity
crosstalk.budget.dark  unjudged hidden
    standard uncertainty of the crosstalk: dark
[{TRANSCEIVERS}] lower none direction=up
# Transceivers are independent of each other.
module_power.core  W title="power of the switching core"
    power of the switching core of one transceiver
module_power.total  W title="power of the whole transceiver"
    power of one transceiver
module_temperature  °C effect=difference title="temperature inside"
    temperature inside one transceiver
[{PORT_COUNTERS}] 1 lower none effect=difference hidden
port_counter.cnp_sent
    congestion notifications that one NIC port sent during a test
port_counter.cnp_received
    congestion notifications that one NIC port received during a test
port_counter.ecn_marked
    packets with a congestion mark that one NIC port received during a test
port_counter.retransmissions
    retransmissions of RoCE by one NIC port during a test, as its driver counts them
port_counter.ack_timeouts
    acknowledgements that one NIC port waited for in vain during a test
port_counter.out_of_sequence
    packets of RoCE that one NIC port received out of sequence during a test
port_counter.sequence_errors
    sequence errors that one NIC port was told of during a test
port_counter.pfc_received
    pause frames of priorities that one NIC port received during a test
port_counter.pfc_sent
    pause frames of priorities that one NIC port sent during a test
port_counter.link_downed
    times that the RDMA link of one NIC port went down during a test
port_counter.link_recoveries
    times that the RDMA link of one NIC port recovered from errors during a test
port_counter.firmware_link_downs
    times that the link of one NIC port went down during a test, as its firmware counts them
port_counter.firmware_link_recoveries
    times that the link of one NIC port recovered during a test, as its firmware counts them
port_counter.carrier_changes  unjudged
    changes of carrier of one NIC port during a test, which changes of plan are part of
port_counter.receive_errors
    packets with errors that one NIC port received during a test
port_counter.receive_drops
    received packets that one NIC port dropped during a test
port_counter.send_errors
    packets that one NIC port could not send during a test
port_counter.send_drops
    packets to be sent that one NIC port dropped during a test
[Kernel messages] 1 lower none effect=difference hidden
kernel_messages.total  unjudged
    lines of one machine's kernel log during a test that a pattern describes
kernel_messages.link  unjudged
    lines about links, which changes of plan are part of
kernel_messages.module  unjudged
    lines about transceivers
kernel_messages.nic
    lines about firmware and queues of NICs
kernel_messages.pcie
    lines about errors and links of PCI Express
kernel_messages.gpu
    lines about errors of GPUs
kernel_messages.machine
    lines about processors, memory and tasks
kernel_messages.lost  unjudged
    lines that were overwritten, or too many, before they were read
[Optical power] none unjudged hidden
optical_power dBm
    mean power of several readings at one port or channel, read by hand or by a test
[Trials of settings] none unjudged hidden
trial.ratio  1
    what a setting of the bench changes in a quantity, as a share of its value at the first setting
trial.difference  dB
    what a setting of the bench changes in a quantity, as a difference to its value at the first
[Transceivers of NIC ports] none effect=difference hidden
transceiver.received_power  dBm higher direction=down
    power that one lane of a NIC port's module receives, by the module
transceiver.sent_power  dBm higher direction=down
    power that one lane of a NIC port's module sends, by the module
transceiver.bias  mA direction=up
    bias current of the laser of one lane of a NIC port's module
transceiver.temperature  °C direction=up
    temperature of a NIC port's module
[{SIGNAL_QUALITY}] hidden
module_signal.laser_age  share lower direction=up effect=difference
    age of the laser of one lane, as the module tells it: 100 % is the end of its life
module_signal.tec_current  share none effect=difference
    current of the thermoelectric cooler of one lane, of its greatest, as the module measures it
module_signal.laser_temperature  °C none direction=up effect=difference
    temperature of the laser of one lane, as the module measures it
module_signal.errored_frames  1 lower direction=up effect=difference
    latest errored frames (FERC) of one lane's data path at the fiber, as the module counts them
module_signal.errored_frames_minimum  1 lower direction=up effect=difference
    least errored frames (FERC) of one lane's data path at the fiber, as the module counts them
module_signal.errored_frames_average  1 lower direction=up effect=difference
    average errored frames (FERC) of one lane's data path at the fiber, as the module counts them
module_signal.errored_frames_maximum  1 lower direction=up effect=difference
    greatest errored frames (FERC) of one lane's data path at the fiber, as the module counts them
module_signal.errored_frames_total  1 lower direction=up effect=difference
    errored frames (FERC) of one lane's data path at the fiber since the module counts
module_signal.host_errored_frames  1 lower direction=up effect=difference
    latest errored frames (FERC) of one lane's data path at the host's side
module_signal.host_errored_frames_minimum  1 lower direction=up effect=difference
    least errored frames (FERC) of one lane's data path at the host's side
module_signal.host_errored_frames_average  1 lower direction=up effect=difference
    average errored frames (FERC) of one lane's data path at the host's side
module_signal.host_errored_frames_maximum  1 lower direction=up effect=difference
    greatest errored frames (FERC) of one lane's data path at the host's side
module_signal.host_errored_frames_total  1 lower direction=up effect=difference
    errored frames (FERC) of one lane's data path at the host's side since the module counts
module_signal.flag  1 none unjudged
    latched alarm or warning of a module on one of its own measurements; reading it clears it
module_signal.esnr  dB higher direction=down effect=difference
    electrical signal-to-noise ratio of one lane at the fiber, as the module measures it
module_signal.pam4_level_transition  dB higher direction=down effect=difference
    PAM4 level transition parameter of one lane at the fiber, as the module measures it
module_signal.prefec_ber  1 lower direction=up ratio=10
    latest pre-FEC BER of one lane at the fiber, as the module measures it
module_signal.prefec_ber_minimum  1 lower direction=up ratio=10
    least pre-FEC BER of one lane at the fiber, as the module measures it
module_signal.prefec_ber_average  1 lower direction=up ratio=10
    average pre-FEC BER of one lane at the fiber, as the module measures it
module_signal.prefec_ber_maximum  1 lower direction=up ratio=10
    greatest pre-FEC BER of one lane at the fiber, as the module measures it
module_signal.host_esnr  dB higher direction=down effect=difference
    electrical signal-to-noise ratio of one lane at the host's side, as the module measures it
module_signal.host_pam4_level_transition  dB higher direction=down effect=difference
    PAM4 level transition parameter of one lane at the host's side, as the module measures it
module_signal.host_prefec_ber  1 lower direction=up ratio=10
    latest pre-FEC BER of one lane at the host's side, as the module measures it
module_signal.host_prefec_ber_minimum  1 lower direction=up ratio=10
    least pre-FEC BER of one lane at the host's side, as the module measures it
module_signal.host_prefec_ber_average  1 lower direction=up ratio=10
    average pre-FEC BER of one lane at the host's side, as the module measures it
module_signal.host_prefec_ber_maximum  1 lower direction=up ratio=10
    greatest pre-FEC BER of one lane at the host's side, as the module measures it
""")
