"""The firmware's timers in the file of `mlxlink --amber_collect`, by hand and over SSH.

Names of columns, units and the reset of the timers: mstflint's `MlxlinkAmBerCollector` and the
descriptions of its register layouts (PDDR, link-up page).
"""

import pytest
from tools.simulated_hosts import MS, Pair, served, tools

from lightrig.instruments.core.capabilities import LinkUpTimes
from lightrig.instruments.servers.host.commands import ToolFailedError, ToolMissingError
from lightrig.instruments.servers.tools.mlxlink_amber import parse
from lightrig.instruments.servers.tools.output import ToolOutputError
from lightrig.testbeds import SimulatedNic

HEADER = (
    "Port_Number,time_to_link_up_msec,fast_link_up_status,time_to_link_up_phy_up_to_active,"
    "time_to_link_up_sd_to_phy_up,time_to_link_up_disable_to_sd,down_blame"
)
ROW = "1,3412,fast_link_up_was_not_performed,17msec,2906msec,489msec,Unknown"


def test_columns_are_found_by_their_names() -> None:
    assert parse(f"{HEADER}\n{ROW}\n") == LinkUpTimes(2906 * MS, 17 * MS, 3412 * MS)
    older = HEADER.replace("time_to_link_up_msec,", "").replace("Port", "Other,Port")
    assert parse(f"{older}\n0,{ROW.replace('3412,', '')}\n") == LinkUpTimes(2906 * MS, 17 * MS)


def test_the_last_of_several_collections_counts() -> None:
    first = ROW.replace("2906", "1111")
    assert parse(f"{HEADER}\n{first}\n{ROW}\n").signal_to_phy == 2906 * MS


@pytest.mark.parametrize("absent", ["N/A", "N/Amsec", ""])
def test_what_a_nic_does_not_have_is_none(absent: str) -> None:
    found = parse(f"{HEADER}\n{ROW.replace('2906msec', absent)}\n")
    assert found == LinkUpTimes(None, 17 * MS, 3412 * MS)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "a header and a row"),
        (HEADER, "a header and a row"),
        ("version,Port_Number\n3.2,1\n", "the page of the link-up"),
        # A state of data paths that the tool takes for a bit mask has commas of its own.
        (f"{HEADER},Dp_st_lane0\n{ROW},DPDeactivated,DPInit\n", "8 values"),
        (f"{HEADER}\n{ROW.replace('2906msec', '2906usec')}\n", "milliseconds"),
        (f"{HEADER}\n{ROW.replace('2906msec', '-3msec')}\n", "milliseconds"),
        (f"{HEADER},time_to_link_up_msec\n{ROW},1\n", "one column time_to_link_up_msec"),
    ],
)
def test_other_files_are_refused(text: str, told: str) -> None:
    with pytest.raises(ToolOutputError, match=told):
        parse(text)


def relit(pair: Pair, *, dark: int = 20 * MS) -> None:
    pair.light(on=False)
    pair.clock.sleep(dark)
    pair.light(on=True)
    pair.clock.sleep(6000 * MS)


def test_timers_start_anew_only_with_a_forced_speed(clock, tmp_path) -> None:
    pair = Pair(clock, nic=SimulatedNic())
    with served(pair, tmp_path) as commands:
        nic = tools(commands)[0]
        pair.light(on=True)
        pair.clock.sleep(6000 * MS)
        first = nic.link_up_times("mlx5_0").value
        relit(pair)
        assert nic.link_up_times("mlx5_0").value == first
        nics = tools(commands)
        speed = str(pair.hosts[0].ports[0].spec.rate_bps // 1_000_000)
        for each in commands:
            each.run(["ethtool", "-s", "ens1f0", "speed", speed, "autoneg", "off"])
        relit(pair)
        forced = nics[0].link_up_times("mlx5_0").value
        assert forced[:2] != first[:2]
        assert forced.signal_to_phy
        assert forced.phy_to_active
        assert forced.whole
        assert forced.signal_to_phy + forced.phy_to_active == pytest.approx(forced.whole, abs=2e6)
        pair.light(on=False)
        assert nics[0].link_up_times("mlx5_0").value[:2] == (0, 0)


def test_versions_and_servers_without_timers(clock, tmp_path) -> None:
    with served(Pair(clock, mlxlink_timers=False), tmp_path) as commands:
        with pytest.raises(ToolOutputError, match="the page of the link-up"):
            tools(commands)[0].link_up_times("mlx5_0")
        with pytest.raises(ToolFailedError):
            tools(commands)[0].link_up_times("mlx5_9")
    with served(Pair(clock, tools={"ethtool", "ip"}), tmp_path) as commands:  # noqa: SIM117
        with pytest.raises(ToolMissingError):
            tools(commands)[0].link_up_times("mlx5_0")


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("none", None),
        ("value", "DPDeinit"),
        # All releases until 2026: the number 3 is taken for the bits 1 and 2.
        ("mask", "DPDeactivated,DPInit"),
    ],
)
def test_mlxlink_prints_states_of_data_paths_version_by_version(
    clock, tmp_path, printed, shown
) -> None:
    pair = Pair(clock, rate_bps=400_000_000_000, mlxlink_paths=printed)
    with served(pair, tmp_path) as commands:
        port = pair.hosts[0].ports[0]
        assert port.path_states() == [4] * 8
        port.module.write(128, b"\xff", pair.clock.now())
        while set(port.path_states()) != {3}:
            pair.clock.sleep(MS)
        text = commands[0].run(["mlxlink", "-d", "mlx5_0", "-m"]).stdout
        line = next((one for one in text.splitlines() if "DataPath state" in one), None)
        if shown is None:
            assert line is None
        else:
            assert line is not None
            assert line.endswith(f"{','.join([shown] * 8)}")
