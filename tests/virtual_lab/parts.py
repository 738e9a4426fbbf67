"""What is tried on the virtual lab, each part with a truth of its own.

A part returns the lines that tell what was seen, and raises `AssertionError` where that is wrong.
"""

import contextlib
import itertools
import os
import random
import re
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from lightrig.harness.record.row import Row

from .captures import capturing
from .carrier import Monitor
from .comparison import Move, PortTruth, parse_moves, summary
from .lab import LIGHTRIG, SERVERS, VirtualLab
from .runs import Run, compared_run, pytest_command, pytest_on, rows_by_test
from .server_parts import kernel_log, swapped_addresses
from .steps import ROOT, VirtualLabError
from .time_server import serving

EVENTS = 2
_OURS = r"lightrig|ib_(send|write|read)|iperf3|^(sh|sudo|timeout|ethtool|grep|rdma|ip|dcb|tc) "
_KILLED = "suites/test_reconfiguration.py", "suites/jobs/test_rdma.py"
_LEFT_SECONDS = 30
_PAUSED_EVENTS = 12
"""One of them set aside is no tenth, from which on a run is inconclusive."""

_PAUSE_SECONDS = 1.5
_CUT_SECONDS = 0.9
_COMMAND_SECONDS = 1800
"""Of doctor, whose every program takes seconds to start on an emulated server."""

_TIME_SERVERS_PPM = (50, -20)
_CHRONY = "/run/virtual-lab-chrony"

_TRACKED = ("System time", "Frequency", "Residual freq", "Skew")

Part = Callable[[VirtualLab], list[str]]


def conformance(lab: VirtualLab) -> list[str]:
    """Conformance of the switch: its own suite passes."""
    status, said = pytest_on(lab, ["suites/test_conformance.py"])
    assert status == 0, said[-4000:]
    return [_last(said)]


def reconfiguration(lab: VirtualLab) -> list[str]:
    """Each row of carriers, datagrams and whole events holds the truth of links and taps."""
    return _reconfiguration(lab, "reconfiguration", EVENTS)


def hundred_events(lab: VirtualLab) -> list[str]:
    """The same, with a hundred events, in four runs."""
    runs = [_shown(lab, f"hundred_events/{number}", 25) for number in range(4)]
    _assert_all_held(runs)
    return _told(*runs)


def outage_with_netem(lab: VirtualLab) -> list[str]:
    """The same while datagrams are delayed, reordered, doubled and lost in one server's kernel."""
    lines, runs = list[str](), list[Run]()
    for options in (
        "delay 10ms reorder 25% 50%",
        "duplicate 5%",
        "loss 0.1%",
        "loss 5%",
        "delay 20ms",
        "delay 20ms 5ms",
    ):
        with netem(lab, 0, options):
            runs.append(_shown(lab, "netem_" + re.sub(r"\W+", "_", options), EVENTS))
        lines += [f"netem {options}:", *_told(runs[-1])]
    _assert_all_held(runs)
    return lines


def disciplined(lab: VirtualLab) -> list[str]:
    """The same while chronyd follows a time server that is 50 ppm fast, or 20 ppm slow."""
    return _disciplined(lab, "disciplined", 2 * EVENTS, 0)


def disciplined_hour(lab: VirtualLab) -> list[str]:
    """The same for an hour, in which chronyd goes on: runs of 25 events, one after the other."""
    return _disciplined(lab, "disciplined_hour", 25, 3600)


