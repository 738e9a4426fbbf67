"""Settings of a host in the configuration of OpenSSH's client, read as that client reads them.

Its own `ssh -G` reads the files where it is installed. Elsewhere paramiko does, which takes an
unknown `Match` for true and leaves `Include` out: a file with either is refused by name.
"""

import getpass
import io
import os
import pwd
import re
import shlex
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lightrig.instruments.core.errors import SshConfigError
from lightrig.instruments.wire.tcp import is_placeholder

NO_FILE = Path(os.devnull)
"""In place of a file: no configuration is read, only the stated defaults hold."""

SSH_PORT = 22
USERS_KNOWN_HOSTS = (Path("~/.ssh/known_hosts"), Path("~/.ssh/known_hosts2"))
"""ssh_config(5), UserKnownHostsFile; `~` is the home of this process."""

GLOBAL_KNOWN_HOSTS = (Path("/etc/ssh/ssh_known_hosts"), Path("/etc/ssh/ssh_known_hosts2"))
_KEYS = ("rsa", "ecdsa", "ecdsa_sk", "ed25519", "ed25519_sk", "xmss", "dsa")
_IDENTITIES = tuple(f"~/.ssh/id_{kind}" for kind in _KEYS)
"""ssh_config(5), IdentityFile."""
_FILES = (Path("~/.ssh/config"), Path("/etc/ssh/ssh_config"))
_READ_SECONDS = 20.0
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_JUMP = re.compile(r"(?:ssh://)?(?:(.+)@)?(\[[^\]]+\]|[^:@]+)(?::(\d+))?/?")
_UNSUPPORTED = re.compile(r"\s*(include|match)\b", re.IGNORECASE)
_NOISE = "Pseudo-terminal"
"""Begin of what `ssh -G` remarks where it has no terminal."""


@dataclass(frozen=True, slots=True)
class SshSettings:
    """How one host is reached. Tokens such as %h are expanded; missing files are among the files.

    Attributes:
        name: the host as it was asked for.
        host: where to connect to, HostName.
        user: login name there.
        identity_files: private keys, or public ones whose private part an agent holds.
        identity_agent: socket of the key agent; "" for no agent, None for the account's.
        identities_only: whether the agent's other keys are left out.
        user_known_hosts: files of host keys; None for the default ones of the user.
        global_known_hosts: files of host keys of this machine.
        host_key_alias: name of the host in these files, without a port.
        proxy_command: command whose input and output are the connection; None for none.
        jumps: hosts on the way there, [user@]host[:port], in order.
        connect_timeout: time for the connection and its banner, in s; None where none is stated.
    """

    name: str
    host: str
    port: int
    user: str
    identity_files: tuple[Path, ...] = ()
    identity_agent: str | None = None
    identities_only: bool = False
    user_known_hosts: tuple[Path, ...] | None = None
    global_known_hosts: tuple[Path, ...] = ()
    host_key_alias: str | None = None
    proxy_command: str | None = None
    jumps: tuple[str, ...] = ()
    connect_timeout: float | None = None


def read_settings(
    instrument: str,
    name: str,
    *,
    port: int | None = None,
    user: str | None = None,
    file: Path | None = None,
    jumps: Sequence[str] = (),
) -> SshSettings:
    """Return the settings of the host `name`.

    Args:
        instrument: for the error.
        name: a host, or an alias of the configuration.
        port: overrides the configuration, as `ssh -p` does.
        user: overrides the configuration, as `ssh -l` does.
        file: the configuration; None for that of the user and the machine, `NO_FILE` for none.
        jumps: override the configuration, as `ssh -J` does.

    Raises:
        SshConfigError: the configuration cannot be read.
    """
    if file == NO_FILE or is_placeholder(name):
        return SshSettings(
            name, name, port or SSH_PORT, user or _account(), tuple(map(_home, _IDENTITIES))
        )
    stated = {"port": str(port) if port else "", "user": user or "", "proxyjump": ",".join(jumps)}
    stated = {key: value for key, value in stated.items() if value}
    try:
        ssh = shutil.which("ssh")
        found = _by_ssh(ssh, name, file, stated) if ssh else _by_paramiko(name, file, stated)
        return _settings(name, found)
    except (ValueError, OSError, subprocess.SubprocessError) as error:
        shown = file or "its configuration"
        raise SshConfigError(
            instrument,
            f"was not contacted, since {shown} cannot be read for the host {name}: {error}",
            details=[("try", "mend it, or name another by `ssh_config:` of the testbed")],
        ) from error


def _by_ssh(
    ssh: str, name: str, file: Path | None, stated: Mapping[str, str]
) -> dict[str, list[str]]:
    """Return the lines of `ssh -G` by keyword; raises ValueError with its message."""
    options = [] if file is None else ["-F", str(file)]
    for key, value in stated.items():
        options += ["-o", f"{key}={value}"]
    done = subprocess.run(
        [ssh, "-G", *options, "--", name],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_READ_SECONDS,
        check=False,
    )
    if done.returncode:
        errors = done.stderr.decode(errors="backslashreplace").splitlines()
        errors = [line for line in errors if line.strip() and not line.startswith(_NOISE)]
        raise ValueError(errors[0] if errors else f"ssh -G ended with status {done.returncode}")
    found: dict[str, list[str]] = {}
    for line in os.fsdecode(done.stdout).splitlines():
        key, _, value = line.partition(" ")
        found.setdefault(key, []).append(value)
    for key in ("userknownhostsfile", "globalknownhostsfile"):
        # Printed without quotes: a path begins behind a blank where it looks like one.
        found[key] = re.split(r" (?=[/~%$])", found[key][0])
    home = pwd.getpwuid(os.geteuid()).pw_dir
    if found["userknownhostsfile"] == [
        str(path).replace("~", home, 1) for path in USERS_KNOWN_HOSTS
    ]:
        del found["userknownhostsfile"]
    return found


