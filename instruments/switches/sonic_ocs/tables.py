"""Tables of SONiC on an optical circuit switch as revisions and images have them.

| | circuits of STATE_DB | their states | override of a port in CONFIG_DB |
| --- | --- | --- | --- |
| High Level Design, revision 0.5; sonic-ocs-states.yang | OCS_CROSS_CONNECT | `a_side_status` and \
`b_side_status`: blocked, tuning, tuned, failed | `state`: normal, force_blocked |
| image ocs-kvm; sonic-ocs.yang of its platform | OCS_CROSS_CONNECT_TABLE | `status`: disabled, \
enabled, invalid | `config_status`: powered_off, normal, force_blocked |

Which of them a switch has is recognised by the rows that it returns. Source: the names above in
sonic-net/SONiC, pull request 2269; sonic-ocs/sonic-buildimage 5d2f132f (sonic-ocs-states.yang) and
335777f6 (ocs_config.json, ocs_cross_connect_attrs.lua); sonic-molex/sonic-buildimage 38d6ff05
(sonic-ocs.yang).
"""

from collections.abc import Mapping
from typing import Any

Row = Mapping[str, Any]
Table = Mapping[str, Row]

STATUS_TABLES = ("OCS_CROSS_CONNECT", "OCS_CROSS_CONNECT_TABLE")
LOSS_TABLES = ("OCS_FACTORY_INSERTION_LOSS", "OCS_FACTORY_INSERTION_LOSS_TABLE")
INVALID = "invalid"
"""State of a cross-connect whose ports are in conflict: "connection cannot be established"."""

_UNREAD = "disabled"
"""What an empty `status` stands for: it was not read yet (ocs_cross_connect_attrs.lua)."""


def is_table(value: Mapping[str, Any]) -> bool:
    """Whether `value` has rows of leaves: texts, or lists of texts where a name ends in `@`."""
    return all(
        isinstance(row, dict)
        and all(
            isinstance(leaf, str)
            or (isinstance(leaf, list) and all(isinstance(each, str) for each in leaf))
            for leaf in row.values()
        )
        for row in value.values()
    )


def states_in(row: Row) -> list[str] | None:
    """Return the states of the sides of a cross-connect, or its own; None for another row."""
    if "a_side_status" in row and "b_side_status" in row:
        return [str(row["a_side_status"]), str(row["b_side_status"])]
    return [str(row["status"]) or _UNREAD] if "status" in row else None


def override_leaf(row: Row) -> str | None:
    """Return the name of the leaf with a port's override; None for a row without one.

    A `state` beside `config_status` is of no revision: a program has left it there.
    """
    return next((leaf for leaf in ("config_status", "state") if leaf in row), None)
