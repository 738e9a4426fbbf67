"""Which links of plans take part in what is measured, and why others do not.

A person lists ports that are out of service; the plans of the testbed are without them. What did
not come up in this process is known here besides, so that no later test waits for it again.
"""

import contextlib
import hashlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from lightrig.harness.findings import Finding
from lightrig.testbeds import Link, Plan, Port, Testbed
from lightrig.testbeds.out_of_service import ports_of_plan, without_ports

MOST_LISTED = 8
"""Ports of a set that are listed in a condition; of more there is a digest."""


@dataclass(frozen=True, slots=True)
class Share:
    """How many of a plan's NIC ports take part.

    Attributes:
        plan: the plan.
        linked, stated: how many take part, and how many would.
        missing: the others.
        reason: what is left out: ports that a person has listed, and links that did not come up.
    """

    plan: str
    linked: int
    stated: int
    missing: tuple[Port, ...]
    reason: str

    @property
    def ports(self) -> str:
        """Their number, as "6 of 8 ports"."""
        return f"{self.linked} of {self.stated} ports"

    @property
    def condition(self) -> str:
        """The set of ports as a condition of rows: equal for equal sets alone."""
        listed = ", ".join(map(str, self.missing[:MOST_LISTED]))
        if (more := len(self.missing) - MOST_LISTED) > 0:
            digest = hashlib.sha256(" ".join(map(str, self.missing)).encode()).hexdigest()
            listed += f" and {more} more, {digest[:8]} in all"
        return f"{self.ports}, without {listed}"

    def __str__(self) -> str:
        return f"{self.ports}; out: {self.reason}"


