"""SONiC on an optical circuit switch: the simulated one against sonic-mgmt, and the driver.

Sources of the expectations: sonic-net/sonic-mgmt, tests of `ocs cross-connect` (a success prints
`succeeded`; modes; batches; `does not exist`) and devices L1Device and ocs_cross_connect
(`cross-connect succeeded`, tables); SONiC OCS High Level Design, revision 0.5 (section 9).
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sonic_rack import let_programs_print

from lightrig.harness.bench import Bench, bind
from lightrig.instruments.core.capabilities import FactoryCalibrated
from lightrig.instruments.core.errors import DeniedError, GarbledError, NotDoneError
from lightrig.instruments.servers.host.commands import CommandResult, Commands
from lightrig.instruments.simulated.devices.simulated_sonic_ocs import SimulatedSonicOcs
from lightrig.instruments.simulated.protocols.ssh_server import ProgramOutcome
from lightrig.instruments.switches.sonic_ocs import SonicOcs
from lightrig.instruments.switches.sonic_ocs.command_line import listed_with_ranges
from lightrig.instruments.wire.ssh import SshLogin, SshShell
from lightrig.testbeds import Circuit, load

N = 64
CONFIG = "show ocs cross-connect config"
STATUS = "show ocs cross-connect status"


@contextmanager
def bench(folder: Path, options: str = "") -> Iterator[Bench]:
    path = folder / "sonic.yaml"
    path.write_text(
        "name: sonic\nswitches:\n  ocs: {model: sonic-ocs, "
        f'address: "ssh://ocs.invalid", size: {N}x{N}, options: {{{options}}}}}\n'
    )
    bound = bind(load(path), "simulated", seed=4)
    try:
        yield bound
    finally:
        bound.close()


class Shell:
    """The switch's command line, as a program of somebody else uses it, in a session of its own."""

    def __init__(self, bound: Bench) -> None:
        driver = bound.switches["ocs"]
        assert isinstance(driver, SonicOcs)
        at = driver.endpoint
        assert at.port is not None
        assert at.login is not None
        self.clock = bound.clock
        login = SshLogin(*at.login, at.known_hosts)
        shell = SshShell("ocs", at.host, self.clock, port=at.port, login=login)
        self._commands = Commands("ocs", shell, self.clock)

    def run(self, line: str) -> CommandResult:
        return self._commands.run(line.split())

    def succeeds(self, line: str) -> None:
        """Expect what sonic-mgmt's `send_and_verify_command(..., expect="succeeded")` does."""
        assert "succeeded" in self.run(line).stdout, line

    def ids(self, table: str) -> list[str]:
        """Return the first column, as sonic-mgmt's `pick_ocs_cross` reads it."""
        lines = self.run(table).stdout.splitlines()
        return [line.split()[0] for line in lines if "A-" in line and "B" in line]


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with bench(tmp_path) as bound:
        yield Shell(bound)


# ------------------------------------------------------------------- the simulated switch


def test_update_moves_a_port_that_is_in_use(shell: Shell) -> None:
    for pair in ("12A-40B", "12A-40B", "12A-17B"):
        shell.succeeds(f"config ocs cross-connect add {pair} update")
        assert shell.ids(CONFIG) == [pair]
    shell.succeeds("config ocs cross-connect delete 12A-17B")
    assert shell.ids(CONFIG) == []


def test_update_is_the_default_mode(shell: Shell) -> None:
    shell.succeeds("config ocs cross-connect add 12A-40B")
    shell.succeeds("config ocs cross-connect add 13A-40B")
    assert shell.ids(CONFIG) == ["13A-40B"]


def test_safe_refuses_a_port_that_is_in_use(shell: Shell) -> None:
    shell.succeeds("config ocs cross-connect add 1A-1B safe")
    assert "succeeded" not in shell.run("config ocs cross-connect add 2A-1B safe").stdout
    assert shell.ids(CONFIG) == ["1A-1B"]


def test_overwrite_replaces_every_cross_connect(shell: Shell) -> None:
    shell.succeeds("config ocs cross-connect add 1A..10A-11B..20B")
    shell.succeeds("config ocs cross-connect add 63A-64B overwrite")
    assert shell.ids(CONFIG) == shell.ids(STATUS) == ["63A-64B"]


