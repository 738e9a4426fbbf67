"""A served SONiC switch over gNMI, controlled by pygnmi, a client by others.

Sources of the expectations: SONiC OCS High Level Design, revision 0.5 (tables, one transaction);
sonic-gnmi, test_gnmi_configdb ("Invalid elem length", "Set RPC does not support"), poll_mode_test
and mixed_db_client.go (all of CONFIG_DB is saved after a Set that was not refused).
"""

import contextlib
import json
import queue
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import paramiko
import pytest
from real_time import LONG
from sonic_rack import rack
from switch_rig import LOGIN

from lightrig.harness.cli.served_lab import ServedLab
from lightrig.instruments.simulated.devices import simulated_sonic_ocs
from lightrig.instruments.simulated.protocols.listeners import Service
from lightrig.testbeds import load

pytest.importorskip("pygnmi", reason="the extra gnmi is not installed")
pytest.importorskip("h2", reason="the extra gnmi is not installed")

TABLE = "sonic-db:/CONFIG_DB/localhost/OCS_CROSS_CONNECT"
STATES = "sonic-db:/STATE_DB/localhost/OCS_CROSS_CONNECT"


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Service]]:
    """A switch whose address names SSH; gNMI is its further wire."""
    monkeypatch.setattr(simulated_sonic_ocs, "PROCESSING", 10_000_000)  # in real time
    lab = ServedLab(load(rack(tmp_path, scheme="ssh")), 0, 0, {"ocs": LOGIN})
    further = {each.scheme: each for each in lab.further_wires["ocs"]}
    yield {"ssh": lab.services["ocs"], **further}
    lab.close()


@contextlib.contextmanager
def program(service: Service, folder: Path, password: str = LOGIN[1]) -> Iterator[Any]:
    from pygnmi.client import gNMIclient

    file = folder / "trusted.pem"
    file.write_text(service.certificate)
    with gNMIclient(
        target=(service.host, service.port),
        username=LOGIN[0],
        password=password,
        path_cert=str(file),
        gnmi_timeout=30,
    ) as client:
        yield client


def sides(id_: str) -> tuple[str, dict[str, str]]:
    a, _, b = id_.partition("-")
    return f"{TABLE}/{id_}", {"a_side": a, "b_side": b}


@contextlib.contextmanager
def shell(service: Service) -> Iterator[Any]:
    client = paramiko.SSHClient()
    client.set_missing_host_key_policy(paramiko.AutoAddPolicy())
    client.connect(service.host, service.port, *LOGIN, look_for_keys=False, allow_agent=False)

    def run(line: str) -> str:
        _, stdout, _ = client.exec_command(line, timeout=60)
        return str(stdout.read().decode())

    yield run
    client.close()


def test_pygnmi_moves_circuits_and_follows_their_states(
    served: dict[str, Service], tmp_path: Path
) -> None:
    """The command line shows changes by pygnmi; its subscription shows changes by both."""
    came: queue.Queue[Any] = queue.Queue()
    with program(served["gnmi"], tmp_path) as client, shell(served["ssh"]) as run:
        wanted = {"path": STATES, "mode": "on_change"}
        stream = client.subscribe2(
            {"subscription": [wanted], "mode": "stream", "encoding": "json_ietf"}
        )
        threading.Thread(target=lambda: [came.put(each) for each in stream], daemon=True).start()
        assert came.get(timeout=LONG / 1e9)["sync_response"]

        def states_of(*ids: str) -> list[list[str]]:
            """Return the states of circuits until they are tuned; nothing else may change."""
            found: dict[str, list[str]] = {id_: [] for id_ in ids}
            while not all("tuned" in states for states in found.values()):
                update = came.get(timeout=LONG / 1e9)["update"]
                deleted.extend(each["path"] for each in update.get("delete", ()))
                for each in update.get("update", ()):
                    for id_, leaves in each["val"].items():
                        found[id_].append(leaves["b_side_status"])
            return [*found.values()]

        deleted: list[str] = []
        made = ["tuning", "tuned"]
        client.set(update=[sides("1A-2B"), sides("3A-4B")], encoding="json_ietf")
        assert states_of("1A-2B", "3A-4B") == [made, made]
        status = run("show ocs cross-connect status").split()
        assert {"1A-2B", "3A-4B"} <= set(status)
        client.set(delete=[sides("1A-2B")[0]], update=[sides("1A-6B")], encoding="json_ietf")
        assert states_of("1A-6B") == [made]
        assert deleted == [STATES.partition(":/")[2]]
        run("config ocs cross-connect add 7A-8B")
        assert states_of("7A-8B") == [made]
        found = client.get(path=[TABLE], encoding="json_ietf")
        assert set(found["notification"][0]["update"][0]["val"]) == {"1A-6B", "3A-4B", "7A-8B"}
        stream.close()
        # The switch has ended the call too; pygnmi has no public name for the thread that waits.
        assert not stream._subscribe_thread.is_alive()  # noqa: SLF001


