"""Programs run on servers to their end: over real SSH, and in a namespace."""

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_time import over_soon
from servers.ssh_host import LOGIN, SshHost

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.core.errors import DisconnectedError, NoReplyError
from lightrig.instruments.namespaces import namespaces as kernel
from lightrig.instruments.servers.host.commands import Commands, ToolFailedError, ToolMissingError
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.instruments.servers.tools.output import ToolOutputError
from lightrig.instruments.wire.namespace import NamespaceShell
from lightrig.instruments.wire.ssh import SshLogin, SshShell


@pytest.fixture
def host() -> Iterator[SshHost]:
    host = SshHost()
    yield host
    host.close()


@pytest.fixture
def ssh_shell(host: SshHost, tmp_path: Path) -> Iterator[SshShell]:
    known_hosts = tmp_path / "known_hosts"
    known_hosts.write_text(host.known_hosts_line())
    login = SshLogin(*LOGIN, known_hosts)
    shell = SshShell("server0", "127.0.0.1", SystemClock(), port=host.port, login=login)
    yield shell
    shell.close()


@pytest.fixture
def over_ssh(ssh_shell: SshShell) -> Commands:
    return Commands("server0", ssh_shell, SystemClock())


@pytest.fixture
def in_namespace() -> Iterator[Commands]:
    if reason := kernel.available():
        pytest.skip(reason)
    with kernel.Namespaces(["a"]) as spaces:
        shell = NamespaceShell(spaces.pid("a"))
        yield Commands("server0", shell, SystemClock())
        shell.close()


@pytest.fixture(params=["over_ssh", "in_namespace"])
def commands(request: pytest.FixtureRequest) -> Commands:
    found: Commands = request.getfixturevalue(request.param)
    return found


def test_stdout_stderr_and_status_are_separate(commands: Commands) -> None:
    before = SystemClock().now()
    result = commands.run(["sh", "-c", "echo one; echo two arguments; echo oops >&2; exit 3"])
    assert (result.stdout, result.stderr, result.status) == ("one\ntwo arguments\n", "oops\n", 3)
    assert before <= result.at.earliest <= result.at.latest <= SystemClock().now()


def test_arguments_are_quoted(commands: Commands) -> None:
    arguments = ["a b", "$HOME", "'", '"', "*", "\\"]
    assert commands.run(["printf", "%s\n", *arguments]).stdout.splitlines() == arguments


def test_a_last_line_without_end_is_not_lost(commands: Commands) -> None:
    assert commands.run(["printf", "one\\ntwo"]).stdout == "one\ntwo\n"


def test_large_stdout_and_stderr_do_not_block(commands: Commands) -> None:
    script = "i=0; while [ $i -lt 20000 ]; do echo line $i; echo complaint $i >&2; i=$((i+1)); done"
    result = commands.run(["sh", "-c", script])
    assert len(result.stdout.splitlines()) == 20_000
    assert result.stderr.endswith("complaint 19999\n")


def test_a_program_that_stays_answers_the_last_of_some_lines(commands: Commands) -> None:
    script = "while read line; do case $line in last*) echo $line;; end) exit 7;; esac; done"
    stays = commands.start(["sh", "-c", script])
    assert [stays.query(["one", f"last {n}"]) for n in range(3)] == ["last 0", "last 1", "last 2"]
    with pytest.raises(NoReplyError, match=r"did not answer within 0\.1 s"):
        stays.query(["one"], timeout_ns=100_000_000)
    for ended in (stays, commands.start(["sh", "-c", "exit 7"])):
        with pytest.raises(ToolFailedError) as failed:
            ended.query(["end", "last 3"])
        assert failed.value.status == 7
        ended.close()


def test_missing_tool_error_names_its_package(commands: Commands) -> None:
    with pytest.raises(ToolMissingError, match="server0 has no program mlxlink") as missing:
        commands.run(["mlxlink", "-d", "mlx5_0"])
    assert missing.value.tool == "mlxlink"
    assert "mstflint" in str(missing.value)
    with pytest.raises(ToolMissingError, match="name its path"):
        commands.run(["no-such-tool-anywhere"])


def test_a_tool_that_complains_of_a_missing_file_is_not_missing(commands: Commands) -> None:
    result = commands.run(["cat", "/no/such/file"])
    assert result.status == 1
    with pytest.raises(ToolFailedError, match="No such file") as failed:
        commands.read(["cat", "/no/such/file"], str)
    assert failed.value.status == 1
    assert failed.value.command == "cat /no/such/file"


def test_a_tool_beside_the_path_is_found(host: SshHost, over_ssh: Commands) -> None:
    """As ethtool is, for a login whose path lacks the system's directories."""
    host.rewrite = lambda command: command.replace("/usr/sbin/tool", "/bin/echo from sbin:")
    assert over_ssh.run(["tool", "-x"]).stdout == "from sbin: -x\n"
    assert over_ssh.run(["tool", "-y"]).stdout == "from sbin: -y\n"
    assert host.commands == ["tool -x", "/usr/sbin/tool -x", "/usr/sbin/tool -y"]


def test_the_prefix_of_every_command(ssh_shell: SshShell) -> None:
    become = Commands("server0", ssh_shell, SystemClock(), become=["env", "WHO=root"])
    assert become.run(["sh", "-c", "echo $WHO"]).stdout == "root\n"


def test_missing_tool_behind_sudo(host: SshHost, over_ssh: Commands) -> None:
    host.rewrite = lambda command: (
        f"echo 'sudo: {command.split()[0]}: command not found' >&2; exit 1"
    )
    with pytest.raises(ToolMissingError, match="the package ethtool"):
        over_ssh.run(["ethtool", "eth0"])


def test_a_program_that_goes_on_too_long(over_ssh: Commands) -> None:
    with over_soon(after=200_000_000), pytest.raises(NoReplyError, match=r"within 0\.2 s") as late:
        over_ssh.run(["sleep", "30"], timeout_ns=200_000_000)
    assert late.value.command == "sleep 30"
    assert over_ssh.run(["echo", "still there"]).stdout == "still there\n"


def test_a_host_that_vanishes_meanwhile(host: SshHost, over_ssh: Commands) -> None:
    with contextlib.ExitStack() as stack:
        timer = threading.Timer(0.2, host.hang_up)
        stack.callback(timer.join)
        timer.start()
        with pytest.raises(DisconnectedError, match="server0"):
            over_ssh.run(["sleep", "30"])


def test_output_that_cannot_be_read_names_server_and_command(over_ssh: Commands) -> None:
    def refuse(text: str) -> None:
        raise ToolOutputError("tool", "something else", text)

    with pytest.raises(ToolOutputError, match="server0: echo hello") as refused:
        over_ssh.read(["echo", "hello"], refuse)
    assert refused.value.found == "hello"


def test_channels_do_not_pile_up(in_namespace: Commands) -> None:
    def files() -> int:
        return len(os.listdir("/proc/self/fd"))

    in_namespace.run(["true"])
    open_after_one = files()
    for _ in range(4):
        in_namespace.run(["true"])
    assert files() == open_after_one


def test_a_server_may_have_more_or_less_time_for_its_programs(ssh_shell: SshShell) -> None:
    server = LinuxServer("server0", ssh_shell, SystemClock(), {}, program_ns=300_000_000)
    with pytest.raises(NoReplyError, match=r"within 0\.3 s"):
        server.commands.run(["sleep", "30"])
    assert server.commands.run(["sleep", "0.5"], 60_000_000_000).status == 0
