"""A quantity of an own suite is on the page, whichever section its declaration names."""

import re
from dataclasses import replace

import pytest
from report_runs import context

from lightrig.harness.jobs import quantities
from lightrig.harness.quantities import declarations, optical, registry
from lightrig.harness.quantities.quantity import Quantity
from lightrig.harness.quantities.registry import declare
from lightrig.harness.record import Row
from lightrig.harness.systems.infinitehbd.quantities import BYPASS
from lightrig.harness.systems.opus.quantities import RAILS
from lightrig.testbeds import parse_limit

SECTIONS = (
    *(declarations.RECONFIGURATION, declarations.OUTAGE, quantities.COLLECTIVES),
    *(quantities.RECOVERY, quantities.RDMA, declarations.CLOSURE, declarations.HARNESS),
    *(optical.INSERTION_LOSS, optical.BIT_ERRORS, optical.PATH_CHANGES, optical.TRANSCEIVERS),
    *(BYPASS, RAILS, "Isolation"),
)


@pytest.fixture
def isolation(monkeypatch):
    """Declare a quantity in a section, for this test."""

    def isolation(section):
        declare(
            Quantity(
                name="isolation",
                unit="dB",
                meaning="power at an egress without a circuit, below that at a lit one",
                better="higher",
                section=section,
            )
        )

    monkeypatch.setattr(registry, "REGISTRY", registry.Registry())
    return isolation


def measured(quantity="isolation", unit="dB", scale=1.0):
    """Six events of two ports; of an event the least counts, 31 to 36 dB."""
    return [
        Row(port, quantity, value * scale, None, None, unit, event, {"event": event})
        for event in range(6)
        for port, value in (("ocs.17", 31.0 + event), ("ocs.18", 60.0))
    ]


def limited(small, *limits):
    return {"small": replace(small, limits={limit.quantity: limit for limit in limits})}


def cells_of(page, title):
    """Return the cells of each row of the table under a title, as text; the head has none."""
    (found,) = re.findall(f'aria-label="{title}"><table.*?</table>', page.fragment, re.DOTALL)
    return [
        [
            " ".join(re.sub(r"<[^>]+>", " ", cell).split())
            for cell in re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL)
        ]
        for row in re.findall(r"<tr>(.*?)</tr>", found, re.DOTALL)
    ]


@pytest.mark.parametrize("section", SECTIONS)
def test_an_own_quantity_has_value_table_and_verdict(show, small, isolation, section):
    isolation(section)
    limit = parse_limit("isolation", {"min": "30 dB"})
    page = show((context(), measured()), described=limited(small, limit))
    answer = next(row for row in cells_of(page, "Answers")[1:] if row[0].startswith("isolation"))
    assert "✓ 1 pass" in answer[1]
    assert answer[2].startswith("31 dB (least of 6")
    (details,) = re.findall(
        rf'<details [^>]*id="[^"]*{"-".join(section.lower().split())}".*?</details>',
        page.fragment,
        re.DOTALL,
    )
    words = " ".join(re.sub(r"<[^>]+>", " ", details).split())
    assert "solation" in words
    assert "33.5 dB (median of 6" in words
    assert "✓ pass" in words
    assert words.count("33.5 dB (median of 6") == 1
    assert "Limits without a measurement" not in page.text


def test_a_quantity_that_its_section_only_declares_has_a_table(show, small):
    limit = parse_limit("path_loss", {"max": "62 dB"})
    page = show((context(), measured("path_loss")), described=limited(small, limit))
    (row,) = cells_of(page, "path loss")[1:]
    # Nobody has stated wavelength and temperature.
    assert row[1:] == ["6 of 2 subjects", row[2], "", "", "✓ pass"]
    assert row[2].startswith("60 dB (median of 6")  # the greatest of each event


def test_a_limit_is_answered_from_rows_that_no_section_estimates(show, small):
    """The section of bit errors shows fitted curves, and judges ratios alone."""
    limit = parse_limit("sensitivity", {"max": "-10 dBm"})
    rows = measured("sensitivity", "dBm", -1.0)
    page = show((context(), rows), described=limited(small, limit))
    answer = next(row for row in cells_of(page, "Answers")[1:] if row[0].startswith("sens"))
    assert "✓ 1 pass" in answer[1]
    assert answer[2].startswith("-31 dBm (greatest of 6")
    assert "Limits without a measurement" not in page.text


@pytest.mark.parametrize("hardware_first", [True, False])
def test_answers_of_a_half_simulated_run_are_marked(show, small, isolation, hardware_first):
    isolation("Isolation")
    halves = [
        (context(test="test_hardware", simulated=False), measured()),
        (context(test="test_simulated"), measured()),
    ]
    limit = parse_limit("isolation", {"min": "30 dB"})
    parts = halves if hardware_first else halves[::-1]
    page = show(*parts, described=limited(small, limit))
    (heading,) = re.findall(r"<h2[^>]*>Answers (.*?)</h2>", page.fragment)
    assert "simulated" in heading


def test_answers_of_hardware_are_not_marked(show, small, isolation):
    isolation("Isolation")
    limit = parse_limit("isolation", {"min": "30 dB"})
    page = show((context(simulated=False), measured()), described=limited(small, limit))
    (heading,) = re.findall(r"<h2[^>]*>Answers (.*?)</h2>", page.fragment)
    assert "simulated" not in heading
