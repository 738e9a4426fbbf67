"""Changes, tables and errors of a SONiC switch of 6 x 9 ports over both of its wires.

Ingress i is port iA, egress 6 + j is port jB. Expected are the simulated switch's own tables
(SONiC OCS High Level Design, revision 0.5), the truth of its world, and times by hand.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from sonic_rack import Table, let_programs_print, let_states_be, refuse_subscriptions

from lightrig.harness.bench import Bench, bind
from lightrig.instruments.core.capabilities import FactoryLoss, Identity
from lightrig.instruments.core.errors import DeniedError, GarbledError, NotDoneError
from lightrig.instruments.simulated.devices.simulated_sonic_ocs import SimulatedSonicOcs
from lightrig.instruments.simulated.devices.sonic_switch import SonicSwitch
from lightrig.instruments.simulated.protocols.ssh_server import ProgramOutcome
from lightrig.testbeds import Circuit, load

MS = 1_000_000
SECOND = 1_000 * MS
WIRES = ["ssh", "gnmi"]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    """Open a bench with one switch, at the address of a wire and with options."""
    benches: list[Bench] = []

    def opened(wire: str, options: str = "") -> Bench:
        if wire == "gnmi":
            for module in ("pygnmi", "h2"):
                pytest.importorskip(module, reason="the extra gnmi is not installed")
        path = tmp_path / "rack.yaml"
        path.write_text(
            f'name: rack\nswitches: {{ocs: {{model: sonic-ocs, address: "{wire}://ocs.invalid", '
            f"size: 6x9, options: {{{options}}}}}}}\n"
        )
        benches.append(bind(load(path), "simulated", seed=4))
        return benches[-1]

    yield opened
    for one in benches:
        one.close()


def circuit(a: int, b: int) -> Circuit:
    """Return the circuit aA-bB."""
    return Circuit(a, 6 + b)


def device(bound: Bench) -> SonicSwitch:
    assert bound.world is not None
    found = bound.world.devices["ocs"][0]
    assert isinstance(found, SonicSwitch)
    return found


def configured(bound: Bench) -> set[str]:
    return set(device(bound).table("CONFIG_DB", "OCS_CROSS_CONNECT"))


def let_tune(patch: pytest.MonkeyPatch, bound: Bench, id_: str, after: int) -> None:
    """Let one cross-connect report that it tunes for `after` ns from now on both wires."""
    since = bound.clock.now()

    def tunes() -> bool:
        return bound.clock.now() < since + after

    def states(_: SonicSwitch, table: Table) -> Table:
        sides = {"a_side_status": "tuned", "b_side_status": "tuning"}
        return {key: {**row, **sides} if key == id_ and tunes() else row
                for key, row in table.items()}  # fmt: skip

    def printed(_: SimulatedSonicOcs, argv: Sequence[str], found: ProgramOutcome) -> ProgramOutcome:
        lines = found.stdout.splitlines()
        if list(argv) != ["show", "ocs", "cross-connect", "status"] or not tunes():
            return found
        rows = [
            " ".join([*line.split()[:3], "tuned", "tuning"]) if line.startswith(id_) else line
            for line in lines
        ]
        return found._replace(stdout="\n".join(rows))

    let_states_be(patch, states)
    let_programs_print(patch, printed)


# --------------------------------------------------------------------------------- changes


@pytest.mark.parametrize("wire", WIRES)
def test_a_circuit_that_is_removed_and_added_stays(opened: Callable[..., Bench], wire: str) -> None:
    bound = opened(wire)
    switch = bound.switches["ocs"]
    switch.change([], [circuit(2, 7), circuit(5, 3)]).done()
    switch.change([circuit(2, 7), circuit(5, 3)], [circuit(2, 7), circuit(4, 9)]).done()
    assert switch.circuits() == {circuit(2, 7), circuit(4, 9)}
    assert configured(bound) == {"2A-7B", "4A-9B"}


@pytest.mark.parametrize("wire", WIRES)
def test_a_change_of_nothing_sends_nothing(opened: Callable[..., Bench], wire: str) -> None:
    bound = opened(wire)
    switch = bound.switches["ocs"]
    switch.circuits()
    before, lines = bound.clock.now(), switch.wire()
    operation = switch.change([], [])
    assert operation.sent == operation.done() == (before, before)
    assert switch.wire() == lines


@pytest.mark.parametrize("wire", [*WIRES, "gnmi without subscriptions"])
def test_a_change_is_done_between_two_moments_around_the_true_one(
    opened: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch, wire: str
) -> None:
    """Two circuits moved, one made: the true moment is when the world had the last one."""
    wire, _, refuses = wire.partition(" ")
    if refuses:
        refuse_subscriptions(monkeypatch)
    bound = opened(wire)
    switch = bound.switches["ocs"]
    switch.change([], [circuit(2, 7), circuit(5, 3)]).done()
    begun = bound.clock.now()
    operation = switch.change(
        [circuit(2, 7), circuit(5, 3)], [circuit(2, 8), circuit(6, 3), circuit(1, 1)]
    )
    done = operation.done()
    assert bound.world is not None
    made = bound.world.truth.first("ocs", "acknowledged", up=True, since=begun + 1)
    assert made is not None
    assert begun <= operation.sent.earliest <= operation.sent.latest <= done.earliest
    assert done.earliest <= made.latest <= done.latest
    assert bound.clock.now() >= done.latest


@pytest.mark.parametrize("wire", [*WIRES, "gnmi without subscriptions"])
def test_a_port_may_tune_for_ten_seconds(
    opened: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch, wire: str
) -> None:
    """Side B alone tunes, for 9 s and for 12 s; the time-out is 10 s after the command."""
    wire, _, refuses = wire.partition(" ")
    if refuses:
        refuse_subscriptions(monkeypatch)
    bound = opened(wire)
    switch = bound.switches["ocs"]

    def notify(seconds: int) -> None:
        for observe in [*device(bound).observers]:
            observe()
        if seconds:
            bound.clock.schedule(bound.clock.now() + SECOND, "row", lambda: notify(seconds - 1))

    let_tune(monkeypatch, bound, "3A-8B", 9 * SECOND)
    operation = switch.change([], [circuit(3, 8), circuit(1, 2)])
    notify(9)
    done = operation.done()
    assert 8.9 * SECOND <= done.latest - operation.sent.earliest <= 9.9 * SECOND

    let_tune(monkeypatch, bound, "4A-9B", 12 * SECOND)
    operation = switch.change([], [circuit(4, 9), circuit(2, 1)])
    with pytest.raises(NotDoneError, match=r"does not tune 4A-9B \(tuned, tuning\)\n"):
        operation.done()
    assert 10 * SECOND <= bound.clock.now() - operation.sent.earliest <= 11 * SECOND


def test_updates_of_others_do_not_prolong_the_wait(
    opened: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another cross-connect's state changes every 10 ms, for 15 s, while one waits for 10 s."""
    bound = opened("gnmi")
    switch = bound.switches["ocs"]
    switch.change([], [circuit(5, 3)]).done()
    turns = 0

    def states(_: SonicSwitch, table: Table) -> Table:
        flapping = ("blocked", "tuned")[turns % 2]
        shown = {"5A-3B": flapping, "4A-9B": "tuning"}
        return {
            key: {**row, **{f"{side}_side_status": shown.get(key, "tuned") for side in "ab"}}
            for key, row in table.items()
        }

    def turn() -> None:
        nonlocal turns
        turns += 1
        for observe in [*device(bound).observers]:
            observe()
        if turns < 1500:
            bound.clock.schedule(bound.clock.now() + 10 * MS, "others", turn)

    let_states_be(monkeypatch, states)
    operation = switch.change([], [circuit(4, 9)])
    turn()
    with pytest.raises(NotDoneError, match="does not tune 4A-9B"):
        operation.done()
    assert 10 * SECOND <= bound.clock.now() - operation.sent.earliest <= 10.5 * SECOND


