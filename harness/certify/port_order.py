"""Clause 3.2: light leaves where reports say, and of two ports that are exchanged both are named.

In each setting a port is lit or dark. The settings are such that no two ports agree in all of them,
so that what is seen at a port tells which one it is.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lightrig.harness.certify.inputs import Inputs, undecided_if_old
from lightrig.harness.certify.light_clauses import (
    APART_DB,
    FINAL_NS,
    levels_of,
    ports_of,
)
from lightrig.harness.certify.requirements import Requirement
from lightrig.harness.certify.subject import DecidedError, Outcome, Subject
from lightrig.harness.measure.insertion_loss.chains import Chain
from lightrig.harness.measure.insertion_loss.matrix import lit
from lightrig.harness.measure.insertion_loss.readings import (
    DARK_DBM,
    cyclic_shifts,
    telling_settings,
)
from lightrig.testbeds import Circuit

_BACK_NS = 30_000_000_000
"""Longest time in which the light of an input is back, as a NIC needs for its laser."""


@dataclass
class _Seen:
    """What was reported in each setting, and the levels of all egress ports in dBm."""

    settings: list[tuple[Mapping[int, Circuit], Mapping[int, float]]] = field(default_factory=list)

    def entered(self) -> set[int]:
        """Return the ingress ports whose light has left where it was reported to."""
        return {
            circuit.ingress
            for made, dbm in self.settings
            for port, circuit in made.items()
            if dbm[port] > DARK_DBM
        }

    def lit(self, port: int) -> list[bool]:
        """Return whether light left an egress port, setting by setting."""
        return [dbm[port] > DARK_DBM for _, dbm in self.settings]

    def wanted(self, port: int, entered: Collection[int]) -> list[bool]:
        """Return whether light of an ingress that is lit was to leave it."""
        return [port in made and made[port].ingress in entered for made, _ in self.settings]


def reported_light(subject: Subject, requirement: Requirement) -> Outcome:
    """Compare the circuits that are reported with the light of all egress ports."""
    chain = subject.chain()
    with lit(chain):
        found = _compare(subject, chain)
        return undecided_if_old(subject, chain, found)


def _compare(subject: Subject, chain: Chain) -> Outcome:
    ingress, egress = ports_of(subject, chain)
    seen = _Seen()

    def make(settings: Iterable[Collection[Circuit]]) -> None:
        for setting in settings:
            subject.apply(setting)
            subject.sleep(FINAL_NS)
            reported = subject.ours(subject.switch.circuits())
            levels = levels_of(subject, chain)
            seen.settings.append(({c.egress: c for c in reported}, levels))

    make(cyclic_shifts(ingress, egress)[:2])
    make([*telling_settings(sorted(seen.entered()), egress), ()])
    entered = seen.entered()
    if not entered:
        return Outcome("not tested", "no light enters at the cabled ports")
    if stated := _exchanged_egress(seen, egress, entered):
        return Outcome("fail", stated)
    weakest, brightest = math.inf, DARK_DBM
    for made, dbm in seen.settings:
        for port in egress:
            circuit = made.get(port)
            if circuit is None:
                brightest = max(brightest, dbm[port])
            elif circuit.ingress in entered:
                if dbm[port] <= DARK_DBM:
                    return Outcome("fail", _dark(circuit, made, dbm, egress))
                weakest = min(weakest, dbm[port])
    floor = "" if brightest > DARK_DBM else "; the dark ones show no light"
    value, n = weakest - brightest, len(seen.settings)
    reason = f"least distance of ports without a circuit from those with one{floor}"
    if brightest > DARK_DBM and value < APART_DB:
        return Outcome("fail", reason, value, None, "dB", n)
    order = _InputOrder(subject, chain, sorted(entered), egress)
    order.compare()
    return Outcome("pass", f"{reason}; {order.stated}", value, None, "dB", n + order.n)


def _exchanged_egress(seen: _Seen, egress: Sequence[int], entered: Collection[int]) -> str:
    """Return that two egress ports are exchanged, each with what was seen of the other."""
    wanted = {port: seen.wanted(port, entered) for port in egress}
    shown = {port: seen.lit(port) for port in egress}
    wrong = [port for port in egress if shown[port] != wanted[port]]
    pairs = [
        (one, second)
        for one in wrong
        for second in wrong
        if one < second and shown[one] == wanted[second] and shown[second] == wanted[one]
    ]
    return "; ".join(
        f"egress {one} and egress {second} are exchanged, or their monitors are: each is lit when "
        "the other is reported in a circuit"
        for one, second in pairs
    )


def _dark(
    circuit: Circuit,
    made: Mapping[int, Circuit],
    dbm: Mapping[int, float],
    egress: Sequence[int],
) -> str:
    strange = [port for port in egress if port not in made and dbm[port] > DARK_DBM]
    lit_too = f"; in no circuit, and lit: egress {', '.join(map(str, strange))}"
    return f"{circuit} is reported and stays dark{lit_too if strange else ''}"


class _InputOrder:
    """Which ingress each circuit has its light from: by taking that of ingress ports away.

    Each is dark in the settings whose bit its number has, counted from 1; one that cannot be made
    dark is never. Ports of a group have circuits at once.

    Attributes:
        stated: how they were told apart.
        n: number of settings.
    """

    def __init__(
        self, subject: Subject, chain: Chain, entered: Sequence[int], egress: Sequence[int]
    ) -> None:
        self.stated, self.n = "one input is lit", 0
        self._subject, self._chain = subject, chain
        self._entered, self._egress = entered, egress
        self._inputs = Inputs(subject, entered)
        numbers = {port: number for number, port in enumerate(entered, 1)}
        self._numbers = {p: n if p in self._inputs.ports else 0 for p, n in numbers.items()}

    def compare(self) -> None:
        """Raise `DecidedError` where light is not of the ingress of its circuit, or unknown."""
        if len(self._entered) < 2:
            return
        lasting = [port for port, number in self._numbers.items() if not number]
        if len(lasting) == len(self._entered):
            raise DecidedError(self._all_lit(lasting))
        found: dict[Circuit, int] = {}
        most = len(self._egress)
        for first in range(0, len(self._entered), most):
            group = self._entered[first : first + most]
            found |= self._numbers_of([Circuit(*p) for p in zip(group, self._egress, strict=False)])
        self._judge(found)
        if len(lasting) > 1:
            raise DecidedError(self._all_lit(lasting))
        self.stated = f"inputs told apart by {self._inputs.means}"

    def _numbers_of(self, circuits: Sequence[Circuit]) -> dict[Circuit, int]:
        """Return by circuit the number whose bits are those in which it was dark."""
        subject, chain, found = self._subject, self._chain, dict.fromkeys(circuits, 0)
        subject.apply(circuits)
        subject.sleep(FINAL_NS)
        for bit in range(len(self._entered).bit_length()):
            ports = [port for port, number in self._numbers.items() if number >> bit & 1]
            before = self._lit_levels(circuits)
            with self._inputs.dark(ports):
                subject.sleep(FINAL_NS)
                levels = levels_of(subject, chain)
            self.n += 1
            for circuit in circuits:
                dark = max(before[circuit.egress] - APART_DB, DARK_DBM)
                found[circuit] |= (levels[circuit.egress] <= dark) << bit
        self._lit_levels(circuits)
        return found

    def _lit_levels(self, circuits: Sequence[Circuit]) -> Mapping[int, float]:
        """Wait until all circuits are lit again; return the levels in dBm."""
        clock = self._subject.fabric.bench.clock
        until = clock.now() + _BACK_NS
        while clock.now() < until:
            levels = levels_of(self._subject, self._chain, 1)
            dark = [circuit for circuit in circuits if levels[circuit.egress] <= DARK_DBM]
            if not dark:
                return levels
        stated = f"the light of {dark[0]} does not come back within {_BACK_NS / 1e9:g} s"
        raise DecidedError(Outcome("inconclusive", stated))

    def _judge(self, found: Mapping[Circuit, int]) -> None:
        numbers = {circuit.ingress: number for circuit, number in found.items()}
        wrong = {port: n for port, n in numbers.items() if n != self._numbers[port]}
        exchanged = [
            f"ingress {one} and ingress {second} are exchanged: each is dark when the {means} of "
            "the other takes its light away"
            for means in [self._inputs.means]
            for one in wrong
            for second in wrong
            if one < second
            and wrong[one] == self._numbers[second]
            and wrong[second] == self._numbers[one]
        ]
        if exchanged:
            raise DecidedError(Outcome("fail", "; ".join(exchanged), n=self.n))
        for circuit in found:
            number = wrong.get(circuit.ingress)
            sources = [port for port in wrong if self._numbers[port] == number]
            if number and sources:
                stated = f"{circuit} is reported, and has the light of ingress {sources[0]}"
                raise DecidedError(Outcome("fail", stated, n=self.n))
        if wrong:
            stated = (
                f"not told apart: the {self._inputs.means} of ingress {min(wrong)} leaves its light"
            )
            raise DecidedError(Outcome("inconclusive", f"inputs are all lit; {stated}", n=self.n))

    def _all_lit(self, lasting: Sequence[int]) -> Outcome:
        ports = ", ".join(map(str, lasting))
        none = "no laser, shutter or transmitter takes the light of ingress"
        stated = f"inputs are all lit: {none} {ports} away"
        if "interrupting" not in self._subject.trial.permitted:
            stated += " (--allow interrupting lets the NIC ports before them do so)"
        return Outcome("inconclusive", stated, n=self.n)
