"""Tails and counts of nights as series: they depart, step and take their share of the error."""

import datetime
from dataclasses import replace

import numpy as np
import pytest

from lightrig.harness.record import Context, Journal, Row, settle
from lightrig.harness.report.nights import write_nights
from lightrig.harness.report.nights.last_night_departures import find_series_departures
from lightrig.harness.report.nights.series import Lab, NightSeries, tails_and_counts
from lightrig.harness.report.nights.series_changes import find_series_changes, tried

NIGHTS = 16
SCATTER = np.array([0, 3, -2, 1, 4, -3, 2, -1, 0, 2, -4, 1, 3, -2, -1, 2]) / 100


def series(quantity, subject="server0.nic0.p0", unit="ns", **more):
    level = 1e9 * np.exp(SCATTER)
    none = np.full(NIGHTS, np.nan)
    known = {"median": level, "level": level, "lower": level * 0.99, "upper": level * 1.01}
    known |= {"p99": none, "p99_upper": none, "greatest": 4 * level, "n": np.full(NIGHTS, 30.0)}
    known["sampling"] = level * 0.02
    return NightSeries(quantity, subject, "t", "case", unit, **known | more)


def lab(*plain):
    return Lab("bench", True, (*plain, *tails_and_counts(plain)), (("run",),) * NIGHTS)


def departed(*plain):
    ((*found,),) = find_series_departures([lab(*plain)])
    return [(one.series.quantity, one.series.statistic) for one in found]


def grown(levels, nights, factor):
    return np.where(np.arange(NIGHTS) >= NIGHTS - nights, factor * levels, levels)


@pytest.mark.parametrize("statistic", ["greatest", "p99"])
def test_a_tail_that_grows_departs_though_the_median_does_not(statistic):
    tail = 4e9 * np.exp(SCATTER)
    still = series("outage.carrier", **{statistic: tail})
    assert departed(still) == []
    longer = series("outage.carrier", **{statistic: grown(tail, 1, 1.5)})
    assert departed(longer) == [("outage.carrier", statistic)]


@pytest.mark.parametrize("statistic", ["greatest", "p99"])
def test_a_tail_that_has_grown_for_nights_is_a_step(statistic):
    tail = grown(4e9 * np.exp(SCATTER), 7, 1.5)
    ((found,),) = find_series_changes([lab(series("outage.carrier", **{statistic: tail}))])
    assert found.series.statistic == statistic
    assert [change.index for change in found.changes] == [NIGHTS - 7]


def with_retries(*nights):
    """Tails of nights, of which some have an event that needed a second try of training."""
    return 4e9 * np.exp(SCATTER) * np.where(np.isin(np.arange(NIGHTS), nights), 1.5, 1)


def ports(statistic, *tails):
    """A family: some retries among its members' nights, and `tails` of further members."""
    known = with_retries(2, 9), with_retries(5), with_retries(0, 7, 11), with_retries()
    return [
        series("outage.carrier", f"server0.nic0.p{number}", **{statistic: each})
        for number, each in enumerate([*known, *tails])
    ]


@pytest.mark.parametrize("statistic", ["greatest", "p99"])
def test_what_happens_now_and_then_is_no_departure_of_a_port_that_had_none(statistic):
    assert departed(*ports(statistic, with_retries(NIGHTS - 1))) == []
    farther = np.where(np.arange(NIGHTS) == NIGHTS - 1, 2.2, 1) * with_retries()
    assert departed(*ports(statistic, farther)) == [("outage.carrier", statistic)]


@pytest.mark.parametrize("statistic", ["greatest", "p99"])
def test_what_happens_now_and_then_is_no_step_before_it_lasts(statistic):
    def steps(nights):
        levels = with_retries(*range(NIGHTS - nights, NIGHTS))
        ((*found,),) = find_series_changes([lab(*ports(statistic, levels))])
        return [change.index for one in found for change in one.changes]

    assert steps(3) == []
    assert steps(7) == [NIGHTS - 7]


def test_every_statistic_takes_its_share_of_the_error():
    plain = series("outage.carrier", p99=4e9 * np.exp(SCATTER))
    assert tried([lab(plain)]) == 3
    assert tried([lab(series("insertion_loss", unit="dB", p99=plain.p99))]) == 1
    bandwidth = series("rdma.bandwidth", unit="bit/s", p99=plain.p99)  # its high end is no fault
    assert tried([lab(bandwidth)]) == 1


def test_losses_of_carrier_are_counted_also_where_there_are_none():
    never = np.zeros(NIGHTS)
    carrier = series("outage.carrier", n=np.where(np.arange(NIGHTS) == 4, 0, 30))
    flaps = series("outage.flap", n=grown(never + 1, 1, 6) * (np.arange(NIGHTS) == NIGHTS - 1))
    *_, count = tails_and_counts([carrier, flaps])
    assert (count.statistic, count.unit) == ("count", "1")
    assert np.isnan(count.level[4])  # the test did not run
    assert np.delete(count.level, 4).tolist() == [0] * 14 + [6]
    assert ("outage.flap", "count") in departed(carrier, flaps)
    once = replace(flaps, n=np.minimum(flaps.n, 2))
    assert ("outage.flap", "count") not in departed(carrier, once)


def test_a_port_whose_carrier_is_lost_again_and_again_has_a_card(tmp_path):
    for night in range(8):
        date = str(datetime.date(2026, 11, 1) + datetime.timedelta(night))
        folder = tmp_path / "runs" / f"{date.replace('-', '')}-020000-lab"
        with_flaps = 7 if night == 7 else 0
        rows = [
            Row("p1", "outage.carrier", *(3_000_000_000 + 7_000 * n,) * 3, "ns", n)
            for n in (1, 2, night)
        ]
        rows += [
            Row("p1", "outage.flap", *(2_000_000 + n,) * 3, "ns", n) for n in range(with_flaps)
        ]
        folder.mkdir(parents=True)
        with Journal(folder / "journal.jsonl", {"run": folder.name, "night": date}) as journal:
            context = Context("lab", "test_it", ("ocs: x",), True, {})
            for row in rows:
                journal.append(context, row)
        settle(folder)
    page = write_nights(tmp_path, tmp_path / "nights.html").read_text()
    start = page.index("lr-causes")
    card = page[start : page.index("</section>", start)]
    assert "outage.flap of p1" in card
    assert "number in the night" in card
    assert "2026-11-08" in card


@pytest.mark.parametrize("drop", [0.0, 1.8])
def test_a_receiver_that_loses_light_departs_on_its_first_morning(drop):
    """64 lanes with readings to 0.05 dB (k = 1), of which one loses 1.8 dB in the last night."""
    random = np.random.default_rng(12)
    lanes = []
    for number in range(64):
        level = random.uniform(-4, 1) + random.normal(0, 0.05, NIGHTS)
        if number == 37:
            level[-1] -= drop
        port = f"server{number // 16}.nic0.p{number // 4 % 4}.lane{number % 4 + 1}"
        ends = {"median": level, "level": level, "lower": level, "upper": level}
        one = {**ends, "greatest": level, "n": np.ones(NIGHTS), "sampling": 0 * level}
        lanes.append(series("transceiver.received_power", port, "dBm", **one))
    ((*found,),) = find_series_departures([lab(*lanes)])
    expected = ["server2.nic0.p1.lane2"] if drop else []
    assert [departure.series.subject for departure in found] == expected
