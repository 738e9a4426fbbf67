"""The tools of simulated servers over real SSH: what is read is what the world has."""

import math
import time
from collections.abc import Iterator
from pathlib import Path

import paramiko
import pytest
from paramiko.common import cMSG_CHANNEL_SUCCESS
from paramiko.packet import Packetizer
from simulated_hosts import LR4, MS, SECOND, Pair, served, tools

from lightrig.instruments.clock import Clock
from lightrig.instruments.clock.virtual import VirtualClock
from lightrig.instruments.core.errors import InstrumentError, NotDoneError
from lightrig.instruments.servers.host.commands import Commands, ToolFailedError, ToolMissingError
from lightrig.instruments.servers.ports.nic import NicTools
from lightrig.instruments.servers.tools.counters import changes, ethtool_kind
from lightrig.instruments.servers.tools.output import ToolOutputError
from lightrig.instruments.simulated.protocols.ssh_server import ProgramOutcome

IF, DEV = "ens1f0", "mlx5_0"


@pytest.fixture(params=["virtual", "system"])
def clock(request: pytest.FixtureRequest) -> Clock:
    clock: Clock = request.getfixturevalue(f"{request.param}_clock")
    return clock


@pytest.fixture
def pair(clock: Clock) -> Pair:
    return Pair(clock)


@pytest.fixture
def commands(pair: Pair, tmp_path: Path) -> Iterator[list[Commands]]:
    with served(pair, tmp_path) as made:
        yield made


@pytest.fixture
def nic(commands: list[Commands]) -> NicTools:
    return tools(commands)[0]


def settle(pair: Pair, duration: int) -> None:
    """Wait until a link has followed the light; on a busy machine that takes longer."""
    pair.clock.sleep(duration if pair.clock.virtual else 20 * duration)


def up(pair: Pair) -> None:
    pair.light(on=True)
    settle(pair, 40 * MS)


def test_a_link_comes_and_goes_with_the_light(pair: Pair, nic: NicTools) -> None:
    dark = nic.link(IF)
    assert (dark.value.detected, dark.value.speed_bps) == (False, None)
    assert dark.at.earliest <= dark.at.latest <= pair.clock.now()
    up(pair)
    lit = nic.link(IF).value
    assert (lit.detected, lit.speed_bps, lit.duplex) == (True, 100 * 10**9, "full")
    assert nic.device(IF).value.carrier
    (rdma,) = nic.rdma_links().value
    assert (rdma.up, rdma.physical_state, rdma.netdev) == (True, "LINK_UP", IF)
    port = nic.infiniband(DEV).value
    assert (port.state, port.physical_state, port.rate_bps) == ("ACTIVE", "LinkUp", 100 * 10**9)
    firmware = nic.firmware(DEV).value
    assert firmware.link is not None
    assert firmware.link.up
    pair.light(on=False)
    settle(pair, 10 * MS)
    assert not nic.link(IF).value.detected
    assert nic.device(IF).value.carrier_changes == 2
    assert nic.counters(IF).value["link_down_events_phy"] == 1
    errors = nic.firmware(DEV).value.errors
    assert errors is not None
    assert errors.raw_ber is None


def test_light_by_lane(pair: Pair, nic: NicTools) -> None:
    up(pair)
    module = nic.module(IF).value
    assert (module.part, module.wavelength_nm) == (LR4.name.upper(), 1310)
    for lane in module.lanes:
        assert lane.rx_power_dbm == pytest.approx(10 * math.log10(0.5), abs=0.6)
        assert lane.tx_power_dbm == pytest.approx(0, abs=0.6)
    assert 30 < (module.temperature_c or 0) < 60
    assert module.thresholds["rx_power"]["low_warning"] == pytest.approx(-10.6, abs=0.01)
    pair.received_mw = 0.0
    assert {lane.rx_power_dbm for lane in nic.module(IF).value.lanes} == {-math.inf}
    assert {lane.rx_los for lane in nic.module(IF).value.lanes} == {True}
    by_firmware = nic.firmware(DEV).value.module
    assert by_firmware is not None
    assert {lane.rx_power_dbm for lane in by_firmware.lanes} == {-math.inf}


