"""Labs that are reconfigured end to end, in virtual time: light, links and datagrams.

The ground truth is taken from the world where it arises: light that leaves an egress, the state of
a link, the moments at which the switch took a command and sent its reply. Neither the harness's
stamps nor its closure are used.
"""

import contextlib
import json
import math
import random
import re
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from lightrig.harness.bench import Bench, Fabric, bind
from lightrig.harness.measure.bring_up import bring_up
from lightrig.harness.measure.links import DATAGRAM_PERIOD, POLL_PERIOD, LinkObservation
from lightrig.harness.measure.reconfiguration import measure_reconfiguration
from lightrig.harness.measure.recording import Recording
from lightrig.harness.record import Row
from lightrig.instruments.core.stages import STAGES
from lightrig.instruments.simulated.protocols.device_server import TcpDeviceConnection
from lightrig.testbeds import LightrigError, Port, load
from lightrig.testbeds.quantities import parse_duration
from tests.campaigns.hard_labs.found import Found, Lab

MS = 1e6
SETTLED = 10**-0.05
"""Share of its final level above which light is settled: 0.5 dB below, as the stages define."""

LIGHT = ("los", "signal_recovered")
CARRIER = ("carrier_down", "carrier_up", "outage.carrier")
DATAGRAM = ("datagrams_lost", "first_datagram", "outage.datagram")
ALL = ("acknowledged", *LIGHT, *CARRIER, *DATAGRAM)

Inject = Callable[[Bench, random.Random], None]
Patch = Callable[[random.Random], contextlib.AbstractContextManager[None]]

COMMAND = re.compile(rb"(?:ENT|DLT|ED)-PATCH:[^:]*:[^:]*:([^:;]+)")
ANSWER = re.compile(rb"M +(\S+) (?:COMPLD|DENY)")

Levels = list[tuple[int, float]]
"""Moments in ns, and the value from each on."""