@dataclass
class Coverage:
    """The links that this process leaves out, and what a test has left out.

    Attributes:
        testbed: the testbed, without what a person has listed.
        is_strict: whether each test waits for all links, and goes on without none.
        is_partial: whether the running test measures the links that there are.
        looked: whether it has looked again at links that did not come up before.
        rise: how long links took to come up after the last change with which some did, in ns.
        failures: findings of links that were first seen to be down in this test.
        sentences: what was seen of them.
    """

    testbed: Testbed
    is_strict: bool = field(default=False, init=False)
    is_partial: bool = field(default=False, init=False)
    looked: bool = field(default=False, init=False)
    rise: int | None = field(default=None, init=False)
    failures: list[Finding] = field(default_factory=list, init=False)
    sentences: list[str] = field(default_factory=list, init=False)
    _down: dict[Link, frozenset[Port]] = field(default_factory=dict, init=False)
    _examined: frozenset[Link] = field(default=frozenset(), init=False)
    _working: set[Port] = field(default_factory=set, init=False)
    _left_out: dict[Link, None] = field(default_factory=dict, init=False)
    _plans: dict[str, Plan] = field(default_factory=dict, init=False)
    _last: Plan | None = field(default=None, init=False)

    def begin(self) -> None:
        """Begin a test: what it leaves out is not known yet, what is down still is."""
        self.is_partial = self.looked = False
        self.failures, self.sentences = [], []
        self._left_out, self._plans, self._last = {}, {}, None

    # ---------------------------------------------------------------------- what is down

    def note_down(self, links: Iterable[Link], dark: Collection[Port] = ()) -> None:
        """Note links that did not come up. dark: NIC ports whose light did not reach the switch."""
        for link in links:
            self._working -= {link.a, link.b}
            self._down[link] = frozenset({link.a, link.b} & set(dark))

    def note_up(self, links: Iterable[Link]) -> None:
        """Note links that are up now."""
        for link in links:
            self._working |= {link.a, link.b}
            self._down.pop(link, None)

    def down(self, links: Iterable[Link]) -> frozenset[Link]:
        """Return the links that are known to be down, by themselves or by an end of theirs."""
        dead = self._dead()
        return frozenset(
            link for link in links if link in self._down or not dead.isdisjoint({link.a, link.b})
        )

    def suspected(self, links: Iterable[Link]) -> frozenset[Link]:
        """Return the links with an end of one that is down, which may be why it is."""
        ends = {end for link in self._down for end in (link.a, link.b)} - self._working
        of_ends = {link for link in links if not ends.isdisjoint({link.a, link.b})}
        return frozenset(of_ends) - self.down(of_ends)

    def dead_of(self, links: Iterable[Link]) -> frozenset[Port]:
        """Return the ends of links that are why they are down, as far as the evidence can tell."""
        dead = self._dead()
        return frozenset(end for link in links for end in (link.a, link.b) if end in dead)

    def _dead(self) -> frozenset[Port]:
        """Return the ports that are why links are down, where the evidence can tell the end.

        One whose own light does not reach the switch; the end of a link whose other end has a link
        that works; and the end that two links share.
        """
        ends = [(end, far) for one in self._down for end, far in _both(one)]
        partners: dict[Port, set[Port]] = {}
        for end, far in ends:
            partners.setdefault(end, set()).add(far)
        dead = {port for ports in self._down.values() for port in ports}
        dead |= {end for end, far in ends if far in self._working}
        dead |= {end for end, far in partners.items() if len(far) > 1}
        return frozenset(dead - self._working)

    def forget(self) -> None:
        """Forget what is down: each test waits for it as if it were the first."""
        self._down.clear()
        self._working.clear()

    @contextlib.contextmanager
    def examining(self) -> Iterator[bool]:
        """Meanwhile plans are applied whole, and are none that the running test measures.

        Gives whether that was not done for the links that are down now.
        """
        before = self._plans.copy(), self._left_out.copy(), self._last, self.is_partial
        is_due = self._examined != self._down.keys()
        self.is_partial = False
        try:
            yield is_due
        finally:
            self._examined = frozenset(self._down)
            self._plans, self._left_out, self._last, self.is_partial = before

    # ------------------------------------------------------------------------- of a test

    def part_of(self, links: Iterable[Link]) -> frozenset[Link]:
        """Return the links that are not known to be down."""
        found = frozenset(links)
        return found - self.down(found)

    def part(self, plan: Plan) -> Plan:
        """Return what the running test makes of a plan: without links that are down, if partly."""
        if not self.is_partial or not self._down:
            return plan
        down = self.down(self.testbed.links(plan))
        return without_ports(self.testbed, plan, (), down) if down else plan

    def applied(self, plan: Plan, *, wanted: Plan) -> None:
        """Note that a plan is applied; wanted: what was asked for, whose name may be a plan's."""
        self._last = plan
        if wanted.name in self.testbed.plans:
            self._plans[wanted.name] = plan
        if plan is not wanted:
            left = self.testbed.links(wanted)
            self._left_out |= dict.fromkeys(sorted(self.down(left)))

    @property
    def left_out(self) -> tuple[Link, ...]:
        """The links that this test has left out, which nobody has listed."""
        return tuple(self._left_out)

    def share(self) -> Share | None:
        """Return the least share of a plan that this test has measured; None for all of it.

        Of a test that has applied no plan of the testbed, that of all NIC ports.
        """
        shares = [self._share_of(name, plan) for name, plan in self._plans.items()]
        if not shares and self.testbed.out:
            ports = {spec.port for spec in self.testbed.nic_ports}
            left = frozenset(spec.port for spec in self.testbed.working_ports)
            shares = [self._share("", left, frozenset(ports))]
        least = min(shares, key=lambda each: each.linked / max(each.stated, 1), default=None)
        return None if least is None or least.linked == least.stated else least

    def share_now(self) -> Share | None:
        """Return the share of the plan that was applied last; None for all of it."""
        if self._last is None:
            return None
        name = self._last.name
        found = self._share_of(name, self._last) if name in self.testbed.plans else self.share()
        return None if found is None or found.linked == found.stated else found

    def _share_of(self, name: str, plan: Plan) -> Share:
        stated = self.testbed.out.stated or self.testbed
        return self._share(name, ports_of_plan(self.testbed, plan), ports_of_plan(stated, name))

    def _share(self, name: str, linked: frozenset[Port], stated: frozenset[Port]) -> Share:
        reasons = [*self.testbed.out.entries, *(f"link {link}" for link in self._left_out)]
        missing = tuple(sorted(stated - linked))
        return Share(name, len(linked & stated), len(stated), missing, ", ".join(reasons))


def _both(link: Link) -> tuple[tuple[Port, Port], tuple[Port, Port]]:
    return (link.a, link.b), (link.b, link.a)
