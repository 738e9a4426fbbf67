"""A served SONiC switch as a host: its shell, its databases, its restarts, and Ansible.

Sources of the expectations: SONiC OCS High Level Design, revision 0.5, sections 6.1 and 9; the
programs that the tests run. sonic-mgmt's own Ansible module `ocs_cross_connect` runs unchanged
where `make public-sources` has fetched it (tests/public_sources.py).
"""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import paramiko
import pytest
from public_sources import fetched

from lightrig.harness.cli.served_lab import ServedLab
from lightrig.instruments.simulated.devices import simulated_sonic_ocs
from lightrig.instruments.simulated.hosts.host_shell import shell_obstacle
from lightrig.instruments.simulated.protocols.listeners import Service
from lightrig.testbeds import load

Run = Callable[[str], tuple[str, int]]
STATUS = "show ocs cross-connect status"
PLAYBOOK = """
- hosts: all
  gather_facts: false
  tasks:
    - become: true
      ocs_cross_connect:
        cross_connects: "{{{{ wanted }}}}"
        verify_delay: 1
      register: outcome
    - ansible.builtin.copy:
        content: "{{{{ outcome | to_json }}}}"
        dest: "{folder}/outcome.json"
      delegate_to: localhost
      vars: {{ansible_connection: local}}
"""


def rack(folder: Path, options: str = "") -> Path:
    path = folder / "rack.yaml"
    path.write_text(
        'name: rack\nswitches: {ocs: {model: sonic-ocs, address: "ssh://ocs.invalid", '
        f"size: 6x5, options: {{{options}}}}}}}\n"
    )
    return path


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    if reason := shell_obstacle():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("rack")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulated_sonic_ocs, "PROCESSING", 10_000_000)  # in real time
        lab = ServedLab(load(rack(folder)), 0, 0, {"ocs": ("admin", "YourPaSsWoRd")})
        yield lab.services["ocs"]
        lab.close()


@pytest.fixture
def run(served: Service) -> Iterator[Run]:
    """Run a line as a program of somebody else does; what a test has not saved is lost."""
    client = paramiko.SSHClient()
    client.set_missing_host_key_policy(paramiko.AutoAddPolicy())
    client.connect(
        served.host,
        served.port,
        *served.login,
        look_for_keys=False,
        allow_agent=False,
    )

    def line(text: str) -> tuple[str, int]:
        _, stdout, stderr = client.exec_command(text, timeout=60)
        printed = stdout.read().decode() + stderr.read().decode()
        return printed, stdout.channel.recv_exit_status()

    yield line
    line("config reload -y")
    client.close()


def test_a_line_of_the_shell_uses_the_switchs_programs(run: Run) -> None:
    assert run("sudo config ocs cross-connect add 2A-5B && echo made | tr a-z A-Z") == (
        "add cross-connect succeeded\nMADE\n",
        0,
    )
    assert run(f"{STATUS} | awk '/2A-5B/ {{print $3}}'") == ("5B\n", 0)
    assert run(
        "config ocs cross-connect delete 2A-5B; mkdir -p x/y; uname; python3 -c 'print(6*7)'"
    )[0].splitlines() == ["delete cross-connect succeeded", "Linux", "42"]


def test_the_stated_user_has_a_home(run: Run) -> None:
    assert run('test ~admin = "$HOME" && touch ~admin/x && whoami')[0] == "admin\n"


def test_an_unknown_command_keeps_its_status(run: Run) -> None:
    assert run("config bgp shutdown all") == ("Error: No such command\n", 2)


def test_databases_agree_with_the_tables(run: Run) -> None:
    assert run("config ocs cross-connect add 3A-4B,1A-2B") == ("add cross-connect succeeded\n", 0)
    keys = run("sonic-db-cli CONFIG_DB KEYS 'OCS_CROSS_CONNECT|*'")
    assert keys == ("OCS_CROSS_CONNECT|1A-2B\nOCS_CROSS_CONNECT|3A-4B\n", 0)
    found = run("sonic-db-cli CONFIG_DB hgetall 'OCS_CROSS_CONNECT|3A-4B'")[0]
    assert ast.literal_eval(found) == {"a_side": "3A", "b_side": "4B"}
    state = ast.literal_eval(run("sonic-db-cli STATE_DB HGETALL 'OCS_PORT|4B'")[0])
    assert state["target_simplex_port_id"] == "3A"
    assert state["connector_pin"] == "1"
    assert run("sonic-db-cli STATE_DB EXISTS 'OCS_CROSS_CONNECT_PHYSICAL_PATH|3A-4B'") == ("1\n", 0)
    losses = run("sonic-db-cli STATE_DB KEYS 'OCS_FACTORY_INSERTION_LOSS|6A-5B|*'")[0]
    assert losses == "OCS_FACTORY_INSERTION_LOSS|6A-5B|228.850|28.00\n"
    assert run("sonic-db-cli CONFIG_DB HGET 'OCS_CROSS_CONNECT|3A-4B' b_side") == ("4B\n", 0)
    assert run("sonic-db-cli CONFIG_DB HGETALL 'OCS_CROSS_CONNECT|5A-5B'") == ("{}\n", 0)
    assert run("sonic-db-cli NO_DB PING")[1] == 1
    assert run("sonic-db-cli CONFIG_DB FLUSHDB")[1] == 1


