"""The account on a server behind SSH: its login shell, its python, its rights."""

import contextlib
import os
import platform
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ssh_host import LOGIN, SshHost

from lightrig.harness.bench.assembly import open_server
from lightrig.harness.components import Components
from lightrig.harness.doctor import Findings
from lightrig.harness.doctor.servers import examine_shell
from lightrig.instruments.clock import SystemClock
from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.errors import DisconnectedError, NoReplyError
from lightrig.instruments.servers.host.commands import ToolFailedError, ToolMissingError
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.instruments.servers.tools.output import ToolOutputError
from lightrig.instruments.supervisor import plain_line
from lightrig.instruments.wire.ssh import SshLogin, SshShell
from lightrig.instruments.wire.ssh_config import NO_FILE
from lightrig.testbeds import load


@pytest.fixture
def host() -> Iterator[SshHost]:
    host = SshHost()
    yield host
    host.close()


@pytest.fixture
def open_shell(host: SshHost, tmp_path: Path) -> Iterator[Callable[..., SshShell]]:
    known_hosts = tmp_path / "known_hosts"
    known_hosts.write_text(host.known_hosts_line())
    with contextlib.ExitStack() as stack:

        def start(**options: Any) -> SshShell:
            login = SshLogin(*LOGIN, known_hosts, NO_FILE)
            shell = SshShell(
                "server0", "127.0.0.1", SystemClock(), port=host.port, login=login, **options
            )
            stack.callback(shell.close)
            return shell

        yield start


STAND_IN = """#!/bin/sh
# $3 is the program of `python3 -u -c PROGRAM NAME VERSION`; the version is that of CentOS 7.
shift 2; program=$1; shift
exec python3 -u -c "import sys; sys.version_info = (3, 6, 8, 'final', 0); $program" "$@"
"""


def test_a_python_that_is_too_old_is_named(
    open_shell: Callable[..., SshShell], tmp_path: Path
) -> None:
    python = tmp_path / "python3.6"
    python.write_text(STAND_IN)
    python.chmod(0o755)
    old = LinuxServer("server0", open_shell(python=str(python)), SystemClock(), {})
    with pytest.raises(DisconnectedError) as refused:
        old.identity()
    first, *rest = str(refused.value).splitlines()
    assert first == f"server0 has as {python} a python that cannot run the probe"
    assert "  because   python 3.6 is too old, 3.8 is needed" in rest
    assert any("`python:` of the server" in line for line in rest)


def test_the_named_python_runs_the_probe(
    open_shell: Callable[..., SshShell], host: SshHost
) -> None:
    server = LinuxServer("server0", open_shell(python=sys.executable), SystemClock(), {})
    assert server.identity().firmware == f"python {platform.python_version()}"
    assert plain_line(host.commands[0].encode()).startswith(f"{sys.executable} -u -c ".encode())


@pytest.mark.parametrize("login_shell", ["sh", "bash", "csh", "fish"])
def test_login_shells(open_shell: Callable[..., SshShell], host: SshHost, login_shell: str) -> None:
    """sshd(8) hands the command to the account's shell with -c."""
    if shutil.which(login_shell) is None:
        pytest.skip(f"no {login_shell} on this machine")
    host.rewrite = lambda command: shlex.join([login_shell, "-c", command])
    server = LinuxServer("server0", open_shell(), SystemClock(), {})
    assert server.identity().manufacturer == "Linux"
    assert server.down(["lo", "nope0"]) == {"nope0"}
    text = "it's $HOME, \"%s\" & *, !x \\ \\' ü\nand `more`"
    assert server.commands.run(["printf", "%s!", text]).stdout == f"{text}!\n"
    missing = LinuxServer("server0", open_shell(python="python9"), SystemClock(), {})
    with pytest.raises(DisconnectedError, match="has no python9 that can run the probe"):
        missing.identity()


def test_a_shell_that_prints_is_named(open_shell: Callable[..., SshShell], host: SshHost) -> None:
    host.rewrite = lambda command: f"echo 'Welcome to rack 7'; {command}"
    server = LinuxServer("server0", open_shell(), SystemClock(), {})
    assert server.identity().manufacturer == "Linux"
    with pytest.raises(ToolOutputError) as refused:
        server.commands.read(["echo", "[1]"], parse_numbers)
    assert "'Welcome to rack 7' first: let it print only where it is interactive" in str(
        refused.value
    )
    findings = Findings(Components(None))
    examine_shell(server, findings)
    assert [(each.subject, each.grade) for each in findings.found] == [("server0", "note")]
    assert "prints 'Welcome to rack 7' before the output" in findings.found[0].text
    host.rewrite = str
    with pytest.raises(ToolOutputError) as refused:
        server.commands.read(["echo", "one"], parse_numbers)
    assert "Welcome" not in str(refused.value)


def parse_numbers(text: str) -> list[int]:
    try:
        return list(map(int, text.strip("[]\n").split(",")))
    except ValueError as error:
        raise ToolOutputError("echo", "numbers", text) from error


