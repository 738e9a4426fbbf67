"""The production trace through InfiniteHBD's service, stored: its claims for waste rest on it.

`SERVICE_DRAWS` draws (default 20) of 720 nodes of 4 GPUs, with a job of all groups that the line
would hold without faults: TP 32, two and three hops, the halves of a node apart and side by side;
for every fifth also TP 8, 16 and 64. What is done is written to suites/claims/infinitehbd/data
after each replay; one takes 10 to 30 s of one processor.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from lightrig.instruments.clock import wall_time
from lightrig.suites.claims.infinitehbd import stored
from lightrig.suites.claims.infinitehbd.further_claims import GROUPS
from lightrig.suites.claims.infinitehbd.replay import cluster
from lightrig.suites.claims.infinitehbd.service import filled
from tests.campaigns.records import journals, log, reported

TP = 32
ALL_GROUPS_EVERY = 5


def points(draws: int) -> Iterator[dict[str, Any]]:
    """Yield what is replayed, seed by seed."""
    for seed in range(draws):
        for apart in (True, False):
            for group in GROUPS if apart and seed % ALL_GROUPS_EVERY == 0 else (TP,):
                for hops in (3, 2):
                    yield {"seed": seed, "hops": hops, "tp": group, "apart": apart}


def table(done: Sequence[Mapping[str, Any]]) -> tuple[list[str], bool]:
    """Return a line for each kind of replay by the code as it is."""
    kinds = Counter(
        f"{each['hops']} hops, TP {each['tp']}, {'apart' if each['apart'] else 'side by side'}"
        for each in done
        if each["code"] == stored.digest()
    )
    return [f"{kind:<30}{number:>4}" for kind, number in sorted(kinds.items())], True


def main(report: Callable[[str], object] = print) -> bool:
    """Run the replays that are left for this code, and store all of them."""
    code = stored.digest()
    with log("service_replays") as file:
        for point in points(int(os.environ.get("SERVICE_DRAWS", "20"))):
            if any(each["code"] == code and point.items() <= each.items() for each in file.done):
                continue
            states = cluster(np.random.default_rng(point["seed"]), apart=point["apart"])
            with journals() as folder:
                found = filled(states, point["hops"], point["tp"], folder)
            file.add({"code": code, **point, **found})
            rows = [{**each} for each in file.done if each["code"] == code]
            for row in rows:
                del row["code"], row["at"]
            stored.write(stored.stored_file(), f"{wall_time():%Y-%m-%d}", rows)
            report(str(rows[-1]))
        return reported(*table(file.done), report)
