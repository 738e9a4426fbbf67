"""All-to-alls and failovers in a region, as a test takes and records them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy.typing as npt

from lightrig.harness.bench import Fabric
from lightrig.harness.measure.links import LinkObservation
from lightrig.harness.measure.recording import NotEnoughDataError
from lightrig.harness.record import Row
from lightrig.harness.statistics.quantiles import NotEnough
from lightrig.harness.systems.mixnet.measurements.exchanges import (
    Exchanged,
    Speedup,
    bring_in,
    exchange_rows,
    run_exchange,
    speedup,
    speedup_row,
)
from lightrig.harness.systems.mixnet.measurements.failover import (
    Failover,
    Replan,
    failover_rows,
    under_traffic,
    with_a_new_rank,
)
from lightrig.harness.systems.mixnet.planning.region import Failures
from lightrig.harness.systems.mixnet.runtime.exchanges import Exchanges
from lightrig.testbeds import Plan


@dataclass(eq=False)
class RegionTraffic:
    """Measurements of one test under all-to-alls.

    Observation of the links is paused before each: on servers that are one machine, it takes
    processor time that the ranks need.

    Args:
        region: the servers, which run the all-to-alls.
        fabric: whose circuits carry them.
        links: the observation of the servers' links.
        record: takes the rows.
    """

    _region: Exchanges
    _fabric: Fabric
    _links: LinkObservation
    _record: Callable[[Iterable[Row]], None]
    _events: int = field(default=0, init=False)

    def apply(self, plan: Plan) -> None:
        """Apply `plan`, wait for its carriers and route packets over it; see `bring_in`."""
        self._links.pause()
        bring_in(self._fabric, self._region, plan, Failures())

    def all_to_all(self, plan: Plan, traffic: npt.ArrayLike, *, iterations: int) -> Exchanged:
        """Run an all-to-all of `traffic`, in bytes, over `plan`; see `run_exchange`."""
        self._links.pause()
        found = run_exchange(self._fabric, self._region, plan, traffic, iterations)
        self._record(exchange_rows(found, self._fabric))
        return found

    def speedup(self, slow: Exchanged, fast: Exchanged) -> Speedup:
        """Record how many times as long `slow` takes as `fast`; raises `NotEnoughDataError`."""
        found = speedup(slow, fast)
        if isinstance(found, NotEnough):
            raise NotEnoughDataError(str(found))
        self._record([speedup_row(slow, fast, found)])
        return found

    def failover(
        self,
        case: str,
        plan: Plan,
        traffic: npt.ArrayLike,
        fail: Callable[[], object],
        replan: Replan,
        *,
        before: int,
        after: int,
    ) -> Failover:
        """Record a failure that every rank survives; see `under_traffic`."""
        self._links.pause()
        found = under_traffic(
            fabric=self._fabric,
            over=self._region,
            case=case,
            plan=plan,
            traffic=traffic,
            fail=fail,
            replan=replan,
            before=before,
            after=after,
        )
        return self._recorded(found)

    def takeover(
        self,
        case: str,
        plan: Plan,
        traffic: npt.ArrayLike,
        ranks: Sequence[str],
        fail: Callable[[], object],
        replan: Replan,
        backup: Callable[[Failures, Sequence[str]], Sequence[str]],
        *,
        before: int,
    ) -> Failover:
        """Record a failure that ends a rank, which another server replaces; `with_a_new_rank`."""
        self._links.pause()
        found = with_a_new_rank(
            fabric=self._fabric,
            over=self._region,
            case=case,
            plan=plan,
            traffic=traffic,
            ranks=ranks,
            fail=fail,
            replan=replan,
            backup=backup,
            before=before,
        )
        return self._recorded(found)

    def _recorded(self, found: Failover) -> Failover:
        self._record(failover_rows(found, self._fabric, self._events))
        self._events += 1
        return found
