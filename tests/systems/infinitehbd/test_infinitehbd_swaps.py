"""The program by which two servers swap data, and what a server answers that has no partner."""

import socket
import subprocess
import sys
from importlib import resources

from unused_ports import unused_ports

PROGRAM = (resources.files("lightrig.instruments.jobs.programs") / "swap_program.py").read_text(
    "utf-8"
)


def started(role: str, port: str, block: bytes) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-IS", "-c", PROGRAM, role, "127.0.0.1", port, block.hex()],
        stdout=subprocess.PIPE,
        text=True,
    )


def test_each_gets_the_block_of_the_other_whoever_comes_first() -> None:
    port, blocks = str(*unused_ports()), {"connect": bytes(range(256)) * 60, "listen": b""}
    ends = {role: started(role, port, block) for role, block in blocks.items()}
    found = {role: end.communicate(timeout=60)[0] for role, end in ends.items()}
    assert {end.returncode for end in ends.values()} == {0}
    assert bytes.fromhex(found["listen"]) == blocks["connect"]
    assert bytes.fromhex(found["connect"]) == blocks["listen"]


def test_a_server_that_another_holds_the_port_of_ends() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        end = started("listen", str(taken.getsockname()[1]), b"1")
        assert end.communicate(timeout=60)[0] == ""
        assert end.returncode != 0
