"""The quantities that only InfiniteHBD records: stages of a bypass and a rejoin, and exchanges."""

from collections.abc import Iterator

from lightrig.harness.quantities.quantity import Quantity

BYPASS = "Bypass of a failed server"

STAGES = {
    "carrier_down": "its neighbours have no carrier",
    "detected": "the managers have detected it",
    "planned": "the change is planned",
    "switched": "the transceivers have switched",
    "carrier_up": "the new links have carrier",
    "first_datagram": "the new links carry datagrams",
    "routed": "the servers have routes",
    "first_collective": "the first all-reduce is done",
}
"""In their usual order."""


def _stages() -> Iterator[Quantity]:
    for family, start in (
        ("bypass", "from the loss of a server's light"),
        ("return", "from the return of a server's light"),
    ):
        for stage, meaning in STAGES.items():
            yield Quantity(
                name=f"{family}.{stage}",
                unit="ns",
                meaning=f"{start} until {meaning}",
                better="lower",
                section=BYPASS,
                title=meaning,
            )


EXCHANGE = Quantity(
    name="exchange.round",
    unit="ns",
    meaning="from the command to the switches until both nodes of each pair have the other's data",
    better="lower",
    section="All-to-all by binary exchange",
    title="one round of an exchange",
)

QUANTITIES = (*_stages(), EXCHANGE)