def test_what_pygnmi_is_refused(served: dict[str, Service], tmp_path: Path) -> None:
    from pygnmi.client import gNMIException

    with program(served["gnmi"], tmp_path) as client:
        client.set(update=[sides("5A-6B")], encoding="json_ietf")

        def refused(text: str, **change: Any) -> None:
            with pytest.raises(gNMIException, match=text):
                client.set(**change, encoding="json_ietf")

        refused("in use by 5A-6B and 9A-6B", update=[sides("9A-6B")])
        refused("invalid cross-connect 1A-99B", update=[sides("1A-99B")])
        refused("cannot have", update=[(sides("1A-2B")[0], {"a_side": "1A", "b_side": "3B"})])
        refused("Invalid elem length", delete=["sonic-db:/CONFIG_DB/localhost"])
        refused("Set RPC does not support STATE_DB", delete=[f"{STATES}/5A-6B"])
        with pytest.raises(gNMIException, match="No valid entry found"):
            client.get(path=[f"{TABLE}/8A-8B"], encoding="json_ietf")
        found = client.get(path=[f"{STATES}/5A-6B/a_side"], encoding="json_ietf")
        assert found["notification"][0]["update"][0]["val"] == "5A"
    with (
        pytest.raises(gNMIException, match="Unauthenticated"),
        program(served["gnmi"], tmp_path, "another"),
    ):
        pass


def entries(client: Any, path: str) -> dict[str, Any]:
    found = client.get(path=[path], encoding="json_ietf")
    value = found["notification"][0]["update"][0]["val"]
    assert isinstance(value, dict)
    return value


def test_a_restart_keeps_what_a_set_has_saved_and_loses_the_rest(
    served: dict[str, Service], tmp_path: Path
) -> None:
    """A Set saves the whole configuration, what a command had left unsaved too."""
    ports = "sonic-db:/CONFIG_DB/localhost/OCS_PORT"
    with program(served["gnmi"], tmp_path) as client, shell(served["ssh"]) as run:
        run("config ocs cross-connect add 3A-4B,10A-11B")
        label = {"label": "up", "state": "force_blocked"}
        client.set(update=[sides("1A-2B"), (f"{ports}/7A", label)], encoding="json_ietf")
        client.set(delete=[sides("10A-11B")[0]], update=[sides("9A-8B")], encoding="json_ietf")
        run("config ocs cross-connect delete 1A-2B")
        run("config ocs port label 8A lost")
        run("config reload -y")
        kept = {"1A-2B", "3A-4B", "9A-8B"}
        assert set(entries(client, TABLE)) == set(entries(client, STATES)) == kept
        found = entries(client, ports)
        assert found["7A"] == label
        assert found["8A"] == {"label": "", "state": "normal"}


BLOCKED = {"label": "up", "state": "force_blocked"}
ROW = "sonic-db:/CONFIG_DB/localhost/OCS_PORT/7A"
PATCHES: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "a leaf is added": (
        {"update": [(f"{ROW}/label", '"new"')]},
        {"label": "new", "state": "force_blocked"},
    ),
    "a row is added": ({"update": [(ROW, {"label": "new"})]}, {"label": "new", "state": "normal"}),
    "a leaf is replaced": (
        {"replace": [(f"{ROW}/state", '"normal"')]},
        {"label": "up", "state": "normal"},
    ),
    "a leaf is removed": ({"delete": [f"{ROW}/label"]}, {"label": "", "state": "force_blocked"}),
    "deletes come first": (
        {"delete": [f"{ROW}/label"], "update": [(f"{ROW}/label", '"new"')]},
        {"label": "new", "state": "force_blocked"},
    ),
}


@pytest.mark.parametrize(("change", "left"), PATCHES.values(), ids=PATCHES)
def test_a_set_is_a_json_patch(
    served: dict[str, Service], tmp_path: Path, change: dict[str, Any], left: dict[str, str]
) -> None:
    """`add` replaces a member that exists, a whole row too (RFC 6902, 4.1).

    An update is such an `add` (sonic-gnmi, mixed_db_client.go). A leaf that is not there counts as
    one without a value: no label, no override.
    """
    with program(served["gnmi"], tmp_path) as client:
        client.set(update=[(ROW, BLOCKED)], encoding="json_ietf")
        client.set(**change, encoding="json_ietf")
        assert entries(client, ROW) == left


@pytest.mark.parametrize(
    "change",
    [
        {"update": [(f"{ROW[:-2]}99A/label", '"new"')]},  # "MUST ... itself exist" (RFC 6902, 4.1)
        {"replace": [(f"{ROW}/colour", '"red"')]},  # "The target location MUST exist" (4.3)
        {"update": [(f"{ROW}/label", ["new"])]},
        {"update": [(f"{ROW}/label/text", '"new"')]},
        {"delete": [ROW]},
        {"delete": [ROW.rpartition("/")[0]]},
        {"update": [(ROW.rpartition("/")[0], {"7A": {"label": "new"}})]},  # without other ports
    ],
    ids=str,
)
def test_a_patch_that_leads_nowhere_changes_nothing(
    served: dict[str, Service], tmp_path: Path, change: dict[str, Any]
) -> None:
    from pygnmi.client import gNMIException

    with program(served["gnmi"], tmp_path) as client:
        client.set(update=[(ROW, BLOCKED)], encoding="json_ietf")
        before = entries(client, ROW.rpartition("/")[0])
        update = [(f"{ROW[:-2]}8A/label", '"lost"'), *change.get("update", ())]
        with pytest.raises(gNMIException):
            client.set(**{**change, "update": update}, encoding="json_ietf")
        assert entries(client, ROW.rpartition("/")[0]) == before


