"""What is about the harness or its simulation is folded apart from the lab's quantities."""

from planted_nights import Grown, write_nights_of

from lightrig.harness.report.nights import write_nights

OF_THE_HARNESS = ("watched", "closure.latency", "harness.netlink_delay", "set_aside.delay")
OF_THE_LAB = ("insertion_loss", "carrier_up")


def test_quantities_of_the_harness_are_in_a_fold_of_their_own(tmp_path):
    series = [Grown(name, "p0", 5e6, 1e3, 1e3, "ns") for name in OF_THE_HARNESS]
    series += [Grown(name, "p0", 5, 0.1, 0.1, "dB") for name in OF_THE_LAB]
    write_nights_of(tmp_path, "bench", series, nights=4)
    page = write_nights(tmp_path, tmp_path / "nights.html").read_text()
    before, fold, apart = page.partition('<details class="ln-closures">')
    assert fold
    assert "4 quantities of the harness and its simulation" in apart
    for name in OF_THE_HARNESS:
        assert f'id="n0-{name}"' in apart
        assert f'id="n0-{name}"' not in before
    for name in OF_THE_LAB:
        assert f'id="n0-{name}"' in before
        assert f'id="n0-{name}"' not in apart
