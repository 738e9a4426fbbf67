"""The phase of a job's rounds at which a fault is to begin."""

import itertools
import statistics

from lightrig.instruments.jobs.core.streams import StreamState


def median_round(state: StreamState) -> float:
    """Return the median time from one end of a round to the next, in ns; 0 where unknown."""
    ends = [at.latest for at in state.ends]
    return statistics.median([b - a for a, b in itertools.pairwise(ends)] or [0])


class RoundPhase:
    """When to send a command so that the light goes at a phase of the job's round.

    The moment is predicted from the median round so far and the median delay of the faults before;
    before the first one that is taken as 0. What was reached is measured: `Survival.phase`.

    Args:
        share: of a round, 0 to 1.

    Attributes:
        delays: from a command to the first carrier that went, in ns, of each fault before.
    """

    def __init__(self, share: float) -> None:
        self.share = share
        self.delays: list[int] = []

    def wait(self, state: StreamState, now: int) -> int:
        """Return the time until the command, in ns, less than a round; 0 where rounds are unknown.

        state: of the job. now: on the bench's clock.
        """
        if not (usual := median_round(state)):
            return 0
        delay = statistics.median(self.delays) if self.delays else 0
        return round((state.began.latest + self.share * usual - delay - now) % usual)