def test_unknown_port_shows_the_message_of_the_tool(nic: NicTools) -> None:
    with pytest.raises(ToolFailedError, match="No such device"):
        nic.link("nope0")
    with pytest.raises(ToolFailedError, match="No such device"):
        nic.module("nope0")
    with pytest.raises(ToolFailedError, match="Failed to open device"):
        nic.firmware("mlx5_9")
    with pytest.raises(ToolFailedError):
        nic.infiniband("mlx5_9")


def test_a_program_may_have_ended_before_the_host_confirms_its_start(
    nic: NicTools, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = Packetizer.send_message

    def confirm_late(line: Packetizer, message: paramiko.Message) -> None:
        if message.asbytes()[:1] == cMSG_CHANNEL_SUCCESS:  # which the server alone sends
            time.sleep(0.05)
        send(line, message)

    monkeypatch.setattr(Packetizer, "send_message", confirm_late)
    (link,) = nic.rdma_links().value
    assert link.device == DEV


# ------------------------------------------------------------------------- errors, patterns


def virtual_pair(tmp_path: Path, **options: object) -> Iterator[tuple[Pair, list[NicTools]]]:
    clock = VirtualClock(stall_timeout=20)
    pair = Pair(clock, **options)  # type: ignore[arg-type]
    with served(pair, tmp_path) as commands:
        yield pair, tools(commands)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[tuple[Pair, list[NicTools]]]:
    yield from virtual_pair(tmp_path, ber=1e-9)


Rig = tuple[Pair, list[NicTools]]


def test_errors_are_those_of_the_latent_ratio(rig: Rig) -> None:
    pair, (nic, _) = rig
    up(pair)
    before, first = nic.counters(IF)
    pair.clock.sleep(100 * SECOND)
    after, second = nic.counters(IF)
    grown = changes(before, after, ethtool_kind, apart_ns=second.earliest - first.latest)
    bits, errors = grown["rx_bits_phy"], grown["rx_corrected_bits_phy"]
    assert isinstance(bits, int)
    assert isinstance(errors, int)
    assert bits == pytest.approx(100 * 100 * 10**9, rel=1e-3)
    assert errors / bits == pytest.approx(1e-9, rel=0.1)  # 10,000 errors: 1 % is one sd
    lanes = [grown[f"rx_err_lane_{lane}_phy"] for lane in range(4)]
    assert sum(lanes) == errors  # type: ignore[arg-type]
    report = nic.firmware(DEV).value.errors
    assert report is not None
    assert report.raw_ber == pytest.approx(1e-9, rel=0.5)  # one digit
    assert report.effective_ber == 0.0
    assert nic.fec(IF).value.uncorrectable_blocks.total == 0  # type: ignore[union-attr]


def test_a_ratio_that_fec_cannot_help(tmp_path: Path) -> None:
    for pair, (nic, _) in virtual_pair(tmp_path, ber=2e-3):
        up(pair)
        pair.clock.sleep(SECOND)
        fec = nic.fec(IF).value
        assert fec.uncorrectable_blocks is not None
        assert fec.uncorrectable_blocks.total > 1000
        assert nic.counters(IF).value["rx_pcs_symbol_err_phy"] > 1000


def test_pattern_locks_when_the_peer_sends_it(rig: Rig) -> None:
    pair, (here, there) = rig
    up(pair)
    with here.prbs(DEV) as one:
        assert one.read().value.locked == (False,) * 4
        assert not here.link(IF).value.detected
        with there.prbs(DEV, "PRBS13A"):
            assert one.read().value.locked == (False,) * 4
        with there.prbs(DEV) as peer:
            one.clear()
            one.tune()
            pair.clock.sleep(100 * SECOND)
            test, at = one.read()
            assert test.locked == (True,) * 4
            assert (test.rx_pattern, test.tuning) == ("PRBS31", "PRBS mode tuning completed.")
            assert sum(test.errors or ()) == pytest.approx(10_000, rel=0.1)
            assert test.ber == pytest.approx(1e-9, rel=0.5)
            assert peer.read().at.earliest >= at.latest
    pair.clock.sleep(SECOND)
    assert here.link(IF).value.detected
    assert there.link(IF).value.detected


def test_a_port_is_given_back_whatever_happens(rig: Rig) -> None:
    pair, (nic, _) = rig
    up(pair)

    def misuse() -> None:
        with nic.prbs(DEV):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        misuse()
    pair.clock.sleep(SECOND)
    assert nic.link(IF).value.detected


def test_port_in_test_mode_is_refused(rig: Rig) -> None:
    _, (nic, _) = rig
    with (
        nic.prbs(DEV) as first,
        pytest.raises(InstrumentError, match="in test mode already"),
        nic.prbs(DEV),
    ):
        pass
    with pytest.raises(ToolOutputError, match="test mode"):
        first.read()


def test_failed_end_of_test_mode_is_reported(rig: Rig) -> None:
    pair, (nic, _) = rig
    host = pair.hosts[0]
    run = host.run

    def refuse(argv: list[str]) -> ProgramOutcome:
        return ProgramOutcome("", "-E- Device is busy\n", 1) if "DS" in argv else run(argv)

    with pytest.raises(NotDoneError, match="still has mlx5_0 in test mode") as left, nic.prbs(DEV):
        pair.hosts[0].programs["mlxlink"] = lambda argv: refuse(["mlxlink", *argv])
    assert "--test_mode DS" in left.value.command


def test_a_device_that_another_tool_holds_is_waited_for(rig: Rig) -> None:
    pair, (nic, _) = rig
    host = pair.hosts[0]
    real = host.programs["mlxlink"]
    locked = [
        '{"result":{"output":"N/A"},"status":{"code":1,"message":"ICMD semaphore is taken"}}\n'
    ] * 2

    host.programs["mlxlink"] = lambda argv: (
        ProgramOutcome(locked.pop(), "", 1) if locked else real(argv)
    )
    assert nic.firmware(DEV).value.link is not None
    assert not locked


# ----------------------------------------------------------------------- older software


@pytest.mark.parametrize("form", ["none", "repeating", "renamed"])
@pytest.mark.parametrize(("gigabits", "lanes"), [(25, 1), (100, 4), (400, 8)])
def test_a_module_by_every_version_of_ethtool(
    tmp_path: Path, form: str, gigabits: int, lanes: int
) -> None:
    for pair, (nic, _) in virtual_pair(tmp_path, module_json=form, rate_bps=gigabits * 10**9):
        up(pair)
        module = nic.module(IF).value
        assert len(module.lanes) == lanes
        assert module.lanes[0].rx_power_dbm == pytest.approx(10 * math.log10(0.5), abs=0.6)
        assert module.temperature_c is not None
        assert module.thresholds["temperature"]["high_alarm"] == 80


def test_mlxlink_without_json_and_as_mstlink(tmp_path: Path) -> None:
    for pair, (nic, _) in virtual_pair(tmp_path, mlxlink_json=False, tools={"mstlink", "ethtool"}):
        up(pair)
        report = nic.firmware(DEV).value
        assert report.link is not None
        assert report.link.rate_bps == 100 * 10**9
        assert report.module is not None
        assert len(report.module.lanes) == 4


def test_a_server_without_tools(tmp_path: Path) -> None:
    for _, (nic, _) in virtual_pair(tmp_path, tools=()):
        for ask in (
            lambda nic=nic: nic.link(IF),
            lambda nic=nic: nic.module(IF),
            lambda nic=nic: nic.firmware(DEV),
            lambda nic=nic: nic.rdma_links(),
        ):
            with pytest.raises(ToolMissingError, match="server0"):
                ask()


def test_one_seed_gives_one_answer(tmp_path: Path) -> None:
    """Bit by bit, and at the same moments of virtual time."""
    runs = []
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        for pair, nics in virtual_pair(folder):
            up(pair)
            reported = pair.clock.parallel(*(lambda nic=nic: nic.counters(IF) for nic in nics))
            runs.append([reported, [nic.module(IF) for nic in nics], nics[0].firmware(DEV)])
    assert runs[0] == runs[1]


def test_remaining_commands_of_the_host(rig: Rig, tmp_path: Path) -> None:
    pair, _ = rig
    with served(pair, tmp_path) as (commands, _):
        assert commands.run(["uname", "-a"]).stdout.startswith("Linux SIM-server0 ")
        assert commands.run(["command", "-v", "ethtool"]).stdout == "/usr/sbin/ethtool\n"
        carrier = f"/sys/class/net/{IF}/carrier"
        assert commands.run(["cat", carrier]).stdout == "0\n"
        missing = commands.run(["cat", carrier, "/sys/nope"])
        assert (missing.stdout, missing.status) == ("0\n", 1)
        assert "No such file" in missing.stderr