def rdma(lab: VirtualLab) -> list[str]:
    """perftest over rxe: the kernel has counted what was sent, and no program is left.

    Ports reply to ARP and filter as Linux is set at first: Lightrig sets what RDMA needs, each port
    then replies for itself alone, and all is put back.
    """
    sent_before = _rdma_counts(lab)
    with (
        as_linux_is_set_at_first(lab),
        capturing(lab.plant_pid, lab.folder / "arp.pcap", "arp") as arp,
    ):
        before = _settings(lab)
        status, said = pytest_on(lab, ["suites/jobs/test_rdma.py", "--samples", "1"])
        after = _settings(lab)
    sent = {key: count - sent_before[key] for key, count in _rdma_counts(lab).items()}
    assert status == 0, said[-4000:]
    assert after == before
    replies = arp.arp_replies()
    own = {(f"192.0.2.{2 * n + p + 1}", f"52:54:00:77:0{n}:0{p}") for n in (0, 1) for p in (0, 1)}
    assert replies, "no port asked for another by ARP"
    assert replies <= own, f"ports replied for others: {sorted(replies - own)}"
    assert all(count > 0 for count in sent.values()), f"packets by the kernel: {sent}"
    _assert_nothing_is_left(lab)
    return [
        *(_last(said), f"RDMA packets by the kernel: {sent}"),
        f"{len(replies)} ports replied to ARP, each for itself",
    ]


def doctor(lab: VirtualLab) -> list[str]:
    """doctor calls nothing of a sound lab wrong, but what a virtual machine cannot have."""
    status, said = _lightrig(lab, "doctor", str(lab.testbed), "--yes")
    wrong = [line for line in said.splitlines() if line.strip().startswith("wrong")]
    unexpected = [line for line in wrong if "module" not in line and "NIC" not in line]
    assert not unexpected, said
    return [f"doctor: status {status}, {len(wrong)} of ports without a module", *wrong]


def kills(lab: VirtualLab) -> list[str]:
    """pytest is killed as circuits move and later: nothing is left there, restore is right."""
    return _kills(lab, moments=(0.0, 1.0, 20.0), moved=True)


def thirty_kills(lab: VirtualLab) -> list[str]:
    """The same, thirty times, at random moments from its start on."""
    draws = random.Random(30)
    return _kills(lab, moments=[draws.uniform(0, 120) for _ in range(30)], moved=False)


def paused_server(lab: VirtualLab) -> list[str]:
    """A server that stands still for 1.5 s as circuits change: no row contradicts its truth.

    Its clock has stood still too: the event is set aside, and the run goes on.
    """
    noted = len(lab.notes.read_text().splitlines())
    paused = threading.Thread(target=_pause, args=(lab, 0, noted))
    paused.start()
    run = _compared(lab, "paused", _PAUSED_EVENTS)
    paused.join()
    assert not run.wrong, "\n".join(run.wrong)
    aside = [str(row) for row in _without_clock(run)]
    assert len(aside) == 1, f"events set aside: {aside}\n{run.said[-4000:]}"
    return [*_told(run), f"set aside, since a clock told no times: {aside[0]}"]


def _pause(lab: VirtualLab, server: int, noted: int) -> None:
    """Let a server stand still as the first links go down that came up after that many notes."""
    monitor = Monitor(lab.monitor_path(server))
    with contextlib.closing(monitor):
        deadline = time.monotonic() + _COMMAND_SECONDS
        up, moves = False, list[Move]()
        while not up or moves[-1].up:
            assert time.monotonic() < deadline, "no circuits changed"
            time.sleep(0.01)
            moves = parse_moves("\n".join(lab.notes.read_text().splitlines()[noted:]))
            up = any(move.up for move in moves)
        monitor.command("stop")
        time.sleep(_PAUSE_SECONDS)
        monitor.command("cont")


def survive(lab: VirtualLab) -> list[str]:
    """A job over TCP outlives a cut of one second, which the links show; the servers are as before.

    The servers are used as root, and as namespaces behind SSH, whose routes are the run's.
    """
    text = lab.testbed.read_text()
    text = text.replace("ssh://bench@{name}", "ssh://root@{name}\n    kind: namespace")
    file = lab.testbed.with_name("served_as_root.yaml")
    file.write_text(re.sub(r" *login: env:VIRTUAL_LAB_LOGIN\n| *become: true\n", "", text))
    before, noted = _settings(lab), len(lab.notes.read_text().splitlines())
    status, said = _lightrig(
        lab,
        "survive",
        str(file),
        *("--library", "tcp", "--fault", "cut:1s", "--instruments", "hardware"),
    )
    assert status == 0, said
    moves = parse_moves("\n".join(lab.notes.read_text().splitlines()[noted:]))
    longest = max((truth.up.latest - truth.down.earliest) / 1e9 for truth in _darkness(moves))
    assert longest >= _CUT_SECONDS, f"no link was dark for longer than {longest:.3f} s"
    _assert_nothing_is_left(lab)
    assert _settings(lab) == before
    return [*said.splitlines(), f"the links: dark for {longest:.3f} s"]


