"""What transceivers of NIC ports, and their firmware, show of links that come up."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

from lightrig.instruments.clock import Span


class Shown(NamedTuple):
    """What one reading shows of one thing: whether it is set. It began and ended within `at`."""

    at: Span
    is_set: bool


class ShownState(NamedTuple):
    """The state that one reading shows. It began and ended within `at`."""

    at: Span
    state: str


@dataclass(slots=True)
class ModuleLights:
    """Readings of one transceiver, oldest first, on the bench's clock.

    Attributes:
        latched: whether its flags stay set until they are read.
        late: by how many ns a change may be shown late.
        no_signal: whether the receiver's loss of signal was shown, on any lane.
        no_lock: the same of its loss of lock; empty where it has no such flag.
        output: whether the receiver's output was valid on each lane on which it ever was.
        paths: states of data paths: one name, or several where lanes differ.
        lanes: the same of each lane by its number, from 1.
        failed: why readings failed, by how many did.
    """

    latched: bool
    late: int
    no_signal: list[Shown] = field(default_factory=list)
    no_lock: list[Shown] = field(default_factory=list)
    output: list[Shown] = field(default_factory=list)
    paths: list[ShownState] = field(default_factory=list)
    lanes: dict[int, list[ShownState]] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)


@runtime_checkable
class HasModuleReads(Protocol):
    """A server that reads its transceivers beside the links that it watches.

    While it does, the kernel's RTNL makes readings of carriers wait, on that server.
    """

    def begin_module_reads(self, netdevs: Sequence[str], *, period: int) -> Mapping[str, str]:
        """Read the transceivers of ports over and over, a round every `period` ns at most.

        Returns why, for each that cannot be read.
        """

    def end_module_reads(self) -> Mapping[str, ModuleLights]:
        """Read no more; return by netdev what was read since the beginning."""


class LinkUpTimes(NamedTuple):
    """How long the last link-up of a NIC port took by its firmware, in ns; None: not told.

    Whole milliseconds. 0 of one that has not ended. The timers start anew only after the port was
    disabled, or, where its speed is forced, when the link is lost.

    Attributes:
        signal_to_phy: from a signal at the NIC until its physical layer was up.
        phy_to_active: from then until the link was active.
        whole: until the link was up.
    """

    signal_to_phy: int | None = None
    phy_to_active: int | None = None
    whole: int | None = None


@runtime_checkable
class HasLinkUpTimes(Protocol):
    """A server whose firmware times links that come up."""

    def link_up_times(self, rdma: str) -> LinkUpTimes:
        """Read the timers of a port by its RDMA device; no module is asked.

        Raises `InstrumentError` where the tool is missing or fails.
        """
