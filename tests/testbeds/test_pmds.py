"""PMDs of transceivers: the table against the standards' own arithmetic, and what `check` says."""

import math
from pathlib import Path

import pytest

from lightrig.testbeds import Testbed, TestbedError, load
from lightrig.testbeds.pmds import find_pmd, pmds

LAB = """
name: colors
switches:
  ocs: {{model: polatis, address: tl1://ocs.invalid, size: 4x4, loss: {{max: 1 dB}}}}
servers:
  server0:
    address: ssh://bench@server0.invalid
    nics: {{nic0: {{netdev: eth0, rate: {rate}, transceiver: one}}}}
  server1:
    address: ssh://bench@server1.invalid
    nics: {{nic0: {{netdev: eth0, rate: {other_rate}, transceiver: other}}}}
transceivers:
  one: {{{one}}}
  other: {{{other}}}
fibers:
  - server[0-1].nic0 <-> ocs
plans:
  pair: [server0.nic0 <-> server1.nic0]
"""
LR4 = "pmd: 100GBASE-LR4"


def lab(
    folder: Path, one: str = LR4, other: str = LR4, rate: str = "100G", other_rate: str = ""
) -> Testbed:
    path = folder / "colors.yaml"
    text = LAB.format(one=one, other=other, rate=rate, other_rate=other_rate or rate)
    path.write_text(text)
    return load(path)


def problems(folder: Path, *stated: str, **rates: str) -> str:
    with pytest.raises(TestbedError) as caught:
        lab(folder, *stated, **rates)
    return str(caught.value)


# ------------------------------------------------------------------------ the table itself


@pytest.mark.parametrize("pmd", pmds().values(), ids=lambda pmd: pmd.name)
def test_a_row_agrees_with_the_arithmetic_of_its_standard(pmd) -> None:  # type: ignore[no-untyped-def]
    """A receiver gets the least launch less the channel; it withstands 1 dB above its greatest."""
    assert pmd.source
    assert pmd.lanes % pmd.wavelengths == 0
    assert len(pmd.bands) == (pmd.wavelengths if pmd.wavelengths > 1 and len(pmd.bands) > 1 else 1)
    if pmd.channel_loss is not None:
        assert pmd.receive_min == pytest.approx(pmd.launch_min - pmd.channel_loss)
    if pmd.damage is not None:
        assert pmd.damage == pytest.approx(pmd.receive_max + 1)
    # These print less than all lanes at their greatest: 13.2 of 14.3 dBm, and 9.3 of 9.5.
    less = ("400GBASE-FR8", "400GBASE-LR8", "400G-FR4")
    if pmd.launch_total is not None and pmd.name not in less:
        total = pmd.launch_max + 10 * math.log10(pmd.lanes)
        assert pmd.launch_total == pytest.approx(total, abs=0.06)


def test_bands_of_one_fiber_do_not_overlap_and_are_in_order() -> None:
    for pmd in pmds().values():
        edges = [edge for band in pmd.bands for edge in band]
        assert edges == sorted(edges), pmd.name


@pytest.mark.parametrize(
    ("spelled", "name"),
    [
        ("100GBASE-LR4", "100GBASE-LR4"),
        ("100G-LR4", "100GBASE-LR4"),
        ("100gbase-lr4", "100GBASE-LR4"),
        ("100G CWDM4", "100G-CWDM4"),
        ("400G FR4", None),  # 400GBASE-FR4 and 400G-FR4 differ by 0.9 dB
        ("100GBASE-KR4", None),
    ],
)
def test_a_name_is_found_in_its_spellings(spelled: str, name: str | None) -> None:
    found = find_pmd(spelled)
    assert (found.name if found else None) == name


# ------------------------------------------------------------------------- the testbed file


def test_a_pmd_states_lanes_wavelengths_and_powers(tmp_path: Path) -> None:
    """IEEE 802.3 tables 88-7 and 88-8."""
    kind = lab(tmp_path).transceivers["one"]
    assert (kind.lanes, kind.wavelengths, kind.wavelength_nm) == (4, 4, 1310)
    assert (kind.launch.min, kind.launch.max) == (-4.3, 4.5)
    assert (kind.receive.min, kind.receive.max) == (-10.6, 4.5)
    assert kind.damage_dbm == 5.5
    assert kind.fiber_launch_max_dbm == 10.5  # as printed; 4.5 dBm and 10 lg 4 dB are 10.52


def test_what_the_file_states_itself_goes_before_its_pmd(tmp_path: Path) -> None:
    stated = f"{LR4}, launch: {{min: -2 dBm, max: 1 dBm}}, damage: 6 dBm"
    kind = lab(tmp_path, stated, stated).transceivers["one"]
    assert (kind.launch.max, kind.receive.max, kind.damage_dbm) == (1, 4.5, 6)
    assert kind.fiber_launch_max_dbm == pytest.approx(1 + 10 * math.log10(4))


