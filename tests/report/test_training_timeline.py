"""The timeline of a training job: a bar for each operation and for each thing that was away."""

from report_runs import MS, context

from lightrig.harness.record import Row


def interval(subject, quantity, start, length, **conditions):
    given = {**conditions, "from_ns": start * MS}
    return Row(subject, quantity, length * MS, length * MS, length * MS, "ns", 0, given)


def test_every_lane_is_drawn_and_tabulated(show):
    found = [
        interval("rank 0", "rails.traffic", 0, 30, of="DP 1", bytes=4096),
        interval("rank 1", "rails.traffic", 60, 5, of="PP", bytes=4096),
        interval("rank 1", "rails.traffic", 70, 7, of="PP", bytes=4096),
        interval("ocs", "rails.switch", 30, 28),
        interval("ocs.13", "rails.light", 32, 16),
        interval("server0.nic0.p0", "rails.carrier", 33, 20),
    ]
    page = show((context(), found))
    (label,) = (label for label in page.labelled if label.startswith("Timeline of a training job:"))
    assert label
    for excerpt in ("rank 0", "rank 1", "ocs.13", "server0.nic0.p0", "PP traffic", "no carrier"):
        assert excerpt in page.text
    assert "PP traffic 2 6 ms 5 ms … 7 ms" in " ".join(page.text.split())
    assert "rails.traffic" not in page.text


def test_a_run_without_training_has_no_such_section(show):
    assert "training job" not in show((context(), [])).text