def test_a_refused_set_saves_nothing(served: dict[str, Service], tmp_path: Path) -> None:
    from pygnmi.client import gNMIException

    with program(served["gnmi"], tmp_path) as client, shell(served["ssh"]) as run:
        run("config ocs cross-connect add 3A-4B")
        with pytest.raises(gNMIException, match="in use by"):
            client.set(update=[sides("5A-4B")], encoding="json_ietf")
        assert set(entries(client, STATES)) == {"3A-4B"}
        run("config reload -y")
        for path in (TABLE, STATES):
            with pytest.raises(gNMIException, match="No valid entry found"):
                entries(client, path)


def test_once_ends_by_itself_and_poll_answers_each_poll(
    served: dict[str, Service], tmp_path: Path
) -> None:
    """POLL sends the whole table, at first unasked, and says that it is gone."""
    wanted = {"subscription": [{"path": STATES}], "encoding": "json_ietf"}
    with program(served["gnmi"], tmp_path) as client:
        client.set(update=[sides("1A-2B")], encoding="json_ietf")
        first, *rest = client.subscribe2({**wanted, "mode": "once"})
        assert set(first["update"]["update"][0]["val"]) == {"1A-2B"}
        assert rest == [{"sync_response": True}]
        poll = client.subscribe2({**wanted, "mode": "poll"})

        def polled() -> dict[str, Any]:
            """Poll twice: pygnmi returns what came before, the first time the state unasked."""
            poll.get_update(timeout=LONG / 1e9)
            answer = poll.get_update(timeout=LONG / 1e9)["update"]
            assert isinstance(answer, dict)
            return answer

        assert set(polled()["update"][0]["val"]) == {"1A-2B"}
        client.set(update=[sides("3A-5B")], encoding="json_ietf")
        assert set(polled()["update"][0]["val"]) == {"1A-2B", "3A-5B"}
        client.set(delete=[sides("1A-2B")[0], sides("3A-5B")[0]], encoding="json_ietf")
        assert polled()["delete"] == [{"path": STATES.partition(":/")[2]}]
        poll.close()


def test_the_requests_of_py_gnmicli(served: dict[str, Service]) -> None:
    """What the client that sonic-mgmt's helper `gnmi_set` starts sends, and what it prints of Get.

    gnmi_cli_py of ganglyu/sonic-gnxi: `-xo sonic-db` is the origin of each path, a value `@FILE`
    is JSON of IETF, `#` makes a path one to delete, and Get asks for JSON behind an empty prefix.
    """
    import grpc
    from pygnmi.spec.v080 import gnmi_pb2, gnmi_pb2_grpc

    def path(*names: str) -> Any:
        elements = [gnmi_pb2.PathElem(name=name, key={}) for name in ("CONFIG_DB", *names)]
        return gnmi_pb2.Path(elem=elements, origin="sonic-db")

    def update(id_: str) -> Any:
        value = json.dumps(sides(id_)[1]).encode()
        typed = gnmi_pb2.TypedValue(json_ietf_val=value)
        return gnmi_pb2.Update(path=path("localhost", "OCS_CROSS_CONNECT", id_), val=typed)

    service, login = served["gnmi"], [("username", LOGIN[0]), ("password", LOGIN[1])]
    trusted = grpc.ssl_channel_credentials(service.certificate.encode())
    with grpc.secure_channel(f"{service.host}:{service.port}", trusted) as channel:
        stub = gnmi_pb2_grpc.gNMIStub(channel)

        def change(deleted: Sequence[str], *updated: str) -> list[int]:
            paths = [path("localhost", "OCS_CROSS_CONNECT", each) for each in deleted]
            request = gnmi_pb2.SetRequest(delete=paths, update=[update(each) for each in updated])
            return [each.op for each in stub.Set(request, metadata=login).response]

        deletion, addition = gnmi_pb2.UpdateResult.DELETE, gnmi_pb2.UpdateResult.UPDATE
        assert change([], "1A-2B", "3A-5B") == [addition, addition]
        assert change(["1A-2B"], "1A-7B") == [deletion, addition]
        wanted = gnmi_pb2.GetRequest(
            prefix=gnmi_pb2.Path(target=None),
            path=[path("localhost", "OCS_CROSS_CONNECT")],
            encoding=gnmi_pb2.JSON,
        )
        (notification,) = stub.Get(wanted, metadata=login).notification
        value = notification.update[0].val
        found = json.loads(value.json_val or value.json_ietf_val)
        assert found == {id_: sides(id_)[1] for id_ in ("1A-7B", "3A-5B")}
