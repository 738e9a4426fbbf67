"""The driver of SONiC over gNMI against rules and rows as SONiC publishes them.

The server and its sources: `published_sonic`. Circuits and ports are compared with its databases.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pygnmi", reason="the extra gnmi is not installed")
pytest.importorskip("h2", reason="the extra gnmi is not installed")

from real_time import SOON

from lightrig.instruments.core.capabilities import FactoryLoss
from lightrig.instruments.core.errors import (
    DeniedError,
    GarbledError,
    NoReplyError,
    NotDoneError,
    StateUnknownError,
)
from lightrig.instruments.switches.sonic_ocs import gnmi
from lightrig.instruments.switches.sonic_ocs.gnmi import SonicGnmi
from lightrig.testbeds import Circuit

if TYPE_CHECKING:
    from published_sonic import PublishedSonic

N = 4
TABLE = "OCS_CROSS_CONNECT"
SECOND = 1_000_000_000
ROWS = ["hld", "kvm"]
Open = Callable[..., SonicGnmi]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """Serve a switch, and return a driver of it."""
    with ExitStack() as stack:

        def opened(
            published: "PublishedSonic", ports: int = N, idle_ms: int = 5_000, **options: Any
        ) -> SonicGnmi:
            driver: AbstractContextManager[SonicGnmi]
            from published_sonic import driven

            driver = driven(published, tmp_path, ports, idle_ms, **options)
            return stack.enter_context(driver)

        yield opened


def new_server(ports: int = N, **rules: Any) -> "PublishedSonic":
    """Return a server; grpcio, which it is on, loads slowly, and every worker collects this."""
    from published_sonic import PublishedSonic

    return PublishedSonic(ports, **rules)


def circuit(a: int, b: int) -> Circuit:
    """Return the circuit aA-bB."""
    return Circuit(a, N + b)


def configured(published: "PublishedSonic") -> set[str]:
    return set(published.config.get(TABLE, {}))


def names(circuits: Any) -> set[str]:
    return {f"{c.ingress}A-{c.egress - N}B" for c in circuits}


# ------------------------------------------------------------------------------- circuits


@pytest.mark.parametrize("updater", [True, False], ids=["updater", "jsonpatch alone"])
@pytest.mark.parametrize("rows", ROWS)
def test_circuits_are_made_moved_and_removed_from_the_first_to_the_last(
    opened: Open, rows: str, updater: bool
) -> None:
    """Each change is there, in both databases, when it is done."""
    published = new_server(rows=rows, updater=updater)
    switch = opened(published)
    assert switch.circuits() == frozenset()
    now: frozenset[Circuit] = frozenset()
    for after in (
        {circuit(1, 2)},
        {circuit(1, 2), circuit(2, 1)},
        {circuit(1, 3), circuit(2, 1)},
        {circuit(1, 1), circuit(2, 3)},
        {circuit(4, 4)},
        set(),
        {circuit(3, 3), circuit(4, 1)},
        set(),
    ):
        switch.change(now - after, after - now).done()
        now = frozenset(after)
        assert switch.circuits() == now
        assert configured(published) == set(published.state.get(published.states, {})) == names(now)


@pytest.mark.parametrize("deleted", ["table", "empty", "key"])
@pytest.mark.parametrize("updated", ["rows", "keyless", "leaves"])
@pytest.mark.parametrize("rows", ROWS)
def test_circuits_are_made_moved_and_followed_by_any_form_of_notifications(
    opened: Open, rows: str, updated: str, deleted: str
) -> None:
    published = new_server(rows=rows, updated=updated, deleted=deleted)
    published.configure("1A-2B", "2A-1B")
    switch = opened(published)
    following = switch.follow_circuits()
    second = opened(published)
    second.change([circuit(1, 2)], [circuit(1, 3)]).done()
    assert _followed(following, {circuit(1, 3), circuit(2, 1)})
    second.change([circuit(1, 3)], []).done()
    assert _followed(following, {circuit(2, 1)})
    second.change([circuit(2, 1)], []).done()
    assert _followed(following, set())
    following.close()


def _followed(following: Any, wanted: set[Circuit]) -> bool:
    """Whether a subscription comes to `wanted` and stays there while nothing changes."""
    found = None
    while found != wanted:
        _, found = following.next(SOON)
    return True


def test_a_row_that_comes_again_as_it_was_is_not_notified(opened: Open) -> None:
    """The server compares it with the one before (mixed_db_client.go); a query has it."""
    published = new_server()
    published.configure("2A-1B")
    switch = opened(published)
    following = switch.follow_circuits()
    published.hset(TABLE, "1A-2B", published.status("1A-2B", "tuned"))
    assert _followed(following, {circuit(1, 2), circuit(2, 1)})
    published.delete(TABLE, "1A-2B")
    assert _followed(following, {circuit(2, 1)})
    published.hset(TABLE, "1A-2B", published.status("1A-2B", "tuned"))
    with pytest.raises(NoReplyError):
        following.next(SECOND // 4)
    assert switch.circuits() == {circuit(1, 2), circuit(2, 1)}
    following.close()


def test_notifications_that_are_lost_leave_no_change_undone(opened: Open) -> None:
    published = new_server()
    published.configure("2A-1B")
    published.loses = True
    switch = opened(published)
    switch.change([], [circuit(1, 2)]).done()
    assert switch.circuits() == {circuit(1, 2), circuit(2, 1)}


def test_a_subscription_that_ends_amid_a_change_is_replaced_by_reading(opened: Open) -> None:
    published = new_server()
    published.configure("2A-1B")
    published.streams_end = True
    switch = opened(published)
    switch.change([circuit(2, 1)], [circuit(1, 2)]).done()
    assert switch.circuits() == {circuit(1, 2)}


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("UNAVAILABLE", "Server connections are at capacity."),
        ("INVALID_ARGUMENT", "Path error:  Failed to find STATE_DB"),
    ],
)
def test_a_refused_subscription_is_replaced_by_reading(opened: Open, code: str, text: str) -> None:
    published = new_server()
    published.refused_subscription = (code, text)
    switch = opened(published)
    switch.change([], [circuit(1, 2)]).done()
    assert switch.circuits() == {circuit(1, 2)}


def test_other_leaves_of_a_configured_row_are_kept(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An update of a row would replace it (RFC 6902, 4.1); the hardware has lost this circuit."""
    monkeypatch.setattr(gnmi, "TUNING", SECOND // 4)
    published = new_server()
    published.configure("2A-1B")
    published.config[TABLE]["1A-2B"] = {"a_side": "1A", "b_side": "2B", "vendor_note": "spare"}
    published.made = ("tuning",)
    switch = opened(published)
    operation = switch.change([], [circuit(1, 2)])
    with pytest.raises(NotDoneError, match="does not tune 1A-2B"):
        operation.done()
    assert published.config[TABLE]["1A-2B"]["vendor_note"] == "spare"


# ----------------------------------------------------------------------- rows and dialects


@pytest.mark.parametrize("empty", ["absent", "object"])
def test_a_table_that_is_empty_does_not_hide_the_one_with_rows(opened: Open, empty: str) -> None:
    """`KEYS OCS_CROSS_CONNECT*` finds rows of other tables whose names begin so."""
    published = new_server(16, rows="kvm", empty=empty)
    published.configure(*(f"{i}A-{17 - i}B" for i in range(1, 17)))
    switch = opened(published, 16)
    assert switch.circuits() == {Circuit(i, 33 - i) for i in range(1, 17)}


@pytest.mark.parametrize("empty", ["absent", "object"])
def test_rows_of_paths_do_not_hide_that_there_are_no_circuits(opened: Open, empty: str) -> None:
    """An empty table beside OCS_CROSS_CONNECT_PHYSICAL_PATH is a response without notification."""
    published = new_server(empty=empty)
    published.state[f"{TABLE}_PHYSICAL_PATH"] = {"1A-1B": {"physical_path": ["1A", "1B"]}}
    switch = opened(published)
    assert switch.circuits() == frozenset()
    switch.change([], [circuit(1, 2)]).done()
    assert switch.circuits() == {circuit(1, 2)}


def test_a_leaf_that_is_a_list_is_no_reason_to_refuse_a_table(opened: Open) -> None:
    """`physical_path@` of Redis is a list in JSON (sonic-ocs.yang: leaf-list)."""
    published = new_server(rows="kvm")
    published.configure("1A-2B")
    switch = opened(published)
    published.status = lambda key, word: {  # type: ignore[method-assign]
        "physical_path": key.split("-"),
        "status": word,
    }
    published.hset(published.states, "1A-2B", published.status("1A-2B", "enabled"))
    assert switch.circuits() == {circuit(1, 2)}


@pytest.mark.parametrize(("word", "counts"), [("enabled", True), ("", True), ("invalid", False)])
def test_a_cross_connect_in_conflict_is_no_circuit(opened: Open, word: str, counts: bool) -> None:
    """`invalid`: "connection cannot be established"; no status: it was not read yet (lua)."""
    published = new_server(rows="kvm")
    published.made = (word, word)
    published.configure("1A-2B")
    switch = opened(published)
    assert switch.circuits() == ({circuit(1, 2)} if counts else frozenset())


def test_a_cross_connect_that_becomes_invalid_is_an_error(opened: Open) -> None:
    published = new_server(rows="kvm")
    published.made = ("disabled", "invalid")
    switch = opened(published)
    with pytest.raises(NotDoneError, match=r"cannot make 1A-2B \(invalid\)"):
        switch.change([], [circuit(1, 2)]).done()


@pytest.mark.parametrize("suffix", ["", "_TABLE"])
def test_the_table_of_losses_has_either_name(opened: Open, suffix: str) -> None:
    published = new_server()
    published.state[f"OCS_FACTORY_INSERTION_LOSS{suffix}"] = {
        "1A-2B|193.500|25.00": {"loss_dB": "1.59", "accuracy_dB": "0.10"}
    }
    (loss,) = opened(published).factory_losses().items()
    assert loss == (circuit(1, 2), FactoryLoss(1.59, 0.1, 193.5, 25.0))


def test_a_long_table_is_read_whole_and_traced_in_short(opened: Open) -> None:
    """Longer than the 4 MiB that gRPC's library takes by default; 230 x 230 losses."""
    ports = range(1, 231)
    published = new_server(1)
    published.state["OCS_FACTORY_INSERTION_LOSS"] = {
        f"{a}A-{b}B|193.500|25.00": {"loss_dB": "1.59", "accuracy_dB": "0.10", "by": "factory"}
        for a in ports
        for b in ports
    }
    switch = opened(published, 230)
    assert len(switch.factory_losses()) == 230**2
    assert max(map(len, switch.wire())) < 3_000


# ---------------------------------------------------------------------------------- ports


@pytest.mark.parametrize("rows", ROWS)
def test_labels_and_blocks_are_leaves_of_their_own(opened: Open, rows: str) -> None:
    published = new_server(rows=rows)
    leaf = {"hld": "state", "kvm": "config_status"}[rows]
    switch = opened(published)
    switch.set_shutters([1, N + 2], is_open=False)
    switch.set_label(1, "rack 5")
    assert published.config["OCS_PORT"]["1A"] == {"label": "rack 5", leaf: "force_blocked"}
    assert published.config["OCS_PORT"]["2B"] == {"label": "", leaf: "force_blocked"}
    assert switch.shutters([1, 2, N + 2]) == {1: False, 2: True, N + 2: False}
    switch.set_shutters([1], is_open=True)
    assert published.config["OCS_PORT"]["1A"] == {"label": "rack 5", leaf: "normal"}
    assert all(set(row) == {"label", leaf} for row in published.config["OCS_PORT"].values())


def test_a_port_without_power_is_closed_and_stays_so(opened: Open) -> None:
    published = new_server(rows="kvm")
    published.config["OCS_PORT"]["2A"]["config_status"] = "powered_off"
    switch = opened(published)
    assert switch.shutters([1, 2]) == {1: True, 2: False}
    switch.set_shutters([1, 2], is_open=False)
    ports = published.config["OCS_PORT"]
    assert [ports[key]["config_status"] for key in ("1A", "2A")] == ["force_blocked", "powered_off"]
    switch.set_shutters([1, 2], is_open=True)
    assert switch.shutters([1, 2]) == {1: True, 2: True}


def test_no_override_is_written_where_no_port_has_one(opened: Open) -> None:
    published = new_server()
    for row in published.config["OCS_PORT"].values():
        del row["state"]
    switch = opened(published)
    with pytest.raises(GarbledError, match="override of port 1"):
        switch.shutters([1])
    with pytest.raises(GarbledError, match="override of port 1"):
        switch.set_shutters([1], is_open=False)
    assert not published.requests
    switch.set_label(1, "rack 5")
    assert published.config["OCS_PORT"]["1A"] == {"label": "rack 5"}


def test_the_override_that_the_image_knows_is_written(opened: Open) -> None:
    """A leaf `state` that a program has left beside `config_status` says nothing there."""
    published = new_server(rows="kvm")
    published.config["OCS_PORT"]["1A"]["state"] = "normal"
    switch = opened(published)
    switch.set_shutters([1], is_open=False)
    row = {"label": "", "config_status": "force_blocked", "state": "normal"}
    assert published.config["OCS_PORT"]["1A"] == row
    assert switch.shutters([1]) == {1: False}


# --------------------------------------------------------------------------- Sets that fail

SAVING = "Failed to save the configuration"


def test_a_set_that_failed_and_was_carried_out_is_no_denial(opened: Open) -> None:
    """Saving fails after the patch was applied (SetIncrementalConfig, ConfigSave)."""
    published = new_server()
    published.configure("2A-1B")
    published.refusals = [(True, "UNKNOWN", SAVING)]
    switch = opened(published)
    with pytest.raises(StateUnknownError, match="its configuration has the whole change") as found:
        switch.change([circuit(2, 1)], [circuit(1, 2)]).done()
    assert SAVING in str(found.value)
    assert switch.circuits() == {circuit(1, 2)}


@pytest.mark.parametrize("later", [True, False], ids=["carried out", "not yet carried out"])
def test_a_set_whose_service_does_not_answer_the_server_is_no_denial(
    opened: Open, later: bool
) -> None:
    """The server gives up after 180 s, and the service goes on (dbus_client.go, DbusApi)."""
    published = new_server()
    published.configure("2A-1B")
    published.refusals = [(not later, "UNKNOWN", "Timeout 180")]
    switch = opened(published)
    said = "has nothing of the change yet" if later else "has the whole change"
    operation = switch.change([circuit(2, 1)], [circuit(1, 2)])
    with pytest.raises(StateUnknownError, match=said):
        operation.done()


@pytest.mark.parametrize(
    ("carried_out", "found"),
    [(True, "has the whole change"), (False, "has nothing of the change yet")],
)
def test_a_set_whose_answer_does_not_arrive_is_read_back(
    opened: Open, *, carried_out: bool, found: str
) -> None:
    published = new_server()
    published.configure("2A-1B")
    published.silences = [carried_out]
    switch = opened(published, commit_time=SECOND // 4)
    with pytest.raises(StateUnknownError, match=f"its configuration {found}") as raised:
        switch.change([circuit(2, 1)], [circuit(1, 2)]).done()
    assert "did not answer within 0.25 s" in str(raised.value)
    assert len(published.requests) == 1
    assert switch.circuits() == {circuit(1, 2) if carried_out else circuit(2, 1)}


@pytest.mark.parametrize("carried_out", [True, False])
def test_a_port_whose_answer_does_not_arrive_is_read_back(
    opened: Open, *, carried_out: bool
) -> None:
    published = new_server()
    published.silences = [carried_out]
    switch = opened(published, commit_time=SECOND // 4)
    found = "has the whole change" if carried_out else "has nothing of the change yet"
    with pytest.raises(StateUnknownError, match=f"its configuration {found}"):
        switch.set_shutters([2, N + 3], is_open=False)
    assert switch.shutters([2, N + 3]) == {2: not carried_out, N + 3: not carried_out}


def test_a_connection_that_is_closed_while_idle_is_opened_again(opened: Open) -> None:
    published = new_server()
    switch = opened(published, idle_ms=100)
    switch.change([], [circuit(1, 2)]).done()
    for _ in range(3):
        switch.clock.sleep(3 * SECOND // 10)
        assert switch.circuits() == {circuit(1, 2)}
        assert " ! " in "".join(switch.wire())
    switch.clock.sleep(3 * SECOND // 10)
    switch.change([circuit(1, 2)], [circuit(2, 2)]).done()
    assert switch.circuits() == {circuit(2, 2)}


def test_a_get_that_meets_the_end_of_an_idle_connection_is_repeated_once(opened: Open) -> None:
    published = new_server()
    published.configure("2A-1B")
    switch = opened(published)
    published.ended_gets = 1
    assert switch.circuits() == {circuit(2, 1)}
    published.ended_gets = 2
    with pytest.raises(DeniedError, match="UNAVAILABLE connection idle"):
        switch.circuits()
    assert published.ended_gets == 0


def test_a_set_that_failed_and_changed_nothing_is_a_denial(opened: Open) -> None:
    published = new_server()
    published.configure("2A-1B", "3A-3B")
    published.refusals = [(False, "UNKNOWN", "no dbus")]
    switch = opened(published)
    with pytest.raises(DeniedError, match="UNKNOWN no dbus"):
        switch.change([circuit(2, 1)], [circuit(1, 2)]).done()
    assert len(published.requests) == 1
    assert switch.circuits() == {circuit(2, 1), circuit(3, 3)}


def test_a_set_that_was_carried_out_in_part_is_named(opened: Open) -> None:
    published = new_server()
    published.configure("2A-1B", "3A-3B")
    switch = opened(published)
    apply = published._patched  # noqa: SLF001 - the server of this test

    def in_part(request: Any) -> Any:
        del request.update[1:]
        return apply(request)

    published._patched = in_part  # type: ignore[method-assign]  # noqa: SLF001
    published.refusals = [(True, "UNKNOWN", "still some parts not updated")]
    with pytest.raises(StateUnknownError, match="has a part of the change") as found:
        switch.change([circuit(2, 1)], [circuit(1, 2), circuit(4, 4)]).done()
    assert "missing   4A-4B" in str(found.value)


def test_a_port_whose_set_failed_and_was_carried_out_is_no_denial(opened: Open) -> None:
    published = new_server()
    published.refusals = [(True, "UNKNOWN", SAVING)]
    switch = opened(published)
    with pytest.raises(StateUnknownError, match="its configuration has the whole change"):
        switch.set_shutters([1, 2], is_open=False)
    assert switch.shutters([1, 2]) == {1: False, 2: False}
    published.refusals = [(False, "UNKNOWN", "no dbus")]
    with pytest.raises(DeniedError, match="no dbus"):
        switch.set_label(1, "rack 5")


def test_a_table_that_others_fill_meanwhile_is_never_replaced(opened: Open) -> None:
    """The first circuit needs the table's path; another client's row would be lost with it."""
    published = new_server()
    switch = opened(published)
    patched = published._patched  # noqa: SLF001 - the server of this test

    def another_comes_first(request: Any) -> Any:
        if not published.config.get(TABLE):
            published.config[TABLE] = {"4A-4B": {"a_side": "4A", "b_side": "4B"}}
            raise ValueError("member 'OCS_CROSS_CONNECT' not found in config")
        return patched(request)

    published._patched = another_comes_first  # type: ignore[method-assign]  # noqa: SLF001
    with pytest.raises(DeniedError, match="not found in config"):
        switch.change([], [circuit(1, 2)]).done()
    assert configured(published) == {"4A-4B"}


# ------------------------------------------------------------------------ random sequences


class Model:
    """What a switch of `N` ports has after a sequence: circuits, labels and blocks."""

    def __init__(self) -> None:
        self.circuits: frozenset[Circuit] = frozenset()
        self.labels = dict.fromkeys(range(1, 2 * N + 1), "")
        self.blocked: set[int] = set()

    def change(self, remove: frozenset[Circuit], add: frozenset[Circuit]) -> None:
        self.circuits = self.circuits - remove | add


def sequence(seed: int, switch: SonicGnmi) -> None:
    """Carry out random operations on a switch and on the model, and compare them after each."""
    chance, model = random.Random(seed), Model()
    for _ in range(8):
        match chance.choice(["change", "change", "label", "block", "open"]):
            case "change":
                count = chance.randrange(N + 1)
                ends = zip(chance.sample(range(1, N + 1), count), range(1, N + 1), strict=False)
                wanted = frozenset(circuit(*each) for each in ends)
                step = model.circuits - wanted, wanted - model.circuits
                switch.change(*step).done()
                model.change(*step)
            case "label":
                port, text = chance.randrange(1, 2 * N + 1), chance.choice(["", "rack/5 ä", '"<~'])
                switch.set_label(port, text)
                model.labels[port] = text
            case what:
                ports = chance.sample(range(1, 2 * N + 1), chance.randrange(1, 4))
                switch.set_shutters(ports, is_open=what == "open")
                model.blocked = (model.blocked | set(ports)) - set(ports if what == "open" else ())
        assert switch.circuits() == model.circuits
        assert switch.labels() == model.labels
        assert switch.shutters(range(1, 2 * N + 1)) == {
            port: port not in model.blocked for port in range(1, 2 * N + 1)
        }


@pytest.mark.parametrize(
    "seeds",
    [
        range(5),
        *(pytest.param(range(i, i + 39), marks=pytest.mark.long) for i in range(5, 200, 39)),
    ],
    ids=str,
)
@pytest.mark.parametrize("rows", ROWS)
def test_random_sequences_leave_what_a_model_has(tmp_path: Path, rows: str, seeds: range) -> None:
    from published_sonic import driven

    for seed in seeds:
        with driven(new_server(rows=rows), tmp_path) as switch:
            sequence(seed, switch)
