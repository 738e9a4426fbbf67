"""A session of three ranks on two servers, each the same machine, with a stand-in for PyTorch."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from program_host import Here

from lightrig.instruments.clock import SystemClock
from lightrig.instruments.core.errors import InstrumentError
from lightrig.instruments.servers.host.linux import LinuxServer
from lightrig.instruments.servers.traffic.rank_session import RankSession
from lightrig.instruments.servers.traffic.training import PrintedLines, Script, TrainingFailedError

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
            beside=[lambda: woken.append(lost.wait(5))],
            ended=ended.append,
            lost=lost.set,
        )
    assert sorted(ended) == [0, 1, 2]
    assert woken == [True]


def test_failed_task_beside_the_ranks_ends_them(session: RankSession) -> None:
    def refuse() -> None:
        raise InstrumentError("ocs", "refused")

    with pytest.raises(InstrumentError, match="refused"):
        session.run(
            Script("import time\ntime.sleep(60)", "long.py"), PrintedLines(), beside=[refuse]
        )