def test_a_set_without_the_outcome_of_each_operation_is_garbled(
    opened: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = opened("gnmi")
    from lightrig.instruments.simulated.devices.sonic_gnmi import SonicGnmi

    commit = SonicGnmi.commit

    def shortened(service: SonicGnmi, request: Any) -> Any:
        response = commit(service, request)
        del response.response[-1]
        return response

    switch = bound.switches["ocs"]
    switch.change([], [circuit(5, 3)]).done()
    monkeypatch.setattr(SonicGnmi, "commit", shortened)
    with pytest.raises(GarbledError, match="outcome of 3 operations"):
        switch.change([circuit(5, 3)], [circuit(4, 9), circuit(5, 2)]).done()


def test_a_subscription_tells_each_change_when_it_came(opened: Callable[..., Bench]) -> None:
    """Made, then taken down by another client, while a third circuit stays."""
    bound = opened("gnmi")
    switch: Any = bound.switches["ocs"]
    switch.change([], [circuit(1, 2)]).done()
    following = switch.follow_circuits()
    for remove, add in ([], [circuit(4, 9)]), ([circuit(4, 9)], [circuit(3, 9)]):
        begun = bound.clock.now()
        switch.change(remove, add).done()
        arrived, found = following.next(SECOND)
        while found != switch.circuits():
            arrived, found = following.next(SECOND)
        assert begun <= arrived.earliest <= arrived.latest <= bound.clock.now()
    assert found == {circuit(1, 2), circuit(3, 9)}
    assert len(device(bound).observers) == 1
    following.close()
    switch.circuits()
    assert device(bound).observers == []


def test_a_lost_shell_is_opened_anew(opened: Callable[..., Bench]) -> None:
    """A restart of the switch ends the connection; the next command opens another."""
    bound = opened("ssh")
    switch = bound.switches["ocs"]
    switch.change([], [circuit(4, 9)]).done()
    assert bound.world is not None
    bound.world.injectors["ocs"].fault = "cuts"
    with pytest.raises(Exception, match="ocs "):
        switch.circuits()
    bound.world.injectors["ocs"].stop()
    assert switch.circuits() == {circuit(4, 9)}


# ---------------------------------------------------------------------------------- tables


@pytest.mark.parametrize("wire", WIRES)
def test_the_identity_is_that_of_the_switch(opened: Callable[..., Bench], wire: str) -> None:
    found = opened(wire).switches["ocs"].identity()
    assert found == Identity("SONiC", "simulated-ocs", "SIM-ocs", "SONiC.OCS-202505.1")


@pytest.mark.parametrize("wire", WIRES)
def test_factory_losses_are_those_of_the_switch(opened: Callable[..., Bench], wire: str) -> None:
    """Columns by hand: 228.85 THz, 28 degrees, ± 0.1 dB; the losses are the switch's own."""
    bound = opened(wire)
    switch: Any = bound.switches["ocs"]
    losses = switch.factory_losses()
    table = device(bound).table("STATE_DB", "OCS_FACTORY_INSERTION_LOSS")
    for a, b in (2, 9), (6, 1):
        stated = float(table[f"{a}A-{b}B|228.850|28.00"]["loss_dB"])
        assert losses[circuit(a, b)] == FactoryLoss(stated, 0.1, 228.85, 28.0)
    assert len(losses) == 6 * 9


@pytest.mark.parametrize("wire", WIRES)
def test_a_label_and_a_shutter_are_those_of_their_side(
    opened: Callable[..., Bench], wire: str
) -> None:
    """Ports 3A and 8B, egress 14; and no other."""
    bound = opened(wire)
    switch: Any = bound.switches["ocs"]
    switch.set_label(14, "rack")
    switch.set_shutters([3, 14], is_open=False)
    switch.set_shutters([3], is_open=True)
    ports = device(bound).table("CONFIG_DB", "OCS_PORT")
    assert {id_: row for id_, row in ports.items() if row != ports["1A"]} == {
        "8B": {"label": "rack", "state": "force_blocked"}
    }
    assert switch.labels() == {port: "rack" if port == 14 else "" for port in range(1, 16)}
    assert switch.shutters([3, 14, 1]) == {3: True, 14: False, 1: True}


@pytest.mark.parametrize("printed", ["ERROR: port is locked\n", "some error, see the log\n"])
def test_a_setting_that_prints_an_error_has_failed(
    opened: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch, printed: str
) -> None:
    switch: Any = opened("ssh").switches["ocs"]
    let_programs_print(
        monkeypatch,
        lambda _, argv, found: found._replace(stdout=printed) if "label" in argv else found,
    )
    with pytest.raises(DeniedError) as raised:
        switch.set_label(3, "rack")
    assert raised.value.code == "no-success"
    assert raised.value.text == printed.strip()
    assert raised.value.command == "sudo -n config ocs port label 3A rack"


LEAVES: dict[str, Any] = {
    "number": 7,
    "none": None,
    "list of numbers": [7],
}


@pytest.mark.parametrize("leaf", LEAVES)
def test_a_leaf_that_is_no_text_is_refused(
    opened: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch, leaf: str
) -> None:
    bound = opened("gnmi")
    switch = bound.switches["ocs"]
    switch.change([], [circuit(2, 7), circuit(5, 3)]).done()
    let_states_be(
        monkeypatch,
        lambda _, table: {**table, "5A-3B": {**table["5A-3B"], "more": LEAVES[leaf]}},
    )
    switch.identity()
    with pytest.raises(GarbledError, match="no table of SONiC") as refused:
        switch.circuits()
    assert "of SONiC: SONiC.OCS-202505.1" in str(refused.value)


@pytest.mark.parametrize("row", [7, "tuned", ["tuned", "tuned"]], ids=["number", "text", "list"])
def test_a_row_without_leaves_is_refused(
    opened: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch, row: Any
) -> None:
    bound = opened("gnmi")
    switch = bound.switches["ocs"]
    switch.change([], [circuit(2, 7), circuit(5, 3)]).done()
    let_states_be(monkeypatch, lambda _, table: {**table, "5A-3B": row})
    with pytest.raises(GarbledError, match="no table of SONiC"):
        switch.circuits()


@pytest.mark.parametrize("missing", ["platform", "Value", "build_version"])
def test_an_identity_over_gnmi_without_one_of_its_leaves_is_refused(
    opened: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    bound = opened("gnmi")
    from lightrig.instruments.simulated.devices.sonic_gnmi import SonicGnmi

    read = SonicGnmi.read

    def without(service: SonicGnmi, names: list[str]) -> Any:
        return {leaf: value for leaf, value in read(service, names).items() if leaf != missing}

    monkeypatch.setattr(SonicGnmi, "read", without)
    with pytest.raises(GarbledError, match="no identity"):
        bound.switches["ocs"].identity()
