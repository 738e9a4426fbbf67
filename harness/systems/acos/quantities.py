"""The quantities that only ACOS records: what a change of topology between collectives takes."""

from lightrig.harness.quantities.quantity import Quantity

_SECTION = "Topology selection"


def _stage(name: str, title: str, meaning: str) -> Quantity:
    return Quantity(
        name=name, unit="ns", meaning=meaning, better="lower", section=_SECTION, title=title
    )


QUANTITIES = (
    _stage(
        "selection.switched",
        "switched",
        "from a server's first command until the last of its switches has acknowledged",
    ),
    _stage(
        "selection.links_up",
        "links are up",
        "from a server's first command until it has a link at every port",
    ),
    _stage(
        "selection.begun",
        "the collective begins",
        "from the first server at the boundary until all members have joined the collective",
    ),
    _stage(
        "selection.drained",
        "connections are drained",
        "from the end of a rank's last operation until its server's bytes are acknowledged",
    ),
    _stage(
        "selection.bypassed",
        "a failed server is bypassed",
        "from the loss of a server's light until the others have done the first all-reduce",
    ),
)
