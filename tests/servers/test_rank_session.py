"""A session of three ranks on two servers, each the same machine, with a stand-in for PyTorch."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from program_host import Here

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.core.errors import InstrumentError
from lightrig.instruments.jobs.traffic.rank_session import RankSession
from lightrig.instruments.jobs.traffic.training import (
    PrintedLines,
    RankLostError,
    Script,
    TrainingFailedError,
)
from lightrig.instruments.servers.host.linux import LinuxServer

STAND_IN = Path(__file__).parent / "stand_in_training"
VARIABLES = "RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "GLOO_SOCKET_IFNAME"
SHOWN = Script(f"import os\nprint(*(os.environ[name] for name in {VARIABLES}))", "shown.py")
FAILING = """
import os
import time
if os.environ["RANK"] == "1":
    raise ValueError("no such layer")
time.sleep(60)
"""


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[RankSession]:
    monkeypatch.setenv("PYTHONPATH", str(STAND_IN))
    clock = SystemClock()
    shells = {name: Here() for name in ("left", "right")}
    servers = {name: LinuxServer(name, shell, clock, {}) for name, shell in shells.items()}
    on = [servers["left"], servers["left"], servers["right"]]
    running = RankSession(clock, on, ["rail0", "rail1", "rail0"], "198.18.0.1")
    yield running
    running.close()
    for shell in shells.values():
        shell.close()
    clock.close()


def test_ranks_are_counted_on_each_server_and_meet_at_a_new_port_each_run(
    session: RankSession,
) -> None:
    runs = [session.run(SHOWN, PrintedLines()).printed for _ in range(2)]
    lines = [[run[rank][0][1].split() for rank in range(3)] for run in runs]
    ports = [run[0][4] for run in lines]
    for run, port in zip(lines, ports, strict=True):
        assert run == [
            ["0", "0", "3", "198.18.0.1", port, "rail0"],
            ["1", "1", "3", "198.18.0.1", port, "rail1"],
            ["2", "0", "3", "198.18.0.1", port, "rail0"],
        ]
    assert int(ports[1]) == int(ports[0]) + 1


def test_a_failed_rank_ends_its_peers_and_raises_its_error(session: RankSession) -> None:
    ended, woken, lost = [], [], threading.Event()
    with pytest.raises(TrainingFailedError, match="no such layer"):
        session.run(
            *(Script(FAILING, "failing.py"), PrintedLines()),
            beside=[lambda: woken.append(lost.wait(30))],
            ended=ended.append,
            lost=lost.set,
        )
    assert sorted(ended) == [0, 1, 2]
    assert woken == [True]


ENDED = """
import os
import sys
import time
print("begun", flush=True)
if os.environ["RANK"] == "1":
    assert os.environ["FURTHER"] == "given"
    time.sleep(600)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
raise ConnectionError("closed by peer")
"""


def test_the_end_of_a_rank_explains_the_errors_of_its_peers(
    session: RankSession, tmp_path: Path
) -> None:
    """Peers fail when rank 1 is about to be killed, and so before its end is noticed."""
    listener, gone = PrintedLines(), tmp_path / "gone"

    def kill() -> None:
        while len(listener.lines) < 3:
            time.sleep(0.01)
        gone.touch()
        time.sleep(0.1)
        session.ranks[1].kill()

    began = time.monotonic()
    with pytest.raises(RankLostError, match="left lost rank 1 of a training job"):
        session.run(
            Script(ENDED, "ended.py", (str(gone),)),
            listener,
            beside=[kill],
            environment={"FURTHER": "given"},
        )
    assert time.monotonic() - began < 300
    session.renew()
    assert session.run(SHOWN, PrintedLines()).printed.keys() == {0, 1, 2}


def test_failed_task_beside_the_ranks_ends_them(session: RankSession) -> None:
    def refuse() -> None:
        raise InstrumentError("ocs", "refused")

    with pytest.raises(InstrumentError, match="refused"):
        session.run(
            Script("import time\ntime.sleep(60)", "long.py"), PrintedLines(), beside=[refuse]
        )
