"""Two virtual machines, and the served switch that their ports follow."""

import contextlib
import itertools
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from .processor_counter import counter_khz
from .steps import HERE, ROOT, VirtualLabError, built, step

LIGHTRIG = (sys.executable, "-c", "from lightrig.harness.cli import main; main()")
SERVERS = ("server0", "server1")
SSH_HOSTS, SSH_PORT = ("127.0.77.0", "127.0.77.1"), 2222
"""Where this machine's loopback leads to the servers."""
LOGIN = "bench:bench"
BOOT_SECONDS = 900
ENDS_SECONDS = 20
_RATE_SECONDS, _RATE_SHARE = 10, 0.02
_DUMPED_BYTES = 160
"""Of a packet: a probe's datagram up to its number."""

_BOOT = (
    "root=/dev/vda rw console=ttyS0 mitigations=off apparmor=0 net.ifnames=1 "
    # Not audit=0: sudo asks for audit's socket, and the kernel would start modprobe each time.
    # Without these the clock falls back to one whose every reading leaves the machine.
    "clocksource=tsc tsc=reliable no_timer_check "
    # By MSI-X, the 82574 of QEMU 7.2 tells its driver no change of the link.
    "e1000e.IntMode=1 "
    # rxe warns at each reading of its state that the rate is unknown: ten thousand lines in 15 min.
    "quiet loglevel=3 systemd.mask=systemd-journald.service "
    "systemd.mask=systemd-journald.socket systemd.mask=systemd-journald-dev-log.socket "
    "systemd.mask=systemd-journald-audit.socket "
    "module_blacklist=kvm,kvm_amd,iTCO_wdt,rpcrdma,ib_iser,ib_isert,ib_srpt,lpc_ich,i2c_i801,"
    "powernow_k8,ahci,parport_pc,ppdev,psmouse,button,evdev,joydev,pcspkr,serio_raw,drm,bochs"
)
_PROCESSORS = {
    "tcg": ("-accel", "tcg,tb-size=256", "-cpu", "qemu64,+ssse3,+sse4.1,+sse4.2,+popcnt,+rdtscp"),
    "kvm": ("-accel", "kvm", "-cpu", "host,-arch-capabilities"),
}


def _tap(server: int, port: int) -> str:
    return f"vlab{server}{port}"


