"""Signal quality of modules from SONiC's tables; text that is no number is refused."""

from pathlib import Path

import pytest

from lightrig.instruments.core.capabilities import Diagnostic
from lightrig.instruments.servers.tools.output import ToolOutputError
from lightrig.instruments.servers.tools.sonic_optics import parse_database, parse_table

SAMPLES = Path(__file__).parent / "samples" / "synthetic"
TABLE = (SAMPLES / "sonic_transceiver_pm.txt").read_text()
DATABASE = (SAMPLES / "sonic_vdm.txt").read_text()


def test_the_table_of_a_coherent_module_is_read() -> None:
    (port, rows), *more = parse_table(TABLE).items()
    by_name = {row.name: row for row in rows}
    assert (port, more) == ("Ethernet100", [])
    assert by_name["prefec_ber"] == Diagnostic(
        "prefec_ber", minimum=3.25e-4, average=3.5e-4, maximum=4.75e-4
    )
    assert by_name["tx_power"].minimum == -8.12
    assert by_name["esnr"].maximum == 30.25


def test_a_port_without_a_table_is_left_out() -> None:
    text = "Ethernet0: Transceiver performance monitoring not applicable\n" + TABLE
    assert list(parse_table(text)) == ["Ethernet100"]


def test_the_diagnostics_of_a_module_are_read_by_lane_and_side() -> None:
    found = {(each.name, each.side, each.lane): each for each in parse_database(DATABASE)}
    assert found["prefec_ber", "media", 1] == Diagnostic(
        "prefec_ber", "media", 1, current=2.2e-8, minimum=1.1e-9, average=1.9e-8, maximum=5.4e-8
    )
    assert found["prefec_ber", "host", 1].current == 0
    assert found["esnr", "media", 2].current == 23.5
    assert found["pam4_level_transition", "media", 1].current == 61.25
    assert found["laser_temperature", "media", 1].current is None


def test_keys_of_coherent_modules_have_a_lane_and_no_side() -> None:
    assert parse_database("{'osnr1': '36.5'}") == (Diagnostic("osnr", "", 1, current=36.5),)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Ethernet100:\n",
        TABLE.replace("3.5E-04 ", "unknown "),
        TABLE.replace(
            "0.0          0.0          False\n\n", "0.0          0.0          False  7\n"
        ),
    ],
)
def test_a_damaged_table_is_refused(text: str) -> None:
    with pytest.raises(ToolOutputError):
        parse_table(text)


@pytest.mark.parametrize(
    "text",
    ["", "{}", "{'esnr_media_input1': 'high'}", "{'esnr_media_input1': 22.5}", "[1]", "{'a': "],
)
def test_a_damaged_hash_is_refused(text: str) -> None:
    with pytest.raises(ToolOutputError):
        parse_database(text)
