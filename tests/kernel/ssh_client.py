"""OpenSSH's own client, with a password and the host keys of one file."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

ASKPASS = '#!/bin/sh\nprintf "%s\\n" "$SECRET"\n'


def write_ending_sshd(folder: Path, last_words: str) -> None:
    """Write a program `sshd` that accepts any configuration, and ends at each client.

    last_words: shell commands; $5 is the file of the option -E.
    """
    program = folder / "sshd"
    program.write_text(f'#!/bin/sh\n[ "$1" = -t ] && exit\n{last_words}\n')
    program.chmod(0o755)


@dataclass
class SshClient:
    """Runs `ssh` and `sftp` as a user would; `folder` holds what they need."""

    folder: Path
    known_hosts: Path

    def run(
        self, address: tuple[str, int], login: tuple[str, str], command: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command line on the server at `address`."""
        host, port = address
        return self._start(
            ["ssh", *self._options(), "-p", str(port), f"{login[0]}@{host}", command], login
        )

    def transfer(
        self, address: tuple[str, int], login: tuple[str, str], commands: str
    ) -> subprocess.CompletedProcess[str]:
        """Run `commands` by sftp."""
        # Not from a file with -b, which allows no password.
        options = [*self._options(), "-P", str(address[1])]
        return self._start(["sftp", *options, f"{login[0]}@{address[0]}"], login, commands)

    def _options(self) -> list[str]:
        return [
            *("-F", "none", "-o", f"UserKnownHostsFile={self.known_hosts}"),
            *("-o", "GlobalKnownHostsFile=none", "-o", "StrictHostKeyChecking=yes"),
            *("-o", "PubkeyAuthentication=no", "-o", "NumberOfPasswordPrompts=1"),
        ]

    def _start(
        self, command: list[str], login: tuple[str, str], text: str = ""
    ) -> subprocess.CompletedProcess[str]:
        askpass = self.folder / "askpass"
        if not askpass.exists():
            askpass.write_text(ASKPASS)
            askpass.chmod(0o700)
        program = shutil.which(command[0])
        assert program is not None
        environment = {"SSH_ASKPASS": str(askpass), "SSH_ASKPASS_REQUIRE": "force"}
        return subprocess.run(
            [program, *command[1:]],
            env={**os.environ, **environment, "SECRET": login[1]},
            input=text,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
