"""From what a testbed has to what counts bit errors there: a tester's loop, a NIC port, a link."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from lightrig.harness.bench import Bench, Fabric
from lightrig.harness.measure.bit_errors.counting import (
    DEFAULT_LIMIT,
    KP4_LIMIT,
    BitErrors,
    count_all,
)
from lightrig.harness.measure.bit_errors.light import Receiver, plan_of_loop
from lightrig.harness.measure.bit_errors.rows import OF_NIC, RATIO
from lightrig.harness.measure.bit_errors.sources import MissingParameterError, Signal, TesterChannel
from lightrig.harness.measure.climate import await_steady_temperature
from lightrig.harness.measure.links import LinkObservation
from lightrig.harness.measure.reconfiguration import measure_reconfiguration
from lightrig.harness.measure.recording import Recording
from lightrig.harness.measure.signal_quality import NoDiagnosticsError, measure_signal_quality
from lightrig.instruments.core.capabilities import (
    Attenuator,
    BitErrorTester,
    ErrorCounter,
    FecSide,
    PortErrorCounters,
)
from lightrig.instruments.core.errors import DeniedError
from lightrig.testbeds import LightrigError, Limit, Link, Plan, Port, Testbed

PORT_WINDOW = 30_000_000_000
"""Shortest gate of a NIC port's counters, in ns."""


class NoCountersError(LightrigError):
    """Raised when a server has no bit error counters for its NIC ports."""


def bit_error_counter(
    fabric: Fabric,
    recording: Recording,
    tester: BitErrorTester,
    attenuator: Attenuator | None = None,
    *,
    channel: int = 1,
) -> BitErrors:
    """Make the plan that leads a tester's light back to it, and have the tester follow it.

    Waits for a climate chamber that is not steady. The attenuator in front of the tester, if given,
    is opened and set to 0 dB. channel: where the light of channel 1 comes back. Raises
    `NoLoopbackPathError`, `MissingParameterError`, `NotWarmError`, or an error of the tester.
    """
    bench = fabric.bench
    await_steady_temperature(bench, recording)
    spec = bench.testbed.instruments[tester.name]
    signal = Signal.stated(spec)
    sender, port = Port(tester.name, "1"), Port(tester.name, str(channel))
    receiver = Receiver(bench, port, signal.extinction_ratio_db)
    plan = plan_of_loop(bench.testbed, sender, port)
    if plan is not None:
        fabric.apply(plan)
    if attenuator is not None:
        in_front = receiver.channel_of(attenuator)
        attenuator.set_attenuation(in_front, 0.0)
        attenuator.set_shutter(in_front, is_open=True)
    counter = TesterChannel(tester, channel, signal)
    counter.prepare()
    limit = _limit(bench.testbed, RATIO)
    return BitErrors(
        bench,
        counter,
        recording,
        limit,
        receiver,
        burst=signal.burst,
        modulation=signal.modulation,
        pattern=signal.pattern,
    )


def measure_port_errors(
    bench: Bench, recording: Recording, ports: Iterable[Port], fec: FecSide
) -> list[str]:
    """Count bit errors by the counters of NIC ports, all at once, while their links are up.

    Returns the quantities that were recorded: of bits or symbols, as the ports count.
    Raises `NoCountersError` where a port has none, `NothingCountedError` and `NotWarmError`.
    """
    await_steady_temperature(bench, recording)
    counters = [on_port(bench, recording, port, fec) for port in ports]
    count_all(counters)
    return sorted({each.quantity for each in counters})


def measure_pattern_errors(bench: Bench, recording: Recording, links: Iterable[Link]) -> None:
    """Count while both ends of each link send and check a test pattern; the links are down.

    Raises `MissingParameterError`, `NoCountersError`, `NothingCountedError`.
    """
    await_steady_temperature(bench, recording)
    with patterns_on(bench, recording, links) as ends:
        count_all(ends)