def test_lists_and_ranges_are_taken_together(shell: Shell) -> None:
    batches = {
        "1A-2B,3A-4B": ["1A-2B", "3A-4B"],
        "24A..27A-24B..27B": ["24A-24B", "25A-25B", "26A-26B", "27A-27B"],
        "5A-6B,34A..37A-34B..37B": ["5A-6B", "34A-34B", "35A-35B", "36A-36B", "37A-37B"],
    }
    for batch in batches:
        shell.succeeds(f"config ocs cross-connect add {batch} update")
    assert set(shell.ids(CONFIG)) == {each for ids in batches.values() for each in ids}
    for batch in reversed(batches):
        shell.succeeds(f"config ocs cross-connect delete {batch}")
    assert shell.ids(CONFIG) == []


def test_a_range_displaces_a_single_pair_within_it(shell: Shell) -> None:
    shell.succeeds("config ocs cross-connect add 25A-26B")
    shell.succeeds("config ocs cross-connect add 24A..27A-24B..27B update")
    assert shell.ids(CONFIG) == ["24A-24B", "25A-25B", "26A-26B", "27A-27B"]


def test_ids_in_lower_case_are_accepted_and_a_second_delete_is_not(shell: Shell) -> None:
    shell.succeeds("config ocs cross-connect add 7a-9b update")
    shell.succeeds("config ocs cross-connect delete 7a-9b")
    again = shell.run("config ocs cross-connect delete 7a-9b").stdout.lower()
    assert "succeeded" not in again
    assert "does not exist" in again


def test_a_port_out_of_range_is_in_neither_table(shell: Shell) -> None:
    assert "succeeded" not in shell.run("config ocs cross-connect add 65A-66B update").stdout
    assert shell.ids(CONFIG) == shell.ids(STATUS) == []


def test_the_help_lists_the_modes(shell: Shell) -> None:
    assert "safe|update|overwrite" in shell.run("config ocs cross-connect add 1A-1B --help").stdout


def test_both_tables_have_the_published_columns(shell: Shell) -> None:
    shell.succeeds("sudo config ocs cross-connect add 12A-32B")
    shell.clock.sleep(10**9)
    config = shell.run(CONFIG).stdout.splitlines()
    status = shell.run(STATUS).stdout.splitlines()
    assert config[0].split() == ["id", "a_side", "b_side"]
    assert config[2].split() == ["12A-32B", "12A", "32B"]
    assert status[0].split() == ["id", "a_side", "b_side", "a_side_status", "b_side_status"]
    assert status[2].split() == ["12A-32B", "12A", "32B", "tuned", "tuned"]


def test_the_factory_insertion_losses_have_the_published_columns(shell: Shell) -> None:
    lines = shell.run("show ocs factory-insertion-loss").stdout.splitlines()
    assert lines[0].split() == ["id", "frequency_THz", "temperature_C", "loss_dB", "accuracy_dB"]
    row = re.fullmatch(r"1A-1B +228\.85 +28 +\d\.\d\d? +0\.1", lines[2])
    assert row is not None
    assert len(lines) == 2 + N * N


# ---------------------------------------------------------------------------- the driver


def configured(bound: Bench) -> list[str]:
    return [line for line in bound.switches["ocs"].wire() if "config ocs" in line]


def test_sixty_four_circuits_move_in_one_command(tmp_path: Path) -> None:
    before = {Circuit(i, N + i) for i in range(1, N + 1)}
    after = {Circuit(i, N + i % N + 1) for i in range(1, N + 1)}
    with bench(tmp_path) as bound:
        switch = bound.switches["ocs"]
        switch.change(set(), before).done()
        operation = switch.change(before, after)
        took = operation.done().latest - operation.sent.earliest
        assert switch.circuits() == after
        sent = configured(bound)[-1]
    assert sent.count("config ocs cross-connect") == 1
    assert "sudo -n config ocs cross-connect add 1A..63A-2B..64B,64A-1B update" in sent
    assert took < 2_000_000_000


def test_circuits_that_are_only_removed_are_one_command_more(tmp_path: Path) -> None:
    with bench(tmp_path) as bound:
        switch = bound.switches["ocs"]
        before = {Circuit(1, N + 1), Circuit(2, N + 2), Circuit(9, N + 9)}
        switch.change(set(), before).done()
        switch.change(before, {Circuit(1, N + 2)}).done()
        assert switch.circuits() == {Circuit(1, N + 2)}
        assert "delete 9A-9B && " in configured(bound)[-1]
        assert "add 1A-2B update" in configured(bound)[-1]


def test_new_circuits_take_no_port_of_another(tmp_path: Path) -> None:
    with bench(tmp_path) as bound:
        switch = bound.switches["ocs"]
        theirs = Circuit(1, N + 2)
        switch.change(set(), {theirs, Circuit(4, N + 4)}).done()
        with pytest.raises(DeniedError, match="port in use by 1A-2B"):
            switch.change(set(), {Circuit(3, N + 2)}).done()
        with pytest.raises(DeniedError, match="port is in use by 1A-2B"):
            switch.change({Circuit(4, N + 4)}, {Circuit(4, N + 2)})
        assert theirs in switch.circuits()


