"""Programs on servers behind OpenSSH's server end, whatever they do and whatever ended their run.

Each server is a namespace with an account of root's rights and an ordinary one, whose login shell
is the test's. What runs is read from /proc, which the namespaces share with this machine.
"""

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import preloaded
import pytest
from real_time import until as until_looking
from ssh_client import SshClient

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.core.errors import InstrumentError, NoReplyError
from lightrig.instruments.namespaces import namespaces as kernel
from lightrig.instruments.namespaces.sshd import NamespaceSshd, SshdError, sshd_program
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.instruments.wire.ssh import SshLogin, SshShell
from lightrig.instruments.wire.ssh_config import NO_FILE

pytestmark = pytest.mark.usefixtures("possible")

SECOND = 1_000_000_000
CLOCK = SystemClock()
PASSWORD = "a password"
ACCOUNTS = {"bench": 0, "plain": 12_345}
LOGIN_SHELLS = ("sh", "bash", "csh", "fish")
NETWORK = "10.213.7"
FEW_SESSIONS = 2222

IGNORES = "import signal\nfor n in (1, 2, 3, 13, 15):\n  signal.signal(n, signal.SIG_IGN)\n"
FOREVER = "import time\ntime.sleep(86400)\n"
DAEMON = (
    "import os\nos.fork() and {parent}\nos.setsid()\nos.fork() and os._exit(0)\n"
    "for n in range(256):\n  try: os.close(n)\n  except OSError: pass\nos.chdir('/')\n"
)
PROGRAMS = {
    "sleeps and writes nothing": FOREVER,
    "ignores all signals": IGNORES + FOREVER,
    "floods its output": "while True:\n  print('x' * 1000, flush=True)\n",
    "floods whatever becomes of that": (
        IGNORES + "import os\nwhile True:\n  try: os.write(1, b'x' * 10000)\n"
        "  except OSError: pass\n"
    ),
    "has stopped itself": "import os\nos.kill(os.getpid(), 19)\n" + FOREVER,
    "starts daemons": "import time\n" + DAEMON.format(parent="time.sleep(86400)") + FOREVER,
    "is a daemon, which ignores signals": DAEMON.format(parent="os._exit(0)") + IGNORES + FOREVER,
}
LEAVES = "is a daemon, which ignores signals"

KILLED = """
import sys
from pathlib import Path
from lightrig.instruments.clock import SystemClock
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.instruments.wire.ssh import SshLogin, SshShell
from lightrig.instruments.wire.ssh_config import NO_FILE
user, password, port, known_hosts, *command = sys.argv[1:]
login, clock = SshLogin(user, password, Path(known_hosts), NO_FILE), SystemClock()
shell = SshShell("server0", "127.0.0.1", clock, port=int(port), login=login)
server = LinuxServer("server0", shell, clock, {})
server.identity()
print("ready", flush=True)
server.commands.run(command, 600 * 10**9)
"""