def _darkness(moves: Sequence[Move]) -> Iterator[PortTruth]:
    """Yield each time in which a link was down."""
    down: dict[str, Move] = {}
    for move in moves:
        if not move.up:
            down.setdefault(move.port, move)
        elif move.port in down:
            yield PortTruth(down.pop(move.port).at, move.at)


PARTS: dict[str, Part] = {
    "conformance": conformance,
    "reconfiguration": reconfiguration,
    "netem": outage_with_netem,
    "disciplined": disciplined,
    "rdma": rdma,
    "doctor": doctor,
    "kills": kills,
    "survive": survive,
    "paused": paused_server,
    "kernel-log": kernel_log,
    "addresses": swapped_addresses,
}
LONG_PARTS: dict[str, Part] = {
    "hundred-events": hundred_events,
    "disciplined-hour": disciplined_hour,
    "thirty-kills": thirty_kills,
}


@contextlib.contextmanager
def as_linux_is_set_at_first(lab: VirtualLab) -> Iterator[None]:
    """Let any port reply for all addresses of its server, and filter strictly by routes."""
    names = [f"net.ipv4.conf.all.{name}" for name in ("arp_ignore", "arp_announce", "rp_filter")]
    names += [f"net.ipv4.conf.fabric{port}.rp_filter" for port in (0, 1)]
    found = lab.run_on_all(f"sysctl {' '.join(names)} | tr -d ' '", "root")
    values = zip(names, (0, 0, 0, 1, 1), strict=True)
    lab.run_on_all("sysctl -q " + " ".join(f"{name}={value}" for name, value in values), "root")
    try:
        yield
    finally:
        for server, lines in enumerate(found):
            lab.run(server, f"sysctl -q {' '.join(lines.split())}", "root")


@contextlib.contextmanager
def netem(lab: VirtualLab, server: int, options: str) -> Iterator[None]:
    """Let the kernel of a server disturb what both of its ports send."""
    for device in ("fabric0", "fabric1"):
        lab.run(server, f"tc qdisc replace dev {device} root netem {options}", "root")
    try:
        yield
    finally:
        for device in ("fabric0", "fabric1"):
            lab.run(server, f"tc qdisc del dev {device} root", "root")


def _reconfiguration(lab: VirtualLab, name: str, events: int) -> list[str]:
    run = _compared(lab, name, events)
    _assert_all_held([run])
    return _told(run)


def _shown(lab: VirtualLab, name: str, events: int) -> Run:
    """Return a run of several, and print at once what it has shown."""
    run = _compared(lab, name, events)
    print("".join(f"{name}: {line}\n" for line in [*_told(run), *run.wrong]), end="", flush=True)
    return run


def _assert_all_held(runs: Sequence[Run]) -> None:
    wrong = [line for run in runs for line in run.wrong]
    assert not wrong, "\n".join(wrong)


def _compared(lab: VirtualLab, name: str, events: int) -> Run:
    arguments = ["suites/test_reconfiguration.py", "-k", "between_plans", "--samples", str(events)]
    run = compared_run(lab, name, arguments)
    assert run.verdicts, run.said[-4000:]
    return run


