"""Jobs on servers that are namespaces: what each library is given, and what kernels are told."""

from types import SimpleNamespace
from typing import Any

import pytest

from lightrig.harness.bench import leftovers
from lightrig.harness.jobs.bench import jobs, streams
from lightrig.harness.jobs.bench.jobs import Jobs, JobSetting, NoJobsError
from lightrig.instruments.clock import Span
from lightrig.instruments.servers.host.commands import CommandResult, ToolFailedError
from lightrig.testbeds import LightrigError, Link, load

S = 1_000_000_000
TESTBED = load("testbeds/namespaces.yaml")


class Made:
    """An overlay or a runner: how it was made, and what was asked of it in which order."""

    def __init__(self, log: list[Any], name: str, *given: Any, **settings: Any) -> None:
        self.log, self.name, self.given, self.settings = log, name, given, settings
        self.servers: dict[str, Any] = {"server1": "one", "server0": "two"}
        self.addresses = {"server0": "198.18.0.1"}
        self.broken = False

    def close(self) -> None:
        self.log.append(f"close {self.name}")
        if self.broken:
            raise LightrigError("it does not end")


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    found: list[Any] = []
    for name in ("Overlay", "GlooRunner", "MpiRunner", "RingRunner"):
        made = lambda *given, name=name, **settings: Made(found, name, *given, **settings)  # noqa: E731
        monkeypatch.setattr(jobs, name, made)
    return found


BENCH: Any = SimpleNamespace(testbed=TESTBED, clock="clock")
SETTING = JobSetting(user_timeout=3 * S, timeout=5 * S, retries=4)


@pytest.mark.parametrize(
    ("library", "setting", "name", "further", "settings"),
    [
        ("mpich", SETTING, "MpiRunner", (), {"timeout": 5 * S}),
        ("gloo", SETTING, "GlooRunner", ("addresses",), {"timeout": 5 * S}),
        ("gloo", JobSetting(), "GlooRunner", ("addresses",), {"timeout": 1800 * S}),
        ("tcp", SETTING, "RingRunner", ("addresses",), {"user_timeout": 3 * S}),
    ],
)
def test_each_library_is_made_of_the_overlay(
    log: list[Any], library: Any, setting: JobSetting, name: str, further: Any, settings: Any
) -> None:
    made: Any = Jobs(BENCH, library, setting)
    overlay, runner = made.overlay, made.runner
    assert overlay.given == (BENCH,)
    retries = {} if setting.retries is None else {"tcp_retries2": "4"}
    kernel = {"neigh/{netdev}/retrans_time_ms": "1000", **retries}
    assert overlay.settings == {"settings": kernel}
    assert runner.name == name
    assert runner.settings == settings
    assert runner.given == (overlay.servers, *(overlay.addresses for _ in further), "clock")
    runner.broken = True
    with pytest.raises(LightrigError):
        made.close()
    assert log == [f"close {name}", "close Overlay"]


