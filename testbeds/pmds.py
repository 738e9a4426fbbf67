"""Physical medium dependent sublayers (PMDs): lanes, fibers, wavelengths and powers.

The table is `pmds.csv`. Powers are averages of one lane in dBm; `launch_total` is what the standard
prints as the total of a transmitter, which need not be the sum of its greatest lanes (400GBASE-FR8
and LR8). Each row has its source. The standards were not at hand: the numbers are recalled, and
unconfirmed but where `compared` names a public data sheet that repeats numbers of the row.
Where the standard states a channel insertion loss, launch, receive and loss agree; so do the
greatest received power and the damage threshold, 1 dB apart.
"""

from __future__ import annotations

import csv
import functools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Medium = Literal["singlemode", "multimode", "one fiber"]
"""`one fiber`: both ways in one fiber."""

_BANDS: Mapping[str, tuple[tuple[float, float], ...]] = {
    # IEEE 802.3 tables 87-5, 122-7, 151-5: centers 1271, 1291, 1311, 1331 nm.
    "cwdm": tuple((nm - 6.5, nm + 6.5) for nm in (1271.0, 1291.0, 1311.0, 1331.0)),
    # IEEE 802.3 tables 88-5 and 122-8, lanes of 200GBASE-LR4 and 100GBASE-LR4.
    "lan-wdm": ((1294.53, 1296.59), (1299.02, 1301.09), (1303.54, 1305.63), (1308.09, 1310.19)),
    # IEEE 802.3 table 122-8, lanes of 400GBASE-FR8 and LR8.
    "lan-wdm-8": (
        (1272.55, 1274.54),
        (1276.89, 1278.89),
        (1281.25, 1283.27),
        (1285.65, 1287.68),
        (1294.53, 1296.59),
        (1299.02, 1301.09),
        (1303.54, 1305.63),
        (1308.09, 1310.19),
    ),
}

_NOT_SUPPORTED = re.compile(r"bidi|circulator|base-b[rx]|\.2$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Pmd:
    """One PMD; powers are averages of one lane in dBm, None where the table has none.

    Attributes:
        lanes: of light in each direction.
        wavelengths: how many lanes share a fiber.
        bands: least and greatest wavelength of each lane in nm; one band where all have the same.
        launch_total: greatest power of all lanes together, as the standard prints it.
        damage: received power that its receiver withstands.
        channel_loss: the channel insertion loss in dB for which it is made.
        source: clause of the standard, or the agreement.
        compared: public data sheet that has numbers of this row too; empty for none.
    """

    name: str
    rate_bps: int
    lanes: int
    wavelengths: int
    bands: tuple[tuple[float, float], ...]
    medium: Medium
    launch_min: float | None
    launch_max: float | None
    launch_total: float | None
    receive_min: float | None
    receive_max: float | None
    damage: float | None
    channel_loss: float | None
    source: str
    compared: str

    @property
    def fibers(self) -> int:
        """Fibers in each direction."""
        return self.lanes // self.wavelengths

    @property
    def wavelength_nm(self) -> float:
        """Nominal wavelength: that by which its kind is known."""
        middle = (self.bands[0][0] + self.bands[-1][1]) / 2
        return 1310.0 if 1260 < middle < 1360 else round(middle)

    @property
    def fiber_launch_max(self) -> float | None:
        """Greatest power in one fiber in dBm, by the standard's total where it prints one."""
        if self.wavelengths > 1 and self.launch_total is not None:
            return self.launch_total - 10 * math.log10(self.fibers)
        if self.launch_max is None:
            return None
        return self.launch_max + 10 * math.log10(self.wavelengths)

    def deaf_to(self, sender: Pmd) -> str | None:
        """Return why its receiver cannot read the light of `sender`, None where it can."""
        if self.medium != sender.medium:
            return f"{sender.medium} and {self.medium} fibers"
        if self.wavelengths != sender.wavelengths:
            return f"{sender.wavelengths} and {self.wavelengths} wavelengths in a fiber"
        for lane, (sent, read) in enumerate(zip(sender.bands, self.bands, strict=True), 1):
            if sent[1] < read[0] or read[1] < sent[0]:
                where = f"lane {lane} at " if self.wavelengths > 1 else ""
                return f"{where}{sum(sent) / 2:.4g} and {sum(read) / 2:.4g} nm"
        rates = [each.rate_bps / each.lanes / 1e9 for each in (sender, self)]
        if rates[0] != rates[1]:
            return f"{rates[0]:g} and {rates[1]:g} Gbit/s a lane"
        return None


@functools.cache
def pmds() -> Mapping[str, Pmd]:
    """Return all PMDs of the table by name."""
    with Path(__file__).with_name("pmds.csv").open(encoding="utf-8", newline="") as file:
        rows = [_pmd(row) for row in csv.DictReader(file)]
    return {pmd.name: pmd for pmd in rows}


def find_pmd(name: str) -> Pmd | None:
    """Return the PMD of that name in any spelling of it: `100G-LR4` and `100GBASE-LR4` alike.

    None where there is none, or where there are several.
    """
    if name in pmds():
        return pmds()[name]
    found = [pmd for key, pmd in pmds().items() if _folded(key) == _folded(name)]
    return found[0] if len(found) == 1 else None


def is_both_ways(name: str) -> bool:
    """Whether a name is one of transceivers that send and receive in one fiber."""
    known = find_pmd(name)
    return known.medium == "one fiber" if known else bool(_NOT_SUPPORTED.search(name))


def _folded(name: str) -> str:
    return re.sub(r"base|[^0-9a-z.]", "", name.lower())


def _pmd(row: Mapping[str, str]) -> Pmd:
    def power(column: str) -> float | None:
        return float(row[column]) if row[column] else None

    medium: Medium = row["medium"]  # type: ignore[assignment]
    return Pmd(
        name=row["name"],
        rate_bps=int(row["rate"]) * 10**9,
        lanes=int(row["lanes"]),
        wavelengths=int(row["wavelengths"]),
        bands=_bands(row["bands"]),
        medium=medium,
        launch_min=power("launch_min"),
        launch_max=power("launch_max"),
        launch_total=power("launch_total"),
        receive_min=power("receive_min"),
        receive_max=power("receive_max"),
        damage=power("damage"),
        channel_loss=power("channel_loss"),
        source=row["source"],
        compared=row["compared"],
    )


def _bands(text: str) -> tuple[tuple[float, float], ...]:
    if text in _BANDS:
        return _BANDS[text]
    low, _, high = text.partition("-")
    return ((float(low), float(high or low)),)
