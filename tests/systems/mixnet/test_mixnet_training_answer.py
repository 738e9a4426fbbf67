"""The answer of `lightrig train` for experts: equality, waits by cause, and bytes of links."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from lightrig.harness.jobs.bench.port_traffic import PortTraffic
from lightrig.harness.jobs.printed_numbers import compare
from lightrig.harness.jobs.training import RESULTS
from lightrig.harness.systems.mixnet.generator import render
from lightrig.harness.systems.mixnet.measurements.link_bytes import link_bytes
from lightrig.harness.systems.mixnet.measurements.packet_operations import packet_operations
from lightrig.harness.systems.mixnet.measurements.training_answer import ExpertsAnswer, answer
from lightrig.harness.systems.mixnet.planning.course import Course
from lightrig.harness.systems.mixnet.planning.demand import Placement
from lightrig.harness.systems.mixnet.planning.expert_regions import ExpertRegion
from lightrig.harness.systems.mixnet.runtime.trained import (
    LinkPeriod,
    TrainedExperts,
    TrainingExchange,
)
from lightrig.instruments.clock import Span
from lightrig.instruments.jobs.traffic.training import Done, Wanted
from lightrig.testbeds import Plan, Port, Testbed, load

MS = 1_000_000
A, B = Port("server0", "nic0"), Port("server1", "nic0")
PACKETS = Port("server0", "nic1"), Port("server1", "nic1")


def region(tmp_path: Path) -> Testbed:
    (tmp_path / "region.yaml").write_text(render(2, 1, 1, 1, namespaces=True))
    return load(tmp_path / "region.yaml")


def exchange(step: int, wanted: int, began: int, ended: int) -> TrainingExchange:
    moments = {"wanted": wanted * MS, "permitted": began * MS, "began": began * MS}
    return TrainingExchange(
        *(step, 0, "dispatch", np.zeros((2, 2))), plan=Plan("uniform", {}), optical=0.75,
        ended=ended * MS, predicted=7.0, carried={(A, B): 9}, **moments,
    )  # fmt: skip


REGION = ExpertRegion("ocs", (0, 1), (0, 1), Placement((0, 1), 2), ((0, 1),))


def operation(group: str, size: int) -> Done:
    none = Span(0, 0)
    return Done(Wanted(group, 0, "allreduce", size), none, none, none)


def made(testbed: Testbed, printed: str) -> ExpertsAnswer:
    counted: Mapping[Port, PortTraffic] = {
        # 8,000 bytes of data in ten packets of TCP, whose headers are 66 bytes each.
        A: PortTraffic(8_660, 660, 10, 10),
        B: PortTraffic(660, 8_660, 10, 10),
        PACKETS[0]: PortTraffic(1_066, 0, 1, 0),
        PACKETS[1]: PortTraffic(0, 1_066, 0, 1),
    }
    planned = {(A, B): 8_040, PACKETS: 1_000}
    period = LinkPeriod(testbed.plans["uniform"], planned, counted, {"server0": 3, "server1": 0})
    trained = TrainedExperts(
        {0: [(Span(0, 0), printed)]},
        [exchange(0, 0, 5, 10), exchange(1, 100, 104, 110), exchange(2, 200, 206, 230)],
        (),
        (),
        [period],
    )
    return answer(
        ranks=2, mode="default", simulated=["ocs"],
        comparison=compare(RESULTS, {0: [(Span(0, 0), "step 0 loss 3.5")]}, trained.printed),
        courses=[(REGION, Course(1))], trained=trained,
        packets=packet_operations({1: [operation("0,1", 400)], 0: [operation("all", 8)]}, 2),
        links=link_bytes(testbed, trained.periods),
    )  # fmt: skip


def test_an_answer_has_what_links_carried_and_what_was_waited_for(tmp_path: Path) -> None:
    """Steps of 100 and 120 ms, of which circuits took 4 and 6 ms."""
    found = made(region(tmp_path), "step 0 loss 3.5")
    assert found.as_printed_before
    (of_region,) = found.regions
    assert of_region.step is not None
    assert of_region.waited is not None
    assert (of_region.step.value, of_region.waited.value) == (110 * MS, 5 * MS)
    assert of_region.causes["control"].value == 5 * MS
    # Student's interval of 4 and 6 ms reaches to -7.7 ms; no wait is negative.
    assert of_region.waited.lower == 0
    assert all(each.lower == 0 for each in of_region.causes.values())
    links = {str(link): (link.planned, link.counted) for link in found.links}
    assert links == {
        "server0.nic0 -> server1.nic0": (8_040, 8_000),
        "server0.nic1 -> Ethernet": (1_000, 1_000),
        "Ethernet -> server1.nic1": (1_000, 1_000),
    }
    shown = "\n".join(found.lines())
    assert "results   1 numbers, each equal to that over packets alone" in shown
    assert "8,040       8,000, 0.50% off" in shown
    assert "75.0% of the bytes between servers took circuits" in shown
    assert "3 segments were sent again" in shown
    assert "packets   allreduce in 2 groups of 2: 2 of 408 bytes" in shown
    assert json.loads(json.dumps(found.document()))["again"] == 3


def test_other_numbers_are_shown_with_their_rank(tmp_path: Path) -> None:
    found = made(region(tmp_path), "step 0 loss 3.25")
    assert not found.as_printed_before
    first, second, *_ = found.lines()
    assert first == "results   1 of 1 numbers DIFFER from those over packets alone:"
    assert second.strip() == "rank 0 printed 3.25, over packets 3.5"