def _told(*runs: Run) -> list[str]:
    left_out = sum(len(run.without_row) for run in runs)
    return [
        *[f"pytest: {_last(run.said)}" for run in runs],
        *summary([verdict for run in runs for verdict in run.verdicts])[:-1],
        f"{sum(len({verdict.event for verdict in run.verdicts}) for run in runs)} events",
        f"{left_out} ports without a row, {sum(run.merged for run in runs)} moves not noticed",
    ]


def _disciplined(lab: VirtualLab, name: str, events: int, seconds: float) -> list[str]:
    """Measure under chronyd, again and again until `seconds` have passed."""
    runs: list[Run] = []
    with contextlib.ExitStack() as stack:
        for server, ppm in enumerate(_TIME_SERVERS_PPM):
            stack.enter_context(chrony(lab, server, stack.enter_context(serving(ppm))))
        before = [_corrected_ns(lab, server) for server in range(len(SERVERS))]
        began = time.monotonic()
        while not runs or time.monotonic() < began + seconds:
            runs.append(_compared(lab, f"{name}/{len(runs)}", events))
        said = [f"{time.monotonic() - began:.0f} s with chronyd", *_told(*runs)]
        for server, (monotonic, ahead) in enumerate(before):
            now, ahead_now = _corrected_ns(lab, server)
            ppm = (ahead_now - ahead) / (now - monotonic) * 1e6
            said.append(f"server{server}: CLOCK_MONOTONIC corrected by {ppm:+.1f} ppm in the mean")
            tracking = lab.run(server, "chronyc -n tracking", "root")
            said += [line for line in tracking.splitlines() if line.startswith(_TRACKED)]
    wrong = [line for run in runs for line in run.wrong]
    wrong += [str(row) for run in runs for row in _without_clock(run)]
    wrong += [run.said for run in runs if "ClockDriftWarning" in run.said]
    assert not wrong, "\n".join([*said, *wrong])
    return said


def _without_clock(run: Run) -> Iterator[Row]:
    """Yield the rows of events that were set aside since a clock told no times."""
    for rows in rows_by_test(run.folder).values():
        yield from (row for row in rows if row.quantity == "set_aside.clock")


@contextlib.contextmanager
def chrony(lab: VirtualLab, server: int, port: int) -> Iterator[None]:
    """Let chronyd discipline a server's clocks, set up as Debian has it but for the time server."""
    settings = (
        f"server 10.0.2.2 port {port} iburst maxpoll 4",
        f"driftfile {_CHRONY}.drift",
        f"pidfile {_CHRONY}.pid",
        "maxupdateskew 100",
        "makestep 1 3",
    )
    written = "\n".join(settings)
    command = f"echo {shlex.quote(written)} >{_CHRONY}.conf; chronyd -f {_CHRONY}.conf"
    lab.run(server, command, "root")
    try:
        lab.run(server, "chronyc -n waitsync 60 0 0 2", "root", timeout=300)
        yield
    finally:
        lab.run(server, f"kill $(cat {_CHRONY}.pid)", "root")


def _corrected_ns(lab: VirtualLab, server: int) -> tuple[int, int]:
    """Return CLOCK_MONOTONIC of a server, and how far it is ahead of the one that nobody slews."""
    script = (
        "from time import *; m = clock_gettime_ns(CLOCK_MONOTONIC); "
        "print(m, m - clock_gettime_ns(CLOCK_MONOTONIC_RAW))"
    )
    monotonic, ahead = lab.run(server, f"python3 -c '{script}'").split()
    return int(monotonic), int(ahead)


def _rdma_counts(lab: VirtualLab) -> dict[str, int]:
    """Packets that each server's RDMA devices have sent, by its kernel."""
    counts = {}
    for number, server in enumerate(SERVERS):
        for device in ("rxe0", "rxe1"):
            said = lab.run(
                number, f"cat /sys/class/infiniband/{device}/ports/1/hw_counters/sent_pkts"
            )
            counts[f"{server}.{device}"] = int(said)
    return counts


