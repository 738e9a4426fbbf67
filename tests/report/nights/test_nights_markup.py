"""The page of the nights as it is written; a browser looks at it in tests/browser."""

import json
import re

import pytest
from planted_nights import CASE, MISSING, Grown, write_nights_of

from lightrig.harness.record import Context, Journal, Row, settle
from lightrig.harness.report.nights import write_nights
from lightrig.harness.report.nights.trend_figures import far, letters


def data_of(page):
    return json.loads(re.search(r'<script id="ln-data"[^>]*>(.*?)</script>', page, re.DOTALL)[1])


def text_of(markup):
    return re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", markup))


def test_changes_are_listed_first_with_before_and_after(page):
    top = text_of(page[page.index('id="changed"') : page.index('<ul class="lr-legend')])
    assert re.search(r"2026-02-21 fab insertion_loss ocs\.3&gt;19 .* 1\.\d+ dB .* → 1\.\d+ dB", top)
    assert re.search(r"2026-02-15 bench simulated .* firmware 22\.39 → 22\.41 .*firmware_up", top)
    assert re.search(r"server0\.nic0\.p[01] and 1 more .* \+8\d\d ms p = ", top)
    assert top.index("fab") < top.index("bench")


def test_changes_link_to_figures_that_are_there(page):
    ids = set(re.findall(r' id="([^"]+)"', page))
    links = set(re.findall(r'href="#([^"]+)"', page))
    assert links
    assert links <= ids
    assert len(re.findall(r' id="([^"]+)"', page)) == len(ids)


def test_every_night_links_to_its_run_and_gaps_are_marked(page, planted):
    links = set(re.findall(r'href="(runs/[^"]+)"', page))
    assert len(links) == 2 * (30 - len(MISSING))
    assert all((planted / link).is_file() for link in links)
    assert page.count("no data</span>") == 2 * len(MISSING)


def test_a_run_without_a_report_is_named_and_not_linked(tmp_path):
    write_nights_of(tmp_path, "bench", [Grown("q", "a", 1.0, 0.1, 0.1, "dB", 8)], nights=2)
    page = write_nights(tmp_path, tmp_path / "nights.html").read_text()
    assert "20260201-013000-b1</li>" in page
    assert "report.html" not in page.partition("<script")[0]
    assert data_of(page)["labs"][0]["runs"][0] == [["20260201-013000-b1", False]]


def test_many_changes_and_drifts_are_folded(tmp_path):
    drifting = [Grown("q", f"d{n}", 10.0, 0.01, 0.05, "dB", 8, drift=0.02) for n in range(14)]
    write_nights_of(tmp_path, "bench", drifting)
    page = write_nights(tmp_path, tmp_path / "nights.html").read_text()
    top = page.partition('id="changed"')[2].partition("</section>")[0]
    assert "<summary>2 more</summary>" in top
    assert "No change was found." in top


def test_nothing_comes_from_the_network(page):
    assert not re.search(r"""(src|href)=["']?(https?:)?//|url\(|@import""", page)


def test_simulated_is_marked_and_hardware_is_not(page):
    bench, fab = page.index('id="n0"'), page.index('id="n1"')
    assert "lr-sim" in page[bench:fab]
    assert "lr-sim" not in page[fab : page.index("<script")]


def test_a_p99_is_shown_where_the_night_allows(page, fold):
    assert "ln-p99" in fold(page, 0, "reconfiguration.signal_recovered")
    assert "ln-p99" not in fold(page, 0, "insertion_loss")


def test_a_fold_is_marked_by_what_it_holds(page, fold):
    assert "data-moved" in fold(page, 0, "firmware_up").partition(">")[0]
    assert "2 changed" in fold(page, 0, "firmware_up")
    assert "data-moved" not in fold(page, 0, "insertion_loss").partition(">")[0]


def test_the_script_knows_every_figure(page):
    data = data_of(page)
    shown = set(re.findall(r'data-of="([^"]+)"', page))
    assert shown == set(data["figures"])
    for figure in data["figures"].values():
        assert len(figure["median"]) == len(data["dates"]) == 30
        assert [figure["median"][night] for night in MISSING] == [None] * len(MISSING)
    assert data["labs"][0]["events"] == [[14, "A", "nic0: firmware 22.39 → 22.41"]]


def test_equal_nights_make_equal_pages(planted, page, tmp_path):
    again = write_nights(planted, tmp_path / "nights.html")
    assert again.read_text() == page


def test_names_cannot_break_out_of_the_page(tmp_path):
    evil = '</script><img src=x onerror="1">'
    given = {**CASE, "note": evil}
    # More series than are drawn, so that the script too is told the quantity's name.
    series = [
        Grown(evil, f"{evil} {n}", 1.0, 0.1, 0.1, "dB", 8, conditions=given) for n in range(5)
    ]
    write_nights_of(tmp_path, "bench", series, nights=12)
    page = write_nights(tmp_path, tmp_path / "nights.html").read_text()
    assert "<img" not in page
    assert page.count("</script>") == 2
    assert f"n0-{evil}" in data_of(page)["figures"]


def test_a_night_alone_and_a_value_that_never_moves(tmp_path):
    one = Grown("closure.signal_recovered", "bench", 1.0, 0, 0, "1", 8)
    write_nights_of(tmp_path, "bench", [one], nights=1)
    assert "closure" in write_nights(tmp_path, tmp_path / "nights.html").read_text()


LIMITED = """\
name: bench
switches: {ocs: {model: polatis, address: tl1://ocs.invalid, size: 4x4}}
limits: {reconfiguration.signal_recovered: {p99: 47 ms}, insertion_loss: {max: 3 dB}}
"""


def test_a_limit_is_drawn_as_the_last_run_s_testbed_states_it(tmp_path, fold):
    folder = tmp_path / "runs" / "r1"
    folder.mkdir(parents=True)
    (folder / "lab.yaml").write_text(LIMITED)
    header = {"run": "r1", "night": "2026-03-14", "descriptions": {"bench": "lab.yaml"}}
    with Journal(folder / "journal.jsonl", header) as journal:
        for event in range(8):
            for quantity in ("reconfiguration.signal_recovered", "reconfiguration.acknowledged"):
                time = 45_000_000 + event * 200_000
                row = Row("bench", quantity, time, time, time, "ns", event, {"event": event})
                journal.append(Context("bench", "test_it", ("ocs: x",), True), row)
    settle(folder)
    page = write_nights(tmp_path, tmp_path / "nights.html").read_text()
    limited = fold(page, 0, "reconfiguration.signal_recovered")
    assert "limit p99 &lt;= 47 ms (95 % confident)" in limited
    assert "lr-rule" in limited
    assert "lr-rule" not in fold(page, 0, "reconfiguration.acknowledged")


def test_the_size_of_a_change_of_level():
    assert far(3e9, 3.8e9, "ns") == "+800 ms"
    assert far(-2.0, -30.0, "dBm") == "\N{MINUS SIGN}28 dB"
    assert far(1e-8, 2e-4, "1") == "\N{MULTIPLICATION SIGN} 2e+04"
    assert far(0.5, 0.75, "1") == "+0.25"


@pytest.mark.parametrize(("count", "last"), [(1, "A"), (26, "Z"), (27, "A1"), (53, "A2")])
def test_events_have_letters(count, last):
    assert letters(count)[-1] == last
    assert len(set(letters(count))) == count