def test_a_first_command_that_fails_is_no_success_of_the_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A circuit that somebody deletes after it was read, on a switch whose failures exit with 0."""

    def answer(
        device: SimulatedSonicOcs, argv: Sequence[str], outcome: ProgramOutcome
    ) -> ProgramOutcome:
        if list(argv) == CONFIG.split():
            device.run(["config", "ocs", "cross-connect", "delete", "9A-9B"])
        return outcome._replace(status=0)

    deleted = frozenset({Circuit(9, N + 9)})
    with bench(tmp_path) as bound:
        switch = bound.switches["ocs"]
        switch.change([], deleted).done()
        let_programs_print(monkeypatch, answer)
        with pytest.raises(DeniedError, match="9A-9B does not exist"):
            switch.change(deleted, {Circuit(1, N + 3)}).done()
        assert switch.circuits() == {Circuit(1, N + 3)}


def test_circuits_that_only_the_hardware_has_are_removed(tmp_path: Path) -> None:
    stale = {Circuit(5, N + 6), Circuit(7, N + 8)}
    wanted = {Circuit(5, N + 7), Circuit(7, N + 8)}
    with bench(tmp_path, 'stale: "5A-6B,7A-8B"') as bound:
        switch = bound.switches["ocs"]
        assert switch.circuits() == stale
        switch.change(stale - wanted, wanted - stale).done()
        assert switch.circuits() == wanted
        assert "delete 5A-6B && " in configured(bound)[-1]
        assert "add 5A-7B safe" in configured(bound)[-1]


@pytest.mark.parametrize("words", ["hld", "guide"])
def test_a_change_is_done_in_both_vocabularies_of_port_states(tmp_path: Path, words: str) -> None:
    with bench(tmp_path, f"port_states: {words}") as bound:
        operation = bound.switches["ocs"].change(set(), {Circuit(1, N + 1)})
        done = operation.done()
        assert done.earliest >= operation.sent.latest
        assert done.latest - operation.sent.earliest < 5_000_000_000


def let_status_be(patch: pytest.MonkeyPatch, *rows: str) -> None:
    """Let the switch print a table of states with these rows."""
    text = "\n".join(["id a_side b_side a_side_status b_side_status", "-- -- -- -- --", *rows])
    let_programs_print(
        patch,
        lambda _, argv, outcome: (
            outcome._replace(stdout=text) if list(argv) == STATUS.split() else outcome
        ),
    )


@pytest.mark.parametrize("state", ["failed", "powered-off"])
def test_a_failed_port_is_an_error_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    with bench(tmp_path) as bound:
        switch = bound.switches["ocs"]
        operation = switch.change(set(), {Circuit(1, N + 1)})
        let_status_be(monkeypatch, f"1A-1B 1A 1B {state} connected")
        begun = bound.clock.now()
        with pytest.raises(NotDoneError, match=f"1A-1B .{state}, connected"):
            operation.done()
        assert bound.clock.now() - begun < 1_000_000_000


def test_a_command_that_prints_no_success_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bench(tmp_path) as bound:
        switch = bound.switches["ocs"]
        assert isinstance(switch, SonicOcs)
        operation = switch.change(set(), {Circuit(1, N + 1)})
        quiet = CommandResult("Warning: orchagent is busy\n", "", 0, operation.sent)
        monkeypatch.setattr(
            "lightrig.instruments.servers.host.commands.Started.result", lambda *_: quiet
        )
        with pytest.raises(DeniedError, match="orchagent is busy"):
            operation.done()


@pytest.mark.parametrize(
    ("printed", "text", "answered"),
    [
        (("", "", 0), "0 of 1 commands printed `succeeded`", "no stdout; no stderr"),
        (("port 1A is locked\n", "", 0), "port 1A is locked", "stdout: 'port 1A is locked'; no"),
        (("", "sudo: expired\n", 0), "sudo: expired", "no stdout; stderr: 'sudo: expired'"),
        (("locked\n", "sudo: hm\n", 0), "locked", "stdout: 'locked'; stderr: 'sudo: hm'"),
        (("1 of 2 not succeeded\n", "", 0), "1 of 2 not succeeded", "stdout: '1 of 2 not"),
        (("Nothing succeeded\n", "", 0), "Nothing succeeded", "stdout: 'Nothing"),
        (("add succeeded: 0\n", "", 0), "add succeeded: 0", "stdout: 'add succeeded"),
    ],
    ids=["nothing", "stdout", "stderr", "both", "some", "none", "count"],
)
def test_a_denial_with_exit_status_0_shows_what_was_sent_and_received(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    printed: tuple[str, str, int],
    text: str,
    answered: str,
) -> None:
    """The switch denies a port in use (mode `safe`), and its command line ends with 0."""
    failed = ProgramOutcome(*printed)
    with bench(tmp_path) as bound:
        Shell(bound).succeeds("config ocs cross-connect add 1A-7B")
        let_programs_print(monkeypatch, lambda _, __, found: failed if found.status else found)
        with pytest.raises(DeniedError) as raised:
            bound.switches["ocs"].change(set(), {Circuit(1, N + 3)}).done()
        assert bound.switches["ocs"].circuits() == {Circuit(1, N + 7)}
    error = raised.value
    assert (error.code, error.text) == ("no-success", text)
    assert error.command == "sudo -n config ocs cross-connect add 1A-3B safe"
    assert f"exit status 0; {answered}" in str(error)
    assert "0 of 1 commands printed `succeeded`" in str(error)


@pytest.mark.parametrize(
    "line",
    [
        "add cross-connect succeeded",
        "cross-connect 1A-1B succeeded.",
        "Succeeded",
        "config ocs cross-connect add 1A..3A-1B..3B,5A-6B: succeeded",
    ],
)
def test_a_line_of_a_command_ids_and_succeeded_is_a_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    with bench(tmp_path) as bound:
        let_programs_print(
            monkeypatch,
            lambda _, __, outcome: (
                outcome._replace(stdout=f"{line}\n") if "succeeded" in outcome.stdout else outcome
            ),
        )
        bound.switches["ocs"].change(set(), {Circuit(1, N + 1)}).done()
        assert bound.switches["ocs"].circuits() == {Circuit(1, N + 1)}


def test_ids_with_slots_need_the_number_of_ports_in_a_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_status_be(monkeypatch, "1-1A-3-2B 1-1A 3-2B connected connected")
    with bench(tmp_path) as bound, pytest.raises(GarbledError, match="slot_ports"):
        bound.switches["ocs"].circuits()
    with bench(tmp_path, "slot_ports: 16") as bound:
        assert bound.switches["ocs"].circuits() == {Circuit(1, N + 34)}


def test_circuits_of_a_chassis_are_listed_one_by_one(tmp_path: Path) -> None:
    """Ports 16 and 17 are the last of slot 1 and the first of slot 2."""
    with bench(tmp_path, "slot_ports: 16") as bound:
        switch = bound.switches["ocs"]
        with pytest.raises(DeniedError):  # the simulated switch has no slots
            switch.change([], [Circuit(16, N + 17), Circuit(17, N + 18)]).done()
        assert configured(bound)[-1].endswith("add 1-16A-2-1B,2-1A-2-2B safe'")


def test_factory_losses_agree_with_the_true_ones_within_their_accuracy(tmp_path: Path) -> None:
    with bench(tmp_path) as bound:
        switch = bound.switches["ocs"]
        assert isinstance(switch, FactoryCalibrated)
        losses = switch.factory_losses()
        assert len(losses) == N * N
        assert bound.world is not None
        for circuit in (Circuit(1, N + 1), Circuit(64, N + 3)):
            factory = losses[circuit]
            true = bound.world.loss("ocs", circuit)
            assert factory.loss_db == pytest.approx(true, abs=3 * factory.accuracy_db)
            assert (factory.frequency_thz, factory.temperature_c) == (228.85, 28.0)


def expanded(listed: str) -> list[str]:
    """Return the pairs of a list with ranges, as sonic-mgmt's `expand_port_pairs` does."""
    pairs = []
    for part in listed.split(","):
        if ".." not in part:
            pairs.append(part)
            continue
        (a, a_end), (b, b_end) = ([int(p[:-1]) for p in s.split("..")] for s in part.split("-"))
        pairs += [
            f"{x}A-{y}B" for x, y in zip(range(a, a_end + 1), range(b, b_end + 1), strict=True)
        ]
    return pairs


@given(st.permutations(range(1, 17)), st.integers(1, 16))
def test_lists_of_circuits_expand_to_the_same_circuits(order: Sequence[int], count: int) -> None:
    pairs = [(a, order[a - 1]) for a in range(1, count + 1)]
    assert expanded(listed_with_ranges(pairs)) == [f"{a}A-{b}B" for a, b in pairs]
