"""Small nights as the harness would have kept them, with changes planted in some series."""

import datetime
import json
from dataclasses import dataclass, field

import numpy as np

from lightrig.harness.record.digests import digest_of
from lightrig.harness.record.run_folder import Measured, RunFacts, write_facts

FIRST = datetime.date(2026, 2, 1)
CASE = {"before": "straight", "after": "crossed", "clock": "virtual"}
TEST = "suites/test_reconfiguration.py::test_between_plans[bench]"
OLD = "nic0: ConnectX-6, serial 1, firmware 22.39"
NEW = "nic0: ConnectX-6, serial 1, firmware 22.41"
SWITCH = "ocs: Polatis 6000, serial 7, firmware 6.7"


@dataclass(frozen=True)
class Grown:
    """A series: its level, how nights and samples scatter about it, and what happens to it."""

    quantity: str
    subject: str
    level: float
    night_sd: float
    sd: float
    unit: str
    samples: int = 12
    change: float = 0.0
    """Amount added from night `at` on."""
    at: int = 0
    drift: float = 0.0
    """Amount added each night."""
    conditions: dict = field(default_factory=lambda: dict(CASE))


def write_nights_of(
    root,
    testbed,
    series,
    *,
    nights=30,
    missing=(),
    simulated=True,
    firmware_at=None,
    seed=0,
    reports=False,
):
    """Write `nights` of a testbed below `root`; return the names of the runs by night."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from lightrig.harness.record.dataset import COLUMNS

    random = np.random.default_rng(seed)
    runs = {}
    for night in range(nights):
        if night in missing:
            continue
        date = FIRST + datetime.timedelta(night)
        run = f"{date:%Y%m%d}-013000-{testbed[:1]}{int(simulated)}"
        identities = [SWITCH, NEW if firmware_at is not None and night >= firmware_at else OLD]
        rows = [row for one in series for row in _rows(one, night, random)]
        table = {
            "run": [run] * len(rows),
            "test": [TEST] * len(rows),
            "time_ns": list(range(len(rows))),
            "simulated": [simulated] * len(rows),
            "instruments": [identities] * len(rows),
        }
        names = ("subject", "quantity", "value", "lower", "upper", "unit", "conditions")
        table |= dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
        folder = root / "rows" / f"testbed={testbed}" / f"night={date}"
        folder.mkdir(parents=True, exist_ok=True)
        columns = [table[name] for name in COLUMNS.names]
        file = folder / f"{run}.parquet"
        pq.write_table(pa.table(columns, schema=COLUMNS), file)
        own = root / "runs" / run
        own.mkdir(parents=True)
        # As a run that has ended: a file of rows without a digest is read in a process of its own.
        header = {"run": run, "night": str(date), "testbeds": {testbed: {}}}
        measured = {testbed: Measured(len(rows), simulated)}
        digests = {testbed: digest_of(file)}
        write_facts(RunFacts("complete", False, measured, None, header, {}, digests=digests), own)
        if reports:
            page = own / "report.html"
            page.write_text(f"<title>{run}</title>report of {run}")
        runs[night] = run
    return runs


def _rows(one, night, random):
    level = one.level + random.normal(0, one.night_sd) + one.drift * night
    level += one.change * (one.change != 0 and night >= one.at)
    for event, value in enumerate(random.normal(level, one.sd, one.samples)):
        conditions = json.dumps({**one.conditions, "event": event}, sort_keys=True)
        width = one.sd / 10
        yield (one.subject, one.quantity, value, value - width, value + width, one.unit, conditions)


MS = 1e6
SLOW_FROM, DIRTY_FROM = 14, 20
MISSING = (5, 6, 17)


def ports(change=0.0, at=0):
    """Link times of four ports, the first two of which may change together."""
    for port in range(4):
        moved = change if port < 2 else 0.0
        subject = f"server0.nic0.p{port}"
        yield Grown("firmware_up", subject, 3e3 * MS, 20 * MS, 80 * MS, "ns", 12, moved, at)


def loss(change=0.0, at=0):
    """Insertion loss of four circuits, the third of which may change."""
    for circuit in range(4):
        moved = change if circuit == 2 else 0.0
        subject = f"ocs.{circuit + 1}>{circuit + 17}"
        yield Grown("insertion_loss", subject, 1.2, 0.03, 0.02, "dB", 8, moved, at)


def light():
    """A whole event's stage, with enough samples for a p99."""
    return Grown("reconfiguration.signal_recovered", "bench", 45 * MS, 0.3 * MS, 3 * MS, "ns", 300)


def two_testbeds(root, *, reports=False):
    """One with a slow firmware from `SLOW_FROM` on, one with a dirty fiber from `DIRTY_FROM` on."""
    slow = [light(), *ports(800 * MS, SLOW_FROM), *loss()]
    dirty = [*ports(), *loss(0.7, DIRTY_FROM)]
    options = {"missing": MISSING, "reports": reports}
    write_nights_of(root, "bench", slow, firmware_at=SLOW_FROM, **options)
    write_nights_of(root, "fab", dirty, simulated=False, seed=1, **options)