def measure_errors_around(
    fabric: Fabric,
    links: LinkObservation,
    recording: Recording,
    plan: Plan,
    ports: Iterable[Port],
) -> list[str]:
    """Count errors before FEC, change to `plan`, and count again on its links.

    Beside the counts the transceivers' own readings are recorded, where they have some. The rows
    have the condition `moment`, before or after the reconfiguration. Returns the quantities.
    Raises what `measure_reconfiguration` and `measure_port_errors` raise.
    """
    ports = list(ports)
    quantities: set[str] = set()
    for moment in ("before", "after"):
        if moment == "after":
            measure_reconfiguration(fabric, links, recording, plan)
        recording.conditions["moment"] = f"{moment} the reconfiguration"
        try:
            quantities |= set(measure_port_errors(fabric.bench, recording, ports, "before"))
            with suppress(NoDiagnosticsError):
                measure_signal_quality(fabric.bench, recording, ports)
        finally:
            del recording.conditions["moment"]
    return sorted(quantities)


def on_port(bench: Bench, recording: Recording, port: Port, fec: FecSide) -> BitErrors:
    """Bit errors of a NIC port's counters; raises `NoCountersError` where it has none.

    The driver is queried first, then the NIC's firmware, then the FEC counters that the kernel has
    for any driver, whose unit names the quantity: bits, symbols or code words. A gate lasts at
    least 30 s. The limit is the testbed's; before FEC, where it states none, the ratio that FEC
    can correct.
    """
    server = _counting(bench, port)
    spec, (_, nic) = bench.testbed.nic_port(port), bench.testbed.nic_of(port)
    of_driver = server.port_errors(str(port), spec.netdev, fec, nic.rate_bps)
    by_driver = "before_fec" if fec == "before" else "symbols_after_fec"
    counters: list[tuple[ErrorCounter, str]] = [(of_driver, f"{OF_NIC}.{by_driver}")]
    if spec.rdma is not None:
        of_firmware = server.firmware_errors(str(port), spec.rdma, fec, nic.rate_bps)
        counters.append((of_firmware, f"{OF_NIC}.{fec}_fec"))
    of_kernel = server.fec_errors(str(port), spec.netdev, fec, nic.rate_bps)
    counters.append((of_kernel, f"{OF_NIC}.{fec}_fec"))
    refused: list[str] = []
    for counter, usual_quantity in counters:
        try:
            counter.count(duration=0)
        except DeniedError as error:
            refused.append(error.text)
            continue
        quantity = usual_quantity
        if counter is of_kernel and of_kernel.unit != "bits":
            quantity = f"{OF_NIC}.{of_kernel.unit}_{fec}_fec"
        limit = _limit(
            bench.testbed, quantity, KP4_LIMIT if fec == "before" else DEFAULT_LIMIT.value
        )
        return BitErrors(bench, counter, recording, limit, None, quantity, PORT_WINDOW)
    raise NoCountersError(f"{port}: {'; '.join(refused)}")


@contextmanager
def patterns_on(
    bench: Bench, recording: Recording, links: Iterable[Link], pattern: str = "PRBS31"
) -> Iterator[list[BitErrors]]:
    """Have both ends of each link send and check a pattern, for as long as the context lasts.

    The links are down meanwhile, and all ports are given back however the context ends.
    Raises `MissingParameterError` for a port without RDMA device, which test mode is entered by.
    """
    quantity = f"{OF_NIC}.pattern"
    limit = _limit(bench.testbed, quantity, KP4_LIMIT)
    with ExitStack() as stack:
        made = []
        for port in (port for link in links for port in (link.a, link.b)):
            server = _counting(bench, port)
            spec, (_, nic) = bench.testbed.nic_port(port), bench.testbed.nic_of(port)
            if spec.rdma is None:
                raise MissingParameterError(f"{port} has no `rdma:` device in {bench.testbed.path}")
            counter = stack.enter_context(
                server.pattern_errors(str(port), spec.rdma, pattern, nic.rate_bps)
            )
            made.append(
                BitErrors(
                    bench,
                    counter,
                    recording,
                    limit,
                    None,
                    quantity,
                    PORT_WINDOW,
                    pattern=pattern,
                )
            )
        yield made


def _counting(bench: Bench, port: Port) -> PortErrorCounters:
    server = bench.servers[port.owner]
    if not isinstance(server, PortErrorCounters):
        raise NoCountersError(f"{port.owner} cannot say what its NIC ports have counted")
    return server


def _limit(testbed: Testbed, quantity: str, default: float = DEFAULT_LIMIT.value) -> Limit:
    stated = testbed.limits.get(quantity)
    return stated or Limit(quantity, "upper", 1.0, default, "1", DEFAULT_LIMIT.confidence)
