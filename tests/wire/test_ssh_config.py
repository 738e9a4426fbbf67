"""Settings of hosts by ssh_config files, where no server is needed; ssh_config(5)."""

import os
from pathlib import Path

import pytest

from lightrig.instruments.core.endpoint import Endpoint
from lightrig.instruments.core.errors import SshConfigError
from lightrig.instruments.wire.ssh_config import NO_FILE, parse_jump, read_settings, seconds


@pytest.mark.parametrize(
    ("text", "expected"), [("600", 600), ("10m", 600), ("1h30m", 5400), ("1w2D", 777_600)]
)
def test_times(text: str, expected: int) -> None:
    """The examples of sshd_config(5), TIME FORMATS, and its units."""
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "m", "1y", "-1", "1.5s"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no time"):
        seconds(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gate", (None, "gate", None)),
        ("bench@gate:22", ("bench", "gate", 22)),
        ("bench@[2001:db8::1]:2200", ("bench", "2001:db8::1", 2200)),
        ("ssh://a@corp@Gate:22", ("a@corp", "Gate", 22)),
    ],
)
def test_jump_hosts(text: str, expected: tuple[str | None, str, int | None]) -> None:
    assert parse_jump(text) == expected


@pytest.mark.parametrize("text", ["", "bench@", "gate:ssh", "2001:db8::1"])
def test_what_is_no_jump_host_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no jump host"):
        parse_jump(text)


@pytest.fixture(params=["openssh", "paramiko"])
def _client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "paramiko":
        monkeypatch.setenv("PATH", os.devnull)


@pytest.mark.usefixtures("_client")
def test_a_testbed_file_comes_before_the_configuration_and_that_before_defaults(
    tmp_path: Path,
) -> None:
    file = tmp_path / "config"
    file.write_text("Host Rack7\n  Port 2200\n  User ann\n  HostName %h.example\n")
    found = read_settings("server0", "Rack7", file=file)
    assert (found.host.lower(), found.port, found.user) == ("rack7.example", 2200, "ann")
    stated = read_settings("server0", "Rack7", port=22, user="bob", file=file)
    assert (stated.port, stated.user) == (22, "bob")
    assert read_settings("server0", "other", file=file).port == 22


@pytest.mark.usefixtures("_client")
def test_the_first_of_proxy_jump_and_proxy_command_holds(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text("Host *\n  ProxyCommand nc %h %p\n  ProxyJump gate\n")
    found = read_settings("server0", "rack7", file=file)
    assert (found.proxy_command, found.jumps) == ("nc rack7 22", ())
    jumped = read_settings("server0", "rack7", file=file, jumps=["a", "b"])
    assert (jumped.proxy_command, jumped.jumps) == (None, ("a", "b"))


def test_an_alias_keeps_its_letters() -> None:
    """Patterns of Host tell large letters from small ones."""
    endpoint = Endpoint.parse("ssh://Ann@Rack7-S0:22", None)
    assert (endpoint.user, endpoint.host, endpoint.port) == ("Ann", "Rack7-S0", 22)


def test_without_a_file_the_defaults_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.devnull)
    found = read_settings("server0", "rack7", user="ann", file=NO_FILE)
    assert (found.host, found.port, found.user) == ("rack7", 22, "ann")
    assert (found.jumps, found.proxy_command, found.global_known_hosts) == ((), None, ())


@pytest.mark.parametrize("word", ["Include", "match", "Match=", "  INCLUDE"])
def test_what_paramiko_reads_wrongly_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    monkeypatch.setenv("PATH", os.devnull)
    file = tmp_path / "config"
    file.write_text(f"Host *\n{word} all\n")
    with pytest.raises(SshConfigError, match=r"line 2 of .* only OpenSSH's client reads"):
        read_settings("server0", "rack7", file=file)
