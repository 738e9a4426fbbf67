"""Ground truth of a simulated world, from which closure is computed.

Only closure may read it; drivers and measurements never do.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable

from lightrig.instruments.clock import Span


class _Moments:
    """Moments of one kind, oldest first, and beside them what they are searched by."""

    __slots__ = ("latest", "spans")

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.latest: list[int] = []


class GroundTruth:
    """When each thing went up or down, by its name and stage.

    Subjects are what the testbed calls them: `ocs.35` for the light at an egress,
    `server0.nic0.p1` for a NIC port's link. Stages are `light`, `firmware`, `carrier`,
    `datagram` and, for a switch, `acknowledged`. Light that comes or goes gradually has the stages
    `light10`, `half` and `light90` as well. `harness` has `written` a command or a query, where the
    simulation lets a write take time. A moment that the simulation itself knows
    only within bounds, such as a change in the kernel, is a span with a width.
    """

    def __init__(self) -> None:
        self._moments: defaultdict[tuple[str, str, bool], _Moments] = defaultdict(_Moments)
        self._ratios: dict[str, Callable[[], float | None]] = {}
        self._late: dict[str, Callable[[], int]] = {}

    def note(self, subject: str, stage: str, *, up: bool, at: Span) -> None:
        """Record that `subject` went up or down in `stage` at `at`."""
        if stage == "acknowledged" and subject in self._late:
            late = self._late[subject]()
            at = Span(at.earliest + late, at.latest + late)
        moments = self._moments[subject, stage, up]
        moments.spans.append(at)
        moments.latest.append(at.latest)

    def note_delay(self, subject: str, late: Callable[[], int]) -> None:
        """Let `late` tell by how many ns an acknowledgement of `subject` is delayed at present."""
        self._late[subject] = late

    def withdraw(self, subject: str, stage: str, *, up: bool) -> None:
        """Remove the last such moment: it was planned, and will not happen."""
        moments = self._moments[subject, stage, up]
        moments.spans.pop()
        moments.latest.pop()

    def first(self, subject: str, stage: str, *, up: bool, since: int) -> Span | None:
        """Return the first such moment not before `since`, or None."""
        moments = self._moments[subject, stage, up]
        index = bisect_left(moments.latest, since)
        return moments.spans[index] if index < len(moments.spans) else None

    def knows(self, subject: str, stage: str) -> bool:
        """Whether any moment of a stage of `subject` is known, so that none is missing."""
        return bool(self._moments[subject, stage, True].spans) or bool(
            self._moments[subject, stage, False].spans
        )

    def last(
        self, subject: str, stage: str, *, since: int, until: int | None = None
    ) -> Span | None:
        """Return the last moment at which `stage` went up, not after `until`.

        None if that was before `since`.
        """
        moments = self._moments[subject, stage, True]
        count = len(moments.spans) if until is None else bisect_right(moments.latest, until)
        found = moments.spans[count - 1] if count else None
        return found if found is not None and found.latest >= since else None

    def note_counter(self, counter: str, ratio: Callable[[], float | None]) -> None:
        """Let `ratio` tell the expected bit error ratio of a counter's gate."""
        self._ratios[counter] = ratio

    def bit_error_ratio(self, counter: str) -> float | None:
        """Return the expected bit error ratio of a counter's last gate; None if not known."""
        ratio = self._ratios.get(counter)
        return None if ratio is None else ratio()
