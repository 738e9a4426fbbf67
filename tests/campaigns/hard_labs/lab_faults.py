"""Faults of hard labs for which the simulation has no option: clocks, delays, monitors, links."""

import contextlib
import itertools
import math
import random
import socket
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from unittest import mock

from lightrig.harness.bench import Bench
from lightrig.instruments.clock import Clock
from lightrig.instruments.servers.programs import kernel_stamps
from lightrig.instruments.simulated.hosts.simulated_clock import SimulatedServerClock
from lightrig.instruments.simulated.hosts.simulated_probe import SimulatedProbe
from lightrig.instruments.simulated.lab import SimulatedLab
from lightrig.testbeds import Port

MS = 1_000_000
SECOND = 1_000_000_000
FAULTY_SERVER = "server0"
PTP_CLOCK = -99
"""Number of the clock by which datagrams to that server are stamped."""
SO_TIMESTAMPING = 37
"""Kind of the control message with stamps, of Linux's asm-generic/socket.h."""
SCM_TIMESTAMPING = struct.Struct("@6q")
"""Its content, struct scm_timestamping: three times in s and ns."""


# ------------------------------------------------------------------------------------- clocks


@contextlib.contextmanager
def server_clock(reads: Callable[[int], int]) -> Iterator[None]:
    """Replace the clock of `FAULTY_SERVER`; `reads` maps time of the world to its time, in ns."""
    shipped = SimulatedLab.clock_of_server

    class FaultyClock(SimulatedServerClock):
        def reads(self, at: int) -> int:
            return reads(at)

    def of_server(self: SimulatedLab, server: str) -> SimulatedServerClock:
        return FaultyClock() if server == FAULTY_SERVER else shipped(self, server)

    with mock.patch.object(SimulatedLab, "clock_of_server", of_server):
        yield


