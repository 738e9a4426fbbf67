"""A module's own measurements, from dumps of its memory as `ethtool -m IF page N` prints them.

Sources of the expected values: sonic-net/SONiC, doc/platform_api/CMIS_Diagnostic_Monitoring_
Overview_in_SONiC.md, whose eSNR of 23.48046875 dB is 177Bh in 1/256 dB; sonic-mgmt's provisioning
of an emulated module, whose pre-FEC BER of 1e-5 is a mantissa of 1000 and an exponent of 16 (83E8h)
and whose eSNR of 18 dB is 1200h; sonic-platform-common, cmisVDM.py: the lane of a descriptor is its
low four bits plus one.
"""

import math

import pytest

from lightrig.instruments.core.capabilities import Diagnostic
from lightrig.instruments.servers.tools import cmis_diagnostics
from lightrig.instruments.servers.tools.output import ToolOutputError
from lightrig.instruments.simulated.hosts.cmis_memory import f16, snr_db


def dump(*words: str) -> str:
    """The upper half of a page that begins with `words`, as ethtool prints it."""
    text = "Offset\t\tValues\n------\t\t------\n"
    cells = " ".join(words).split() + ["00"] * (128 - len(" ".join(words).split()))
    for row in range(8):
        text += f"0x{128 + 16 * row:04x}:\t\t{' '.join(cells[16 * row : 16 * row + 16])} \n"
    return text


def test_the_values_of_sonics_sources_are_decoded() -> None:
    # eSNR of media lanes 1 and 2, pre-FEC BER now of lane 1, least and average of host lane 3.
    descriptors = dump("00 05", "01 05", "00 0f", "02 0a", "02 0e", "03 80")
    samples = dump("12 00", "17 7b", "83 e8", "7b e8", "83 e8", "ff ff")
    pages = [tuple(map(cmis_diagnostics.parse_dump, (descriptors, samples)))]
    found = {(each.name, each.side, each.lane): each for each in cmis_diagnostics.decode(pages)}
    assert list(found) == [
        ("esnr", "media", 1),
        ("esnr", "media", 2),
        ("prefec_ber", "media", 1),
        ("prefec_ber", "host", 3),
    ]
    assert found["esnr", "media", 1] == Diagnostic("esnr", "media", 1, 18.0, resolution=1 / 256)
    assert found["esnr", "media", 2].current == 23.48046875
    assert found["prefec_ber", "media", 1].current == pytest.approx(1e-5, rel=1e-12)
    host = found["prefec_ber", "host", 3]
    assert (host.minimum, host.average) == (pytest.approx(1e-6), pytest.approx(1e-5))
    assert host.current is None


@pytest.mark.parametrize(
    ("bytes_0_to_2", "paged"),
    [
        ("18 52 00", True),  # QSFP-DD, SFF-8024
        ("19 52 00", True),  # OSFP
        ("18 52 80", False),  # flat memory
        ("11 08 00", False),  # QSFP28, SFF-8636
    ],
)
def test_only_paged_cmis_modules_have_more_pages(bytes_0_to_2: str, paged: bool) -> None:
    lower = cmis_diagnostics.parse_dump(
        f"Offset\t\tValues\n------\t\t------\n0x0000:\t\t{bytes_0_to_2}"
    )
    assert cmis_diagnostics.has_pages(lower) is paged


def test_support_and_groups_are_where_cmis_has_them() -> None:
    advertising = cmis_diagnostics.parse_dump(dump("00 " * 14 + "40"))
    assert cmis_diagnostics.has_diagnostics(advertising)
    assert not cmis_diagnostics.has_diagnostics(
        cmis_diagnostics.parse_dump(dump("00 " * 14 + "bf"))
    )
    control = cmis_diagnostics.parse_dump(dump("02"))
    assert cmis_diagnostics.pages(control) == [(0x20, 0x24), (0x21, 0x25), (0x22, 0x26)]


@pytest.mark.parametrize("text", ["", "netlink error: Input/output error\n", "0x0080: zz"])
def test_text_that_is_no_dump_is_refused(text: str) -> None:
    with pytest.raises(ToolOutputError):
        cmis_diagnostics.parse_dump(text)


def test_half_a_page_is_refused() -> None:
    half = cmis_diagnostics.parse_dump("0x0080:\t\t00 05 \n")
    with pytest.raises(ToolOutputError, match="128 bytes"):
        cmis_diagnostics.decode([(half, half)])


def test_the_simulated_module_encodes_as_sonic_does() -> None:
    assert f16(1e-5) == 0x83E8
    assert f16(0.0) == 0
    for ber in (2.4e-4, 1e-8):
        snr = 10 ** (snr_db(ber) / 10)
        assert 3 / 8 * math.erfc(math.sqrt(snr / 10)) == pytest.approx(ber, rel=1e-6)