def until(condition: Callable[[], object]) -> None:
    """Wait for what comes about by itself; a look at all processes takes some milliseconds."""
    until_looking(condition, CLOCK, SECOND // 100)


@dataclass
class Site:
    """A namespace with OpenSSH's server.

    Attributes:
        near: the device of this machine that leads to it, by another server than loopback's.
    """

    folder: Path
    sshd: NamespaceSshd
    pid: int
    near: str
    open: list[SshShell] = field(default_factory=list)

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"

    def change_shell(self, name: str) -> None:
        """Give both accounts a login shell."""
        path = shutil.which(name)
        if path is None:
            pytest.skip(f"no {name} on this machine")
        script = f"awk -F: -v OFS=: '$1 ~ /^(bench|plain)$/ {{$7=\"{path}\"}} 1' /etc/passwd"
        self.inside(f'text=$({script}); echo "$text" > /etc/passwd')

    def inside(self, script: str) -> str:
        command = kernel.enter_command(self.pid, ["sh", "-c", script])
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def server(self, user: str = "bench", *, by_cable: bool = False, port: int = 22) -> LinuxServer:
        """Return a server over a new connection; `port` is that of the cable's end."""
        host, port = (f"{NETWORK}.2", port) if by_cable else self.sshd.address
        login = SshLogin(user, PASSWORD, self.known_hosts, NO_FILE)
        shell = SshShell("server0", host, CLOCK, port=port, login=login)
        self.open.append(shell)
        return LinuxServer("server0", shell, CLOCK, {})


@pytest.fixture(scope="module")
def _site(possible: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    try:
        program = sshd_program()
    except SshdError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("site")
    near, far = (f"lr{os.getpid() % 10**6}{end}" for end in "ab")
    with contextlib.ExitStack() as stack:
        spaces = stack.enter_context(kernel.Namespaces(["server0"]))
        pid = spaces.pid("server0")
        sshd = NamespaceSshd(pid, "server0", ("bench", PASSWORD))
        stack.callback(sshd.close)
        site = Site(folder, sshd, pid, near)
        line = sshd.known_hosts_line()
        key = line.split(" ", 1)[1]
        hosts = f"{NETWORK}.2,[{NETWORK}.2]:{FEW_SESSIONS}"
        site.known_hosts.write_text(f"{line}\n{hosts} {key}\n")
        site.inside(
            "text=$(sed -n 's/^bench:\\([^:]*\\):.*/plain:\\1:12345:12345::\\/tmp:\\/bin\\/sh/p'"
            ' /etc/passwd); echo "$text" >> /etc/passwd;'
            "sed -i 's/^AllowUsers.*/AllowUsers bench plain/' /run/lightrig/sshd_config"
        )
        for words in (
            ("link", "add", near, "type", "veth", "peer", "name", far),
            ("link", "set", far, "netns", str(pid)),
            ("addr", "add", f"{NETWORK}.1/24", "dev", near),
            ("link", "set", near, "up"),
        ):
            subprocess.run(["ip", *words], check=True)
        stack.callback(subprocess.run, ["ip", "link", "del", near], check=False)
        site.inside(f"ip addr add {NETWORK}.2/24 dev {far}; ip link set {far} up")
        start = f"{program} -f /run/lightrig/sshd_config -p"
        start = f"{start} 22 && {start} {FEW_SESSIONS} -o MaxSessions=2"
        done = SshClient(folder, site.known_hosts).run(sshd.address, ("bench", PASSWORD), start)
        assert done.returncode == 0, done.stderr
        yield site


@pytest.fixture
def site(_site: Site) -> Iterator[Site]:
    """The site, with accounts of /bin/sh."""
    _site.change_shell("sh")
    yield _site
    for shell in _site.open:
        shell.close()
    _site.open.clear()


def processes(mark: str) -> dict[int, str]:
    """Return the command lines of processes, but this one's own, in which a mark is."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if mark in line and int(folder.name) != os.getpid():
                found[int(folder.name)] = line
    return found


def parent(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])


def sshd_of(pid: int) -> int:
    """Return the process of sshd that has started another one."""
    while not (Path(f"/proc/{pid}/comm").read_text().startswith("sshd")):
        pid = parent(pid)
    return pid


@pytest.fixture
def mark() -> Iterator[str]:
    """A word for the command line of a program; those that are left are killed at the end."""
    mark = f"mark-{uuid.uuid4().hex}"
    yield mark
    for pid in processes(mark):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def program(mark: str, text: str) -> list[str]:
    return ["python3", "-c", text, mark]


def run_in_background(
    server: LinuxServer, command: Sequence[str], limit: int = 600 * SECOND
) -> threading.Thread:
    def run() -> None:
        with contextlib.suppress(InstrumentError):
            server.commands.run(command, limit)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def await_start(mark: str) -> list[int]:
    """Wait until the program itself runs; return all of its processes."""
    until(lambda: any(line.startswith("python3 ") for line in processes(mark).values()))
    return list(processes(mark))


def assert_none_is_left(mark: str) -> None:
    """Check that within `LONG` none is left.

    Two looks in a row: one that has forked and ended during a look is in it with neither process.
    """
    until(lambda: not processes(mark) and not processes(mark))


def end_by_limit(site: Site, user: str, command: list[str], mark: str) -> None:
    server = site.server(user)
    with contextlib.suppress(NoReplyError):
        server.commands.run(command, SECOND)


def end_by_cut(site: Site, user: str, command: list[str], mark: str) -> None:
    """Kill the server's end of the connection."""
    server = site.server(user)
    server.identity()
    running = run_in_background(server, command)
    pids = await_start(mark)
    os.kill(sshd_of(next(pid for pid in pids if has_sshd(pid))), signal.SIGKILL)
    running.join()


def has_sshd(pid: int) -> bool:
    try:
        return bool(sshd_of(pid))
    except OSError:
        return False


def end_by_kill(site: Site, user: str, command: list[str], mark: str) -> None:
    """Kill the client's process."""
    arguments = [user, PASSWORD, str(site.sshd.address[1]), str(site.known_hosts), *command]
    with preloaded.Process(["python", "-c", KILLED, *arguments], stdout=-1) as client:
        assert client.stdout is not None
        client.stdout.readline()
        until(lambda: len(processes(mark)) > 1)
        client.kill()


def end_by_dark_link(site: Site, user: str, command: list[str], mark: str) -> None:
    """Take the link down, over which no end of the connection arrives then."""
    server = site.server(user, by_cable=True)
    running = run_in_background(server, command, 5 * SECOND)
    await_start(mark)
    subprocess.run(["ip", "link", "set", site.near, "down"], check=True)
    assert_none_is_left(mark)
    subprocess.run(["ip", "link", "set", site.near, "up"], check=True)
    running.join()


ENDS = {
    "limit": end_by_limit,
    "cut": end_by_cut,
    "kill": end_by_kill,
    "dark link": end_by_dark_link,
}


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("ignores all signals", "limit"),
        ("starts daemons", "cut"),
        ("floods whatever becomes of that", "kill"),
        *(
            pytest.param(name, end, marks=pytest.mark.long)
            for name in PROGRAMS
            for end in ENDS
            if name != LEAVES
        ),
    ],
)
def test_none_is_left(site: Site, mark: str, name: str, end: str) -> None:
    ENDS[end](site, "bench", program(mark, PROGRAMS[name]), mark)
    assert_none_is_left(mark)


