"""A module's own measurements, from dumps of its memory as `ethtool -m IF page N` prints them.

Sources of the expected values: sonic-net/SONiC, doc/platform_api/CMIS_Diagnostic_Monitoring_
Overview_in_SONiC.md, whose eSNR of 23.48046875 dB is 177Bh in 1/256 dB; sonic-mgmt's provisioning
of an emulated module, whose pre-FEC BER of 1e-5 is a mantissa of 1000 and an exponent of 16 (83E8h)
and whose eSNR of 18 dB is 1200h; sonic-platform-common, cmisVDM.py: the lane of a descriptor is its
low four bits plus one.
"""

import math
from collections.abc import Callable
from typing import Any

import pytest

from lightrig.instruments.clock import Span
from lightrig.instruments.core.capabilities import Diagnostic
from lightrig.instruments.servers.host.commands import Reading
from lightrig.instruments.servers.ports.nic import NicTools
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


def decoded(
    descriptors: str, samples: str, flags: str = "", bank: int = 0
) -> dict[tuple[str, str, int | None], Diagnostic]:
    pages = [tuple(map(cmis_diagnostics.parse_dump, (dump(descriptors), dump(samples))))]
    found = cmis_diagnostics.decode(pages, cmis_diagnostics.parse_dump(dump(flags)), bank)
    return {(each.name, each.side, each.lane): each for each in found}


def test_lasers_and_frame_errors_are_decoded() -> None:
    """Types and scales: sonic-platform-common's table, and two decoders of CMIS 5.3 beside it.

    A laser of 45 °C is 2D00h in 1/256 °C (sonic-mgmt's emulated module), FA80h is -1,408 of them;
    C001h is -16,383 of 32,767 of a cooler's current; F16 C07Bh is 123 with the exponent 24.
    """
    found = decoded("00 04 01 04 00 02 00 01 00 19 01 1a", "2d 00 fa 80 c0 01 00 07 c0 7b 83 e8")
    assert found["laser_temperature", "media", 1].current == 45.0
    assert found["laser_temperature", "media", 2].current == -5.5
    assert found["tec_current", "media", 1].current == pytest.approx(-16_383 / 32_767)
    assert found["laser_age", "media", 1].current == 0.07
    assert found["errored_frames_total", "media", 1].current == 123
    assert found["errored_frames_total", "host", 2].current == pytest.approx(1e-5)
    assert not any(each.flags for each in found.values())


def test_flags_are_those_of_their_observable() -> None:
    """A nibble each, that of an even place low; bits from high alarm to low warning (SONiC)."""
    found = decoded("00 05 01 05 02 05", "12 00 12 00 12 00", "41 0a")
    assert found["esnr", "media", 1].flags == {"high alarm"}
    assert found["esnr", "media", 2].flags == {"high warning"}
    assert found["esnr", "media", 3].flags == {"low alarm", "low warning"}


def test_a_second_bank_has_the_next_eight_lanes() -> None:
    found = decoded("00 05 07 05 0f 04", "12 00 12 80 2d 00", bank=1)
    assert set(found) == {
        ("esnr", "media", 9),
        ("esnr", "media", 16),
        ("laser_temperature", "media", None),  # resource 15: of the module
    }


@pytest.mark.parametrize(("byte_142", "count"), [("40", 1), ("41", 2), ("42", 4), ("43", 1)])
def test_banks_are_advertised_with_the_pages(byte_142: str, count: int) -> None:
    advertising = cmis_diagnostics.parse_dump(dump("00 " * 14 + byte_142))
    assert list(cmis_diagnostics.banks(advertising)) == list(range(count))


def test_all_pages_of_both_banks_are_read() -> None:
    asked: list[tuple[int, int]] = []
    descriptors = {0: "00 05 01 05", 1: "03 05"}
    upper = {0x01: "00 " * 14 + "41", 0x24: "12 00 12 80", 0x2C: "01"}

    class Commands:
        def read(self, arguments: list[str], parse: Callable[[str], Any]) -> Any:
            stated = dict(zip(arguments[5::2], arguments[6::2], strict=True))
            page, bank = int(stated["page"], 16), int(stated.get("bank", "0"), 16)
            asked.append((page, bank))
            words = {**upper, 0x20: descriptors[bank]}.get(page, "")
            lower = "Offset\t\tValues\n------\t\t------\n0x0000:\t\t18 52 00"
            return Reading(parse(dump(words) if page else lower), Span(0, 0))

    found = NicTools(Commands()).diagnostics("eth0").value  # type: ignore[arg-type]
    assert [(each.lane, each.current) for each in found] == [(1, 18.0), (2, 18.5), (12, 18.0)]
    assert [each.flags for each in found] == [{"high alarm"}, set(), {"high alarm"}]
    of_bank = (0x2F, 0x20, 0x24, 0x2C)
    assert asked == [(0, 0), (1, 0), *((p, 0) for p in of_bank), *((p, 1) for p in of_bank)]