def _by_paramiko(name: str, file: Path | None, stated: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the settings by keyword as paramiko reads them; raises ValueError, OSError."""
    import paramiko  # noqa: PLC0415 - slow, and a testbed without servers needs none of it

    config = paramiko.SSHConfig()
    first = "".join(f"{key} {value}\n" for key, value in stated.items())
    config.parse(io.StringIO(f"Host *\n{first}"))
    for path in _FILES if file is None else [file]:
        try:
            text = path.expanduser().read_text(encoding="utf-8", errors="surrogateescape")
        except FileNotFoundError:
            if file is not None:
                raise
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if word := _UNSUPPORTED.match(line):
                raise ValueError(
                    f"line {number} of {path} has {word[1]}, which only OpenSSH's client reads; "
                    "install it, or name a file without"
                )
        try:
            config.parse(io.StringIO(text))
        except paramiko.ConfigParseError as error:
            raise ValueError(f"{path}: {error}") from error
    found: dict[str, list[str]] = {}
    for key, value in config.lookup(name).items():
        found[key] = list(value) if isinstance(value, list) else [str(value)]
    for key in ("userknownhostsfile", "globalknownhostsfile"):
        if key in found:
            found[key] = shlex.split(found[key][0])
    ways = [key for key in found if key in {"proxyjump", "proxycommand"}]
    for later in ways[1:]:  # in the order of the file: the first one holds
        del found[later]
    found.setdefault("identityfile", list(_IDENTITIES))
    found.setdefault("globalknownhostsfile", list(map(str, GLOBAL_KNOWN_HOSTS)))
    return found


def _settings(name: str, found: Mapping[str, Sequence[str]]) -> SshSettings:
    one = {key: values[0] for key, values in found.items()}
    if one.get("proxyusefdpass", "no") == "yes":
        raise ValueError("ProxyUseFdpass hands over a connection, which is not supported")
    host, user = one.get("hostname", name), one.get("user") or _account()
    port = int(one.get("port", SSH_PORT))
    jumps, command = (_unless_none(one.get(key)) for key in ("proxyjump", "proxycommand"))
    alias = one.get("hostkeyalias")
    local = socket.gethostname()
    tokens = {"%": "%", "h": host, "n": name, "p": str(port), "r": user}
    tokens |= {"d": str(Path.home()), "i": str(os.geteuid()), "u": _account()}
    tokens |= {"l": local, "L": local.partition(".")[0], "k": alias or name, "j": jumps or ""}

    def files(key: str) -> tuple[Path, ...]:
        return tuple(
            _home(_expanded(text, tokens, variables=True))
            for text in found[key]
            if _unless_none(text)
        )

    agent = one.get("identityagent")
    if agent is not None and agent.startswith("$") and "{" not in agent:
        agent = os.environ.get(agent[1:], "")
    elif agent is not None:
        agent = None if agent == "SSH_AUTH_SOCK" else _unless_none(agent) or ""
    known = files("userknownhostsfile") if "userknownhostsfile" in found else None
    timeout = _unless_none(one.get("connecttimeout"))
    return SshSettings(
        name,
        host,
        port,
        user,
        files("identityfile"),
        identity_agent=agent and str(_home(_expanded(agent, tokens, variables=True))),
        identities_only=one.get("identitiesonly", "no") == "yes",
        user_known_hosts=known,
        global_known_hosts=files("globalknownhostsfile"),
        host_key_alias=alias,
        proxy_command=None if command is None else _expanded(command, tokens, variables=False),
        jumps=tuple(jumps.split(",")) if jumps else (),
        connect_timeout=None if timeout is None else seconds(timeout),
    )


def _unless_none(text: str | None) -> str | None:
    return None if text is None or text.lower() == "none" else text


def seconds(text: str) -> float:
    """Return a time of ssh_config in s, such as 1m30s (sshd_config(5), TIME FORMATS)."""
    if not re.fullmatch(r"(\d+[smhdw]?)+", text.lower()):
        raise ValueError(f"{text!r} is no time")
    return float(
        sum(
            int(n) * _UNITS[unit or "s"] for n, unit in re.findall(r"(\d+)([smhdw]?)", text.lower())
        )
    )


def _expanded(text: str, tokens: Mapping[str, str], *, variables: bool) -> str:
    """Expand %h and the like, and ${NAME} (ssh_config(5), TOKENS, ENVIRONMENT VARIABLES)."""

    def value(match: re.Match[str]) -> str:
        known = tokens if match[1] else os.environ
        if (name := match[1] or match[2]) not in known:
            raise ValueError(f"{match[0]} of {text!r} is not known")
        return known[name]

    return re.sub(r"%(.)|\$\{(\w+)\}" if variables else "%(.)", value, text)


def parse_jump(text: str) -> tuple[str | None, str, int | None]:
    """Return user, host and port of a jump; raises ValueError."""
    match = _JUMP.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no jump host")
    user, host, port = match.groups()
    return user, host.strip("[]"), int(port) if port else None


def _home(text: str) -> Path:
    return Path(text).expanduser()


def _account() -> str:
    return getpass.getuser()