def test_the_overlay_goes_where_a_library_cannot_be_had(
    log: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacking(*_: Any, **__: Any) -> None:
        raise LightrigError("no MPI")

    monkeypatch.setattr(jobs, "MpiRunner", lacking)
    with pytest.raises(LightrigError, match="no MPI"):
        Jobs(BENCH, "mpich", SETTING)
    assert log == ["close Overlay"]
    simulated: Any = SimpleNamespace(testbed=load("testbeds/opus.yaml"))
    with pytest.raises(NoJobsError, match=r"opus\.yaml: simulated servers run no TCP"):
        Jobs(simulated, "tcp", SETTING)


def test_kernels_of_each_server_lose_packets_at_its_own_ports(log: list[Any]) -> None:
    made: Any = Jobs(BENCH, "tcp", SETTING)
    specs = sorted(TESTBED.nic_ports, key=lambda spec: str(spec.port))
    first, *others = (spec for spec in specs if spec.port.owner == "server0")
    other = next(spec for spec in specs if spec.port.owner == "server1")
    ran: list[tuple[str, list[str]]] = []
    answers = {"server0": "700 750\n", "server1": "720 790\n"}

    def server(name: str, status: int = 0) -> Any:
        def run(command: list[str]) -> CommandResult:
            ran.append((name, command))
            return CommandResult(answers[name], "", status, Span(0, 0))

        return SimpleNamespace(
            local_shell=lambda: SimpleNamespace(python=f"python of {name}"),
            commands=SimpleNamespace(run=run),
        )

    made.overlay.servers = {name: server(name) for name in answers}
    ports = [other.port, others[0].port, first.port]
    assert made.lose(ports, 0.025) == Span(700, 790)
    assert [name for name, _ in ran] == ["server0", "server1"]
    python, *options, text, share = ran[0][1][:-2]
    assert (python, options, share) == ("python of server0", ["-IS", "-c"], "2.5")
    assert "def main" in text
    assert ran[0][1][5:] == sorted([first.netdev, others[0].netdev])
    assert ran[1][1][5:] == [other.netdev]
    made.overlay.servers["server1"] = server("server1", status=1)
    with pytest.raises(ToolFailedError, match="nftables"):
        made.lose(ports, 0.025)


def test_a_setting_is_written_by_its_parts() -> None:
    assert str(SETTING) == "TCP user timeout 3 s, timeout 5 s, tcp_retries2 4"
    assert str(JobSetting(timeout=S // 2)) == "timeout 0.5 s"
    assert str(JobSetting()) == "defaults"


def test_a_stream_has_the_ends_of_its_link(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "TcpStream", lambda *given, **further: (given, further))
    monkeypatch.setattr(streams, "LinuxServer", str)
    specs = sorted(TESTBED.nic_ports, key=lambda spec: str(spec.port))
    one, two = specs[1], next(spec for spec in specs if spec.port.owner == "server2")
    bench: Any = SimpleNamespace(
        testbed=TESTBED, servers={"server0": "linux", "tester": 3}, clock="clock"
    )
    given, further = streams.open_stream(bench, Link(one.port, two.port), user_timeout=9)  # type: ignore[misc]
    servers, clock, first, second = given  # type: ignore[misc]
    assert (servers, clock, further) == ({"server0": "linux"}, "clock", {"user_timeout": 9})
    for end, spec in ((first, one), (second, two)):
        assert (end.server, end.netdev) == (spec.port.owner, spec.netdev)
        assert end.address == str(spec.ip).split("/")[0]


@pytest.mark.parametrize(
    ("changed", "waited_s"),
    [
        (["2026-03-14T10:00:00", "2026-03-14T10:00:58"], [1]),
        (["2026-03-14T10:01:00", ""], [3]),
        (["2026-03-14T10:00:57"], []),
        (["2026-03-14T10:01:02"], []),  # a clock that was set
        ([""], []),
    ],
)
def test_what_a_killed_run_sent_last_is_awaited(
    changed: list[str], waited_s: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is 10:01:00, and settles in two seconds; times on disk are cut to whole ones."""
    now = leftovers.datetime.datetime(2026, 3, 14, 10, 1, tzinfo=leftovers.datetime.UTC)
    monkeypatch.setattr(leftovers, "wall_time", lambda: now)
    times = [
        each and leftovers.datetime.datetime.fromisoformat(each).strftime(leftovers.TIME)
        for each in changed
    ]
    waited: list[int] = []
    states = SimpleNamespace(
        read_all=lambda: ([SimpleNamespace(changed=each) for each in times], [])
    )
    clock = SimpleNamespace(sleep=waited.append)
    benches: Any = {
        "none": SimpleNamespace(saved_states=None),
        "lab": SimpleNamespace(saved_states=states, clock=clock),
        "same": SimpleNamespace(saved_states=states, clock=clock),
    }
    leftovers.await_last_commands(benches)
    assert waited == [each * S for each in waited_s]
