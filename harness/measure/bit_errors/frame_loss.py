"""Frame loss ratio of NIC ports, bounded by the histogram of FEC symbol errors of code words."""

from collections.abc import Iterable, Iterator

from lightrig.harness.bench import Bench
from lightrig.harness.measure.bit_errors.counting import CONFIDENCE
from lightrig.harness.measure.bit_errors.rows import FRAME_LOSS
from lightrig.harness.measure.bit_errors.setup import PORT_WINDOW, NoCountersError
from lightrig.harness.measure.climate import await_steady_temperature
from lightrig.harness.measure.closure import closure_row
from lightrig.harness.measure.gates import NothingCountedError
from lightrig.harness.measure.recording import Recording
from lightrig.harness.record import Row
from lightrig.harness.statistics.closure import CLOSURE_ERROR, judge_bounds
from lightrig.harness.statistics.frame_loss import (
    Code,
    FrameLoss,
    frame_loss_of_bit_errors,
    frame_loss_of_histogram,
)
from lightrig.instruments.core.capabilities import (
    HasFecHistograms,
    PendingHistogram,
    SymbolErrorHistogram,
)
from lightrig.instruments.core.errors import DeniedError
from lightrig.testbeds import Port, format_duration

_TWO_CODEWORDS_BPS = 200e9
"""From this rate on frames are spread between two code words (IEEE 802.3, 119.2.4.6)."""


def measure_frame_loss(bench: Bench, recording: Recording, ports: Iterable[Port]) -> None:
    """Record the frame loss ratio of NIC ports, all at once, while their links are up.

    The bound is at the confidence of the testbed's limit on it, else at 95 %. Raises
    `NoCountersError` where a port has no histogram, `NothingCountedError` where one was reset.
    """
    await_steady_temperature(bench, recording)
    ports = list(ports)
    recording.announce(
        f"{len(ports)} FEC histograms, each: {format_duration(PORT_WINDOW)} of code words"
    )
    gates = [(port, _gate(bench, port)) for port in ports]
    limit = bench.testbed.limits.get(FRAME_LOSS)
    confidence = (limit.confidence if limit else None) or CONFIDENCE
    event, void = recording.next_event(), dict[str, str]()
    for port, gate in gates:
        counted = gate.result()
        if counted.void is not None:
            void[str(port)] = counted.void
            continue
        _, nic = bench.testbed.nic_of(port)
        interleaved = 2 if nic.rate_bps >= _TWO_CODEWORDS_BPS else 1
        code = Code(counted.symbols, counted.correctable, interleaved)
        loss = _bounded(counted, code, confidence)
        recording.record(_rows(bench, port, counted, loss, code, event))
        recording.announce(f"{port}: {loss.reason}")
    if void:
        raise NothingCountedError(void)


def _gate(bench: Bench, port: Port) -> PendingHistogram:
    server, spec = bench.servers[port.owner], bench.testbed.nic_port(port)
    _, nic = bench.testbed.nic_of(port)
    if not isinstance(server, HasFecHistograms):
        raise NoCountersError(f"{port.owner} cannot say what its NIC ports have counted")
    counter = server.fec_histogram(str(port), spec.netdev, nic.rate_bps)
    try:
        return counter.count(duration=PORT_WINDOW)
    except DeniedError as error:
        raise NoCountersError(f"{port}: {error.text}") from error


def _bounded(counted: SymbolErrorHistogram, code: Code, confidence: float) -> FrameLoss:
    return frame_loss_of_histogram(
        counted.bins, counted.uncorrectable, counted.codewords, code, confidence
    )


def _rows(
    bench: Bench,
    port: Port,
    counted: SymbolErrorHistogram,
    loss: FrameLoss,
    code: Code,
    event: int,
) -> Iterator[Row]:
    time, subject = counted.began.earliest, str(port)
    conditions = {
        "event": event,
        "codewords": counted.codewords,
        "lost": counted.uncorrectable,
        "most_symbol_errors": max((low for low, _, count in counted.bins if count), default=0),
        "symbols": code.symbols,
        "confidence": loss.confidence,
    }
    if loss.anchor is not None:
        conditions["extrapolated_from"] = loss.anchor
    yield Row(subject, FRAME_LOSS, loss.value, loss.lower, loss.upper, "1", time, conditions)
    true = None if bench.truth is None else bench.truth.bit_error_ratio(f"{subject}.before_fec")
    if true is not None:
        true_loss = frame_loss_of_bit_errors(true, code)
        sure = _bounded(counted, code, 1 - CLOSURE_ERROR)
        verdict = judge_bounds([sure.lower <= true_loss <= sure.upper])
        yield closure_row(subject, "closure.frame_loss_ratio", verdict, time, event)