def test_eight_lanes_launch_no_more_than_the_printed_total(tmp_path: Path) -> None:
    """IEEE 802.3 table 122-10: 5.3 dBm a lane, and 13.2 dBm in all, not 14.3."""
    lr8 = "pmd: 400GBASE-LR8"
    assert lab(tmp_path, lr8, lr8, "400G").transceivers["one"].fiber_launch_max_dbm == 13.2


@pytest.mark.parametrize(
    ("one", "other", "rate", "said"),
    [
        ("pmd: 100G-CWDM4", LR4, "100G", "lane 1 at 1271 and 1296 nm"),
        ("pmd: 100GBASE-DR", LR4, "100G", "1 and 4 wavelengths in a fiber"),
        ("pmd: 100GBASE-LR4", "pmd: 100G-PSM4", "100G", "4 and 1 wavelengths in a fiber"),
    ],
)
def test_ends_that_cannot_read_each_other_are_named(
    tmp_path: Path, one: str, other: str, rate: str, said: str
) -> None:
    text = problems(tmp_path, one, other, rate=rate)
    assert "server1.nic0" in text
    assert "server0.nic0" in text
    assert one.removeprefix("pmd: ") in text
    assert other.removeprefix("pmd: ") in text
    assert said in text


@pytest.mark.parametrize(
    ("one", "other", "rate"),
    [
        (LR4, LR4, "100G"),
        ("pmd: 100GBASE-DR", "pmd: 100GBASE-LR1", "100G"),
        ("pmd: 100G-CWDM4", "pmd: 100G-4WDM-10", "100G"),
        ("pmd: 400GBASE-FR4", "pmd: 400GBASE-LR4-6", "400G"),
        ("pmd: 400ZR", "pmd: 400ZR", "400G"),
    ],
)
def test_ends_of_one_grid_are_a_link(tmp_path: Path, one: str, other: str, rate: str) -> None:
    assert len(lab(tmp_path, one, other, rate).links("pair")) == 1


def test_lanes_of_another_rate_are_named(tmp_path: Path) -> None:
    ends = "pmd: 400GBASE-FR4", "pmd: 100G-CWDM4"
    text = problems(tmp_path, *ends, rate="400G", other_rate="100G")
    assert "100 and 25 Gbit/s a lane" in text


@pytest.mark.parametrize(
    ("stated", "rate", "said"),
    [
        ("pmd: 400GBASE-DR4", "100G", "one is 400GBASE-DR4 of 400G, and the port's rate is 100G"),
        (f"{LR4}, lanes: 8", "100G", "found 8, expected 4: 100GBASE-LR4 has 4 lanes"),
        (f"{LR4}, wavelengths: 1", "100G", "expected 4: 100GBASE-LR4 has 4 wavelengths in a fiber"),
        ("pmd: 100GBASE-LR5", "100G", "unknown PMD '100GBASE-LR5'; did you mean '100GBASE-LR"),
        ("pmd: 100GBASE-SR1", "100G", "'launch' is missing"),
        ("wavelength: 1310 nm", "100G", "or name its `pmd:`"),
    ],
)
def test_what_contradicts_a_pmd_is_a_problem(
    tmp_path: Path, stated: str, rate: str, said: str
) -> None:
    assert said in problems(tmp_path, stated, stated, rate=rate)


def test_multimode_light_is_not_led_through_an_optical_switch(tmp_path: Path) -> None:
    text = problems(tmp_path, "pmd: 100GBASE-SR4", "pmd: 100GBASE-SR4")
    assert "server0.nic0 is 100GBASE-SR4, of multimode fiber, and ocs is an optical switch" in text


@pytest.mark.parametrize("name", ["100G-BIDI", "400GBASE-SR4.2", "25GBASE-BR", "400G-BiDi-CWDM4"])
def test_one_fiber_both_ways_is_not_supported_yet(tmp_path: Path, name: str) -> None:
    """Such light passes a switch: nothing may say that it cannot."""
    text = problems(tmp_path, f"pmd: {name}", f"pmd: {name}")
    assert f"{name} sends and receives in one fiber, which is not supported yet" in text
    assert "cannot" not in text
    assert "optical switch" not in text


def test_budgets_are_those_of_ends_that_read_each_other(tmp_path: Path) -> None:
    """CWDM4 sends down to -6.5 dBm, too little for LR4 at -10.6 behind 4.5 dB; LR4 reads none."""
    path = tmp_path / "colors.yaml"
    text = LAB.format(one=LR4, other="pmd: 100G-CWDM4", rate="100G", other_rate="100G")
    text = text[: text.index("plans:")].replace("max: 1 dB", "max: 4.5 dB")
    text += "overrides: {receiver_damage: 4.5 dBm of LR4 is more than CWDM4 withstands}\n"
    path.write_text(text)
    load(path)
    path.write_text(
        text.replace("pmd: 100G-CWDM4", "pmd: 100GBASE-LR4").replace("4.5 dB}", "7 dB}")
    )
    with pytest.raises(TestbedError, match="budget cannot close"):
        load(path)