def test_a_port_that_is_forced_to_block_blocks_its_circuit(run: Run) -> None:
    run("config ocs cross-connect add 3A-4B")
    run("config ocs port label 3A up_left")
    assert run("config ocs port state 3A force_blocked") == ("", 0)
    assert ["3A", "up_left", "force_blocked"] in rows(run("show ocs port config")[0])
    states = {row[0]: row[-1] for row in rows(run("show ocs port status")[0])}
    assert states["3A"] == states["4B"] == "blocked"
    assert run("config ocs port state 3A normal") == ("", 0)
    assert rows(run(STATUS)[0])[-1][-2:] == ["tuned", "tuned"]
    assert run("config ocs port state 7A normal")[1] == 1
    assert run("config ocs port state 3A open")[1] == 2


def rows(table: str) -> list[list[str]]:
    return [line.split() for line in table.splitlines()]


def test_the_port_mapping_is_in_four_pairs_of_columns(run: Run) -> None:
    lines = rows(run("show ocs port-mapping")[0])
    assert lines[3] == ["1A", "A-1", "4A", "A-4", "1B", "B-1", "4B", "B-4"]
    assert lines[5] == ["3A", "A-3", "6A", "A-6", "3B", "B-3"]
    assert len(lines) == 6


def test_a_restart_keeps_what_was_saved_and_loses_the_rest(run: Run) -> None:
    run("config ocs cross-connect add 1A-2B")
    assert run("sudo config save -y")[1] == 0
    assert run("config save")[1] == 1
    run("config ocs cross-connect add 3A-4B,1A-1B")
    run("config ocs port label 2A lost")
    run("config ocs port state 5B force_blocked")
    assert run("config reload -y")[1] == 0
    assert [row[0] for row in rows(run("show ocs cross-connect config")[0])[2:]] == ["1A-2B"]
    assert [row[0] for row in rows(run(STATUS)[0])[2:]] == ["1A-2B"]
    config = rows(run("show ocs port config")[0])
    assert ["2A", "normal"] in config
    assert ["5B", "normal"] in config
    run("config ocs cross-connect delete 1A-2B; config save -y")


def module() -> Path:
    path = fetched("sonic-net/sonic-mgmt", "ansible/library/ocs_cross_connect.py")
    if path is None:
        pytest.skip("needs a public program: make public-sources fetches ocs_cross_connect")
    return path


@pytest.mark.long
def test_the_module_of_sonic_mgmt_runs_unchanged(served: Service, run: Run, tmp_path: Path) -> None:
    """Add, verify, idempotence, and the deletion of what is in the way."""
    library = module().parent

    def play(wanted: dict[int, int]) -> dict[str, object]:
        user, password = served.login
        (tmp_path / "known_hosts").write_text(f"{served.known_hosts}\n")
        inventory = tmp_path / "inventory"
        inventory.write_text(
            f"ocs ansible_host={served.host} ansible_port={served.port} ansible_user={user} "
            f"ansible_password={password} ansible_python_interpreter={sys.executable}\n"
        )
        book = tmp_path / "play.yaml"
        book.write_text(PLAYBOOK.format(folder=tmp_path))
        program = Path(sys.executable).with_name("ansible-playbook")
        extra = json.dumps({"wanted": wanted})
        done = subprocess.run(
            [program, "-i", inventory, "-M", library, "-e", extra, book],
            env={
                **os.environ,
                "ANSIBLE_HOME": str(tmp_path / "ansible"),
                "ANSIBLE_NOCOLOR": "1",
                "ANSIBLE_TIMEOUT": "120",
                "ANSIBLE_SSH_ARGS": f"-F none -o UserKnownHostsFile={tmp_path}/known_hosts",
                "ANSIBLE_SSH_PASSWORD_MECHANISM": "ssh_askpass",
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        outcome: dict[str, object] = json.loads((tmp_path / "outcome.json").read_text())
        return {name: outcome[name] for name in ("changed", "added", "removed")}

    first = {"changed": True, "added": ["1A-4B", "4A-1B"], "removed": []}
    assert play({1: 4}) == first
    assert [row[0] for row in rows(run(STATUS)[0])[2:]] == ["1A-4B", "4A-1B"]
    assert play({1: 4}) == {"changed": False, "added": [], "removed": []}
    second = {"changed": True, "added": ["1A-3B", "3A-1B"], "removed": ["1A-4B", "4A-1B"]}
    assert play({1: 3}) == second
    assert [row[0] for row in rows(run(STATUS)[0])[2:]] == ["1A-3B", "3A-1B"]
    run("config ocs cross-connect delete 1A-3B,3A-1B")
