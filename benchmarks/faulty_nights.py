"""Ninety nights of five testbeds as the harness writes them, with three injected faults.

Made without measuring: the rows of a night are drawn, then written as the Parquet data set that
a run leaves. Nights differ a little from each other in everything, as nights do, so that a
comparison which takes the samples of one night for independent sees changes everywhere.
"""

import datetime
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lightrig.harness.record.dataset import COLUMNS

OPUS = Path(__file__).parent.parent / "testbeds" / "opus.yaml"
TESTBEDS = ("acos", "infinitehbd", "mixnet", "opus", "railx")
FIRST_NIGHT = datetime.date(2026, 1, 5)
PORTS = tuple(f"server{s}.nic{n}.p{p}" for s in range(4) for n in range(2) for p in range(2))
CIRCUITS = tuple(f"ocs.{i + 1}>{i + 33}" for i in range(32))
LANES = 4
MOVES = (("east-west", "north-south"), ("north-south", "east-west"))
EVENTS = 20
REPETITIONS = 8

SLOW_FIRMWARE, DIRTY_FIBER, LOST_LANE = "a slow NIC firmware", "a dirty fiber", "a lost lane"


@dataclass(frozen=True, slots=True)
class Scatter:
    """How nights scatter beside what `benchmarks.faulty_nights` states.

    wider: by how much everything scatters more. df: degrees of freedom of Student's t that
    everything is drawn from, scaled to the same standard deviation; None for normal draws.
    retries: share of events in which a NIC's firmware tries again.
    """

    wider: float = 1.0
    df: int | None = None
    retries: float = 0.01

    def normal(
        self, random: np.random.Generator, mean: Any = 0.0, sd: Any = 1.0, size: Any = None
    ) -> Any:
        """Draw as `Generator.normal` does, with these tails and this width."""
        shape = np.broadcast_shapes(np.shape(mean), np.shape(sd)) if size is None else size
        if self.df is None:
            drawn = random.standard_normal(shape)
        else:
            drawn = random.standard_t(self.df, shape) * math.sqrt((self.df - 2) / self.df)
        return mean + self.wider * sd * drawn


USUAL = Scatter()


@dataclass(frozen=True)
class Fault:
    """An injected fault: from `night` on, exactly these series of a testbed have moved."""

    what: str
    testbed: str
    night: datetime.date
    series: frozenset[tuple[str, str]]
    """Quantity and subject."""


def plant(
    root: Path, seed: int, nights: int = 90, at: int | None = None, scatter: Scatter = USUAL
) -> tuple[list[Fault], int]:
    """Write the data set below `root`/rows; return the injected faults and the number of rows.

    at: the night, from 0, on which all faults begin; with `nights` there is none. By default each
    has a night of its own, at least fifteen from either end.
    """
    random = np.random.default_rng(seed)
    faults = _faults(random, nights, at)
    count = 0
    for testbed in TESTBEDS:
        draws = np.random.default_rng([seed, TESTBEDS.index(testbed)])
        lab = _Lab(testbed, draws, faults, scatter)
        missing = _missing(random, nights, faults)
        for index in range(nights):
            if index not in missing:
                count += lab.write(root, FIRST_NIGHT + datetime.timedelta(index))
    return faults, count


def _faults(random: np.random.Generator, nights: int, night: int | None) -> list[Fault]:
    drawn = random.integers(15, nights - 15, 3) if night is None else [night] * 3
    at = [FIRST_NIGHT + datetime.timedelta(int(n)) for n in drawn]
    where = random.choice(len(TESTBEDS), 3, replace=False)
    server = f"server{random.integers(4)}."
    slow = [port for port in PORTS if port.startswith(server)]
    stages = ("firmware_up", "carrier_up", "first_datagram")
    moved = {(q, port) for q in (*stages, "outage.carrier") for port in slow}
    moved |= {(f"reconfiguration.{stage}", TESTBEDS[where[0]]) for stage in stages}
    port = str(random.choice(PORTS))
    lane = f"{port}.lane{random.integers(LANES)}"
    return [
        Fault(SLOW_FIRMWARE, TESTBEDS[where[0]], at[0], frozenset(moved)),
        Fault(
            DIRTY_FIBER,
            TESTBEDS[where[1]],
            at[1],
            frozenset({("insertion_loss", str(random.choice(CIRCUITS)))}),
        ),
        Fault(
            LOST_LANE,
            TESTBEDS[where[2]],
            at[2],
            frozenset({("received_power", lane), ("pre_fec_ber", port)}),
        ),
    ]