def wandering(
    draws: random.Random, ppm: float, *, walk: float = 0.0, ramp: float = 0.0
) -> Callable[[int], int]:
    """Return a clock whose rate begins at `ppm` and changes.

    walk: standard deviation of the change in a second, in ppm. ramp: change in a minute, in ppm.
    """
    gained, rates = [0.0], [ppm]

    def reads(at: int) -> int:
        cell, rest = divmod(at, SECOND // 10)
        while len(rates) <= cell:
            gained.append(gained[-1] + rates[-1] * 1e-6 * SECOND / 10)
            rates.append(rates[-1] + draws.gauss(ramp / 600, walk * math.sqrt(0.1)))
        return at + 7 * MS + round(gained[cell] + rates[cell] * 1e-6 * rest)

    return reads


def at_command(bench: Bench, number: int, after: int, act: Callable[[], None]) -> None:
    """Schedule `act` `after` ns behind the switch's command of that number."""
    matrix, clock = _matrix(bench), bench.clock
    connect, numbers = matrix.connect, itertools.count(1)

    def connected(circuits: Any) -> int:
        if next(numbers) == number:
            clock.schedule(clock.now() + after, "injected fault", act)
        return int(connect(circuits))

    matrix.connect = connected


class _Setting:
    """Clock that is set within the second event, 40 to 200 ms behind its command."""

    _when = math.inf

    def inject(self, bench: Bench, draws: random.Random) -> None:
        """Set the clock; the first command brings the links up."""

        def step() -> None:
            self._when = bench.clock.now()

        at_command(bench, 3, round(draws.uniform(40, 200) * MS), step)


class Stepping(_Setting):
    """Clock of a server that is set by `step` ns within an event.

    With `stands`, its machine is suspended instead: all its clocks stand still for `stands` ns, and
    it takes no request and sends nothing.
    """

    def __init__(self, step: int = 0, ppm: float = 0.0, stands: int = 0) -> None:
        self._step, self._ppm, self._stands = step, ppm, stands

    def reads(self, at: int) -> int:
        """Return the server's time at a moment of the world."""
        passed = max(at - self._when, 0)
        stepped = self._step if at >= self._when else 0
        at -= min(int(passed), self._stands)
        return at + 3 * MS + round(at * self._ppm * 1e-6) + stepped

    @contextlib.contextmanager
    def patch(self, draws: random.Random) -> Iterator[None]:
        """Make the clock of one seed."""
        self._when = math.inf
        handle, answer = SimulatedProbe.handle, SimulatedProbe.answer

        def delayed(act: Callable[..., None]) -> Callable[..., None]:
            def later(self_: Any, *values: Any) -> None:
                now, resumes = self_.clock.now(), self._when + self._stands
                if self_.server == FAULTY_SERVER and self._when <= now < resumes:
                    self_.clock.schedule(resumes, FAULTY_SERVER, lambda: act(self_, *values))
                else:
                    act(self_, *values)

            return later

        with (
            server_clock(self.reads),
            mock.patch.multiple(SimulatedProbe, handle=delayed(handle), answer=delayed(answer)),
        ):
            yield


class SteppingStamps(_Setting):
    """Clock by which datagrams to a server are stamped, set by `step` ns within an event.

    The server's own clock is steady. Its datagrams are read up to 3 ms after they came, by the
    program that a real server runs (`KernelStamps`), from stamps that the world makes.

    place: 0 for the kernel's CLOCK_REALTIME, 2 for a NIC's PTP clock. ppm: rate of that clock.
    """

    def __init__(self, step: int, place: int, ppm: float = 0.0) -> None:
        self._step, self._place, self._ppm = step, place, ppm
        self._now = 0

    def _stamps_of(self, at: int) -> int:
        stepped = self._step if at >= self._when else 0
        return at + 37 * SECOND + round(at * self._ppm * 1e-6) + stepped

    def _now_here(self) -> int:
        return self._read(0)

    def _read(self, clock: int) -> int:
        self._now += 300  # a reading takes time
        return self._stamps_of(self._now) if clock == PTP_CLOCK else self._now + 9 * MS

    @contextlib.contextmanager
    def patch(self, draws: random.Random) -> Iterator[None]:
        """Give the server's datagrams stamps of that clock."""
        self._when, self._now, self._draws = math.inf, 0, draws
        self._stamps: dict[str, tuple[kernel_stamps.KernelStamps, int]] = {}
        settled = SimulatedProbe.settled

        def stamped(probe: Any, missing: Any, numbers: Any) -> dict[str, Any]:
            if probe.server != FAULTY_SERVER or probe.datagrams is None:
                return settled(probe, missing, numbers)
            steps = [step for netdev in probe.watched for step in self._stamp(probe, netdev)]
            return {**settled(probe, missing, numbers), "steps": steps}

        with (
            server_clock(lambda at: at + 9 * MS),
            mock.patch.object(SimulatedProbe, "settled", stamped),
            mock.patch.object(kernel_stamps, "now", self._now_here),
            mock.patch.object(kernel_stamps.time, "clock_gettime_ns", self._read),
        ):
            yield

    def _stamp(self, probe: Any, netdev: str) -> list[list[Any]]:
        """Stamp what a port has received since the last answer; return the steps that it saw."""
        now = probe.clock.now()
        if netdev not in self._stamps:
            self._now = probe.began
            stamps = kernel_stamps.KernelStamps({self._place: PTP_CLOCK})
            self._stamps[netdev] = stamps, probe.began
        stamps, since = self._stamps[netdev]
        came = {o.known: o.event for o in probe.observations(netdev) if o.first and o.known <= now}
        looks = {*range(since, now, MS), *came}
        for at in sorted(looks):
            self._now = max(self._now, at)
            if at in came:
                self._now = max(self._now, at + round(self._draws.uniform(0, 3) * MS))
                sock = mock.Mock(recvmsg=lambda *_, at=at: self._datagram(at))
                came[at][4] = stamps.receive(sock)[1]
            else:
                stamps.emptied()
        self._stamps[netdev] = stamps, now
        return [[netdev, *step] for step in stamps.take_steps()]

    def _datagram(self, at: int) -> tuple[bytes, list[tuple[int, int, bytes]], int, None]:
        times = [0] * 6
        times[2 * self._place : 2 * self._place + 2] = divmod(self._stamps_of(at), SECOND)
        control = SCM_TIMESTAMPING.pack(*times)
        return b"", [(socket.SOL_SOCKET, SO_TIMESTAMPING, control)], 0, None


# ------------------------------------------------------------------------------------- network


class _Delays:
    """Delays of one connection that keep the order of what is sent each way."""

    def __init__(self, clock: Clock, draw: Callable[[int], float]) -> None:
        self._clock, self._draw = clock, draw
        self.way, self._last = 0, [0, 0]

    def duration(self, _: Any) -> int:
        now, way = self._clock.now(), self.way
        self._last[way] = max(self._last[way], now + round(self._draw(way)))
        return self._last[way] - now


@contextlib.contextmanager
def delays(draw: Callable[[int], float]) -> Iterator[None]:
    """Draw each delay between harness and servers, in ns: to a server (0), and back (1)."""
    begin, line, reply = SimulatedProbe.__init__, SimulatedProbe.line, SimulatedProbe.reply

    def begun(self: Any, *values: Any, **named: Any) -> None:
        begin(self, *values, **named)
        self.draws = _Delays(self.clock, draw)

    def to_server(self: Any, text: str) -> None:
        self.draws.way = 0
        line(self, text)

    def back(self: Any, *values: Any) -> None:
        self.draws.way = 1
        reply(self, *values)

    with mock.patch.multiple(SimulatedProbe, __init__=begun, line=to_server, reply=back):
        yield


# ------------------------------------------------------------------------------------- monitors


def late_monitors(bench: Bench, latency: int) -> None:
    """Delay the readings of the switch's monitors by `latency` ns."""
    matrix = _matrix(bench)
    readings = matrix.readings

    def late(*ports: Any) -> list[float]:
        real, matrix.clock = matrix.clock, mock.Mock(now=lambda: max(real.now() - latency, 0))
        try:
            return readings(*ports)
        finally:
            matrix.clock = real

    matrix.readings = late


def previous_readings(bench: Bench) -> None:
    """Answer each query of the switch's monitors with the reading of the query before."""
    matrix = _matrix(bench)
    readings, last = matrix.readings, {}

    def previous(egresses: Any, ingresses: Any = ()) -> list[float]:
        egresses, ingresses = tuple(egresses), tuple(ingresses)
        found = readings(egresses, ingresses)
        shown = last.get((egresses, ingresses), found)
        last[egresses, ingresses] = found
        return shown

    matrix.readings = previous


def saturated_monitors(bench: Bench, most_dbm: float) -> Callable[[], bool]:
    """Limit the readings of the switch's monitors; the result says whether that can be told.

    It can where three or more readings of one setting were limited in two settings or at two
    monitors; less looks like a monitor that stood still for a moment.
    """
    matrix = _matrix(bench)
    limited, setting = Counter[tuple[int, int, int]](), itertools.count()
    readings, connect, now = matrix.readings, matrix.connect, [next(setting)]

    def connected(circuits: Any) -> int:
        now[0] = next(setting)
        return int(connect(circuits))

    def limit(egresses: Any, ingresses: Any = ()) -> list[float]:
        egresses, ingresses = tuple(egresses), tuple(ingresses)
        found = readings(egresses, ingresses)
        places = [(0, port, now[0]) for port in egresses] + [
            (1, port, now[0]) for port in ingresses
        ]
        limited.update(place for place, dbm in zip(places, found, strict=True) if dbm > most_dbm)
        return [min(dbm, most_dbm) for dbm in found]

    matrix.readings, matrix.connect = limit, connected
    return lambda: sum(count >= 3 for count in limited.values()) >= 2


# ------------------------------------------------------------------------------- light and links


class Stretched:
    """Source of durations in ns, each changed by `stretch`."""

    def __init__(self, draws: Any, stretch: Callable[[int], float]) -> None:
        self._draws, self._stretch = draws, stretch

    def duration(self, *values: Any) -> int:
        return round(self._stretch(self._draws.duration(*values)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._draws, name)


def slow_links(bench: Bench, ports: Iterable[str], factor: float) -> None:
    """Multiply the delays of the links of some NIC ports by `factor`."""
    assert bench.world is not None
    for port in ports:
        timeline = bench.world.links.timeline(Port(*port.split(".", 1)))
        timeline.draws = Stretched(timeline.draws, lambda took: took * factor)  # type: ignore[assignment]


def switching_times(bench: Bench, stretch: Callable[[int], float]) -> None:
    """Apply `stretch` to each duration in ns that the switch takes."""
    matrix = _matrix(bench)
    matrix.delays = Stretched(matrix.delays, stretch)


def flapping(bench: Bench, port: str, after: int, lasting: int) -> None:
    """Interrupt the link of a port `after` ns behind each joining, for `lasting` ns.

    A link that has been parted, or has another partner by then, is left as it is.
    """
    assert bench.world is not None
    links, clock = bench.world.links, bench.clock
    join, name = links.join, Port(*port.split(".", 1))

    def joined(one: Port, other: Port, at: int) -> None:
        join(one, other, at)
        if name in (one, other) and clock.now() - joined_at.get(name, -SECOND) > SECOND:
            joined_at[name] = clock.now()
            lost = at + after
            clock.schedule(lost, f"{name}!flap", lambda: flap(one, other, lost))

    def flap(one: Port, other: Port, at: int) -> None:
        if links.timeline(one).partner == other:
            links.part(one, other, at)
            clock.schedule(at + lasting, f"{name}!back", lambda: back(one, other, at + lasting))

    def back(one: Port, other: Port, at: int) -> None:
        if links.timeline(one).heard == other and links.timeline(other).heard == one:
            join(one, other, at)

    joined_at: dict[Port, int] = {}
    links.join = joined  # type: ignore[method-assign]


def _matrix(bench: Bench) -> Any:
    assert bench.world is not None
    return bench.world.matrices["ocs"]
