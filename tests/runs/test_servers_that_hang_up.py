"""Runs on hardware whose server ends its SSH connections: one sentence, the lab as found."""

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bench.served_lab import FOREIGN, LEFT, ServedLab, describe, set_circuits
from runs.running import Started
from servers.ssh_cable import IN_BANNER, IN_KEY_EXCHANGE, Cable

# The test goes on once its server's connections have been cut.
SUITE = """
import pathlib, time

HERE = pathlib.Path(__file__).parent

def test_links(fabric, servers, transition):
    fabric.apply(transition.after)
    (HERE / "applied").touch()
    for _ in range(6000):
        if (HERE / "cut").exists():
            break
        time.sleep(0.02)
    servers["server0"].commands.run(["true"])
"""


@pytest.fixture
def cable(lab: ServedLab) -> Iterator[Cable]:
    """Lead connections to server0 through a cable; the testbed file has the cable's port."""
    host, _, port = lab.places["server0"].rpartition(":")
    with contextlib.closing(Cable(int(port))) as made:
        known = lab.folder / ".ssh" / "known_hosts"
        known.write_text(known.read_text().replace(f":{port} ", f":{made.port} "))
        describe(lab.folder, {**lab.places, "server0": f"{host}:{made.port}"})
        set_circuits(lab.switch, LEFT | FOREIGN)
        yield made


@pytest.fixture
def run(lab: ServedLab, start: Callable[..., Started], tmp_path: Path) -> Callable[[], Started]:
    (tmp_path / "test_links.py").write_text(SUITE)
    given = tmp_path / "test_links.py", "--testbed", lab.file, "--instruments", "hardware"
    return lambda: start(*given, "-k", "straight-to-crossed", environment=lab.environment)


@pytest.mark.parametrize(
    ("most", "sentence"),
    [
        (IN_BANNER, "closed the connection at 127.0.0.1:PORT before its SSH banner"),
        (IN_KEY_EXCHANGE, "did not finish the key exchange at 127.0.0.1:PORT: "),
    ],
)
def test_a_run_ends_before_its_first_test(
    lab: ServedLab, cable: Cable, run: Callable[[], Started], most: int, sentence: str
) -> None:
    cable.most = most
    ended = run().end()
    assert ended.code == 3, ended.output
    told = re.escape(sentence.replace("PORT", str(cable.port)))
    assert re.search(rf"^  server0 at \S+, after [\d.]+ s: {told}", ended.output, re.MULTILINE)
    assert "Traceback" not in ended.output
    assert lab.switch.circuits() == LEFT | FOREIGN


def test_a_server_that_hangs_up_amid_a_test_fails_it(
    lab: ServedLab,
    cable: Cable,
    run: Callable[[], Started],
    until: Callable[[Callable[[], bool]], None],
    tmp_path: Path,
) -> None:
    started = run()
    until((tmp_path / "applied").exists)
    cable.most = 0  # nor is a new connection answered
    cable.cut()
    (tmp_path / "cut").touch()
    ended = started.end()
    assert ended.code == 1, ended.output
    assert "server0 started no program" in ended.output
    assert "NOT as found" not in ended.output
    assert lab.switch.circuits() == LEFT | FOREIGN