def _missing(random: np.random.Generator, nights: int, faults: Iterable[Fault]) -> set[int]:
    """A few nights on which nothing ran; a fault shows on its own night."""
    taken = {(fault.night - FIRST_NIGHT).days for fault in faults}
    return {int(n) for n in random.integers(1, nights - 1, nights // 20)} - taken


class _Lab:
    """One testbed: what its parts are like, and what they do on a night."""

    def __init__(
        self,
        testbed: str,
        random: np.random.Generator,
        faults: Iterable[Fault],
        scatter: Scatter,
    ) -> None:
        self._testbed = testbed
        self._scatter = scatter
        self._random = random
        self._faults = {fault.what: fault for fault in faults if fault.testbed == testbed}
        self._bring_up = random.normal(3.0, 0.1, len(PORTS))
        self._loss = random.normal(1.2, 0.2, len(CIRCUITS))
        self._power = random.normal(-2.0, 0.5, (len(PORTS), LANES))
        self._error = random.normal(-8.0, 0.2, len(PORTS))
        self._changed_firmware, self._changed_cabling = random.integers(30, 60, 2)

    def write(self, root: Path, night: datetime.date) -> int:
        run = f"{night:%Y%m%d}-013000-{TESTBEDS.index(self._testbed):x}"
        blocks = [
            *(self._moves(night, *plans) for plans in MOVES),
            self._losses(night),
            self._links(night),
        ]
        table = _table(run, self._testbed, self._identities(night), blocks)
        header = {"run": run, "night": f"{night}", "descriptions": {self._testbed: "lab.yaml"}}
        folder = root / "rows" / f"testbed={self._testbed}" / f"night={night}"
        folder.mkdir(parents=True, exist_ok=True)
        table = table.replace_schema_metadata({"lightrig.header": json.dumps(header)})
        pq.write_table(table, folder / f"{run}.parquet", compression="zstd")
        written = root / "runs" / run
        written.mkdir(parents=True)
        (written / "lab.yaml").write_text(self._description(night))
        (written / "report.html").write_text(f"<!DOCTYPE html><title>{run}</title><h1>{run}</h1>")
        return int(table.num_rows)

    def _description(self, night: datetime.date) -> str:
        """The testbed's file; in one lab two fibers are swapped, and nothing comes of it."""
        text = re.sub("plans:.*?(?=limits:)", "", OPUS.read_text(), flags=re.DOTALL)
        later = (night - FIRST_NIGHT).days >= self._changed_cabling
        if later and self._testbed == TESTBEDS[0]:
            text = text.replace("ocs.[34,33,36,35]", "ocs.[33,34,36,35]")
        return text.replace("name: opus", f"name: {self._testbed}")

    def _since(self, what: str, night: datetime.date) -> frozenset[str]:
        """The subjects that a fault has on `night`; none before."""
        fault = self._faults.get(what)
        if fault is None or night < fault.night:
            return frozenset()
        return frozenset(subject for _, subject in fault.series)

    def _identities(self, night: datetime.date) -> list[str]:
        slow = {subject.partition(".")[0] for subject in self._since(SLOW_FIRMWARE, night)}
        later = (night - FIRST_NIGHT).days >= self._changed_firmware
        found = [f"ocs: Polatis N-VST-32x32, serial SIM-ocs, firmware 6.7.{3 + later}.9"]
        for server in range(4):
            name = f"server{server}"
            kind, serial = "NVIDIA ConnectX-6 Dx", f"serial SIM-{name}.nic0"
            firmware = "22.41.1000" if name in slow else "22.39.2048"
            found.append(f"{name}: Linux kernel 6.8.0, serial SIM-{name}, firmware python 3.11.7")
            found.append(f"{name}.nic0: {kind}, {serial}, firmware {firmware}")
        return found

    def _normal(self, mean: Any = 0.0, sd: Any = 1.0, size: Any = None) -> Any:
        if self._scatter == USUAL:
            return self._random.normal(mean, sd, size)  # as every figure so far was drawn
        return self._scatter.normal(self._random, mean, sd, size)

    def _moves(self, night: datetime.date, before: str, after: str) -> list["_Block"]:
        random, normal, ports = self._random, self._normal, len(PORTS)
        test = f"suites/test_reconfiguration.py::test_between_plans[{self._testbed}-{before}]"
        shape = (EVENTS, ports)
        light = normal(45 + normal(0, 0.3), 3, shape) * 1e6
        acknowledged = normal(195 + normal(0, 1), 6, (EVENTS, 1)) * 1e6
        lost = normal(4, 0.5, shape) * 1e6
        up = normal(self._bring_up + normal(0, 0.02), 0.12, shape)
        up += normal(0, 0.015, ports)  # this night's own, for each port
        up += 2.0 * (
            random.random(shape) < self._scatter.retries
        )  # now and then the firmware tries again
        up += 0.8 * np.isin(PORTS, list(self._since(SLOW_FIRMWARE, night)))
        firmware = light + up * 1e9
        carrier = firmware + normal(75e3, 2e3, shape)
        datagram = carrier + normal(150, 20, shape) * 1e6
        conditions = {"before": before, "after": after, "clock": "virtual"}
        stages = {"signal_recovered": light, "firmware_up": firmware, "carrier_up": carrier}
        stages |= {"first_datagram": datagram}
        blocks = [_Block("reconfiguration.acknowledged", [self._testbed], acknowledged)]
        blocks += [
            _Block(f"reconfiguration.{stage}", [self._testbed], each.max(axis=1, keepdims=True))
            for stage, each in stages.items()
        ]
        blocks += [_Block(stage, PORTS, each) for stage, each in stages.items()]
        blocks.append(_Block("outage.carrier", PORTS, carrier - lost))
        return [block.of(test, conditions, "ns", 5e5) for block in blocks]

    def _losses(self, night: datetime.date) -> list["_Block"]:
        normal = self._normal
        loss = self._loss + normal(0, 0.01) + normal(0, 0.04, len(CIRCUITS))
        loss = loss + 0.7 * np.isin(CIRCUITS, list(self._since(DIRTY_FIBER, night)))
        each = normal(loss, 0.02, (REPETITIONS, len(CIRCUITS)))
        test = f"suites/test_insertion_loss.py::test_insertion_loss[{self._testbed}]"
        return [_Block("insertion_loss", CIRCUITS, each).of(test, {"clock": "virtual"}, "dB", 0.05)]

    def _links(self, night: datetime.date) -> list["_Block"]:
        normal, missing = self._normal, self._since(LOST_LANE, night)
        lanes = [f"{port}.lane{lane}" for port in PORTS for lane in range(LANES)]
        power = self._power + normal(0, 0.05) + normal(0, 0.08, self._power.shape)
        each = normal(power.ravel(), 0.03, (REPETITIONS, len(lanes)))
        each = np.where(np.isin(lanes, list(missing)), normal(-30, 0.3, each.shape), each)
        error = self._error + normal(0, 0.08, len(PORTS))
        error = np.where(np.isin(PORTS, list(missing)), -3.6, error)
        errors = 10.0 ** normal(error, 0.05, (REPETITIONS, len(PORTS)))
        test = f"suites/test_links.py::test_links[{self._testbed}]"
        conditions: dict[str, Any] = {"clock": "virtual"}
        return [
            _Block("received_power", lanes, each).of(test, conditions, "dBm", 0.1),
            _Block("pre_fec_ber", PORTS, errors).of(test, conditions, "1", 0.0),
        ]


@dataclass(frozen=True)
class _Block:
    """Rows of one quantity: one row of `values` an event, one column a subject."""

    quantity: str
    subjects: Iterable[str]
    values: np.ndarray[Any, np.dtype[np.float64]]
    test: str = ""
    conditions: Mapping[str, Any] | None = None
    unit: str = ""
    width: float = 0.0

    def of(self, test: str, conditions: Mapping[str, Any], unit: str, width: float) -> "_Block":
        return _Block(self.quantity, self.subjects, self.values, test, conditions, unit, width)


def _table(
    run: str, testbed: str, identities: list[str], blocks: Iterable[list[_Block]]
) -> pa.Table:
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS.names}
    count = 0
    for block in (one for each in blocks for one in each):
        events, subjects = block.values.shape
        size = events * subjects
        count += size
        columns["test"] += [block.test] * size
        columns["subject"] += list(block.subjects) * events
        columns["quantity"] += [block.quantity] * size
        columns["value"].append(block.values.ravel())
        columns["lower"].append(block.values.ravel() - block.width)
        columns["upper"].append(block.values.ravel() + block.width)
        columns["unit"] += [block.unit] * size
        for event in range(events):
            text = json.dumps({**(block.conditions or {}), "event": event}, sort_keys=True)
            columns["conditions"] += [text.replace(" ", "")] * subjects
    for name in ("value", "lower", "upper"):
        columns[name] = np.concatenate(columns[name])  # type: ignore[assignment]
    columns |= {"run": [run] * count, "simulated": [True] * count}
    columns |= {"time_ns": np.arange(count) * 1_000, "instruments": [identities] * count}  # type: ignore[dict-item]
    return pa.table([columns[name] for name in COLUMNS.names], schema=COLUMNS)
