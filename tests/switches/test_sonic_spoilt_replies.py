"""Tables of SONiC that are half, in another encoding, or of a later revision, over SSH.

The columns are those of the High Level Design, revision 0.5, section 9; what differs from them is
refused with the version that the switch has stated.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sonic_rack import let_programs_print
from test_sonic_ocs import N, Shell, bench

from lightrig.instruments.core.errors import GarbledError
from lightrig.instruments.switches.sonic_ocs import SonicOcs
from lightrig.testbeds import Circuit

Spoil = Callable[[Callable[[str], str]], None]
VERSION = "SONiC.OCS-202505.1"


@pytest.fixture
def switch(tmp_path: Path) -> Iterator[SonicOcs]:
    with bench(tmp_path) as bound:
        Shell(bound).succeeds("config ocs cross-connect add 3A-17B,20A-5B")
        Shell(bound).run("config ocs port state 4A force_blocked")
        found = bound.switches["ocs"]
        assert isinstance(found, SonicOcs)
        assert found.circuits() == {Circuit(3, N + 17), Circuit(20, N + 5)}
        yield found


@pytest.fixture
def spoil(monkeypatch: pytest.MonkeyPatch) -> Spoil:
    """Let the switch print its tables through a function."""

    def through(change: Callable[[str], str]) -> None:
        let_programs_print(
            monkeypatch, lambda _, __, found: found._replace(stdout=change(found.stdout))
        )

    return through


def with_column(text: str) -> str:
    """Add a last column, as a later revision may."""
    cells = ["loss", "----", *["1.2"] * 200]
    return "".join(f"{line}  {c}\n" for line, c in zip(text.splitlines(), cells, strict=False))


SPOILT: dict[str, Callable[[str], str]] = {
    "nothing": lambda text: "",
    "half a row": lambda text: text[: text.rindex("B")],
    "a row without its last column": lambda text: text.rstrip().rsplit("  ", 1)[0] + "\n",
    "no head": lambda text: text.split("\n", 1)[1],
    "another order": lambda text: text.replace("a_side ", "b_side ", 1),
    "a further column": with_column,
    "byte order mark": lambda text: "\ufeff" + text,
    "UTF-16 read as UTF-8": "\0".join,
    "other digits": lambda text: text.replace("20A", "\u0662\u0660\u0410"),
    "JSON": lambda text: '{"3A-17B": {"a_side": "3A"}}',
    "unknown state": lambda text: text.replace("tuned", "realigned", 1),
    "state that is empty": lambda text: text.replace("tuned", "     ", 1),
    "state that is none": lambda text: text.replace("tuned", "None", 1),
}


@pytest.mark.parametrize("how", SPOILT)
def test_a_spoilt_table_of_states_is_refused(switch: SonicOcs, spoil: Spoil, how: str) -> None:
    switch.identity()
    spoil(SPOILT[how])
    with pytest.raises(GarbledError, match=f"of SONiC: {VERSION}") as refused:
        switch.circuits()
    assert str(refused.value).startswith("ocs answered something that is no ")
    assert refused.value.command == "show ocs cross-connect status"


def test_an_error_before_the_first_query_states_an_unknown_version(
    switch: SonicOcs, spoil: Spoil
) -> None:
    spoil(SPOILT["no head"])
    unasked = SonicOcs("ocs", switch.endpoint, switch.clock, ports=N)
    with pytest.raises(GarbledError, match="of SONiC: not asked"):
        unasked.circuits()
    unasked.close()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.replace("force_blocked", "             "), "override of a port"),
        (lambda text: text.replace("force_blocked", "maintenance  "), "override of a port"),
        (lambda text: text.replace("force_blocked", "force"), "override of a port"),
        (lambda text: text.replace("state", "admin", 1), "table of ports"),
        (lambda text: "\n".join(x for x in text.split("\n") if "4A " not in x), "table with 4A"),
        (lambda text: text[: text.index("4A ")], "table with 4A"),
    ],
    ids=["empty", "unknown", "half", "renamed", "without its row", "half a table"],
)
def test_an_absent_override_is_neither_open_nor_closed(
    switch: SonicOcs, spoil: Spoil, change: Callable[[str], str], said: str
) -> None:
    assert switch.shutters([3, 4]) == {3: True, 4: False}
    spoil(change)
    with pytest.raises(GarbledError, match=said):
        switch.shutters([4])


@pytest.mark.parametrize("line", ["SONiC Software Version", "Platform", "Serial Number"])
def test_an_identity_without_one_of_its_lines_is_refused(
    switch: SonicOcs, spoil: Spoil, line: str
) -> None:
    spoil(lambda text: text.replace(f"{line}:", f"{line} (new)"))
    with pytest.raises(GarbledError, match="is no version"):
        switch.identity()


@pytest.mark.parametrize(
    "spoilt",
    ["0,84", *(pytest.param(text, marks=pytest.mark.long) for text in ("", "n/a", "0.84dB"))],
)
def test_a_loss_that_is_no_number_is_refused(switch: SonicOcs, spoil: Spoil, spoilt: str) -> None:
    """The first loss of the table; `0.1` is the accuracy."""

    def change(text: str) -> str:
        head, rule, row, *rest = text.splitlines()
        cells = row.split()
        return "\n".join([head, rule, "  ".join([*cells[:3], spoilt, cells[4]]), *rest])

    spoil(change)
    with pytest.raises(GarbledError, match="is no row"):
        switch.factory_losses()