def _kills(lab: VirtualLab, moments: Sequence[float], *, moved: bool) -> list[str]:
    """Kill runs that many seconds after their start, or their first move; a plan is set before."""
    status, said = _lightrig(lab, "apply", "--no-restore", str(lab.testbed), "straight")
    assert status == 0, said
    wrong: list[str] = []
    settings, reached = _settings(lab), _reached(lab)
    assert reached == ["fabric0 192.0.2.3", "fabric1 192.0.2.4"], reached
    for seconds, suite in zip(moments, itertools.cycle(_KILLED)):
        process = subprocess.Popen(
            pytest_command(lab, [suite]),
            cwd=ROOT,
            env=os.environ | lab.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        if moved:
            _await_move(lab, process)
        time.sleep(seconds)
        found = [] if process.poll() is None else [f"pytest had ended with {process.returncode}"]
        if not found:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        began = time.monotonic()
        found += (left := _left(lab))
        if left and not _left(lab, _COMMAND_SECONDS):
            found.append(f"they had ended after {time.monotonic() - began:.0f} s")
        status, said = _lightrig(lab, "restore", str(lab.testbed))
        if status != 0:
            found.append(f"restore ended with {status}: {said}")
        if (after := _reached(lab)) != reached:
            found.append(f"{reached} reached each other before, {after} after")
        wrong += [f"{suite}, killed after {seconds:.1f} s: {one}" for one in found]
        print(
            f"{suite}, killed after {seconds:.1f} s: {'; '.join(found) or 'as before'}", flush=True
        )
    if (changed := _settings(lab)) != settings:
        wrong.append(f"settings of the servers: {settings} before, {changed} after")
    assert not wrong, "\n".join(wrong)
    return [f"{len(moments)} kills: nothing was left after {_LEFT_SECONDS} s"]


def _await_move(lab: VirtualLab, process: "subprocess.Popen[str]") -> None:
    """Wait until the first link moves, or the process has ended."""
    size = lab.notes.stat().st_size
    while process.poll() is None and lab.notes.stat().st_size == size:
        time.sleep(0.01)


def _reached(lab: VirtualLab) -> list[str]:
    """Return which addresses of the second server answer which port of the first one."""
    script = (
        "for d in fabric0 fabric1; do for a in 192.0.2.3 192.0.2.4; do "
        "ping -q -c 2 -i 0.5 -W 2 -I $d $a >/dev/null && echo $d $a; done; done; true"
    )
    return lab.run(0, script, "root").splitlines()


def _settings(lab: VirtualLab) -> list[str]:
    """Routes, addresses and kernel settings of each server that a run could have changed."""
    command = "ip -4 -o addr; ip rule; ip -4 route show table all; sysctl -a 2>/dev/null | grep -E "
    wanted = "'ip_forward|rp_filter|arp_(ignore|announce)|tcp_retries2|tcp_syn_retries'"
    said = lab.run_on_all(command + wanted, "root")
    return [re.sub(r"valid_lft \S+| (linkdown|dead)\b", "", one) for one in said]


def _left(lab: VirtualLab, seconds: float = _LEFT_SECONDS) -> list[str]:
    """Return the programs of Lightrig that still run on a server after some time."""
    deadline = time.monotonic() + seconds
    while True:
        found = [
            f"{server}: {line[:100]}"
            for server, said in zip(SERVERS, lab.run_on_all("ps -eo args"), strict=True)
            for line in said.splitlines()
            if re.search(_OURS, line) and "ps -eo" not in line
        ]
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(1)


def _assert_nothing_is_left(lab: VirtualLab) -> None:
    left = _left(lab)
    assert not left, "\n".join(left)


def _lightrig(lab: VirtualLab, *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [*LIGHTRIG, *arguments],
        cwd=ROOT,
        env=os.environ | lab.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_COMMAND_SECONDS,
        check=False,
    )
    return done.returncode, done.stdout


def _last(said: str) -> str:
    lines = [line for line in said.splitlines() if line.strip()]
    if not lines:
        raise VirtualLabError("pytest printed nothing")
    return lines[-1].strip("= ")