def test_an_account_without_a_shell_is_quoted(
    open_shell: Callable[..., SshShell], host: SshHost
) -> None:
    """nologin(8) writes to its standard output."""
    host.rewrite = lambda _: "echo 'This account is currently not available.'; exit 1"
    with pytest.raises(DisconnectedError) as refused:
        LinuxServer("server0", open_shell(), SystemClock(), {}).identity()
    assert "  printed   This account is currently not available." in str(refused.value)


def test_rights_that_are_missing_are_named(
    open_shell: Callable[..., SshShell], tmp_path: Path, host: SshHost
) -> None:
    """The last line is ethtool's, of a module that an account may not read."""
    programs = {
        "ethtool": "echo 'netlink error: Operation not permitted' >&2; exit 1",
        "sudo": '[ "$1" = -n ] && shift; [ -e refuse ] && { echo "sudo: a password is required"'
        " >&2; exit 1; }; echo module",
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\ncd {tmp_path}\n{text}\n")
        (tmp_path / name).chmod(0o755)
    host.environment["PATH"] = f"{tmp_path}:{os.environ['PATH']}"
    command = ["ethtool", "-m", "ens1f0"]
    plain = LinuxServer("server0", open_shell(), SystemClock(), {})
    with pytest.raises(ToolFailedError, match=r"may not do what ethtool needs: .* permitted") as no:
        plain.commands.read(command, str)
    assert "`become: true` of the server" in str(no.value)
    root = LinuxServer("server0", open_shell(), SystemClock(), {}, become=True)
    assert root.commands.read(command, str).value == "module\n"
    (tmp_path / "refuse").touch()
    with pytest.raises(ToolFailedError, match="by sudo: sudo: a password is required") as no:
        root.commands.read(command, str)
    assert "allow `sudo -n sh` to this account, NOPASSWD: it ends ethtool" in str(no.value)
    assert "become: true" not in str(no.value)


TESTBED = """
name: cluster
ssh_config: config
switches:
  ocs: {model: polatis, address: tl1://ocs.invalid, size: 4x4}
servers:
  server0:
    address: ssh://Rack7-s0
    python: PYTHON
    become: true
    timeouts: {first_answer: 5 s}
    nics:
      nic0: {netdev: ens1, rate: 100G}
"""


def test_a_server_is_opened_as_the_testbed_file_states(tmp_path: Path, host: SshHost) -> None:
    (tmp_path / "config").write_text(
        f"Host Rack7-s0\n  HostName 127.0.0.1\n  Port {host.port}\n"
        f"  UserKnownHostsFile {tmp_path}/known_hosts\n"
    )
    (tmp_path / "known_hosts").write_text(host.known_hosts_line())
    file = tmp_path / "cluster.yaml"
    file.write_text(TESTBED.replace("PYTHON", sys.executable))
    testbed = load(file)
    spec = testbed.servers["server0"]
    assert (spec.become, spec.timeouts.connect_ns, spec.timeouts.login_ns) == (True, None, 10**10)
    endpoint = replace(Endpoint.parse(spec.address, LOGIN), ssh_config=testbed.ssh_config)
    clock = SystemClock()
    server = open_server(spec, endpoint, clock, {})
    assert isinstance(server, LinuxServer)
    assert server.identity().manufacturer == "Linux"
    assert plain_line(host.commands[-1].encode()).startswith(f"{sys.executable} -u -c ".encode())
    with contextlib.suppress(ToolMissingError):  # of a machine without sudo
        server.commands.run(["true"])
    assert host.commands[-1].startswith("sudo -n ")
    server.close()
    host.rewrite = lambda command: f"sleep 60; exec {command}"
    file.write_text(TESTBED.replace("first_answer: 5 s", "first_answer: 0.3 s"))
    silent = open_server(load(file).servers["server0"], endpoint, clock, {})
    with pytest.raises(NoReplyError, match=r"did not answer within 0\.3 s"):
        silent.identity()
    silent.close()


def test_further_answers_have_a_time_limit_of_their_own(tmp_path: Path, host: SshHost) -> None:
    """The probe of this server is heard once only."""
    stated = "Host Rack7-s0\n  HostName 127.0.0.1\n  Port {}\n  UserKnownHostsFile {}\n"
    (tmp_path / "config").write_text(stated.format(host.port, tmp_path / "known_hosts"))
    (tmp_path / "known_hosts").write_text(host.known_hosts_line())
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\n{sys.executable} "$@" | (head -n 1; exec sleep 300)\n')
    python.chmod(0o755)
    file = tmp_path / "cluster.yaml"
    limits = "first_answer: 60 s, answer: 0.3 s"
    file.write_text(TESTBED.replace("PYTHON", str(python)).replace("first_answer: 5 s", limits))
    testbed = load(file)
    spec = testbed.servers["server0"]
    endpoint = replace(Endpoint.parse(spec.address, LOGIN), ssh_config=testbed.ssh_config)
    server = open_server(spec, endpoint, SystemClock(), {})
    assert isinstance(server, LinuxServer)
    assert server.identity().manufacturer == "Linux"
    with pytest.raises(NoReplyError, match=r"did not answer within 0\.3 s"):
        server.lit(["ens1"])
    server.close()