def test_a_daemon_does_not_outlive_its_program(site: Site, mark: str) -> None:
    result = site.server().commands.run(program(mark, PROGRAMS[LEAVES]))
    assert result.status == 0
    assert_none_is_left(mark)


def test_a_probe_that_does_not_end_by_its_input_is_killed(site: Site) -> None:
    """It is stopped, as by a debugger, when the connection is cut."""
    server = site.server()
    server.identity()
    space = os.readlink(f"/proc/{site.pid}/ns/net")
    found = [pid for pid in processes("lightrig-probe") if in_space(pid, space)]
    (probe,) = [pid for pid in found if Path(f"/proc/{pid}/comm").read_text() == "python3\n"]
    os.kill(probe, signal.SIGSTOP)
    os.kill(sshd_of(probe), signal.SIGKILL)
    until(lambda: not any(in_space(pid, space) for pid in processes("lightrig-probe")))


@pytest.mark.parametrize(
    ("login_shell", "user"),
    [
        ("csh", "plain"),
        *(
            pytest.param(*each, marks=pytest.mark.long)
            for each in itertools.product(LOGIN_SHELLS, ACCOUNTS)
            if each != ("csh", "plain")
        ),
    ],
)
def test_a_pulled_cable_ends_programs_without_a_near_limit(
    site: Site, mark: str, login_shell: str, user: str
) -> None:
    """A probe, a tool of 600 s and a program that reads its input, on a link that is dark.

    No end of the connection arrives at sshd(8), whose own limit is off by default.
    """
    site.change_shell(login_shell)
    server = site.server(user, by_cable=True)
    server.identity()
    run_in_background(server, program(mark, PROGRAMS["ignores all signals"]))
    server.commands.start([*program(mark, IGNORES + FOREVER), "reads"])
    until(lambda: sum(line.startswith("python3 ") for line in processes(mark).values()) == 2)
    space = os.readlink(f"/proc/{site.pid}/ns/net")
    subprocess.run(["ip", "link", "set", site.near, "down"], check=True)
    try:
        until(lambda: not ours_in(space, mark))
    finally:
        subprocess.run(["ip", "link", "set", site.near, "up"], check=True)


def ours_in(space: str, mark: str) -> list[int]:
    found = (pid for each in (mark, "lightrig-probe", "lightrig-guard") for pid in processes(each))
    return [pid for pid in found if in_space(pid, space)]


def test_the_guard_gives_its_session_up(site: Site) -> None:
    """Its connection has two sessions (MaxSessions of sshd_config(5)): the probe's and a tool's."""
    server = site.server(by_cable=True, port=FEW_SESSIONS)
    server.identity()
    until(lambda: processes("lightrig-guard"))
    for _ in range(20):
        assert server.commands.run(["echo", "one"]).stdout == "one\n"
    server.lit(["lo"])


def test_further_connections_have_sessions_where_one_has_no_more(site: Site, mark: str) -> None:
    """Five programs at once, on connections of two sessions each."""
    server = site.server(by_cable=True, port=FEW_SESSIONS)
    started = [server.commands.start(program(mark, FOREVER), 600 * SECOND) for _ in range(5)]
    until(lambda: sum(line.startswith("python3 ") for line in processes(mark).values()) == 5)
    assert server.commands.run(["echo", "one"]).stdout == "one\n"
    assert not any(one.has_ended for one in started)


@pytest.mark.parametrize("login_shell", ["sh", "fish"])
def test_a_server_without_room_on_its_disk_is_observed(site: Site, login_shell: str) -> None:
    """Neither probe nor supervisor writes a file; /tmp is the account's home, too."""
    site.change_shell(login_shell)
    site.inside("mount -t tmpfs -o size=4k full /tmp; cat /dev/zero >/tmp/all 2>&- || true")
    try:
        server = site.server("plain")
        assert server.identity().model.startswith("kernel ")
        full = server.commands.run(["sh", "-c", "cat /proc/version >/tmp/two"])
        assert (full.status != 0, "No space left" in full.stderr) == (True, True)
        assert server.commands.run(["echo", "one"]).stdout == "one\n"
    finally:
        site.inside("umount -l /tmp")


def in_space(pid: int, space: str) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/ns/net") == space
    except OSError:
        return False


@pytest.mark.parametrize(
    ("end", "login_shell", "user"),
    [
        ("cut", "csh", "plain"),
        ("limit", "fish", "bench"),
        *(
            pytest.param(*each, marks=pytest.mark.long)
            for each in itertools.product(ENDS, LOGIN_SHELLS, ACCOUNTS)
        ),
    ],
)
def test_none_is_left_by_any_login_shell(
    site: Site, mark: str, login_shell: str, user: str, end: str
) -> None:
    site.change_shell(login_shell)
    text = PROGRAMS["starts daemons"] if end == "cut" else PROGRAMS["ignores all signals"]
    ENDS[end](site, user, program(mark, text), mark)
    assert_none_is_left(mark)