def described(
    simulation: Mapping[str, Any], switch: Mapping[str, Any] | None = None, ports: int = 2
) -> dict[str, Any]:
    """Return the description of a Polatis and two servers with so many ports each.

    Light is away for some 29 ms, never for less than a window of the monitors: a shorter darkness
    may go unseen.

    simulation, switch: what differs in the world, and in the description of the switch.
    """
    nic = {"ports": ports, "netdev": "ens1f{p}", "rate": "100G", "transceiver": "lr4"}
    kind = {
        "switches": {
            "ocs": {
                "acknowledge": {"mean": "30 ms", "sd": "3 ms"},
                "dark": {"mean": "6 ms", "sd": "1 ms"},
                "settle": {"mean": "35 ms", "sd": "4 ms"},
                "monitor": {"averaging": "10 ms", "noise": "0.03 dB"},
            }
        },
        "nic": {
            "bring_up": {"mean": "300 ms", "sd": "30 ms"},
            "resume": {"mean": "5 ms", "sd": "1 ms"},
        },
        "clocks": {"offset": {"sd": "5 ms"}},
        "network": {"delay": {"mean": "20 us", "sd": "5 us"}},
    }
    return {
        "name": "lab",
        "switches": {
            "ocs": {
                "model": "polatis",
                "address": "tl1://ocs.invalid",
                "size": "8x8",
                "options": {"rerouting": True},
                **(switch or {}),
            }
        },
        "servers": {
            "server[0-1]": {"address": "ssh://{name}.invalid", "nics": {"nic0": nic}},
        },
        "transceivers": {
            "lr4": {
                "wavelength": "1310 nm",
                "launch": {"min": "-4 dBm", "max": "4 dBm"},
                "receive": {"min": "-10 dBm", "max": "4 dBm"},
            }
        },
        "fibers": [f"server[0-1].nic0.p[0-{ports - 1}] <-> ocs"],
        "plans": {
            "straight": [f"server0.nic0.p{n} <-> server1.nic0.p{n}" for n in (0, 1)],
            "crossed": [f"server0.nic0.p{n} <-> server1.nic0.p{1 - n}" for n in (0, 1)],
        },
        "simulation": merged(kind, simulation),
    }


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return two mappings as one, in which `above` is stronger."""
    found = dict(below)
    for name, value in above.items():
        both = isinstance(value, Mapping) and isinstance(found.get(name), Mapping)
        found[name] = merged(found[name], value) if both else value
    return found


@contextlib.contextmanager
def bound(description: Mapping[str, Any], seed: int) -> Iterator[Bench]:
    """Bind a testbed to a simulated world."""
    with tempfile.TemporaryDirectory(prefix="lightrig-labs-") as folder:
        path = Path(folder) / "lab.yaml"
        path.write_text(json.dumps(description))
        bench = bind(load(path), "simulated", seed)
        try:
            yield bench
        finally:
            bench.close()


@contextlib.contextmanager
def tapped(bench: Bench, tap: Callable[[int, int, bytes], None]) -> Iterator[None]:
    """Pass all bytes that the switch receives and sends to `tap`, with time and client."""
    assert bench.world is not None
    port, clock = bench.world.services["ocs"].port, bench.clock
    received, send = TcpDeviceConnection.received, TcpDeviceConnection.send

    def tap_received(self: TcpDeviceConnection) -> bytes:
        data = received(self)
        if data and self._socket.getsockname()[1] == port:
            tap(clock.now(), self._socket.getpeername()[1], data)
        return data

    def tap_sent(self: TcpDeviceConnection, data: bytes) -> None:
        if data and self._socket.getsockname()[1] == port:
            tap(clock.now(), self._socket.getpeername()[1], data)
        send(self, data)

    with (
        mock.patch.object(TcpDeviceConnection, "received", tap_received),
        mock.patch.object(TcpDeviceConnection, "send", tap_sent),
    ):
        yield


class Signals:
    """Ground truth of a world: commands, light and link states, recorded where they arise."""

    def __init__(self, bench: Bench) -> None:
        world = bench.world
        assert world is not None
        self._links, self._ports = world.links, [s.port for s in bench.testbed.nic_ports]
        self._clock = bench.clock
        # A link with flaps has more transitions in an event than the world retains.
        self._links.history = 1_000
        self.commands: dict[tuple[int, bytes], tuple[int, int]] = {}
        self.light: defaultdict[str, Levels] = defaultdict(list)
        self.states: defaultdict[tuple[str, str], Levels] = defaultdict(list)
        self._emit, world.light.emit = world.light.emit, self._note_light  # type: ignore[method-assign]

    def tap(self, at: int, client: int, data: bytes) -> None:
        """Record bytes on a cable to the switch: TL1 commands, and replies to them by tag."""
        for tag in COMMAND.findall(data):
            self.commands[client, tag] = at, at
        for tag in ANSWER.findall(data):
            if (client, tag) in self.commands:
                self.commands[client, tag] = self.commands[client, tag][0], at

    def _note_light(self, source: Port, milliwatt: float, origin: Port | None, at: int) -> None:
        self.light[str(source)].append((at, milliwatt))
        self._emit(source, milliwatt, origin, at)

    def take_links(self) -> None:
        """Record the transitions of all links until now; planned ones may be withdrawn yet."""
        now = self._clock.now()
        for port in self._ports:
            for at, signal, up, _ in self._links.timeline(port).transitions:
                states = self.states[str(port), signal]
                if at <= now and (not states or states[-1][0] < at):
                    states.append((at, float(up)))

    def truths(self, since: int, watched: Mapping[str, float]) -> dict[tuple[str, str], float]:
        """Return each quantity of each subject in ms after the first command since `since`.

        watched: for how long, in ns, the harness watched each switch or server; a stage is defined
        within that time.
        """
        calls = [call for call in self.commands.values() if since <= call[0]]
        if not calls:
            return {}
        sent, answered = calls[0][0], max(call[1] for call in calls)
        found: dict[tuple[str, str], float] = {("ocs", "acknowledged"): float(answered)}

        def until(subject: str) -> float:
            return sent + watched.get(subject.partition(".")[0], math.inf)

        for subject, levels in self.light.items():
            if subject.startswith("ocs."):
                lost, back = light_changes(levels, sent, until(subject))
                found[subject, "los"], found[subject, "signal_recovered"] = lost, back
        for (subject, signal), states in self.states.items():
            dark = interruptions(states, sent, until(subject))
            if signal == "firmware" or not dark:
                continue
            names = CARRIER if signal == "carrier" else DATAGRAM
            lost = next((down for down, _ in dark if not math.isnan(down)), math.nan)
            back = next((up for _, up in reversed(dark) if not math.isnan(up)), math.nan)
            if signal == "datagram":
                over = [pair for pair in dark if not math.isnan(pair[1] - pair[0])]
                lost, back = max(over or dark, key=lambda pair: pair[1] - pair[0])
            found[subject, names[0]], found[subject, names[1]] = lost, back
            found[subject, names[2]] = back - lost + sent
        return {key: (at - sent) / MS for key, at in found.items() if not math.isnan(at)}


def light_changes(levels: Levels, since: int, until: float) -> tuple[float, float]:
    """Return the first loss of signal and the final recovery, in ns; NaN for one without."""
    before = next((level for at, level in reversed(levels) if at < since), 0.0)
    after = [(since, before), *((at, level) for at, level in levels if since <= at <= until)]
    lost = next((at for at, level in after if level < before * SETTLED), math.nan)
    final = after[-1][1]
    unlike = [n for n, (_, level) in enumerate(after) if not _alike(level, final)]
    if not final or not unlike:
        return lost, math.nan
    return lost, after[unlike[-1] + 1][0]


def _alike(level: float, final: float) -> bool:
    return SETTLED * final <= level <= final / SETTLED


def interruptions(states: Levels, since: int, until: float) -> list[tuple[float, float]]:
    """Return each fall after `since` with the rise that follows until then, NaN without one.

    A link that was down before has no fall.
    """
    found: list[tuple[float, float]] = []
    for at, up in states:
        if not since <= at <= until:
            continue
        if not up:
            found.append((at, math.nan))
        elif found:
            found[-1] = (found[-1][0], at)
        else:
            found.append((math.nan, at))
    return found


@dataclass(frozen=True)
class Timing(Lab):
    """Hard lab that is reconfigured `events` times.

    Attributes:
        simulation: what differs from the ideal lab's.
        switch: further fields of the switch in the testbed.
        inject: changes the world before anything is measured.
        patch: context in which the world is built and measured.
        events: number of changes of plan.
        pause_s: time before each change, in s.
        round_trip_ms: least round trip to a server, within which causality orders nothing.
    """

    simulation: Mapping[str, Any] = field(default_factory=dict)
    switch: Mapping[str, Any] = field(default_factory=dict)
    inject: Inject = lambda bench, draws: None
    patch: Patch = lambda draws: contextlib.nullcontext()
    events: int = 6
    pause_s: float = 0.0
    round_trip_ms: float = 0.04

    def resolution(self, quantity: str) -> float:
        """Return the width of the narrowest bounds, in ms, of an observer without noise.

        A monitor's reading shows a change anywhere in its window, since its weights are not known,
        and the reading before it may show the change nowhere in its own; polls and datagrams leave
        a period, and causality a round trip. An outage has two ends.
        """
        if quantity in LIGHT:
            world = described(self.simulation, self.switch)["simulation"]["switches"]["ocs"]
            window = parse_duration(world["monitor"]["averaging"])
            return (2 * window + parse_duration(self.switch.get("monitor_latency", "0 s"))) / MS
        if quantity not in (*CARRIER, *DATAGRAM):
            return 0.0
        period = (POLL_PERIOD if quantity in CARRIER else DATAGRAM_PERIOD) / MS
        return (1 + quantity.startswith("outage")) * (period + self.round_trip_ms)

    def measure(self, seed: int, found: Found) -> None:
        """Reconfigure, and compare each recorded interval with the ground truth."""
        draws = random.Random(f"labs {seed}")
        with (
            warnings.catch_warnings(record=True) as warned,
            self.patch(draws),
            bound(described(self.simulation, self.switch), seed) as bench,
        ):
            warnings.simplefilter("always")
            signals = Signals(bench)
            self.inject(bench, draws)
            with tapped(bench, signals.tap):
                _Run(self, bench, signals, found).go()
        found.sentences += [str(one.message) for one in warned]


class _Run:
    def __init__(self, lab: Timing, bench: Bench, signals: Signals, found: Found) -> None:
        self.lab, self.bench, self.signals, self.found = lab, bench, signals, found
        self.rows: list[Row] = []
        self.fabric, self.links = Fabric(bench), LinkObservation(bench)
        self.recording = Recording(self.rows.extend, note=self._note)

    def _note(self, sentence: str, *, in_report: bool) -> None:
        self.found.sentences.append(sentence)

    def go(self) -> None:
        self._bring_up("straight")
        for number in range(self.lab.events):
            self.bench.clock.sleep(round(self.lab.pause_s * 1e9))
            plan = self.bench.testbed.plans[("crossed", "straight")[number % 2]]
            self.rows.clear()
            since = self.bench.clock.now()
            problem = None
            try:
                measure_reconfiguration(self.fabric, self.links, self.recording, plan)
            except LightrigError as error:
                problem = f"{type(error).__name__}: {error}"
                self.found.sentences.append(problem)
            self.signals.take_links()
            self._compare(since, links_came=problem is None or _lacks_light_alone(problem))
            if problem is not None:
                self._bring_up(plan.name)

    def _bring_up(self, plan: str) -> None:
        for _ in range(3):
            try:
                bring_up(self.fabric, self.links, self.bench.testbed.plans[plan])
                break
            except LightrigError as error:
                self.found.sentences.append(f"{type(error).__name__}: {error}")
        self.signals.take_links()

    def _compare(self, since: int, *, links_came: bool) -> None:
        """Compare the rows of an event; without its links, not those of datagrams.

        Where a link did not come, the longest interruption is one that had not ended, or another.
        """
        watched = [row for row in self.rows if row.quantity == "watched" and row.upper]
        true = self.signals.truths(since, {row.subject: row.upper or 0.0 for row in watched})
        # What changed in the last moments may be in a server's last answer, or not.
        early = self.signals.truths(since, {row.subject: row.lower or 0.0 for row in watched})
        quantities = ALL if links_came else ("acknowledged", *LIGHT, *CARRIER)
        for row in self.rows:
            name = row.quantity
            if name == "outage.flap":
                self.found.sentences.append(f"flap of {row.subject}")
            if name not in quantities or row.lower is None or row.upper is None:
                continue
            truth = true.pop((row.subject, name), math.nan)
            ends = row.value / MS, row.lower / MS, row.upper / MS
            before = early.get((row.subject, name), math.nan)
            if not ends[1] <= truth <= ends[2] and ends[1] <= before <= ends[2]:
                truth = before
            self.found.holds(name, "bound", *ends, truth, self.lab.resolution(name))
        for _, name in true:
            self.found.declines(name)


def _lacks_light_alone(problem: str) -> bool:
    """Whether nothing but recoveries of signal was not seen in an incomplete event."""
    missing = problem.partition("not seen: ")[2].partition(";")[0]
    return bool(missing) and all(each.endswith(LIGHT[1]) for each in missing.split(", "))


assert {*ALL} & {*STAGES} == {*ALL} - {"outage.carrier", "outage.datagram"}