@dataclass
class VirtualLab:
    """The lab while it is booted.

    Attributes:
        folder: of its files: `served.yaml`, `links` (the notes of `carrier`), logs.
        environment: variables for Lightrig's commands.
        plant_pid: a process in the network of the taps.
    """

    folder: Path
    image: Path
    environment: dict[str, str] = field(default_factory=dict)
    plant_pid: int = 0

    @property
    def testbed(self) -> Path:
        """The testbed file that addresses the switch and the servers."""
        return self.folder / "served.yaml"

    @property
    def notes(self) -> Path:
        """The notes of all moves of links."""
        return self.folder / "links"

    @property
    def dumps(self) -> dict[str, Path]:
        """What QEMU gave to each port's NIC, and what that sent, by port."""
        ports = itertools.product(range(len(SERVERS)), (0, 1))
        return {f"{SERVERS[n]}.nic0.p{port}": self.dump_path(n, port) for n, port in ports}

    def dump_path(self, server: int, port: int) -> Path:
        """Return the capture of a port that its QEMU writes."""
        return self.folder / f"taken{server}{port}.pcap"

    def monitor_path(self, server: int) -> str:
        """Return the socket of a server's second monitor."""
        return str(self.folder / f"monitor{server}")

    def ssh_command(self, server: int, command: str, user: str = "bench") -> list[str]:
        """Return the command line that runs a command on a server."""
        options = (
            f"UserKnownHostsFile={self.folder / 'known_hosts'}",
            "BatchMode=yes",
            "ConnectTimeout=30",
            "LogLevel=ERROR",
        )
        stated = [word for option in options for word in ("-o", option)]
        identity = ["-F", os.devnull, "-i", str(self.image / "id_bench")]
        return [
            *("ssh", *identity, *stated, "-p", str(SSH_PORT)),
            *(f"{user}@{SSH_HOSTS[server]}", command),
        ]

    def run(self, server: int, command: str, user: str = "bench", timeout: float = 120) -> str:
        """Return the output of a command on a server; raises `VirtualLabError`."""
        argv = self.ssh_command(server, command, user)
        try:
            done = subprocess.run(
                argv, capture_output=True, text=True, timeout=timeout, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise VirtualLabError(f"server{server}: {command}: no end in {timeout} s") from error
        if done.returncode:
            raise VirtualLabError(f"server{server}: {command}: {done.stderr.strip()}")
        return done.stdout

    def run_on_all(self, command: str, user: str = "bench") -> list[str]:
        """Return the output of a command on each server, at the same time; see `run`."""
        with ThreadPoolExecutor() as pool:
            return list(pool.map(lambda n: self.run(n, command, user), range(len(SERVERS))))

    def stopped_sending(self) -> list[str]:
        """Return the ports whose emulated NIC sends no more, by their kernels' time-outs.

        Seen once, with RDMA on a busy machine: the queue of virtio-net stays full (`ethtool -S`
        counts its time-outs), and only a new boot helps.
        """
        script = (
            "cd /sys/class/net; for d in fabric0 fabric1; do "
            "[ $(cat $d/statistics/tx_errors) = 0 ] || echo $d; done"
        )
        return [
            f"{SERVERS[server]}.{device} sends no more: boot the lab again"
            for server in range(len(SERVERS))
            for device in self.run(server, script).split()
        ]


@contextlib.contextmanager
def booted(folder: Path, accelerator: str = "tcg") -> Iterator[VirtualLab]:
    """Build what has changed, boot the lab, and end it with the block.

    All that was started ends also where a step fails, and where this process is killed.
    Raises `VirtualLabError` with the name of the step.
    """
    image = built(folder)
    lab = VirtualLab(folder, image)
    key = (image / "host_key.pub").read_text().strip()
    known = "".join(f"[{host}]:{SSH_PORT} {key}\n" for host in SSH_HOSTS)
    (folder / "known_hosts").write_text(known)
    aliases = zip(SERVERS, SSH_HOSTS, strict=True)
    key_file = f"  IdentityFile {image.resolve() / 'id_bench'}\n"
    key_file += f"  UserKnownHostsFile {folder.resolve() / 'known_hosts'}\n"
    text = "".join(f"Host {s}\n  HostName {h}\n  Port {SSH_PORT}\n{key_file}" for s, h in aliases)
    (folder / "ssh_config").write_text(text)
    (folder / "virtual_lab.yaml").write_text((HERE / "virtual_lab.yaml").read_text())
    lab.notes.write_text("")
    lab.environment = {"VIRTUAL_LAB_LOGIN": LOGIN}
    with contextlib.ExitStack() as stack:
        machines = []
        with step("boot"):
            for host in SSH_HOSTS:
                _require_free(host)
            for server in range(len(SERVERS)):
                argv = _machine(lab, server, accelerator)
                log = folder / f"machine{server}.log"
                machines.append(stack.enter_context(_process(argv, log)))
            for server, machine in enumerate(machines):
                _await_monitor(lab, server, machine)
        with step("serve"):
            _serve(lab, stack)
        with step("ssh"):
            for server, machine in enumerate(machines):
                _await_ssh(lab, server, machine)
        with step("clocks"), ThreadPoolExecutor() as pool:
            list(pool.map(lambda server: _require_rate(lab, server), range(len(SERVERS))))
        exports = "".join(f"export {n}={shlex.quote(v)}\n" for n, v in lab.environment.items())
        (folder / "environment").write_text(exports)
        state = {"environment": lab.environment, "plant_pid": lab.plant_pid}
        running = folder / "running.json"
        running.write_text(json.dumps(state))
        stack.callback(running.unlink)
        yield lab


def is_booted(folder: Path) -> bool:
    """Whether another process has booted the lab of this folder."""
    return (folder / "running.json").exists()


def attached(folder: Path) -> VirtualLab:
    """Return the lab that another process has booted; raises `VirtualLabError`."""
    try:
        state = json.loads((folder / "running.json").read_text())
    except OSError as error:
        raise VirtualLabError("no virtual lab is booted: make virtual-lab") from error
    return VirtualLab(folder, folder / "image", state["environment"], state["plant_pid"])


def _machine(lab: VirtualLab, server: int, accelerator: str) -> list[str]:
    """Return the command line of a virtual machine: one processor, 768 MiB, no disk is changed."""
    mac = f"52:54:00:77:0{server}"
    ssh = f"hostfwd=tcp:{SSH_HOSTS[server]}:{SSH_PORT}-:22"
    nics = ["-netdev", f"user,id=control,{ssh}"]
    nics += ["-device", f"virtio-net-pci,netdev=control,mac={mac}:ff"]
    # The network of the house, by which servers find each other: two ends of one cable.
    ends = [f"local.type=unix,local.path={lab.folder / f'house{server}'}"]
    ends += [f"remote.type=unix,remote.path={lab.folder / f'house{1 - server}'}"]
    nics += ["-netdev", ",".join(("dgram,id=house", *ends))]
    nics += ["-device", f"virtio-net-pci,netdev=house,mac={mac}:fe"]
    for port in (0, 1):
        tap = f"tap,id=data{port},ifname={_tap(server, port)},script=no,downscript=no"
        nics += ["-netdev", tap, "-device", f"virtio-net-pci,netdev=data{port},mac={mac}:0{port}"]
        dump = f"file={lab.dump_path(server, port)},maxlen={_DUMPED_BYTES}"
        nics += ["-object", f"filter-dump,id=dump{port},netdev=data{port},{dump}"]
    # A NIC of no plan, below a root port: what its driver logs of its link is as on a real server.
    nics += ["-netdev", "user,id=spare,restrict=on", "-device", "pcie-root-port,id=root,chassis=1"]
    nics += ["-device", f"e1000e,bus=root,netdev=spare,mac={mac}:fd"]
    sockets = (f"qmp{server}", f"monitor{server}")
    khz = counter_khz()
    rate = "" if khz is None else f" tsc_early_khz={khz}"
    return [
        *("setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64", "-name", SERVERS[server]),
        *("-machine", "q35", *_PROCESSORS[accelerator], "-smp", "1", "-m", "768"),
        *("-nodefaults", "-display", "none", "-no-reboot"),
        *("-kernel", str(lab.image / "vmlinux"), "-initrd", str(lab.image / "initrd")),
        *("-append", f"{_BOOT}{rate} virtual_lab={server} systemd.hostname={SERVERS[server]}"),
        *("-drive", f"file={lab.image / 'disk.raw'},format=raw,if=virtio,snapshot=on,cache=unsafe"),
        *("-device", "virtio-rng-pci", "-serial", f"file:{lab.folder / f'console{server}.log'}"),
        *nics,
        *[w for s in sockets for w in ("-qmp", f"unix:{lab.folder / s},server=on,wait=off")],
    ]


@contextlib.contextmanager
def _process(argv: Sequence[str], log: Path) -> "Iterator[subprocess.Popen[str]]":
    with log.open("w") as output:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # Ctrl-C is for this program, which ends them in order
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(ENDS_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _require_free(host: str) -> None:
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((host, SSH_PORT))
        except OSError as error:
            taken = f"port {SSH_PORT} of {host} is taken, by another virtual lab? {error}"
            raise VirtualLabError(taken) from error


def _await_monitor(lab: VirtualLab, server: int, machine: "subprocess.Popen[str]") -> None:
    """Wait until the machine has opened its taps, which it does before it answers."""
    deadline = time.monotonic() + BOOT_SECONDS
    while time.monotonic() < deadline:
        _require_running(lab, server, machine)
        with socket.socket(socket.AF_UNIX) as trial:
            try:
                trial.connect(lab.monitor_path(server))
                if trial.recv(4096):
                    return
            except OSError:
                pass
        time.sleep(0.1)
    raise VirtualLabError(f"{SERVERS[server]} has no monitor after {BOOT_SECONDS} s")


def _await_ssh(lab: VirtualLab, server: int, machine: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + BOOT_SECONDS
    error: VirtualLabError | None = None
    while time.monotonic() < deadline:
        _require_running(lab, server, machine)
        try:
            lab.run(server, "true")
            return
        except VirtualLabError as failed:
            error = failed
        time.sleep(1)
    raise VirtualLabError(f"{error}; see {lab.folder / f'console{server}.log'}")


def _require_rate(lab: VirtualLab, server: int) -> None:
    """Raise `VirtualLabError` where a machine's clock runs at another rate than this one's.

    Its kernel measures the rate of the processor's counter as it boots: on a busy machine it was
    seen to be wrong by half, and time limits in the machine with it.
    """
    readings = []
    for pause in (0, _RATE_SECONDS):
        time.sleep(pause)
        before = time.monotonic()
        uptime = float(lab.run(server, "cut -d' ' -f1 /proc/uptime"))
        readings.append((before, uptime, time.monotonic()))
    first, last = readings
    least, passed, most = last[0] - first[2], last[1] - first[1], last[2] - first[0]
    if not least * (1 - _RATE_SHARE) <= passed <= most * (1 + _RATE_SHARE):
        raise VirtualLabError(
            f"{SERVERS[server]}'s clock has counted {passed:.1f} s in {least:.1f} to {most:.1f} s: "
            "this machine was too busy as it booted; boot the lab again"
        )


def _require_running(lab: VirtualLab, server: int, machine: "subprocess.Popen[str]") -> None:
    if machine.poll() is not None:
        log = (lab.folder / f"machine{server}.log").read_text().strip()
        raise VirtualLabError(f"the machine of {SERVERS[server]} has ended: {log}")


def _serve(lab: VirtualLab, stack: contextlib.ExitStack) -> None:
    sockets = [str(lab.folder / f"qmp{server}") for server in range(len(SERVERS))]
    follow = [sys.executable, "-m", "tests.virtual_lab.carrier", str(lab.notes), *sockets]
    served = subprocess.Popen(
        [
            *("setpriv", "--pdeathsig", "TERM", *LIGHTRIG),
            *("serve", str(lab.folder / "virtual_lab.yaml"), "--port", "0"),
            *("--write", str(lab.testbed), "--on-carrier", shlex.join(follow)),
        ],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1", "COLUMNS": "300"},
    )

    def end() -> None:
        served.send_signal(signal.SIGTERM)
        try:
            served.communicate(timeout=ENDS_SECONDS)
        except subprocess.TimeoutExpired:
            served.kill()
            served.communicate()

    stack.callback(end)
    assert served.stdout is not None
    said = ""
    for line in served.stdout:
        said += line
        if line.startswith("pytest "):
            break
    found = re.search(r"network of process (\d+)", said)
    login = re.search(r"^export LIGHTRIG_SERVED=(\S+)", said, re.MULTILINE)
    if found is None or login is None:
        raise VirtualLabError(f"lightrig serve ended: {said}")
    lab.plant_pid = int(found[1])
    lab.environment["LIGHTRIG_SERVED"] = login[1]
