"""The declaration of one quantity."""

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

from lightrig.testbeds import LightrigError
from lightrig.testbeds.baselines import Rule

Better: TypeAlias = Literal["lower", "higher"]
Combination: TypeAlias = Literal["worst", "least", "greatest", "sum", "none"]
Reduction: TypeAlias = Literal["max", "min", "sum"]
Terminal: TypeAlias = Literal["headline", "shown", "hidden"]

_NAME = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*")


class QuantityDeclarationError(LightrigError, ValueError):
    """A declaration contradicts itself or an earlier one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """Declaration of one quantity.

    Attributes:
        name: dotted, such as "reconfiguration.carrier_up"; the part before the first dot is the
            family.
        unit: of recorded values: "ns", "dB", "dBm", "bit/s", "W", "share" (0 to 1), "1", "°C" or
            any other symbol.
        meaning: a noun phrase for tables and docs, without a full stop.
        better: the direction of improvement; None where neither is better.
        least, greatest: bounds of possible values, such as 1 of an error ratio; None without one.
        combine: how the subjects of one event make one sample. "worst" is the greatest where
            lower is better and the least where higher is; "none" keeps a sample a row.
        title: a short name for tables; by default the last part of the name.
        section: the section of the report that shows it. A name that no section of the report
            has becomes the heading of a generic one.
        baseline: the rule for nights where the testbed's baselines file states none; None for
            a quantity that is not compared between nights.
        terminal: on the line of a test "headline" quantities come first and stand for their
            family; "hidden" ones are neither there nor in the event stream.
        aliases: names under which earlier versions recorded it. Stored rows of such a name are
            read under the present one, and files may still use it.
        beside: conditions of its rows that stand beside each value, such as the wavelength of a
            loss; empty where a row states none.

    Raises `QuantityDeclarationError`.
    """

    name: str
    unit: str
    meaning: str
    better: Better | None = None
    least: float | None = None
    greatest: float | None = None
    combine: Combination = "worst"
    title: str = ""
    section: str = "Other quantities"
    baseline: Rule | None = Rule()  # noqa: RUF009 -- frozen
    terminal: Terminal = "shown"
    aliases: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in (self.name, *self.aliases):
            if not _NAME.fullmatch(name):
                raise QuantityDeclarationError(
                    f"found the quantity {name!r}, expected a name such as "
                    "'reconfiguration.carrier_up'"
                )
        if self.combine == "worst" and self.better is None:
            raise QuantityDeclarationError(
                f"{self.name} combines subjects by the worst, but states no direction; give "
                "better='lower' or 'higher', or another combination"
            )
        if not self.title:
            title = self.name.rpartition(".")[2].replace("_", " ")
            object.__setattr__(self, "title", title)

    @property
    def family(self) -> str:
        """The part of the name before the first dot."""
        return self.name.partition(".")[0]

    @property
    def stage(self) -> str:
        """The name without its family; the whole name where it has none."""
        return self.name.partition(".")[2] or self.name

    def reduction(self, side: Literal["upper", "lower"] | None = None) -> Reduction | None:
        """Return how the values of one event become a sample; None where each is a sample.

        side: of the limit that the sample is judged by. A limit is on every subject, so it
        decides which subject is the worst, whatever the quantity's direction.
        """
        match self.combine:
            case "none":
                return None
            case "sum":
                return "sum"
            case "worst":
                greatest = side == "upper" if side else self.better == "lower"
                return "max" if greatest else "min"
            case combination:
                return "min" if combination == "least" else "max"
